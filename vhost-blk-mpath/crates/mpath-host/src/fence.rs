//! The fences of associations that have ended. Writes that an association was sent and has not answered are held until its
//! controller can execute none of them any more. The first of these lifts a fence:
//!
//! * a Cross-Controller Reset (Base 2.3, 5.4.3) on another path has succeeded;
//! * the controller has closed all I/O connections in answer to the host's end of them, having promised (`drain-fence`) to do so
//!   only when everything it received is executed;
//! * time has passed since the last socket was closed ([`fence_time`](nvme_tcp::host::ControllerInfo::fence_time)).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use mpath_core::PathId;
use nvme_tcp::host::CrossResetOutcome;
use nvme_tcp::wire::ControllerInstance;

use crate::AssociationId;

/// How long one controller may take for a Cross-Controller Reset before another one is asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// How long a controller may take to close connections that drain. Linux nvmet was seen to take 3.7 s. The fence time counts
/// only from the end of that, so longer would not always be better.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);

/// What has lifted a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiftedBy {
    /// A Cross-Controller Reset on this path.
    CrossReset(PathId),
    /// The controller has executed everything, and has closed its connections.
    Drain,
    /// The fence time has passed.
    Time,
}

/// A fence that was lifted: nothing sent under that association can change data any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifted {
    /// Which association's.
    pub of: AssociationId,
    /// What has lifted it.
    pub by: LiftedBy,
    /// How long after it began.
    pub after: Duration,
}

/// An association that has ended, as its fence knows it.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Which one.
    pub of: AssociationId,
    /// How long its controller may execute commands after the last socket was closed.
    pub fence_time: Duration,
    /// Its controller, for a Cross-Controller Reset; `None` if the controller does not tell.
    pub instance: Option<ControllerInstance>,
    /// Its I/O sockets are not closed yet: their sending sides are shut down, and [`Fences::drained`] follows.
    pub is_draining: bool,
}

/// The fences of one subsystem, and the live associations that can reset the controllers of others.
#[derive(Debug, Default)]
pub struct Fences {
    held: Vec<Fence>,
    /// By path.
    resetters: BTreeMap<PathId, Resetter>,
    lifted: VecDeque<Lifted>,
}

#[derive(Debug)]
struct Fence {
    ended: Ended,
    begun: Instant,
    /// `None` while its sockets drain.
    lifts_at: Option<Instant>,
    /// The latest association of each path that was asked to reset the controller.
    asked: BTreeMap<PathId, AssociationId>,
    /// Whose answer is waited for, and until when.
    asking: Option<(PathId, Instant)>,
}

impl Fence {
    /// Whether this association's controller may be asked to reset the one of the fence.
    fn may_ask(&self, resetter: AssociationId) -> bool {
        let is_new = self.asked.get(&resetter.path) != Some(&resetter);
        self.ended.instance.is_some() && self.asking.is_none() && is_new
    }
}

/// A live association whose controller can reset others.
#[derive(Debug)]
struct Resetter {
    id: AssociationId,
    /// The fence that the controller's answer is for.
    under_way: Option<AssociationId>,
}

impl Fences {
    /// Begins the fence of an association whose sockets are all closed, except for those that drain.
    pub fn begin(&mut self, now: Instant, ended: Ended) {
        let lifts_at = (!ended.is_draining).then(|| now + ended.fence_time);
        self.held.push(Fence { ended, begun: now, lifts_at, asked: BTreeMap::new(), asking: None });
        self.handle_timeout(now);
    }

    /// The sockets that were to drain are closed. Unless the controller has `executed` everything that it received, the fence
    /// time counts from here.
    pub fn drained(&mut self, now: Instant, of: AssociationId, executed: bool) {
        if executed {
            return self.lift(now, of, LiftedBy::Drain);
        }
        for fence in self.held.iter_mut().filter(|fence| fence.ended.of == of) {
            fence.lifts_at = Some(now + fence.ended.fence_time);
        }
        self.handle_timeout(now);
    }

    /// A live association's controller can reset others from now on.
    pub fn offer_resets(&mut self, id: AssociationId) {
        self.resetters.insert(id.path, Resetter { id, under_way: None });
    }

    /// The path has no such association any more: whoever waits for its answer asks another one at once.
    pub fn withdraw_resets(&mut self, path: PathId) {
        self.resetters.remove(&path);
        self.held.iter_mut().for_each(|fence| fence.asking = fence.asking.filter(|(asked, _)| *asked != path));
    }

    /// The controller that this path's controller is to reset next; [`reset_answered`](Self::reset_answered) is to follow.
    /// `None` if there is none, or one is under way: a controller does one at a time. Each association is asked once for each
    /// fence, and each fence asks one association at a time.
    pub fn next_reset(&mut self, now: Instant, path: PathId) -> Option<ControllerInstance> {
        let resetter = self.resetters.get_mut(&path).filter(|resetter| resetter.under_way.is_none())?;
        let fence = self.held.iter_mut().find(|fence| fence.may_ask(resetter.id))?;
        fence.asked.insert(path, resetter.id);
        fence.asking = Some((path, now + ATTEMPT_MAX));
        resetter.under_way = Some(fence.ended.of);
        fence.ended.instance
    }

    /// Whether [`next_reset`](Self::next_reset) has something for this path.
    #[must_use]
    pub fn has_reset(&self, path: PathId) -> bool {
        let resetter = self.resetters.get(&path).filter(|resetter| resetter.under_way.is_none());
        resetter.is_some_and(|resetter| self.held.iter().any(|fence| fence.may_ask(resetter.id)))
    }

    /// What has come of the reset that this path's controller was asked for; `None` if it was not asked after all. An answer
    /// later than others wait for it counts as well: the controller says which one it has reset.
    pub fn reset_answered(&mut self, now: Instant, path: PathId, outcome: Option<CrossResetOutcome>) {
        let resetter = self.resetters.get_mut(&path);
        let Some(of) = resetter.and_then(|resetter| resetter.under_way.take()) else { return };
        if outcome == Some(CrossResetOutcome::Done) {
            return self.lift(now, of, LiftedBy::CrossReset(path));
        }
        for fence in self.held.iter_mut().filter(|fence| fence.ended.of == of) {
            fence.asking = fence.asking.filter(|(asked, _)| *asked != path);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_fence = |fence: &Fence| [fence.lifts_at, fence.asking.map(|(_, until)| until)];
        self.held.iter().flat_map(of_fence).flatten().min()
    }

    /// Lifts the fences whose time has passed, and gives up waiting for answers that are late.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |fence: &Fence| fence.lifts_at.is_some_and(|at| at <= now);
        while let Some(due) = self.held.iter().find(|fence| is_due(fence)) {
            self.lift(now, due.ended.of, LiftedBy::Time);
        }
        self.held.iter_mut().for_each(|fence| fence.asking = fence.asking.filter(|(_, until)| now < *until));
    }

    /// The next fence that was lifted.
    pub fn poll_lifted(&mut self) -> Option<Lifted> {
        self.lifted.pop_front()
    }

    /// Whether there is a fence of this association.
    #[must_use]
    pub fn is_held(&self, of: AssociationId) -> bool {
        self.held.iter().any(|fence| fence.ended.of == of)
    }

    /// Whether commands of any of this path's ended associations may still be executed, or the end of their fence has not been
    /// polled.
    #[must_use]
    pub fn holds(&self, path: PathId) -> bool {
        let held = self.held.iter().map(|fence| fence.ended.of);
        held.chain(self.lifted.iter().map(|lifted| lifted.of)).any(|of| of.path == path)
    }

    fn lift(&mut self, now: Instant, of: AssociationId, by: LiftedBy) {
        let lifted = &mut self.lifted;
        self.held.retain(|fence| {
            let stays = fence.ended.of != of;
            if !stays {
                lifted.push_back(Lifted { of, by, after: now - fence.begun });
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::Epoch;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LOST: ControllerInstance = ControllerInstance { cntlid: 7, ciu: 1, cirn: 2 };
    const OTHER: ControllerInstance = ControllerInstance { cntlid: 8, ciu: 1, cirn: 2 };
    const A: PathId = PathId(0);
    const B: PathId = PathId(1);
    const C: PathId = PathId(2);

    fn id(path: PathId, epoch: u64) -> AssociationId {
        AssociationId { path, epoch: Epoch(epoch) }
    }

    fn ended(of: AssociationId, instance: ControllerInstance) -> Ended {
        Ended { of, fence_time: 10 * SECOND, instance: Some(instance), is_draining: false }
    }

    /// What lifted each fence, and when after its beginning.
    fn lifted(fences: &mut Fences) -> Vec<(AssociationId, LiftedBy, Duration)> {
        std::iter::from_fn(|| fences.poll_lifted()).map(|Lifted { of, by, after }| (of, by, after)).collect()
    }

    #[test]
    fn time_lifts_each_fence_of_a_path_for_itself() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        fences.begin(start, ended(id(A, 1), LOST));
        fences.begin(start + SECOND, ended(id(A, 2), LOST));
        fences.handle_timeout(start + Duration::from_millis(9_999));
        assert_eq!(fences.next_timeout(), Some(start + 10 * SECOND));
        assert!(lifted(&mut fences).is_empty() && fences.is_held(id(A, 1)));
        fences.handle_timeout(start + 10 * SECOND);
        assert!(!fences.is_held(id(A, 1)) && fences.is_held(id(A, 2)));
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::Time, 10 * SECOND)]);
        assert!(fences.holds(A) && !fences.holds(B));
        fences.handle_timeout(start + 11 * SECOND);
        assert!(fences.holds(A), "nobody has been told yet");
        assert_eq!(lifted(&mut fences).len(), 1);
        assert!(!fences.holds(A) && fences.next_timeout().is_none());
    }

    #[test]
    fn sockets_that_drain_lift_the_fence_or_begin_its_time() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        for epoch in [1, 2] {
            fences.begin(start, Ended { is_draining: true, ..ended(id(A, epoch), LOST) });
        }
        fences.handle_timeout(start + 100 * SECOND);
        assert!(fences.is_held(id(A, 1)) && fences.next_timeout().is_none());
        fences.drained(start + 3 * SECOND, id(A, 1), true);
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::Drain, 3 * SECOND)]);
        fences.drained(start + 5 * SECOND, id(A, 2), false);
        assert_eq!(fences.next_timeout(), Some(start + 15 * SECOND));
        // It is too late for that.
        fences.handle_timeout(start + 15 * SECOND);
        fences.drained(start + 15 * SECOND, id(A, 2), true);
        assert_eq!(lifted(&mut fences), [(id(A, 2), LiftedBy::Time, 15 * SECOND)]);
    }

    #[test]
    fn the_first_success_counts_and_no_association_is_asked_twice() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        fences.offer_resets(id(B, 1));
        fences.begin(start, ended(id(A, 1), LOST));
        assert_eq!(fences.next_reset(start, A), None, "offers none");
        assert_eq!(fences.next_reset(start, B), Some(LOST));
        assert_eq!(fences.next_reset(start, B), None, "one at a time");
        fences.offer_resets(id(C, 1));
        assert_eq!(fences.next_reset(start, C), None, "one association at a time");
        fences.reset_answered(start, B, Some(CrossResetOutcome::Begun));
        assert_eq!(fences.next_reset(start, B), None, "asked once");
        assert_eq!(fences.next_reset(start, C), Some(LOST));
        fences.reset_answered(start, C, None);
        fences.offer_resets(id(B, 2));
        assert_eq!(fences.next_reset(start + SECOND, B), Some(LOST), "another association");
        fences.reset_answered(start + 2 * SECOND, B, Some(CrossResetOutcome::Done));
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::CrossReset(B), 2 * SECOND)]);
    }

    #[test]
    fn who_does_not_answer_or_is_lost_is_passed_over() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        for path in [A, B, C] {
            fences.offer_resets(id(path, 5));
        }
        fences.begin(start, ended(id(A, 1), LOST));
        assert_eq!(fences.next_reset(start, A), Some(LOST));
        fences.withdraw_resets(A);
        assert_eq!(fences.next_reset(start, B), Some(LOST));
        assert_eq!(fences.next_timeout(), Some(start + ATTEMPT_MAX));
        fences.handle_timeout(start + ATTEMPT_MAX);
        assert_eq!(fences.next_reset(start + ATTEMPT_MAX, B), None, "its controller is busy");
        assert_eq!(fences.next_reset(start + ATTEMPT_MAX, C), Some(LOST));
        // The silent one's answer comes, and is about the same controller.
        fences.reset_answered(start + 3 * SECOND, B, Some(CrossResetOutcome::Done));
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::CrossReset(B), 3 * SECOND)]);
        // So the other one's has nothing to lift, and is not taken for the next one's.
        fences.begin(start + 3 * SECOND, ended(id(B, 5), OTHER));
        fences.reset_answered(start + 4 * SECOND, C, Some(CrossResetOutcome::Done));
        assert!(lifted(&mut fences).is_empty() && fences.is_held(id(B, 5)));
        assert_eq!(fences.next_reset(start + 4 * SECOND, C), Some(OTHER));
    }

    #[test]
    fn a_fence_that_is_lifted_asks_nobody() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        fences.begin(start, ended(id(A, 1), LOST));
        fences.begin(start, Ended { instance: None, ..ended(id(A, 2), LOST) });
        fences.handle_timeout(start + 10 * SECOND);
        fences.offer_resets(id(B, 1));
        assert_eq!(fences.next_reset(start + 10 * SECOND, B), None);
    }
}
