//! Hedged reads: a read that takes longer than nearly all others is sent a second time over another path. The first
//! answer counts (Dean and Barroso, "The Tail at Scale", CACM 56/2, 2013).
//!
//! * **When**: the read has been on its path for longer than the configured quantile of recent reads of its size.
//! * **Where**: the best other path with room, unless its known latency exceeds the time already waited.
//! * **How many**: a share of the reads. Unused hedges are saved, up to [`SAVED_MAX`]. Each attempt of a read is
//!   hedged once at most, and [`UNDER_WAY_MAX`] hedges are under way at most.
//!
//! A hedge reads into memory of the driver. If the hedge answers first, the read is recalled from its path, as from a
//! suspect path. The data are moved to the guest's memory only when the path of the read no longer uses that memory. If
//! the read ends first, the hedge is dropped. A failed hedge is dropped too, and the read goes on as if there had been
//! no hedge.
//!
//! ```text
//!            ┌───────── delayed by the injection ──────────┐            the read is back
//!  Injected ─┴→ Released ─→ Issued ─┬→ Answered ─┬→ Won ────────────────→ Adopted ─→ (Adopt)
//!                             │     └────────────┘    │ it succeeded
//!                             │ the read ended        ↓
//!                             └──────────────────→ ToDrop ─→ (DropHedge) ─→ Dropped ─→ gone
//! ```
//!
//! A hedge takes up room on its path, and its path owes the answer, because window and silence must count every
//! command. While an injection holds back a hedge or its answer, the path does not owe that answer. A hedge is no I/O
//! of the guest: only its own counters count it.

mod selection;

use monotonic::{Duration, Instant};

use super::Group;
use crate::inject::Verdict;
use crate::quantiles::Quantiles;
use crate::requests::State;
use crate::timers::Due;
use crate::{Action, Direction, DiskId, Epoch, HedgeCounts, Io, MAX_HEDGE_BYTES, Op, OpClass, Outcome, PathId, Tag};

/// Settings of hedged reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hedging {
    /// A read is hedged when it takes longer than this quantile of recent reads, in thousandths.
    pub quantile_permille: u16,
    /// The most hedges, in thousandths of the reads.
    pub budget_permille: u16,
}

/// The most hedges under way in a group.
const UNDER_WAY_MAX: usize = 8;
/// The most unused hedges that are saved.
const SAVED_MAX: u32 = 8;
/// The fewest latencies from which a quantile is computed.
const SAMPLES_MIN: u64 = 100;
/// The cost of one hedge in the budget, which counts thousandths.
const HEDGE_COST: u32 = 1000;

/// The hedges of a group, with their budget.
#[derive(Debug)]
pub(super) struct Hedges {
    setting: Option<Hedging>,
    /// Latencies of the guest's reads on all paths.
    latencies: Quantiles,
    /// Hedges that may be sent now, in thousandths.
    budget: u32,
    /// When to look for reads to hedge: when the next one is due, or earlier.
    look_at: Option<Instant>,
    under_way: Vec<Hedge>,
    counts: HedgeCounts,
}

#[derive(Clone, Copy, Debug)]
struct Hedge {
    /// The read that is hedged.
    tag: Tag,
    bytes: u32,
    /// The quantile that the read had exceeded.
    waited: Duration,
    path: PathId,
    epoch: Epoch,
    began: Instant,
    /// The injection of the path lets it fail.
    fails: bool,
    state: HedgeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HedgeState {
    /// Delayed or stalled by the injection of its path.
    Injected,
    /// Ready for the driver.
    Released,
    /// With the driver.
    Issued,
    /// Answered, with this success. The injection of its path delays or stalls the answer.
    Answered(bool),
    /// The hedge has the data. The read is recalled from its path; `asked`: the driver knows of the recall.
    Won { asked: bool },
    /// The read is back from its path: the data can be moved.
    Adopted,
    /// The driver has to drop the hedge. `on_path`: the driver still has it on its path.
    ToDrop { on_path: bool },
    /// The driver was told to drop the hedge, and has yet to answer.
    Dropped,
}

impl HedgeState {
    /// Whether the hedge takes up room on its path.
    fn is_on_path(self) -> bool {
        match self {
            Self::Injected | Self::Released | Self::Issued | Self::Answered(_) | Self::Dropped => true,
            Self::ToDrop { on_path } => on_path,
            Self::Won { .. } | Self::Adopted => false,
        }
    }
}

impl Hedges {
    pub(super) fn new(setting: Option<Hedging>) -> Self {
        Self {
            setting,
            latencies: Quantiles::new(setting.map_or(0, |setting| setting.quantile_permille), SAMPLES_MIN),
            budget: 0,
            look_at: None,
            under_way: Vec::new(),
            counts: HedgeCounts::default(),
        }
    }

    pub(super) fn counts(&self) -> HedgeCounts {
        self.counts
    }

    /// Counts a submitted read, which adds to the budget.
    pub(super) fn submitted(&mut self, op: Op) {
        if let Some(setting) = self.setting.filter(|_| op == Op::Read) {
            self.counts.reads += 1;
            self.budget = (self.budget + u32::from(setting.budget_permille)).min(SAVED_MAX * HEDGE_COST);
        }
    }

    /// Takes note of a request that was bound. Returns whether the request may be hedged.
    pub(super) fn bound(&mut self, now: Instant, io: &Io) -> bool {
        let may = self.setting.is_some() && may_hedge(io);
        if may {
            let least = self.latencies.least(now).map(|least| now + least);
            self.look_at = self.look_at.into_iter().chain(least).min();
        }
        may
    }

    /// When to look for reads to hedge, if the budget allows a hedge.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.look_at.filter(|_| self.budget >= HEDGE_COST && self.under_way.len() < UNDER_WAY_MAX)
    }

    /// Whether a hedge of this read is under way.
    pub(super) fn has(&self, tag: Tag) -> bool {
        self.find(|hedge| hedge.tag == tag && hedge.state.is_on_path()).is_some()
    }

    fn find(&self, which: impl Fn(&Hedge) -> bool) -> Option<usize> {
        self.under_way.iter().position(which)
    }
}

fn may_hedge(io: &Io) -> bool {
    io.op == Op::Read && io.bytes <= MAX_HEDGE_BYTES
}

impl Group {
    /// Changes how slow reads are hedged; `None`: not at all. A change of the settings resets latencies and budget.
    /// Hedges under way end as usual.
    pub fn set_hedging(&mut self, hedging: Option<Hedging>) {
        if self.hedges.setting != hedging {
            let (under_way, counts) = (std::mem::take(&mut self.hedges.under_way), self.hedges.counts);
            self.hedges = Hedges { under_way, counts, ..Hedges::new(hedging) };
        }
    }

    /// Settings of hedged reads.
    #[must_use]
    pub fn hedging(&self) -> Option<Hedging> {
        self.hedges.setting
    }

    /// Takes the driver's answer to an [`Action::Hedge`], or to an [`Action::DropHedge`] of an unanswered hedge.
    pub fn hedged(&mut self, now: Instant, path: PathId, tag: Tag, outcome: Outcome) {
        let of_driver = [HedgeState::Issued, HedgeState::ToDrop { on_path: true }, HedgeState::Dropped];
        let issued = |hedge: &Hedge| (hedge.path, hedge.tag) == (path, tag) && of_driver.contains(&hedge.state);
        let found = self.hedges.find(issued).expect("an answer follows a hedge");
        let Hedge { epoch, bytes, .. } = self.hedges.under_way[found];
        self.watch_outcome(now, path, epoch, outcome, None);
        // The sign of life may have ended other hedges, or made this one useless.
        let at = self.hedges.find(issued).expect("the driver has this hedge");
        let state = self.hedges.under_way[at].state;
        if state != HedgeState::Issued {
            let next = (state != HedgeState::Dropped).then_some(HedgeState::ToDrop { on_path: false });
            self.set_hedge(at, next);
            return;
        }
        let success = outcome == Outcome::Success;
        let answered = !matches!(outcome, Outcome::Lost { .. } | Outcome::GivenUp);
        let injections = self.paths[path.index()].injections.as_mut().filter(|_| answered);
        match injections.map_or(Verdict::Pass, |i| i.decide(now, Direction::Response, OpClass::Read, bytes)) {
            Verdict::Pass => self.end_hedge(now, at, success),
            Verdict::Delay { delay, error } if delay.is_zero() => self.end_hedge(now, at, success && error.is_none()),
            Verdict::Delay { delay, error } => {
                self.hedges.under_way[at].fails = error.is_some();
                self.set_hedge(at, Some(HedgeState::Answered(success)));
                self.timers.set(now, delay, Due::Hedge(path, tag));
            }
            Verdict::Stall => self.set_hedge(at, Some(HedgeState::Answered(success))),
        }
    }

    /// Moves a hedge to its next state; `None` removes it.
    fn set_hedge(&mut self, at: usize, next: Option<HedgeState>) {
        let hedge = &mut self.hedges.under_way[at];
        let (path, bytes, before) = (hedge.path, hedge.bytes, hedge.state);
        match next {
            Some(next) => hedge.state = next,
            None => drop(self.hedges.under_way.swap_remove(at)),
        }
        if before.is_on_path() && !next.is_some_and(HedgeState::is_on_path) {
            self.give_room_back(path, bytes);
        }
    }

    /// Handles the answer to a hedge. If the hedge has the data, the read is recalled from its path.
    fn end_hedge(&mut self, now: Instant, at: usize, success: bool) {
        if !success {
            self.set_hedge(at, Some(HedgeState::ToDrop { on_path: false }));
            return;
        }
        let Hedge { tag, bytes, path, began, .. } = self.hedges.under_way[at];
        self.paths[path.index()].read_latencies.record(now, bytes, now - began);
        let request = &mut self.requests[tag];
        assert!(!request.recalled, "a recalled read has no hedge");
        request.recalled = true;
        let (of, state) = (request.path, request.state);
        self.set_hedge(at, Some(HedgeState::Won { asked: state != State::InFlight }));
        if state != State::InFlight {
            self.take_from_injection(now, of, tag);
        }
    }

    /// Takes back a read that the driver does not have: the injection of its path keeps it, or has just released it.
    fn take_from_injection(&mut self, now: Instant, path: PathId, tag: Tag) {
        let released = self.released.iter().position(|(on, of, _)| (*on, *of) == (path, tag));
        let state = &mut self.requests[tag].state;
        if released.is_none() && *state != State::Injected {
            self.recall_from_injection(now, path, tag);
            return;
        }
        *state = State::InFlight;
        match released {
            Some(at) => drop(self.released.remove(at)),
            None => self.timers.forget_injected(path, tag),
        }
        self.end_attempt(now, path, tag, Outcome::Recalled { abandoned: false }, false);
    }

    /// Called when a read is about to leave its path with this outcome. Returns whether the hedge of the read has the
    /// data, so that the read succeeds.
    pub(super) fn adopt_hedge(&mut self, now: Instant, tag: Tag, outcome: Outcome) -> bool {
        let Some(at) = self.hedges.find(|hedge| hedge.tag == tag) else { return false };
        let Hedge { path, bytes, waited, began, state, .. } = self.hedges.under_way[at];
        match (state, outcome) {
            (HedgeState::Won { .. }, Outcome::Success) => false,
            (HedgeState::Won { .. }, _) => {
                self.set_hedge(at, Some(HedgeState::Adopted));
                true
            }
            // The hedge is too late. Its latency is unknown, but longer than the time so far.
            (_, Outcome::Success) if state.is_on_path() && now - began > waited => {
                self.paths[path.index()].read_latencies.record(now, bytes, now - began);
                false
            }
            _ => false,
        }
    }

    /// Finishes a read that has come back from its path after its hedge won.
    pub(super) fn hedge_won(&mut self, tag: Tag) {
        let won = |hedge: &Hedge| hedge.tag == tag && hedge.state == HedgeState::Adopted;
        let at = self.hedges.find(won).expect("a hedge has won");
        self.paths[self.hedges.under_way[at].path.index()].hedges_won += 1;
        self.hedges.counts.won += 1;
        self.finish(tag, Ok(()));
    }

    /// Records the latency of a read of the guest.
    pub(super) fn record_read(&mut self, now: Instant, path: PathId, io: &Io, latency: Duration) {
        if self.hedges.setting.is_some() && may_hedge(io) {
            self.hedges.latencies.record(now, io.bytes, latency);
            self.paths[path.index()].read_latencies.record(now, io.bytes, latency);
        }
    }

    /// Drops the hedge of a read: the read has left its path, or is recalled from it.
    pub(super) fn drop_hedge(&mut self, tag: Tag) {
        let Some(at) = self.hedges.find(|hedge| hedge.tag == tag) else { return };
        let Hedge { path, state, .. } = self.hedges.under_way[at];
        match state {
            HedgeState::Injected | HedgeState::Released => self.set_hedge(at, None),
            HedgeState::Issued => self.set_hedge(at, Some(HedgeState::ToDrop { on_path: true })),
            HedgeState::Answered(_) | HedgeState::Won { .. } => {
                self.set_hedge(at, Some(HedgeState::ToDrop { on_path: false }));
            }
            HedgeState::Adopted | HedgeState::ToDrop { .. } | HedgeState::Dropped => {}
        }
        if matches!(state, HedgeState::Injected | HedgeState::Answered(_)) {
            self.timers.forget_hedge(path, tag);
        }
    }

    /// The next action about a hedge that is over. Call this before a request is finished, because a hedge ends before
    /// its request.
    #[inline]
    pub(super) fn poll_hedge_end(&mut self) -> Option<Action> {
        if self.hedges.under_way.is_empty() { None } else { self.poll_end_of_hedges() }
    }

    fn poll_end_of_hedges(&mut self) -> Option<Action> {
        let at = self.hedges.find(|hedge| {
            matches!(hedge.state, HedgeState::Won { asked: false } | HedgeState::Adopted | HedgeState::ToDrop { .. })
        })?;
        let Hedge { tag, path, state, .. } = self.hedges.under_way[at];
        match state {
            HedgeState::Adopted => {
                self.set_hedge(at, None);
                Some(Action::Adopt { path, tag })
            }
            HedgeState::ToDrop { on_path } => {
                self.set_hedge(at, on_path.then_some(HedgeState::Dropped));
                Some(Action::DropHedge { path, tag })
            }
            _ => {
                self.set_hedge(at, Some(HedgeState::Won { asked: true }));
                let request = &self.requests[tag];
                let (path, epoch) = (request.path, request.epoch);
                // A lost path gives its requests back without a recall.
                let live = self.paths[path.index()].association.is_some_and(|live| live.epoch == epoch);
                if live { Some(Action::Recall { path, tag }) } else { self.poll_end_of_hedges() }
            }
        }
    }

    /// Releases a hedge or its answer that the path's injection has kept. A hedge that was to fail does so only while
    /// the injection is `in_force`.
    pub(super) fn release_hedge(&mut self, now: Instant, path: PathId, tag: Tag, in_force: bool) {
        let at = self
            .hedges
            .find(|hedge| (hedge.path, hedge.tag) == (path, tag))
            .expect("a timer or an injection has only live hedges");
        let Hedge { fails, state, .. } = self.hedges.under_way[at];
        let fails = fails && in_force;
        match state {
            HedgeState::Injected => self.set_hedge(at, (!fails).then_some(HedgeState::Released)),
            HedgeState::Answered(success) => self.end_hedge(now, at, success && !fails),
            other => unreachable!("an injection cannot keep a hedge in state {other:?}"),
        }
    }

    /// Releases the hedges that the injection of a path has kept, because the injection has ended.
    pub(super) fn release_hedges(&mut self, now: Instant, path: PathId) {
        let held =
            |hedge: &Hedge| hedge.path == path && matches!(hedge.state, HedgeState::Injected | HedgeState::Answered(_));
        while let Some(at) = self.hedges.find(held) {
            let tag = self.hedges.under_way[at].tag;
            self.timers.forget_hedge(path, tag);
            self.release_hedge(now, path, tag, false);
        }
    }

    /// Forgets hedges that have not been sent, because the path gets nothing more.
    pub(super) fn forget_unsent_hedges(&mut self, path: PathId, of: impl Fn(DiskId) -> bool) {
        let unsent =
            |hedge: &Hedge| hedge.path == path && matches!(hedge.state, HedgeState::Injected | HedgeState::Released);
        while let Some(at) = self.hedges.find(|hedge| unsent(hedge) && of(self.requests[hedge.tag].io.disk)) {
            self.drop_hedge(self.hedges.under_way[at].tag);
        }
    }

    /// Ends every hedge on a lost association that has not brought its data.
    pub(super) fn lose_hedges(&mut self, path: PathId) {
        self.forget_unsent_hedges(path, |_| true);
        while let Some(at) = self.hedges.find(|hedge| hedge.path == path && hedge.state.is_on_path()) {
            let tag = self.hedges.under_way[at].tag;
            self.timers.forget_hedge(path, tag);
            let told = self.hedges.under_way[at].state == HedgeState::Dropped;
            self.set_hedge(at, (!told).then_some(HedgeState::ToDrop { on_path: false }));
        }
    }
}
