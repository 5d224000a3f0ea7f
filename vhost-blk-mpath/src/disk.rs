//! One disk: what all of its paths, I/O threads and front-ends share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::config::{DiskConfig, Seconds};
use mpath_api::types::{EventKind, EventPath};
use mpath_core::{DirtyPaths, DiskLimits, Group, GroupConfig, MAX_PATHS, PathId, Window};
use nvme_tcp::host::{
    ControllerConfig, ControllerInfo, HostIdentity, IdentityMismatch, NamespaceError, NamespaceIdentity,
};
use nvme_tcp::wire::Digests;
use reactor::{Ending, IoThreadConfig, IoThreadHandle, StartError};
use tokio::sync::watch;
use vhost_user_blk::{Disk as FrontendDisk, GeometryError};

use crate::cross_reset::Resetters;
use crate::events::EventLog;
use crate::fence_record::FenceRecord;
use crate::geometry;
use crate::injection;
use crate::path_status::{PathStatus, State};
use crate::reports::Reports;
use crate::transport;

pub(crate) struct Disk {
    pub(crate) config: DiskConfig,
    pub(crate) host: HostIdentity,
    pub(crate) record: FenceRecord,
    /// Who can reset the controller of a lost path.
    pub(crate) resetters: Resetters,
    /// Until then writes of a daemon before this one may be executed.
    inherited_fence: Option<Instant>,
    io_threads: u16,
    pub(crate) reports: Arc<Reports>,
    /// Becomes true at the end of the daemon.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Made when the first path has told what namespace it is.
    served: OnceLock<Served>,
    /// Held while `served` is made.
    admission: Mutex<()>,
    connected: AtomicBool,
    pub(crate) events: Arc<EventLog>,
    /// Of all I/O threads.
    dirty: Arc<DirtyPaths>,
    /// What the I/O threads keep; [`State::limits`] says what that is.
    pub(crate) limits: Arc<DiskLimits>,
    state: Mutex<State>,
}

/// What exists once the namespace is known.
struct Served {
    namespace: NamespaceIdentity,
    frontend: Arc<FrontendDisk>,
    threads: Vec<IoThreadHandle>,
}

/// Why a path is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    #[error("does not lead to the namespace of the disk's other paths: {0}; the path stays unused")]
    Mismatch(#[from] IdentityMismatch),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error("the namespace cannot be a disk: {0}")]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Disk {
    /// A disk without paths.
    pub(crate) fn new(
        config: DiskConfig,
        host: HostIdentity,
        record: FenceRecord,
        inherited_fence: Option<Instant>,
        io_threads: u16,
        shutdown: watch::Receiver<bool>,
        events: Arc<EventLog>,
    ) -> Self {
        let state = Mutex::new(State::new(&config));
        let limits = Arc::new(DiskLimits::default());
        limits.set(Instant::now(), config.limits.limits());
        let dirty = if inherited_fence.is_some() { DirtyPaths::after_crash() } else { DirtyPaths::new() };
        Self {
            config,
            host,
            record,
            resetters: Resetters::new(MAX_PATHS),
            inherited_fence,
            io_threads,
            reports: Arc::default(),
            shutdown,
            served: OnceLock::new(),
            admission: Mutex::new(()),
            connected: AtomicBool::new(false),
            events,
            dirty: Arc::new(dirty),
            limits,
            state,
        }
    }

    pub(crate) fn io_threads(&self) -> u16 {
        self.io_threads
    }

    /// The I/O threads; none until a path has been admitted.
    pub(crate) fn threads(&self) -> &[IoThreadHandle] {
        self.served.get().map_or(&[], |served| &served.threads)
    }

    /// What front-ends are shown, once a path has been admitted.
    pub(crate) fn frontend(&self) -> Option<&Arc<FrontendDisk>> {
        self.served.get().map(|served| &served.frontend)
    }

    pub(crate) fn namespace(&self) -> Option<&NamespaceIdentity> {
        self.served.get().map(|served| &served.namespace)
    }

    /// Lets a path in if it leads to the namespace that the others lead to. The first one decides which that is, and starts
    /// the I/O threads.
    pub(crate) fn admit(&self, info: &ControllerInfo) -> Result<&[IoThreadHandle], AdmitError> {
        let namespace = info.namespaces[0].clone()?.identity;
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = self.served.get() {
            served.namespace.check_same(&namespace)?;
            return Ok(&served.threads);
        }
        let several = self.state().paths().nth(1).is_some();
        if several {
            namespace.check_multipath()?;
        }
        let frontend = Arc::new(FrontendDisk::new(geometry::of(&self.config, info, &namespace))?);
        if several && info.volatile_write_cache && !self.config.shared_write_cache {
            tracing::warn!(
                disk = %self.config.name,
                "the controllers have a volatile write cache, taken to be each one's own: a path lost before a flush fails the \
                 guest's next flush; set shared-write-cache if the subsystem shares it"
            );
        }
        let threads = (0..self.io_threads)
            .map(|index| self.start_thread(index, namespace.block_bytes))
            .collect::<Result<_, _>>()?;
        let served = Served { namespace, frontend, threads };
        // A change reaches the state first and then the threads there are, both under this lock: it saw these, or we see it.
        let state = self.state();
        let threads = &self.served.get_or_init(|| served).threads;
        for thread in threads {
            thread.set_policy(state.policy);
            thread.set_scheduler(state.scheduler);
            thread.set_hedging(state.hedge.hedging());
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
        Ok(threads)
    }

    /// Whether the namespace, identified anew, still is the disk's.
    pub(crate) fn check_namespace(&self, found: Result<NamespaceIdentity, NamespaceError>) -> Result<(), AdmitError> {
        let namespace = found?;
        self.served.get().map_or(Ok(()), |served| Ok(served.namespace.check_same(&namespace)?))
    }

    /// How every path's controller is connected.
    pub(crate) fn controller_config(&self) -> ControllerConfig {
        let config = &self.config;
        ControllerConfig {
            host: self.host.clone(),
            subnqn: config.subsystem.as_str().parse().expect("a configured NQN is one"),
            nsids: config.namespace.map(mpath_api::config::Bounded::get).into_iter().collect(),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            digests: Digests { header: config.hdr_digest, data: config.data_digest },
            io_queues: self.io_threads,
            queue_entries: config.queue_size.get() as u16,
            command_timeout: transport::CONNECT_MAX,
        }
    }

    fn start_thread(&self, index: u16, block_size_bytes: u32) -> Result<IoThreadHandle, StartError> {
        let window = Window { ios: self.config.window.ios.get(), bytes: self.config.window.bytes.get().into() };
        let config = GroupConfig {
            window,
            seed: index.into(),
            shared_write_cache: self.config.shared_write_cache,
            suspect_timeout: self.config.suspect_timeout.duration(),
            no_path_timeout: self.config.fast_io_fail_tmo.map(Seconds::duration),
            ..GroupConfig::default()
        };
        let mut group = Group::new(Instant::now(), config, Arc::clone(&self.dirty));
        group.share_limits(Arc::clone(&self.limits));
        let reports = Arc::clone(&self.reports);
        let report = Box::new(move |event| reports.send(event));
        IoThreadHandle::start(IoThreadConfig { name: format!("io{index}"), group, block_size_bytes, report })
    }

    /// How long a front-end has to wait for the fences that an earlier daemon left.
    pub(crate) fn inherited_fence(&self) -> Option<Duration> {
        self.inherited_fence?.checked_duration_since(Instant::now())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
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

    /// Changes paths, or which there are.
    pub(crate) fn change_paths<T>(&self, state: &mut State, change: impl FnOnce(&mut State) -> T) -> T {
        let before = state.paths_expected();
        let changed = change(state);
        let expected = state.paths_expected();
        if expected != before {
            // Still under the lock: the threads hear of changes in the order in which they happen.
            self.threads().iter().for_each(|thread| thread.set_paths_expected(expected));
        }
        changed
    }

    /// Where a path leads, if it is there.
    pub(crate) fn address(&self, path: PathId) -> Option<PathAddress> {
        self.state().path(path).map(|path| path.address.clone())
    }

    /// How connections are closed that still work.
    pub(crate) fn ending(&self) -> Ending {
        if self.config.drain_fence { Ending::Drain } else { Ending::Reset }
    }

    /// Whether the path's controller may hold completed writes that only a flush makes durable.
    pub(crate) fn may_be_dirty(&self, path: PathId) -> bool {
        !self.config.shared_write_cache && self.dirty.is_dirty(path)
    }

    /// Notes what has happened to the disk, or to one of its paths.
    pub(crate) fn event(&self, path: Option<EventPath>, kind: EventKind, message: impl Into<String>) {
        self.events.record(self.config.name.as_str(), path, kind, message.into());
    }

    /// Notes what has happened to a path.
    pub(crate) fn path_event(&self, path: PathId, kind: EventKind, message: impl Into<String>) {
        let named = self.state().path(path).map(PathStatus::named);
        self.event(named, kind, message);
    }
}
