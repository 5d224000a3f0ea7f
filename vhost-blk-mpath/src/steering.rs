//! What the operator wants of a path, on its way from the API to the path's task, and when a path that is to be disabled owes
//! nothing any more.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use mpath_api::server::{ControlError, PathRef};
use mpath_api::types::{EventKind, PathAction, PathState};
use mpath_core::{DiskId, PathId};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::control::{barrier, statistics};
use crate::path_status::{PathStatus, State};
use crate::subsystem::Subsystem;

/// How often a path that is to be closed is looked at.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How a path is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    #[default]
    Enabled,
    /// Given nothing new, and kept.
    Drained,
    /// Given nothing new, closed when it owes nothing, and not connected again.
    Disabled,
    /// Given nothing new, closed when it owes nothing or `at_once`, and gone when its fences are lifted. For good.
    Removed { at_once: bool },
}

/// What a path's task has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    pub(crate) wanted: Wanted,
    /// How often the path was reset.
    pub(crate) resets: u64,
}

/// Why an operator's order ends an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordered {
    /// It owes nothing any more and is to be closed in order.
    Close,
    /// It is to be dropped, for good.
    Drop,
    /// It is to be dropped, and connected again.
    Reset,
}

/// A path's task's end.
pub(crate) struct Orders {
    orders: watch::Receiver<Order>,
    /// Resets that have been carried out, or had nothing to reset.
    resets: u64,
}

impl Orders {
    pub(crate) fn new(orders: watch::Receiver<Order>) -> Self {
        Self { orders, resets: 0 }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        self.orders.borrow().wanted
    }

    /// Waits until the path is to be removed.
    pub(crate) fn removed(&self) -> impl Future<Output = ()> + use<> {
        let mut orders = self.orders.clone();
        async move {
            if orders.wait_for(|order| matches!(order.wanted, Wanted::Removed { .. })).await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Waits until the path is no longer to be disabled.
    pub(crate) async fn enabled(&mut self) {
        if self.orders.wait_for(|order| order.wanted != Wanted::Disabled).await.is_err() {
            pending::<()>().await;
        }
    }

    /// A fresh association: resets up to now are done.
    pub(crate) fn connected(&mut self) {
        self.resets = self.orders.borrow_and_update().resets;
    }

    /// Waits for the next order of any kind.
    pub(crate) async fn next(&mut self) {
        // The disk, which sends them, outlives its paths' tasks.
        if self.orders.changed().await.is_err() {
            pending::<()>().await;
        }
    }

    /// Waits until orders end the association of a live path. May be dropped and called again.
    pub(crate) async fn end_association(&mut self, subsystem: &Subsystem, path: PathId) -> Ordered {
        loop {
            let order = *self.orders.borrow_and_update();
            let at_once = order.wanted == Wanted::Removed { at_once: true };
            if order.resets != self.resets && !at_once {
                return Ordered::Reset;
            }
            if matches!(order.wanted, Wanted::Enabled | Wanted::Drained) {
                self.next().await;
            } else if at_once {
                // Draining, it stays without writes in flight, so that nothing needs a fence. What it has not flushed is lost.
                return if is_idle(subsystem, path).await { Ordered::Close } else { Ordered::Drop };
            } else if owes_nothing(subsystem, path).await {
                // Ordered otherwise meanwhile, it may owe something again.
                if !self.orders.has_changed().unwrap_or(false) {
                    return Ordered::Close;
                }
            } else {
                // Not in time is no order.
                let _ = timeout(LOOK_AGAIN, self.next()).await;
            }
        }
    }
}

/// Whether a draining path can be closed without losing anything.
///
/// Nothing new is sent there, so once nothing is in flight only flushes can come, and they do only while the path is dirty.
/// So if it is clean after nothing was in flight, and no part of a flush is open after that, it stays so.
async fn owes_nothing(subsystem: &Subsystem, path: PathId) -> bool {
    // The cheap question first.
    !subsystem.may_be_dirty(path)
        && is_idle(subsystem, path).await
        && !subsystem.may_be_dirty(path)
        && is_idle(subsystem, path).await
}

async fn is_idle(subsystem: &Subsystem, path: PathId) -> bool {
    // A thread that does not answer has ended; the daemon ends then, and does the rest.
    let Ok(Some(stats)) = statistics(subsystem.threads()).await else { return false };
    let Some(stats) = stats.path(path) else { return false };
    stats.draining && stats.flushes_open == 0 && stats.classes.iter().all(|class| class.in_flight == 0)
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use mpath_api::types::Origin;
    use nvme_tcp::host::HostIdentity;

    use super::*;
    use crate::events::EventLog;
    use crate::fence_record::FenceRecords;
    use crate::geometry;
    use crate::service::Common;

    /// The task of the path has seen that nothing is owed, and before it goes on the path may be used again.
    #[tokio::test]
    async fn a_path_enabled_at_the_last_moment_is_not_closed() {
        let place = tempfile::tempdir().unwrap();
        let (records, _) = FenceRecords::open([place.path().join("socket").as_path()].into_iter()).unwrap();
        let host = HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] };
        let config = geometry::tests::config();
        let name = config.name.to_string();
        let (_shutdown, ends) = watch::channel(false);
        let common = Common { host, io_threads: 1, events: Arc::new(EventLog::new()) };
        let subsystem = Arc::new(Subsystem::new(config, &common, records, None, ends));
        subsystem.state().insert("tcp://127.0.0.1:1".parse().unwrap(), Origin::Operator);
        assert!(subsystem.admit(&geometry::tests::controller()).unwrap()[0].is_ok());
        let path = PathId(0);
        let mut orders = Orders::new(subsystem.state().path(path).unwrap().orders.subscribe());
        let (subsystems, paths) = ([Arc::clone(&subsystem)], [PathRef { disk: name, index: path.0 }]);
        let steer_now = async |action| {
            for told in steer(&subsystems, &paths, action, true).unwrap() {
                told.await.unwrap();
            }
        };

        steer_now(PathAction::Disable).await;
        let mut end = pin!(orders.end_association(&subsystem, path));
        let mut nobody = Context::from_waker(Waker::noop());
        // It asks the I/O thread twice, which is held up until it has, and is not told of the answer as this test does not let it run.
        for _ in 0..2 {
            let (go_on, held_up) = std::sync::mpsc::channel::<()>();
            subsystem.threads()[0].barrier(Box::new(move || {
                let _ = held_up.recv();
            }));
            assert!(end.as_mut().poll(&mut nobody).is_pending());
            drop(go_on);
            statistics(subsystem.threads()).await.unwrap();
        }
        steer_now(PathAction::Enable).await;
        assert_eq!(end.as_mut().poll(&mut nobody), Poll::Pending);

        for thread in subsystem.threads() {
            thread.begin_shutdown();
            thread.join();
        }
    }
}
