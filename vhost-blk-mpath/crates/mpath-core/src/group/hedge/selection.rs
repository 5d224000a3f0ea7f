//! Decides: a read is hedged, and over which path.
//!
//! Selection of the reads that are hedged, and of their paths.

use monotonic::{Duration, Instant};

use super::{HEDGE_COST, Hedge, HedgeState};
use crate::group::Group;
use crate::inject::Verdict;
use crate::timers::Due;
use crate::{Action, Direction, OpClass, PathId, Tag};

impl Group {
    /// The next hedge to be sent.
    pub(in crate::group) fn poll_hedge(&mut self, now: Instant) -> Option<Action> {
        loop {
            let at = match self.hedges.find(|hedge| hedge.state == HedgeState::Released) {
                Some(at) => at,
                None if self.hedges.next_timeout().is_none_or(|at| now < at) => return None,
                None => {
                    let (tag, waited) = self.next_to_hedge(now)?;
                    self.hedge(now, tag, waited);
                    continue;
                }
            };
            let Hedge { path, tag, .. } = self.hedges.under_way[at];
            self.set_hedge(at, Some(HedgeState::Issued));
            self.paths[path.index()].hedges += 1;
            self.hedges.counts.sent += 1;
            self.watch_issue(now, path);
            return Some(Action::Hedge { path, tag });
        }
    }

    /// The next read that has taken too long, and the quantile that it has exceeded. Each attempt is returned once.
    fn next_to_hedge(&mut self, now: Instant) -> Option<(Tag, Duration)> {
        self.hedges.look_at = None;
        let least = self.hedges.latencies.least(now)?;
        for path in &self.paths {
            let live = path.association.map(|association| association.epoch);
            let mut next = path.in_flight[OpClass::Read.index()].oldest();
            while let Some(tag) = next {
                let request = &mut self.requests[tag];
                next = request.newer();
                let mut due = request.bound_at + least;
                if due <= now {
                    let open = !request.may_hedge || request.recalled || Some(request.epoch) != live;
                    let waited = if open { None } else { self.hedges.latencies.of(now, request.io.bytes) };
                    let Some(waited) = waited else { continue };
                    due = request.bound_at + waited;
                    if due <= now {
                        request.may_hedge = false;
                        // More reads may be due now.
                        self.hedges.look_at = Some(now);
                        return Some((tag, waited));
                    }
                } else {
                    // The requests after this one are younger.
                    next = None;
                }
                self.hedges.look_at = Some(self.hedges.look_at.map_or(due, |at| at.min(due)));
            }
        }
        None
    }

    /// Sends a read a second time, if a path for it exists.
    fn hedge(&mut self, now: Instant, tag: Tag, waited: Duration) {
        let request = &self.requests[tag];
        let (of, bytes) = (request.path, request.io.bytes);
        let eligible = self.disks[request.io.disk.index()].eligible & !request.known().delayed_paths(now);
        let Some(id) = self.path_for_hedge(now, eligible & !of.bit(), bytes, waited) else { return };
        self.hedges.budget -= HEDGE_COST;
        let path = &mut self.paths[id.index()];
        let epoch = path.association.expect("an eligible path is live").epoch;
        let injections = path.injections.as_mut();
        let verdict = injections.map_or(Verdict::Pass, |i| i.decide(now, Direction::Request, OpClass::Read, bytes));
        let mut hedge =
            Hedge { tag, bytes, waited, path: id, epoch, began: now, fails: false, state: HedgeState::Injected };
        match verdict {
            Verdict::Pass => hedge.state = HedgeState::Released,
            // The hedge fails at once. The driver never gets it.
            Verdict::Delay { delay, .. } if delay.is_zero() => return,
            Verdict::Delay { delay, error } => {
                hedge.fails = error.is_some();
                self.timers.set(now, delay, Due::Hedge(id, tag));
            }
            Verdict::Stall => {}
        }
        self.take_room(id, bytes);
        self.requests[tag].history.paths |= id.bit();
        self.hedges.under_way.push(hedge);
    }

    /// The path of `others` with the lowest recent latency for reads of this size. Paths with unknown latency come
    /// last.
    fn path_for_hedge(&mut self, now: Instant, others: u64, bytes: u32, waited: Duration) -> Option<PathId> {
        let mut left = others & !self.suspects & !self.reserved_paths;
        let mut best = None;
        while left != 0 {
            let id = PathId(left.trailing_zeros() as u16);
            left &= left - 1;
            let path = &mut self.paths[id.index()];
            if !path.has_room(self.config.window, bytes) {
                continue;
            }
            // For a path that it does not use, the policy has an estimate from probes.
            let typical =
                path.read_latencies.of(now, bytes).or_else(|| self.policies.estimate(id, OpClass::Read).latency);
            if typical.is_none_or(|typical| typical <= waited) {
                let key = (typical.unwrap_or(Duration::MAX), id);
                best = Some(best.map_or(key, |best| key.min(best)));
            }
        }
        best.map(|(_, id)| id)
    }
}
