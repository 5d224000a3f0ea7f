//! What the operator wants of a path, on its way from the API to the path's task, and whether a path owes anything.

use std::sync::Arc;

use mpath_api::server::{ControlError, PathRef};
use mpath_api::types::{EventKind, PathAction, PathState};
use mpath_core::{DiskId, PathId, PathStats};
use mpath_host::Wanted;
use tokio::sync::oneshot;

use crate::io_threads::{barrier, statistics};
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{PathStatus, State};

/// Whether a draining path can be closed without losing anything.
///
/// Nothing new is sent there, so once nothing is in flight only flushes can come, and they do only while the path is dirty.
/// So if it is clean after nothing was in flight, and no part of a flush is open after that, it stays so.
pub(crate) async fn owes_nothing(subsystem: &Subsystem, path: PathId) -> bool {
    // The cheap question first.
    !subsystem.may_be_dirty(path)
        && is_idle(subsystem, path).await
        && !subsystem.may_be_dirty(path)
        && is_idle(subsystem, path).await
}

pub(crate) async fn is_idle(subsystem: &Subsystem, path: PathId) -> bool {
    // A thread that does not answer has ended; the daemon ends then, and does the rest.
    let Ok(Some(stats)) = statistics(subsystem.threads()).await else { return false };
    stats.path(path).is_some_and(PathStats::is_drained)
}

/// Tells paths, all of them or none, what the operator wants of them. What is to be waited for: the I/O threads know of it.
pub(crate) fn steer(
    subsystems: &[Arc<Subsystem>],
    paths: &[PathRef],
    action: PathAction,
    force: bool,
) -> Result<Vec<oneshot::Receiver<()>>, ControlError> {
    // This does not wait, so nothing else happens on the control thread before all is told.
    for subsystem in subsystems {
        let of = subsystem.name();
        check(subsystem, |path| paths.contains(&PathRef { disk: of.into(), index: path.0 }), action, force)?;
    }
    let mut waits = Vec::new();
    for PathRef { disk: name, index } in paths {
        let found = subsystems.iter().find(|subsystem| subsystem.name() == name);
        let subsystem = found.ok_or_else(|| ControlError::UnknownDisk { disk: name.clone() })?;
        let path = PathId(*index);
        let mut state = subsystem.state();
        let unknown = || ControlError::UnknownPath { disk: name.clone(), index: *index };
        let status = state.path(path).ok_or_else(unknown)?;
        let (kind, message, wanted) = match action {
            PathAction::Enable => (EventKind::PathEnable, "path to be enabled", Wanted::Enabled),
            PathAction::Drain => (EventKind::PathDrain, "path to be drained", Wanted::Drained),
            PathAction::Disable => (EventKind::PathDisable, "path to be disabled", Wanted::Disabled),
            PathAction::Reset => (EventKind::PathReset, "path to be reset", status.wanted()),
        };
        subsystem.event(Some(status.named()), kind, message);
        if action != PathAction::Reset {
            // The I/O threads hear of it first: the path's task relies on that.
            for thread in subsystem.threads() {
                thread.set_draining(path, wanted != Wanted::Enabled);
                waits.push(barrier(thread));
            }
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

/// Whether the paths of a disk that are meant can be steered so.
fn check(
    subsystem: &Subsystem,
    meant: impl Fn(PathId) -> bool,
    action: PathAction,
    force: bool,
) -> Result<(), ControlError> {
    let state = subsystem.state();
    let name = || subsystem.config.name.to_string();
    let meant_paths = || state.paths().filter(|path| meant(path.id));
    if let Some(path) = meant_paths().find(|path| path.is_removing()) {
        return Err(ControlError::Removing { disk: name(), index: path.id.0 });
    }
    match action {
        PathAction::Enable => {}
        PathAction::Drain | PathAction::Disable => {
            if let Some(disk) = takes_the_last(&state, subsystem.disks.len(), &meant).filter(|_| !force) {
                return Err(ControlError::LastPath { disk: subsystem.disk(disk).name().to_owned() });
            }
        }
        PathAction::Reset => {
            if let Some(path) = meant_paths().find(|path| path.shown() == PathState::Disabled) {
                return Err(ControlError::NotResettable { disk: name(), index: path.id.0, state: path.shown() });
            }
        }
    }
    Ok(())
}

/// A disk that has no other usable paths than those or, where none is usable now, no others that can become so.
pub(crate) fn takes_the_last(state: &State, disks: usize, meant: impl Fn(PathId) -> bool) -> Option<DiskId> {
    let takes_the_last = |can: &dyn Fn(&PathStatus) -> bool| {
        let (mut meant, mut others): (Vec<_>, Vec<_>) = state.paths().partition(|path| meant(path.id));
        meant.retain(|path| can(path));
        others.retain(|path| can(path));
        !meant.is_empty() && others.is_empty()
    };
    let of_disk = (0..disks as u16).map(DiskId).find(|disk| takes_the_last(&|path| path.is_usable(*disk)));
    of_disk.or_else(|| {
        takes_the_last(&|path| !path.is_draining() && path.shown() != PathState::Refused).then_some(DiskId(0))
    })
}
