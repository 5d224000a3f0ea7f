//! A subsystem from its configuration to its end, which may come before the daemon's.
//!
//! ```text
//!  StartingService::bind ── start ──▶ Service: front-ends wait ── a path shows a disk's namespace ──▶ drive_disks: its front-ends are served
//! ```
//! Each disk is opened by itself, when its namespace is known, checked and recorded. Until then its front-ends wait.

pub(crate) mod connection_watch;
pub(crate) mod disks;
mod first_attempts;
pub(crate) mod health_watch;
pub(crate) mod history;
mod opening;
pub(crate) mod socket_watch;
pub(crate) mod start_error;
#[cfg(test)]
pub(crate) mod testing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monotonic::Instant;
use mpath_api::types::{DiskHealth, Origin, PathCounts};
use mpath_api_server::socket::BindError;
use mpath_config::{DiskConfig, SocketPath};
use mpath_lifecycle::{DiskShutdown, InheritedFence, RemainingFence};
use reactor::IoThreadHandle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::discovery::{Discovery, DiscoveryStatus};
use crate::disk::Disk;
use crate::disk::settings::DiskSettings;
use crate::disk_files::fence_record::FenceRecords;
use crate::path::fence;
use crate::service::start_error::StartError;
use crate::sockets::activation::{ActivationSockets, DaemonSocket, disk_identity};
use crate::sockets::frontend::FrontendServer;
use crate::sockets::frontend_source::FrontendSource;
use crate::sockets::location::SocketLocation;
use crate::sockets::served_disk::ServedDisk;
use crate::subsystem::Subsystem;
use crate::subsystem::shared_context::SharedContext;
use crate::transport::UNPROVEN_CONTROLLER;

/// How long front-ends may take to leave that were hung up on. Their virtqueues have drained by then, or were given up.
const HANG_UP_MAX: Duration = Duration::from_secs(20);

/// A subsystem with its sockets, before its front-ends and paths connect.
pub(crate) struct StartingService {
    config: DiskConfig,
    sources: Vec<FrontendSource>,
    places: Vec<Option<SocketLocation>>,
    records: FenceRecords,
    /// Earlier writes to these disks may be executed until then. A time that has passed means that no such writes
    /// exist, though the earlier daemon did not end in order.
    inherited_fence: Option<InheritedFence>,
}

/// The sockets of disks that share their paths.
pub(crate) struct DiskSockets(Vec<FrontendSource>);

impl DiskSockets {
    /// Creates the sockets that are not passed. Blocks for little more than a second.
    pub(crate) fn bind(config: &DiskConfig, activation_sockets: &ActivationSockets) -> Result<Self, BindError> {
        let disks = DiskSettings::all(config);
        let source = |disk: &DiskSettings| activation_sockets.source(&disk.socket_path, &disk.socket_access);
        Ok(Self(disks.iter().map(source).collect::<Result<_, _>>()?))
    }

    /// Takes the socket files of a daemon that has handed over.
    pub(crate) fn own_files(&self) {
        for source in &self.0 {
            if let FrontendSource::Listening(socket) = source {
                socket.own_file();
            }
        }
    }
}

impl StartingService {
    /// Opens the fence records of all disks. If a daemon that is ending still holds a disk, it waits at most ten seconds
    /// for each disk.
    pub(crate) fn open(config: DiskConfig, sockets: DiskSockets) -> Result<Self, StartError> {
        if !config.subsystem.has_form() {
            // Some targets use such names, so this is no error.
            tracing::warn!(
                disk = config.name.as_str(),
                subsystem = %config.subsystem,
                "the name of the subsystem does not start with `nqn.`; if the target has another name for it, correct `subsystem`"
            );
        }
        if config.leaves_controller_unproven() {
            tracing::warn!(disk = config.name.as_str(), "{UNPROVEN_CONTROLLER}");
        }
        let paths: Vec<_> = DiskSettings::all(&config).into_iter().map(|disk| disk.socket_path).collect();
        let places = paths.iter().map(SocketLocation::of).collect();
        let (records, inherited_fence) = FenceRecords::open(paths.iter().map(SocketPath::as_path))?;
        Ok(Self { config, sources: sockets.0, places, records, inherited_fence })
    }

    /// Reserves the namespaces of guests that may come back, so that no other disk writes there first. If one already
    /// does, the first path will say so.
    pub(crate) fn reserve_namespaces(&self, common: &SharedContext) {
        for (settings, index) in DiskSettings::all(&self.config).iter().zip(0..).filter(|(disk, _)| !disk.read_only) {
            if let Some(before) = self.records.previous_namespace(index) {
                let _ = common.writers.add(self.config.name.as_str(), settings.name.as_str(), before);
            }
        }
    }

    /// Begins to listen for front-ends, to connect all paths and to follow discovery logs. The returned service must be
    /// ended.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn start(self, common: &SharedContext) -> Arc<Service> {
        let Self { config, sources, places, records, inherited_fence } = self;
        let (ends, ending) = watch::channel(false);
        let subsystem = Arc::new(Subsystem::new(config, common, records, inherited_fence.as_ref(), ending));
        for (index, source) in sources.iter().enumerate() {
            if matches!(source, FrontendSource::Connected(..)) {
                // The front-end of `--fd` does not come back, and the next one is another.
                subsystem.records.forget_files(index);
            }
        }
        subsystem.restore_shown();
        let served = |disk: &Disk| ServedDisk { subsystem: Arc::clone(&subsystem), id: disk.id };
        let sources = subsystem.disks.iter().map(served).zip(sources);
        let frontends = sources.map(|(disk, source)| FrontendServer::start(disk, source)).collect();
        for address in &subsystem.config.paths {
            let path = subsystem.start_path(address.clone(), Origin::Configured);
            path.expect("at most 64 paths, no two alike");
        }
        tokio::spawn(fence::run(Arc::clone(&subsystem)));
        let discovery = Discovery::start(&subsystem.config, &common.host, &common.events, subsystem.records.state(0));
        let status = discovery.as_ref().map(Discovery::status);
        let run = discovery.map(|discovery| tokio::spawn(discovery.run(Arc::clone(&subsystem), ends.subscribe())));
        Arc::new(Service {
            subsystem,
            places,
            discovery: status,
            ends,
            frontends: Mutex::new(frontends),
            in_doubt: AtomicBool::new(false),
            tasks: Mutex::new(run.into_iter().collect()),
        })
    }
}

/// A subsystem whose paths and front-ends connect.
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
    frontends: Mutex<Vec<FrontendServer>>,
    /// Its I/O threads have given up writes that may still be executed.
    in_doubt: AtomicBool,
    /// Tasks that end with the subsystem: discovery, and the opening of disks.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Service {
    /// The health of a disk, see [`Subsystem::check_health`].
    pub(crate) fn check_health(&self, disk: &Disk, outstanding: u64, is_leaving: bool) -> (DiskHealth, PathCounts) {
        let has_path = self.subsystem.state().paths().next().is_some();
        let discovery = self.discovery.as_ref().filter(|_| !has_path);
        let undiscovered = discovery.map(|discovery| discovery.undiscovered());
        self.subsystem.check_health(disk, undiscovered.as_ref(), outstanding, is_leaving)
    }

    fn frontends(&self) -> MutexGuard<'_, Vec<FrontendServer>> {
        self.frontends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listening sockets of the disks.
    pub(crate) fn sockets(&self) -> Vec<DaemonSocket> {
        let frontends = self.frontends();
        let sockets = self.subsystem.disks.iter().zip(&*frontends).filter_map(|(disk, frontend)| {
            let in_use_by = disk.is_connected().then(|| disk_identity(&self.subsystem.config, &disk.settings));
            Some(DaemonSocket { path: disk.settings.socket_path.clone(), socket: frontend.listening()?, in_use_by })
        });
        sockets.collect()
    }

    /// Looks for front-ends that wait until the connected one has left.
    pub(crate) fn look_for_waiting_front_ends(&self) {
        let frontends = self.frontends();
        for (disk, frontend) in self.subsystem.disks.iter().zip(&*frontends) {
            disk.saw_waiting_front_end(frontend.waiting());
        }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops accepting front-ends. If one is connected, fails with the position of its disk and changes nothing,
    /// unless `even_if_connected`.
    pub(crate) fn stop_accepting(&self, even_if_connected: bool) -> Result<(), usize> {
        FrontendServer::stop_accepting(&self.frontends(), even_if_connected)
    }

    /// Tells the I/O threads to end shortly, whatever is in flight.
    pub(crate) fn end_io(&self) {
        self.mark_cut();
        self.subsystem.threads().iter().for_each(IoThreadHandle::begin_shutdown);
    }

    /// Hangs up on the front-ends of these and takes their virtqueues back. Blocks until these have drained or the I/O
    /// threads end, at most for 20 s.
    pub(crate) fn hang_up(services: &[Arc<Self>]) {
        let take = |service: &Arc<Self>| {
            service.mark_cut();
            std::mem::take(&mut *service.frontends())
        };
        FrontendServer::shutdown(services.iter().flat_map(take).collect(), HANG_UP_MAX);
    }

    /// Marks virtqueues that end from now on as not stopped by their front-ends.
    fn mark_cut(&self) {
        self.subsystem.disks.iter().for_each(|disk| disk.queues.begin_hang_up());
    }

    /// Ends the I/O threads and begins to close the paths. Blocks for a moment.
    pub(crate) fn close(&self) {
        self.mark_cut();
        let subsystem = &self.subsystem;
        if IoThreadHandle::end_all(subsystem.threads()) {
            tracing::warn!(
                disk = subsystem.name(),
                "writes were given up and may still be executed; the next daemon on this socket, and disks of this daemon \
                 on the same namespace, wait for their fence"
            );
            self.in_doubt.store(true, Ordering::SeqCst);
        }
        self.ends.send_replace(true);
    }

    /// Waits until the paths are closed, then closes the fence records. Returns the fences that are left, by disk.
    pub(crate) async fn closed(&self) -> Vec<Option<RemainingFence>> {
        let tasks = std::mem::take(&mut *self.tasks());
        for task in tasks {
            // A task that was cancelled or panicked has ended as well.
            let _ = task.await;
        }
        // Without discovery no paths are added any more.
        for task in self.subsystem.take_tasks() {
            let _ = task.await;
        }
        let in_doubt = self.in_doubt.load(Ordering::SeqCst);
        // I/O threads and paths have ended.
        let leaving = |disk: &Disk| {
            let (unanswered, unflushed) = (disk.queues.has_unanswered(), &disk.shared.unflushed);
            disk.driver().hold.at_shutdown(Instant::now(), in_doubt, unanswered, unflushed)
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
