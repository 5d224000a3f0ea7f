//! Paths that do not answer: one small test per rule. Here paths fall silent; in `lost_commands` they lose single
//! commands. In `standstill` the driver itself stood still.

mod lost_commands;
mod standstill;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Injection, Io, Op, OpClass, Outcome,
    PathConfig, PathId, PathStats, PolicyKind, SharedDisk, Tag, Window,
};

const MS: Duration = Duration::from_millis(1);
/// The deadline of a path without history.
const DEADLINE: Duration = Duration::from_millis(300);

const P0: PathId = PathId(0);
const P1: PathId = PathId(1);
const ABANDONED: Outcome = Outcome::Recalled { abandoned: true };
const UNSENT: Outcome = Outcome::Recalled { abandoned: false };

struct Test {
    now: Instant,
    group: Group,
}

impl Test {
    /// Two live optimized paths. The policy sends everything to the first.
    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn new(config: GroupConfig) -> Self {
        Self::with(config, &SharedDisk::default())
    }

    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn with(config: GroupConfig, disk: &SharedDisk) -> Self {
        let now = Instant::now();
        let mut group = Group::new(now, config, std::slice::from_ref(disk));
        group.add_path(P0, PathConfig::default());
        group.add_path(P1, PathConfig::default());
        let mut test = Self { now, group };
        test.up(P0, 1, AnaState::Optimized);
        test.up(P1, 1, AnaState::Optimized);
        test
    }

    fn up(&mut self, path: PathId, epoch: u64, ana: AnaState) {
        let association =
            Association { epoch: Epoch(epoch), ana: ana.into(), volatile_write_cache: false, queue_depth: 4 };
        self.group.path_up(self.now, path, association);
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        self.group
            .submit(self.now, Io { tag: Tag(tag), op, bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false });
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    fn progress(&mut self, path: PathId, answered: u32) -> Vec<Action> {
        self.group.progress(self.now, path, answered, None);
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.group.poll_action(self.now)).collect()
    }

    /// Waits for the next timeout. Returns the time and the actions then.
    fn sleep(&mut self) -> (Duration, Vec<Action>) {
        let at = self.group.next_timeout().expect("a timeout");
        let time = at - self.now;
        self.now = at;
        (time, self.actions())
    }

    fn path(&self, path: PathId) -> PathStats {
        self.group.stats(self.now).paths.swap_remove(path.0.into())
    }
}

fn numa() -> GroupConfig {
    GroupConfig { policy: PolicyKind::Numa.into(), ..GroupConfig::default() }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn recall(path: PathId, tag: u32) -> Action {
    Action::Recall { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}

#[test]
fn reads_are_recalled_in_order_and_writes_stay() {
    let mut t = Test::new(numa());
    let start = t.now;
    t.submit(0, Op::Read);
    t.submit(1, Op::Write);
    t.submit(2, Op::Read);
    // Newest first, so that the oldest ends up first in its flow.
    assert_eq!(t.sleep(), (DEADLINE, vec![recall(P0, 2), recall(P0, 0)]));
    assert_eq!(t.group.next_timeout(), Some(start + 30_000 * MS), "the driver is told once");
    let seen = t.path(P0);
    assert!(seen.suspect && seen.suspicions == 1 && seen.recalled == 0);
    t.group.complete(t.now, P0, Tag(2), ABANDONED);
    t.group.complete(t.now, P0, Tag(0), ABANDONED);
    assert_eq!(t.actions(), [issue(P1, 0), issue(P1, 2)]);
    let seen = t.path(P0);
    assert_eq!((seen.recalled, seen.class(OpClass::Read).in_flight, seen.class(OpClass::Write).in_flight), (2, 0, 1));
    assert_eq!(seen.class(OpClass::Read).errors, 0);
    let failover_times = t.group.stats(t.now).failover_times;
    assert_eq!((failover_times.class(OpClass::Read).ns().len(), failover_times.first().ns().len()), (2, 1));
    // New writes avoid the path too.
    assert_eq!(t.submit(3, Op::Write), [issue(P1, 3)]);
    // The path recovers: the write needs no fence, and new requests go there again.
    assert_eq!(t.complete(P0, 1, Outcome::Success), [ok(1)]);
    assert!(!t.path(P0).suspect);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
}

#[test]
fn a_recall_may_end_with_the_outcome_that_arrived_meanwhile() {
    let mut t = Test::new(numa());
    t.submit(0, Op::Read);
    assert_eq!(t.sleep().1, [recall(P0, 0)]);
    assert_eq!(t.complete(P0, 0, Outcome::Success), [ok(0)]);
    let seen = t.path(P0);
    assert!(!seen.suspect && seen.recalled == 0);
}

#[test]
fn any_sign_of_life_ends_the_suspicion() {
    let mut t = Test::new(numa());
    t.submit(0, Op::Read);
    t.sleep();
    t.complete(P0, 0, ABANDONED);
    assert!(t.path(P0).suspect, "it still owes the answer");
    assert_eq!(t.progress(P0, 0), []);
    assert!(!t.path(P0).suspect);
    assert_eq!(t.submit(1, Op::Write), [issue(P0, 1)]);
    // Data of the slow request are a sign of life too. P1 has the first read.
    t.complete(P1, 0, Outcome::Success);
    t.now += 200 * MS;
    t.progress(P0, 1);
    let heard = t.now;
    while !t.path(P0).suspect {
        t.sleep();
    }
    assert_eq!(t.now - heard, DEADLINE);
}

#[test]
fn a_path_that_owes_nothing_is_not_suspect() {
    let mut t = Test::new(numa());
    t.submit(0, Op::Read);
    t.sleep();
    // Not a byte of the request had been sent.
    assert_eq!(t.complete(P0, 0, UNSENT), [issue(P1, 0)]);
    assert!(!t.path(P0).suspect);
}

#[test]
fn a_suspect_optimized_path_loses_to_a_non_optimized_one_that_answers() {
    let mut t = Test::new(numa());
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::NonOptimized);
    t.submit(0, Op::Read);
    assert_eq!(t.sleep().1, [recall(P0, 0)]);
    assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)]);
    t.progress(P0, 1);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
}

#[test]
fn without_another_path_a_silent_path_is_not_suspect() {
    let mut t = Test::new(numa());
    t.group.path_lost(t.now, P1);
    t.submit(0, Op::Read);
    assert_eq!(t.sleep(), (DEADLINE, vec![]));
    assert!(!t.path(P0).suspect);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
    t.group.set_injection(t.now, P0, None, Injection::latency(10 * MS));
    assert_eq!(t.submit(2, Op::Write), []);
    t.up(P1, 2, AnaState::NonOptimized);
    // Requests that the injection delays were not sent and move at once, even writes.
    assert_eq!(t.actions(), [recall(P0, 1), recall(P0, 0), issue(P1, 2)]);
    assert!(t.path(P0).suspect);
    assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)]);
}

#[test]
fn a_suspect_path_is_used_again_when_the_other_is_gone() {
    let disk = SharedDisk::default();
    let mut t = Test::with(numa(), &disk);
    t.submit(0, Op::Write);
    t.sleep();
    assert!(t.path(P0).suspect && !disk.usable.contains(P0) && disk.usable.contains(P1));
    t.group.path_lost(t.now, P1);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
    assert!(disk.usable.contains(P0), "I/O goes on, so a path is usable");
}

#[test]
fn paths_that_are_silent_together_keep_their_requests_until_one_answers() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::RoundRobin.into(), ..GroupConfig::default() });
    for tag in 0..4 {
        t.submit(tag, Op::Read);
    }
    let start = t.now;
    while t.now - start < 5000 * MS {
        assert_eq!(t.sleep().1, []);
    }
    assert!(!t.path(P0).suspect && !t.path(P1).suspect);
    let of_p1 = t.path(P1).class(OpClass::Read).in_flight;
    assert_eq!(of_p1, 2);
    // P1 goes on.
    let on = |t: &mut Test, path, tag| t.group.complete(t.now, path, Tag(tag), Outcome::Success);
    let tags = [1, 3];
    for &tag in &tags {
        on(&mut t, P1, tag);
    }
    t.actions();
    let recalled = std::iter::from_fn(|| Some(t.sleep().1)).find(|actions| !actions.is_empty()).unwrap();
    assert_eq!(recalled, [recall(P0, 2), recall(P0, 0)]);
    assert!(t.now - start < 5050 * MS && t.path(P0).suspect);
}

#[test]
fn the_delay_of_an_injection_is_no_silence() {
    let mut t = Test::new(numa());
    t.group.set_injection(t.now, P0, None, Injection::latency(1000 * MS));
    t.submit(0, Op::Read);
    assert_eq!(t.sleep(), (1000 * MS, vec![issue(P0, 0)]));
    assert_eq!(t.sleep(), (DEADLINE, vec![recall(P0, 0)]));
}

#[test]
fn abandoned_requests_leave_the_window_and_not_the_queue_pair() {
    // Queue depth 4, window 2.
    let mut t = Test::new(GroupConfig { window: Window { ios: 2, bytes: 1 << 20 }, ..numa() });
    for round in 0..2 {
        for tag in 0..2 {
            assert_eq!(t.submit(tag, Op::Read), [issue(P0, tag)], "round {round}: the window is free again");
        }
        t.sleep();
        for tag in 0..2 {
            assert_eq!(t.complete(P0, tag, ABANDONED), [issue(P1, tag)]);
            t.complete(P1, tag, Outcome::Success);
        }
        t.progress(P0, 0);
    }
    assert_eq!(t.submit(0, Op::Read), [], "4 commands are in its queue pair");
    assert_eq!(t.progress(P0, 1), [issue(P0, 0)]);
    // A new association starts empty.
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, Outcome::Lost { indeterminate: false });
    t.up(P0, 2, AnaState::Optimized);
    assert!(!t.path(P0).suspect);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
}

#[test]
fn flushes_stay_with_their_paths_unless_the_cache_is_shared() {
    for shared in [false, true] {
        let mut t = Test::new(GroupConfig { shared_write_cache: shared, ..numa() });
        let association = Association {
            epoch: Epoch(2),
            ana: AnaState::Optimized.into(),
            volatile_write_cache: true,
            queue_depth: 4,
        };
        t.group.path_lost(t.now, P0);
        t.group.path_up(t.now, P0, association);
        t.submit(0, Op::Write);
        t.complete(P0, 0, Outcome::Success);
        assert_eq!(t.submit(1, Op::Flush), [issue(P0, 1)]);
        let recalled = if shared { vec![recall(P0, 1)] } else { vec![] };
        assert_eq!(t.sleep().1, recalled);
        // No other path can flush the cache of this one, or shows how long that takes.
        assert_eq!(t.path(P0).suspect, shared);
        if shared {
            assert_eq!(t.complete(P0, 1, ABANDONED), [issue(P1, 1)]);
            assert_eq!(t.complete(P1, 1, Outcome::Success), [ok(1)]);
        } else {
            assert_eq!(t.complete(P0, 1, Outcome::Success), [ok(1)]);
        }
    }
}

/// The array is slow, and both paths with it. A path says so for a while with the last write that it has answered.
#[test]
fn a_path_that_takes_as_long_for_writes_is_not_faster() {
    const SLOW: Duration = Duration::from_millis(400);
    let mut t = Test::new(numa());
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    t.sleep();
    assert!(t.path(P0).suspect, "the other path may be faster");
    assert_eq!(t.submit(1, Op::Write), [issue(P1, 1)]);
    t.now += SLOW;
    t.complete(P0, 0, Outcome::Success);
    t.complete(P1, 1, Outcome::Success);
    for (pause_s, suspect_after) in [(1, SLOW), (50, SLOW), (120, DEADLINE)] {
        t.now += Duration::from_secs(pause_s);
        let begun = t.now;
        assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
        while !t.path(P0).suspect {
            t.sleep();
        }
        let after = t.now - begun;
        assert!((suspect_after..suspect_after + 30 * MS).contains(&after), "after {pause_s} s: {after:?}");
        t.complete(P0, 0, Outcome::Success);
    }
}

/// A pause of all paths that is over excuses no silence for long.
#[test]
fn a_slow_read_of_a_path_counts_for_a_minute_only_beside_a_path_as_slow() {
    for (own, pause_s, suspect_after) in [(MS, 1, 800 * MS), (MS, 20, DEADLINE), (500 * MS, 20, 800 * MS)] {
        let mut t = Test::new(numa());
        assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
        assert_eq!(t.sleep().1, [recall(P0, 0)]);
        assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)]);
        t.now += 800 * MS;
        t.progress(P0, 1);
        t.complete(P1, 0, Outcome::Success);
        assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
        t.now += own;
        t.complete(P0, 0, Outcome::Success);
        t.now += Duration::from_secs(pause_s);
        let begun = t.now;
        assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
        while !t.path(P0).suspect && t.path(P0).recalled == 1 {
            t.sleep();
        }
        let after = t.now - begun;
        assert!((suspect_after..suspect_after + 30 * MS).contains(&after), "{own:?}, after {pause_s} s: {after:?}");
    }
}

/// Discards are compared with discards.
#[test]
fn a_long_discard_makes_no_path_suspect_that_others_do_not_beat() {
    let mut t = Test::new(numa());
    for tag in [0, 1] {
        assert_eq!(t.submit(tag, Op::Write), [issue(P0, tag)]);
        t.now += MS;
        t.complete(P0, tag, Outcome::Success);
    }
    let discard = |t: &mut Test| {
        assert_eq!(t.submit(0, Op::Discard), [issue(P0, 0)]);
        let ends = t.now + 2 * Duration::from_secs(1);
        while t.group.next_timeout().is_some_and(|at| at < ends) && !t.path(P0).suspect {
            t.sleep();
        }
        let suspect = t.path(P0).suspect;
        t.now = ends;
        t.complete(P0, 0, Outcome::Success);
        suspect
    };
    assert!(discard(&mut t), "nothing is known of discards");
    assert!(!discard(&mut t));
}

/// The path is silent because of a long flush. Only the time of the read counts.
#[test]
fn a_read_beside_a_long_flush_waits_for_its_own_deadline() {
    let mut t = Test::new(numa());
    let association =
        Association { epoch: Epoch(2), ana: AnaState::Optimized.into(), volatile_write_cache: true, queue_depth: 4 };
    t.group.path_lost(t.now, P0);
    t.group.path_up(t.now, P0, association);
    t.submit(0, Op::Write);
    t.complete(P0, 0, Outcome::Success);
    t.submit(1, Op::Flush);
    t.now += 10 * DEADLINE;
    t.actions();
    let begun = t.now;
    assert_eq!(t.submit(2, Op::Read), [issue(P0, 2)]);
    while !t.path(P0).suspect {
        t.sleep();
    }
    assert!((DEADLINE..DEADLINE + 30 * MS).contains(&(t.now - begun)), "{:?}", t.now - begun);
}

#[test]
fn the_policy_learns_the_latency_of_a_recalled_read() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::LatencyRr.into(), ..GroupConfig::default() });
    // Both paths are known and equal.
    let mut tag = 0;
    let mut paths = |t: &mut Test, count: u32| {
        let mut used = [0; 2];
        for _ in 0..count {
            tag = (tag + 1) % 8 + 8;
            let [Action::Issue { path, .. }] = t.submit(tag, Op::Read)[..] else { panic!("one issue") };
            used[usize::from(path.0)] += 1;
            t.now += MS;
            t.complete(path, tag, Outcome::Success);
        }
        used
    };
    assert!(paths(&mut t, 40).iter().all(|&used| used > 10));
    let [Action::Issue { path: grey, .. }] = t.submit(0, Op::Read)[..] else { panic!("one issue") };
    // Some timeouts before may change nothing.
    let actions = std::iter::from_fn(|| Some(t.sleep().1)).find(|actions| !actions.is_empty());
    assert_eq!(actions, Some(vec![recall(grey, 0)]));
    let other = PathId(1 - grey.0);
    assert_eq!(t.complete(grey, 0, ABANDONED), [issue(other, 0)]);
    t.complete(other, 0, Outcome::Success);
    // The path has recovered, and is known to be slow.
    t.progress(grey, 1);
    assert_eq!(paths(&mut t, 40)[usize::from(grey.0)], 0);
}

/// Each path answers single requests with this latency.
fn slow_paths(latency: Duration) -> (Duration, u64) {
    let mut t =
        Test::new(GroupConfig { policy: PolicyKind::RoundRobin.into(), max_failovers: 0, ..GroupConfig::default() });
    let start = t.now;
    let mut actions = t.submit(0, Op::Read);
    // When each path has an answer ready, and whether its request still waits.
    let mut answers: Vec<(Instant, PathId, bool)> = Vec::new();
    loop {
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Issue { path, .. } => answers.push((t.now + latency, path, true)),
                Action::Recall { path, .. } => {
                    answers.iter_mut().filter(|answer| answer.1 == path).for_each(|answer| answer.2 = false);
                    actions = t.complete(path, 0, ABANDONED);
                }
                Action::Probe { .. } => unreachable!("round-robin asks for none"),
                Action::Hedge { .. } | Action::DropHedge { .. } | Action::Adopt { .. } => {
                    unreachable!("nothing is hedged")
                }
                Action::Finish { result, .. } => {
                    assert_eq!(result, Ok(()));
                    let recalled = [P0, P1].map(|path| t.path(path).recalled).iter().sum();
                    return (t.now - start, recalled);
                }
            }
        }
        if !actions.is_empty() {
            continue;
        }
        let timeout = t.group.next_timeout().into_iter();
        t.now = answers.iter().map(|answer| answer.0).chain(timeout).min().expect("something to wait for");
        assert!(t.now - start < 20 * latency, "it goes to and fro for ever");
        match answers.iter().position(|answer| answer.0 <= t.now) {
            Some(due) => {
                let (_, path, waited_for) = answers.remove(due);
                actions = if waited_for { t.complete(path, 0, Outcome::Success) } else { t.progress(path, 1) };
            }
            None => actions = t.actions(),
        }
    }
}

#[test]
fn a_read_ends_although_all_paths_are_slow() {
    for latency_ms in [200, 350, 500, 1000, 3000, 10_000] {
        let latency = latency_ms * MS;
        let (took, recalls) = slow_paths(latency);
        println!("{latency:?}: {took:?} with {recalls} recalls");
        assert!(took <= 6 * latency && recalls <= 8, "{took:?} with {recalls} recalls");
    }
}
