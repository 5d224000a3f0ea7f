//! The subsystem behind a disk, or behind several that are namespaces of it and share their paths: what all paths, I/O threads
//! and front-ends share.

pub(crate) mod common;
pub(crate) mod error;
pub(crate) mod fences;
pub(crate) mod path_status;
mod size;
pub(crate) mod window;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use mpath_api::config::{DiskConfig, MaxTransfer, Seconds};
use mpath_api::types::{EventKind, EventPath};
use mpath_api::{PathAddress, PolicyChange};
use mpath_core::{DiskId, Epoch, FlowId, Group, GroupConfig, PathId, SharedDisk, Window};
use mpath_host::{AdmitError, Admitted, CONNECT_MAX, NamespaceName, News, PathSettings, Unusable};
use nvme_tcp::host::{ControllerConfig, ControllerInfo, HostIdentity, Namespace, NamespaceError};
use nvme_tcp::wire::Digests;
use reactor::{CloseMode, IoThreadConfig, IoThreadHandle, StartError, UnansweredQueues};
use tokio::sync::{Notify, oneshot, watch};
use vhost_user_blk::VirtioDisk;

use crate::disk::geometry;
use crate::disk::settings::DiskSettings;
use crate::disk::{Disk, Served};
use crate::events::EventLog;
use crate::fence_record::FenceRecords;
use crate::io_threads::reports::Reports;
use crate::io_threads::{barrier, injection};
use crate::subsystem::common::Common;
use crate::subsystem::error::HostError;
use crate::subsystem::fences::SharedFences;
use crate::subsystem::path_status::{PathStatus, State};

pub(crate) struct Subsystem {
    /// Of the disk that has the paths, by whose name they go. It is the first of `disks`.
    pub(crate) config: DiskConfig,
    /// By id.
    pub(crate) disks: Vec<Disk>,
    pub(crate) host: HostIdentity,
    pub(crate) records: FenceRecords,
    /// Those of its lost associations.
    pub(crate) fences: SharedFences,
    inherited_fence: Mutex<Option<Fence>>,
    io_threads: u16,
    pub(crate) reports: Arc<Reports>,
    /// Becomes true at its end.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Started when the first path has told what a namespace is.
    threads: OnceLock<Vec<IoThreadHandle>>,
    /// Held while a path is let in.
    admission: Mutex<()>,
    /// Signals that [`State::removed_by_operator`] has a new entry.
    pub(crate) operator_removals: Notify,
    pub(crate) events: Arc<EventLog>,
    state: Mutex<State>,
}

/// Until when writes may be executed that these disks have not been given.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    pub(crate) until: Instant,
    /// By which disk of this daemon, if it was not a daemon before this one.
    pub(crate) of: Option<String>,
}

/// Who sets a policy, as events say it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PolicySetBy {
    Operator,
    FrontEnd,
}

impl fmt::Display for PolicySetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => Ok(()),
            Self::FrontEnd => f.write_str(" by the front-end"),
        }
    }
}

impl Subsystem {
    /// One without paths.
    pub(crate) fn new(
        config: DiskConfig,
        common: &Common,
        records: FenceRecords,
        inherited_fence: Option<Fence>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let events = Arc::clone(&common.events);
        let (mut first_flow, began) = (0, Instant::now());
        let new = |(settings, id): (DiskSettings, u16)| {
            let shared = if inherited_fence.is_some() { SharedDisk::after_crash() } else { SharedDisk::default() };
            let first = FlowId(first_flow);
            // 64 disks at most, with 256 virtqueues at most.
            let queues = settings.queues.get() as u16;
            first_flow += queues;
            let unanswered =
                Arc::new(UnansweredQueues::new(if records.is_left(id.into()) { queues } else { 0 }, began));
            Disk::new(DiskId(id), first, settings, shared, unanswered, Arc::clone(&events))
        };
        Self {
            disks: DiskSettings::all(&config).into_iter().zip(0..).map(new).collect(),
            state: Mutex::new(State::new(&config)),
            config,
            host: common.host.clone(),
            records,
            fences: SharedFences::default(),
            inherited_fence: Mutex::new(inherited_fence),
            io_threads: common.io_threads,
            reports: Arc::default(),
            shutdown,
            threads: OnceLock::new(),
            admission: Mutex::new(()),
            operator_removals: Notify::new(),
            events,
        }
    }

    /// Has the record forget an association that can change nothing any more.
    pub(crate) async fn record_ended(&self, path: PathId, epoch: Epoch) {
        if let Err(error) = self.records.remove(path, epoch).await {
            // It stays until the next change, and would only make the next daemon wait.
            tracing::warn!(disk = %self.name(), %error, "fence record not brought up to date");
        }
    }

    /// The name by which its paths go.
    pub(crate) fn name(&self) -> &str {
        self.config.name.as_str()
    }

    /// The I/O threads; none until a path has been admitted.
    pub(crate) fn threads(&self) -> &[IoThreadHandle] {
        self.threads.get().map_or(&[], |threads| threads)
    }

    /// What a disk reads and writes, once a path has led there.
    pub(crate) fn namespace_name(&self, disk: &Disk) -> Option<NamespaceName> {
        Some(NamespaceName::new(self.config.subsystem.as_str(), &disk.served()?.namespace))
    }

    /// A disk to whose socket a guest may come back that had requests in flight on another namespace, and that other one.
    pub(crate) fn other_namespace(&self) -> Option<(&Disk, NamespaceName)> {
        let other = |disk: &Disk| self.records.other_namespace(usize::from(disk.id.0), &self.namespace_name(disk)?);
        self.disks.iter().find_map(|disk| Some((disk, other(disk)?)))
    }

    /// The disk of that id.
    pub(crate) fn disk(&self, id: DiskId) -> &Disk {
        &self.disks[usize::from(id.0)]
    }

    /// A disk to whose namespace no path has led yet. The I/O threads know all others: none is on its way to them.
    pub(crate) fn unserved(&self) -> Option<&Disk> {
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        self.disks.iter().find(|disk| disk.served().is_none())
    }

    /// Lets a path in for each disk if it leads to the namespace that the disk's other paths lead to. The first one decides which
    /// that is. The first path of all starts the I/O threads.
    pub(crate) fn admit(&self, info: &ControllerInfo) -> Result<Admitted<HostError>, HostError> {
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.disks.iter().zip(&info.namespaces);
        let admitted: Vec<_> = found.map(|(disk, found)| self.admit_disk(disk, info, found)).collect();
        if admitted.iter().any(Result::is_ok) && self.threads.get().is_none() {
            self.start_threads()?;
        }
        // A thread that knows a disk already is told nothing new.
        for (disk, served) in self.disks.iter().filter_map(|disk| Some((disk, disk.served()?))) {
            for thread in self.threads() {
                let unanswered = Arc::clone(&disk.unanswered);
                thread.add_disk(disk.id, disk.name().into(), served.namespace.block_bytes, unanswered);
            }
        }
        Ok(admitted)
    }

    fn admit_disk(
        &self,
        disk: &Disk,
        info: &ControllerInfo,
        found: &Result<Namespace, NamespaceError>,
    ) -> Result<(), AdmitError<HostError>> {
        let namespace = found.clone().map_err(Unusable::from)?.identity;
        if let Some(served) = disk.served() {
            return Ok(served.as_seen().check(&namespace)?);
        }
        let several = self.state().paths().nth(1).is_some();
        if several {
            namespace.check_multipath().map_err(Unusable::from)?;
        }
        let frontend = VirtioDisk::new(geometry::of(&disk.settings, info, &namespace));
        let frontend = frontend.map_err(|error| AdmitError::NoDisk(error.into()))?;
        let frontend = Arc::new(if disk.settings.mpath_window { frontend.with_vendor_window() } else { frontend });
        if several && info.volatile_write_cache && !self.config.shared_write_cache {
            tracing::warn!(
                disk = %disk.name(),
                "the controllers have a volatile write cache, taken to be each one's own: a path lost before a flush fails the \
                 guest's next flush; set shared-write-cache if the subsystem shares it"
            );
        }
        disk.serve(Served { namespace, frontend });
        let (index, name) = (usize::from(disk.id.0), NamespaceName::new(self.config.subsystem.as_str(), &namespace));
        if self.records.has_lost_writes(index, &name) {
            disk.shared.dirty.set_lost(disk.unanswered.served_since());
        }
        self.records.set_namespace(index, name);
        self.show_windows(&self.state());
        Ok(())
    }

    fn start_threads(&self) -> Result<(), StartError> {
        let threads = (0..self.io_threads).map(|index| self.start_thread(index)).collect::<Result<_, _>>()?;
        // A change reaches the state first and then the threads there are, both under this lock: it saw these, or we see it.
        let state = self.state();
        let steered: Vec<_> = self.disks.iter().map(Disk::steered).collect();
        let threads: &Vec<_> = self.threads.get_or_init(|| threads);
        for thread in threads {
            thread.set_policy(state.policy);
            thread.set_scheduler(state.scheduler);
            thread.set_hedging(state.hedge.hedging());
            for (disk, steered) in self.disks.iter().zip(&steered) {
                thread.set_weight(disk.id, steered.weight.get() as u16);
            }
            for path in state.paths() {
                thread.add_path(path.id);
                if path.is_draining() {
                    thread.set_draining(path.id, true);
                }
            }
        }
        for path in state.paths() {
            path.injections.iter().for_each(|injection| injection::set(threads, path.id, injection));
        }
        Ok(())
    }

    /// What is set for every path.
    pub(crate) fn path_settings(&self) -> PathSettings {
        PathSettings {
            controller: self.controller_config(),
            reconnect_delay: self.config.reconnect_delay.duration(),
            ctrl_loss_tmo: self.config.ctrl_loss_tmo.map(Seconds::duration),
            drain_fence: self.config.drain_fence,
        }
    }

    /// How every path's controller is connected.
    fn controller_config(&self) -> ControllerConfig {
        let config = &self.config;
        ControllerConfig {
            host: self.host.clone(),
            subnqn: config.subsystem.as_str().parse().expect("a configured NQN is one"),
            nsids: self.disks.iter().filter_map(|disk| disk.settings.nsid).collect(),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            digests: Digests { header: config.hdr_digest, data: config.data_digest },
            io_queues: self.io_threads,
            queue_entries: config.queue_size.get() as u16,
            max_transfer_bytes: config.max_transfer.map(MaxTransfer::bytes),
            command_timeout: CONNECT_MAX,
        }
    }

    fn start_thread(&self, index: u16) -> Result<IoThreadHandle, StartError> {
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
        IoThreadHandle::start(IoThreadConfig { name: format!("io{index}"), group, report })
    }

    /// Until when the requests of guests have to wait for the fences that others left.
    pub(crate) fn inherited_fence(&self) -> Option<Fence> {
        self.inherited_fence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the requests of guests wait for one more, and what others had not flushed be flushed. Before front-ends are served.
    pub(crate) fn inherit(&self, fence: Fence) {
        self.disks.iter().for_each(|disk| disk.shared.dirty.set_after_crash());
        let mut inherited = self.inherited_fence.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = inherited.take().into_iter().chain([fence]).max_by_key(|fence| fence.until);
        *inherited = longest;
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known of a path that is there.
    pub(crate) fn path(&self, path: PathId, change: impl FnOnce(&mut PathStatus)) {
        self.change_paths(&mut self.state(), |state| {
            change(state.path_mut(path).expect("a path is there as long as its task"));
        });
    }

    /// Changes paths, or which there are, and has all know of it that depends on them.
    pub(crate) fn change_paths<T>(&self, state: &mut State, change: impl FnOnce(&mut State) -> T) -> T {
        let before = state.paths_expected();
        let changed = change(state);
        let expected = state.paths_expected();
        if expected != before {
            // Still under the lock: the threads hear of changes in the order in which they happen.
            self.threads().iter().for_each(|thread| thread.set_paths_expected(expected));
        }
        self.show_windows(state);
        changed
    }

    /// Resolves when every I/O thread knows of the paths there are now. Only then one of them may bring a new path up: the next
    /// flush may come to any of the others, and has to go to it.
    pub(crate) async fn paths_known(&self) {
        for wait in self.threads().iter().map(barrier).collect::<Vec<_>>() {
            // One that has ended sends no flush, and knows of none.
            let _ = wait.await;
        }
    }

    /// Sets the policy. What is to be waited for: the I/O threads know of it.
    pub(crate) fn set_policy(&self, change: &PolicyChange, by: PolicySetBy) -> Vec<oneshot::Receiver<()>> {
        let mut state = self.state();
        state.policy.change(change);
        self.event(None, EventKind::PolicySet, format!("policy set to {}{by}", state.policy));
        self.show_windows(&state);
        let told = |thread: &IoThreadHandle| {
            thread.set_policy(state.policy);
            barrier(thread)
        };
        self.threads().iter().map(told).collect()
    }

    /// Where a path leads, if it is there.
    pub(crate) fn address(&self, path: PathId) -> Option<PathAddress> {
        self.state().path(path).map(|path| path.address.clone())
    }

    /// How connections are closed that still work.
    pub(crate) fn ending(&self) -> CloseMode {
        if self.config.drain_fence { CloseMode::Drain } else { CloseMode::Reset }
    }

    /// Whether the path's controller may hold completed writes that only a flush makes durable.
    pub(crate) fn may_be_dirty(&self, path: PathId) -> bool {
        !self.config.shared_write_cache && self.disks.iter().any(|disk| disk.shared.dirty.is_dirty(path))
    }

    /// Notes what has happened to all of it, or to one of its paths.
    pub(crate) fn event(&self, path: Option<EventPath>, kind: EventKind, message: impl Into<String>) {
        self.events.record(self.name(), path, kind, message.into());
    }

    /// Notes what has happened to a path.
    pub(crate) fn path_event(&self, path: PathId, kind: EventKind, message: impl Into<String>) {
        let named = self.state().path(path).map(PathStatus::named);
        self.event(named, kind, message);
    }
}

impl mpath_host::Disks for &Subsystem {
    type Error = HostError;

    fn name(&self, disk: DiskId) -> String {
        self.disk(disk).name().to_owned()
    }

    fn served(&self, disk: DiskId) -> Option<mpath_host::Served> {
        self.disk(disk).served().map(Served::as_seen)
    }

    fn admit(&mut self, info: &ControllerInfo) -> Result<Admitted<HostError>, HostError> {
        (*self).admit(info)
    }

    fn path_up(&mut self, path: PathId, namespaces: Vec<News>) -> Result<(), (DiskId, Unusable)> {
        self.path_sized(path, namespaces)
    }
}
