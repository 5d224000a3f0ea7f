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
    for outcome in [crate::retry(50 * MS), Outcome::PathError, Outcome::Success] {
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
    t.complete(P0, 1, crate::retry(3_600_000 * MS));
    assert_eq!(t.actions(), []);
    t.group.path_lost(t.now, P0);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
    assert!(t.group.next_timeout().is_none_or(|at| at < t.now + 60_000 * MS), "and nothing is left of the timer");
}

/// A repeated flush proves nothing about data that the failed flush may have taken out of the cache.
#[test]
fn a_flush_that_succeeds_after_an_internal_or_medium_error_reports_a_loss() {
    for shared_write_cache in [false, true] {
        for cause in [RetryCause::Internal, RetryCause::Medium, RetryCause::NotExecuted] {
            let mut t = Test::new(GroupConfig { shared_write_cache, ..numa() });
            if !shared_write_cache {
                t.flush_presumed();
            }
            assert_eq!(t.done(0, Op::Write), P0);
            t.submit(1, Op::Flush);
            t.submit(2, Op::Flush);
            assert_eq!(t.actions(), [issue(P0, 1), issue(P0, 2)]);
            t.complete(P0, 1, Outcome::Retry { after: Duration::ZERO, cause });
            let [Action::Issue { path, .. }] = t.actions()[..] else { panic!("the flush is repeated") };
            t.complete(path, 1, Outcome::Success);
            t.complete(P0, 2, Outcome::Success);
            let may_be_lost = cause != RetryCause::NotExecuted;
            let end = |tag| if may_be_lost { failed(tag, IoError::LostWrites) } else { ok(tag) };
            assert_eq!(t.actions(), [end(1), end(2)], "{cause:?}: both cover the write");
            t.now += 1000 * MS;
            assert_eq!(t.flush(3), [end(3)], "the others may be older than the last lost writes");
            t.now += 1000 * MS;
            assert_eq!(t.flush(4), [ok(4)], "reported");
        }
    }
}

#[test]
fn a_final_error_of_a_flush_is_a_loss_for_the_flushes_beside_it() {
    let mut t = Test::new(numa());
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1), issue(P0, 2)]);
    t.complete(P0, 1, Outcome::Failed(IoError::Medium));
    t.complete(P0, 2, Outcome::Success);
    assert_eq!(t.actions(), [failed(1, IoError::Medium), failed(2, IoError::LostWrites)]);
}

/// The path is only presumed to hold writes, of the daemon that was killed.
#[test]
fn after_a_crash_a_final_error_of_a_flush_is_a_loss_for_the_flushes_beside_it() {
    for ios in [1, 64] {
        let window = Window { ios, bytes: 1 << 20 };
        let mut t = Test::down(GroupConfig { window, ..numa() }, &[SharedDisk::after_crash()]);
        t.up(P0, 1, AnaState::Optimized);
        t.submit(1, Op::Flush);
        t.submit(2, Op::Flush);
        let issued = t.actions();
        t.complete(P0, 1, Outcome::Failed(IoError::Controller));
        if issued.contains(&issue(P0, 2)) {
            t.complete(P0, 2, Outcome::Success);
        }
        let both = [failed(1, IoError::Controller), failed(2, IoError::LostWrites)];
        assert_eq!(t.actions(), both, "{issued:?}");
        t.now += 1000 * MS;
        assert_eq!(
            t.flush(3).last(),
            Some(&failed(3, IoError::LostWrites)),
            "the others may be older than the last lost writes"
        );
    }
}

/// A path that refuses a flush and everything else is waited for as long as a path that is not usable.
#[test]
fn a_refused_flush_waits_for_its_path() {
    let mut t = Test::new(GroupConfig { max_failovers: 1, max_retries: 1, ..numa() });
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    let start = t.now;
    let end = loop {
        match t.actions()[..] {
            [Action::Issue { path, tag }] => t.complete(path, tag.0, Outcome::PathError),
            [] => _ = t.sleep(),
            ref end => break end.to_vec(),
        }
    };
    assert_eq!((end, t.now - start), (vec![failed(1, IoError::NoPath)], 30_000 * MS));
}

/// Parts of a write are in the caches of two controllers.
#[test]
fn a_write_done_in_parts_is_unflushed_on_each_path_of_a_part() {
    let mut t = done_in_parts();
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2), issue(P1, 2)]);
}

/// The guest was not told of the write when a part was lost, so there is no loss to report.
#[test]
fn a_write_is_repeated_if_a_part_is_lost_before_its_answer() {
    let mut t = done_in_parts();
    t.group.path_lost(t.now, P0);
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.actions(), [issue(P1, 0)], "all of it");
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P1, 2)]);
    t.complete(P1, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);
}

/// Path 0 has done a part of a write, and path 1 has the rest.
fn done_in_parts() -> Test {
    let mut t = Test::new(numa());
    t.flush_presumed();
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.partly_done(P0, Tag(0));
    t.complete(P0, 0, crate::retry(Duration::ZERO));
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t
}
