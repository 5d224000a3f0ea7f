//! Flushes, which go to every unflushed path.

use super::*;

impl Test {
    fn flush_presumed_on(&mut self, path: PathId) {
        self.submit(98, Op::Flush);
        for action in self.actions() {
            if action == issue(path, 98) {
                self.complete(path, 98, Outcome::Success);
                assert_eq!(self.actions(), [ok(98)]);
            } else {
                assert_eq!(action, ok(98));
            }
        }
    }
}

#[test]
fn a_flush_goes_to_every_path_with_unflushed_writes() {
    let mut t = Test::new(config());
    t.flush_presumed();
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [ok(1)], "nothing to do");
    let one = t.done(2, Op::Write);
    t.submit(3, Op::Flush);
    assert_eq!(t.actions(), [issue(one, 3)]);
    t.complete(one, 3, Outcome::Success);
    assert_eq!(t.actions(), [ok(3)]);
    t.done(4, Op::Write);
    t.done(5, Op::Discard);
    t.submit(6, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 6), issue(P1, 6)]);
    t.complete(P1, 6, Outcome::Success);
    assert_eq!(t.actions(), []);
    t.complete(P0, 6, Outcome::Success);
    assert_eq!(t.actions(), [ok(6)]);
}

#[test]
fn durable_writes_need_no_flush() {
    let mut t = Test::down(config(), &[SharedDisk::default()]);
    let association = Association {
        epoch: Epoch(1),
        ana: AnaState::Optimized.into(),
        volatile_write_cache: false,
        queue_depth: 1024,
    };
    t.group.path_up(t.now, P0, association);
    t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [ok(1)], "no volatile cache");

    let mut t = Test::new(config());
    t.flush_presumed();
    t.submit_io(Io { tag: Tag(0), op: Op::Write, bytes: 512, disk: DiskId(0), flow: FlowId(0), fua: true });
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::Success);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [ok(0), ok(1)], "FUA");
}

#[test]
fn a_flush_does_not_wait_for_writes_in_flight() {
    let mut t = Test::new(config());
    t.flush_presumed();
    t.submit(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 0), ok(1)]);
}

#[test]
fn writes_lost_with_their_path_fail_the_next_flush_and_never_silently_succeed() {
    let mut t = Test::new(config());
    t.flush_presumed();
    let path = t.done(0, Op::Write);
    t.group.path_lost(t.now, path);
    t.up(path, 2, AnaState::Optimized);
    t.now += Duration::from_secs(1);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
    t.submit(2, Op::Flush);
    assert_eq!(
        t.actions(),
        [failed(2, IoError::LostWrites)],
        "it may have been in its virtqueue before the first one was answered"
    );
    t.now += Duration::from_secs(1);
    t.submit(3, Op::Flush);
    assert_eq!(t.actions(), [ok(3)]);
}

/// A write may complete while the flush is in its virtqueue. To the guest the flush does not cover it.
#[test]
fn a_flush_that_came_in_before_the_loss_is_not_the_last_to_report_it() {
    let mut t = Test::new(config());
    t.flush_presumed();
    let path = t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(path, 1)]);
    t.group.path_lost(t.now, path);
    t.complete(path, 1, LOST);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
    t.now += Duration::from_secs(1);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [failed(2, IoError::LostWrites)]);
    t.now += Duration::from_secs(1);
    t.submit(3, Op::Flush);
    assert_eq!(t.actions(), [ok(3)]);
}

/// The guest gets no answer to the flush that was given up, so its next flush must fail.
#[test]
fn a_flush_that_was_given_up_reports_no_loss() {
    for lost_before in [true, false] {
        let mut t = Test::new(config());
        t.flush_presumed();
        let lost = t.done(0, Op::Write);
        let other = t.done(1, Op::Write);
        assert_ne!(lost, other);
        if lost_before {
            t.group.path_lost(t.now, lost);
            t.now += Duration::from_secs(1);
        }
        t.submit(2, Op::Flush);
        t.actions();
        t.group.give_up(FlowId(0));
        if !lost_before {
            t.group.path_lost(t.now, lost);
            t.complete(lost, 2, LOST);
        }
        t.complete(other, 2, Outcome::Success);
        assert_eq!(t.actions(), [failed(2, IoError::LostWrites)]);
        t.now += Duration::from_secs(1);
        t.submit_io(flush_of(3, FlowId(1)));
        assert_eq!(t.actions(), [failed(3, IoError::LostWrites)], "lost before: {lost_before}");
        t.now += Duration::from_secs(1);
        t.submit_io(flush_of(4, FlowId(1)));
        assert_eq!(t.actions(), [ok(4)]);
    }
}

fn flush_of(tag: u32, flow: FlowId) -> Io {
    Io { tag: Tag(tag), op: Op::Flush, bytes: 0, disk: DiskId(0), flow, fua: false }
}

/// mpath-sim has found this situation with seed 0x2b.
#[test]
fn every_flush_that_waits_when_a_loss_is_reported_reports_it_too() {
    let mut t = Test::new(config());
    t.flush_presumed();
    t.done(0, Op::Write);
    t.group.path_lost(t.now, P0);
    t.group.path_lost(t.now, P1);
    t.submit(1, Op::Flush);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [], "no path");
    t.now += Duration::from_secs(5);
    t.up(P0, 2, AnaState::Optimized);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites), failed(2, IoError::LostWrites)]);
}

#[test]
fn a_path_lost_under_a_flush_fails_it_after_the_others_have_answered() {
    let mut t = Test::new(config());
    t.done(0, Op::Write);
    t.done(1, Op::Write);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2), issue(P1, 2)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 2, LOST);
    assert_eq!(t.actions(), []);
    t.complete(P1, 2, Outcome::Success);
    assert_eq!(t.actions(), [failed(2, IoError::LostWrites)]);
}

/// mpath-sim has found this situation with several disks and seed 0x594: a flush meets a gap of its path, and other
/// flushes get through.
#[test]
fn a_path_lost_under_a_flush_is_no_error_if_another_flush_has_covered_it() {
    let mut t = Test::new(config());
    t.flush_presumed();
    let path = t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(path, 1), issue(path, 2)]);
    t.complete(path, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);
    t.group.path_lost(t.now, path);
    t.complete(path, 1, LOST);
    assert_eq!(t.actions(), [ok(1)]);
}

#[test]
fn a_path_lost_under_a_flush_fails_it_if_the_other_flush_came_before_the_writes() {
    let mut t = Test::new(config());
    t.flush_presumed();
    let path = t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(path, 1)]);
    while t.done(2, Op::Write) != path {}
    t.submit(3, Op::Flush);
    assert!(t.actions().contains(&issue(path, 3)));
    t.complete(path, 1, Outcome::Success);
    t.group.path_lost(t.now, path);
    t.complete(path, 3, LOST);
    t.complete(if path == P0 { P1 } else { P0 }, 3, Outcome::Success);
    assert_eq!(t.actions(), [ok(1), failed(3, IoError::LostWrites)]);
}

#[test]
fn the_loss_of_a_path_presumed_unflushed_is_no_error() {
    let mut t = Test::new(config());
    t.submit(0, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P1, 0)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, LOST);
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
}

#[test]
fn a_path_that_was_never_accessible_delays_no_flush() {
    let mut t = Test::down(config(), &[SharedDisk::default()]);
    t.up(P0, 1, AnaState::Optimized);
    t.up(P1, 1, AnaState::Inaccessible);
    t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, Outcome::Success);
    assert_eq!(t.actions(), [ok(1)]);
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::Optimized);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P1, 2)], "accessible, it is flushed once");
}

#[test]
fn after_a_crash_a_flush_that_cannot_reach_a_live_path_fails_once() {
    let mut t = Test::down(config(), &[SharedDisk::after_crash()]);
    t.up(P0, 1, AnaState::Optimized);
    t.up(P1, 1, AnaState::Inaccessible);
    t.submit(0, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::Success);
    assert_eq!(t.actions(), []);
    assert_eq!(t.sleep(), 30_000 * MS);
    assert_eq!(t.actions(), [failed(0, IoError::NoPath)]);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [ok(1)], "it has been told");
}

#[test]
fn after_a_crash_a_flush_that_was_given_up_tells_nothing() {
    let mut t = Test::down(config(), &[SharedDisk::after_crash()]);
    t.up(P0, 1, AnaState::Optimized);
    t.up(P1, 1, AnaState::Inaccessible);
    t.submit(0, Op::Flush);
    t.actions();
    t.complete(P0, 0, Outcome::Success);
    t.group.give_up(FlowId(0));
    t.sleep();
    assert_eq!(t.actions(), [failed(0, IoError::NoPath)]);
    t.submit_io(flush_of(1, FlowId(1)));
    assert_eq!(t.actions(), [], "it waits for the same path");
    t.sleep();
    assert_eq!(t.actions(), [failed(1, IoError::NoPath)]);
}

/// Flushes of other paths do not cover the writes that an earlier daemon left there.
#[test]
fn a_path_back_from_persistent_loss_is_presumed_unflushed_again() {
    let mut t = Test::down(config(), &[SharedDisk::after_crash()]);
    t.up(P0, 1, AnaState::Optimized);
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::PersistentLoss);
    t.up(P1, 1, AnaState::PersistentLoss);
    t.submit(0, Op::Flush);
    assert_eq!(t.actions(), [ok(0)], "lost, as far as it was there, with the caches");
    for path in [P0, P1] {
        t.group.ana_changed(t.now, path, DiskId(0), AnaState::Optimized);
    }
    t.flush_presumed();
    assert_eq!(t.done(1, Op::Write), P0);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2)], "and what is written there then is flushed as ever");
    t.complete(P0, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);
}

#[test]
fn a_flush_waits_for_an_inaccessible_path_for_a_bounded_time() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Inaccessible);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), []);
    assert_eq!(t.sleep(), 30_000 * MS);
    assert_eq!(t.actions(), [failed(1, IoError::NoPath)], "nothing can be proven without it");
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Optimized);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2)], "it still owes the write");
}

#[test]
fn flushes_wait_for_an_inaccessible_path_at_the_same_time() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Inaccessible);
    t.submit(1, Op::Flush);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), []);
    t.now += 20_000 * MS;
    t.submit(3, Op::Flush);
    assert_eq!((t.actions(), t.sleep()), (vec![], 10_000 * MS));
    assert_eq!(t.actions(), [failed(1, IoError::NoPath), failed(2, IoError::NoPath)], "both have waited for 30 s");
    assert_eq!((t.sleep(), t.actions()), (20_000 * MS, vec![failed(3, IoError::NoPath)]));

    // Each wait starts with its own flush.
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Optimized);
    t.submit(4, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 4)]);
    t.complete(P0, 4, Outcome::Success);
    assert_eq!((t.actions(), t.done(5, Op::Write)), (vec![ok(4)], P0));
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::Inaccessible);
    t.submit(6, Op::Flush);
    assert_eq!((t.actions(), t.sleep()), (vec![], 30_000 * MS));
}

/// A controller loses its cache, and goes back to its earlier state once it has answered the reading of its ANA log. The flush is
/// answered on another connection, and overtakes the log. mpath-sim has found this situation with seed 0x18ecf8bd12800008.
#[test]
fn a_flush_that_overtakes_the_ana_log_is_repeated() {
    for is_lost in [true, false] {
        let disk = SharedDisk::default();
        let mut t = Test::up_with(config(), std::slice::from_ref(&disk));
        t.flush_presumed();
        let path = t.done(0, Op::Write);
        t.submit(1, Op::Flush);
        assert_eq!(t.actions(), [issue(path, 1)]);
        disk.unflushed.ana_reading_begun(path, Epoch(1));
        t.complete(path, 1, Outcome::Success);
        assert_eq!((t.actions(), t.sleep()), (vec![], 10 * MS));
        assert_eq!(t.actions(), [issue(path, 1)], "the log is still being read");
        t.complete(path, 1, Outcome::Success);
        if is_lost {
            disk.unflushed.loss_read(t.now, path, Epoch(1));
        }
        disk.unflushed.ana_read(path, Epoch(1));
        t.sleep();
        if is_lost {
            assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
            continue;
        }
        assert_eq!(t.actions(), [issue(path, 1)]);
        t.complete(path, 1, Outcome::Success);
        assert_eq!(t.actions(), [ok(1)]);
    }
}

/// A controller that reports changes without end makes the daemon read its ANA log without end.
#[test]
fn a_flush_that_always_overtakes_the_ana_log_fails_after_a_while() {
    let disk = SharedDisk::default();
    let mut t = Test::up_with(config(), std::slice::from_ref(&disk));
    t.flush_presumed();
    let path = t.done(0, Op::Write);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(path, 1)]);
    // The time before does not count.
    t.now += Duration::from_secs(25);
    let start = t.now;
    disk.unflushed.ana_reading_begun(path, Epoch(1));
    t.complete(path, 1, Outcome::Success);
    let end = loop {
        match t.actions()[..] {
            [Action::Issue { .. }] => t.complete(path, 1, Outcome::Success),
            [] => _ = t.sleep(),
            ref end => break end.to_vec(),
        }
    };
    assert_eq!((end, (t.now - start).as_secs()), (vec![failed(1, IoError::NoPath)], 30));
    assert_eq!(t.group.stats(t.now).path(path).unwrap().class(OpClass::Other).ios, 1, "only that of `flush_presumed`");
    disk.unflushed.ana_read(path, Epoch(1));
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(path, 2)], "the next flush covers the same write");
    t.complete(path, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);
}

/// Without a crash, the loss of such a path loses no write of this daemon.
#[test]
fn a_flush_of_a_presumed_path_needs_no_proof() {
    let disk = SharedDisk::default();
    let mut t = Test::up_with(config(), std::slice::from_ref(&disk));
    t.submit(0, Op::Flush);
    let issued = t.actions();
    for action in &issued {
        let Action::Issue { path, .. } = action else { panic!("{action:?}") };
        disk.unflushed.ana_reading_begun(*path, Epoch(1));
        t.complete(*path, 0, Outcome::Success);
    }
    assert_eq!((t.actions(), issued.is_empty()), (vec![ok(0)], false));
}

#[test]
fn unflushed_writes_are_lost_with_the_namespace() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, Outcome::PathError);
    t.group.ana_changed(t.now, P0, DiskId(0), AnaState::PersistentLoss);
    assert_eq!(t.actions(), [failed(1, IoError::LostWrites)]);
    t.now += Duration::from_secs(1);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [failed(2, IoError::LostWrites)], "the first one came in before the loss");
    t.now += Duration::from_secs(1);
    t.submit(3, Op::Flush);
    assert_eq!(t.actions(), [ok(3)], "told for certain");
}

#[test]
fn with_a_shared_write_cache_a_flush_goes_to_one_path_and_a_lost_path_loses_nothing() {
    let mut t = Test::new(GroupConfig { shared_write_cache: true, policy: PolicyKind::Numa.into(), ..config() });
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 1, LOST);
    assert_eq!(t.actions(), [issue(P1, 1)], "a flush may be repeated elsewhere without a fence");
    t.complete(P1, 1, Outcome::Success);
    assert_eq!(t.actions(), [ok(1)]);
}

#[test]
fn a_flush_is_repeated_on_its_own_path_only() {
    let mut t = Test::new(GroupConfig { max_retries: 1, ..config() });
    t.flush_presumed();
    assert_eq!(t.done(0, Op::Write), P0);
    t.submit(1, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, Outcome::PathError);
    assert_eq!(t.actions(), []);
    assert_eq!(t.sleep(), 100 * MS);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, crate::retry(10 * MS));
    assert_eq!(t.actions(), []);
    assert_eq!(t.sleep(), 10 * MS);
    assert_eq!(t.actions(), [issue(P0, 1)]);
    t.complete(P0, 1, crate::retry(10 * MS));
    assert_eq!(t.actions(), [failed(1, IoError::Attempts)]);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2)], "still dirty");
}

#[test]
fn a_flush_of_one_thread_covers_the_writes_of_another() {
    let unflushed = Arc::new(UnflushedPaths::new());
    let mut threads = [(); 2].map(|()| {
        let mut t = Test::down(config(), &[shared(Arc::clone(&unflushed))]);
        t.up(P0, 1, AnaState::Optimized);
        t
    });
    threads[0].done(0, Op::Write);
    threads[1].submit(0, Op::Flush);
    assert_eq!(threads[1].actions(), [issue(P0, 0)]);
    threads[0].submit(1, Op::Flush);
    assert_eq!(threads[0].actions(), [issue(P0, 1)], "the other flush has not succeeded yet");
    threads[1].complete(P0, 0, Outcome::Success);
    threads[0].complete(P0, 1, Outcome::Success);
    assert_eq!((threads[0].actions(), threads[1].actions()), (vec![ok(1)], vec![ok(0)]));

    threads[0].done(2, Op::Write);
    threads[0].group.path_lost(threads[0].now, P0);
    threads[1].submit(3, Op::Flush);
    assert_eq!(threads[1].actions(), [failed(3, IoError::LostWrites)], "the loss is known before its own path_lost");
}

#[test]
fn a_flush_waits_for_a_path_that_is_up_in_another_thread() {
    let unflushed = Arc::new(UnflushedPaths::new());
    let mut first = Test::down(config(), &[shared(Arc::clone(&unflushed))]);
    let mut second = Test::down(config(), &[shared(unflushed)]);
    for t in [&mut first, &mut second] {
        t.up(P1, 1, AnaState::Optimized);
        t.flush_presumed_on(P1);
    }
    first.up(P0, 1, AnaState::Optimized);
    first.submit(1, Op::Write);
    let [Action::Issue { path, .. }] = first.actions()[..] else { panic!("one issue") };
    first.complete(path, 1, Outcome::Success);
    assert_eq!(first.actions(), [ok(1)]);
    assert_eq!(path, P0);
    second.submit(2, Op::Flush);
    assert_eq!(second.actions(), [], "not there yet");
    second.sleep();
    assert_eq!(second.actions(), []);
    second.up(P0, 1, AnaState::Optimized);
    assert_eq!(second.actions(), [issue(P0, 2)]);
}

#[test]
fn a_flush_with_nothing_to_do_does_not_wait_for_room() {
    let mut t = Test::new(config());
    t.flush_presumed();
    (0..2000).for_each(|tag| t.submit(tag, Op::Read));
    assert!(t.actions().len() < 2000, "the rest waits");
    t.submit_io(Io {
        tag: mpath_core::Tag(5000),
        op: Op::Flush,
        bytes: 0,
        disk: DiskId(0),
        flow: FlowId(1),
        fua: false,
    });
    assert_eq!(t.actions(), [ok(5000)]);
}
