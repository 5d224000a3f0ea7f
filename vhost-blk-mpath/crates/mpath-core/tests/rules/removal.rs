//! Removal of paths, and new paths with their ids.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Injection, Io, IoError, Op, OpClass,
    Outcome, PathConfig, PathId, SharedDisk, Tag, UnflushedPaths,
};

fn shared(unflushed: Arc<UnflushedPaths>) -> SharedDisk {
    SharedDisk { unflushed, ..SharedDisk::default() }
}

const P0: PathId = PathId(0);
const P3: PathId = PathId(3);

struct Test {
    now: Instant,
    group: Group,
    unflushed: Arc<UnflushedPaths>,
}

impl Test {
    /// Paths 0 and 3. The first is live and has no cache.
    fn new() -> Self {
        let (now, unflushed) = (Instant::now(), Arc::new(UnflushedPaths::new()));
        let mut group = Group::new(now, GroupConfig::default(), &[shared(Arc::clone(&unflushed))]);
        group.add_path(P3, PathConfig::default());
        group.add_path(P0, PathConfig::default());
        let mut test = Self { now, group, unflushed };
        test.up(P0, 1, false);
        test
    }

    fn up(&mut self, path: PathId, epoch: u64, volatile_write_cache: bool) {
        let ana = AnaState::Optimized;
        let association = Association { epoch: Epoch(epoch), ana: ana.into(), volatile_write_cache, queue_depth: 64 };
        self.group.path_up(self.now, path, association);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        let bytes = if op == Op::Flush { 0 } else { 4096 };
        self.group.submit(self.now, Io { tag: Tag(tag), op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn finish(tag: u32, result: Result<(), IoError>) -> [Action; 1] {
        [Action::Finish { tag: Tag(tag), result }]
    }
}

/// The commands were under way to the group when the path was removed.
#[test]
fn commands_for_a_removed_path_do_not_reach_the_next_path_with_its_id() {
    let mut test = Test::new();
    test.group.remove_path(P3);
    test.group.set_draining(test.now, P3, true);
    test.group.set_injection(test.now, P3, None, Injection::latency(Duration::from_millis(1)));
    test.group.add_path(P3, PathConfig::default());
    test.up(P3, 1, false);
    test.group.set_draining(test.now, P0, true);
    assert_eq!(test.submit(0, Op::Read), [Action::Issue { path: P3, tag: Tag(0) }]);
}

/// The path is drained, flushed and closed first.
#[test]
fn a_removed_path_is_forgotten_and_its_id_serves_another() {
    let mut test = Test::new();
    test.up(P3, 5, false);
    // Round robin: each path gets one.
    for tag in 0..2 {
        let Action::Issue { path, tag } = test.submit(tag, Op::Write)[0] else { panic!("issued") };
        test.complete(path, tag.0, Outcome::Success);
    }
    test.group.set_injection(test.now, P3, None, Injection::latency(Duration::from_millis(1)));
    test.group.set_draining(test.now, P3, true);
    test.group.path_lost(test.now, P3);
    test.group.remove_path(P3);
    assert_eq!(test.group.stats(test.now).paths.len(), 1);
    assert_eq!(test.group.injections().count(), 0);
    assert_eq!(test.submit(0, Op::Read), [Action::Issue { path: P0, tag: Tag(0) }]);
    test.complete(P0, 0, Outcome::Success);

    test.group.add_path(P3, PathConfig::default());
    let stats = test.group.stats(test.now);
    let stats = stats.path(P3).expect("it is there");
    assert_eq!((stats.class(OpClass::Write).ios, stats.draining, stats.injections), (0, false, 0));
    test.up(P3, 6, false);
    let used: Vec<_> = (0..4).flat_map(|tag| test.submit(tag, Op::Read)).collect();
    assert!(used.iter().any(|action| matches!(action, Action::Issue { path: P3, .. })), "{used:?}");
}

#[test]
#[should_panic(expected = "epochs grow")]
fn epochs_continue_on_the_next_path_with_an_id() {
    let mut test = Test::new();
    test.up(P3, 5, false);
    test.group.path_lost(test.now, P3);
    test.group.remove_path(P3);
    test.group.add_path(P3, PathConfig::default());
    test.up(P3, 5, false);
}

#[test]
fn an_unflushed_removed_path_fails_the_next_flush() {
    let mut test = Test::new();
    test.up(P3, 1, true);
    for tag in 0..2 {
        let Action::Issue { path, tag } = test.submit(tag, Op::Write)[0] else { panic!("issued") };
        test.complete(path, tag.0, Outcome::Success);
    }
    assert!(test.unflushed.is_unflushed(P3));
    test.group.path_lost(test.now, P3);
    test.group.remove_path(P3);
    test.now += Duration::from_secs(1);
    assert_eq!(test.submit(0, Op::Flush), Test::finish(0, Err(IoError::LostWrites)));
    test.now += Duration::from_secs(1);
    assert_eq!(test.submit(0, Op::Flush), Test::finish(0, Ok(())));
}

/// The write goes through one group and the flush through another, which must know of the loss.
#[test]
fn the_loss_of_a_removed_path_fails_the_flush_of_another_group_once() {
    let mut one = Test::new();
    let mut group = Group::new(one.now, GroupConfig::default(), &[shared(Arc::clone(&one.unflushed))]);
    group.add_path(P0, PathConfig::default());
    group.add_path(P3, PathConfig::default());
    let mut other = Test { now: one.now, group, unflushed: Arc::clone(&one.unflushed) };
    other.up(P0, 1, false);
    for test in [&mut one, &mut other] {
        test.up(P3, 1, true);
    }
    for tag in 0..2 {
        let Action::Issue { path, tag } = one.submit(tag, Op::Write)[0] else { panic!("issued") };
        one.complete(path, tag.0, Outcome::Success);
    }
    // One group removes the path before the other begins.
    for test in [&mut one, &mut other] {
        test.group.path_lost(test.now, P3);
        test.group.remove_path(P3);
    }
    other.now += Duration::from_secs(1);
    assert_eq!(other.submit(0, Op::Flush), Test::finish(0, Err(IoError::LostWrites)));
    for test in [&mut one, &mut other] {
        test.now += Duration::from_secs(2);
        test.group.add_path(P3, PathConfig::default());
        test.up(P3, 2, false);
        assert_eq!(test.submit(0, Op::Flush), Test::finish(0, Ok(())));
    }
}

/// Another path has the id before a flush arrives. Its cache may hold writes of an earlier daemon.
#[test]
fn the_next_path_with_an_id_hides_no_loss_and_is_flushed_itself() {
    let mut test = Test::new();
    test.up(P3, 1, true);
    for tag in 0..2 {
        let Action::Issue { path, tag } = test.submit(tag, Op::Write)[0] else { panic!("issued") };
        test.complete(path, tag.0, Outcome::Success);
    }
    test.group.path_lost(test.now, P3);
    test.group.remove_path(P3);
    test.group.add_path(P3, PathConfig::default());
    test.up(P3, 2, true);
    test.now += Duration::from_secs(1);
    assert_eq!(test.submit(0, Op::Flush), [Action::Issue { path: P3, tag: Tag(0) }]);
    assert_eq!(test.complete(P3, 0, Outcome::Success), Test::finish(0, Err(IoError::LostWrites)));
    test.now += Duration::from_secs(1);
    assert_eq!(test.submit(0, Op::Flush), Test::finish(0, Ok(())));
}

#[test]
#[should_panic(expected = "no request or flush needs it")]
fn a_path_with_writes_that_wait_for_the_fence_cannot_be_removed() {
    let mut test = Test::new();
    test.up(P3, 1, false);
    let mut held = None;
    for tag in 0..2 {
        let Action::Issue { path, tag } = test.submit(tag, Op::Write)[0] else { panic!("issued") };
        held = held.or((path == P3).then_some(tag));
    }
    test.group.path_lost(test.now, P3);
    test.complete(P3, held.expect("one of two").0, Outcome::Lost { indeterminate: true });
    test.group.remove_path(P3);
}

/// The next path with the id leads to another controller, which has asked for no delay.
#[test]
fn a_delay_ends_with_the_removal_of_its_path() {
    let mut t = Test::new();
    assert_eq!(t.submit(0, Op::Write), [Action::Issue { path: P0, tag: Tag(0) }]);
    let after = Duration::from_secs(6000);
    assert_eq!(t.complete(P0, 0, crate::retry(after)), []);
    t.group.path_lost(t.now, P0);
    t.group.remove_path(P0);
    t.group.add_path(P0, PathConfig::default());
    t.up(P0, 2, false);
    t.now += Duration::from_secs(10);
    t.group.handle_timeout(t.now);
    assert_eq!(t.actions(), [Action::Issue { path: P0, tag: Tag(0) }]);
}
