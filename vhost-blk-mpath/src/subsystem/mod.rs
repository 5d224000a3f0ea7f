//! Decides: a host asks for this number of I/O queues (`controller_config`).
//!
//! The subsystem of one disk, or of several disks that are namespaces of it and share its paths. It holds what paths,
//! I/O threads and front-ends share.

mod admission;
mod clear_fences;
mod disk_hold;
pub(crate) mod error;
pub(crate) mod fences;
pub(crate) mod health;
mod injections;
pub(crate) mod namespace_writers;
pub(crate) mod path_injection;
pub(crate) mod path_status;
mod settings;
pub(crate) mod shared_context;
pub(crate) mod size;
pub(crate) mod vendor_window;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use monotonic::Instant;
use mpath_api::types::{ChangeSource, EventKind, EventPath};
use mpath_api_server::PathRef;
use mpath_config::{DiskConfig, MaxTransfer, PathAddress, Seconds};
use mpath_core::{DiskId, Epoch, FlowId, Group, GroupConfig, PathId, Window};
use mpath_lifecycle::{
    Admissions, CONNECT_MAX, DiskDriver, InheritedFence, NamespaceUpdate, PathSettings, Unusable, VirtqueueThreads,
};
use nvme_tcp::host::{ControllerConfig, ControllerInfo, HostIdentity};
use nvme_tcp::wire::Digests;
use reactor::{CloseMode, DiskQueues, IoThreadHandle, IoThreads, PathSetPart};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::disk::settings::DiskSettings;
use crate::disk::{Backing, Disk};
use crate::disk_files::fence_record::FenceRecords;
use crate::events::EventLog;
use crate::io_threads::reports::Reports;
use crate::io_threads::{barrier, injection};
use crate::subsystem::error::HostError;
use crate::subsystem::fences::SharedFences;
use crate::subsystem::namespace_writers::NamespaceWriters;
use crate::subsystem::path_status::{PathStatus, State};
use crate::subsystem::shared_context::SharedContext;
use crate::transport::Security;

pub(crate) struct Subsystem {
    /// The configuration of the disk that owns the paths. It is the first of `disks`.
    pub(crate) config: DiskConfig,
    /// By id.
    pub(crate) disks: Vec<Disk>,
    pub(crate) host: HostIdentity,
    pub(crate) security: Security,
    pub(crate) records: FenceRecords,
    /// The fences of its lost associations.
    pub(crate) fences: SharedFences,
    io_threads: u16,
    /// All I/O threads of the daemon.
    all_threads: Arc<IoThreads>,
    pub(crate) reports: Arc<Reports>,
    /// True once the subsystem ends.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// The I/O threads of virtqueues.
    virtqueues: Mutex<VirtqueueThreads>,
    /// Given by the first admitted path, or for a disk that an earlier daemon has shown.
    threads: OnceLock<Vec<IoThreadHandle>>,
    /// Held while a path is being admitted.
    admission: Mutex<()>,
    writers: Arc<NamespaceWriters>,
    /// Held while a disk takes a step.
    pub(crate) stepping: AsyncMutex<()>,
    /// Held while a minute goes from the I/O threads to the files of the history, so that no client misses it.
    pub(crate) keeping: Arc<AsyncMutex<()>>,
    /// Signals a change of paths, or of what is known of disks.
    changed: watch::Sender<()>,
    /// Signals that [`State::removed_by_operator`] has a new entry.
    pub(crate) operator_removals: Notify,
    pub(crate) events: Arc<EventLog>,
    state: Mutex<State>,
}

/// The origin of a policy or another setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PolicySetBy {
    Operator,
    Reload,
    FrontEnd,
}

impl From<PolicySetBy> for ChangeSource {
    fn from(by: PolicySetBy) -> Self {
        match by {
            PolicySetBy::Operator => Self::Operator,
            PolicySetBy::Reload => Self::Reload,
            PolicySetBy::FrontEnd => Self::FrontEnd,
        }
    }
}

impl fmt::Display for PolicySetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator | Self::Reload => Ok(()),
            Self::FrontEnd => f.write_str(" by the front-end"),
        }
    }
}

/// How every path of these disks connects its controller. The secrets are read for each association.
pub(crate) fn controller_config(config: &DiskConfig, host: &HostIdentity, io_threads: u16) -> ControllerConfig {
    ControllerConfig {
        host: host.clone(),
        subnqn: config.subsystem.as_str().parse().expect("a configured NQN is one"),
        nsids: DiskSettings::all(config).into_iter().filter_map(|disk| disk.nsid).collect(),
        keep_alive_tmo: config.keep_alive_tmo.duration(),
        digests: Digests { header: config.hdr_digest, data: config.data_digest },
        io_queues: io_threads,
        queue_entries: config.queue_size.get() as u16,
        max_transfer_bytes: config.max_transfer.map(MaxTransfer::get),
        command_timeout: CONNECT_MAX,
        authentication: None,
        is_encrypted: config.uses_tls(),
    }
}

impl Subsystem {
    /// A subsystem without paths.
    pub(crate) fn new(
        config: DiskConfig,
        common: &SharedContext,
        records: FenceRecords,
        inherited_fence: Option<&InheritedFence>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let events = Arc::clone(&common.events);
        let state = State::new(&config);
        let (mut first_flow, began) = (0, Instant::now());
        let new = |(settings, id): (DiskSettings, u16)| {
            let first = FlowId(first_flow);
            // At most 64 disks with at most 256 virtqueues each.
            let queue_count = settings.queues.get() as u16;
            first_flow += queue_count;
            let unanswered = if records.has_predecessor(id.into()) { queue_count } else { 0 };
            let queues = Arc::new(DiskQueues::new(unanswered, began));
            let (retry_delay, fence) = (config.reconnect_delay.duration(), inherited_fence.cloned());
            let driver = DiskDriver::new(began, fence, config.shared_write_cache, retry_delay);
            let disk = Disk::new(DiskId(id), first, settings, queues, driver, Arc::clone(&events));
            disk.shared.limits.set(began, state.live(disk.id).limits.limits());
            disk
        };
        Self {
            disks: DiskSettings::all(&config).into_iter().zip(0..).map(new).collect(),
            security: Security::of(&config, &common.host),
            state: Mutex::new(state),
            config,
            host: common.host.clone(),
            records,
            fences: SharedFences::default(),
            io_threads: common.io_threads,
            all_threads: Arc::clone(&common.threads),
            reports: Arc::default(),
            shutdown,
            virtqueues: Mutex::new(VirtqueueThreads::new(common.io_threads.into())),
            threads: OnceLock::new(),
            admission: Mutex::new(()),
            writers: Arc::clone(&common.writers),
            stepping: AsyncMutex::default(),
            keeping: Arc::default(),
            changed: watch::Sender::new(()),
            operator_removals: Notify::new(),
            events,
        }
    }

    /// Removes an association from the record. Nothing of it can be executed any more.
    pub(crate) async fn record_ended(&self, path: PathId, epoch: Epoch) {
        if let Err(error) = self.records.remove(path, epoch).await {
            // The entry stays until the next change. It can only make the next daemon wait.
            tracing::warn!(disk = self.name(), %error, "cannot update the fence record; the next daemon may have to wait longer");
        }
    }

    /// The name of the disk that owns the paths.
    pub(crate) fn name(&self) -> &str {
        self.config.name.as_str()
    }

    /// A path, as errors of the API name it.
    pub(crate) fn path_ref(&self, path: PathId) -> PathRef {
        PathRef { disk: self.name().into(), index: path.0 }
    }

    /// The I/O threads; empty until a disk is known.
    pub(crate) fn threads(&self) -> &[IoThreadHandle] {
        self.threads.get().map_or(&[], |threads| threads)
    }

    /// The I/O threads of virtqueues.
    pub(crate) fn virtqueues(&self) -> MutexGuard<'_, VirtqueueThreads> {
        self.virtqueues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk of that id.
    pub(crate) fn disk(&self, id: DiskId) -> &Disk {
        &self.disks[usize::from(id.0)]
    }

    /// Whether the namespace of a disk is known, and there are I/O threads. The lock ensures that the threads know the disk.
    pub(crate) fn is_known(&self, disk: &Disk) -> bool {
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        disk.backing().is_some() && !self.threads().is_empty()
    }

    /// The receiver of changes of paths, and of what is known of disks.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Wakes those who wait for changes.
    pub(crate) fn signal_change(&self) {
        self.changed.send_replace(());
    }

    /// Has I/O threads serve the subsystem.
    fn start_threads(&self) {
        let threads = self.all_threads.place((0..self.io_threads).map(|index| self.part(index)));
        // A change is made in the state first and then in the threads, both under this lock. So it either finds these
        // threads, or is in the state already.
        let state = self.state();
        let threads: &Vec<_> = self.threads.get_or_init(|| threads);
        for thread in threads {
            for disk in &self.disks {
                Self::tell_settings(thread, disk.id, None, state.live(disk.id));
            }
            for path in state.paths() {
                thread.add_path(path.id);
                if path.is_draining() {
                    thread.set_draining(path.id, true);
                }
            }
        }
        for path in state.paths() {
            path.injections.iter().for_each(|of| injection::set(threads, path.id, &of.injection));
        }
    }

    /// The settings of every path.
    pub(crate) fn path_settings(&self) -> PathSettings {
        PathSettings {
            controller: controller_config(&self.config, &self.host, self.io_threads),
            reconnect_delay: self.config.reconnect_delay.duration(),
            ctrl_loss_tmo: self.config.ctrl_loss_tmo.map(Seconds::duration),
            drain_fence: self.config.drain_fence,
            shared_write_cache: self.config.shared_write_cache,
        }
    }

    /// The part of one I/O thread.
    fn part(&self, index: u16) -> PathSetPart {
        let window = Window { ios: self.config.window.ios.get(), bytes: self.config.window.bytes.get().into() };
        let config = GroupConfig {
            window,
            seed: index.into(),
            shared_write_cache: self.config.shared_write_cache,
            suspect_timeout: self.config.suspect_timeout.duration(),
            io_timeout: self.config.io_timeout.duration(),
            no_path_timeout: self.config.fast_io_fail_tmo.map(Seconds::duration),
            ..GroupConfig::default()
        };
        let shared: Vec<_> = self.disks.iter().map(|disk| disk.shared.clone()).collect();
        let group = Group::new(Instant::now(), config, &shared);
        let reports = Arc::clone(&self.reports);
        let report = Box::new(move |event| reports.send(event));
        PathSetPart { group, poll_limit: self.config.poll_us.limit(), report }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status of an existing path.
    pub(crate) fn path(&self, path: PathId, change: impl FnOnce(&mut PathStatus)) {
        self.change_paths(&mut self.state(), |state| {
            let status = state.path_mut(path).expect("a path is there as long as its task");
            let before = status.state;
            change(status);
            if status.state != before {
                tracing::debug!(disk = self.name(), path = %status.address, from = %before, to = %status.state, "path state changed");
            }
        });
    }

    /// Changes paths, or the set of paths, and updates everything that depends on them.
    pub(crate) fn change_paths<T>(&self, state: &mut State, change: impl FnOnce(&mut State) -> T) -> T {
        let before = state.paths_expected();
        let changed = change(state);
        self.hold_removals(state);
        let expected = state.paths_expected();
        if expected != before {
            // Under the lock, so that the threads learn of changes in order.
            self.threads().iter().for_each(|thread| thread.set_paths_expected(expected));
        }
        self.update_vendor_windows(state);
        self.signal_change();
        changed
    }

    /// Waits until every I/O thread knows all current paths. Only then may a new path become live: the next flush may
    /// arrive at any thread and has to cover that path too.
    pub(crate) async fn paths_known(&self) {
        for wait in self.threads().iter().map(barrier).collect::<Vec<_>>() {
            // A thread that has ended sends no flush.
            let _ = wait.await;
        }
    }

    /// The address of a path, if the path exists.
    pub(crate) fn address(&self, path: PathId) -> Option<PathAddress> {
        self.state().path(path).map(|path| path.address.clone())
    }

    /// How to close connections that still work.
    pub(crate) fn ending(&self) -> CloseMode {
        CloseMode::with_half_close(self.config.drain_fence)
    }

    /// Whether the path's controller may cache completed writes that were not flushed.
    pub(crate) fn may_be_unflushed(&self, path: PathId) -> bool {
        !self.config.shared_write_cache && mpath_lifecycle::Disks::is_unflushed(&self, path)
    }

    /// Records an event of the subsystem or of one of its paths.
    pub(crate) fn event(&self, path: Option<EventPath>, kind: EventKind, message: impl Into<String>) {
        self.events.record(self.name(), path, kind, message.into());
    }

    /// Records an event of a path.
    pub(crate) fn path_event(&self, path: PathId, kind: EventKind, message: impl Into<String>) {
        let named = self.state().path(path).map(PathStatus::named);
        self.event(named, kind, message);
    }
}

impl mpath_lifecycle::Disks for &Subsystem {
    type Error = HostError;

    fn name(&self, disk: DiskId) -> String {
        self.disk(disk).name().to_owned()
    }

    fn served(&self, disk: DiskId) -> Option<mpath_lifecycle::ServedNamespace> {
        self.disk(disk).backing().and_then(Backing::served_namespace)
    }

    fn admit(&mut self, info: &ControllerInfo) -> Admissions<HostError> {
        (*self).admit(info)
    }

    fn io_queues_granted(&mut self, path: PathId, granted: u16) -> Result<(), u16> {
        let outcome = self.virtqueues().granted(path, granted);
        if granted < self.io_threads && outcome.is_ok() {
            let (disk, path, io_threads) =
                (self.name(), self.address(path).map(|address| address.to_string()), self.io_threads);
            tracing::info!(
                disk,
                path,
                granted,
                io_threads,
                "the controller grants fewer I/O queues; virtqueues use as many I/O threads"
            );
        }
        outcome
    }

    fn path_up(&mut self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)> {
        // Under this lock no disk can grow.
        let mut state = self.state();
        let status = state.path_mut(path).expect("a path is there as long as its task");
        status.namespaces.begin(namespaces, |disk| self.served(disk))
    }

    fn path_down(&mut self, path: PathId) {
        self.path(path, |status| status.namespaces.end());
    }

    fn is_unflushed(&self, path: PathId) -> bool {
        self.disks.iter().any(|disk| disk.shared.unflushed.is_unflushed(path))
    }
}
