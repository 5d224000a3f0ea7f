//! The group: one small test per rule.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FenceWaits, FlowId, Group, GroupConfig, Injection, Io, IoError, Op,
    OpClass, Outcome, PathConfig, PathId, PolicyKind, RetryCause, SharedDisk, Tag, UnflushedPaths, Window,
};

mod failover;
mod flush;
mod flush_losses;
mod scheduling;
mod sharing;

const MS: Duration = Duration::from_millis(1);

fn shared(unflushed: Arc<UnflushedPaths>) -> SharedDisk {
    SharedDisk { unflushed, ..SharedDisk::default() }
}

const P0: PathId = PathId(0);
const P1: PathId = PathId(1);
const LOST: Outcome = Outcome::Lost { indeterminate: true };
const UNSENT: Outcome = Outcome::Lost { indeterminate: false };

struct Test {
    now: Instant,
    group: Group,
}

impl Test {
    /// Two optimized paths with volatile caches, epoch 1.
    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn new(config: GroupConfig) -> Self {
        Self::up_with(config, &[SharedDisk::default()])
    }

    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn up_with(config: GroupConfig, disks: &[SharedDisk]) -> Self {
        let mut test = Self::down(config, disks);
        test.up(P0, 1, AnaState::Optimized);
        test.up(P1, 1, AnaState::Optimized);
        test
    }

    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn down(config: GroupConfig, disks: &[SharedDisk]) -> Self {
        let now = Instant::now();
        let mut group = Group::new(now, config, disks);
        group.add_path(P0, PathConfig::default());
        group.add_path(P1, PathConfig::default());
        Self { now, group }
    }

    fn up(&mut self, path: PathId, epoch: u64, ana: AnaState) {
        let association =
            Association { epoch: Epoch(epoch), ana: ana.into(), volatile_write_cache: true, queue_depth: 1024 };
        self.group.path_up(self.now, path, association);
    }

    fn submit(&mut self, tag: u32, op: Op) {
        self.submit_io(Io { tag: Tag(tag), op, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false });
    }

    fn submit_io(&mut self, io: Io) {
        self.group.submit(self.now, io);
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) {
        self.group.complete(self.now, path, Tag(tag), outcome);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    /// The actions without probes. Probes take 5 ms and are answered first.
    fn actions_but_probes(&mut self) -> Vec<Action> {
        let mut others = Vec::new();
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Probe { path, .. } => {
                    self.now += 5 * MS;
                    self.group.probed(self.now, path, true);
                }
                other => others.push(other),
            }
        }
        others
    }

    /// Waits for the next timeout. Returns the time.
    fn sleep(&mut self) -> Duration {
        let at = self.group.next_timeout().expect("a timeout");
        let time = at - self.now;
        self.now = at;
        time
    }

    /// Submits a request, and completes it at once on its path.
    fn done(&mut self, tag: u32, op: Op) -> PathId {
        self.submit(tag, op);
        let [Action::Issue { path, .. }] = self.actions()[..] else { panic!("one issue") };
        self.complete(path, tag, Outcome::Success);
        assert_eq!(self.actions(), [ok(tag)]);
        path
    }

    /// Submits a flush, whose commands all succeed. Returns its end.
    fn flush(&mut self, tag: u32) -> Vec<Action> {
        self.submit(tag, Op::Flush);
        let mut actions = self.actions();
        while let Some(Action::Issue { path, .. }) = actions.first() {
            self.complete(*path, tag, Outcome::Success);
            actions.remove(0);
            actions.extend(self.actions());
        }
        actions
    }

    /// Ends the presumption that caches hold writes of an earlier daemon.
    fn flush_presumed(&mut self) {
        self.submit(99, Op::Flush);
        assert_eq!(self.actions(), [issue(P0, 99), issue(P1, 99)]);
        self.complete(P0, 99, Outcome::Success);
        assert_eq!(self.actions(), []);
        self.complete(P1, 99, Outcome::Success);
        assert_eq!(self.actions(), [ok(99)]);
    }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}

fn failed(tag: u32, error: IoError) -> Action {
    Action::Finish { tag: Tag(tag), result: Err(error) }
}

fn config() -> GroupConfig {
    GroupConfig::default()
}

fn window(ios: u32, bytes: u64) -> GroupConfig {
    GroupConfig { window: Window { ios, bytes }, ..config() }
}

#[test]
fn requests_wait_unbound_and_follow_a_new_policy() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..window(1, 1 << 20) });
    for tag in 0..3 {
        t.submit(tag, Op::Read);
    }
    assert_eq!(t.actions(), [issue(P0, 0)], "numa waits for its path");
    assert_eq!(t.group.stats(t.now).queued, 2);
    t.group.set_policy(PolicyKind::RoundRobin);
    assert_eq!(t.actions(), [issue(P1, 1)], "what waits follows the new policy at once");
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0), issue(P0, 2)]);
}

#[test]
fn a_request_larger_than_the_window_goes_alone() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..window(8, 8192) });
    t.submit(0, Op::Read);
    t.submit_io(Io { tag: Tag(1), op: Op::Write, bytes: 1 << 20, disk: DiskId(0), flow: FlowId(0), fua: false });
    t.submit(2, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0), issue(P0, 1)]);
    t.complete(P0, 1, Outcome::Success);
    assert_eq!(t.actions(), [ok(1), issue(P0, 2)]);
}

#[test]
fn a_stream_of_small_requests_does_not_starve_a_large_one() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..window(8, 8192) });
    let small = |tag| Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(1), fua: false };
    t.submit_io(small(0));
    t.submit_io(small(1));
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.submit_io(Io { bytes: 8192, disk: DiskId(0), flow: FlowId(0), ..small(2) });
    t.submit_io(small(3));
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)], "the room is kept for the large one");
    t.complete(P0, 1, Outcome::Success);
    assert_eq!(t.actions(), [ok(1), issue(P0, 2)]);
}

#[test]
fn optimized_paths_come_strictly_first() {
    let mut t = Test::down(window(1, 1 << 20), &[SharedDisk::default()]);
    t.up(P0, 1, AnaState::NonOptimized);
    t.up(P1, 1, AnaState::Optimized);
    t.submit(0, Op::Read);
    t.submit(1, Op::Read);
    t.submit(2, Op::Read);
    assert_eq!(t.actions(), [issue(P1, 0)], "a full optimized path is no reason to use another");
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::Inaccessible);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, Outcome::Success);
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Change);
    assert_eq!(t.actions(), [ok(1)], "no path is selectable: wait");
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::NonOptimized);
    assert_eq!(t.actions(), [issue(P0, 2)]);
}

#[test]
fn an_injection_delays_and_the_delay_counts_as_latency() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..window(1, 1 << 20) });
    t.group.set_injection(t.now, P0, None, Injection::latency(30 * MS));
    assert_eq!(t.group.injections().collect::<Vec<_>>(), [(P0, None, Injection::latency(30 * MS))]);
    t.submit(0, Op::Read);
    t.submit(1, Op::Read);
    assert_eq!(t.actions(), []);
    assert_eq!(t.group.stats(t.now).paths[0].class(OpClass::Read).in_flight, 1, "held is in flight");
    assert_eq!(t.sleep(), 30 * MS);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
    let max = t.group.stats(t.now).paths[0].class(OpClass::Read).latency.ns().max();
    assert!((29_800_000..=30_300_000).contains(&max), "{max}");
    t.group.clear_injection(t.now, P0);
    assert_eq!(t.actions(), [issue(P0, 1)], "clearing releases what is held");
    assert_eq!(t.group.injections().count(), 0);
}

#[test]
fn requests_that_an_injection_keeps_leave_a_lost_path_without_a_fence() {
    let mut t = Test::new(config());
    t.group.set_injection(t.now, P0, None, Injection::latency(30 * MS));
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), []);
    t.group.path_lost(t.now, P0);
    assert_eq!(t.actions(), [issue(P1, 0)]);
}

#[test]
#[should_panic(expected = "a completion answers an issue")]
fn a_second_completion_is_refused() {
    let mut t = Test::new(config());
    t.submit(0, Op::Read);
    t.actions();
    t.complete(P0, 0, Outcome::Success);
    t.complete(P0, 0, Outcome::Success);
}

#[test]
#[should_panic(expected = "epochs grow")]
fn an_old_epoch_is_refused() {
    let mut t = Test::new(config());
    t.group.path_lost(t.now, P0);
    t.up(P0, 1, AnaState::Optimized);
}

#[test]
fn statistics_survive_a_policy_switch_and_merge() {
    let mut t = Test::new(config());
    t.done(0, Op::Read);
    t.done(1, Op::Read);
    t.group.set_policy(PolicyKind::LatencyRr);
    let mut sum = t.group.stats(t.now);
    assert_eq!(sum.policy, PolicyKind::LatencyRr.into());
    sum.merge(&t.group.stats(t.now));
    for path in &sum.paths {
        let reads = path.class(OpClass::Read);
        assert_eq!((reads.ios, reads.bytes, reads.latency.ns().len()), (2, 8192, 2));
    }
}

/// Requests on a path stay there, and other flows go on.
#[test]
fn requests_of_a_given_up_flow_end_while_they_wait() {
    let mut t = Test::new(window(2, 1 << 20));
    t.group.path_lost(t.now, P1);
    (0..4).for_each(|tag| t.submit(tag, Op::Write));
    t.submit(4, Op::Flush);
    t.submit_io(Io { tag: Tag(9), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(1), fua: false });
    let issued = t.actions();
    assert!(issued.contains(&issue(P0, 0)) && issued.len() == 2, "{issued:?}");
    t.complete(P0, 0, crate::retry(Duration::from_secs(6000)));
    t.group.give_up(FlowId(0));
    let (mut ended, mut others) = (Vec::new(), Vec::new());
    for action in t.actions() {
        match action {
            Action::Finish { tag, result: Err(IoError::GivenUp) } => ended.push(tag.0),
            other => others.push(other),
        }
    }
    ended.sort_unstable();
    let with_path = |tag: u32| issued.iter().chain(&others).any(|action| *action == issue(P0, tag)) && tag != 0;
    let waited: Vec<u32> = (0..=4).filter(|tag| !with_path(*tag)).collect();
    assert_eq!(ended, waited);
    assert_eq!((t.group.open(), t.group.stats(t.now).backoff), (6 - ended.len(), 0));
}
