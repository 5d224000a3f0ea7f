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
//! * Within a tier: deficit round-robin; in the second one bursts go whole, and the one first that would be over first if all had equal parts
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
            "service given as burst credit beyond the fair share; 0 holds every flow to its fair share and one burst",
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

    /// In requests of mean cost.
    fn credit(&self, flow: FlowId) -> Option<u64> {
        let credit = self.credit_of(flow)?;
        Some((credit.fair.max(0) + credit.burst.max(0)).cast_unsigned() / self.capacity.mean())
    }

    fn configure(&mut self, spec: &SchedulerSpec) {
        self.knobs = Knobs::new(spec);
        self.refresh();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proptest::prelude::*;

    use super::*;
    use crate::scheduler::Limits;
    use crate::scheduler::testing::{Test, io};
    use crate::{Io, Op, SchedulerKind};

    const BYTES: u32 = 4096;

    /// While something waits in the normal tier, and limits keep nothing.
    fn sent(now: Instant, flow: FlowId, tier: Tier, cost: u64) -> Dispatched {
        let disk = DiskId(0);
        Dispatched { now, flow, disk, tier, cost, normal_waits: true, normal_of_disk_waits: true }
    }

    #[test]
    fn what_goes_past_a_normal_tier_without_a_path_is_owed_within_bounds() {
        let now = Instant::now();
        let mut rule = BurstCreditDrr::new(now, &SchedulerKind::BurstCreditDrr.into());
        rule.activated(now, FlowId(0), Part::ALL);
        let sent = sent(now, FlowId(0), Tier::First, 20_480);
        (0..100_000).for_each(|_| rule.dispatched(&sent));
        assert_eq!(rule.order(), Tier::NORMAL_FIRST);
        let paid = (1_i64..=100_000).find(|_| {
            rule.dispatched(&Dispatched { tier: Tier::Normal, ..sent });
            rule.order() != Tier::NORMAL_FIRST
        });
        let bound = (rule.bounds().most + 20_480 * 1000) / (20_480 * rule.knobs.share.cast_signed()) + 2;
        assert!(paid.is_some_and(|paid| paid <= bound), "{paid:?} requests, {bound} at most");
    }

    /// As when a limit is set on a disk that was busy. Tags are even for flow 0, which is always busy, and odd for flow 1.
    #[test]
    fn what_was_saved_up_of_a_fast_service_is_worth_nothing_more_of_a_slow_one() {
        let mut t = Test::new("burst-credit-drr", &[]);
        (0..64).for_each(|n| t.push(0, 2 * n, BYTES));
        let serve = |t: &mut Test, time: Duration| {
            let tag = t.take(1)[0];
            t.now += time;
            t.complete((tag % 2) as u16, BYTES);
            if tag.is_multiple_of(2) {
                t.push(0, tag, BYTES);
            }
            tag % 2
        };
        // 100,000 a second; flow 1 asks for something every 50 ms, and saves up.
        for n in 0..50_000 {
            if n % 5000 == 0 {
                t.push(1, 1, BYTES);
            }
            serve(&mut t, Duration::from_micros(10));
        }
        let saved = t.scheduler.stats(t.now).flows[1].credit.expect("it has credit");
        assert!(saved > 100, "{saved}");
        // One every 10 ms from now on, and both have plenty to send.
        (0..1000).for_each(|_| t.push(1, 1, BYTES));
        let mut served: Vec<u32> = (0..40).map(|_| serve(&mut t, Duration::from_millis(10))).collect();
        let left = t.scheduler.stats(t.now).flows[1].credit;
        assert!(left <= Some(40), "{left:?}, 200 ms of the service are 20 requests");
        served.extend((0..360).map(|_| serve(&mut t, Duration::from_millis(10))));
        let of_first = served.iter().filter(|flow| **flow == 0).count();
        let longest = served.split(|flow| *flow == 0).map(<[u32]>::len).max();
        assert!(of_first >= 100 && longest <= Some(64), "{of_first} of 400, {longest:?} in a row without");
    }

    #[test]
    fn a_new_flow_has_eight_of_either_credit() {
        let mut t = Test::busy(&[("share", "0.95")], 100);
        (1000..1100).for_each(|tag| t.push(1, tag, BYTES));
        let taken = t.take(16);
        assert!(taken.iter().all(|tag| *tag >= 1000), "{taken:?}");
        let second = t.take(20).into_iter().filter(|tag| *tag >= 1000).count();
        assert_eq!(second, 10, "then in turn");
    }

    /// A limit opens when nothing is in service, time and again: that is no moment in which nobody was kept waiting.
    #[test]
    fn under_a_limit_nobody_starves() {
        const SERVICE: Duration = Duration::from_micros(200);
        for (params, burst) in [(&[][..], 0), (&[], 1), (&[("rho", "0")], 0)] {
            let mut t = Test::new("burst-credit-drr", params);
            let limits = Limits { iops: NonZeroU64::new(500), bytes_per_s: None, burst: Duration::from_secs(burst) };
            let start = t.now;
            // One flow that is always busy, and two that have one request at a time.
            (0..32).for_each(|_| t.push(0, 0, 4096));
            (1..3).for_each(|flow| t.push(flow, flow.into(), 4096));
            let (mut served, mut limited) = ([0_u32; 3], false);
            while t.now - start < Duration::from_secs(22) {
                if !limited && t.now - start >= Duration::from_secs(2) {
                    // The service is known by now.
                    t.limits[0].set(t.now, limits);
                    (served, limited) = ([0; 3], true);
                }
                let Some(&flow) = t.take(1).first() else {
                    t.now = t.scheduler.next_timeout().expect("the limit opens").max(t.now);
                    continue;
                };
                t.now += SERVICE;
                t.complete(flow as u16, 4096);
                served[flow as usize] += 1;
                t.push(flow as u16, flow, 4096);
            }
            let all: u32 = served.iter().sum();
            assert!(served.iter().all(|&of| of > all / 5), "{params:?}, burst of {burst} s: {served:?}");
        }
    }

    #[test]
    fn busy_flows_get_their_share_while_bursts_last() {
        let mut t = Test::busy(&[("share", "0.75")], 1000);
        let (mut burst, mut all) = (0_u32, 0_u32);
        for tag in 0..400 {
            // New flows, each with a burst that is its own.
            (0..8).for_each(|_| t.push(1 + tag, 10_000, BYTES));
            all += 8;
            burst += t.take(8).into_iter().map(|tag| u32::from(tag == 10_000)).sum::<u32>();
        }
        let share = f64::from(burst) / f64::from(all);
        assert!((0.74..0.76).contains(&share), "{share}");
    }

    /// One request after the other, a millisecond each.
    fn serve(t: &mut Test, count: u32, flow: u16) {
        for _ in 0..count {
            assert_eq!(t.take(1).len(), 1);
            t.now += MS;
            t.complete(flow, BYTES);
        }
    }

    #[test]
    fn a_flow_that_comes_back_is_given_its_part_of_what_was_done() {
        // With as much `rho` as `share` it has the budget of 200 ms.
        for (rho, expected) in [("1", 242), ("0.9", 94), ("0", 42)] {
            let mut t = Test::busy(&[("rho", rho), ("share", "0.95"), ("gap", "1s")], 2000);
            serve(&mut t, 100, 0);
            (0..16).for_each(|_| t.push(1, 10_000, BYTES));
            serve(&mut t, 16, 1);
            // With its own these are 116 services: 52 by credit, as the other one has spent credit lately too, and the half of 100 by
            // fairness, as it has been idle for so long; of this it has used 8 in advance.
            serve(&mut t, 100, 0);
            (0..300).for_each(|_| t.push(1, 10_000, BYTES));
            let burst = t.take(300).into_iter().take_while(|tag| *tag == 10_000).count();
            assert!((expected - 2..=expected + 2).contains(&burst), "{rho}: {burst}");
        }
    }

    #[test]
    fn who_is_kept_waiting_in_the_lower_tiers_earns_no_fair_credit() {
        let now = Instant::now();
        let fair_after = |tier| {
            let mut rule = BurstCreditDrr::new(now, &SchedulerKind::BurstCreditDrr.into());
            rule.activated(now, FlowId(0), Part::ALL);
            (0..8).for_each(|_| rule.dispatched(&sent(now, FlowId(0), Tier::First, 20_480)));
            // Others are served meanwhile.
            (0..100).for_each(|_| rule.dispatched(&sent(now, FlowId(1), Tier::Normal, 20_480)));
            rule.dispatched(&sent(now, FlowId(0), tier, 20_480));
            rule.activated(now, FlowId(0), Part::ALL);
            rule.credit_of(FlowId(0)).unwrap().fair / 20_480
        };
        assert_eq!([Tier::First, Tier::Second, Tier::Normal].map(fair_after), [8, -1, 0]);
    }

    #[test]
    fn fair_credit_goes_first_when_bursts_have_had_their_share_and_has_its_bounds() {
        let mut t = Test::busy(&[], 5000);
        serve(&mut t, 500, 0);
        (0..1000).for_each(|_| t.push(1, 1, BYTES));
        let burst = (0..1000).position(|_| t.take(1) == [0]).unwrap();
        assert!((110..125).contains(&burst), "what is saved up, and no more: {burst}");
        // As much again, by new flows. Then busy ones have their part.
        let (mut first, mut all) = (None, 0);
        for turn in 0..2000 {
            let new = 10 + turn / 8;
            if turn % 8 == 0 {
                (0..8).for_each(|_| t.push(new, new.into(), BYTES));
            }
            let tag = t.take(1)[0];
            assert_ne!(tag, 1, "{turn}: the second tier makes up for it");
            if tag == 0 {
                first = first.or(Some(turn));
                all += 1;
            }
        }
        assert!(first.is_some_and(|turn| (95..125).contains(&turn)), "{first:?}");
        assert!((480..560).contains(&all), "{all} of 2000");
    }

    #[test]
    fn what_needs_no_path_costs_nobody_anything() {
        let mut t = Test::busy(&[], 1000);
        let credit = |t: &Test, flow: usize| t.scheduler.stats(t.now).flows[flow].credit;
        let flush = Io { op: Op::Flush, ..io(0, 1, 20_000, 0) };
        let before = (credit(&t, 0), t.scheduler.rule.order());
        for _ in 0..10_000 {
            t.scheduler.push_back(t.now, &flush, false);
            let (place, _) = t.shown().find(|(_, tag)| *tag == flush.tag).unwrap();
            t.scheduler.take(t.now, place);
            t.scheduler.finished(t.now, flush.flow, None);
        }
        assert_eq!((credit(&t, 0), t.scheduler.rule.order()), before);
        assert_eq!(credit(&t, 1), Some(16), "still as a new one");
        (0..8).for_each(|_| t.push(2, 10_000, BYTES));
        assert_eq!(t.take(8), [10_000; 8], "nobody's burst has to pay for them");
    }

    #[test]
    fn larger_requests_cost_more() {
        let mut t = Test::new("burst-credit-drr", &[]);
        (0..600).for_each(|_| t.push(0, 0, 48 << 10));
        (0..600).for_each(|_| t.push(1, 1, 0));
        // Of 64 and 16 KiB, with the part of each request: four to one.
        let small: u32 = t.take(500).into_iter().sum();
        assert!((390..=410).contains(&small), "{small}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn budgets_stay_within_bounds(
            events in prop::collection::vec((0..4_u16, 0..40_u32, 512..1_u32 << 20, 0..30_000_u64), 1..300),
        ) {
            // The last request a flow sends on credit may overdraw it.
            const LARGEST: i64 = (1 << 20) + 16_384;
            let mut now = Instant::now();
            let mut rule = BurstCreditDrr::new(now, &SchedulerKind::BurstCreditDrr.into());
            rule.backlog(now, true, true);
            let mut most_owed = LARGEST;
            for (flow, count, bytes, us) in events {
                let flow = FlowId(flow);
                now += Duration::from_micros(us);
                rule.activated(now, flow, Part::ALL);
                let (budget, credit) = (rule.budget(), *rule.credit_of(flow).unwrap());
                prop_assert!(credit.fair <= budget && credit.burst <= budget, "{credit:?} {budget}");
                for _ in 0..count {
                    let (tier, cost) = (rule.tier(flow), rule.cost(bytes));
                    most_owed = most_owed.max(rule.start());
                    rule.dispatched(&sent(now, flow, tier, cost));
                    let credit = *rule.credit_of(flow).unwrap();
                    prop_assert!(credit.fair >= -2 * most_owed && credit.burst > -LARGEST, "{credit:?} {most_owed}");
                    prop_assert!(rule.allowance.level() <= rule.bounds().most);
                    rule.completed(now, bytes);
                }
            }
        }
    }
}
