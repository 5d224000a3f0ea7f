//! Drained paths: they get only the flushes that they owe.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Injection, Io, Op, Outcome, PathConfig,
    PathId, SharedDisk, Tag, UnflushedPaths,
};

fn shared(unflushed: Arc<UnflushedPaths>) -> SharedDisk {
    SharedDisk { unflushed, ..SharedDisk::default() }
}

const P0: PathId = PathId(0);
const P1: PathId = PathId(1);
const EPOCH: Epoch = Epoch(1);

struct Test {
    now: Instant,
    group: Group,
    unflushed: Arc<UnflushedPaths>,
}

impl Test {
    /// Two live paths with volatile caches of their own and no unflushed writes.
    fn new() -> Self {
        let (now, unflushed) = (Instant::now(), Arc::new(UnflushedPaths::after_crash()));
        let mut group = Group::new(now, GroupConfig::default(), &[shared(Arc::clone(&unflushed))]);
        for path in [P0, P1] {
            let ana = AnaState::Optimized;
            let association =
                Association { epoch: EPOCH, ana: ana.into(), volatile_write_cache: true, queue_depth: 64 };
            group.add_path(path, PathConfig::default());
            group.path_up(now, path, association);
        }
        let mut test = Self { now, group, unflushed };
        assert!(test.unflushed.is_unflushed(P0), "a cache may hold writes of the process before");
        assert_eq!(test.submit(99, Op::Flush), [issue(P0, 99), issue(P1, 99)]);
        assert_eq!(test.complete(P0, 99), []);
        assert_eq!(test.complete(P1, 99), [ok(99)]);
        assert!(!test.unflushed.is_unflushed(P0));
        test
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        self.group
            .submit(self.now, Io { tag: Tag(tag), op, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false });
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), Outcome::Success);
        self.actions()
    }

    fn drain(&mut self, path: PathId, draining: bool) -> Vec<Action> {
        self.group.set_draining(self.now, path, draining);
        self.actions()
    }

    /// Requests in flight, and open flush commands.
    fn owes(&self, path: PathId) -> (u64, u64) {
        let stats = &self.group.stats(self.now).paths[usize::from(path.0)];
        (stats.classes.iter().map(|class| class.in_flight).sum(), stats.flushes_open)
    }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}

#[test]
fn a_draining_path_finishes_its_requests_and_gets_no_more() {
    let mut test = Test::new();
    assert_eq!(test.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(test.drain(P0, true), []);
    for tag in 1..5 {
        assert_eq!(test.submit(tag, Op::Write), [issue(P1, tag)]);
    }
    assert_eq!(test.owes(P0), (1, 0));
    assert_eq!(test.complete(P0, 0), [ok(0)]);
    assert_eq!(test.owes(P0), (0, 0));
    assert_eq!(test.drain(P0, false), []);
    assert_eq!(test.submit(5, Op::Read), [issue(P0, 5)]);
}

#[test]
fn a_flush_reaches_a_draining_path() {
    let mut test = Test::new();
    assert_eq!(test.submit(0, Op::Write), [issue(P0, 0)]);
    assert_eq!(test.complete(P0, 0), [ok(0)]);
    test.drain(P0, true);
    assert!(test.unflushed.is_unflushed(P0));
    assert_eq!(test.submit(1, Op::Flush), [issue(P0, 1)]);
    assert_eq!(test.owes(P0), (1, 1));
    assert_eq!(test.complete(P0, 1), [ok(1)]);
    assert_eq!((test.owes(P0), test.unflushed.is_unflushed(P0)), ((0, 0), false));
    // A close loses nothing then.
    test.group.path_lost(test.now, P0);
    assert_eq!(test.submit(2, Op::Flush), [ok(2)]);
}

#[test]
fn requests_that_an_injection_keeps_leave_a_draining_path() {
    let mut test = Test::new();
    test.group.set_injection(test.now, P0, None, Injection::latency(Duration::from_secs(60)));
    assert_eq!(test.submit(0, Op::Write), []);
    assert_eq!(test.owes(P0), (1, 0));
    assert_eq!(test.drain(P0, true), [issue(P1, 0)]);
    assert_eq!(test.owes(P0), (0, 0));
}

#[test]
fn without_another_path_requests_wait() {
    let mut test = Test::new();
    test.drain(P0, true);
    test.drain(P1, true);
    assert_eq!(test.submit(0, Op::Write), []);
    assert_eq!(test.group.next_timeout(), None);
    assert_eq!(test.drain(P1, false), [issue(P1, 0)]);
}

#[test]
fn draining_outlives_an_association() {
    let mut test = Test::new();
    test.drain(P0, true);
    test.group.path_lost(test.now, P0);
    let association =
        Association { epoch: Epoch(2), ana: AnaState::Optimized.into(), volatile_write_cache: true, queue_depth: 64 };
    test.group.path_up(test.now, P0, association);
    assert_eq!(test.submit(0, Op::Read), [issue(P1, 0)]);
    assert_eq!(test.submit(1, Op::Read), [issue(P1, 1)]);
}

#[test]
fn reads_leave_a_silent_draining_path_and_do_not_return() {
    let mut test = Test::new();
    assert_eq!(test.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(test.submit(1, Op::Read), [issue(P1, 1)]);
    test.drain(P1, true);
    assert_eq!(test.complete(P1, 1), [ok(1)]);
    // Only the draining path is left: the read stays.
    test.now += Duration::from_secs(1);
    assert_eq!(test.actions(), []);
    assert_eq!(test.group.suspects(), 0);
    assert_eq!(test.drain(P1, false), [Action::Recall { path: P0, tag: Tag(0) }]);
}
