//! Decides: an upgrade is refused because a path is drained or disabled (`check_upgrade`).
//! Decides: a drain or disable is refused because no usable path would be left.
//!
//! The operator's actions on paths.

use std::sync::Arc;

use mpath_api::types::{EventKind, PathAction, PathState};
use mpath_api_server::{ControlError, PathRef};
use mpath_core::{DiskId, PathId};
use mpath_lifecycle::DesiredState;
use reactor::IoThreadHandle;
use tokio::sync::oneshot;

use crate::io_threads::barrier;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{PathStatus, State};

/// Checks that a new process, which uses every configured path, would use none that the operator has drained or disabled.
pub(crate) fn check_upgrade(subsystem: &Subsystem) -> Result<(), ControlError> {
    let out_of_use = |path: &PathStatus| match path.wanted() {
        DesiredState::Drained => Some((path.address.clone(), "drained")),
        DesiredState::Disabled => Some((path.address.clone(), "disabled")),
        DesiredState::Enabled | DesiredState::RemovalHeld | DesiredState::Removed { .. } => None,
    };
    match subsystem.state().paths().find_map(out_of_use) {
        Some((path, state)) => Err(ControlError::PathOutOfUse { disk: subsystem.name().into(), path, state }),
        None => Ok(()),
    }
}

/// Applies an action to all of these paths, or to none. The returned receivers resolve once the I/O threads know of
/// it.
pub(crate) fn apply(
    subsystems: &[Arc<Subsystem>],
    paths: &[PathRef],
    action: PathAction,
    force: bool,
) -> Result<Vec<oneshot::Receiver<()>>, ControlError> {
    // Without await, so no other task of the control thread runs between check and change.
    for subsystem in subsystems {
        check(subsystem, |path| paths.contains(&subsystem.path_ref(path)), action, force)?;
    }
    let mut waits = Vec::new();
    for of in paths {
        let found = subsystems.iter().find(|subsystem| subsystem.name() == of.disk);
        let subsystem = found.ok_or_else(|| ControlError::UnknownDisk { disk: of.disk.clone(), similar: None })?;
        let path = PathId(of.index);
        let mut state = subsystem.state();
        let status = state.path(path).ok_or_else(|| ControlError::UnknownPath(of.clone()))?;
        let (kind, message, wanted) = match action {
            PathAction::Enable => (EventKind::PathEnable, "path to be enabled", DesiredState::Enabled),
            // A disabled path gets no requests either, and must not connect for this.
            PathAction::Drain if status.wanted() == DesiredState::Disabled => {
                (EventKind::PathDrain, "path to be drained", DesiredState::Disabled)
            }
            PathAction::Drain => (EventKind::PathDrain, "path to be drained", DesiredState::Drained),
            PathAction::Disable => (EventKind::PathDisable, "path to be disabled", DesiredState::Disabled),
            PathAction::Reset => (EventKind::PathReset, "path to be reset", status.wanted()),
        };
        // Enabling a path that is enabled and not live makes it connect at once.
        let reconnects = action == PathAction::Reset || action == PathAction::Enable && status.state != PathState::Live;
        if wanted != status.wanted() || reconnects {
            subsystem.event(Some(status.named()), kind, message);
        }
        if action != PathAction::Reset {
            waits.extend(order_threads(subsystem, path, wanted));
        }
        subsystem.change_paths(&mut state, |state| {
            state.path_mut(path).expect("just seen").order(|order| {
                order.wanted = wanted;
                order.resets += u64::from(action == PathAction::Reset);
            });
        });
    }
    Ok(waits)
}

/// Tells the I/O threads of an order, before the path's task gets it. The returned receivers resolve once they know.
pub(crate) fn order_threads(subsystem: &Subsystem, path: PathId, wanted: DesiredState) -> Vec<oneshot::Receiver<()>> {
    let tell = |thread: &IoThreadHandle| {
        thread.set_draining(path, wanted.is_draining());
        barrier(thread)
    };
    subsystem.threads().iter().map(tell).collect()
}

/// Checks whether an action is allowed on the matching paths of a subsystem.
fn check(
    subsystem: &Subsystem,
    meant: impl Fn(PathId) -> bool,
    action: PathAction,
    force: bool,
) -> Result<(), ControlError> {
    let state = subsystem.state();
    let meant_paths = || state.paths().filter(|path| meant(path.id));
    // A removal can be taken back until the path is closed.
    let is_final = |path: &&PathStatus| path.is_removing() && (path.is_leaving || action != PathAction::Enable);
    if let Some(path) = meant_paths().find(is_final) {
        return Err(ControlError::Removing(subsystem.path_ref(path.id)));
    }
    match action {
        PathAction::Enable => {}
        PathAction::Drain | PathAction::Disable => {
            if let Some(disk) = takes_the_last(&state, subsystem.disks.len(), &meant).filter(|_| !force) {
                return Err(ControlError::LastPath(subsystem.disk(disk).name().to_owned()));
            }
        }
        PathAction::Reset => {
            if let Some(path) = meant_paths().find(|path| path.api_state() == PathState::Disabled) {
                return Err(ControlError::NotResettable(subsystem.path_ref(path.id), path.api_state()));
            }
        }
    }
    Ok(())
}

/// The disk that would lose its last usable path. If there is none, the first disk if the subsystem would lose its last
/// path that can become usable.
pub(crate) fn takes_the_last(state: &State, disks: usize, meant: impl Fn(PathId) -> bool) -> Option<DiskId> {
    let takes_the_last = |can: &dyn Fn(&PathStatus) -> bool| {
        let (mut meant, mut others): (Vec<_>, Vec<_>) = state.paths().partition(|path| meant(path.id));
        meant.retain(|path| can(path));
        others.retain(|path| can(path));
        !meant.is_empty() && others.is_empty()
    };
    let of_disk = (0..disks as u16).map(DiskId).find(|disk| takes_the_last(&|path| path.is_usable(*disk)));
    of_disk.or_else(|| {
        takes_the_last(&|path| !path.is_draining() && path.api_state() != PathState::Refused).then_some(DiskId(0))
    })
}
