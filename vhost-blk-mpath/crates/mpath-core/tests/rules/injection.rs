//! Injections: one small test per rule.

use std::num::NonZeroU64;
use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, Direction, DiskId, Epoch, FlowId, Group, GroupConfig, InjectedError, Injection, Io,
    IoError, Op, OpClass, Outcome, PathConfig, PathId, PolicyKind, SharedDisk, Tag, UnflushedPaths, Window,
};

const MS: Duration = Duration::from_millis(1);
/// The time after which a path without history is suspect.
const DEADLINE: Duration = Duration::from_millis(300);
fn shared(unflushed: Arc<UnflushedPaths>) -> SharedDisk {
    SharedDisk { unflushed, ..SharedDisk::default() }
}

const P0: PathId = PathId(0);
const P1: PathId = PathId(1);

struct Test {
    now: Instant,
    group: Group,
    unflushed: Arc<UnflushedPaths>,
}

impl Test {
    /// Two live optimized paths, the first with a volatile cache. The policy sends everything to the first.
    fn new() -> Self {
        Self::with(&GroupConfig::default())
    }

    fn with(config: &GroupConfig) -> Self {
        let now = Instant::now();
        let unflushed = Arc::new(UnflushedPaths::new());
        let window = Window { ios: 64, bytes: 4 << 20 };
        let config = GroupConfig { policy: PolicyKind::Numa.into(), window, ..*config };
        let mut group = Group::new(now, config, &[shared(Arc::clone(&unflushed))]);
        for id in [P0, P1] {
            group.add_path(id, PathConfig::default());
            let (epoch, ana) = (Epoch(1), AnaState::Optimized);
            group.path_up(
                now,
                id,
                Association { epoch, ana: ana.into(), volatile_write_cache: id == P0, queue_depth: 64 },
            );
        }
        Self { now, group, unflushed }
    }

    fn with_injection(class: Option<OpClass>, injection: Injection) -> Self {
        let mut test = Self::new();
        test.group.set_injection(test.now, P0, class, injection);
        test
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        let bytes = if matches!(op, Op::Read | Op::Write) { 4096 } else { 0 };
        self.group.submit(self.now, Io { tag: Tag(tag), op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn clear(&mut self) -> Vec<Action> {
        self.group.clear_injection(self.now, P0);
        self.actions()
    }

    fn after(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    fn in_flight(&self, path: PathId) -> u64 {
        self.group.stats(self.now).path(path).expect("a path").classes.iter().map(|class| class.in_flight).sum()
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

fn stall(direction: Direction) -> Injection {
    Injection { direction, stall: true, ..Injection::default() }
}

fn error(direction: Direction, outcome: Outcome) -> Injection {
    let error = Some(InjectedError { per_million: 1_000_000, outcome });
    Injection { direction, error, ..Injection::default() }
}

#[test]
fn a_stall_makes_the_path_suspect_and_moves_only_reads() {
    for direction in [Direction::Request, Direction::Response] {
        let mut t = Test::with_injection(None, stall(direction));
        let mut issued = t.submit(0, Op::Read);
        issued.extend(t.submit(1, Op::Write));
        if direction == Direction::Response {
            assert_eq!(issued, [issue(P0, 0), issue(P0, 1)]);
            assert_eq!(t.complete(P0, 0, Outcome::Success), []);
            assert_eq!(t.complete(P0, 1, Outcome::Success), []);
        } else {
            assert_eq!(issued, []);
        }
        assert_eq!(t.after(DEADLINE), [issue(P1, 0)], "{direction}: the read is recalled");
        assert_eq!(t.group.suspects(), 1);
        assert_eq!(t.complete(P1, 0, Outcome::Success), [ok(0)]);
        assert_eq!(t.submit(2, Op::Write), [issue(P1, 2)], "nothing new goes there");
        assert_eq!(t.complete(P1, 2, Outcome::Success), [ok(2)]);
        assert_eq!(t.after(1000 * MS), [], "{direction}: what was recalled is still owed, and the write stays");
        assert_ne!(t.group.suspects(), 0);
        if direction == Direction::Response {
            assert_eq!(t.clear(), [ok(1)]);
        } else {
            assert_eq!(t.clear(), [issue(P0, 1)]);
            assert_eq!(t.complete(P0, 1, Outcome::Success), [ok(1)]);
        }
        assert_eq!((t.group.suspects(), t.in_flight(P0), t.group.open()), (0, 0, 0));
        assert_eq!(t.group.next_timeout(), None, "no trace");
        assert_eq!(t.submit(3, Op::Read), [issue(P0, 3)]);
    }
}

#[test]
fn clearing_an_injection_releases_requests_in_order() {
    let mut t = Test::with_injection(Some(OpClass::Read), stall(Direction::Request));
    let rate = Injection { rate: NonZeroU64::new(1 << 16), ..Injection::default() };
    t.group.set_injection(t.now, P0, Some(OpClass::Write), rate);
    assert_eq!(t.group.injections().count(), 2);
    for tag in 0..6 {
        assert_eq!(t.submit(tag, if tag < 3 { Op::Read } else { Op::Write }), []);
    }
    let released = t.clear();
    let expected: Vec<_> = [3, 4, 5, 0, 1, 2].into_iter().map(|tag| issue(P0, tag)).collect();
    assert_eq!(released, expected);
    assert_eq!(t.group.injections().count(), 0);
}

#[test]
fn a_new_injection_ends_the_earlier_one() {
    let mut t = Test::with_injection(None, stall(Direction::Request));
    assert_eq!(t.submit(0, Op::Read), []);
    assert_eq!(t.submit(1, Op::Write), []);
    t.group.set_injection(t.now, P0, Some(OpClass::Read), Injection::latency(10 * MS));
    assert_eq!(t.actions(), [issue(P0, 0)], "only what it covers");
    t.group.set_injection(t.now, P0, None, Injection::latency(10 * MS));
    assert_eq!(t.actions(), [issue(P0, 1)]);
    assert_eq!(t.group.injections().count(), 1);
}

#[test]
fn the_injection_of_one_class_ends_without_the_others() {
    let own = Some(OpClass::Read);
    for (ends, released, stays) in [(own, Op::Read, Op::Write), (None, Op::Write, Op::Read)] {
        let mut t = Test::with_injection(None, stall(Direction::Request));
        t.group.set_injection(t.now, P0, own, stall(Direction::Request));
        assert_eq!((t.submit(0, stays), t.submit(1, released)), (vec![], vec![]));
        t.group.end_injection(t.now, P0, ends);
        assert_eq!(t.actions(), [issue(P0, 1)]);
        let left = [None, own].into_iter().find(|class| *class != ends).unwrap();
        assert_eq!(t.group.injections().map(|(_, class, _)| class).collect::<Vec<_>>(), [left]);
        t.group.end_injection(t.now, P0, left);
        assert_eq!(t.actions(), [issue(P0, 0)]);
    }
}

#[test]
fn an_injected_error_counts_as_an_answer_of_the_target() {
    let mut t = Test::with_injection(None, error(Direction::Request, Outcome::PathError));
    assert_eq!(t.submit(0, Op::Write), [issue(P1, 0)], "repeated on the other path, never sent on this one");
    assert!(t.group.stats(t.now).path(P0).unwrap().resting);
    let mut t = Test::with_injection(None, error(Direction::Request, Outcome::Failed(IoError::Controller)));
    assert_eq!(t.submit(0, Op::Read), [failed(0, IoError::Controller)]);
    let mut t = Test::with_injection(None, error(Direction::Request, crate::retry(Duration::ZERO)));
    assert_eq!(t.submit(0, Op::Read), [issue(P1, 0)], "elsewhere");
    let retry = crate::retry(Duration::ZERO);
    for errors in 1..=2 {
        assert_eq!(t.group.stats(t.now).path(P0).unwrap().class(OpClass::Read).errors, errors);
        assert_eq!(t.complete(P1, 0, retry), [issue(P1, 0)], "by turns");
    }
    assert_eq!(t.complete(P1, 0, retry), [failed(0, IoError::Attempts)], "the last retry");
}

#[test]
fn an_executed_write_with_an_injected_error_counts_as_unflushed() {
    let mut t = Test::with_injection(Some(OpClass::Write), error(Direction::Response, Outcome::PathError));
    assert_eq!(t.submit(9, Op::Flush), [issue(P0, 9)], "of what may have been written before");
    assert_eq!(t.complete(P0, 9, Outcome::Success), [ok(9)]);
    assert!(!t.unflushed.is_unflushed(P0));
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [issue(P1, 0)]);
    assert_eq!(t.complete(P1, 0, Outcome::Success), [ok(0)]);
    assert!(t.unflushed.is_unflushed(P0));
    // Errors of the target are not replaced.
    let mut t = Test::with_injection(None, error(Direction::Response, Outcome::PathError));
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    assert_eq!(t.complete(P0, 0, Outcome::Failed(IoError::Unsupported)).len(), 1);
}

#[test]
fn a_flush_is_never_a_silent_success() {
    for direction in [Direction::Request, Direction::Response] {
        let mut t = Test::with_injection(Some(OpClass::Other), error(direction, Outcome::Failed(IoError::Controller)));
        assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
        assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
        let actions = t.submit(1, Op::Flush);
        if direction == Direction::Request {
            assert_eq!(actions, [failed(1, IoError::Controller)]);
        } else {
            assert_eq!(actions, [issue(P0, 1)]);
            assert_eq!(t.complete(P0, 1, Outcome::Success), [failed(1, IoError::Controller)]);
        }
        assert!(t.unflushed.is_unflushed(P0), "{direction}: the next flush goes there again");
        assert_eq!(t.clear(), []);
        assert_eq!(t.submit(2, Op::Flush), [issue(P0, 2)]);
    }
}

#[test]
fn a_delayed_answer_is_lost_with_its_association_and_fenced() {
    let mut t = Test::with_injection(None, stall(Direction::Response));
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), []);
    assert_eq!(t.complete(P0, 1, Outcome::Success), []);
    t.group.path_lost(t.now, P0);
    assert_eq!(t.actions(), [issue(P1, 1)], "the write waits");
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 0)]);
}

#[test]
fn unsent_requests_of_a_lost_path_need_no_fence() {
    let mut t = Test::with_injection(None, stall(Direction::Request));
    for (tag, op) in [(0, Op::Write), (1, Op::Read), (2, Op::Write)] {
        assert_eq!(t.submit(tag, op), []);
    }
    t.group.path_lost(t.now, P0);
    assert_eq!(t.actions(), [issue(P1, 0), issue(P1, 1), issue(P1, 2)], "in order");
}

#[test]
fn a_stalled_request_of_a_lost_path_is_no_failover() {
    for direction in [Direction::Request, Direction::Response] {
        let mut t = Test::with(&GroupConfig { max_failovers: 0, ..GroupConfig::default() });
        t.group.set_injection(t.now, P0, None, stall(direction));
        let expected = if t.submit(0, Op::Read).is_empty() {
            issue(P1, 0)
        } else {
            assert_eq!(t.complete(P0, 0, Outcome::Success), []);
            failed(0, IoError::Attempts)
        };
        t.group.path_lost(t.now, P0);
        assert_eq!(t.actions(), [expected], "{direction}: only what was sent has failed over");
    }
}

#[test]
fn an_answer_is_late_by_the_latency() {
    let mut t = Test::with_injection(None, Injection { direction: Direction::Response, ..Injection::latency(20 * MS) });
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), []);
    assert_eq!(t.in_flight(P0), 1);
    assert_eq!(t.after(19 * MS), []);
    assert_eq!(t.after(MS), [ok(0)]);
    let stats = t.group.stats(t.now);
    assert!(stats.path(P0).unwrap().class(OpClass::Read).latency.ns().max() >= 20_000_000);
}

#[test]
fn released_requests_do_not_go_to_an_unusable_path() {
    let mut t = Test::with_injection(None, stall(Direction::Request));
    assert_eq!(t.submit(0, Op::Write), []);
    t.group.set_draining(t.now, P0, true);
    assert_eq!(t.actions(), []);
    assert_eq!(t.clear(), [issue(P1, 0)]);
}
