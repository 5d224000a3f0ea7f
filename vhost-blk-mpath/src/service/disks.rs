//! The disks there are, which come and go while the daemon runs.
//!
//! What is begun for a client goes on if the client leaves: a disk is there or not there in the end, never half of it. The end of the
//! daemon waits for what is under way, which then hurries.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mpath_api::Config;
use mpath_api::config::{ConflictError, DiskConfig, DiskName, DiskPlace, MAX_DISKS, SocketPath};
use mpath_api::server::{AddDiskError, RemoveDiskError};
use mpath_api::types::{EventKind, RemovedDisk};
use tokio::sync::{RwLock, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::disk::settings::DiskSettings;
use crate::fence_record::FenceRecords;
use crate::service::namespace_writers::{self, LeftBehind};
use crate::service::start_error::StartError;
use crate::service::{Connecting, Service, Starting};
use crate::sockets::activation::HandedOver;
use crate::sockets::place::Place;
use crate::subsystem::Subsystem;
use crate::subsystem::common::Common;

/// How long a front-end that is hung up on has until its requests are given up: what any front-end has that leaves, and a moment for the
/// I/O threads to say so.
const DRAIN_MAX: Duration = Duration::from_secs(11);

/// The disks of a daemon.
pub(crate) struct Disks {
    pub(crate) common: Common,
    /// The API's socket, which no disk can have.
    api: SocketPath,
    api_place: Option<Place>,
    handed_over: Arc<HandedOver>,
    held: Mutex<Held>,
    /// Read while a disk is added or removed, and written at the end.
    changes: RwLock<()>,
    /// Becomes true at the end.
    ending: watch::Sender<bool>,
}

#[derive(Default)]
struct Held {
    /// In the order in which they came.
    services: Vec<Arc<Service>>,
    /// What is to come and has taken names and sockets already.
    reserved: Vec<Reserved>,
    /// Those that are on their way out.
    leaving: Vec<DiskName>,
    /// What those that went have left on their namespaces.
    left_behind: LeftBehind,
}

impl Held {
    /// Whose names and sockets are taken.
    fn all(&self) -> Vec<Reserved> {
        let there = self.services.iter().flat_map(|service| service.subsystem.disks.iter().zip(&service.places));
        let there =
            there.map(|(disk, place)| Reserved { place: place.clone(), ..Reserved::from(disk.settings.clone()) });
        there.chain(self.reserved.iter().cloned()).collect()
    }

    fn socket_taken(&self, disk: &DiskName, socket: &SocketPath, of: &DiskName) -> AddDiskError {
        let leaving = self.leaving.contains(of);
        let (disk, socket, of) = (disk.to_string(), socket.to_string(), of.to_string());
        if leaving {
            AddDiskError::SocketInRemoval { disk, socket, owner: of }
        } else {
            AddDiskError::SocketTaken { disk, socket, owner: of }
        }
    }
}

#[derive(Clone)]
struct Reserved {
    name: DiskName,
    socket: SocketPath,
    /// None if it is not known yet, or has none.
    place: Option<Place>,
}

impl Disks {
    pub(crate) fn new(common: Common, api: SocketPath, handed_over: Arc<HandedOver>) -> Self {
        let (held, changes, ending) = (Mutex::default(), RwLock::default(), watch::Sender::new(false));
        let api_place = Place::of(&api);
        Self { common, api, api_place, handed_over, held, changes, ending }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that is served, in the order in which it came.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        self.held().services.clone()
    }

    /// The same by what API and paths have to do with.
    pub(crate) fn subsystems(&self) -> Vec<Arc<Subsystem>> {
        self.held().services.iter().map(|service| Arc::clone(&service.subsystem)).collect()
    }

    /// Whether it is on its way out, or out.
    pub(crate) fn is_leaving(&self, subsystem: &Subsystem) -> bool {
        let held = self.held();
        let there = held.services.iter().any(|service| std::ptr::eq(&raw const *service.subsystem, subsystem));
        !there || held.leaving.contains(&subsystem.config.name)
    }

    /// One more that is to be served, at the start.
    pub(crate) fn push(&self, service: Arc<Service>) {
        self.held().services.push(service);
    }

    /// Adds a disk, and those that share its paths; done when they are served. Their names and sockets, and all else that a configuration is
    /// checked for, are those of no others.
    pub(crate) async fn add(self: &Arc<Self>, config: DiskConfig) -> Result<(), AddDiskError> {
        let mut alone = Config::new(vec![config.clone()]);
        alone.api = self.api.clone();
        alone.validate().map_err(Box::new)?;
        let reservation = self.reserve(&config)?;
        self.check_sockets(&reservation.wanted).await?;
        let disks = Arc::clone(self);
        let adding = tokio::spawn(async move {
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
        });
        adding.await.unwrap_or(Err(AddDiskError::Ending))
    }

    /// Takes the names and sockets of a disk, and of those that share its paths, if they are free.
    fn reserve(self: &Arc<Self>, config: &DiskConfig) -> Result<Reservation, AddDiskError> {
        let wanted: Vec<_> = DiskSettings::all(config).into_iter().map(Reserved::from).collect();
        if let Some(Reserved { name, socket, .. }) = wanted.iter().find(|wanted| !wanted.socket.as_path().is_absolute())
        {
            return Err(AddDiskError::RelativeSocket { disk: name.to_string(), socket: socket.to_string() });
        }
        let mut held = self.held();
        let all = held.all();
        for Reserved { name, socket, .. } in &wanted {
            if all.iter().any(|other| other.name == *name) {
                let disk = name.to_string();
                let leaving = held.leaving.contains(name);
                return Err(if leaving {
                    AddDiskError::NameInRemoval { disk }
                } else {
                    AddDiskError::NameTaken { disk }
                });
            }
            if let Some(other) = all.iter().find(|other| other.socket == *socket) {
                return Err(held.socket_taken(name, socket, &other.name));
            }
        }
        if all.len() + wanted.len() > MAX_DISKS {
            return Err(AddDiskError::TooMany { count: all.len(), max: MAX_DISKS });
        }
        held.reserved.extend(wanted.iter().cloned());
        Ok(Reservation { disks: Arc::clone(self), wanted })
    }

    /// Checks that sockets that are taken are nobody else's by another spelling, nor the API's. Of two that come at once, the second one is refused.
    async fn check_sockets(&self, wanted: &[Reserved]) -> Result<(), AddDiskError> {
        let sockets: Vec<_> = wanted.iter().map(|wanted| wanted.socket.clone()).collect();
        let places = spawn_blocking(move || sockets.iter().map(Place::of).collect::<Vec<_>>());
        let places = places.await.map_err(panicked)?;
        if let Some(position) = places.iter().position(|place| place.is_some() && *place == self.api_place) {
            // The first is the disk that has the paths.
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

    async fn start(self: &Arc<Self>, config: DiskConfig) -> Result<(), AddDiskError> {
        let _change = self.changes.read().await;
        let mut ending = self.ending.subscribe();
        if *ending.borrow() {
            return Err(AddDiskError::Ending);
        }
        let disk = config.name.to_string();
        let not_started =
            |error: &StartError| AddDiskError::NotStarted { disk: disk.clone(), reason: error.to_string() };
        let handed_over = Arc::clone(&self.handed_over);
        let starting = spawn_blocking(move || Starting::bind(config, &handed_over));
        let starting = starting.await.map_err(panicked)?;
        let mut starting = starting.map_err(|error| not_started(&error))?;
        starting.discover(&self.common);
        tokio::select! {
            discovered = starting.discovered() => discovered.map_err(|error| not_started(&error))?,
            _ = ending.wait_for(|ending| *ending) => return Err(AddDiskError::Ending),
        }
        let mut connecting = starting.connect(&self.common);
        let service = Arc::clone(&connecting.service);
        let tried = tokio::select! {
            tried = connecting.tried() => tried.map_err(|error| not_started(&error)),
            _ = ending.wait_for(|ending| *ending) => Err(AddDiskError::Ending),
        };
        let served = match tried {
            Ok(()) => self.serve(connecting).await.map_err(|error| not_started(&error)),
            Err(error) => Err(error),
        };
        if served.is_err() {
            self.end(service).await;
        }
        served
    }

    /// Serves the front-ends of one more, unless it writes to what another one writes to: of two that come at once, the second one. What a
    /// removed one has left on its namespaces is recorded before.
    async fn serve(&self, mut connecting: Connecting) -> Result<(), StartError> {
        let service = Arc::clone(&connecting.service);
        loop {
            let left = {
                let mut held = self.held();
                let others = held.services.iter().map(|service| &*service.subsystem);
                namespace_writers::check(&service.subsystem, others)?;
                match held.left_behind.on(&service.subsystem, Instant::now()) {
                    Some(left) if !connecting.has_inherited(left) => left.clone(),
                    _ => {
                        connecting.serve()?;
                        held.services.push(service);
                        return Ok(());
                    }
                }
            };
            // A disk can take a while to say that it has something, and nobody is to wait for that.
            let inheriting = spawn_blocking(move || connecting.inherit(&left).map(|()| connecting));
            connecting = inheriting.await.map_err(io::Error::other)??;
        }
    }

    /// Checks of all, at the start, that no two of them write to one namespace.
    pub(crate) fn check_writers(&self) -> Result<(), StartError> {
        let subsystems = self.subsystems();
        let before = |index| subsystems[..index].iter().map(|other| &**other);
        subsystems.iter().enumerate().try_for_each(|(index, new)| namespace_writers::check(new, before(index)))
    }

    /// Removes a disk and those that share its paths; done when they are gone: which. With a front-end to any of them they stay unless `force`.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str, force: bool) -> Result<Vec<RemovedDisk>, RemoveDiskError> {
        let (service, names) = self.let_go(name, force)?;
        let disks = Arc::clone(self);
        let removing = tokio::spawn(async move {
            let _change = disks.changes.read().await;
            // At the daemon's end it goes with all others.
            if *disks.ending.borrow() {
                return Err(RemoveDiskError::Ending);
            }
            let left = disks.end(Arc::clone(&service)).await;
            {
                let mut held = disks.held();
                held.services.retain(|other| !Arc::ptr_eq(other, &service));
                held.leaving.retain(|leaving| !names.contains(leaving));
            }
            let removed = names.into_iter().zip(left.into_iter().chain(std::iter::repeat(None)));
            let removed = removed.map(|(name, left)| disks.removed(&name, left)).collect();
            Ok(removed)
        });
        removing.await.unwrap_or(Err(RemoveDiskError::Ending))
    }

    /// Tells that a disk is gone, and for how long its writes may be executed yet, if there are any.
    fn removed(&self, name: &DiskName, in_doubt: Option<Duration>) -> RemovedDisk {
        let message = in_doubt.map_or_else(
            || "disk removed".to_owned(),
            |left| {
                let left = left.as_secs_f64();
                format!("disk removed; writes to its namespace may still be executed for {left:.1} s, and what is added on its socket or namespace waits")
            },
        );
        self.common.events.record(name.as_str(), None, EventKind::DiskRemoved, message);
        RemovedDisk { disk: name.to_string(), in_doubt_ms: in_doubt.map(|left| left.as_millis() as u64) }
    }

    /// What is to be ended for a disk to be removed. From now on no front-end gets in.
    fn let_go(&self, name: &str, force: bool) -> Result<(Arc<Service>, Vec<DiskName>), RemoveDiskError> {
        let mut held = self.held();
        let disk = || name.to_owned();
        let is_there = |service: &&Arc<Service>| service.subsystem.disks.iter().any(|disk| disk.name() == name);
        let service =
            held.services.iter().find(is_there).ok_or_else(|| RemoveDiskError::UnknownDisk { disk: disk() })?;
        let service = Arc::clone(service);
        let subsystem = &service.subsystem;
        let names: Vec<_> = subsystem.disks.iter().map(|disk| disk.settings.name.clone()).collect();
        if subsystem.name() != name {
            let all = names.iter().map(ToString::to_string).collect();
            return Err(RemoveDiskError::SharesPaths { disk: disk(), owner: subsystem.name().to_owned(), all });
        }
        if held.leaving.contains(&names[0]) {
            return Err(RemoveDiskError::InRemoval { disk: disk() });
        }
        if let Err(connected) = service.turn_away(force) {
            return Err(RemoveDiskError::Connected { disk: names[connected].to_string() });
        }
        held.leaving.extend(names.iter().cloned());
        for disk in &subsystem.disks {
            disk.event(EventKind::DiskRemove, "disk to be removed");
        }
        Ok((service, names))
    }

    /// Ends one that is served, or was to be, while the others go on; by disk, for how long its writes may be executed yet, if there are any.
    async fn end(&self, service: Arc<Service>) -> Vec<Option<Duration>> {
        let mut ending = self.ending.subscribe();
        let hanging_up = Arc::clone(&service);
        let mut hung_up = spawn_blocking(move || hanging_up.hang_up());
        let in_time = tokio::select! {
            hung_up = timeout(DRAIN_MAX, &mut hung_up) => hung_up.is_ok(),
            _ = ending.wait_for(|ending| *ending) => false,
        };
        if !in_time {
            // What is in flight is given up; its fate is the matter of the fence.
            service.end_io();
            let _ = hung_up.await;
        }
        let closing = Arc::clone(&service);
        // One that panicked has done what it could.
        let _ = spawn_blocking(move || closing.close()).await;
        let left = service.closed().await;
        if let Some(longest_ms) = left.iter().flatten().map(|left| left.association.fence_ms).max() {
            tokio::spawn(expire(service.subsystem.records.clone(), Duration::from_millis(longest_ms)));
        }
        let left = service.subsystem.disks.iter().zip(left).map(|(disk, left)| {
            let left = if disk.settings.read_only { left?.without_its_own()? } else { left? };
            // Before anybody hears that the disk is gone, and may add another one.
            self.held().left_behind.add(&service.subsystem, disk, &left, Instant::now());
            Some(Duration::from_millis(left.association.fence_ms))
        });
        left.collect()
    }

    /// Hurries what is under way: the end is near.
    pub(crate) fn begin_end(&self) {
        self.ending.send_replace(true);
    }

    /// Ends all, once what is under way has come to its end.
    pub(crate) async fn end_all(&self) {
        self.begin_end();
        let _for_good = self.changes.write().await;
        let services = self.services();
        let ending = services.clone();
        // In the order in which requests come down. The end of an I/O thread is bounded, and paths are kept alive meanwhile: their
        // controllers may take seconds to write back.
        let ended = spawn_blocking(move || {
            for end in [Service::end_io, Service::hang_up, Service::close] {
                for service in &ending {
                    end(service);
                }
            }
        });
        // One that panicked has done what it could.
        let _ = ended.await;
        for service in services {
            service.closed().await;
        }
    }
}

/// Has nobody wait for fences any more that were left, once they have passed. Those that have not when the daemon ends are the next one's.
async fn expire(records: FenceRecords, longest: Duration) {
    // What is left is written down in whole milliseconds.
    sleep(longest + Duration::from_millis(1)).await;
    // One that panicked has said why.
    let _ = spawn_blocking(move || records.expire()).await;
}

fn panicked(_: JoinError) -> AddDiskError {
    AddDiskError::Ending
}

impl From<DiskSettings> for Reserved {
    fn from(disk: DiskSettings) -> Self {
        Self { name: disk.name, socket: disk.socket_path, place: None }
    }
}

/// Names and sockets of disks to come; given back when this goes.
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
