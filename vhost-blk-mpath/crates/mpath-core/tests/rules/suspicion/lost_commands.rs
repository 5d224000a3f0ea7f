//! Paths that lose single commands and answer all others.

use mpath_core::{Direction, IoError};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const IO_TIMEOUT: Duration = Duration::from_secs(30);
const LOST: Outcome = Outcome::Lost { indeterminate: true };
const UNSENT_LOST: Outcome = Outcome::Lost { indeterminate: false };

impl Test {
    /// Lets `time` pass. Every 10 ms a read is answered after 1 ms, so that the path is never silent. Returns the
    /// other actions and their times.
    fn pass(&mut self, path: PathId, time: Duration) -> Vec<(Duration, Action)> {
        const OTHER: u32 = 1000;
        let (start, mut seen) = (self.now, Vec::new());
        let answer = |t: &mut Self| t.group.complete(t.now, path, Tag(OTHER), Outcome::Success);
        while self.now - start < time {
            self.group.submit(
                self.now,
                Io { tag: Tag(OTHER), op: Op::Read, bytes: 4096, disk: DiskId(0), flow: FlowId(1), fua: false },
            );
            let mut issued_on = None;
            for step in 0..10 {
                for action in self.actions() {
                    match action {
                        Action::Issue { path: on, tag: Tag(OTHER) } => issued_on = Some(on),
                        Action::Finish { tag: Tag(OTHER), result } => assert_eq!(result, Ok(())),
                        other => seen.push((self.now - start, other)),
                    }
                }
                self.now += MS;
                if step == 0 && issued_on == Some(path) {
                    answer(self);
                }
            }
        }
        seen
    }

    /// A new association of the path, with this queue depth.
    fn deep(&mut self, path: PathId, queue_depth: u16) {
        self.renew(path, queue_depth, false);
    }

    /// A new association of the path, to a controller with a volatile write cache.
    fn cached(&mut self, path: PathId) {
        self.renew(path, 64, true);
    }

    fn renew(&mut self, path: PathId, queue_depth: u16, volatile_write_cache: bool) {
        self.group.path_lost(self.now, path);
        let ana = AnaState::Optimized.into();
        let association = Association { epoch: Epoch(2), ana, volatile_write_cache, queue_depth };
        self.group.path_up(self.now, path, association);
    }

    /// The next path that times out, and after how long. `oldest_sent` is as in `Group::timed_out`.
    fn times_out(&mut self, oldest_sent: impl Fn(PathId) -> Option<Instant>) -> (Option<PathId>, Duration) {
        let start = self.now;
        while let Some(at) = self.group.next_timeout().filter(|at| *at - start < 100 * SECOND) {
            self.now = at;
            self.actions();
            if let Some(path) = self.group.timed_out(self.now, &oldest_sent) {
                return (Some(path), self.now - start);
            }
        }
        (None, self.now - start)
    }
}

/// A path with a long history of reads of 1 ms.
fn known() -> Test {
    let mut t = Test::new(numa());
    assert_eq!(t.pass(P0, 25 * SECOND), []);
    t
}

#[test]
fn a_lost_read_goes_elsewhere_within_the_suspect_timeout_while_its_path_answers() {
    let mut t = Test::new(numa());
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    assert_eq!(t.pass(P0, SECOND / 2), [(DEADLINE, recall(P0, 0))]);
    assert!(!t.path(P0).suspect, "it answers everything else");
    assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)], "although the policy prefers the first path");
    assert_eq!(t.complete(P1, 0, Outcome::Success), [ok(0)]);
    assert_eq!(t.path(P0).recalled, 1);
}

#[test]
fn the_deadline_is_four_times_the_read_latency() {
    let mut t = known();
    t.submit(0, Op::Read);
    assert_eq!(t.pass(P0, SECOND / 2), [(100 * MS, recall(P0, 0))]);
    let mut t = known();
    t.submit(1, Op::Read);
    t.now += 40 * MS;
    t.complete(P0, 1, Outcome::Success);
    t.submit(0, Op::Read);
    assert_eq!(t.pass(P0, SECOND / 2), [(160 * MS, recall(P0, 0))]);
}

/// The path once took 7 s for a read, and answers only writes at present.
#[test]
fn a_lost_read_waits_for_three_times_the_suspect_timeout_at_most() {
    let mut t = known();
    t.group.set_draining(t.now, P1, true);
    t.submit(1, Op::Read);
    t.pass(P0, 7 * SECOND);
    t.complete(P0, 1, Outcome::Success);
    t.group.set_draining(t.now, P1, false);
    let lost = t.now;
    assert_eq!(t.submit(0, Op::Read), [issue(P0, 0)]);
    let recalled = (0..).find_map(|_| {
        t.submit(2, Op::Write);
        t.now += MS;
        let actions = t.complete(P0, 2, Outcome::Success);
        actions.contains(&recall(P0, 0)).then_some(t.now - lost)
    });
    assert_eq!(recalled, Some(3 * DEADLINE));
}

#[test]
fn a_lost_read_may_go_to_a_worse_path() {
    let mut t = Test::new(numa());
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::NonOptimized);
    t.submit(0, Op::Read);
    assert_eq!(t.pass(P0, SECOND / 2), [(DEADLINE, recall(P0, 0))]);
    assert_eq!(t.complete(P0, 0, ABANDONED), [issue(P1, 0)]);
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.submit(1, Op::Read), [issue(P0, 1)]);
}

#[test]
fn a_lost_read_waits_until_another_path_is_usable() {
    for draining in [false, true] {
        let mut t = Test::new(numa());
        if draining {
            t.group.set_draining(t.now, P1, true);
        } else {
            t.group.path_lost(t.now, P1);
        }
        t.submit(0, Op::Read);
        assert_eq!(t.pass(P0, SECOND), []);
        if draining {
            t.group.set_draining(t.now, P1, false);
        } else {
            t.up(P1, 2, AnaState::Optimized);
        }
        assert_eq!(t.actions(), [recall(P0, 0)]);
    }
}

#[test]
fn writes_and_flushes_are_not_recalled_from_a_path_that_answers() {
    let mut t = Test::new(GroupConfig { shared_write_cache: true, ..numa() });
    t.submit(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.pass(P0, 2 * SECOND), []);
}

/// Each path serves its queue in order, one read in 5 ms. So a read in a queue of 128 takes 640 ms.
#[test]
fn a_deep_queue_recalls_nothing_and_still_finds_a_lost_read() {
    const SERVICE: Duration = Duration::from_millis(5);
    let mut t = Test::new(GroupConfig { policy: PolicyKind::RoundRobin.into(), ..GroupConfig::default() });
    t.deep(P0, 256);
    t.deep(P1, 256);
    let start = t.now;
    let mut queues = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
    let (mut lost, mut found) = (None, None);
    let mut actions: Vec<Action> = (0..256).flat_map(|tag| t.submit(tag, Op::Read)).collect();
    while found.is_none() {
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Issue { path, tag } if t.now - start > 30 * SECOND && lost.is_none() => {
                    lost = Some((path, tag, t.now));
                }
                Action::Issue { path, tag } => queues[usize::from(path.0)].push_back(tag),
                Action::Finish { tag, result } => {
                    assert_eq!(result, Ok(()));
                    actions.extend(t.submit(tag.0, Op::Read));
                }
                Action::Recall { path, tag } => {
                    let (lost_by, lost_tag, at) = lost.expect("nothing was lost yet");
                    assert_eq!((path, tag), (lost_by, lost_tag), "only what was lost is recalled");
                    found = Some(t.now - at);
                }
                other => panic!("{other:?}"),
            }
        }
        if !actions.is_empty() {
            continue;
        }
        t.now += SERVICE;
        for (path, queue) in [P0, P1].into_iter().zip(&mut queues) {
            if let Some(tag) = queue.pop_front() {
                t.group.complete(t.now, path, tag, Outcome::Success);
            }
        }
        actions = t.actions();
    }
    // Requests issued to the path 300 ms later have come back.
    let found = found.expect("the loop ends with it");
    assert!((900 * MS..1000 * MS).contains(&found), "{found:?}");
}

#[test]
fn a_lost_write_ends_its_association_at_the_io_timeout_and_is_repeated_after_the_fence() {
    let mut t = Test::new(numa());
    let sent = t.now;
    assert_eq!(t.submit(0, Op::Write), [issue(P0, 0)]);
    assert_eq!(t.pass(P0, 29_990 * MS), []);
    assert_eq!(t.group.timed_out(t.now, |_| Some(sent)), None);
    assert_eq!(t.times_out(|_| Some(sent)), (Some(P0), 10 * MS));
    t.group.path_lost(t.now, P0);
    assert_eq!(t.group.timed_out(t.now, |_| Some(sent)), None, "once");
    assert_eq!(t.complete(P0, 0, LOST), [], "it may yet be executed");
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 0)]);
}

#[test]
fn an_answer_in_time_ends_nothing() {
    let mut t = Test::new(numa());
    t.submit(0, Op::Write);
    t.now += 29_999 * MS;
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.group.next_timeout(), None);
}

#[test]
fn the_io_timeout_is_a_setting() {
    let mut t = Test::new(GroupConfig { io_timeout: 90 * SECOND, ..numa() });
    let sent = t.now;
    t.submit(0, Op::Write);
    assert_eq!(t.times_out(|_| Some(sent)), (Some(P0), 90 * SECOND));
}

#[test]
fn a_command_ages_from_its_first_byte() {
    let mut t = Test::new(numa());
    let start = t.now;
    t.submit(0, Op::Write);
    // The queue pair sends the command after 20 s.
    let sent = |now: Instant| (now - start >= 20 * SECOND).then_some(start + 20 * SECOND);
    t.now += IO_TIMEOUT;
    assert_eq!(t.group.timed_out(t.now, |_| sent(start + IO_TIMEOUT)), None);
    t.now = start + 49_999 * MS;
    assert_eq!(t.group.timed_out(t.now, |_| sent(start + IO_TIMEOUT)), None);
    t.now += MS;
    assert_eq!(t.group.timed_out(t.now, |_| sent(start + IO_TIMEOUT)), Some(P0));
}

#[test]
fn a_command_that_was_not_sent_does_not_age() {
    let mut t = Test::new(numa());
    t.submit(0, Op::Write);
    assert_eq!(t.times_out(|_| None).0, None);
}

#[test]
fn a_recalled_read_keeps_its_age() {
    let mut t = Test::new(numa());
    let sent = t.now;
    t.submit(0, Op::Read);
    t.pass(P0, SECOND);
    t.complete(P0, 0, ABANDONED);
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.pass(P0, 28 * SECOND), []);
    assert_eq!(t.times_out(|path| (path == P0).then_some(sent)), (Some(P0), SECOND));
    // An answered command does not age.
    t.progress(P0, 1);
    assert_eq!(t.times_out(|_| None).0, None);
}

#[test]
fn a_lost_flush_ends_its_association_and_fails() {
    for shared in [false, true] {
        let mut t = Test::new(GroupConfig { shared_write_cache: shared, ..numa() });
        t.cached(P0);
        t.submit(0, Op::Write);
        t.complete(P0, 0, Outcome::Success);
        let sent = t.now;
        assert_eq!(t.submit(1, Op::Flush), [issue(P0, 1)]);
        assert_eq!(t.pass(P0, 29 * SECOND), []);
        assert_eq!(t.times_out(|_| Some(sent)), (Some(P0), SECOND));
        t.group.path_lost(t.now, P0);
        let failed = Action::Finish { tag: Tag(1), result: Err(IoError::LostWrites) };
        let then = if shared { issue(P1, 1) } else { failed };
        assert_eq!(t.complete(P0, 1, UNSENT_LOST), [then]);
    }
}

#[test]
fn a_flush_that_is_delayed_and_then_stalled_ages_after_the_delay() {
    let mut t = Test::new(numa());
    t.cached(P0);
    let start = t.now;
    t.submit(0, Op::Write);
    t.complete(P0, 0, Outcome::Success);
    // While the path owes this write, its commands are checked in 30 s.
    t.submit(2, Op::Write);
    t.group.set_injection(t.now, P0, Some(OpClass::Other), Injection::latency(20 * SECOND));
    assert_eq!(t.submit(1, Op::Flush), []);
    assert_eq!(t.pass(P0, 20 * SECOND + MS), [(20 * SECOND, issue(P0, 1))]);
    t.complete(P0, 2, Outcome::Success);
    let stall = Injection { direction: Direction::Response, stall: true, ..Injection::default() };
    t.group.set_injection(t.now, P0, Some(OpClass::Other), stall);
    assert_eq!(t.complete(P0, 1, Outcome::Success), []);
    let left = start + 20 * SECOND + IO_TIMEOUT - t.now;
    assert_eq!(t.times_out(|_| None), (Some(P0), left));
}

#[test]
fn a_stalled_request_ages_and_a_delayed_one_does_not() {
    let stall = |direction| Injection { direction, stall: true, ..Injection::default() };
    for direction in [Direction::Request, Direction::Response] {
        let mut t = Test::new(numa());
        t.group.set_injection(t.now, P0, Some(OpClass::Write), stall(direction));
        let start = t.now;
        t.submit(0, Op::Write);
        if direction == Direction::Response {
            assert_eq!(t.complete(P0, 0, Outcome::Success), []);
        }
        assert_eq!(t.pass(P0, 29 * SECOND), []);
        let left = start + IO_TIMEOUT - t.now;
        assert_eq!(t.times_out(|_| None), (Some(P0), left), "{direction}");
    }
    let mut t = Test::new(GroupConfig { io_timeout: SECOND, ..numa() });
    t.group.set_injection(t.now, P0, None, Injection::latency(20 * SECOND));
    t.submit(0, Op::Read);
    t.submit(1, Op::Write);
    t.now += 10 * SECOND;
    assert_eq!((t.actions(), t.group.timed_out(t.now, |_| None)), (vec![], None));
    let late = Injection { direction: Direction::Response, ..Injection::latency(20 * SECOND) };
    t.group.set_injection(t.now, P0, None, late);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)], "the earlier one has ended");
    t.group.complete(t.now, P0, Tag(0), Outcome::Success);
    t.group.complete(t.now, P0, Tag(1), Outcome::Success);
    t.now += 10 * SECOND;
    assert_eq!(t.group.timed_out(t.now, |_| None), None);
}

#[test]
fn a_stalled_read_that_was_recalled_keeps_its_age() {
    let mut t = Test::new(numa());
    let stall = Injection { stall: true, ..Injection::default() };
    t.group.set_injection(t.now, P0, Some(OpClass::Read), stall);
    let start = t.now;
    assert_eq!(t.submit(0, Op::Read), []);
    // Writes are answered, so the path is not silent.
    for _ in 0..100 {
        t.submit(1, Op::Write);
        t.now += 3 * MS;
        t.complete(P0, 1, Outcome::Success);
    }
    assert!(!t.path(P0).suspect && t.path(P0).recalled == 1);
    assert_eq!(t.complete(P1, 0, Outcome::Success), [ok(0)]);
    let left = start + IO_TIMEOUT - t.now;
    assert_eq!(t.times_out(|_| None), (Some(P0), left));
}

/// One path with a `bdp` estimate, and eight requests of a guest in flight. The path answers in order, each request
/// after 1 ms. It loses the requests that `lose` selects.
fn answered_by_bdp(lose: impl Fn(usize, Duration) -> bool, seconds: u64) -> Vec<usize> {
    const GUEST: u32 = 8;
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Bdp.into(), ..GroupConfig::default() });
    t.group.path_lost(t.now, P1);
    t.deep(P0, 64);
    let start = t.now;
    let (mut queue, mut answered, mut issued) = (std::collections::VecDeque::new(), Vec::new(), 0);
    let op = |tag: u32| if tag.is_multiple_of(2) { Op::Write } else { Op::Read };
    let mut actions: Vec<Action> = (0..GUEST).flat_map(|tag| t.submit(tag, op(tag))).collect();
    for _ in 0..seconds {
        let (end, mut count) = (t.now + SECOND, 0);
        while t.now < end {
            for action in std::mem::take(&mut actions) {
                match action {
                    Action::Issue { tag, .. } if lose(issued, t.now - start) => drop((tag, issued += 1)),
                    Action::Issue { tag, .. } => {
                        queue.push_back(tag);
                        issued += 1;
                    }
                    Action::Finish { tag, .. } => actions.extend(t.submit(tag.0, op(tag.0))),
                    Action::Probe { path, .. } => t.group.probed(t.now, path, true),
                    other => panic!("{other:?}"),
                }
            }
            if !actions.is_empty() {
                continue;
            }
            t.now += MS;
            if let Some(tag) = queue.pop_front() {
                t.group.complete(t.now, P0, tag, Outcome::Success);
                count += 1;
            }
            actions = t.actions();
        }
        answered.push(count);
    }
    answered
}

#[test]
fn a_lost_command_does_not_keep_others_from_a_path_that_bdp_fills() {
    let seen = std::cell::Cell::new(0);
    // Loses one command a second from the fifth second on, so in every phase of `bdp`.
    let lose = |_, at: Duration| {
        let lost = at > 5 * SECOND && at.as_secs() > seen.get() && seen.get() < 9;
        if lost {
            seen.set(at.as_secs());
        }
        lost
    };
    let answered = answered_by_bdp(lose, 12);
    println!("{answered:?}");
    let before = answered[4];
    assert!(answered[5..].iter().all(|&count| 2 * count >= before), "{answered:?}");
}

/// The driver polls after both injections have ended. A stalled read of the second path is old, and could go to the
/// first path.
#[test]
fn injections_that_end_together_recall_only_requests_on_a_path() {
    let delay = Injection::latency(SECOND);
    for second in [None, Some(delay)] {
        let mut t = Test::new(numa());
        let stall = Injection { stall: true, ..Injection::default() };
        for path in [P0, P1] {
            t.group.set_injection(t.now, path, None, stall);
        }
        let start = t.now;
        t.submit(0, Op::Read);
        while t.now - start < 5 * SECOND {
            assert_eq!(t.sleep().1, []);
        }
        t.group.clear_injection(t.now, P0);
        match second {
            None => t.group.clear_injection(t.now, P1),
            Some(delay) => t.group.set_injection(t.now, P1, None, delay),
        }
        let [Action::Issue { path, tag: Tag(0) }] = t.actions()[..] else { panic!("it goes on") };
        assert_eq!(t.complete(path, 0, Outcome::Success), [ok(0)]);
    }
}
