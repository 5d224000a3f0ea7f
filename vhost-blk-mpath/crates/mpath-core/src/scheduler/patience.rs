//! How long flows wait for those that go before them, with limits and without.

use std::num::NonZeroU64;
use std::time::Duration;

use super::testing::Test;
use super::{Limits, Tier};
use crate::{DiskId, FlowId};

const MS: Duration = Duration::from_millis(1);
const BYTES: u32 = 4096;

#[test]
fn a_stuck_burst_gives_way_to_a_turn_in_the_normal_tier() {
    let mut t = Test::busy(&[], 1000);
    (0..16).for_each(|_| t.push(1, 10_000, BYTES));
    t.take(8);
    // Its fair credit is spent. From now on new flows ask for all that can be had, and more.
    let mut taken = 0;
    for flow in 2..500 {
        (0..2).for_each(|_| t.push(flow, 20_000, BYTES));
        taken += t.take(2).into_iter().filter(|tag| *tag == 10_000).count();
        t.now += MS;
        assert!(flow > 120 || taken == 0, "the first tier goes first");
    }
    assert_eq!(taken, 8);
}

/// The target pauses, or a path is lost: nobody had a turn.
#[test]
fn a_burst_that_nobody_goes_before_keeps_its_credit() {
    let mut t = Test::busy(&[], 1000);
    (0..16).for_each(|_| t.push(1, 10_000, BYTES));
    t.take(8);
    let tier = |t: &Test| t.scheduler.stats(t.now).flows[1].tier;
    assert_eq!(tier(&t), Tier::Second);
    t.now += 200 * MS;
    t.scheduler.handle_timeout(t.now);
    assert_eq!(tier(&t), Tier::Second);
}

/// Another disk on the same paths, without a limit.
#[derive(Clone, Copy, Debug)]
enum Beside {
    Nothing,
    /// A flow that keeps so many requests outstanding: with one it is in the first tier, with many in the normal one.
    Flow(u32),
    /// One burst after the other.
    Bursts,
}

const BESIDE: [Beside; 4] = [Beside::Nothing, Beside::Flow(1), Beside::Flow(32), Beside::Bursts];
/// Flows of the other disk.
const OTHER: u16 = 50;
const OTHERS: u16 = 10;

/// A flow of a limited disk while new flows of it ask for all that can be had: the longest time without a turn, and how many it had.
fn beside_new_flows(t: &mut Test, flow: u16, time: Duration, beside: Beside) -> (Duration, u32) {
    let (end, mut last, mut longest, mut turns) = (t.now + time, t.now, Duration::ZERO, 0);
    let (mut new, mut left, mut others) = (99, 0, [0_u32; OTHERS as usize]);
    while t.now < end {
        if left == 0 {
            (new, left) = (new + 1, 2);
            (0..2).for_each(|_| t.push(new, new.into(), BYTES));
        }
        for (id, outstanding) in (OTHER..).zip(&mut others) {
            let more = match beside {
                Beside::Flow(depth) if id == OTHER => depth - *outstanding,
                Beside::Bursts if *outstanding == 0 => 100,
                _ => 0,
            };
            (0..more).for_each(|_| t.push_of(1, id, id.into(), BYTES));
            *outstanding += more;
        }
        let tag = t.wait().expect("all have something to send");
        if tag == u32::from(flow) {
            longest = longest.max(t.now - last);
            (last, turns) = (t.now, turns + 1);
        }
        t.now += MS / 5;
        t.complete(tag as u16, BYTES);
        match tag as u16 {
            id if id == new => left -= 1,
            id @ OTHER..100 => others[usize::from(id - OTHER)] -= 1,
            _ => {}
        }
    }
    (longest.max(t.now - last), turns)
}

const LIMITS: Limits = Limits { iops: NonZeroU64::new(500), bytes_per_s: None, burst: Duration::ZERO };

/// The service does 5000 a second, so that what it does in `gap` takes 1.2 s of the limit.
#[test]
fn under_a_limit_busy_flows_are_held_back_for_the_gap_and_no_longer() {
    for beside in BESIDE {
        let mut t = Test::busy(&[], 20_000);
        for _ in 0..5000 {
            t.take(1);
            t.now += MS / 5;
            t.complete(0, BYTES);
        }
        t.limits[0].set(t.now, LIMITS);
        let (longest, turns) = beside_new_flows(&mut t, 0, Duration::from_secs(3), beside);
        assert!(longest <= 130 * MS, "{beside:?}: {longest:?}");
        // In the long run 390, see `beside`; another disk has saved something up, too.
        let least = if matches!(beside, Beside::Nothing) { 360 } else { 320 };
        assert!((least..=440).contains(&turns), "{beside:?}: {turns} of 1500");
    }
}

#[test]
fn under_a_limit_a_stuck_burst_gives_way_too() {
    for beside in BESIDE {
        let mut t = Test::busy(&[], 1000);
        (0..1000).for_each(|_| t.push(1, 1, BYTES));
        t.take(8);
        t.limits[0].set(t.now, LIMITS);
        let tier = |t: &Test| t.scheduler.stats(t.now).flows[1].tier;
        assert_eq!(tier(&t), Tier::Second);
        let (longest, turns) = beside_new_flows(&mut t, 1, Duration::from_secs(1), beside);
        // Bursts of another disk that are smaller go first, and that is not what it loses patience with.
        let most = if matches!(beside, Beside::Bursts) { 160 } else { 150 };
        assert!(tier(&t) == Tier::Normal && longest <= most * MS, "{beside:?}: {longest:?}");
        assert!(turns > 40, "{beside:?}: {turns} of 500: in the normal tier it has half of that one's share");
    }
}

/// While there was no path nobody went before it.
#[test]
fn a_burst_does_not_lose_its_patience_while_there_is_no_path() {
    for blocked in [true, false] {
        let mut t = Test::busy(&[], 1000);
        (0..16).for_each(|_| t.push(1, 1, BYTES));
        t.take(8);
        (0..8).for_each(|_| t.push(2, 2, BYTES));
        t.take(1);
        t.scheduler.set_blocked(t.now, DiskId(0), blocked);
        assert_eq!(t.take(1).is_empty(), blocked);
        t.now += 200 * MS;
        t.scheduler.set_blocked(t.now, DiskId(0), false);
        t.take(1);
        t.scheduler.handle_timeout(t.now);
        let tier = t.scheduler.stats(t.now).flows[1].tier;
        assert_eq!(tier, if blocked { Tier::Second } else { Tier::Normal });
    }
}

/// The same of what holds busy flows back: without it the rest of what was saved up would be lost.
#[test]
fn time_without_a_path_holds_nobody_back() {
    for blocked in [true, false] {
        let mut t = Test::busy(&[], 1000);
        for _ in 0..500 {
            t.take(1);
            t.now += MS;
            t.complete(0, BYTES);
        }
        (1..20).for_each(|flow| (0..8).for_each(|_| t.push(flow, 1, BYTES)));
        assert_eq!(t.take(20), [1; 20]);
        t.scheduler.set_blocked(t.now, DiskId(0), blocked);
        assert_eq!(t.take(1).is_empty(), blocked);
        t.now += 200 * MS;
        t.scheduler.set_blocked(t.now, DiskId(0), false);
        let first = t.take(20);
        assert_eq!(first == [1; 20], blocked, "{first:?}");
    }
}

/// One that has just come waits for as long as the others did.
#[test]
fn each_burst_has_patience_of_its_own() {
    let mut t = Test::busy(&[], 1000);
    let tier = |t: &Test, id: u16| {
        let flows = t.scheduler.stats(t.now).flows;
        flows.iter().find(|flow| flow.flow == FlowId(id)).map(|flow| flow.tier)
    };
    let stuck = |t: &mut Test, flow: u16| {
        (0..16).for_each(|_| t.push(flow, flow.into(), BYTES));
        while tier(t, flow) == Some(Tier::First) {
            t.take(1);
        }
    };
    stuck(&mut t, 1);
    for ms in 0..250 {
        if ms == 60 {
            stuck(&mut t, 2);
        }
        (0..2).for_each(|_| t.push(100 + ms, 100, BYTES));
        t.take(2);
        for (flow, since) in [(1, 0), (2, 60)] {
            if (since + 1..since + 118).contains(&ms) {
                assert_eq!(tier(&t, flow), Some(Tier::Second), "flow {flow} after {ms} ms");
            } else if ms > since + 124 {
                assert_eq!(tier(&t, flow), Some(Tier::Normal), "flow {flow} after {ms} ms");
            }
        }
        t.now += MS;
    }
}

/// Bursts that wait for each other are not stuck, however long a round of them takes.
#[test]
fn bursts_that_take_turns_keep_their_patience() {
    const FLOWS: u16 = 200;
    let mut t = Test::new("burst-credit-drr", &[]);
    for flow in 0..FLOWS {
        (0..16).for_each(|_| t.push(flow, 0, BYTES));
    }
    t.take(8 * usize::from(FLOWS));
    for ms in 0..FLOWS - 20 {
        if ms.is_multiple_of(10) {
            t.push(FLOWS + ms, 1, BYTES);
        }
        t.take(1);
        t.now += MS;
    }
    let flows = t.scheduler.stats(t.now).flows;
    assert!(flows.iter().take(FLOWS.into()).all(|flow| flow.queued == 0 || flow.tier == Tier::Second), "{flows:?}");
}

/// A gap of less than a service would leave bursts nothing.
#[test]
fn sixteen_requests_go_before_busy_flows_however_slow_the_service_is() {
    let mut t = Test::busy(&[("gap", "1ms")], 100);
    (0..16).for_each(|_| t.push(1, 1, BYTES));
    let gone: Vec<u32> = std::iter::repeat_with(|| {
        t.now += 10 * MS;
        t.take(1)[0]
    })
    .take(20)
    .collect();
    assert!(gone[..15].iter().all(|flow| *flow == 1), "{gone:?}");
}
