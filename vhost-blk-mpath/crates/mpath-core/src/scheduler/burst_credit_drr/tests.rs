//! The rule by itself, and in a scheduler.

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
