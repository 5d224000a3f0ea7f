//! A subsystem from its configuration until front-ends are served, and to its end, which may come before the
//! daemon's.
//!
//! ```text
//!  StartingService::bind ── wait_for_discovery ── connect ──▶ ConnectingService ── wait_for_paths ── serve ──▶ front-ends are served
//!                                                               │                                              │
//!                                                               └──────────── its Service ends ◀───────────────┘
//! ```
//! A disk is shown to front-ends only when its sockets are taken, every path was tried and one works. A failure before that
//! removes everything that was created.

pub(crate) mod connection_watch;
pub(crate) mod disks;
pub(crate) mod health_watch;
mod namespace_writers;
pub(crate) mod start_error;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mpath_api::PathAddress;
use mpath_api::config::{DiskConfig, MAX_PATHS, SocketPath};
use mpath_api::types::{EventKind, Origin};
use mpath_core::PathId;
use mpath_host::{DiskShutdown, RemainingFence};
use reactor::IoThreadHandle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::discovery::{Discovery, DiscoveryStatus};
use crate::disk::Disk;
use crate::disk::settings::DiskSettings;
use crate::fence_record::FenceRecords;
use crate::path::fence;
use crate::service::namespace_writers::PendingFence;
use crate::service::start_error::{DiscoveryReasons, PathFailures, PathReasons, StartError};
use crate::sockets::activation::ActivationSockets;
use crate::sockets::frontend::{FrontendThread, ServedDisk};
use crate::sockets::frontend_source::FrontendSource;
use crate::sockets::location::SocketLocation;
use crate::subsystem::error::PathError;
use crate::subsystem::path_status::PathStatus;
use crate::subsystem::shared_context::SharedContext;
use crate::subsystem::{InheritedFence, Subsystem};

/// A subsystem with its sockets, before its paths connect.
pub(crate) struct StartingService {
    config: DiskConfig,
    sources: Vec<FrontendSource>,
    places: Vec<Option<SocketLocation>>,
    records: FenceRecords,
    /// Earlier writes to these disks may be executed until then. A time that has passed means that no such writes
    /// exist, though the earlier daemon did not end in order.
    inherited_fence: Option<InheritedFence>,
    discovery: Option<Discovery>,
    /// Discovered paths that are not configured.
    discovered: Vec<PathAddress>,
}

impl StartingService {
    /// Creates the sockets of all disks and opens their fence records. Blocks for little more than a second. If a
    /// daemon that is ending still holds a disk, it waits at most ten seconds for each disk.
    pub(crate) fn bind(config: DiskConfig, activation_sockets: &ActivationSockets) -> Result<Self, StartError> {
        if !config.subsystem.has_form() {
            // Some targets use such names, so this is no error.
            tracing::warn!(
                disk = %config.name,
                subsystem = %config.subsystem,
                "the name of the subsystem does not start with `nqn.`; if the target has another name for it, correct `subsystem`"
            );
        }
        let disks = DiskSettings::all(&config);
        let source = |disk: &DiskSettings| activation_sockets.source(&disk.socket_path, &disk.socket_access);
        let sources = disks.iter().map(source).collect::<Result<_, _>>()?;
        let paths: Vec<_> = disks.into_iter().map(|disk| disk.socket_path).collect();
        let places = paths.iter().map(SocketLocation::of).collect();
        let (records, inherited) = FenceRecords::open(paths.iter().map(SocketPath::as_path))?;
        let inherited_fence = inherited.map(|fence| InheritedFence { until: Instant::now() + fence, of: None });
        Ok(Self { config, sources, places, records, inherited_fence, discovery: None, discovered: Vec::new() })
    }

    /// Starts discovery, if discovery controllers are configured.
    pub(crate) fn discover(&mut self, common: &SharedContext) {
        self.discovery = Discovery::start(&self.config, &common.host, &common.events);
    }

    /// Waits until the discovery controllers have answered or timed out. The future may be dropped.
    pub(crate) async fn wait_for_discovery(&mut self) -> Result<(), StartError> {
        let Some(discovery) = &mut self.discovery else { return Ok(()) };
        let config = &self.config;
        let mut discovered = discovery.first_addresses().await;
        discovered.retain(|address| !config.paths.contains(address));
        discovered.truncate(MAX_PATHS - config.paths.len());
        if config.paths.is_empty() && discovered.is_empty() {
            let (disk, subsystem) = (config.name.to_string(), config.subsystem.to_string());
            return Err(StartError::NoneDiscovered { disk, subsystem, reasons: DiscoveryReasons(discovery.reasons()) });
        }
        self.discovered = discovered;
        Ok(())
    }

    /// Begins to connect all paths. The returned service must be ended.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn connect(self, common: &SharedContext) -> ConnectingService {
        let Self { config, sources, places, records, inherited_fence, discovery, discovered } = self;
        let (ends, ending) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(config, common, records, inherited_fence, ending));
        let configured = subsystem.config.paths.iter().map(|address| (address, Origin::Configured));
        let addresses = configured.chain(discovered.iter().map(|address| (address, Origin::Discovery)));
        let paths = addresses.map(|(address, origin)| {
            let (first, tried) = oneshot::channel();
            let path = subsystem.start_path(address.clone(), origin, Some(first));
            StartingPath { path: path.expect("at most 64 paths, no two alike"), tried }
        });
        let paths = paths.collect();
        tokio::spawn(fence::run(Arc::clone(&subsystem)));
        let service = Service {
            subsystem,
            places,
            discovery: discovery.as_ref().map(Discovery::status),
            ends,
            frontends: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            task: Mutex::default(),
        };
        ConnectingService { service: Arc::new(service), sources, discovery, paths }
    }
}

/// Reports that the disks take no requests until the fence has passed, and later that they do. If it has passed
/// already, reports nothing.
fn announce_hold(subsystem: &Arc<Subsystem>, InheritedFence { until, of }: InheritedFence) {
    let wait = until.saturating_duration_since(Instant::now());
    if wait.is_zero() {
        let subsystem = Arc::clone(subsystem);
        tokio::spawn(async move { forget_inherited(&subsystem).await });
        return;
    }
    let wait = wait.as_secs_f64();
    let whose = match of {
        None => "the previous daemon, or the disk that was on this socket, did not end in order, and its".to_owned(),
        Some(of) => {
            format!("the removed disk `{of}` used this namespace, or that of a disk on the same paths, and its")
        }
    };
    for disk in &subsystem.disks {
        let message = format!("requests wait for {wait:.1} s: {whose} writes may be executed until then");
        disk.event(EventKind::DiskHeld, message);
    }
    tokio::spawn(announce_resume(Arc::clone(subsystem), until));
}

async fn announce_resume(subsystem: Arc<Subsystem>, until: Instant) {
    let mut shutdown = subsystem.shutdown.clone();
    tokio::select! {
        biased;
        // The next daemon waits for the rest.
        _ = shutdown.wait_for(|ends| *ends) => return,
        () = tokio::time::sleep_until(until.into()) => {}
    }
    for disk in &subsystem.disks {
        disk.event(EventKind::DiskResumed, "requests resume: no earlier write can be executed any more");
    }
    forget_inherited(&subsystem).await;
}

async fn forget_inherited(subsystem: &Subsystem) {
    if let Err(error) = subsystem.records.remove_inherited().await {
        tracing::warn!(disk = %subsystem.name(), %error, "cannot update the fence record; the next daemon may have to wait longer");
    }
}

/// A subsystem whose paths make their first attempt to connect.
pub(crate) struct ConnectingService {
    /// Must be ended, whether a path works or not.
    pub(crate) service: Arc<Service>,
    sources: Vec<FrontendSource>,
    discovery: Option<Discovery>,
    paths: Vec<StartingPath>,
}

struct StartingPath {
    path: PathId,
    tried: oneshot::Receiver<Result<(), PathError>>,
}

impl ConnectingService {
    /// Waits for the first attempt of every path. Fails unless each disk has a working path. The future
    /// may be dropped.
    pub(crate) async fn wait_for_paths(&mut self) -> Result<(), StartError> {
        let subsystem = &self.service.subsystem;
        let (mut failures, mut live) = (Vec::new(), 0);
        for StartingPath { path, tried } in self.paths.drain(..) {
            match tried.await {
                Ok(Ok(())) => live += 1,
                Ok(Err(error)) => failures.push((path, error)),
                // The path was removed before its first attempt ended.
                Err(_) => {}
            }
        }
        if live == 0 {
            let state = subsystem.state();
            let address = |(path, error)| Some((state.path(path)?.address.to_string(), error));
            let failures = failures.into_iter().filter_map(address).collect();
            let disk = subsystem.name().to_string();
            let subsystem = subsystem.config.subsystem.to_string();
            return Err(StartError::NoPath { disk, subsystem, failures: PathFailures(failures) });
        }
        if let Some(disk) = subsystem.unserved() {
            let state = subsystem.state();
            let reason = |path: &PathStatus| Some((path.address.clone(), path.namespace(disk.id)?.unusable.clone()?));
            let reasons = PathReasons(state.paths().filter_map(reason).collect());
            let (disk, subsystem) = (disk.name().to_string(), subsystem.config.subsystem.to_string());
            return Err(StartError::NoNamespace { disk, subsystem, reasons });
        }
        if let Some((disk, before)) = subsystem.other_namespace() {
            let namespace = Box::new(subsystem.namespace_name(disk).expect("it is served"));
            let file = subsystem.records.file(disk.id.0.into()).to_owned();
            return Err(StartError::OtherNamespace {
                disk: disk.name().into(),
                namespace,
                before: before.into(),
                file,
            });
        }
        for (path, error) in failures {
            subsystem.path_started_down(path, &error);
        }
        // Before a front-end can submit requests, which no other namespace may receive.
        Ok(subsystem.records.write_namespaces().await?)
    }

    /// Whether the disks already wait at least as long.
    pub(crate) fn has_inherited(&self, left: &PendingFence) -> bool {
        self.service.subsystem.inherited_fence().is_some_and(|fence| fence.until >= left.until)
    }

    /// Has the disks wait for a fence that a removed disk left on their namespaces. Blocks until that is recorded.
    pub(crate) fn inherit(&self, left: &PendingFence) -> Result<(), StartError> {
        let subsystem = &self.service.subsystem;
        subsystem.records.inherit(&left.recorded(Instant::now()))?;
        subsystem.inherit(InheritedFence { until: left.until, of: left.disk.clone() });
        Ok(())
    }

    /// Serves front-ends and follows discovery logs.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn serve(self) -> Result<(), StartError> {
        let Self { service, sources, discovery, .. } = self;
        let subsystem = &service.subsystem;
        if let Some(fence) = subsystem.inherited_fence() {
            announce_hold(subsystem, fence);
        }
        for (disk, source) in subsystem.disks.iter().zip(sources) {
            let served = ServedDisk { subsystem: Arc::clone(subsystem), id: disk.id };
            service.frontends().push(FrontendThread::start(served, source)?);
            tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "ready");
        }
        let run = discovery.map(|discovery| discovery.run(Arc::clone(subsystem), service.ends.subscribe()));
        *service.task() = run.map(tokio::spawn);
        Ok(())
    }
}

/// A subsystem that is served or about to be.
///
/// It ends in the order in which requests flow: [`Service::end_io`], [`Service::hang_up`], [`Service::close`],
/// [`Service::closed`].
pub(crate) struct Service {
    pub(crate) subsystem: Arc<Subsystem>,
    /// The locations of the disks' sockets, by disk.
    pub(crate) places: Vec<Option<SocketLocation>>,
    /// The state of its discovery controllers, if it has any.
    pub(crate) discovery: Option<Arc<DiscoveryStatus>>,
    /// Set to true, this ends the tasks of paths and discovery.
    ends: watch::Sender<bool>,
    frontends: Mutex<Vec<FrontendThread>>,
    /// Its I/O threads have abandoned writes that may still be executed.
    in_doubt: AtomicBool,
    /// The task of discovery.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Service {
    fn frontends(&self) -> MutexGuard<'_, Vec<FrontendThread>> {
        self.frontends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops accepting front-ends. If one is connected, fails with the position of its disk and changes nothing,
    /// unless `even_if_connected`.
    pub(crate) fn stop_accepting(&self, even_if_connected: bool) -> Result<(), usize> {
        FrontendThread::stop_accepting(&self.frontends(), even_if_connected)
    }

    /// Tells the I/O threads to end shortly, whatever is in flight.
    pub(crate) fn end_io(&self) {
        self.mark_cut();
        self.subsystem.threads().iter().for_each(IoThreadHandle::begin_shutdown);
    }

    /// Hangs up on the front-ends and takes their virtqueues back. Blocks until these have drained or the I/O threads
    /// end.
    pub(crate) fn hang_up(&self) {
        self.mark_cut();
        let frontends = std::mem::take(&mut *self.frontends());
        FrontendThread::shutdown(frontends);
    }

    /// Marks virtqueues that end from now on as not stopped by their front-ends.
    fn mark_cut(&self) {
        self.subsystem.disks.iter().for_each(|disk| disk.unanswered.begin_hang_up());
    }

    /// Ends the I/O threads and begins to close the paths. Blocks for a moment.
    pub(crate) fn close(&self) {
        self.mark_cut();
        let subsystem = &self.subsystem;
        if IoThreadHandle::end_all(subsystem.threads()) {
            tracing::warn!(
                disk = %subsystem.name(),
                "writes were abandoned and may still be executed; the next daemon on this socket, and disks of this daemon \
                 on the same namespace, wait for their fence"
            );
            self.in_doubt.store(true, Ordering::SeqCst);
        }
        self.ends.send_replace(true);
    }

    /// Waits until the paths are closed, then closes the fence records. Returns the fences that are left, by disk.
    pub(crate) async fn closed(&self) -> Vec<Option<RemainingFence>> {
        let of_discovery = self.task().take();
        // A task that was cancelled or panicked has ended as well.
        if let Some(task) = of_discovery {
            let _ = task.await;
        }
        // Without discovery no paths are added any more.
        for task in self.subsystem.take_tasks() {
            let _ = task.await;
        }
        let left = |fence: InheritedFence| fence.until.saturating_duration_since(Instant::now());
        let left = self.subsystem.inherited_fence().map(left).unwrap_or_default();
        let in_doubt = self.in_doubt.load(Ordering::SeqCst);
        let is_shared = self.subsystem.config.shared_write_cache;
        // I/O threads and paths have ended. If this daemon was refused, the earlier requests remain unanswered too.
        let leaving = |disk: &Disk| DiskShutdown {
            in_doubt,
            inherited_left: left,
            unanswered: disk.unanswered.has_any(),
            lost_writes: !is_shared && disk.shared.unflushed.has_unreported_loss(),
        };
        let leaving: Vec<_> = self.subsystem.disks.iter().map(leaving).collect();
        self.report_shutdown(&leaving);
        let records = self.subsystem.records.clone();
        // Writing to disk can take a while. A panic was reported already.
        let ended = tokio::task::spawn_blocking(move || records.end(&leaving));
        ended.await.unwrap_or_default()
    }

    fn report_shutdown(&self, leaving: &[DiskShutdown]) {
        for (disk, leaving) in self.subsystem.disks.iter().zip(leaving) {
            if leaving.lost_writes {
                tracing::warn!(
                    disk = disk.name(),
                    "some writes were not flushed before the end, or were lost with a path, and no flush has told the guest; \
                     the next daemon fails the guest's next flush"
                );
            }
            if leaving.unanswered {
                tracing::info!(
                    disk = disk.name(),
                    "a guest may come back with unanswered requests; until it does, no other namespace is served on this socket; if no guest \
                     can come back, remove {}",
                    self.subsystem.records.file(disk.id.0.into()).display()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::Epoch;
    use mpath_host::RecordedAssociation;
    use nvme_tcp::host::HostIdentity;

    use super::*;
    use crate::disk::geometry;
    use crate::events::EventLog;

    /// The path that reported the disk's namespace may not have come up, while another path serves another disk.
    #[tokio::test]
    async fn the_record_names_the_namespace_before_front_ends_are_served() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (records, _) = FenceRecords::open([socket.as_path()].into_iter()).unwrap();
        let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms: 5_000 };
        records.add(PathId(0), Epoch(1), association).await.unwrap();
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = SharedContext { host, io_threads: 1, events: Arc::new(EventLog::new()) };
        let (ends, ending) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(geometry::tests::config(), &common, records, None, ending));
        assert!(subsystem.admit(&geometry::tests::controller()).unwrap()[0].is_ok());
        let named = || std::fs::read_to_string(subsystem.records.file(0)).unwrap().contains("nqn.example");
        assert!(!named());
        let service = Service {
            subsystem: Arc::clone(&subsystem),
            places: vec![None],
            discovery: None,
            ends,
            frontends: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            task: Mutex::default(),
        };
        let (up, tried) = oneshot::channel();
        up.send(Ok(())).unwrap();
        let paths = vec![StartingPath { path: PathId(0), tried }];
        let mut connecting =
            ConnectingService { service: Arc::new(service), sources: Vec::new(), discovery: None, paths };
        connecting.wait_for_paths().await.unwrap();
        assert!(named());
    }
}
