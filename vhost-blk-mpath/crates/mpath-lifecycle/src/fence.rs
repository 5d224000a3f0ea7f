//! Decides: a fence lifts.
//! Decides: a Cross-Controller Reset is asked for, and over which path (`next_reset`).
//!
//! The fences of ended associations. Unanswered writes of such an association are held until its controller can
//! execute none of them any more. The first of these events lifts the fence:
//!
//! * a Cross-Controller Reset (Base 2.3, 5.4.3) over another path succeeds;
//! * the controller closes all I/O connections after the host has ended them, having promised (`drain-fence`) to execute
//!   everything it has received first: a confirmed [`ControllerShutdown`](crate::ControllerShutdown);
//! * the [`fence_time`](nvme_tcp::host::ControllerInfo::fence_time) has passed since the last socket was closed.

use std::collections::{BTreeMap, VecDeque};

use monotonic::{Duration, Instant};
use mpath_core::PathId;
use nvme_tcp::host::CrossResetOutcome;
use nvme_tcp::wire::ControllerInstance;

use crate::AssociationId;

/// How long one controller may take for a Cross-Controller Reset before another controller is asked.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);

/// The event that lifted a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiftedBy {
    /// A Cross-Controller Reset over this path.
    CrossReset(PathId),
    /// The controller has executed everything and closed its connections.
    Drain,
    /// The fence time has passed.
    Time,
    /// The association needed no fence, because it ended in order.
    OrderlyEnd,
}

/// A lifted fence. Nothing sent under the association can change data any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiftedFence {
    /// The association.
    pub of: AssociationId,
    /// The event that lifted the fence.
    pub by: LiftedBy,
    /// How long the fence was held.
    pub after: Duration,
}

/// A fence that is not lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldFence {
    /// The association.
    pub of: AssociationId,
    /// When the fence began.
    pub begun: Instant,
    /// When time lifts the fence. `None` while its sockets are half-closed.
    pub lifts_at: Option<Instant>,
    /// Whether a Cross-Controller Reset over another path may lift the fence earlier.
    pub may_be_reset: bool,
}

/// An association that has ended, as its fence needs it.
#[derive(Debug, Clone, Copy)]
pub struct EndedAssociation {
    /// The association.
    pub of: AssociationId,
    /// Nothing sent on it can be executed any more, so it needs no fence.
    pub is_clean: bool,
    /// How long its controller may execute commands after the last socket was closed.
    pub fence_time: Duration,
    /// The controller, for a Cross-Controller Reset; `None` if it reports no instance.
    pub instance: Option<ControllerInstance>,
    /// The sending sides of its I/O sockets are shut down and the sockets still open. [`Fences::sockets_closed`] follows.
    pub is_half_closed: bool,
}

/// The fences of one subsystem, and the live associations over which controllers can be reset.
#[derive(Debug, Default)]
pub struct Fences {
    held: Vec<Fence>,
    /// By path.
    resetters: BTreeMap<PathId, Resetter>,
    lifted: VecDeque<LiftedFence>,
}

#[derive(Debug)]
struct Fence {
    ended: EndedAssociation,
    begun: Instant,
    /// `None` while its sockets are half-closed.
    lifts_at: Option<Instant>,
    /// The latest association of each path that was asked to reset the controller.
    asked: BTreeMap<PathId, AssociationId>,
    /// The path that was asked last and has not answered, and how long to wait for it.
    asking: Option<(PathId, Instant)>,
}

impl Fence {
    /// Whether this association's controller may be asked to reset the controller of the fence.
    fn may_ask(&self, resetter: AssociationId) -> bool {
        let is_new = self.asked.get(&resetter.path) != Some(&resetter);
        self.ended.instance.is_some() && self.asking.is_none() && is_new
    }
}

/// A live association over which other controllers can be reset.
#[derive(Debug)]
struct Resetter {
    id: AssociationId,
    /// The fence for which the controller was asked.
    under_way: Option<AssociationId>,
}

impl Fences {
    /// Begins the fence of an association. Its sockets are closed, except for those that are half-closed. The fence of an
    /// association that has ended in order is lifted at once.
    pub fn begin(&mut self, now: Instant, ended: EndedAssociation) {
        if ended.is_clean {
            let lifted = LiftedFence { of: ended.of, by: LiftedBy::OrderlyEnd, after: Duration::ZERO };
            return self.lifted.push_back(lifted);
        }
        let lifts_at = (!ended.is_half_closed).then(|| now + ended.fence_time);
        self.held.push(Fence { ended, begun: now, lifts_at, asked: BTreeMap::new(), asking: None });
        self.handle_timeout(now);
    }

    /// Records that the half-closed sockets are closed. Unless the controller has `executed` everything it received, the
    /// fence time counts from now.
    pub fn sockets_closed(&mut self, now: Instant, of: AssociationId, executed: bool) {
        if executed {
            return self.lift(now, of, LiftedBy::Drain);
        }
        for fence in self.held.iter_mut().filter(|fence| fence.ended.of == of) {
            fence.lifts_at = Some(now + fence.ended.fence_time);
        }
        self.handle_timeout(now);
    }

    /// Adds a live association over which other controllers can be reset.
    pub fn offer_resets(&mut self, id: AssociationId) {
        self.resetters.insert(id.path, Resetter { id, under_way: None });
    }

    /// Removes the association of this path. A fence that waits for an answer over this path asks another path at once.
    pub fn withdraw_resets(&mut self, path: PathId) {
        self.resetters.remove(&path);
        self.held.iter_mut().for_each(|fence| fence.asking = fence.asking.filter(|(asked, _)| *asked != path));
    }

    /// The controller to be reset next over this path; [`reset_answered`](Self::reset_answered) must follow. `None`
    /// if there is none, or if a reset is under way: a controller does one at a time. Each fence asks one association
    /// at a time, and each association once.
    pub fn next_reset(&mut self, now: Instant, path: PathId) -> Option<ControllerInstance> {
        let resetter = self.resetters.get_mut(&path).filter(|resetter| resetter.under_way.is_none())?;
        let fence = self.held.iter_mut().find(|fence| fence.may_ask(resetter.id))?;
        fence.asked.insert(path, resetter.id);
        fence.asking = Some((path, now + ATTEMPT_MAX));
        resetter.under_way = Some(fence.ended.of);
        fence.ended.instance
    }

    /// Whether [`next_reset`](Self::next_reset) would return a controller for this path.
    #[must_use]
    pub fn has_reset(&self, path: PathId) -> bool {
        let resetter = self.resetters.get(&path).filter(|resetter| resetter.under_way.is_none());
        resetter.is_some_and(|resetter| self.held.iter().any(|fence| fence.may_ask(resetter.id)))
    }

    /// Records the outcome of the reset over this path; `None` if the controller was not asked after all. A late answer
    /// counts too, because the request names the controller that was reset.
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

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_fence = |fence: &Fence| [fence.lifts_at, fence.asking.map(|(_, until)| until)];
        self.held.iter().flat_map(of_fence).flatten().min()
    }

    /// Lifts the fences that are due, and stops waiting for late answers.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |fence: &Fence| fence.lifts_at.is_some_and(|at| at <= now);
        while let Some(due) = self.held.iter().find(|fence| is_due(fence)) {
            self.lift(now, due.ended.of, LiftedBy::Time);
        }
        self.held.iter_mut().for_each(|fence| fence.asking = fence.asking.filter(|(_, until)| now < *until));
    }

    /// The next fence that was lifted.
    pub fn poll_lifted(&mut self) -> Option<LiftedFence> {
        self.lifted.pop_front()
    }

    /// The fences that are not lifted, the oldest first.
    pub fn held(&self) -> impl Iterator<Item = HeldFence> {
        let may_be_reset = |fence: &Fence| {
            fence.asking.is_some() || self.resetters.values().any(|resetter| fence.may_ask(resetter.id))
        };
        self.held.iter().map(move |fence| HeldFence {
            of: fence.ended.of,
            begun: fence.begun,
            lifts_at: fence.lifts_at,
            may_be_reset: may_be_reset(fence),
        })
    }

    /// Whether the association has a fence.
    #[must_use]
    pub fn is_held(&self, of: AssociationId) -> bool {
        self.held.iter().any(|fence| fence.ended.of == of)
    }

    /// Whether any ended association of this path has a fence, or a lifted fence that was not polled yet.
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
                lifted.push_back(LiftedFence { of, by, after: now - fence.begun });
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

    fn ended(of: AssociationId, instance: ControllerInstance) -> EndedAssociation {
        EndedAssociation {
            of,
            is_clean: false,
            fence_time: 10 * SECOND,
            instance: Some(instance),
            is_half_closed: false,
        }
    }

    /// What lifted each fence, and how long after its beginning.
    fn lifted(fences: &mut Fences) -> Vec<(AssociationId, LiftedBy, Duration)> {
        std::iter::from_fn(|| fences.poll_lifted()).map(|LiftedFence { of, by, after }| (of, by, after)).collect()
    }

    #[test]
    fn time_lifts_each_fence_of_a_path_separately() {
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
        assert!(fences.holds(A), "the lifted fence was not polled yet");
        assert_eq!(lifted(&mut fences).len(), 1);
        assert!(!fences.holds(A) && fences.next_timeout().is_none());
    }

    #[test]
    fn an_orderly_end_needs_no_fence() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        fences.offer_resets(id(B, 1));
        fences.begin(start, EndedAssociation { is_clean: true, ..ended(id(A, 1), LOST) });
        assert!(!fences.is_held(id(A, 1)) && fences.next_reset(start, B).is_none());
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::OrderlyEnd, Duration::ZERO)]);
    }

    #[test]
    fn half_closed_sockets_lift_the_fence_or_begin_its_time() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        for epoch in [1, 2] {
            fences.begin(start, EndedAssociation { is_half_closed: true, ..ended(id(A, epoch), LOST) });
        }
        fences.handle_timeout(start + 100 * SECOND);
        assert!(fences.is_held(id(A, 1)) && fences.next_timeout().is_none());
        fences.sockets_closed(start + 3 * SECOND, id(A, 1), true);
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::Drain, 3 * SECOND)]);
        fences.sockets_closed(start + 5 * SECOND, id(A, 2), false);
        assert_eq!(fences.next_timeout(), Some(start + 15 * SECOND));
        fences.begin(start + 6 * SECOND, EndedAssociation { is_half_closed: true, ..ended(id(B, 1), OTHER) });
        fences.offer_resets(id(C, 1));
        let held = |of, begun, lifts_at| HeldFence { of, begun, lifts_at, may_be_reset: true };
        let expected = [held(id(A, 2), start, Some(start + 15 * SECOND)), held(id(B, 1), start + 6 * SECOND, None)];
        assert_eq!(fences.held().collect::<Vec<_>>(), expected);
        fences.withdraw_resets(C);
        assert!(fences.held().all(|fence| !fence.may_be_reset));
        fences.sockets_closed(start + 7 * SECOND, id(B, 1), true);
        assert_eq!(lifted(&mut fences).len(), 1);
        // The drain comes too late.
        fences.handle_timeout(start + 15 * SECOND);
        fences.sockets_closed(start + 15 * SECOND, id(A, 2), true);
        assert_eq!(lifted(&mut fences), [(id(A, 2), LiftedBy::Time, 15 * SECOND)]);
    }

    #[test]
    fn the_first_successful_reset_counts_and_no_association_is_asked_twice() {
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
    fn a_silent_or_lost_path_is_passed_over() {
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
        // The late answer is about the same controller.
        fences.reset_answered(start + 3 * SECOND, B, Some(CrossResetOutcome::Done));
        assert_eq!(lifted(&mut fences), [(id(A, 1), LiftedBy::CrossReset(B), 3 * SECOND)]);
        // The other answer then lifts nothing, and does not count for the next fence.
        fences.begin(start + 3 * SECOND, ended(id(B, 5), OTHER));
        fences.reset_answered(start + 4 * SECOND, C, Some(CrossResetOutcome::Done));
        assert!(lifted(&mut fences).is_empty() && fences.is_held(id(B, 5)));
        assert_eq!(fences.next_reset(start + 4 * SECOND, C), Some(OTHER));
    }

    #[test]
    fn a_lifted_fence_asks_no_path() {
        let (mut fences, start) = (Fences::default(), Instant::now());
        fences.begin(start, ended(id(A, 1), LOST));
        fences.begin(start, EndedAssociation { instance: None, ..ended(id(A, 2), LOST) });
        fences.handle_timeout(start + 10 * SECOND);
        fences.offer_resets(id(B, 1));
        assert_eq!(fences.next_reset(start + 10 * SECOND, B), None);
    }
}
