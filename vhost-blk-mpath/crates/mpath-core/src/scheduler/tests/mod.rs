//! Each scheduler by itself.

mod helpers;
mod limits;
mod random_requests;

use std::num::NonZeroU64;

use monotonic::Duration;

use super::{Limits, Place, SchedulerKind, Tier};
use crate::{DiskId, FlowId, Io, Op, Tag};
use helpers::{Test, io};

const BYTES: u32 = 4096;
const MS: Duration = Duration::from_millis(1);
/// Requests of a `burst-credit` burst, of a turn of it, and of a `published` burst.
const BURST: u32 = 256;
const TURN: u32 = 8;
const PUBLISHED: u32 = 64;

/// Queues `count` requests of a flow. The tag of each is the number of the flow.
fn fill(t: &mut Test, disk: u16, flow: u16, count: u32) {
    (0..count).for_each(|_| t.push_of(disk, flow, flow.into(), BYTES));
}

/// Serves everything, so that the flow is known and idle.
fn be_known(t: &mut Test, disk: u16, flow: u16) {
    fill(t, disk, flow, 1);
    while t.tags(1) != [u32::from(flow)] {}
    t.complete(flow);
}

impl Test {
    /// The flows that are served next, by tag.
    fn tags(&mut self, count: usize) -> Vec<u32> {
        let tags = self.take(count);
        assert_eq!(tags.len(), count, "as many wait");
        tags
    }

    /// How many of the next `of` requests are of this flow.
    fn count(&mut self, of: usize, flow: u32) -> usize {
        self.tags(of).into_iter().filter(|tag| *tag == flow).count()
    }
}

/// `burst-credit`, with flow 0 of the first disk bulk and full, and flow 1 known.
fn busy(params: &[(&str, &str)]) -> Test {
    let mut t = Test::new("burst-credit", params);
    fill(&mut t, 0, 0, 4000);
    be_known(&mut t, 0, 1);
    while t.tier(0) == Tier::Sparse {
        t.tags(1);
    }
    t
}

#[test]
fn fifo_flows_take_turns_and_keep_their_order() {
    let mut t = Test::new("fifo", &[]);
    for (flow, tag) in [(1, 10), (1, 11), (1, 12), (3, 30), (3, 31)] {
        t.push(flow, tag, BYTES);
    }
    assert_eq!(t.drain(), [10, 30, 11, 31, 12]);
}

#[test]
fn fifo_sizes_do_not_count() {
    let mut t = Test::new("fifo", &[]);
    for tag in 0..4 {
        t.push(0, tag, 1 << 20);
        t.push(1, 10 + tag, 512);
    }
    assert_eq!(t.drain(), [0, 10, 1, 11, 2, 12, 3, 13]);
}

/// A flow with one request at a time is idle for a moment between two requests.
#[test]
fn fifo_flows_with_one_request_at_a_time_do_not_escape_the_weight_of_their_disk() {
    const FLOWS: u16 = 16;
    let mut t = Test::new("fifo", &[]);
    fill(&mut t, 0, 0, 2000);
    (1..=FLOWS).for_each(|flow| fill(&mut t, 1, flow, 1));
    let mut of_the_one = 0;
    for _ in 0..1000 {
        let flow = t.tags(1)[0] as u16;
        t.now += MS;
        t.complete(flow);
        if flow == 0 {
            of_the_one += 1;
        } else {
            fill(&mut t, 1, flow, 1);
        }
    }
    assert!((450..=550).contains(&of_the_one), "{of_the_one}");
}

#[test]
fn published_lets_the_first_requests_of_an_idle_flow_go_first() {
    let mut t = Test::new("published", &[]);
    fill(&mut t, 0, 0, 100);
    t.tags(PUBLISHED as usize + 1);
    fill(&mut t, 0, 1, 100);
    assert_eq!(t.count(PUBLISHED as usize, 1), PUBLISHED as usize);
    assert_eq!(t.tags(4), [1, 0, 1, 0], "then in turn");
}

#[test]
fn published_credit_returns_only_when_nothing_is_in_flight() {
    let mut t = Test::new("published", &[]);
    fill(&mut t, 0, 0, 200);
    t.tags(PUBLISHED as usize);
    fill(&mut t, 0, 1, PUBLISHED);
    assert_eq!(t.count(PUBLISHED as usize, 1), PUBLISHED as usize);
    (1..PUBLISHED).for_each(|_| t.complete(1));
    fill(&mut t, 0, 1, 2);
    assert_eq!((t.tier(1), t.count(4, 1)), (Tier::Bulk, 2), "one is in flight: it takes turns");
    (0..3).for_each(|_| t.complete(1));
    fill(&mut t, 0, 1, 2);
    assert_eq!(t.tags(2), [1, 1], "it was idle");
}

#[test]
fn a_flow_that_was_idle_goes_first_until_it_has_sent_a_burst() {
    // The allowance leaves nothing for bulk.
    let mut t = busy(&[("share", "0.1"), ("gap", "10s")]);
    fill(&mut t, 0, 1, 2 * BURST);
    assert_eq!(t.count(BURST as usize, 1), BURST as usize);
    assert_eq!(t.tier(1), Tier::Bulk);
    assert_eq!(t.tags(6), [0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_new_flow_has_one_sparse_turn() {
    let mut t = busy(&[]);
    fill(&mut t, 0, 2, BURST);
    assert_eq!(t.count(TURN as usize, 2), TURN as usize);
    assert_eq!(t.tier(2), Tier::Bulk);
}

#[test]
fn a_flow_is_bulk_until_it_has_been_idle() {
    let mut t = busy(&[]);
    fill(&mut t, 0, 1, BURST);
    while t.tier(1) == Tier::Sparse {
        t.tags(1);
    }
    fill(&mut t, 0, 1, 1);
    assert_eq!(t.tier(1), Tier::Bulk, "all of it is in flight");
    while t.tags(1) != [1] {}
    (0..=BURST).for_each(|_| t.complete(1));
    fill(&mut t, 0, 1, 1);
    assert_eq!((t.tier(1), t.tags(1)), (Tier::Sparse, vec![1]));
}

/// Bursts without end, by flows that are idle after each burst.
#[test]
fn bursts_get_their_share_and_no_more() {
    let mut t = busy(&[("gap", "10s")]);
    let (mut of_bursts, mut left) = (0, 0);
    for at in 0..3000 {
        if left == 0 {
            fill(&mut t, 0, 1, 64);
            left = 64;
        }
        if t.tags(1) == [1] {
            left -= 1;
            of_bursts += u32::from(at >= 1000);
            if left == 0 {
                (0..64).for_each(|_| t.complete(1));
            }
        }
    }
    assert!((1490..=1500).contains(&of_bursts), "{of_bursts} of 2000, at most 1500");
}

#[test]
fn sparse_flows_have_their_fair_part_if_that_is_more_than_the_share() {
    const FLOWS: u16 = 9;
    let mut t = busy(&[("gap", "10s"), ("share", "0.1")]);
    let mut of_bulk = 0;
    (1..=FLOWS).for_each(|flow| be_known(&mut t, 0, flow));
    (1..=FLOWS).for_each(|flow| fill(&mut t, 0, flow, BURST));
    // The saved allowance lasts for a tenth of a burst.
    t.now += 10_000 * MS;
    for _ in 0..1500 {
        let flow = t.tags(1)[0] as u16;
        of_bulk += u32::from(flow == 0);
        assert!((1..=FLOWS).all(|flow| t.tier(flow) == Tier::Sparse));
    }
    assert!((140..=160).contains(&of_bulk), "{of_bulk} of 1500, a tenth is fair");
}

#[test]
fn bulk_that_was_passed_for_the_gap_has_a_turn() {
    let mut t = busy(&[("gap", "150ms")]);
    fill(&mut t, 0, 1, BURST);
    assert_eq!(t.tags(1), [1]);
    t.now += 149 * MS;
    assert_eq!(t.tags(1), [1]);
    t.now += MS;
    assert_eq!(t.tags(1), [0]);
    // The saved allowance is gone.
    assert_eq!(t.count(40, 0), 10);
}

/// The gap counts only while bulk waits.
#[test]
fn the_gap_starts_when_bulk_arrives() {
    let mut t = Test::new("burst-credit", &[]);
    be_known(&mut t, 0, 1);
    fill(&mut t, 0, 1, BURST);
    t.tags(10);
    t.now += 10_000 * MS;
    fill(&mut t, 0, 0, BURST);
    while t.tier(0) == Tier::Sparse {
        t.tags(1);
    }
    assert_eq!(t.count(20, 1), 20);
}

#[test]
fn sparse_flows_take_turns_of_a_thirty_second_of_a_burst() {
    let mut t = Test::new("burst-credit", &[]);
    (1..=2).for_each(|flow| be_known(&mut t, 0, flow));
    (1..=2).for_each(|flow| fill(&mut t, 0, flow, 32));
    let tags = t.tags(64);
    let turns: Vec<usize> = tags.chunk_by(|one, next| one == next).map(<[u32]>::len).collect();
    assert!(turns.iter().all(|turn| turn.is_multiple_of(TURN as usize)) && turns.len() >= 4, "{turns:?}");
}

/// A flow that returns is one turn ahead of the others. It gets no credit for service that it did not ask for.
#[test]
fn a_flow_that_returns_is_one_turn_ahead() {
    let mut t = Test::new("burst-credit", &[("gap", "10s")]);
    (1..=3).for_each(|flow| be_known(&mut t, 0, flow));
    (1..=2).for_each(|flow| fill(&mut t, 0, flow, BURST));
    t.tags(128);
    fill(&mut t, 0, 3, 64);
    let first = t.count(40, 3);
    assert!((16..=24).contains(&first), "{first} of 40: a turn, and a third");
}

#[test]
fn cost_counts_bytes_and_requests() {
    let mut t = Test::new("burst-credit", &[]);
    for _ in 0..1000 {
        t.push(0, 0, 1 << 20);
        t.push(1, 1, BYTES);
    }
    while (0..2).any(|flow| t.tier(flow) == Tier::Sparse) {
        t.tags(1);
    }
    // 1064960 and 20480: 52 to 1.
    let small = t.count(530, 1);
    assert!((515..=525).contains(&small), "{small} of 530");
}

#[test]
fn disks_take_turns_by_weight_whatever_the_number_of_their_virtqueues() {
    let mut t = Test::new("burst-credit", &[]);
    t.scheduler.set_weight(DiskId(1), 400);
    (0..16).for_each(|flow| fill(&mut t, 0, flow, 400));
    fill(&mut t, 1, 16, 4000);
    while (0..2).any(|disk| t.tier_of_disk(disk) == Tier::Sparse) {
        t.tags(1);
    }
    let heavy = t.count(1000, 16);
    assert!((790..=810).contains(&heavy), "{heavy} of 1000, due 800");
    t.scheduler.set_weight(DiskId(1), 100);
    let equal = t.count(1000, 16);
    assert!((490..=510).contains(&equal), "{equal} of 1000, due 500");
}

/// A disk that was idle is sparse at any weight, and the bulk of other disks keeps its share.
#[test]
fn a_disk_that_was_idle_goes_first() {
    let mut t = busy(&[("gap", "10s")]);
    t.scheduler.set_weight(DiskId(1), 1);
    be_known(&mut t, 1, 9);
    fill(&mut t, 1, 9, 32);
    assert_eq!(t.count(32, 9), 32);
}

#[test]
fn a_throttled_disk_leaves_its_turns_to_others() {
    let mut t = Test::new("burst-credit", &[]);
    let limits = Limits { iops: NonZeroU64::new(10), burst: Duration::ZERO, ..Limits::default() };
    t.limits[0].set(t.now, limits);
    fill(&mut t, 0, 0, 3);
    fill(&mut t, 1, 1, 20);
    assert_eq!(t.count(21, 0), 1);
    assert_eq!((t.scheduler.ready(), t.scheduler.len()), (0, 2));
    let before = t.now;
    assert_eq!(t.wait(), Some(0));
    assert!(t.now - before >= 100 * MS);
}

/// The other flows send only their credit, wait until all are idle and begin again. A flow without credit waits
/// without end.
#[test]
fn requests_that_wait_at_a_switch_of_the_scheduler_are_served() {
    let mut t = Test::new("fifo", &[]);
    t.push(0, 0, BYTES);
    t.scheduler.set(SchedulerKind::Published.into());
    for round in 0.. {
        assert!(round < 10, "it waits for ever");
        fill(&mut t, 0, 1, 8);
        let taken = t.take(8);
        for flow in &taken {
            t.complete(*flow as u16);
        }
        if taken.contains(&0) {
            break;
        }
    }
}

#[test]
fn flows_that_are_not_idle_at_a_switch_are_new_to_the_scheduler() {
    for (kind, new) in [(SchedulerKind::Published, PUBLISHED), (SchedulerKind::BurstCredit, TURN)] {
        let mut t = Test::new("fifo", &[]);
        t.limits[1].set(t.now, Limits { iops: NonZeroU64::new(1), ..Limits::default() });
        // The first flow waits for an answer, the second for its turn, the others for their limit. The last flow was
        // idle.
        (0..2).for_each(|_| t.push_of(1, 2, 2, BYTES));
        t.push_of(1, 3, 3, BYTES);
        t.push(0, 0, BYTES);
        t.push(4, 4, BYTES);
        let mut first = t.drain();
        first.sort_unstable();
        assert_eq!(first, [0, 2, 4]);
        t.push(1, 1, BYTES);
        t.complete(4);
        t.scheduler.set(kind.into());
        let flows = t.scheduler.stats(t.now).flows;
        let credits: Vec<u64> = flows.iter().map(|flow| flow.credit.expect("it has such a notion")).collect();
        assert_eq!(credits, [u64::from(new); 5], "{kind}");
        assert!(flows.iter().all(|flow| flow.tier == Tier::Sparse), "{kind}");
    }
}

#[test]
fn a_parameter_changes_while_requests_wait() {
    let mut t = busy(&[("gap", "10s")]);
    fill(&mut t, 0, 1, BURST);
    assert_eq!(t.tags(1), [1]);
    t.set(&[("gap", "1ms")]);
    t.now += MS;
    assert_eq!(t.tags(1), [0]);
}

/// The path of the first disk stays full; only the second disk can send.
#[test]
fn a_disk_owes_nothing_for_turns_that_others_could_not_use() {
    let mut t = Test::new("burst-credit", &[]);
    fill(&mut t, 0, 0, 100);
    fill(&mut t, 1, 1, 3000);
    while (0..2).any(|disk| t.tier_of_disk(disk) == Tier::Sparse) {
        t.tags(1);
    }
    for _ in 0..2000 {
        let place = t.shown().find(|(_, tag)| tag.0 == 1).expect("the second disk waits").0;
        t.scheduler.take(t.now, place);
    }
    assert!(t.count(20, 1) >= 9, "it is at most a request behind");
}

/// Bulk is first and repeatedly finds no room.
#[test]
fn bursts_do_not_pay_for_bulk_that_could_not_go() {
    let mut t = busy(&[("gap", "10s")]);
    for _ in 0..20 {
        fill(&mut t, 0, 1, 200);
        for _ in 0..200 {
            let place = t.shown().find(|(_, tag)| tag.0 == 1).expect("the burst waits").0;
            t.scheduler.take(t.now, place);
        }
        (0..200).for_each(|_| t.complete(1));
    }
    fill(&mut t, 0, 1, 40);
    let bulk = t.count(20, 0);
    assert!((4..=6).contains(&bulk), "{bulk} of 20: a quarter is due");
}

/// The limits are raised before the timeout is handled.
#[test]
fn raised_limits_release_a_disk_with_an_exempt_flow() {
    let mut t = Test::new("fifo", &[]);
    t.limits[0].set(t.now, Limits { iops: NonZeroU64::new(1), burst: Duration::ZERO, ..Limits::default() });
    (0..2).for_each(|flow| fill(&mut t, 0, flow, 3));
    t.tags(1);
    assert_eq!(t.take(1), [0; 0], "limits keep the disk");
    t.scheduler.lift_limits_of(FlowId(0));
    t.limits[0].set(t.now, Limits { iops: NonZeroU64::new(1_000_000), ..Limits::default() });
    t.now += MS;
    assert!(t.shown().count() > 0);
    assert_eq!(t.drain().len(), 5);
}

#[test]
fn weights_hold_when_sizes_do_not_count() {
    for kind in ["fifo", "published"] {
        for (light, heavy, due) in [(501, 1000, 666), (100, 400, 800), (200, 300, 600), (1, 1000, 999)] {
            let mut t = Test::new(kind, &[]);
            t.scheduler.set_weight(DiskId(0), light);
            t.scheduler.set_weight(DiskId(1), heavy);
            (0..2).for_each(|disk| fill(&mut t, disk, disk, 3000));
            while (0..2).any(|disk| t.tier_of_disk(disk) == Tier::Sparse) {
                t.tags(1);
            }
            let count = t.count(1000, 1);
            assert!((due - 3..=due + 3).contains(&count), "{kind}, {light} to {heavy}: {count} of 1000, due {due}");
        }
    }
}

#[test]
fn a_request_allocates_nothing() {
    for kind in ["burst-credit", "published", "fifo"] {
        let mut test = Test::new(kind, &[]);
        let mut rounds = || {
            // One flow alone, and several flows of two disks with different numbers of requests.
            for flows in [1, 8, 64_u16] {
                (0..flows).for_each(|flow| fill(&mut test, u16::from(flow >= 8), flow, (1 + flow % 4).into()));
                while let Some(flow) = test.take_at(0) {
                    test.now += MS;
                    test.complete(flow.try_into().expect("tags are numbers of flows"));
                }
            }
        };
        (0..10).for_each(|_| rounds());
        let counted = allocation_counter::measure(|| (0..100).for_each(|_| rounds()));
        assert_eq!(counted.count_total, 0, "{kind}");
    }
}

#[test]
fn the_walk_can_pass_a_disk_whose_requests_are_alike() {
    let mut t = Test::new("fifo", &[]);
    for (disk, flow) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
        t.push_of(disk, flow, flow.into(), 4096);
    }
    let (first, tag) = t.scheduler.candidate(t.now, None).expect("requests wait");
    let next = |t: &mut Test, place: Place| t.scheduler.candidate(t.now, Some(place)).expect("more wait");
    assert_eq!((tag, next(&mut t, first).1), (Tag(0), Tag(1)));
    let (other, tag) = next(&mut t, first.last_of_disk());
    assert_eq!(tag, Tag(2), "the next disk");
    assert!(t.scheduler.candidate(t.now, Some(other.last_of_disk())).is_none());
    let reads = [true, false, false];
    assert!(t.scheduler.are_all_of(DiskId(0), reads));
    let write = Io { op: Op::Write, ..io(0, 1, 9, 4096) };
    t.scheduler.push_back(t.now, &write, true);
    assert!(!t.scheduler.are_all_of(DiskId(0), reads) && t.scheduler.are_all_of(DiskId(0), [true, true, false]));
    // A request that was tried before may have other paths to choose from.
    t.scheduler.take(t.now, first);
    assert!(t.scheduler.are_all_of(DiskId(0), [true, true, false]));
    t.scheduler.push_front(t.now, &io(0, 0, 0, 4096), true);
    assert!(!t.scheduler.are_all_of(DiskId(0), [true; 3]));
}
