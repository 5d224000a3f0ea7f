//! What the flows of a disk get of its limits while another disk, which has none, is busy over the same paths.

use std::num::NonZeroU64;
use std::time::Duration;

use super::Limits;
use super::testing::Test;
use crate::DiskId;

const MS: Duration = Duration::from_millis(1);
const BYTES: u32 = 4096;
/// The one that is always busy, of the limited disk and of the other one. Those from [`BURSTS`] on send bursts.
const BUSY: u16 = 0;
const OTHER: u16 = 50;
const BURSTS: u16 = 100;

fn limits(iops: u64, burst: Duration) -> Limits {
    Limits { iops: NonZeroU64::new(iops), bytes_per_s: None, burst }
}

/// One busy flow with requests of this size, of a service that has been measured, and perhaps the other disk's.
fn busy(bytes: u32, beside: bool) -> Test {
    let mut t = Test::new("burst-credit-drr", &[]);
    (0..100).for_each(|_| t.push(BUSY, BUSY.into(), bytes));
    for _ in 0..2000 {
        t.take(1);
        t.now += MS / 5;
        t.complete(BUSY, bytes);
        t.push(BUSY, BUSY.into(), bytes);
    }
    if beside {
        (0..100).for_each(|_| t.push_of(1, OTHER, OTHER.into(), BYTES));
    }
    t
}

/// The busy flow's part of the limited disk's requests in percent, and its longest wait, while so many flows send bursts of four time and again. The
/// service does 5000 a second, the limit allows 500.
fn beside_bursts(mut t: Test, bytes: u32, bursts: u16) -> (f64, Duration) {
    t.take(30);
    t.limits[0].set(t.now, limits(500, 100 * MS));
    let mut outstanding = vec![0; usize::from(bursts)];
    let (mut of_busy, mut all, mut last, mut longest) = (0, 0, t.now, Duration::ZERO);
    let (begin, end) = (t.now + 2000 * MS, t.now + 8000 * MS);
    while t.now < end {
        for (flow, outstanding) in (BURSTS..).zip(&mut outstanding) {
            if *outstanding == 0 {
                (0..4).for_each(|_| t.push(flow, flow.into(), BYTES));
                *outstanding = 4;
            }
        }
        let flow = t.wait().expect("all have something to send") as u16;
        t.now += MS / 5;
        t.complete(flow, if flow == BUSY { bytes } else { BYTES });
        match flow {
            OTHER => t.push_of(1, OTHER, OTHER.into(), BYTES),
            BUSY => t.push(BUSY, BUSY.into(), bytes),
            burst => outstanding[usize::from(burst - BURSTS)] -= 1,
        }
        if t.now > begin && flow != OTHER {
            all += 1;
            of_busy += u32::from(flow == BUSY);
        }
        if flow == BUSY {
            longest = longest.max(if last > begin { t.now - last } else { Duration::ZERO });
            last = t.now;
        }
    }
    (100.0 * f64::from(of_busy) / f64::from(all), longest)
}

#[test]
fn a_busy_flow_of_a_limited_disk_has_its_part_however_many_send_bursts() {
    for beside in [false, true] {
        for bursts in [2, 8, 31] {
            let (percent, longest) = beside_bursts(busy(BYTES, beside), BYTES, bursts);
            assert!((25.5..26.5).contains(&percent), "{bursts}, beside another: {beside}: {percent} %");
            assert!(longest <= 20 * MS, "{bursts}, beside another: {beside}: {longest:?}");
        }
    }
}

/// It owes for its size, but not to others than those of its disk.
#[test]
fn a_busy_flow_of_a_limited_disk_is_not_held_up_for_large_requests() {
    for bursts in [2, 31] {
        let (_, longest) = beside_bursts(busy(1 << 20, true), 1 << 20, bursts);
        assert!(longest <= 130 * MS, "{bursts}: {longest:?}");
    }
}

/// More than one request may go between two looks at the limit.
#[test]
fn a_limit_that_allows_several_at_once_owes_the_busy_flow_its_part_of_each() {
    for (per_ms, burst) in [(5, 100 * MS), (20, 100 * MS), (20, 1000 * MS)] {
        let mut t = busy(BYTES, true);
        t.limits[0].set(t.now, limits(per_ms * 1000, burst));
        let (mut of_busy, mut all, mut waiting, mut new) = (0, 0, 0, BURSTS);
        for ms in 0..3000 {
            t.now += MS;
            for _ in 0..50 {
                while waiting < 60 {
                    new += 1;
                    (0..4).for_each(|_| t.push(new, new.into(), BYTES));
                    waiting += 4;
                }
                let Some(&flow) = t.take(1).first() else { break };
                t.complete(flow as u16, BYTES);
                match flow as u16 {
                    OTHER => t.push_of(1, OTHER, OTHER.into(), BYTES),
                    BUSY => t.push(BUSY, BUSY.into(), BYTES),
                    _ => waiting -= 1,
                }
                if ms >= 2000 && flow as u16 != OTHER {
                    all += 1;
                    of_busy += u32::from(flow as u16 == BUSY);
                }
            }
        }
        let percent = 100.0 * f64::from(of_busy) / f64::from(all);
        assert!((25.5..26.5).contains(&percent), "{per_ms} a ms, {burst:?}: {percent} %");
    }
}

#[test]
fn a_stuck_burst_loses_patience_whatever_paths_another_disk_loses() {
    let mut t = Test::busy(&[], 20_000);
    (0..1000).for_each(|_| t.push(1, 1, BYTES));
    t.take(8);
    let (mut last, mut longest) = (t.now, Duration::ZERO);
    for ms in 0..1000 {
        if ms % 50 == 0 {
            t.scheduler.set_blocked(t.now, DiskId(1), ms % 100 == 0);
        }
        t.push(BURSTS + ms, (BURSTS + ms).into(), BYTES);
        if let Some(&flow) = t.take(1).first() {
            t.complete(flow as u16, BYTES);
            if flow == 1 {
                longest = longest.max(t.now - last);
                last = t.now;
            }
        }
        t.now += MS;
    }
    longest = longest.max(t.now - last);
    assert!(longest <= 150 * MS, "{longest:?}");
}

/// Five requests a millisecond, one after the other. Of each flow there is its disk, how many requests it has outstanding and whether it begins again only
/// when all of them are over. The longest time in which each had no turn, after `from`, and its turns.
fn serve(t: &mut Test, flows: &[(u16, u32, bool)], from: Duration, time: Duration) -> Vec<(Duration, u32)> {
    serve_sized(t, flows, from, time, |_| BYTES)
}

fn serve_sized(
    t: &mut Test,
    flows: &[(u16, u32, bool)],
    from: Duration,
    time: Duration,
    bytes: impl Fn(u16) -> u32,
) -> Vec<(Duration, u32)> {
    let (begin, end) = (t.now + from, t.now + time);
    let mut outstanding = vec![0; flows.len()];
    let mut last = vec![begin; flows.len()];
    let mut of_each = vec![(Duration::ZERO, 0); flows.len()];
    while t.now < end {
        for (flow, (disk, count, is_burst)) in (0..).zip(flows) {
            let more = if *is_burst && outstanding[usize::from(flow)] > 0 {
                0
            } else {
                count - outstanding[usize::from(flow)]
            };
            (0..more).for_each(|_| t.push_of(*disk, flow, flow.into(), bytes(flow)));
            outstanding[usize::from(flow)] += more;
        }
        let flow = t.wait().expect("all have something to send") as usize;
        t.now += MS / 5;
        t.complete(flow as u16, bytes(flow as u16));
        outstanding[flow] -= 1;
        if t.now > begin {
            let (longest, turns) = of_each[flow];
            of_each[flow] = (longest.max(t.now - last[flow]), turns + 1);
            last[flow] = t.now;
        }
    }
    of_each
}

const SECOND: Duration = Duration::from_secs(1);

/// Its flows are passed by bursts that are over sooner, again and again.
#[test]
fn a_disk_with_many_flows_has_as_much_as_one_with_few() {
    let mut t = Test::new("burst-credit-drr", &[]);
    let flows = [vec![(0, 32, true); 4], vec![(1, 32, true); 64]].concat();
    let of_each = serve(&mut t, &flows, SECOND, 8 * SECOND);
    let turns = |of: &[(Duration, u32)]| of.iter().map(|(_, turns)| turns).sum::<u32>();
    let (few, many) = (turns(&of_each[..4]), turns(&of_each[4..]));
    assert!((0.8..1.25).contains(&(f64::from(few) / f64::from(many))), "{few} and {many}");
    let longest = of_each.iter().map(|(longest, _)| *longest).max();
    // A round of all bursts takes 0.82 s. Beside another disk one flow at a time has a turn before its time.
    assert!(longest <= Some(850 * MS), "{longest:?}");
}

/// Whatever the weights are, and however large the bursts. What is new, and busy, is in the second tier for as long as it has credit.
#[test]
fn nobody_waits_for_long_in_the_second_tier() {
    for count in [16, 128] {
        let mut t = Test::new("burst-credit-drr", &[]);
        t.scheduler.set_weight(t.now, DiskId(0), 100);
        t.scheduler.set_weight(t.now, DiskId(1), 1);
        let flows = [vec![(0, 16, true); 8], vec![(1, count, true)], vec![(1, 32, false); 4]].concat();
        // In the first tier they have turns by weight.
        let of_each = serve(&mut t, &flows, SECOND, 4 * SECOND);
        let longest = of_each.iter().map(|(longest, _)| *longest).max();
        assert!(longest <= Some(200 * MS), "{count}: {of_each:?}");
    }
}

/// A turn for who has waited for too long goes by no weight, so many flows would have as many.
#[test]
fn turns_before_their_time_are_few_for_a_light_disk_with_many_flows() {
    let mut t = Test::new("burst-credit-drr", &[]);
    t.scheduler.set_weight(t.now, DiskId(0), 1000);
    t.scheduler.set_weight(t.now, DiskId(1), 1);
    let flows = [vec![(0, 32, true); 4], vec![(1, 32, true); 128]].concat();
    let of_each = serve(&mut t, &flows, 4 * SECOND, 8 * SECOND);
    let light: u32 = of_each[4..].iter().map(|(_, turns)| turns).sum();
    assert!(light <= 600, "{light} of 20000");
}

/// Nor by cost: a large request waits for longer, as it is worth more.
#[test]
fn who_waits_with_a_large_request_is_late_later() {
    let turns_of_light = |bytes: u32| {
        let mut t = Test::new("burst-credit-drr", &[]);
        t.scheduler.set_weight(t.now, DiskId(0), 1000);
        t.scheduler.set_weight(t.now, DiskId(1), 1);
        let flows = [vec![(0, 32, true); 4], vec![(1, 32, true)]].concat();
        let of_each = serve_sized(&mut t, &flows, 4 * SECOND, 8 * SECOND, |flow| if flow == 4 { bytes } else { BYTES });
        of_each[4].1
    };
    let [small, large] = [BYTES, 1 << 20].map(turns_of_light);
    assert!(small >= 20 && large <= small / 5, "{small} and {large} turns in 4 s");
}

/// The service is measured by what the limit lets go. A burst has `share` of it.
#[test]
fn under_a_limit_from_the_start_bursts_go_first() {
    let mut t = Test::new("burst-credit-drr", &[]);
    t.limits[0].set(t.now, limits(1000, MS));
    let flows = [vec![(0, 32, true); 2], vec![(0, 32, false); 8]].concat();
    let of_each = serve(&mut t, &flows, SECOND, 4 * SECOND);
    let bursts: u32 = of_each[..2].iter().map(|(_, turns)| turns).sum();
    assert!((2000..2260).contains(&bursts), "{bursts} of 3000");
}
