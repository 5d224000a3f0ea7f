//! One disk: what all of its paths, I/O threads and front-ends share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mpath_api::PathAddress;
use mpath_api::config::{DiskConfig, Seconds};
use mpath_api::types::{Controller, EventKind, EventPath, PathState};
use mpath_core::{AnaState, DirtyPaths, Group, GroupConfig, Injection, PathConfig, PathId, PolicyKind, Window};
use nvme_tcp::host::{ControllerConfig, ControllerInfo, HostIdentity, IdentityMismatch, NamespaceIdentity};
use nvme_tcp::wire::Digests;
use reactor::{Ending, IoThreadConfig, IoThreadHandle, PathEvent, StartError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use vhost_user_blk::{Disk as FrontendDisk, GeometryError};

use crate::cross_reset::Resetters;
use crate::events::EventLog;
use crate::fence::FencedBy;
use crate::fence_record::FenceRecord;
use crate::geometry;
use crate::path::PathError;
use crate::steering::{Order, Orders, Wanted};
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
    /// Reports of the I/O threads, a channel a path.
    reports: Vec<UnboundedSender<PathEvent>>,
    /// Made when the first path has told what namespace it is.
    served: OnceLock<Served>,
    /// Held while `served` is made.
    admission: Mutex<()>,
    connected: AtomicBool,
    pub(crate) events: Arc<EventLog>,
    /// Of all I/O threads.
    dirty: Arc<DirtyPaths>,
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
#[derive(Debug)]
pub(crate) struct PathStatus {
    /// Never [`PathState::Draining`]: see [`PathStatus::shown`].
    state: PathState,
    /// Since when it is in the state shown.
    pub(crate) since: SystemTime,
    pub(crate) last_error: Option<(String, SystemTime)>,
    pub(crate) ana: Option<AnaState>,
    pub(crate) cntlid: Option<u16>,
    pub(crate) controller: Option<Controller>,
    pub(crate) injection: Option<Injection>,
    /// What the operator wants, for the path's task.
    orders: watch::Sender<Order>,
}

impl PathStatus {
    fn new() -> Self {
        Self {
            state: PathState::Connecting,
            since: SystemTime::now(),
            last_error: None,
            ana: None,
            cntlid: None,
            controller: None,
            injection: None,
            orders: watch::Sender::new(Order::default()),
        }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        self.orders.borrow().wanted
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.wanted() != Wanted::Enabled
    }

    /// The state as the API shows it.
    pub(crate) fn shown(&self) -> PathState {
        if self.state == PathState::Live && self.is_draining() { PathState::Draining } else { self.state }
    }

    /// Whether new I/O may go there.
    pub(crate) fn is_usable(&self) -> bool {
        self.shown() == PathState::Live && self.ana.is_none_or(AnaState::is_selectable)
    }

    fn set_state(&mut self, state: PathState) {
        self.change(|status| status.state = state);
    }

    pub(crate) fn order(&mut self, change: impl FnOnce(&mut Order)) {
        self.change(|status| status.orders.send_modify(change));
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.shown();
        change(self);
        if self.shown() != before {
            self.since = SystemTime::now();
        }
    }

    fn gone(&mut self) {
        (self.cntlid, self.ana, self.controller) = (None, None, None);
    }
}

impl State {
    /// Whether a path is live or may become so.
    fn paths_expected(&self) -> bool {
        self.paths.iter().any(|path| match path.state {
            // One that is disabled comes back when the operator says so.
            PathState::Connecting | PathState::Live | PathState::Lost | PathState::Draining | PathState::Disabled => {
                true
            }
            PathState::Refused | PathState::GaveUp => false,
        })
    }
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
        events: Arc<EventLog>,
    ) -> Self {
        let paths = config.paths.iter().map(|_| PathStatus::new()).collect();
        let state = State { policy: config.policy, paths };
        let resetters = Resetters::new(config.paths.len());
        Self {
            config,
            host,
            record,
            resetters,
            inherited_fence,
            io_threads,
            reports,
            served: OnceLock::new(),
            admission: Mutex::new(()),
            connected: AtomicBool::new(false),
            events,
            dirty: Arc::default(),
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
        let threads = (0..self.io_threads)
            .map(|index| self.start_thread(index, info.namespace.block_bytes))
            .collect::<Result<_, _>>()?;
        let served = Served { namespace: info.namespace, frontend, threads };
        let threads = &self.served.get_or_init(|| served).threads;
        // A change by the API reaches the state first and then the threads there are: either it saw these or we see it.
        let state = self.state();
        for thread in threads {
            thread.set_policy(state.policy);
            for (path, id) in state.paths.iter().zip((0..).map(PathId)) {
                if path.injection.is_some() {
                    thread.set_injection(id, path.injection);
                }
                if path.is_draining() {
                    thread.set_draining(id, true);
                }
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
        let mut state = self.state();
        let before = state.paths_expected();
        change(&mut state.paths[usize::from(path.0)]);
        let expected = state.paths_expected();
        if expected != before {
            // Still under the lock: the threads hear of changes in the order in which they happen.
            self.threads().iter().for_each(|thread| thread.set_paths_expected(expected));
        }
    }

    pub(crate) fn address(&self, path: PathId) -> &PathAddress {
        &self.config.paths[usize::from(path.0)]
    }

    /// The path's task's end of what the operator orders.
    pub(crate) fn orders(&self, path: PathId) -> Orders {
        Orders::new(self.state().paths[usize::from(path.0)].orders.subscribe())
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
    pub(crate) fn event(&self, path: Option<PathId>, kind: EventKind, message: impl Into<String>) {
        let path = path.map(|path| EventPath { index: path.0, address: self.address(path).clone() });
        self.events.record(self.config.name.as_str(), path, kind, message.into());
    }

    pub(crate) fn path_live(&self, path: PathId, info: &ControllerInfo, ana: AnaState, fence: Duration) {
        let message = format!("path live: controller {}, {ana}", info.cntlid);
        self.event(Some(path), EventKind::PathLive, message);
        self.path(path, |status| {
            status.set_state(PathState::Live);
            status.last_error = None;
            status.cntlid = Some(info.cntlid);
            status.ana = Some(ana);
            status.controller = Some(Controller {
                model: info.model.clone(),
                serial: info.serial.clone(),
                firmware: info.firmware.clone(),
                kato_ms: info.kato.as_millis() as u64,
                max_transfer_bytes: info.max_transfer_bytes,
                queue_depth: info.queue_entries - 1,
                volatile_write_cache: info.volatile_write_cache,
                fence_ms: fence.as_millis() as u64,
            });
        });
    }

    pub(crate) fn path_ana(&self, path: PathId, ana: AnaState) {
        self.event(Some(path), EventKind::AnaChanged, format!("ANA state changed: {ana}"));
        self.path(path, |status| status.ana = Some(ana));
    }

    pub(crate) fn path_suspect(&self, path: PathId) {
        self.event(Some(path), EventKind::PathSuspect, "path suspect: it owes answers and is silent");
    }

    pub(crate) fn path_recovered(&self, path: PathId) {
        self.event(Some(path), EventKind::PathRecovered, "path recovered: it answers again");
    }

    /// Nothing sent before the loss can be executed any more.
    pub(crate) fn path_fence_lifted(&self, path: PathId, by: FencedBy, after: Duration) {
        let by = match by {
            FencedBy::Reset(by) => format!("cross-controller reset on {}", self.address(by)),
            FencedBy::Drain => "drain".into(),
            FencedBy::Time => "time".into(),
        };
        self.event(Some(path), EventKind::FenceLifted, format!("fence lifted by {by} after {after:.1?}"));
    }

    /// The operator's wish to disable the path is fulfilled.
    pub(crate) fn path_disabled(&self, path: PathId) {
        self.event(Some(path), EventKind::PathDisabled, "path disabled: not connected before it is enabled");
        self.path(path, |status| {
            status.set_state(PathState::Disabled);
            status.last_error = None;
            status.gone();
        });
    }

    /// It is enabled again.
    pub(crate) fn path_connecting(&self, path: PathId) {
        self.path(path, |status| status.set_state(PathState::Connecting));
    }

    /// A path was lost, or an attempt to connect it failed. Said once: attempts that fail alike stay silent.
    pub(crate) fn path_failed(&self, path: PathId, error: &PathError) {
        self.path_down(path, EventKind::PathLost, error, |state| match state {
            PathState::Live | PathState::Lost => PathState::Lost,
            PathState::Connecting
            | PathState::Refused
            | PathState::GaveUp
            | PathState::Draining
            | PathState::Disabled => PathState::Connecting,
        });
    }

    /// No attempt is made any more to connect a path, which has had no connection for `ctrl-loss-tmo`.
    pub(crate) fn path_gave_up(&self, path: PathId, after: Duration) {
        let message = format!("path given up: no connection for {after:?} (ctrl-loss-tmo)");
        self.event(Some(path), EventKind::PathGaveUp, message);
        self.path(path, |status| status.set_state(PathState::GaveUp));
    }

    /// The first attempt to connect a path failed. Whether that is worth a warning or the reason not to start at all depends on
    /// the others, so whoever starts the disk tells it.
    pub(crate) fn path_did_not_start(&self, path: PathId, error: &PathError, refused: bool) {
        self.path(path, |status| {
            status.set_state(if refused { PathState::Refused } else { PathState::Connecting });
            status.last_error = Some((error.to_string(), SystemTime::now()));
        });
    }

    /// A path leads elsewhere, and stays unused.
    pub(crate) fn path_refused(&self, path: PathId, error: &PathError) {
        self.path_down(path, EventKind::PathRefused, error, |_| PathState::Refused);
    }

    fn path_down(&self, path: PathId, kind: EventKind, error: &PathError, next: impl FnOnce(PathState) -> PathState) {
        let text = error.to_string();
        let mut news = false;
        self.path(path, |status| {
            news = status.last_error.as_ref().is_none_or(|(last, _)| *last != text);
            status.set_state(next(status.state));
            status.last_error = Some((text.clone(), SystemTime::now()));
            status.gone();
        });
        if news {
            self.event(Some(path), kind, format!("path down: {text}"));
        }
    }

    /// A path did not start, though others did.
    pub(crate) fn path_started_down(&self, path: PathId, error: &PathError) {
        let kind = if error.is_refusal() { EventKind::PathRefused } else { EventKind::PathLost };
        self.event(Some(path), kind, format!("path down: {error}"));
    }
}
