//! Decides: a removal is refused because no usable path would be left.
//!
//! Adds and removes paths while the daemon runs.
//!
//! ```text
//!  add ──▶ (path) ── remove ──▶ Removing: drained ── nothing outstanding ──▶ closed in order ──┐
//!                                  │                                                           ▼
//!                                  └── --force, or lost ──▶ dropped, its fence begins ──▶ its fences are lifted ──▶ gone
//! ```
//!
//! Until the path is closed, its removal can be taken back. The removal is held while a disk has no other usable path.
//!
//! Another path may use the id and slot only once the path is gone. The I/O threads forget the path before
//! that. `mpath_core` remembers the path's lost unflushed writes until a flush has failed for them.

use std::sync::Arc;
use std::time::SystemTime;

use mpath_api::types::{EventKind, Origin};
use mpath_api_server::{AddPathError, RemovePathError};
use mpath_config::PathAddress;
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::{DesiredState, RemovablePath, held_removals};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::path::actions;
use crate::path::task::PathTask;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{DroppedPath, PathStatus, REMOVAL_HELD, State};

impl Subsystem {
    /// Adds a path and begins to connect it. A failure to connect is reported by the path's state and not here.
    ///
    /// Call this within the daemon's runtime.
    pub(crate) fn add_path(self: &Arc<Self>, address: PathAddress, origin: Origin) -> Result<PathId, AddPathError> {
        for (disk, found) in self.disks.iter().filter_map(|disk| Some((disk, disk.backing()?.found()?))) {
            found
                .identity
                .check_multipath()
                .map_err(|error| AddPathError::NotMultipath { disk: disk.name().into(), reason: error.to_string() })?;
        }
        let path = self.start_path(address, origin)?;
        let named = self.state().path(path).map(PathStatus::named);
        self.event(named, EventKind::PathAdded, "path added");
        Ok(path)
    }

    /// Makes a discovered path a configured one. Returns whether there is such a path.
    pub(crate) fn configure_discovered(&self, address: &PathAddress) -> bool {
        let mut state = self.state();
        let path = state.paths_mut().find(|path| path.address == *address && !path.is_removing());
        path.map(|path| path.origin = Origin::Configured).is_some()
    }

    /// Makes a path a discovered one, if the disk has discovery controllers. It stays as long as a log has it. Returns whether
    /// the disk has such controllers.
    pub(crate) fn leave_to_discovery(&self, path: PathId) -> bool {
        if self.config.discovery.is_empty() {
            return false;
        }
        self.path(path, |status| status.origin = Origin::Discovery);
        self.operator_removals.notify_one();
        true
    }

    /// Adds any path, including the disk's only one.
    pub(crate) fn start_path(self: &Arc<Self>, address: PathAddress, origin: Origin) -> Result<PathId, AddPathError> {
        let mut state = self.state();
        let name = || self.config.name.to_string();
        if let Some(there) = state.paths().find(|path| path.address == address) {
            return Err(AddPathError::Exists { disk: name(), index: there.id.0, address, state: there.api_state() });
        }
        let added = self.change_paths(&mut state, |state| state.insert(address.clone(), origin).map(|path| path.id));
        let path = added.ok_or_else(|| AddPathError::TooMany(name()))?;
        self.threads().iter().for_each(|thread| thread.add_path(path));
        let events = self.reports.listen(path);
        let status = state.path(path).expect("just added");
        let (orders, epoch) = (status.orders.subscribe(), state.epoch(path));
        let task = PathTask::new(Arc::clone(self), path, address, epoch, events, orders);
        state.path_mut(path).expect("just added").task = Some(tokio::spawn(task.run()));
        Ok(path)
    }

    /// Removes a path: once nothing is outstanding, or at once with `force`, in which case unanswered writes wait for
    /// the fence. Returns when all I/O threads have stopped sending to it. It is in state `removing` until it is
    /// gone.
    pub(crate) async fn remove_path(&self, path: PathId, force: bool, by: Origin) -> Result<(), RemovePathError> {
        for wait in self.order_removal(path, force, by)? {
            wait.await.map_err(|_| RemovePathError::Ending)?;
        }
        Ok(())
    }

    fn order_removal(
        &self,
        path: PathId,
        force: bool,
        by: Origin,
    ) -> Result<Vec<oneshot::Receiver<()>>, RemovePathError> {
        let mut state = self.state();
        let status = state.path(path).ok_or_else(|| RemovePathError::UnknownPath(self.path_ref(path)))?;
        let left_alone = actions::takes_the_last(&state, self.disks.len(), |other| other == path);
        if let Some(disk) = left_alone.filter(|_| !force && !status.is_removing()) {
            return Err(RemovePathError::LastPath(self.disk(disk).name().to_owned()));
        }
        if status.wanted() == DesiredState::RemovalHeld && !force {
            return Ok(Vec::new());
        }
        let waits = actions::order_threads(self, path, DesiredState::Removed { at_once: force });
        self.change_paths(&mut state, |state| {
            let status = state.path(path).expect("just seen");
            let address = status.address.clone();
            match by {
                _ if status.is_removing() => {}
                Origin::Operator => state.one_path_less(),
                Origin::Configured | Origin::Discovery => {
                    let by_discovery = by == Origin::Discovery;
                    state.drop_path(DroppedPath { address, at: SystemTime::now(), by_discovery });
                }
            }
            let status = state.path(path).expect("just seen");
            if by == Origin::Operator && !status.is_removing() && !self.config.discovery.is_empty() {
                let address = status.address.clone();
                state.removed_by_operator.insert(address);
                self.operator_removals.notify_one();
            }
            let status = state.path_mut(path).expect("just seen");
            let before = status.wanted();
            let at_once = force || before == DesiredState::Removed { at_once: true };
            let wanted = DesiredState::Removed { at_once };
            if wanted != before {
                let message = if at_once { "path to be removed at once" } else { "path to be removed" };
                self.event(Some(status.named()), EventKind::PathRemove, message);
                status.order(|order| order.wanted = wanted);
            }
        });
        Ok(waits)
    }

    /// Takes back the removal of a path that discovery lists again, unless the path is closed already.
    pub(crate) fn take_back_removal(&self, path: PathId) {
        let mut state = self.state();
        let Some(status) = state.path(path).filter(|status| status.is_removing() && !status.is_leaving) else { return };
        self.event(Some(status.named()), EventKind::PathEnable, "discovery lists the path again: it is not removed");
        self.set_wanted(&mut state, path, DesiredState::Enabled);
    }

    /// Holds removals without which a disk would have no usable path, and has held removals go on once it has another.
    pub(crate) fn hold_removals(&self, state: &mut State) {
        if !state.paths().any(PathStatus::is_removing) {
            return;
        }
        let serves = |status: &PathStatus| {
            let served = self.disks.iter().filter(|disk| status.could_serve(disk.id));
            served.fold(0, |served, disk| served | 1 << disk.id.0)
        };
        let removable = |status: &PathStatus| RemovablePath { wanted: status.wanted(), serves: serves(status) };
        let (ids, paths): (Vec<_>, Vec<_>) = state.paths().map(|status| (status.id, removable(status))).unzip();
        let disks = self.disks.iter().fold(0, |disks, disk| disks | 1 << disk.id.0);
        for (index, wanted) in held_removals(disks, &paths) {
            let message = match wanted {
                DesiredState::RemovalHeld => REMOVAL_HELD,
                _ => "the removal goes on",
            };
            self.event(state.path(ids[index]).map(PathStatus::named), EventKind::PathRemove, message);
            self.set_wanted(state, ids[index], wanted);
        }
    }

    /// Orders a state without a check. The I/O threads hear of the order before the path's task does.
    fn set_wanted(&self, state: &mut State, path: PathId, wanted: DesiredState) {
        self.threads().iter().for_each(|thread| thread.set_draining(path, wanted.is_draining()));
        state.path_mut(path).expect("the caller has seen it").order(|order| order.wanted = wanted);
    }

    /// Forgets a path. `epoch` is the number of its last association.
    pub(crate) fn path_gone(&self, path: PathId, epoch: Epoch) {
        self.reports.forget(path);
        let mut state = self.state();
        let named = state.path(path).map(PathStatus::named);
        self.change_paths(&mut state, |state| state.remove(path, epoch));
        self.virtqueues().forget_path(path);
        self.event(named, EventKind::PathRemoved, "path removed");
    }

    /// Takes the tasks of all paths.
    pub(crate) fn take_tasks(&self) -> Vec<JoinHandle<()>> {
        self.state().paths_mut().filter_map(|path| path.task.take()).collect()
    }
}
