//! One disk: what all of its paths, I/O threads and front-ends share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::config::{DiskConfig, Seconds};
use mpath_api::types::PathState;
use mpath_core::{AnaState, DirtyPaths, Group, GroupConfig, Injection, PathConfig, PathId, PolicyKind, Window};
use nvme_tcp::host::{ControllerConfig, ControllerInfo, HostIdentity, IdentityMismatch, NamespaceIdentity};
use nvme_tcp::wire::Digests;
use reactor::{IoThreadConfig, IoThreadHandle, PathEvent, StartError};
use tokio::sync::mpsc::UnboundedSender;
use vhost_user_blk::{Disk as FrontendDisk, GeometryError};

use crate::fence_record::FenceRecord;
use crate::geometry;
use crate::path::PathError;
use crate::transport;

pub(crate) struct Disk {
    pub(crate) config: DiskConfig,
    pub(crate) host: HostIdentity,
    pub(crate) record: FenceRecord,
    /// Until then writes of a daemon before this one may be executed.
    inherited_fence: Option<Instant>,
    io_threads: u16,
    /// Reports of the I/O threads, a channel a path.
    reports: Vec<UnboundedSender<PathEvent>>,
    /// Made when the first path has told what namespace it is.
    served: OnceLock<Served>,
    /// Held while `served` is made.
    admission: Mutex<()>,
    connected: AtomicBool,
    state: Mutex<State>,
}

/// What exists once the namespace is known.
struct Served {
    namespace: NamespaceIdentity,
    frontend: Arc<FrontendDisk>,
    threads: Vec<IoThreadHandle>,
}

/// What the API shows and changes.
pub(crate) struct State {
    pub(crate) policy: PolicyKind,
    pub(crate) paths: Vec<PathStatus>,
}

/// What is known of one path.
#[derive(Clone, Debug)]
pub(crate) struct PathStatus {
    pub(crate) state: PathState,
    pub(crate) last_error: Option<String>,
    pub(crate) ana: Option<AnaState>,
    pub(crate) cntlid: Option<u16>,
    pub(crate) injection: Option<Injection>,
}

/// Why a path is not let in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    #[error("does not lead to the namespace of the disk's other paths: {0}; the path stays unused")]
    Mismatch(#[from] IdentityMismatch),
    #[error("the namespace cannot be a disk: {0}")]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl Disk {
    pub(crate) fn new(
        config: DiskConfig,
        host: HostIdentity,
        record: FenceRecord,
        inherited_fence: Option<Instant>,
        io_threads: u16,
        reports: Vec<UnboundedSender<PathEvent>>,
    ) -> Self {
        let unknown =
            PathStatus { state: PathState::Connecting, last_error: None, ana: None, cntlid: None, injection: None };
        let state = State { policy: config.policy, paths: vec![unknown; config.paths.len()] };
        Self {
            config,
            host,
            record,
            inherited_fence,
            io_threads,
            reports,
            served: OnceLock::new(),
            admission: Mutex::new(()),
            connected: AtomicBool::new(false),
            state: Mutex::new(state),
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
        let _one_at_a_time = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(served) = self.served.get() {
            served.namespace.check_same(&info.namespace)?;
            return Ok(&served.threads);
        }
        if self.config.paths.len() > 1 {
            info.namespace.check_multipath()?;
        }
        let frontend = Arc::new(FrontendDisk::new(geometry::of(&self.config, info))?);
        if self.config.paths.len() > 1 && info.volatile_write_cache && !self.config.shared_write_cache {
            tracing::warn!(
                disk = %self.config.name,
                "the controllers have a volatile write cache, taken to be each one's own: a path lost before a flush fails the \
                 guest's next flush; set shared-write-cache if the subsystem shares it"
            );
        }
        let dirty = Arc::new(DirtyPaths::default());
        let threads = (0..self.io_threads)
            .map(|index| self.start_thread(index, info.namespace.block_bytes, &dirty))
            .collect::<Result<_, _>>()?;
        let served = Served { namespace: info.namespace, frontend, threads };
        let threads = &self.served.get_or_init(|| served).threads;
        // A change by the API reaches the state first and then the threads there are: either it saw these or we see it.
        let state = self.state();
        for thread in threads {
            thread.set_policy(state.policy);
            for (index, path) in state.paths.iter().enumerate().filter(|(_, path)| path.injection.is_some()) {
                thread.set_injection(PathId(index as u16), path.injection);
            }
        }
        Ok(threads)
    }

    /// Whether the namespace, identified anew, still is the disk's.
    pub(crate) fn check_namespace(&self, namespace: &NamespaceIdentity) -> Result<(), AdmitError> {
        self.served.get().map_or(Ok(()), |served| Ok(served.namespace.check_same(namespace)?))
    }

    /// How every path's controller is connected.
    pub(crate) fn controller_config(&self) -> ControllerConfig {
        let config = &self.config;
        ControllerConfig {
            host: self.host.clone(),
            subnqn: config.subsystem.as_str().parse().expect("a configured NQN is one"),
            nsid: config.namespace.map(mpath_api::config::Bounded::get),
            keep_alive_tmo: config.keep_alive_tmo.duration(),
            digests: Digests { header: config.hdr_digest, data: config.data_digest },
            io_queues: self.io_threads,
            queue_entries: config.queue_size.get() as u16,
            command_timeout: transport::CONNECT_MAX,
        }
    }

    fn start_thread(
        &self,
        index: u16,
        block_size_bytes: u32,
        dirty: &Arc<DirtyPaths>,
    ) -> Result<IoThreadHandle, StartError> {
        let window = Window { ios: self.config.window.ios.get(), bytes: self.config.window.bytes.get().into() };
        let config = GroupConfig {
            window,
            seed: index.into(),
            shared_write_cache: self.config.shared_write_cache,
            suspect_timeout: self.config.suspect_timeout.duration(),
            no_path_timeout: self.config.fast_io_fail_tmo.map(Seconds::duration),
            ..GroupConfig::default()
        };
        let mut group = Group::new(Instant::now(), config, Arc::clone(dirty));
        for path in 0..self.config.paths.len() {
            group.add_path(PathId(path as u16), PathConfig::default());
        }
        let reports = self.reports.clone();
        let report = Box::new(move |event: PathEvent| {
            // Nobody listens any more when the daemon ends.
            let _ = reports[usize::from(event.path.0)].send(event);
        });
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

    fn path(&self, path: PathId, change: impl FnOnce(&mut PathStatus)) {
        change(&mut self.state().paths[usize::from(path.0)]);
    }

    pub(crate) fn address(&self, path: PathId) -> &PathAddress {
        &self.config.paths[usize::from(path.0)]
    }

    pub(crate) fn path_live(&self, path: PathId, cntlid: u16, ana: AnaState) {
        tracing::info!(disk = %self.config.name, path = %self.address(path), cntlid, %ana, "path live");
        self.path(path, |status| {
            status.state = PathState::Live;
            status.last_error = None;
            status.cntlid = Some(cntlid);
            status.ana = Some(ana);
        });
    }

    pub(crate) fn path_ana(&self, path: PathId, ana: AnaState) {
        tracing::info!(disk = %self.config.name, path = %self.address(path), %ana, "ANA state changed");
        self.path(path, |status| status.ana = Some(ana));
    }

    /// A path was lost, or an attempt to connect it failed. Said once: attempts that fail alike stay silent.
    pub(crate) fn path_failed(&self, path: PathId, error: &PathError) {
        self.path_down(path, error, |state| match state {
            PathState::Live | PathState::Lost => PathState::Lost,
            PathState::Connecting | PathState::Refused => PathState::Connecting,
        });
    }

    /// The first attempt to connect a path failed. Whether that is worth a warning or the reason not to start at all depends on
    /// the others, so whoever starts the disk tells it.
    pub(crate) fn path_did_not_start(&self, path: PathId, error: &PathError, refused: bool) {
        self.path(path, |status| {
            status.state = if refused { PathState::Refused } else { PathState::Connecting };
            status.last_error = Some(error.to_string());
        });
    }

    /// A path leads elsewhere, and stays unused.
    pub(crate) fn path_refused(&self, path: PathId, error: &PathError) {
        self.path_down(path, error, |_| PathState::Refused);
    }

    fn path_down(&self, path: PathId, error: &PathError, next: impl FnOnce(PathState) -> PathState) {
        let text = error.to_string();
        self.path(path, |status| {
            if status.last_error.as_deref() != Some(&text) {
                tracing::warn!(disk = %self.config.name, path = %self.address(path), error = %text, "path down");
            }
            status.state = next(status.state);
            status.last_error = Some(text);
            status.cntlid = None;
            status.ana = None;
        });
    }
}
