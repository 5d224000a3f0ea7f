//! `burst-credit-drr`: burst credit within a budget.
//!
//! * Cost of a request: its bytes and `io-cost`, so that flows of different sizes are compared.
//! * Each time a flow goes from idle (nothing queued, nothing in flight) to active it is given credit for what the service could have done meanwhile:
//!   `fair`, its part by the weights of the disks, whose flows divide it, of the time in which it was idle or within what is fair, and `burst`, `rho` of
//!   all the time by the number of flows that live on it. Both are bounded by [`BurstCreditDrr::budget`]. Where `rho` is no less than `share`, so that
//!   all that bursts may have is given away, each flow gets the whole budget: `share` is what bounds them.
//! * Tiers: first while `fair` is left, second while `burst` is left, then normal until the next idle. What goes in the second tier costs
//!   `fair` too, so that who always asks for more than is fair is not in the first one for some requests of each burst.
//! * The upper tiers go before the normal one as long as the [`super::allowance`] between them lasts: while something waits in the normal tier
//!   they get `share` of any second ([`super::last_second`]), and a saved-up burst that holds it back for `gap` at the most, by work and by the clock.
//!   The first tier may overdraw the allowance: it is the second one that makes up for that.
//! * A flow in the second tier that has had no turn for `gap`, because the first tier has work all the time, goes to the normal one.
//! * Within a tier: deficit round-robin; in the second one bursts go whole, and the one first that would be over first if all had their parts
//!   ([`super::rings`]).
//! * Bursts that have had their share of the last second pause three times in each, and have that much more in between.
//!
//! Source: ours, worked out by simulation, with changes since. Credits and the allowance between the tiers count work
//! ([`super::capacity`]) where the first version counted time by an estimated rate: under load the two are the same, but for the error of
//! the estimate. `burst` is divided among the flows that spend it and not among all sparse ones, so that many flows within
//! their fair share do not dilute it. `gap` is the knob where the first version had a bucket of 50 ms. `share` holds in any second, where it held
//! in the mean. And `fair` is not earned by time in the lower tiers: flows that are kept waiting there, as all ask for more than there is, would be in
//! the first one by that, and others starve behind them.

use std::time::{Duration, Instant};

use super::allowance::{Allowance, Bounds};
use super::capacity::Capacity;
use super::census::{Census, Seen};
use super::last_second::{LastSecond, WHOLE};
use super::turns::Part;
use super::{About, Dispatched, Rule, SchedulerSpec, Tier, by_flow, by_index};
use crate::{DiskId, FlowId, Param};

const MS: Duration = Duration::from_millis(1);

pub(super) const ABOUT: About = About {
    name: "burst-credit-drr",
    description: "bursts of sparse flows go first within a budget; busy flows keep a share of the service",
    params: &[
        Param::ratio(
            "rho",
            (0, 1000),
            750,
            "service given as burst credit beyond the fair share; as much as `share`, or more: the whole `budget` for each burst; 0 holds every flow to its fair share and one burst",
        ),
        Param::ratio("share", (100, 950), 740, "most of the service that bursts get while busy flows wait"),
        Param::time(
            "gap",
            (MS, Duration::from_secs(10)),
            Duration::from_millis(120),
            "longest time bursts hold busy flows back",
        ),
        Param::time(
            "budget",
            (MS, Duration::from_secs(10)),
            Duration::from_millis(200),
            "largest burst, as time of the service",
        ),
        Param::whole("io-cost", "bytes", (512, 1 << 20), 16384, "cost of a request beside its bytes"),
    ],
    build: |now, spec| Box::new(BurstCreditDrr::new(now, spec)),
};

/// What a flow begins with, and the least and largest budget, in requests of mean cost. The largest is a full virtqueue.
const START_IOS: u64 = 8;
const MAX_IOS: u64 = 256;
/// No interval between two idle moments of a flow counts for more work than this, so that products fit.
const MAX_WORK: u64 = 1 << 50;

#[derive(Debug)]
struct BurstCreditDrr {
    knobs: Knobs,
    flows: Vec<Option<Credit>>,
    capacity: Capacity,
    /// What the service does in `budget`, in `gap` and in a second, as of its last measurement.
    in_budget: u64,
    in_gap: u64,
    in_second: u64,
    /// How many spent burst credit lately.
    spenders: Census,
    /// What the upper tiers may take from the normal one.
    allowance: Allowance,
    /// By disk: the same among its flows. It counts where limits keep the disk: what its upper tiers use up of these, none of its normal
    /// tier can have, which may not even stand in the ring.
    of_disk: Vec<Option<Allowance>>,
    last_second: LastSecond,
}

#[derive(Debug)]
struct Knobs {
    rho: u64,
    share: u64,
    gap: Duration,
    budget: Duration,
    io_cost: u64,
}

impl Knobs {
    fn new(spec: &SchedulerSpec) -> Self {
        Self {
            rho: spec.number("rho"),
            share: spec.number("share"),
            gap: spec.time("gap"),
            budget: spec.time("budget"),
            io_cost: spec.number("io-cost"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Credit {
    fair: i64,
    burst: i64,
    /// The work clock when it was active again for the last time.
    refilled_at: u64,
    /// Since when it has earned fair credit: it was idle, or sent nothing that went beyond.
    earns_since: u64,
    spender: Seen,
}

impl BurstCreditDrr {
    fn new(now: Instant, spec: &SchedulerSpec) -> Self {
        let knobs = Knobs::new(spec);
        let capacity = Capacity::new(now, knobs.io_cost + 4096);
        Self {
            knobs,
            flows: Vec::new(),
            capacity,
            in_budget: 0,
            in_gap: 0,
            in_second: 0,
            spenders: Census::new(now),
            allowance: Allowance::NONE,
            of_disk: Vec::new(),
            last_second: LastSecond::NEW,
        }
    }

    /// What a flow begins with of each kind, and the most that it may owe.
    fn start(&self) -> i64 {
        (START_IOS * self.capacity.mean()).cast_signed()
    }

    /// The most credit of a kind that a flow may have.
    fn budget(&self) -> i64 {
        let mean = self.capacity.mean();
        self.in_budget.clamp(START_IOS * mean, MAX_IOS * mean).cast_signed()
    }

    fn bounds(&self) -> Bounds {
        let Knobs { share, gap, .. } = self.knobs;
        // What may go before the normal tier at once, however long that takes.
        let least = 2 * START_IOS * self.capacity.mean();
        // It lasts for `gap` while the upper tiers get everything and earn `share` of it.
        let most = (self.in_gap.max(least).min(MAX_WORK) * (1000 - share)).cast_signed();
        Bounds { share: share.cast_signed() * (WHOLE / 1000), gap, least, most }
    }

    /// The service has been measured, or what depends on it has changed.
    fn refresh(&mut self) {
        self.in_budget = self.capacity.in_time(self.knobs.budget);
        self.in_gap = self.capacity.in_time(self.knobs.gap);
        self.in_second = self.capacity.in_time(Duration::from_secs(1)).min(MAX_WORK);
        // What was saved up when the service did more would be far more of it now.
        let budget = self.budget();
        for credit in self.flows.iter_mut().flatten() {
            credit.fair = credit.fair.clamp(-budget, budget);
            credit.burst = credit.burst.min(budget);
        }
    }

    fn credit_of(&self, flow: FlowId) -> Option<&Credit> {
        self.flows.get(usize::from(flow.0))?.as_ref()
    }
}

impl Rule for BurstCreditDrr {
    fn cost(&self, bytes: u32) -> u64 {
        u64::from(bytes) + self.knobs.io_cost
    }

    fn activated(&mut self, now: Instant, flow: FlowId, part: Part) {
        let (budget, clock) = (self.budget(), self.capacity.clock());
        let start = self.start();
        let credit = by_flow(&mut self.flows, flow).get_or_insert(Credit {
            fair: start,
            burst: start,
            refilled_at: clock,
            earns_since: clock,
            spender: Seen::default(),
        });
        let [work, earning] = [credit.refilled_at, credit.earns_since].map(|since| (clock - since).min(MAX_WORK));
        (credit.refilled_at, credit.earns_since) = (clock, clock);
        credit.fair = (credit.fair + part.of(earning).cast_signed()).min(budget);
        credit.burst = if self.knobs.rho >= self.knobs.share {
            // All that bursts may have is given away, so it is `share` that bounds them.
            budget
        } else {
            let burst = work * self.knobs.rho / 1000 / self.spenders.sum(now);
            (credit.burst + burst.cast_signed()).min(budget)
        };
    }

    fn tier(&self, flow: FlowId) -> Tier {
        match self.credit_of(flow) {
            Some(credit) if credit.fair > 0 => Tier::First,
            Some(credit) if credit.burst > 0 => Tier::Second,
            _ => Tier::Normal,
        }
    }

    fn order(&self) -> [Tier; 3] {
        if self.allowance.is_overdrawn() {
            Tier::NORMAL_FIRST
        } else if self.allowance.is_spent() || self.last_second.pauses {
            Tier::SECOND_LAST
        } else {
            Tier::ALL
        }
    }

    fn owes_normal(&self, disk: DiskId) -> bool {
        self.of_disk.get(disk.index()).is_some_and(|of| of.is_some_and(|of| of.is_spent()))
    }

    fn interrupted(&mut self, disk: DiskId, all: bool) {
        if let Some(of) = by_index(&mut self.of_disk, disk.index()) {
            of.interrupted();
        }
        if all {
            self.allowance.interrupted();
        }
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.knobs.gap)
    }

    fn worth(&self, cost: u64) -> u32 {
        u32::try_from(cost / self.capacity.mean()).unwrap_or(u32::MAX).max(1)
    }

    fn demote(&mut self, flow: FlowId) {
        if let Some(credit) = by_flow(&mut self.flows, flow) {
            credit.burst = 0;
        }
    }

    fn dispatched(&mut self, sent: &Dispatched) {
        self.capacity.dispatched(sent.cost);
        let (clock, cost) = (self.capacity.clock(), sent.cost.cast_signed());
        let most_owed = self.start().max(cost);
        if let Some(credit) = by_flow(&mut self.flows, sent.flow) {
            if sent.tier != Tier::Normal {
                credit.fair = (credit.fair - cost).max(-most_owed);
            }
            if sent.tier != Tier::First {
                credit.earns_since = clock;
            }
            if sent.tier == Tier::Second {
                credit.burst -= cost;
                self.spenders.mark(sent.now, &mut credit.spender, 1);
            }
        }
        let (bounds, upper) = (self.bounds(), sent.tier != Tier::Normal);
        let second = self.in_second;
        let rate = self.last_second.rate(clock, second, bounds.share);
        // A flow that was idle within a second is no busy one: what it gets in the normal tier, as its credit is used up, is a burst's too.
        let is_burst = upper || self.credit_of(sent.flow).is_some_and(|credit| clock - credit.refilled_at < second);
        if is_burst && sent.normal_waits {
            self.last_second.take(sent.cost);
        }
        let before = self.allowance.level();
        let of_disk = by_index(&mut self.of_disk, sent.disk.index());
        let of_disk = of_disk.get_or_insert(self.allowance);
        of_disk.dispatched(sent.now, sent.cost, upper && sent.normal_of_disk_waits, &bounds);
        self.allowance.dispatched(sent.now, sent.cost, upper && sent.normal_waits, &Bounds { share: rate, ..bounds });
        // What bursts do not take in a pause is not saved up. It is had between pauses.
        if self.last_second.pauses {
            self.allowance.cap(before.max(1000 * cost));
        }
    }

    fn completed(&mut self, now: Instant, bytes: u32) {
        if self.capacity.completed(now, self.cost(bytes)) {
            self.refresh();
        }
    }

    fn backlog(&mut self, now: Instant, waits: bool, idle: bool) {
        self.capacity.backlog(now, waits);
        if waits && idle {
            let bounds = self.bounds();
            self.allowance.fill(&bounds);
            self.of_disk.iter_mut().flatten().for_each(|of| of.fill(&bounds));
        }
    }

    fn covered(&self, flow: FlowId) -> u64 {
        self.credit_of(flow).map_or(0, |credit| (credit.fair.max(0) + credit.burst.max(0)).cast_unsigned())
    }

    /// In requests of mean cost.
    fn credit(&self, flow: FlowId) -> Option<u64> {
        self.credit_of(flow)?;
        Some(self.covered(flow) / self.capacity.mean())
    }

    fn configure(&mut self, spec: &SchedulerSpec) {
        self.knobs = Knobs::new(spec);
        self.refresh();
    }
}

#[cfg(test)]
mod tests;
