//! What waits, and for what.

use std::num::NonZeroU64;

use mpath_core::{Hedging, Injection, Limits};

use super::*;

const A: DiskId = DiskId(0);
const B: DiskId = DiskId(1);

fn limited(iops: u64, bytes_per_s: u64) -> Test {
    let disk = SharedDisk::default();
    let limits = disk.limits.clone();
    let config = GroupConfig { policy: PolicyKind::Numa.into(), ..GroupConfig::default() };
    let t = Test::with(config, &[disk]);
    let burst = 10 * MS;
    limits.set(t.now, Limits { iops: NonZeroU64::new(iops), bytes_per_s: NonZeroU64::new(bytes_per_s), burst });
    t
}

/// Uses up the limits, and lets two reads wait for 3 ms.
fn use_up(t: &mut Test) {
    for tag in 0..3 {
        t.submit(tag, Op::Read);
    }
    t.now += 3 * MS;
    t.actions();
}

#[test]
fn a_limit_of_requests() {
    let mut t = limited(10, 0);
    use_up(&mut t);
    let waiting = t.waiting()[0];
    assert_eq!((waiting.cause, waiting.requests, waiting.oldest), (WaitCause::Limit, 2, 3 * MS));
    let ends_in = t.read().limit_ends_in.expect("the limit is used up");
    assert_eq!((waiting.ends_in, ends_in.as_millis()), (Some(ends_in), 87));
    assert_eq!((t.read().next, t.read().waits), (Next::Path(P0), true), "apart from the limit");
}

#[test]
fn a_limit_of_bytes() {
    let mut t = limited(0, 40_960);
    use_up(&mut t);
    let waiting = t.waiting()[0];
    assert_eq!((waiting.cause, waiting.requests), (WaitCause::Limit, 2));
    assert_eq!(t.read().limit_ends_in.map(Duration::as_millis), Some(87));
    t.now += 88 * MS;
    assert_eq!(t.actions(), [issue(P0, 1)]);
}

#[test]
fn another_disk_goes_first_by_its_weight() {
    let config = GroupConfig {
        policy: PolicyKind::Numa.into(),
        scheduler: mpath_core::SchedulerKind::BurstCredit.into(),
        window: Window { ios: 1, bytes: 1 << 20 },
        ..GroupConfig::default()
    };
    let mut t = Test::with(config, &[SharedDisk::default(), SharedDisk::default()]);
    t.group.set_draining(t.now, P1, true);
    t.group.set_weight(B, 1);
    let io =
        |disk: DiskId, tag| Io { tag: Tag(tag), op: Op::Read, bytes: 1 << 16, disk, flow: FlowId(disk.0), fua: false };
    for tag in 0..400 {
        t.group.submit(t.now, io(if tag % 2 == 0 { A } else { B }, tag));
    }
    let mut issued = t.actions();
    // Serve requests until both disks have sent their bursts.
    for _ in 0..200 {
        let Some(&Action::Issue { path, tag }) = issued.last() else { panic!("{issued:?}") };
        t.now += MS;
        issued = t.complete(path, tag.0, Outcome::Success);
    }
    let behind = |disk| {
        let waiting = t.group.explain(t.now, disk).waiting;
        waiting.iter().find(|of| of.cause == WaitCause::Room).expect("its requests wait for room").behind
    };
    assert_eq!((behind(A), behind(B)), (0, 1));
}

#[test]
fn a_fence_holds_a_write_in_doubt() {
    let mut t = Test::new(PolicyKind::Numa);
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, Outcome::Lost { indeterminate: true });
    t.now += 7 * MS;
    let waiting = t.only_wait();
    assert_eq!((waiting.cause, waiting.path, waiting.oldest), (WaitCause::Fence, Some(P0), 7 * MS));
}

#[test]
fn without_a_path_requests_wait_and_then_fail() {
    let config = GroupConfig { no_path_timeout: Some(1000 * MS), ..GroupConfig::default() };
    let mut t = Test::with(config, &[SharedDisk::default()]);
    t.group.path_lost(t.now, P0);
    t.group.ana_changed(t.now, P1, DISK, AnaState::Inaccessible);
    t.submit(0, Op::Read);
    assert_eq!(t.read().next, Next::NoPath { fails_in: None }, "a live path is left");
    t.group.path_lost(t.now, P1);
    t.now += 400 * MS;
    assert_eq!(t.read().next, Next::NoPath { fails_in: Some(600 * MS) });
    let waiting = t.only_wait();
    assert_eq!((waiting.cause, waiting.path, waiting.ends_in), (WaitCause::NoPath, None, Some(600 * MS)));
}

#[test]
fn an_injection_keeps_requests_and_answers() {
    for injection in [
        Injection::latency(30 * MS),
        Injection { stall: true, ..Injection::default() },
        Injection { direction: mpath_core::Direction::Response, ..Injection::latency(30 * MS) },
    ] {
        let mut t = Test::new(PolicyKind::Numa);
        t.group.set_injection(t.now, P0, None, injection);
        if t.submit(0, Op::Write) == [issue(P0, 0)] {
            assert_eq!(t.complete(P0, 0, Outcome::Success), []);
        }
        assert_eq!((t.only_wait().cause, t.only_wait().path), (WaitCause::Injection, Some(P0)));
        assert!(t.read().path(P0).expect("it exists").is_injected);
    }
}

#[test]
fn the_answer_of_a_path() {
    let mut t = Test::new(PolicyKind::RoundRobin);
    for tag in 0..3 {
        t.submit(tag, Op::Read);
    }
    let waits: Vec<_> = t.waiting().iter().map(|of| (of.cause, of.path, of.requests)).collect();
    assert_eq!(waits, [(WaitCause::Answer, Some(P0), 2), (WaitCause::Answer, Some(P1), 1)]);
    t.now += 3 * MS;
    let io_timeout = GroupConfig::default().io_timeout;
    assert!(t.waiting().iter().all(|of| of.ends_in == Some(io_timeout.saturating_sub(3 * MS))), "{:?}", t.waiting());
}

#[test]
fn a_recalled_read_waits_for_the_driver() {
    let mut t = Test::new(PolicyKind::Numa);
    t.submit(0, Op::Read);
    t.now += 301 * MS;
    assert_eq!(t.actions(), [Action::Recall { path: P0, tag: Tag(0) }]);
    assert_eq!((t.only_wait().cause, t.only_wait().path), (WaitCause::Recall, Some(P0)));
}

#[test]
fn a_hedged_read_waits_for_the_first_answer() {
    let hedging = Some(Hedging { quantile_permille: 950, budget_permille: 50 });
    let config = GroupConfig { policy: PolicyKind::Numa.into(), hedging, ..GroupConfig::default() };
    let mut t = Test::with(config, &[SharedDisk::default()]);
    t.serve(Op::Read, 120, |_| MS);
    t.submit(0, Op::Read);
    t.now += 20 * MS;
    assert_eq!(t.actions(), [Action::Hedge { path: P1, tag: Tag(0) }]);
    assert_eq!((t.only_wait().cause, t.only_wait().path), (WaitCause::Hedge, Some(P0)));
}

#[test]
fn the_policy_waits_for_a_better_path() {
    let mut t = Test::with_window(PolicyKind::Latency, 1, 1 << 20);
    t.serve(Op::Read, 20, |path| if path == P0 { MS } else { 500 * MS });
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.submit(1, Op::Read), []);
    assert!(matches!(t.read().next, Next::PolicyWaits { again_in: Some(_) }), "{:?}", t.read().next);
    assert_eq!((t.why_not(P0), t.why_not(P1)), (Some(WhyNot::WindowFull), Some(WhyNot::NotPreferred)));
    assert!(t.waiting().iter().any(|of| of.cause == WaitCause::Policy && of.requests == 1));
}

#[test]
fn a_flush_names_the_controllers_that_it_must_reach() {
    let mut t = Test::with_window(PolicyKind::Numa, 1, 1 << 20);
    let targets = |t: &Test| -> Vec<_> {
        t.group
            .explain(t.now, DISK)
            .flush
            .expect("not shared")
            .iter()
            .map(|of| (of.path, of.is_presumed, of.is_reachable))
            .collect()
    };
    assert_eq!(targets(&t), [(P0, true, true), (P1, true, true)], "an earlier daemon may have written");
    assert_eq!(t.submit(9, Op::Flush).len(), 2);
    t.complete(P0, 9, Outcome::Success);
    assert_eq!(t.complete(P1, 9, Outcome::Success), [ok(9)]);
    assert_eq!(targets(&t), []);
    t.serve(Op::Write, 1, |_| MS);
    assert_eq!(targets(&t), [(P0, false, true)]);
    // The path is full: the flush waits for its turn there.
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.submit(1, Op::Flush), []);
    assert!(t.waiting().iter().any(|of| (of.cause, of.path) == (WaitCause::FlushTurn, Some(P0))));
    t.group.path_lost(t.now, P0);
    let lost: Vec<_> = t
        .group
        .explain(t.now, DISK)
        .flush
        .expect("not shared")
        .iter()
        .map(|of| (of.path, of.has_lost_writes))
        .collect();
    assert_eq!(lost, [(P0, true)]);
}

#[test]
fn with_a_shared_write_cache_any_path_will_do() {
    let config = GroupConfig { shared_write_cache: true, ..GroupConfig::default() };
    let t = Test::with(config, &[SharedDisk::default()]);
    assert_eq!(t.group.explain(t.now, DISK).flush, None);
}
