//! Turns and limits in the group. The scheduler's own tests are in its module.

use std::num::NonZeroU64;

use mpath_core::{DiskLimits, Limits, SchedulerKind, SchedulerSpec};

use super::*;

fn submit(t: &mut Test, flow: u16, tag: u32) {
    t.submit_io(Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(flow), fua: false });
}

/// One path that takes one request at a time.
fn narrow(scheduler: SchedulerKind) -> Test {
    let mut t = Test::new(GroupConfig { scheduler: scheduler.into(), ..window(1, 1 << 20) });
    t.group.path_lost(t.now, P1);
    t
}

/// Completes requests until none is left. Returns the tags in order.
fn drain(t: &mut Test, first: u32) -> Vec<u32> {
    let mut order = vec![first];
    loop {
        let last = *order.last().expect("at least one");
        t.complete(P0, last, Outcome::Success);
        let issued = t.actions().into_iter().find_map(|action| match action {
            Action::Issue { tag, .. } => Some(tag.0),
            _ => None,
        });
        let Some(tag) = issued else { return order };
        order.push(tag);
    }
}

#[test]
fn a_switch_takes_effect_on_the_next_request_and_keeps_the_order_of_each_flow() {
    let mut t = narrow(SchedulerKind::Fifo);
    (0..4).for_each(|tag| submit(&mut t, 0, tag));
    (10..13).for_each(|tag| submit(&mut t, 1, tag));
    assert_eq!(t.actions(), [issue(P0, 0)]);
    let spec = SchedulerSpec::new(SchedulerKind::BurstCredit, [("burst", "1048576")]).expect("valid");
    t.group.set_scheduler(spec);
    assert_eq!(t.group.scheduler(), &spec);
    // Both flows are new to the scheduler: each has one sparse turn of 32 KiB, which is two requests.
    let order = drain(&mut t, 0);
    assert_eq!(order, [0, 1, 2, 10, 11, 3, 12]);
}

#[test]
fn a_flow_whose_path_is_full_keeps_no_other_flow_from_its_path() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Pid.into(), ..window(1, 1 << 20) });
    for (flow, tag) in [(0, 0), (0, 1), (1, 10), (1, 11)] {
        submit(&mut t, flow, tag);
    }
    assert_eq!(t.actions(), [issue(P0, 0), issue(P1, 10)]);
    t.complete(P1, 10, Outcome::Success);
    assert_eq!(t.actions(), [ok(10), issue(P1, 11)], "flow 0 is first, and waits for its own path");
}

#[test]
fn requests_that_wait_for_room_go_in_order_to_whichever_path_has_room() {
    let mut t = Test::new(window(1, 1 << 20));
    submit(&mut t, 0, 0);
    submit(&mut t, 1, 1);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P1, 1)]);
    (2..4).for_each(|tag| submit(&mut t, tag as u16, tag));
    assert_eq!(t.actions(), []);
    t.complete(P1, 1, Outcome::Success);
    assert_eq!(t.actions(), [ok(1), issue(P1, 2)]);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0), issue(P0, 3)]);
}

#[test]
fn a_retried_request_goes_before_the_others_of_its_flow() {
    for scheduler in SchedulerKind::ALL {
        let mut t = narrow(scheduler);
        (0..3).for_each(|tag| submit(&mut t, 0, tag));
        assert_eq!(t.actions(), [issue(P0, 0)]);
        t.complete(P0, 0, crate::retry(Duration::ZERO));
        assert_eq!(t.actions(), [issue(P0, 0)], "{scheduler}");
        assert_eq!(drain(&mut t, 0), [0, 1, 2], "{scheduler}");
        let stats = t.group.stats(t.now).scheduler;
        assert_eq!((stats.flows.len(), stats.flows[0].served, stats.flows[0].outstanding), (1, 4, 0));
    }
}

/// Two disks that share the paths. The first has limits. Flow 9 belongs to the second.
#[allow(clippy::large_types_passed_by_value)] // once a test
fn limited(config: GroupConfig, limits: Limits) -> (Test, Arc<DiskLimits>) {
    let disks = [SharedDisk::default(), SharedDisk::default()];
    let t = Test::up_with(config, &disks);
    disks[0].limits.set(t.now, limits);
    (t, Arc::clone(&disks[0].limits))
}

fn submit_other(t: &mut Test, tag: u32) {
    t.submit_io(Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk: DiskId(1), flow: FlowId(9), fua: false });
}

#[test]
fn limits_do_not_delay_the_end_of_a_virtqueue() {
    let limits = Limits { iops: NonZeroU64::new(10), bytes_per_s: None, burst: 10 * MS };
    let (mut t, _) = limited(GroupConfig { policy: PolicyKind::Numa.into(), ..config() }, limits);
    (0..4).for_each(|tag| t.submit(tag, Op::Read));
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.lift_limits_of(FlowId(0));
    assert_eq!(t.actions(), [issue(P0, 1), issue(P0, 2), issue(P0, 3)]);
    (0..4).for_each(|tag| t.complete(P0, tag, Outcome::Success));
    t.actions();
    // The virtqueue is back, and its requests wait for the excess.
    t.submit(4, Op::Read);
    assert_eq!(t.actions(), []);
    let mut waits = Duration::ZERO;
    let issued = std::iter::repeat_with(|| {
        waits += t.sleep();
        t.actions()
    });
    assert_eq!(issued.into_iter().find(|actions| !actions.is_empty()), Some(vec![issue(P0, 4)]));
    assert!(waits > 200 * MS, "{waits:?}");
}

#[test]
fn limits_throttle_only_the_flows_of_their_disk() {
    let limits = Limits { iops: NonZeroU64::new(100), bytes_per_s: None, burst: 10 * MS };
    let (mut t, _) = limited(GroupConfig { policy: PolicyKind::Numa.into(), ..config() }, limits);
    (0..2).for_each(|tag| submit(&mut t, 0, tag));
    submit(&mut t, 1, 2);
    submit_other(&mut t, 10);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 10)]);
    t.sleep();
    assert_eq!(t.actions(), [issue(P0, 2)], "the burst is one request, and it is the other flow's turn");
    assert!(t.sleep() >= 10 * MS);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    let disks = t.group.stats(t.now).scheduler.disks;
    assert_eq!((disks[0].limits, disks[1].limits), (limits, Limits::default()));
    assert!(disks[0].throttled >= 10 * MS, "{:?}", disks[0].throttled);
    assert_eq!(disks[1].throttled, Duration::ZERO);
}

#[test]
fn requests_of_one_group_of_a_disk_count_for_the_other() {
    let iops = NonZeroU64::new(100);
    let disk = SharedDisk::default();
    let [mut a, mut b] = [(); 2].map(|()| Test::up_with(config(), std::slice::from_ref(&disk)));
    a.now = b.now;
    disk.limits.set(a.now, Limits { iops, bytes_per_s: None, burst: 20 * MS });
    (0..3).for_each(|tag| submit(&mut a, 0, tag));
    (0..2).for_each(|tag| submit(&mut b, 1, tag));
    assert_eq!((a.actions().len(), b.actions().len()), (2, 0), "the burst is two requests");
    // The third request goes as soon as any balance is left.
    b.sleep();
    a.now = b.now;
    assert_eq!((b.actions().len(), a.actions().len()), (1, 0), "either of them has it");
    assert!(a.sleep() + Duration::from_nanos(1) >= 10 * MS);
    assert_eq!(a.actions().len(), 1);
}

#[test]
fn limits_apply_to_every_request_and_change_live() {
    let suspect_timeout = Duration::from_secs(60);
    let limits = Limits { iops: None, bytes_per_s: NonZeroU64::new(4096), burst: 100 * MS };
    let (mut t, disk) = limited(GroupConfig { policy: PolicyKind::Numa.into(), suspect_timeout, ..config() }, limits);
    (0..3).for_each(|tag| submit(&mut t, tag as u16, tag));
    assert_eq!(t.actions(), [issue(P0, 0)], "one goes, and too much was taken");
    let wait = t.sleep();
    assert!((900 * MS..901 * MS).contains(&wait), "{wait:?}");
    assert_eq!(t.actions(), [issue(P0, 1)]);
    assert_eq!(t.group.stats(t.now).scheduler.disks[0].throttled, wait);
    disk.set(t.now, Limits::default());
    assert_eq!(t.actions(), [issue(P0, 2)]);
}

#[test]
fn throttled_requests_fail_when_no_path_is_live() {
    let limits = Limits { iops: NonZeroU64::new(1), bytes_per_s: None, burst: Duration::ZERO };
    let (mut t, _) = limited(GroupConfig { no_path_timeout: Some(50 * MS), ..config() }, limits);
    (0..3).for_each(|tag| submit(&mut t, 0, tag));
    t.group.path_lost(t.now, P0);
    t.group.path_lost(t.now, P1);
    t.now += 51 * MS;
    assert_eq!(t.actions(), [failed(0, IoError::NoPath), failed(1, IoError::NoPath), failed(2, IoError::NoPath)]);
    assert_eq!((t.group.open(), t.group.next_timeout()), (0, None));
}
