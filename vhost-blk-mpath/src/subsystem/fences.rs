//! The fences of a subsystem, shared by its tasks.

use std::future::pending;
use std::time::Instant;

use mpath_core::PathId;
use mpath_host::{AssociationId, EndedAssociation, Fences, HeldFence, LiftedFence};
use nvme_tcp::host::CrossResetOutcome;
use nvme_tcp::wire::ControllerInstance;
use tokio::sync::watch;
use tokio::time::sleep_until;

/// The fences of a subsystem, in a channel that wakes waiting tasks.
#[derive(Default)]
pub(crate) struct SharedFences(watch::Sender<Fences>);

impl SharedFences {
    fn change(&self, change: impl FnOnce(&mut Fences, Instant)) {
        self.0.send_modify(|fences| change(fences, now()));
    }

    /// Begins the fence of an association. Its sockets are closed, except for those that drain.
    pub(crate) fn begin(&self, ended: EndedAssociation) {
        self.change(|fences, now| fences.begin(now, ended));
    }

    /// Records that the draining sockets are closed, and whether the controller has `executed` everything it
    /// received.
    pub(crate) fn drained(&self, of: AssociationId, executed: bool) {
        self.change(|fences, now| fences.drained(now, of, executed));
    }

    /// The fences that are not lifted.
    pub(crate) fn held(&self) -> Vec<HeldFence> {
        self.0.borrow().held().collect()
    }

    /// Adds a live association over which other controllers can be reset, until
    /// [`withdraw_resets`](Self::withdraw_resets).
    pub(crate) fn offer_resets(&self, id: AssociationId) {
        self.change(|fences, _| fences.offer_resets(id));
    }

    pub(crate) fn withdraw_resets(&self, path: PathId) {
        self.change(|fences, _| fences.withdraw_resets(path));
    }

    /// Waits for the next controller to be reset over this path; [`reset_answered`](Self::reset_answered) must
    /// follow. Cancel-safe.
    pub(crate) async fn next_reset(&self, path: PathId) -> ControllerInstance {
        let mut changes = self.0.subscribe();
        loop {
            let mut next = None;
            self.0.send_if_modified(|fences| {
                next = fences.next_reset(now(), path);
                next.is_some()
            });
            if let Some(next) = next {
                return next;
            }
            changes.changed().await.expect("the sender is this one's own");
        }
    }

    /// Records the outcome; `None` if the controller was not asked.
    pub(crate) fn reset_answered(&self, path: PathId, outcome: Option<CrossResetOutcome>) {
        self.change(|fences, now| fences.reset_answered(now, path, outcome));
    }

    /// Waits until the path has no fence.
    pub(crate) async fn lifted(&self, path: PathId) {
        let _ = self.0.subscribe().wait_for(|fences| !fences.holds(path)).await;
    }

    /// Waits until the association has no fence.
    pub(crate) async fn lifted_of(&self, of: AssociationId) {
        let _ = self.0.subscribe().wait_for(|fences| !fences.is_held(of)).await;
    }

    /// Waits for the next fence to be lifted.
    pub(crate) async fn next_lifted(&self) -> LiftedFence {
        let mut changes = self.0.subscribe();
        loop {
            let (mut lifted, mut next) = (None, None);
            self.0.send_if_modified(|fences| {
                // A late answer lets the fence ask another path.
                let is_due = fences.next_timeout().is_some_and(|at| at <= now());
                if is_due {
                    fences.handle_timeout(now());
                }
                (lifted, next) = (fences.poll_lifted(), fences.next_timeout());
                is_due || lifted.is_some()
            });
            if let Some(lifted) = lifted {
                return lifted;
            }
            let time = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = time => {}
                changed = changes.changed() => changed.expect("the sender is this one's own"),
            }
        }
    }
}

/// The time of the tokio clock, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpath_core::Epoch;
    use mpath_host::LiftedBy;
    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LOST: ControllerInstance = ControllerInstance { cntlid: 7, ciu: 1, cirn: 2 };
    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const C: PathId = PathId(2);

    fn id(path: PathId) -> AssociationId {
        AssociationId { path, epoch: Epoch(1) }
    }

    fn ended(is_draining: bool) -> EndedAssociation {
        EndedAssociation { of: id(A), is_clean: false, fence_time: 10 * SECOND, instance: Some(LOST), is_draining }
    }

    #[tokio::test(start_paused = true)]
    async fn another_path_is_asked_when_one_does_not_answer() {
        let fences = SharedFences::default();
        let begun = now();
        // One path is waiting already, another arrives later.
        let silent = async {
            assert_eq!(fences.next_reset(B).await, LOST);
        };
        let able = async {
            sleep(SECOND).await;
            fences.offer_resets(id(C));
            assert_eq!(fences.next_reset(C).await, LOST);
            assert_eq!(now() - begun, 2 * SECOND);
            fences.reset_answered(C, Some(CrossResetOutcome::Done));
        };
        fences.offer_resets(id(B));
        fences.begin(ended(false));
        let (lifted, (), ()) = tokio::join!(fences.next_lifted(), silent, able);
        assert_eq!((lifted.of, lifted.by, lifted.after), (id(A), LiftedBy::CrossReset(C), 2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn time_lifts_a_fence_and_wakes_its_waiters() {
        let fences = SharedFences::default();
        fences.begin(ended(true));
        let drained = async {
            sleep(3 * SECOND).await;
            fences.drained(id(A), false);
        };
        let begun = now();
        let (lifted, (), ()) = tokio::join!(fences.next_lifted(), drained, fences.lifted(A));
        assert_eq!((lifted.by, now() - begun), (LiftedBy::Time, 13 * SECOND));
    }
}
