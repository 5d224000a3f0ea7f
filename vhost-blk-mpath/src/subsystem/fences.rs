//! The fences of a subsystem, shared by its tasks.

use std::future::pending;

use mpath_lifecycle::{Fences, HeldFence, LiftedFence};
use tokio::sync::watch;

use crate::clock::{now, sleep_until};

/// The fences of a subsystem, in a channel that wakes waiting tasks.
#[derive(Default)]
pub(crate) struct SharedFences(watch::Sender<Fences>);

impl SharedFences {
    pub(crate) fn change(&self, change: impl FnOnce(&mut Fences)) {
        self.0.send_modify(change);
    }

    /// The fences. Nothing may change them meanwhile.
    pub(crate) fn get(&self) -> watch::Ref<'_, Fences> {
        self.0.borrow()
    }

    /// The receiver of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Fences> {
        self.0.subscribe()
    }

    /// The fences that are not lifted.
    pub(crate) fn held(&self) -> Vec<HeldFence> {
        self.0.borrow().held().collect()
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
                    Some(at) => sleep_until(at).await,
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

#[cfg(test)]
mod tests {
    use monotonic::Duration;
    use mpath_core::{Epoch, PathId};
    use mpath_lifecycle::{AssociationId, EndedAssociation, LiftedBy};
    use nvme_tcp::host::CrossResetOutcome;
    use nvme_tcp::wire::ControllerInstance;
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

    fn ended(is_half_closed: bool) -> EndedAssociation {
        EndedAssociation { of: id(A), is_clean: false, fence_time: 10 * SECOND, instance: Some(LOST), is_half_closed }
    }

    /// Waits for the next controller to be reset over this path.
    async fn next_reset(fences: &SharedFences, path: PathId) -> Option<ControllerInstance> {
        fences.changes().wait_for(|fences| fences.has_reset(path)).await.unwrap();
        let mut next = None;
        fences.change(|fences| next = fences.next_reset(now(), path));
        next
    }

    #[tokio::test(start_paused = true)]
    async fn another_path_is_asked_when_one_does_not_answer() {
        let fences = SharedFences::default();
        let begun = now();
        // One path is waiting already, another arrives later.
        let silent = async {
            assert_eq!(next_reset(&fences, B).await, Some(LOST));
        };
        let able = async {
            sleep(SECOND.into()).await;
            fences.change(|fences| fences.offer_resets(id(C)));
            assert_eq!(next_reset(&fences, C).await, Some(LOST));
            assert_eq!(now() - begun, 2 * SECOND);
            fences.change(|fences| fences.reset_answered(now(), C, Some(CrossResetOutcome::Done)));
        };
        fences.change(|fences| fences.offer_resets(id(B)));
        fences.change(|fences| fences.begin(now(), ended(false)));
        let (lifted, (), ()) = tokio::join!(fences.next_lifted(), silent, able);
        assert_eq!((lifted.of, lifted.by, lifted.after), (id(A), LiftedBy::CrossReset(C), 2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn time_lifts_a_fence_and_wakes_its_waiters() {
        let fences = SharedFences::default();
        fences.change(|fences| fences.begin(now(), ended(true)));
        let closed = async {
            sleep((3 * SECOND).into()).await;
            fences.change(|fences| fences.sockets_closed(now(), id(A), false));
        };
        let begun = now();
        let mut changes = fences.changes();
        let (lifted, (), waiter) =
            tokio::join!(fences.next_lifted(), closed, changes.wait_for(|fences| !fences.holds(A)));
        assert!(waiter.is_ok());
        assert_eq!((lifted.by, now() - begun), (LiftedBy::Time, 13 * SECOND));
    }
}
