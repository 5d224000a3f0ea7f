//! A driver that stood still: its process was stopped, its host suspended, or its thread got no processor.

use super::*;
use crate::wake_after;

const SECOND: Duration = Duration::from_secs(1);

impl Test {
    /// Begins a turn this much later.
    fn turn_after(&mut self, time: Duration) -> Vec<Action> {
        let due = self.group.next_timeout();
        wake_after(&mut self.group, &mut self.now, due, time);
        self.actions()
    }
}

#[test]
fn a_standstill_is_neither_silence_nor_age() {
    let mut t = Test::new(numa());
    t.turn_after(MS);
    t.submit(0, Op::Read);
    assert_eq!(t.turn_after(5 * SECOND), [], "the answer may be in the socket");
    assert!(!t.path(P0).suspect);
    assert_eq!(t.turn_after(DEADLINE.saturating_sub(MS)), []);
    assert_eq!(t.turn_after(MS), [recall(P0, 0)]);
    assert!(t.path(P0).suspect);
}

#[test]
fn what_a_path_took_during_a_standstill_is_not_remembered() {
    let mut t = Test::new(numa());
    // A path without history would have the longest deadline anyway.
    for _ in 0..3 {
        t.submit(0, Op::Read);
        t.turn_after(MS);
        t.complete(P0, 0, Outcome::Success);
        t.turn_after(10 * SECOND);
    }
    t.submit(0, Op::Read);
    t.turn_after(2 * SECOND);
    t.complete(P0, 0, Outcome::Success);
    t.submit(1, Op::Read);
    assert_eq!(t.sleep(), (100 * MS, vec![recall(P0, 1)]));
}

#[test]
fn a_command_does_not_reach_the_io_timeout_during_a_standstill() {
    let mut t = Test::new(GroupConfig { io_timeout: 2 * SECOND, ..numa() });
    let sent = t.now;
    t.turn_after(MS);
    t.submit(0, Op::Write);
    t.turn_after(SECOND / 10);
    t.turn_after(40 * SECOND);
    let start = t.now;
    while t.group.timed_out(t.now, |_| Some(sent)).is_none() {
        let due = t.group.next_timeout().expect("a command waits");
        t.turn_after(due - t.now);
    }
    assert_eq!(t.now - start, 1899 * MS);
}

/// A thread that has nothing to wait for sleeps as long as it likes.
#[test]
fn sleep_is_no_standstill() {
    let mut t = Test::new(GroupConfig { suspect_timeout: 5 * SECOND, ..numa() });
    t.turn_after(10 * SECOND);
    t.submit(0, Op::Read);
    assert_eq!(t.turn_after(5 * SECOND), [recall(P0, 0)]);
}
