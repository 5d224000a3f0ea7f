//! A subsystem from its configuration to front-ends that are served, and to its end: with the daemon, or while that runs.
//!
//! ```text
//!  Starting::bind ── discovered ── connect ──▶ Connecting ── tried ── serve ──▶ front-ends are served
//!                                                  │                                  │
//!                                                  └────────── its Service ends ◀─────┘
//! ```
//! Nothing is half-started: sockets are taken first, then every path is tried, and only a disk with a working path is shown to
//! front-ends. Whatever fails before that removes what was made.

pub(crate) mod disks;
pub(crate) mod mptcp_watch;
mod namespace_writers;
pub(crate) mod start_error;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mpath_api::PathAddress;
use mpath_api::config::{DiskConfig, MAX_PATHS, SocketPath};
use mpath_api::types::{EventKind, Origin};
use mpath_core::PathId;
use mpath_host::{Leaving, LeftFence};
use reactor::IoThreadHandle;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::discovery::{Discovery, Shown};
use crate::disk::Disk;
use crate::disk::settings::DiskSettings;
use crate::fence_record::FenceRecords;
use crate::path::fence;
use crate::service::namespace_writers::Left;
use crate::service::start_error::{Discovered, Failures, Reasons, StartError};
use crate::sockets::activation::HandedOver;
use crate::sockets::door::Door;
use crate::sockets::frontend::{FrontendThread, ServedDisk};
use crate::sockets::place::Place;
use crate::subsystem::common::Common;
use crate::subsystem::error::PathError;
use crate::subsystem::path_status::PathStatus;
use crate::subsystem::{Fence, Subsystem};

/// A subsystem whose sockets are taken.
pub(crate) struct Starting {
    config: DiskConfig,
    doors: Vec<Door>,
    places: Vec<Option<Place>>,
    records: FenceRecords,
    /// Until then writes of who had the sockets before may be executed; passed, if there can be none any more and he did not end in order.
    inherited_fence: Option<Fence>,
    discovery: Option<Discovery>,
    /// The paths that it has besides those configured.
    discovered: Vec<PathAddress>,
}

impl Starting {
    /// Takes the sockets of all disks, and what earlier daemons have left beside them. Blocks: for little more than a second, and until a
    /// daemon that is ending has let go of the disks, ten seconds at most for each.
    pub(crate) fn bind(config: DiskConfig, handed_over: &HandedOver) -> Result<Self, StartError> {
        if !config.subsystem.has_form() {
            // Not refused: there are targets that have such names.
            tracing::warn!(
                disk = %config.name,
                subsystem = %config.subsystem,
                "the subsystem's name does not start with `nqn.`: if that is not what the target calls it, mend `subsystem`"
            );
        }
        let paths: Vec<_> = DiskSettings::all(&config).into_iter().map(|disk| disk.socket_path).collect();
        let doors = paths.iter().map(|path| handed_over.door(path)).collect::<Result<_, _>>()?;
        let places = paths.iter().map(Place::of).collect();
        let (records, inherited) = FenceRecords::open(paths.iter().map(SocketPath::as_path))?;
        let inherited_fence = inherited.map(|fence| Fence { until: Instant::now() + fence, of: None });
        Ok(Self { config, doors, places, records, inherited_fence, discovery: None, discovered: Vec::new() })
    }

    /// Begins to ask the discovery controllers, if there are any.
    pub(crate) fn discover(&mut self, common: &Common) {
        self.discovery = Discovery::start(&self.config, &common.host, &common.events);
    }

    /// Waits until they have answered, or had the time to. May be dropped.
    pub(crate) async fn discovered(&mut self) -> Result<(), StartError> {
        let Some(discovery) = &mut self.discovery else { return Ok(()) };
        let config = &self.config;
        let mut discovered = discovery.first().await;
        discovered.retain(|address| !config.paths.contains(address));
        discovered.truncate(MAX_PATHS - config.paths.len());
        if config.paths.is_empty() && discovered.is_empty() {
            let (disk, subsystem) = (config.name.to_string(), config.subsystem.to_string());
            return Err(StartError::NoneDiscovered { disk, subsystem, reasons: Discovered(discovery.reasons()) });
        }
        self.discovered = discovered;
        Ok(())
    }

    /// Begins to connect all paths. From now on there is a service that has to be ended.
    ///
    /// To be called within the daemon's runtime.
    pub(crate) fn connect(self, common: &Common) -> Connecting {
        let Self { config, doors, places, records, inherited_fence, discovery, discovered } = self;
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
            discovery: discovery.as_ref().map(Discovery::shown),
            ends,
            frontends: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            task: Mutex::default(),
        };
        Connecting { service: Arc::new(service), doors, discovery, paths }
    }
}

/// Tells that the disks take no requests until a fence has passed, now, and that they do again, then; nothing, if it has passed.
fn hold(subsystem: &Arc<Subsystem>, Fence { until, of }: Fence) {
    let wait = until.saturating_duration_since(Instant::now());
    if wait.is_zero() {
        let subsystem = Arc::clone(subsystem);
        tokio::spawn(async move { forget_inherited(&subsystem).await });
        return;
    }
    let wait = wait.as_secs_f64();
    let whose = match of {
        None => "who served the disk before did not end in order, and its".to_owned(),
        Some(of) => {
            format!("`{of}`, which was removed, had its namespace or that of a disk on the same paths, and its")
        }
    };
    for disk in &subsystem.disks {
        let message = format!("requests wait for {wait:.1} s: {whose} writes may be executed until then");
        disk.event(EventKind::DiskHeld, message);
    }
    tokio::spawn(go_on(Arc::clone(subsystem), until));
}

async fn go_on(subsystem: Arc<Subsystem>, until: Instant) {
    let mut shutdown = subsystem.shutdown.clone();
    tokio::select! {
        biased;
        // What is left of it is for whoever serves the disks next.
        _ = shutdown.wait_for(|ends| *ends) => return,
        () = tokio::time::sleep_until(until.into()) => {}
    }
    for disk in &subsystem.disks {
        disk.event(
            EventKind::DiskResumed,
            "requests go on: no write of who served the disk before can be executed any more",
        );
    }
    forget_inherited(&subsystem).await;
}

async fn forget_inherited(subsystem: &Subsystem) {
    if let Err(error) = subsystem.records.remove_inherited().await {
        tracing::warn!(disk = %subsystem.name(), %error, "fence record not brought up to date");
    }
}

/// A subsystem whose paths are being tried for the first time.
pub(crate) struct Connecting {
    /// To be ended, whatever comes of the paths.
    pub(crate) service: Arc<Service>,
    doors: Vec<Door>,
    discovery: Option<Discovery>,
    paths: Vec<StartingPath>,
}

struct StartingPath {
    path: PathId,
    tried: oneshot::Receiver<Result<(), PathError>>,
}

impl Connecting {
    /// Waits for the outcome of every path's first attempt; one that worked is enough for each disk. May be dropped.
    pub(crate) async fn tried(&mut self) -> Result<(), StartError> {
        let subsystem = &self.service.subsystem;
        let (mut failures, mut live) = (Vec::new(), 0);
        for StartingPath { path, tried } in self.paths.drain(..) {
            match tried.await {
                Ok(Ok(())) => live += 1,
                Ok(Err(error)) => failures.push((path, error)),
                // It was removed before its first attempt had ended.
                Err(_) => {}
            }
        }
        if live == 0 {
            let state = subsystem.state();
            let address = |(path, error)| Some((state.path(path)?.address.to_string(), error));
            let failures = failures.into_iter().filter_map(address).collect();
            let disk = subsystem.name().to_string();
            let subsystem = subsystem.config.subsystem.to_string();
            return Err(StartError::NoPath { disk, subsystem, failures: Failures(failures) });
        }
        if let Some(disk) = subsystem.unserved() {
            let state = subsystem.state();
            let reason = |path: &PathStatus| Some((path.address.clone(), path.namespace(disk.id)?.unusable.clone()?));
            let reasons = Reasons(state.paths().filter_map(reason).collect());
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
        // Before a front-end has requests taken that another namespace must not have.
        Ok(subsystem.records.write_namespaces().await?)
    }

    /// Whether the disks wait for it, or for a longer one.
    pub(crate) fn has_inherited(&self, left: &Left) -> bool {
        self.service.subsystem.inherited_fence().is_some_and(|fence| fence.until >= left.until)
    }

    /// Has the disks wait for a fence that a removed one has left on what they write to. Blocks until that is recorded.
    pub(crate) fn inherit(&self, left: &Left) -> Result<(), StartError> {
        let subsystem = &self.service.subsystem;
        subsystem.records.inherit(&left.recorded(Instant::now()))?;
        subsystem.inherit(Fence { until: left.until, of: left.disk.clone() });
        Ok(())
    }

    /// Serves front-ends, and follows the discovery controllers, from now on.
    ///
    /// To be called within the daemon's runtime.
    pub(crate) fn serve(self) -> Result<(), StartError> {
        let Self { service, doors, discovery, .. } = self;
        let subsystem = &service.subsystem;
        if let Some(fence) = subsystem.inherited_fence() {
            hold(subsystem, fence);
        }
        for (disk, door) in subsystem.disks.iter().zip(doors) {
            let served = ServedDisk { subsystem: Arc::clone(subsystem), id: disk.id };
            service.frontends().push(FrontendThread::start(served, door)?);
            tracing::info!(disk = disk.name(), socket = %disk.settings.socket_path, "ready");
        }
        let run = discovery.map(|discovery| discovery.run(Arc::clone(subsystem), service.ends.subscribe()));
        *service.task() = run.map(tokio::spawn);
        Ok(())
    }
}

/// A subsystem that is served, or is about to be.
///
/// It ends in the order in which requests come down: [`Service::end_io`], [`Service::hang_up`], [`Service::close`],
/// [`Service::closed`].
pub(crate) struct Service {
    pub(crate) subsystem: Arc<Subsystem>,
    /// Of the disks' sockets, by disk.
    pub(crate) places: Vec<Option<Place>>,
    /// What its discovery controllers are, if it has any.
    pub(crate) discovery: Option<Arc<Shown>>,
    /// Set true, the tasks of paths and discovery end.
    ends: watch::Sender<bool>,
    frontends: Mutex<Vec<FrontendThread>>,
    /// Its I/O threads have given up writes that may still be executed.
    in_doubt: AtomicBool,
    /// That of discovery.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Service {
    fn frontends(&self) -> MutexGuard<'_, Vec<FrontendThread>> {
        self.frontends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no more front-ends in, unless one is connected and that matters: to which disk, then, by position.
    pub(crate) fn turn_away(&self, even_if_connected: bool) -> Result<(), usize> {
        FrontendThread::turn_away(&self.frontends(), even_if_connected)
    }

    /// Tells the I/O threads to end within a moment, whatever is in flight.
    pub(crate) fn end_io(&self) {
        self.cut();
        self.subsystem.threads().iter().for_each(IoThreadHandle::begin_shutdown);
    }

    /// Hangs up on the front-ends and takes their virtqueues back. Blocks until these are drained, or the I/O threads end.
    pub(crate) fn hang_up(&self) {
        self.cut();
        let frontends = std::mem::take(&mut *self.frontends());
        FrontendThread::shutdown(frontends);
    }

    /// Virtqueues that end from now on were not stopped by their front-ends.
    fn cut(&self) {
        self.subsystem.disks.iter().for_each(|disk| disk.unanswered.begin_hang_up());
    }

    /// Ends the I/O threads, and has the paths closed. Blocks for a moment.
    pub(crate) fn close(&self) {
        self.end_io();
        let subsystem = &self.subsystem;
        let in_doubt = subsystem.threads().iter().filter(|thread| thread.join()).count() > 0;
        if in_doubt {
            tracing::warn!(
                disk = %subsystem.name(),
                "writes were given up whose fate is not known; whoever has the socket next, or the namespace within this daemon, waits for their fence"
            );
            self.in_doubt.store(true, Ordering::SeqCst);
        }
        self.ends.send_replace(true);
    }

    /// Waits until the paths are closed, and leaves the disks to whoever serves them next: with which fences, by disk.
    pub(crate) async fn closed(&self) -> Vec<Option<LeftFence>> {
        let of_discovery = self.task().take();
        // A task that was cancelled or panicked has ended as well.
        if let Some(task) = of_discovery {
            let _ = task.await;
        }
        // After that no more paths are added.
        for task in self.subsystem.take_tasks() {
            let _ = task.await;
        }
        let left = |fence: Fence| fence.until.saturating_duration_since(Instant::now());
        let left = self.subsystem.inherited_fence().map(left).unwrap_or_default();
        let in_doubt = self.in_doubt.load(Ordering::SeqCst);
        let is_shared = self.subsystem.config.shared_write_cache;
        // The I/O threads have ended, and so have the paths. What nobody has come back for stays where this one was refused, too.
        let leaving = |disk: &Disk| Leaving {
            in_doubt,
            inherited_left: left,
            unanswered: disk.unanswered.has_any(),
            lost_writes: !is_shared && disk.shared.dirty.has_unreported_loss(),
        };
        let leaving: Vec<_> = self.subsystem.disks.iter().map(leaving).collect();
        self.tell_of_what_is_left(&leaving);
        let records = self.subsystem.records.clone();
        // A disk can take a while to say that it has something. One that panicked has said why.
        let ended = tokio::task::spawn_blocking(move || records.end(&leaving));
        ended.await.unwrap_or_default()
    }

    fn tell_of_what_is_left(&self, leaving: &[Leaving]) {
        for (disk, leaving) in self.subsystem.disks.iter().zip(leaving) {
            if leaving.lost_writes {
                tracing::warn!(
                    disk = disk.name(),
                    "writes were not flushed before the end, or were lost with a path, and no flush has told the guest: its next flush fails, whoever serves it"
                );
            }
            if leaving.unanswered {
                tracing::info!(
                    disk = disk.name(),
                    "a guest may come back with requests that were not answered: until it has, the socket is given no other namespace; once \
                     none can, {} can be removed",
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

    /// As where the path that told what the disk is has not come up, and the one that has leads to another disk.
    #[tokio::test]
    async fn a_record_says_what_a_disk_is_before_a_front_end_is_let_in() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("disk.sock");
        let (records, _) = FenceRecords::open([socket.as_path()].into_iter()).unwrap();
        let association = RecordedAssociation { path: "tcp://127.0.0.1:4420".into(), cntlid: 7, fence_ms: 5_000 };
        records.add(PathId(0), Epoch(1), association).await.unwrap();
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let common = Common { host, io_threads: 1, events: Arc::new(EventLog::new()) };
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
        let mut connecting = Connecting { service: Arc::new(service), doors: Vec::new(), discovery: None, paths };
        connecting.tried().await.unwrap();
        assert!(named());
    }
}
