//! Decides: all disks end in this order (`end_all`).
//!
//! The disks of the daemon. They can be added and removed while it runs.
//!
//! A change begun for a client completes even if the client leaves, so a disk is never half added or half removed.
//! The daemon's end waits for changes under way, which it shortens.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monotonic::{Duration, Instant};
use mpath_api::types::{EventKind, RemovedDisk};
use mpath_api_server::{ControlError, caller, on_behalf_of};
use mpath_config::{
    Config, ConflictError, DiskConfig, DiskName, DiskPlace, MAX_DISKS, SocketPath, WaitFor, similar_name,
};
use mpath_core::DiskId;
use mpath_lifecycle::{NamespaceName, PendingFence, PendingFences};
use tokio::sync::{RwLock, RwLockWriteGuard, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::disk::Disk;
use crate::disk::settings::DiskSettings;
use crate::disk_files::fence_record::FenceRecords;
use crate::open_files::{self, OpenFilesError};
use crate::service::start_error::StartError;
use crate::service::{DiskSockets, Service, StartingService};
use crate::sockets::activation::{ActivationSockets, DaemonSocket};
use crate::sockets::location::SocketLocation;
use crate::subsystem::Subsystem;
use crate::subsystem::shared_context::SharedContext;

/// How long the requests of a front-end that was hung up on may take before they are given up: the limit of any
/// leaving front-end, plus a moment for the reports of the I/O threads.
const DRAIN_MAX: Duration = Duration::from_secs(11);

/// The disks of the daemon.
pub(crate) struct Disks {
    pub(crate) common: SharedContext,
    /// The settings of the daemon, without disks. No disk may use the sockets of the API.
    daemon: Config,
    api_places: Vec<SocketLocation>,
    activation_sockets: Arc<ActivationSockets>,
    held: Mutex<DiskTable>,
    /// Read-locked while a disk is added or removed, write-locked at the end.
    changes: RwLock<()>,
    /// True once the daemon ends.
    ending: watch::Sender<bool>,
}

#[derive(Default)]
struct DiskTable {
    /// In the order in which they were added.
    services: Vec<Arc<Service>>,
    /// Disks being added, with their names and sockets.
    reserved: Vec<Reserved>,
    /// Disks being removed.
    leaving: Vec<DiskName>,
    /// The fences that removed disks have left on their namespaces.
    pending_fences: PendingFences,
}

impl DiskTable {
    /// All names and sockets in use.
    fn all(&self) -> Vec<Reserved> {
        let there = self.services.iter().flat_map(|service| service.subsystem.disks.iter().zip(&service.places));
        let there =
            there.map(|(disk, place)| Reserved { place: place.clone(), ..Reserved::from(disk.settings.clone()) });
        there.chain(self.reserved.iter().cloned()).collect()
    }

    fn socket_taken(&self, disk: &DiskName, socket: &SocketPath, of: &DiskName) -> ControlError {
        let leaving = self.leaving.contains(of);
        let (disk, socket, of) = (disk.to_string(), socket.to_string(), of.to_string());
        if leaving {
            ControlError::SocketInRemoval { disk, socket, owner: of }
        } else {
            ControlError::SocketTaken { disk, socket, owner: of }
        }
    }
}

#[derive(Clone)]
struct Reserved {
    name: DiskName,
    socket: SocketPath,
    /// `None` until it is known, and if the directory does not exist.
    place: Option<SocketLocation>,
}

impl Disks {
    pub(crate) fn new(common: SharedContext, daemon: Config, activation_sockets: Arc<ActivationSockets>) -> Self {
        let (held, changes, ending) = (Mutex::default(), RwLock::default(), watch::Sender::new(false));
        let api_places = daemon.api_sockets().filter_map(SocketLocation::of).collect();
        Self { common, daemon, api_places, activation_sockets, held, changes, ending }
    }

    fn held(&self) -> MutexGuard<'_, DiskTable> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All services, in the order in which they were added.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.held().services.clone()
    }

    /// The subsystems of all services.
    pub(crate) fn subsystems(&self) -> Vec<Arc<Subsystem>> {
        self.held().services.iter().map(|service| Arc::clone(&service.subsystem)).collect()
    }

    /// The disk of this name, and its subsystem.
    pub(crate) fn find(&self, name: &str) -> Option<(Arc<Subsystem>, DiskId)> {
        self.subsystems().into_iter().find_map(|subsystem| {
            let disk = subsystem.disks.iter().find(|disk| disk.name() == name)?.id;
            Some((subsystem, disk))
        })
    }

    /// Whether the subsystem is being removed or is gone.
    pub(crate) fn is_leaving(&self, subsystem: &Subsystem) -> bool {
        let held = self.held();
        let there = held.services.iter().any(|service| std::ptr::eq(&raw const *service.subsystem, subsystem));
        !there || held.leaving.contains(&subsystem.config.name)
    }

    /// Starts services at the start of the daemon. Each of their disks is opened when its namespace is known.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn begin(self: &Arc<Self>, all: Vec<StartingService>) {
        for starting in &all {
            starting.reserve_namespaces(&self.common);
        }
        for starting in all {
            self.keep(starting.start(&self.common));
        }
    }

    /// Adds a service that has started, and drives its disks.
    pub(crate) fn keep(self: &Arc<Self>, service: Arc<Service>) {
        service.drive_disks(self);
        self.held().services.push(service);
    }

    /// Waits until all disks are as `wait_for` says. Fails if the first attempts to connect do not bring that about.
    /// The future may be dropped.
    pub(crate) async fn first_attempts(&self, wait_for: WaitFor) -> Result<(), StartError> {
        for service in self.services() {
            let mut ends = service.ends.subscribe();
            let tried = tokio::select! {
                tried = service.first_attempts(wait_for) => tried,
                // The operator removes the disk, which is no reason to end the daemon.
                _ = ends.wait_for(|ends| *ends) => continue,
            };
            if !self.is_leaving(&service.subsystem) {
                tried?;
            }
        }
        Ok(())
    }

    /// Adds a disk and the disks that share its paths. Returns once they are served. Names, sockets and everything
    /// else that a configuration is checked for must be unique.
    pub(crate) async fn add(self: &Arc<Self>, config: DiskConfig) -> Result<(), ControlError> {
        let alone = Config { disks: vec![config.clone()], ..self.daemon.clone() };
        alone.validate().map_err(Box::new)?;
        self.check_open_files(open_files::of_disks(&config, config.paths.len(), self.common.io_threads))
            .map_err(|error| ControlError::OpenFiles { disk: config.name.to_string(), reason: error.to_string() })?;
        let reservation = self.reserve(&config)?;
        self.check_sockets(&reservation.wanted).await?;
        let disks = Arc::clone(self);
        let adding = tokio::spawn(on_behalf_of(caller(), async move {
            let result = disks.start(config).await;
            let (kind, message) = match &result {
                Ok(()) => (EventKind::DiskAdded, "disk added".to_owned()),
                Err(error) => (EventKind::DiskNotAdded, format!("disk not added: {error}")),
            };
            for Reserved { name, .. } in &reservation.wanted {
                disks.common.events.record(name.as_str(), None, kind, message.clone());
            }
            drop(reservation);
            result
        }));
        adding.await.unwrap_or(Err(ControlError::DaemonEnding))
    }

    /// Checks that the limit allows this number of open files more. Disks that are being added do not count yet.
    pub(crate) fn check_open_files(&self, more: u64) -> Result<(), OpenFilesError> {
        let of_disks = |subsystem: Arc<Subsystem>| {
            let paths = subsystem.state().paths().count();
            open_files::of_disks(&subsystem.config, paths, self.common.io_threads)
        };
        let listeners = open_files::of_listeners(&self.daemon);
        let threads = open_files::of_io_threads(self.common.threads.all().len() as u16);
        let parts = self.subsystems().into_iter().map(of_disks).chain([listeners, threads]);
        open_files::check(open_files::needed(parts) + more)
    }

    /// Reserves the names and sockets of the disk and of the disks that share its paths.
    fn reserve(self: &Arc<Self>, config: &DiskConfig) -> Result<Reservation, ControlError> {
        let wanted: Vec<_> = DiskSettings::all(config).into_iter().map(Reserved::from).collect();
        if let Some(Reserved { name, socket, .. }) = wanted.iter().find(|wanted| !wanted.socket.as_path().is_absolute())
        {
            return Err(ControlError::RelativeSocket { disk: name.to_string(), socket: socket.to_string() });
        }
        let mut held = self.held();
        let all = held.all();
        for Reserved { name, socket, .. } in &wanted {
            if all.iter().any(|other| other.name == *name) {
                let refused =
                    if held.leaving.contains(name) { ControlError::NameInRemoval } else { ControlError::NameTaken };
                return Err(refused(name.to_string()));
            }
            if let Some(other) = all.iter().find(|other| other.socket == *socket) {
                return Err(held.socket_taken(name, socket, &other.name));
            }
        }
        if all.len() + wanted.len() > MAX_DISKS {
            return Err(ControlError::TooManyDisks(all.len()));
        }
        held.reserved.extend(wanted.iter().cloned());
        Ok(Reservation { disks: Arc::clone(self), wanted })
    }

    /// Checks that the sockets are not in use under another spelling, by a disk or the API. The second of two
    /// concurrent additions fails.
    async fn check_sockets(&self, wanted: &[Reserved]) -> Result<(), ControlError> {
        let sockets: Vec<_> = wanted.iter().map(|wanted| wanted.socket.clone()).collect();
        let places = spawn_blocking(move || sockets.iter().map(SocketLocation::of).collect::<Vec<_>>());
        let places = places.await.map_err(panicked)?;
        if let Some(position) =
            places.iter().position(|place| self.api_places.iter().any(|api| place.as_ref() == Some(api)))
        {
            // The first disk owns the paths.
            let disk = DiskPlace { disk: 0, sharer: position.checked_sub(1) };
            return Err(Box::new(ConflictError::ApiSocket { disk, path: wanted[position].socket.clone() }).into());
        }
        let mut held = self.held();
        for (Reserved { name, socket, .. }, place) in wanted.iter().zip(places) {
            if place.is_some()
                && let Some(other) = held.all().into_iter().find(|other| other.name != *name && other.place == place)
            {
                return Err(held.socket_taken(name, socket, &other.name));
            }
            held.reserved.iter_mut().filter(|reserved| reserved.name == *name).for_each(|reserved| {
                reserved.place.clone_from(&place);
            });
        }
        Ok(())
    }

    async fn start(self: &Arc<Self>, config: DiskConfig) -> Result<(), ControlError> {
        let _change = self.changes.read().await;
        let mut ending = self.ending.subscribe();
        if *ending.borrow() {
            return Err(ControlError::DaemonEnding);
        }
        let not_started = |error: StartError| ControlError::DiskNotStarted(error.to_string());
        let activation_sockets = Arc::clone(&self.activation_sockets);
        let starting = spawn_blocking(move || {
            let sockets = DiskSockets::bind(&config, &activation_sockets)?;
            StartingService::open(config, sockets)
        });
        let starting = starting.await.map_err(panicked)?;
        let starting = starting.map_err(not_started)?;
        starting.reserve_namespaces(&self.common);
        let service = starting.start(&self.common);
        let tried = async {
            // The answer shows the state of every path.
            service.all_tried().await;
            service.first_attempts(WaitFor::Any).await
        };
        let tried = tokio::select! {
            tried = tried => tried.map_err(not_started),
            _ = ending.wait_for(|ending| *ending) => Err(ControlError::DaemonEnding),
        };
        let served = match tried {
            Ok(()) => service.open_known(self).await.map_err(not_started),
            Err(error) => Err(error),
        };
        match served {
            Ok(()) => self.keep(service),
            Err(_) => drop(self.end(service).await),
        }
        served
    }

    /// The fence of a removed disk that a disk on this namespace has to inherit.
    pub(crate) fn to_inherit(&self, disk: &Disk, namespace: &NamespaceName) -> Option<PendingFence> {
        self.held().pending_fences.to_inherit(Instant::now(), namespace, &disk.driver().hold).cloned()
    }

    /// Removes a disk and the disks that share its paths. Returns them once they are gone. Fails if a front-end is
    /// connected to any of them, unless `force`.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str, force: bool) -> Result<Vec<RemovedDisk>, ControlError> {
        let (service, names) = self.begin_removal(name, force)?;
        let disks = Arc::clone(self);
        let removing = tokio::spawn(on_behalf_of(caller(), async move {
            let _change = disks.changes.read().await;
            // The daemon's end removes it together with all others.
            if *disks.ending.borrow() {
                return Err(ControlError::DaemonEnding);
            }
            disks.forget_files(&service).await;
            let left = disks.end(Arc::clone(&service)).await;
            {
                let mut held = disks.held();
                held.services.retain(|other| !Arc::ptr_eq(other, &service));
                held.leaving.retain(|leaving| !names.contains(leaving));
            }
            let removed = names.into_iter().zip(left.into_iter().chain(std::iter::repeat(None)));
            let removed = removed.map(|(name, left)| disks.removed(&name, left)).collect();
            Ok(removed)
        }));
        removing.await.unwrap_or(Err(ControlError::DaemonEnding))
    }

    /// Removes the files that describe disks which are removed.
    async fn forget_files(&self, service: &Service) {
        let records = service.subsystem.records.clone();
        let count = service.subsystem.disks.len();
        // A panic was reported already.
        let forget = move || {
            for disk in 0..count {
                records.forget_files(disk);
                records.history(disk).forget();
            }
        };
        let _ = spawn_blocking(forget).await;
    }

    /// Reports a removed disk, and how long its writes may still be executed.
    fn removed(&self, name: &DiskName, in_doubt: Option<Duration>) -> RemovedDisk {
        let message = in_doubt.map_or_else(
            || "disk removed".to_owned(),
            |left| {
                let left = left.as_secs_f64();
                format!(
                    "disk removed; writes to its namespace may still be executed for {left:.1} s; disks added on its \
                     socket or namespace wait until then"
                )
            },
        );
        self.common.events.record(name.as_str(), None, EventKind::DiskRemoved, message);
        RemovedDisk { disk: name.to_string(), in_doubt_ms: in_doubt.map(Duration::as_millis) }
    }

    /// Begins the removal of a disk: no front-end is accepted from now on. Returns the service to be ended and its
    /// disks.
    fn begin_removal(&self, name: &str, force: bool) -> Result<(Arc<Service>, Vec<DiskName>), ControlError> {
        let mut held = self.held();
        let disk = || name.to_owned();
        let is_there = |service: &&Arc<Service>| service.subsystem.disks.iter().any(|disk| disk.name() == name);
        let service = held.services.iter().find(is_there).cloned().ok_or_else(|| {
            let names = held.services.iter().flat_map(|service| &service.subsystem.disks).map(Disk::name);
            ControlError::NoDiskToRemove { disk: disk(), similar: similar_name(name, names) }
        })?;
        let subsystem = &service.subsystem;
        let names: Vec<_> = subsystem.disks.iter().map(|disk| disk.settings.name.clone()).collect();
        if subsystem.name() != name {
            let all = names.iter().map(ToString::to_string).collect();
            return Err(ControlError::RemovedTogether { disk: disk(), owner: subsystem.name().to_owned(), all });
        }
        if held.leaving.contains(&names[0]) {
            return Err(ControlError::InRemoval(disk()));
        }
        if let Err(connected) = service.stop_accepting(force) {
            return Err(ControlError::DiskConnected(names[connected].to_string()));
        }
        held.leaving.extend(names.iter().cloned());
        for disk in &subsystem.disks {
            disk.event(EventKind::DiskRemove, "disk removal requested");
        }
        Ok((service, names))
    }

    /// Ends a service while others continue. Returns for each disk how long its writes may still be executed, if they
    /// may.
    async fn end(&self, service: Arc<Service>) -> Vec<Option<Duration>> {
        let mut ending = self.ending.subscribe();
        let hanging_up = Arc::clone(&service);
        let mut hung_up = spawn_blocking(move || Service::hang_up(&[hanging_up]));
        let in_time = tokio::select! {
            hung_up = timeout(DRAIN_MAX.into(), &mut hung_up) => hung_up.is_ok(),
            _ = ending.wait_for(|ending| *ending) => false,
        };
        if !in_time {
            // Requests in flight are given up, and the fence covers them.
            service.end_io();
            let _ = hung_up.await;
        }
        let closing = Arc::clone(&service);
        // If it panicked, there is nothing more to do.
        let _ = spawn_blocking(move || closing.close()).await;
        let left = service.closed().await;
        if let Some(longest_ms) = left.iter().flatten().map(|left| left.association.fence_ms).max() {
            tokio::spawn(expire(service.subsystem.records.clone(), Duration::from_millis(longest_ms)));
        }
        let subsystem = &service.subsystem;
        let left = subsystem.disks.iter().zip(left).map(|(disk, left)| {
            // Before a client learns that the disk is gone and may add another.
            let (pending_fences, hold) = (&mut self.held().pending_fences, &disk.driver().hold);
            pending_fences.disk_removed(Instant::now(), disk.name(), disk.settings.read_only, hold, left?)
        });
        let left = left.collect();
        subsystem.release_namespaces();
        left
    }

    /// The listening sockets of all disks, while no disk is added or removed. `None` if one is, or if the daemon ends.
    pub(crate) fn sockets(&self) -> Option<(RwLockWriteGuard<'_, ()>, Vec<DaemonSocket>)> {
        let unchanged = self.changes.try_write().ok().filter(|_| !*self.ending.borrow())?;
        let sockets = self.services().iter().flat_map(|service| service.sockets()).collect();
        Some((unchanged, sockets))
    }

    /// Whether the daemon ends.
    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Shortens changes under way, because the daemon is about to end.
    pub(crate) fn begin_end(&self) {
        self.ending.send_replace(true);
    }

    /// Ends all services, after changes under way.
    pub(crate) async fn end_all(&self) {
        self.begin_end();
        let _for_good = self.changes.write().await;
        let services = self.services();
        let ending = services.clone();
        // Requests first, paths last. The end of an I/O thread is bounded. Paths are kept alive meanwhile, as
        // controllers may take seconds to write back their caches.
        let ended = spawn_blocking(move || {
            for service in &ending {
                service.end_io();
            }
            Service::hang_up(&ending);
            for service in &ending {
                service.close();
            }
        });
        // If it panicked, there is nothing more to do.
        let _ = ended.await;
        for service in services {
            service.closed().await;
        }
    }
}

/// Updates the records when the fences left at the end have passed, so that no daemon waits for them. If the daemon
/// ends before, the next daemon waits for the rest.
async fn expire(records: FenceRecords, longest: Duration) {
    // Fences are recorded in whole milliseconds, rounded up.
    sleep((longest + Duration::from_millis(1)).into()).await;
    // A panic was reported already.
    let _ = spawn_blocking(move || records.expire()).await;
}

fn panicked(_: JoinError) -> ControlError {
    ControlError::DaemonEnding
}

impl From<DiskSettings> for Reserved {
    fn from(disk: DiskSettings) -> Self {
        Self { name: disk.name, socket: disk.socket_path, place: None }
    }
}

/// Names and sockets of disks being added. They are released when this is dropped.
struct Reservation {
    disks: Arc<Disks>,
    wanted: Vec<Reserved>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let is_ours = |reserved: &Reserved| self.wanted.iter().any(|wanted| wanted.name == reserved.name);
        self.disks.held().reserved.retain(|reserved| !is_ours(reserved));
    }
}
