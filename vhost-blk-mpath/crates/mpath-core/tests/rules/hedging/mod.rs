//! Hedged reads: one small test per rule.

mod injections;
mod selection;

use std::collections::BTreeSet;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, Direction, DiskId, Epoch, FlowId, Group, GroupConfig, HedgeCounts, Hedging,
    InjectedError, Injection, Io, IoError, MAX_HEDGE_BYTES, Op, OpClass, Outcome, PathConfig, PathId, PathStats,
    PolicyKind, SharedDisk, Tag,
};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const P0: PathId = PathId(0);
const P1: PathId = PathId(1);
const P2: PathId = PathId(2);
const ABANDONED: Outcome = Outcome::Recalled { abandoned: true };
const P95: Option<Hedging> = Some(Hedging { quantile_permille: 950, budget_permille: 50 });
/// The window is as large as the queue pair.
const QUEUE_DEPTH: u16 = 16;

struct Test {
    now: Instant,
    group: Group,
    /// Hedges that the driver has not answered, with their reads. The driver takes them back on request.
    out: BTreeSet<(PathId, Tag)>,
}

impl Test {
    /// Three live optimized paths. The policy sends everything to the first.
    fn new() -> Self {
        let now = Instant::now();
        let config = GroupConfig { policy: PolicyKind::Numa.into(), hedging: P95, ..GroupConfig::default() };
        let mut test = Self { now, group: Group::new(now, config, &[SharedDisk::default()]), out: BTreeSet::new() };
        for path in [P0, P1, P2] {
            test.group.add_path(path, PathConfig::default());
            test.up(path, 1);
        }
        test
    }

    /// A group with enough reads of 1 ms that it hedges much longer ones.
    fn learned() -> Self {
        let mut test = Self::new();
        test.learn(P0, 4096, MS);
        test
    }

    fn up(&mut self, path: PathId, epoch: u64) {
        let ana = AnaState::Optimized;
        let association =
            Association { epoch: Epoch(epoch), ana: ana.into(), volatile_write_cache: false, queue_depth: QUEUE_DEPTH };
        self.group.path_up(self.now, path, association);
    }

    /// Many reads on a path with this latency.
    fn learn(&mut self, path: PathId, bytes: u32, latency: Duration) {
        let others = [P0, P1, P2].into_iter().filter(|other| *other != path);
        others.clone().for_each(|other| self.group.set_draining(self.now, other, true));
        for _ in 0..120 {
            assert_eq!(self.submit_io(900, Op::Read, bytes), [issue(path, 900)]);
            self.now += latency;
            assert_eq!(self.complete(path, 900, Outcome::Success), [ok(900)]);
        }
        others.for_each(|other| self.group.set_draining(self.now, other, false));
        self.now += 200 * MS;
        assert_eq!(self.actions(), []);
    }

    fn submit_io(&mut self, tag: u32, op: Op, bytes: u32) -> Vec<Action> {
        self.group.submit(self.now, Io { tag: Tag(tag), op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
        self.actions()
    }

    fn read(&mut self, tag: u32) -> Vec<Action> {
        self.submit_io(tag, Op::Read, 4096)
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn hedged(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        assert!(self.out.remove(&(path, Tag(tag))));
        self.group.hedged(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn lose(&mut self, path: PathId) -> Vec<Action> {
        self.out.retain(|(of, _)| *of != path);
        self.group.path_lost(self.now, path);
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.group.poll_action(self.now) {
            actions.push(action);
            match action {
                Action::Hedge { path, tag } => assert!(self.out.insert((path, tag))),
                Action::DropHedge { path, tag } if self.out.remove(&(path, tag)) => {
                    self.group.hedged(self.now, path, tag, ABANDONED);
                }
                _ => {}
            }
        }
        actions
    }

    /// Waits for the next timeout. Returns the time and the actions then.
    fn sleep(&mut self) -> (Duration, Vec<Action>) {
        let at = self.group.next_timeout().expect("a timeout");
        let time = at - self.now;
        self.now = at;
        (time, self.actions())
    }

    fn sleep_for(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.actions()
    }

    fn path(&self, path: PathId) -> PathStats {
        self.group.stats(self.now).paths.swap_remove(path.0.into())
    }

    /// Submits a read that is hedged on this path.
    fn hedge(&mut self, tag: u32, path: PathId) {
        assert_eq!(self.read(tag), [issue(P0, tag)]);
        assert_eq!(self.sleep_for(2 * MS), [hedge(path, tag)]);
    }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn recall(path: PathId, tag: u32) -> Action {
    Action::Recall { path, tag: Tag(tag) }
}

fn hedge(path: PathId, tag: u32) -> Action {
    Action::Hedge { path, tag: Tag(tag) }
}

fn dropped(path: PathId, tag: u32) -> Action {
    Action::DropHedge { path, tag: Tag(tag) }
}

fn adopt(path: PathId, tag: u32) -> Action {
    Action::Adopt { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}

#[test]
fn the_data_of_a_hedge_are_taken_after_the_recall_of_the_read() {
    let mut t = Test::learned();
    let before = t.path(P0);
    assert_eq!(t.read(0), [issue(P0, 0)]);
    let (after, actions) = t.sleep();
    assert_eq!(actions, [hedge(P1, 0)]);
    assert!((MS..MS * 11 / 10).contains(&after), "{after:?}");
    assert_eq!(t.sleep_for(MS), [], "once");
    assert_eq!(t.hedged(P1, 0, Outcome::Success), [recall(P0, 0)]);
    assert_eq!(t.sleep_for(MS), [], "the first path may still write to the guest's memory");
    assert_eq!(t.complete(P0, 0, ABANDONED), [adopt(P1, 0), ok(0)]);
    let (of, by) = (t.path(P0), t.path(P1));
    assert_eq!((by.hedges, by.hedges_won, of.hedges), (1, 1, 0));
    // The read counts as no I/O and no error of either path.
    assert_eq!((by.class(OpClass::Read).ios, of.class(OpClass::Read).ios), (0, before.class(OpClass::Read).ios));
    assert_eq!((of.class(OpClass::Read).errors, of.recalled, of.class(OpClass::Read).in_flight), (0, 0, 0));
    assert_eq!(t.group.stats(t.now).hedging, HedgeCounts { reads: 121, sent: 1, won: 1 });
}

#[test]
fn a_read_that_succeeds_while_it_is_recalled_needs_no_hedge() {
    let mut t = Test::learned();
    t.hedge(0, P1);
    assert_eq!(t.hedged(P1, 0, Outcome::Success), [recall(P0, 0)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [dropped(P1, 0), ok(0)]);
    // The same holds if both answers arrive before the driver polls.
    t.hedge(1, P1);
    t.out.clear();
    t.group.hedged(t.now, P1, Tag(1), Outcome::Success);
    assert_eq!(t.complete(P0, 1, Outcome::Success), [dropped(P1, 1), ok(1)]);
    t.hedge(2, P1);
    t.out.clear();
    t.group.complete(t.now, P0, Tag(2), Outcome::Success);
    t.group.hedged(t.now, P1, Tag(2), Outcome::Success);
    assert_eq!(t.actions(), [dropped(P1, 2), ok(2)]);
    assert_eq!(t.path(P1).hedges_won, 0);
}

#[test]
fn a_read_that_fails_while_it_is_recalled_is_saved_by_its_hedge() {
    for outcome in [
        Outcome::PathError,
        crate::retry(MS),
        Outcome::Failed(IoError::Controller),
        Outcome::Lost { indeterminate: false },
    ] {
        let mut t = Test::learned();
        t.hedge(0, P1);
        assert_eq!(t.hedged(P1, 0, Outcome::Success), [recall(P0, 0)]);
        assert_eq!(t.complete(P0, 0, outcome), [adopt(P1, 0), ok(0)], "{outcome:?}");
        assert_eq!(t.path(P0).class(OpClass::Read).errors, 1);
    }
}

#[test]
fn a_hedge_that_is_too_late_is_dropped_and_its_command_still_owed() {
    let mut t = Test::learned();
    t.hedge(0, P1);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [dropped(P1, 0), ok(0)]);
    t.hedge(1, P1);
    // A read that fails goes on as if there had been no hedge.
    assert_eq!(t.complete(P0, 1, Outcome::PathError), [dropped(P1, 1), issue(P1, 1)]);
    t.complete(P1, 1, Outcome::Success);
    // Two commands are abandoned on the path, and the queue pair must not overflow.
    t.group.set_draining(t.now, P0, true);
    t.group.set_draining(t.now, P2, true);
    let taken = (10..40).filter(|tag| !t.read(*tag).is_empty()).count();
    assert_eq!(taken, usize::from(QUEUE_DEPTH) - 2);
    t.group.progress(t.now, P1, 1, None);
    assert_eq!(t.actions().len(), 1);
}

#[test]
fn a_failed_hedge_does_not_affect_the_read() {
    let mut t = Test::learned();
    for (tag, outcome) in (0..).zip([Outcome::PathError, Outcome::Failed(IoError::Controller), crate::retry(MS)]) {
        t.hedge(tag, P1);
        assert_eq!(t.hedged(P1, tag, outcome), [dropped(P1, tag)]);
        assert_eq!(t.sleep_for(5 * MS), [], "no second one");
        assert_eq!(t.complete(P0, tag, Outcome::Success), [ok(tag)]);
    }
    t.hedge(5, P1);
    assert_eq!(t.lose(P1), [dropped(P1, 5)]);
    assert_eq!(t.complete(P0, 5, Outcome::Success), [ok(5)]);
    t.up(P1, 2);
    assert_eq!(t.path(P1).class(OpClass::Read).errors, 0);
    // A hedge that has won does not need its path.
    t.hedge(6, P1);
    assert_eq!(t.hedged(P1, 6, Outcome::Success), [recall(P0, 6)]);
    assert_eq!(t.lose(P1), []);
    assert_eq!(t.complete(P0, 6, ABANDONED), [adopt(P1, 6), ok(6)]);
}

#[test]
fn nothing_is_recalled_from_a_lost_path() {
    let mut t = Test::learned();
    t.hedge(0, P1);
    t.lose(P0);
    assert_eq!(t.hedged(P1, 0, Outcome::Success), []);
    assert_eq!(t.complete(P0, 0, Outcome::Lost { indeterminate: false }), [adopt(P1, 0), ok(0)]);
}

#[test]
fn recalled_reads_of_a_suspect_path_drop_their_hedges() {
    let mut t = Test::learned();
    t.hedge(0, P1);
    // Both paths are silent. This path got its request first.
    let (_, actions) = t.sleep();
    assert_eq!(actions, [recall(P0, 0), dropped(P1, 0)]);
    assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)]);
}
