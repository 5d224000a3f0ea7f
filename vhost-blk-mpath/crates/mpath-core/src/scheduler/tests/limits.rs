//! Limits and turns: limits decide when a request goes, the scheduler decides which.

use std::num::NonZeroU64;

use monotonic::Duration;
use proptest::prelude::*;

use super::helpers::Test;
use crate::scheduler::{Limits, SchedulerSpec};
use crate::{DiskId, FlowId, Tag};

const US: Duration = Duration::from_micros(1);
const BYTES: u32 = 4096;

fn limits(iops: u64, burst: Duration) -> Limits {
    Limits { iops: NonZeroU64::new(iops), bytes_per_s: None, burst }
}

fn kind(at: usize) -> SchedulerSpec {
    // The gap is longer than every run.
    let of = [("fifo", &[][..]), ("published", &[]), ("burst-credit", &[("gap", "10s"), ("burst", "65536")])][at];
    SchedulerSpec::new(of.0.parse().expect("a scheduler"), of.1.iter().copied()).expect("parameters of it")
}

#[derive(Clone, Debug)]
enum Event {
    Push {
        flow: u16,
        bytes: u32,
    },
    Take,
    /// The disk has no path for a moment.
    Lose,
}

fn event() -> impl Strategy<Value = Event> {
    let bytes = prop_oneof![Just(512), Just(4096), Just(65_536), Just(1 << 20)];
    prop_oneof![
        6 => (0..6_u16, bytes).prop_map(|(flow, bytes)| Event::Push { flow, bytes }),
        4 => Just(Event::Take),
        1 => Just(Event::Lose),
    ]
}

/// The order in which requests go. With `limits`, the run waits for them. Without, the path is never lost.
fn order(spec: SchedulerSpec, limits: Option<Limits>, events: &[Event]) -> Vec<u32> {
    let mut t = Test::of(spec);
    t.limits[0].set(t.now, limits.unwrap_or_default());
    let mut gone = Vec::new();
    for (event, tag) in events.iter().zip(0..) {
        match *event {
            Event::Push { flow, bytes } => t.push(flow, tag, bytes),
            Event::Take => gone.extend(t.wait()),
            Event::Lose if limits.is_some() => {
                t.scheduler.set_blocked(t.now, DiskId(0), true);
                assert_eq!(t.take(1), [0; 0]);
                t.scheduler.set_blocked(t.now, DiskId(0), false);
            }
            Event::Lose => {}
        }
    }
    gone.extend(std::iter::from_fn(|| t.wait()));
    gone
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// For one disk: the order without limits and losses is the reference.
    #[test]
    fn limits_and_lost_paths_delay_requests_and_do_not_reorder_them(
        at in 0..3_usize,
        burst_us in prop_oneof![Just(0), 0..20_u32],
        events in prop::collection::vec(event(), 1..300),
    ) {
        let plain = order(kind(at), None, &events);
        prop_assert_eq!(order(kind(at), Some(limits(1_000_000, burst_us * US)), &events), plain);
    }
}

/// Requests of one flow cost 52 times as much as requests of the other.
#[test]
fn cost_counts_under_a_limit_of_requests() {
    let mut t = Test::of(kind(2));
    t.limits[0].set(t.now, limits(1000, Duration::ZERO));
    for _ in 0..600 {
        t.push(0, 0, 1 << 20);
        t.push(1, 1, BYTES);
    }
    let small: u32 = std::iter::from_fn(|| t.wait()).take(530).sum();
    assert!((500..=525).contains(&small), "{small} of 530");
}

/// A disk is served what it missed once its limits let requests go. Its flows keep the order in which they were
/// throttled.
#[test]
fn throttled_flows_return_in_order() {
    let mut t = Test::of(kind(0));
    t.limits[0].set(t.now, limits(1000, Duration::ZERO));
    for (disk, flow) in [(0, 0), (1, 10), (0, 1), (0, 2), (1, 11), (0, 3)] {
        t.push_of(disk, flow, flow.into(), BYTES);
    }
    assert_eq!(t.drain(), [0, 10, 11]);
    t.now = t.scheduler.next_timeout().expect("limits keep three");
    t.push_of(1, 12, 12, BYTES);
    t.push(4, 4, BYTES);
    assert_eq!(t.take(2), [1, 12]);
    let rest: Vec<u32> = std::iter::from_fn(|| t.wait()).collect();
    assert_eq!(rest, [2, 3, 4]);
}

/// The walk passes the flows of a disk because none finds a path with room. Meanwhile another group uses up the
/// limits.
#[test]
fn limits_used_up_by_another_group_do_not_hide_other_disks() {
    let mut t = Test::of(kind(0));
    t.limits[0].set(t.now, limits(1000, 1500 * US));
    (0..4).for_each(|flow| t.push(flow, flow.into(), BYTES));
    assert_eq!(t.drain(), [0, 1]);
    t.now = t.scheduler.next_timeout().expect("limits keep two");
    t.scheduler.handle_timeout(t.now);
    t.push_of(1, 10, 10, BYTES);
    let (first, tag) = t.scheduler.candidate(t.now, None).expect("the limits are open");
    assert_eq!(tag, Tag(2));
    t.limits[0].take(t.now, BYTES);
    let next = t.scheduler.candidate(t.now, Some(first));
    assert!(next.is_some_and(|(_, tag)| tag == Tag(10)), "{next:?}");
    assert_eq!((t.take(2), t.scheduler.ready()), (vec![10], 0));
    assert_eq!([t.wait(), t.wait()], [Some(2), Some(3)]);
}

/// A path is lost and returns while limits throttle flows. Some of the flows have a flush in front, which needs no
/// path.
#[test]
fn a_request_without_need_of_a_path_goes_while_other_flows_wait_for_one() {
    let mut t = Test::of(kind(0));
    t.limits[0].set(t.now, limits(1000, Duration::ZERO));
    for flow in 0..4 {
        let io = super::helpers::io(0, flow, flow.into(), BYTES);
        t.scheduler.push_back(t.now, &io, flow != 2);
    }
    assert_eq!(t.drain(), [0]);
    t.now = t.scheduler.next_timeout().expect("limits keep three");
    t.scheduler.handle_timeout(t.now);
    t.scheduler.set_blocked(t.now, DiskId(0), true);
    assert_eq!((t.drain(), t.scheduler.ready()), (vec![2], 0));
    t.now += 10_000 * US;
    t.scheduler.set_blocked(t.now, DiskId(0), false);
    assert_eq!((t.drain(), t.scheduler.len()), (vec![1], 1));
    t.scheduler.lift_limits_of(FlowId(3));
    assert_eq!(t.drain(), [3]);
}
