//! Flushes of writes that are lost with their namespace, while the association lives on.

use super::*;

/// The namespace is lost with its cache and comes back, in one association.
fn lose_and_restore_namespace(t: &mut Test) {
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::PersistentLoss);
    t.now += 100 * MS;
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Optimized);
}

fn numa() -> GroupConfig {
    GroupConfig { policy: PolicyKind::Numa.into(), ..config() }
}

#[test]
fn a_flush_fails_if_its_writes_are_lost_meanwhile() {
    // The flush command is repeated later, repeated after a path error, or not repeated.
    for outcome in [Outcome::Retry { after: 50 * MS }, Outcome::PathError, Outcome::Success] {
        let mut t = Test::new(numa());
        t.flush_presumed();
        assert_eq!(t.done(0, Op::Write), P0);
        t.submit(1, Op::Flush);
        assert_eq!(t.actions(), [issue(P0, 1)]);
        if outcome == Outcome::Success {
            lose_and_restore_namespace(&mut t);
            t.complete(P0, 1, outcome);
        } else {
            t.complete(P0, 1, outcome);
            assert_eq!(t.actions(), []);
            lose_and_restore_namespace(&mut t);
        }
        assert_eq!(t.actions(), [failed(1, IoError::LostWrites)], "{outcome:?}");
        // The flush was under way at the loss, so for the guest it may not cover the last writes.
        for (tag, action) in [(2, failed(2, IoError::LostWrites)), (3, ok(3))] {
            t.now += 1000 * MS;
            t.submit(tag, Op::Flush);
            assert_eq!(t.actions(), [action]);
        }
    }
}

#[test]
fn a_write_sent_before_a_loss_is_lost_though_it_is_answered_after_it() {
    let mut t = Test::new(numa());
    t.flush_presumed();
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    lose_and_restore_namespace(&mut t);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
    t.now += 1000 * MS;
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
}

#[test]
fn a_thread_that_learns_late_of_a_loss_loses_nothing_more() {
    let disk = SharedDisk::default();
    let [mut a, mut b] = [(); 2].map(|()| Test::up_with(numa(), std::slice::from_ref(&disk)));
    b.now = a.now;
    a.flush_presumed();
    lose_and_restore_namespace(&mut a);
    assert_eq!(a.done(0, Op::Write), P0);
    lose_and_restore_namespace(&mut b);
    a.now += 1000 * MS;
    a.submit(1, Op::Flush);
    assert_eq!(a.actions(), [issue(P0, 1)]);
    a.complete(P0, 1, Outcome::Success);
    assert_eq!(a.actions(), [ok(1)]);
}

#[test]
fn a_flush_in_backoff_learns_of_the_loss_of_its_path() {
    let mut t = Test::new(numa());
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, Outcome::Retry { after: 3_600_000 * MS });
    assert_eq!(t.actions(), []);
    t.group.path_lost(t.now, P0);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
    assert!(t.group.next_timeout().is_none_or(|at| at < t.now + 60_000 * MS), "and nothing is left of the timer");
}
