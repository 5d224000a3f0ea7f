//! The status of a subsystem's paths, and the settings that the API changes.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{AuthenticatedSides, Controller, EventPath, LastChange, Origin, PathAuthentication, PathState};
use mpath_config::{DiskConfig, LiveSettings, PathAddress};
use mpath_core::{DiskId, Epoch, MAX_PATHS, PathId, UsablePaths};
use mpath_lifecycle::{DesiredState, NamespaceStatus, Order, PathNamespaces, PathTrial};
use nvme_tcp::Authenticated;
use nvme_tls::psk::Suite;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::subsystem::path_injection::PathInjection;
use crate::transport::connections::Connections;

/// Why a path that is to be removed is in use.
pub(crate) const REMOVAL_HELD: &str = "the removal is held, and the path is used, because no other path is usable; the removal \
                                       goes on once there is one, and `mpathctl path enable` takes it back";

/// What the API shows and changes.
pub(crate) struct State {
    /// The settings of each disk that can be changed while I/O runs, by id.
    live: Vec<LiveSettings>,
    /// The last change of each setting that was changed, by disk and name.
    changed: Vec<BTreeMap<String, LastChange>>,
    /// Whether a path of the subsystem was ever live. If not, the requests of a front-end wait even if all paths are
    /// refused: an error would be worse for its guest.
    pub(crate) was_live: bool,
    /// The most paths that there have been at a time, less those that an operator has removed since.
    most_paths: u32,
    /// Paths that a reload or discovery has dropped and that have not come back: the latest.
    dropped: Vec<DroppedPath>,
    /// Addresses of paths that the operator has removed. Discovery takes them from here.
    pub(crate) removed_by_operator: HashSet<PathAddress>,
    /// By path.
    slots: [Slot; MAX_PATHS],
}

/// The most dropped paths that are remembered.
const DROPPED_MAX: usize = 4;

/// A path that no operator has removed.
#[derive(Debug, Clone)]
pub(crate) struct DroppedPath {
    pub(crate) address: PathAddress,
    pub(crate) at: SystemTime,
    /// Discovery, or else a reload.
    pub(crate) by_discovery: bool,
}

/// The slot of a path. When the path is gone, another path may take it.
struct Slot {
    path: Option<PathStatus>,
    /// The last association number used in this slot. Numbers are never used again, so no late report fits a newer
    /// path.
    epoch: Epoch,
}

/// The status of one path.
#[derive(Debug)]
pub(crate) struct PathStatus {
    pub(crate) id: PathId,
    pub(crate) address: PathAddress,
    pub(crate) origin: Origin,
    /// Never [`PathState::Draining`] or [`PathState::Removing`]: see [`PathStatus::api_state`].
    pub(crate) state: PathState,
    /// When the shown state began.
    pub(crate) since: SystemTime,
    pub(crate) last_error: Option<(String, SystemTime)>,
    /// The path has been in its shown state since the last error.
    failed_in_state: bool,
    /// It is being removed, and gets no association any more.
    pub(crate) is_leaving: bool,
    pub(crate) losses: PathLosses,
    /// Whether the path was tried and is live. If this says that it is live, the I/O threads know of it.
    pub(crate) trial: PathTrial,
    /// The last attempt has failed because this host lacks something.
    pub(crate) host_lacks: bool,
    /// The namespaces on the path. None without an association.
    pub(crate) namespaces: PathNamespaces,
    pub(crate) cntlid: Option<u16>,
    pub(crate) controller: Option<Controller>,
    /// The cipher suite of a live path that uses TLS.
    pub(crate) suite: Option<Suite>,
    /// How a live path was authenticated.
    pub(crate) authentication: Option<PathAuthentication>,
    /// The connections of a live path.
    pub(crate) connections: Option<Connections>,
    pub(crate) injections: Vec<PathInjection>,
    /// The operator's orders, for the path's task.
    pub(crate) orders: watch::Sender<Order>,
    pub(crate) task: Option<JoinHandle<()>>,
}

/// How often a path was lost after it was live.
#[derive(Debug, Default)]
pub(crate) struct PathLosses {
    pub(crate) total: u64,
    /// How often it became live again.
    pub(crate) reconnects: u64,
    /// The minutes of the last hour with losses: when each began, and its losses.
    minutes: VecDeque<(Instant, u64)>,
}

impl PathLosses {
    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    fn lost(&mut self, now: Instant) {
        self.total += 1;
        self.minutes.retain(|(began, _)| now - *began < Self::HOUR);
        match self.minutes.back_mut() {
            Some((began, losses)) if now - *began < Self::MINUTE => *losses += 1,
            _ => self.minutes.push_back((now, 1)),
        }
    }

    /// The losses of the last hour, in steps of a minute.
    pub(crate) fn in_last_hour(&self, now: Instant) -> u64 {
        self.minutes.iter().filter(|(began, _)| now - *began < Self::HOUR).map(|(_, losses)| losses).sum()
    }
}

/// An authentication, as the API shows it.
pub(crate) fn for_api(Authenticated { hash, group, bidirectional }: Authenticated) -> PathAuthentication {
    let sides = if bidirectional { AuthenticatedSides::Bidirectional } else { AuthenticatedSides::Host };
    PathAuthentication { sides, hash: hash.to_string(), dh_group: group.to_string() }
}

impl PathStatus {
    pub(crate) fn new(id: PathId, address: PathAddress, origin: Origin) -> Self {
        Self {
            id,
            address,
            origin,
            state: PathState::Connecting,
            since: SystemTime::now(),
            last_error: None,
            failed_in_state: false,
            is_leaving: false,
            losses: PathLosses::default(),
            trial: PathTrial::default(),
            host_lacks: false,
            namespaces: PathNamespaces::default(),
            cntlid: None,
            controller: None,
            suite: None,
            authentication: None,
            connections: None,
            injections: Vec::new(),
            orders: watch::Sender::new(Order::default()),
            task: None,
        }
    }

    /// The path as events name it.
    pub(crate) fn named(&self) -> EventPath {
        EventPath { index: self.id.0, address: self.address.clone() }
    }

    pub(crate) fn wanted(&self) -> DesiredState {
        self.orders.borrow().wanted
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.wanted().is_draining()
    }

    /// Whether it is to be removed, also if that is held.
    pub(crate) fn is_removing(&self) -> bool {
        self.wanted().is_removal()
    }

    /// The state as the API shows it. A path whose removal is held is in use.
    pub(crate) fn api_state(&self) -> PathState {
        if self.is_removing() && self.is_draining() {
            PathState::Removing
        } else if self.state == PathState::Live && self.is_draining() {
            PathState::Draining
        } else {
            self.state
        }
    }

    /// The namespace of that disk, if the path has an association.
    pub(crate) fn namespace(&self, disk: DiskId) -> Option<&NamespaceStatus> {
        self.namespaces.of(disk)
    }

    /// Whether new I/O of that disk may go there.
    pub(crate) fn is_usable(&self, disk: DiskId) -> bool {
        !self.is_draining() && self.could_serve(disk)
    }

    /// Whether new I/O of that disk could go there if the path were not drained.
    pub(crate) fn could_serve(&self, disk: DiskId) -> bool {
        let selectable = |namespace: &NamespaceStatus| namespace.ana.is_selectable();
        self.state == PathState::Live && self.namespace(disk).is_some_and(selectable)
    }

    /// Whether requests of the disk should be able to go there.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_draining()
    }

    /// Whether the first attempt to connect it is under way.
    pub(crate) fn is_untried(&self) -> bool {
        self.state == PathState::Connecting && self.error_in_state().is_none()
    }

    /// Whether it has just become live. The I/O threads use it in a moment.
    pub(crate) fn is_just_live(&self, now: SystemTime) -> bool {
        const MOMENT: Duration = Duration::from_millis(250);
        self.state == PathState::Live && now.duration_since(self.since).is_ok_and(|time| Duration::from(time) < MOMENT)
    }

    /// The last error, if the path has been in its state since then.
    pub(crate) fn error_in_state(&self) -> Option<&str> {
        self.last_error.as_ref().filter(|_| self.failed_in_state).map(|(error, _)| &**error)
    }

    /// Records an error of the path in its present state.
    pub(crate) fn set_error(&mut self, error: String) {
        (self.last_error, self.failed_in_state) = (Some((error, SystemTime::now())), true);
    }

    /// Why requests of this disk cannot go there now. `None` if they can.
    pub(crate) fn unusable(&self, disk: DiskId, paths: &UsablePaths) -> Option<String> {
        let state = self.api_state();
        if state != PathState::Live {
            // A path is given up for the error of its last attempt.
            let last = self.last_error.as_ref().filter(|_| state == PathState::GaveUp).map(|(error, _)| &**error);
            let error = last.or(self.error_in_state()).filter(|_| !self.is_draining());
            return Some(error.map_or_else(|| state.to_string(), |error| format!("{state}: {error}")));
        }
        if let Some(namespace) = self.namespace(disk) {
            if let Some(error) = &namespace.unusable {
                return Some(error.clone());
            }
            if !namespace.ana.is_selectable() {
                return Some(format!("the ANA state is {}", namespace.ana));
            }
        }
        if paths.contains(self.id) {
            return None;
        }
        Some(if paths.is_suspect(self.id) {
            "suspect: commands are unanswered, and its I/O queues are silent".into()
        } else {
            "some I/O threads do not use it: it rests after an error, or has just connected; see `mpathctl explain`"
                .into()
        })
    }

    /// The keep-alive timeout of the path's controller, once that is known.
    pub(crate) fn keep_alive(&self) -> Option<Duration> {
        self.controller.as_ref().map(|controller| Duration::from_millis(controller.keep_alive_tmo_ms))
    }

    /// Whether the path is live or may become live.
    fn is_expected(&self, was_live: bool) -> bool {
        match self.state {
            // A disabled path comes back when the operator enables it.
            PathState::Connecting
            | PathState::Live
            | PathState::Lost
            | PathState::Draining
            | PathState::Disabled
            | PathState::Removing => true,
            PathState::Refused => !was_live,
            PathState::GaveUp => false,
        }
    }

    pub(crate) fn set_state(&mut self, state: PathState) {
        let before = self.state;
        self.change(|status| status.state = state);
        match (before, state) {
            (PathState::Live, PathState::Lost | PathState::Refused) => self.losses.lost(Instant::now()),
            (_, PathState::Live) if self.losses.reconnects < self.losses.total => self.losses.reconnects += 1,
            _ => {}
        }
    }

    pub(crate) fn order(&mut self, change: impl FnOnce(&mut Order)) {
        self.change(|status| status.orders.send_modify(change));
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let before = self.api_state();
        change(self);
        if self.api_state() != before {
            (self.since, self.failed_in_state) = (SystemTime::now(), false);
        }
    }

    /// Clears what was known of the controller.
    pub(crate) fn gone(&mut self) {
        (self.cntlid, self.controller, self.connections) = (None, None, None);
        (self.suite, self.authentication) = (None, None);
    }
}

impl State {
    pub(crate) fn new(config: &DiskConfig) -> Self {
        Self {
            live: config.live().collect(),
            changed: config.live().map(|_| BTreeMap::new()).collect(),
            was_live: false,
            most_paths: 0,
            dropped: Vec::new(),
            removed_by_operator: HashSet::new(),
            slots: std::array::from_fn(|_| Slot { path: None, epoch: Epoch(0) }),
        }
    }

    /// The settings of a disk that can be changed while I/O runs.
    pub(crate) fn live(&self, disk: DiskId) -> &LiveSettings {
        &self.live[usize::from(disk.0)]
    }

    /// The last change of each setting of a disk that was changed, by name.
    pub(crate) fn changed(&self, disk: DiskId) -> &BTreeMap<String, LastChange> {
        &self.changed[usize::from(disk.0)]
    }

    /// Changes these settings of a disk, and what disks over the same paths have together for all of them.
    pub(crate) fn set_live(&mut self, disk: DiskId, live: LiveSettings, change: &LastChange) {
        let before = *self.live(disk);
        for setting in before.differing(&live) {
            for (changed, id) in self.changed.iter_mut().zip(0..) {
                if setting.is_of_paths() || id == disk.0 {
                    changed.insert(setting.name().into(), change.clone());
                }
            }
        }
        for (other, id) in self.live.iter_mut().zip(0..) {
            *other =
                if id == disk.0 { live } else { LiveSettings { limits: other.limits, weight: other.weight, ..live } };
        }
    }

    /// All paths, in the order of their ids.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathStatus> {
        self.slots.iter().filter_map(|slot| slot.path.as_ref())
    }

    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathStatus> {
        self.slots.iter_mut().filter_map(|slot| slot.path.as_mut())
    }

    pub(crate) fn path(&self, path: PathId) -> Option<&PathStatus> {
        self.slots.get(usize::from(path.0))?.path.as_ref()
    }

    pub(crate) fn path_mut(&mut self, path: PathId) -> Option<&mut PathStatus> {
        self.slots.get_mut(usize::from(path.0))?.path.as_mut()
    }

    /// Adds a path in a free slot; `None` if there is none.
    pub(crate) fn insert(&mut self, address: PathAddress, origin: Origin) -> Option<&mut PathStatus> {
        self.dropped.retain(|dropped| dropped.address != address);
        let (slot, id) = self.slots.iter_mut().zip(0..).find(|(slot, _)| slot.path.is_none())?;
        Some(slot.path.insert(PathStatus::new(PathId(id), address, origin)))
    }

    /// Removes a path, with the number of its last association.
    pub(crate) fn remove(&mut self, path: PathId, epoch: Epoch) {
        self.slots[usize::from(path.0)] = Slot { path: None, epoch };
    }

    /// The last association number used in that slot.
    pub(crate) fn epoch(&self, path: PathId) -> Epoch {
        self.slots[usize::from(path.0)].epoch
    }

    /// The blocks of a disk's namespace, on each path that leads to it.
    pub(crate) fn sizes(&self, disk: DiskId) -> impl Iterator<Item = u64> {
        self.paths().filter_map(move |path| path.namespaces.blocks(disk))
    }

    /// The paths that are not being removed, and the most that there have been, less those that an operator has removed.
    pub(crate) fn redundancy(&mut self) -> (u32, u32) {
        let left = self.paths().filter(|path| !path.is_removing()).count() as u32;
        self.most_paths = self.most_paths.max(left);
        (left, self.most_paths)
    }

    /// An operator removes a path, so one path less is meant.
    pub(crate) fn one_path_less(&mut self) {
        let (_, most) = self.redundancy();
        self.most_paths = most.saturating_sub(1);
    }

    /// A path is removed that no operator has removed.
    pub(crate) fn drop_path(&mut self, dropped: DroppedPath) {
        if self.dropped.len() == DROPPED_MAX {
            self.dropped.remove(0);
        }
        self.dropped.push(dropped);
    }

    /// The paths that a reload or discovery has dropped, the latest.
    pub(crate) fn dropped(&self) -> &[DroppedPath] {
        &self.dropped
    }

    /// Whether any path is live or may become live. True without paths, because one may be added.
    pub(crate) fn paths_expected(&self) -> bool {
        let mut staying = self.paths().filter(|path| path.api_state() != PathState::Removing).peekable();
        staying.peek().is_none() || staying.any(|path| path.is_expected(self.was_live))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry;

    fn address(port: usize) -> PathAddress {
        format!("tcp://127.0.0.1:{port}").parse().unwrap()
    }

    #[test]
    fn slots_are_reused_and_association_numbers_are_not() {
        let mut state = State::new(&geometry::tests::config());
        for n in 0..MAX_PATHS {
            let path = state.insert(address(4000 + n), Origin::Operator).expect("there is room");
            assert_eq!(usize::from(path.id.0), n);
        }
        assert!(state.insert(address(1), Origin::Operator).is_none());
        state.remove(PathId(7), Epoch(2));
        assert!(state.path(PathId(7)).is_none());
        assert_eq!(state.insert(address(1), Origin::Operator).expect("there is room").id, PathId(7));
        assert_eq!((state.epoch(PathId(7)), state.epoch(PathId(8))), (Epoch(2), Epoch(0)));
        assert!(state.path(PathId(64)).is_none());
    }

    #[test]
    fn losses_of_the_last_hour_are_counted() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut losses = PathLosses::default();
        for n in 0..600 {
            losses.lost(start + minute * n / 10);
        }
        assert_eq!((losses.total, losses.in_last_hour(start + minute * 59)), (600, 600));
        assert!(losses.minutes.len() <= 60);
        assert_eq!(losses.in_last_hour(start + minute * 90), 290);
        assert_eq!(losses.in_last_hour(start + minute * 121), 0);
        losses.lost(start + minute * 121);
        assert_eq!((losses.total, losses.minutes.len()), (601, 1));
    }

    #[test]
    fn io_waits_while_a_path_may_become_live() {
        let mut state = State::new(&geometry::tests::config());
        assert!(state.paths_expected(), "one may be added");
        state.insert(address(1), Origin::Configured).expect("there is room").set_state(PathState::Refused);
        assert!(state.paths_expected(), "the guest was served from the description of its disk");
        state.was_live = true;
        assert!(!state.paths_expected());
        let second = state.insert(address(2), Origin::Operator).expect("there is room");
        second.set_state(PathState::Lost);
        assert!(state.paths_expected());
        let remove = |order: &mut Order| order.wanted = DesiredState::Removed { at_once: false };
        state.path_mut(PathId(1)).expect("added").order(remove);
        assert!(!state.paths_expected(), "it will not come back");
        state.path_mut(PathId(0)).expect("added").order(remove);
        assert!(state.paths_expected());
    }
}
