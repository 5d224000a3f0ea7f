use super::*;

const P: PathId = PathId(0);
const E1: Epoch = Epoch(1);
const E2: Epoch = Epoch(2);

fn started() -> DirtyPaths {
    let dirty = DirtyPaths::new();
    dirty.up(Instant::now(), P, E1, false);
    dirty
}

fn is_dirty(dirty: &DirtyPaths) -> bool {
    dirty.need(P, None).dirty.is_some()
}

#[test]
fn a_flush_cleans_what_completed_before_it_and_nothing_else() {
    let now = Instant::now();
    let dirty = started();
    assert!(!is_dirty(&dirty));
    dirty.mark(now, P, E1);
    assert!(is_dirty(&dirty));
    let round = dirty.begin_flush(P, E1).expect("alive");
    // Completed while the flush was on its way.
    dirty.mark(now, P, E1);
    dirty.flushed(P, E1, round);
    assert!(is_dirty(&dirty));
    let round = dirty.begin_flush(P, E1).expect("alive");
    dirty.flushed(P, E1, round);
    assert!(!is_dirty(&dirty));
}

#[test]
fn a_flush_on_its_way_does_not_yet_make_clean() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    let _ = dirty.begin_flush(P, E1);
    assert!(is_dirty(&dirty), "a second flush must not be answered before the first");
}

#[test]
fn a_loss_is_reported_by_every_flush_under_way_and_then_forgotten() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    let now = now + STILL_UNDER_WAY;
    let first = dirty.flush_submitted(now, P);
    assert_eq!(dirty.need(P, None), Need { dirty: None, lost: true });
    dirty.flush_submitted(now, P);
    assert!(dirty.need(P, None).lost);
    dirty.report(now, P, first);
    assert!(!dirty.need(P, None).lost);
    dirty.mark(now, P, E2);
    dirty.lost(now, P, E2);
    assert!(dirty.need(P, None).lost, "a second loss is another error");
}

#[test]
fn a_flush_that_came_in_before_the_report_reports_the_loss_too() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    let now = now + STILL_UNDER_WAY;
    let (first, second) = (dirty.flush_submitted(now, P), dirty.flush_submitted(now, P));
    assert!(dirty.need(P, Some(first)).lost);
    dirty.report(now, P, first);
    assert!(dirty.need(P, Some(second)).lost, "it has not started yet, and its guest knows nothing");
    let third = dirty.flush_submitted(now + STILL_UNDER_WAY / 2, P);
    assert!(dirty.need(P, Some(third)).lost, "it may have waited in its virtqueue all the time");
    dirty.report(now + STILL_UNDER_WAY / 2, P, third);
    let fourth = dirty.flush_submitted(now + STILL_UNDER_WAY, P);
    assert!(!dirty.need(P, Some(fourth)).lost, "repeating it is no news");
}

#[test]
fn a_flush_that_waited_while_nobody_looked_reports_what_was_reported_meanwhile() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    let (reported_at, later) = (now + 2 * STILL_UNDER_WAY, now + 100 * STILL_UNDER_WAY);
    let first = dirty.flush_submitted(reported_at, P);
    dirty.report(reported_at, P, first);
    let waited = dirty.flush_submitted(now + STILL_UNDER_WAY, P);
    assert!(dirty.need(P, Some(waited)).lost);
    dirty.report(later, P, waited);
    let next = dirty.flush_submitted(later, P);
    assert!(!dirty.need(P, Some(next)).lost);
}

#[test]
fn what_the_guest_submitted_before_the_last_write_completed_tells_it_nothing_for_certain() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    let under_way = dirty.flush_submitted(now, P);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    let just_after = dirty.flush_submitted(now + STILL_UNDER_WAY / 2, P);
    for early in [under_way, just_after] {
        dirty.report(now + STILL_UNDER_WAY, P, early);
        assert!(dirty.need(P, None).lost);
    }
    let later = dirty.flush_submitted(now + STILL_UNDER_WAY, P);
    dirty.report(now + STILL_UNDER_WAY, P, later);
    assert!(!dirty.need(P, None).lost);
}

#[test]
fn a_report_does_not_cover_a_later_loss() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    let flush = dirty.flush_submitted(now, P);
    dirty.mark(now, P, E2);
    dirty.lost(now, P, E2);
    dirty.report(now, P, flush);
    assert!(dirty.need(P, None).lost);
}

#[test]
fn a_report_does_not_cover_what_was_not_lost_yet() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.up(now, P, E2, false);
    dirty.mark(now, P, E2);
    let flush = dirty.flush_submitted(now, P);
    dirty.report(now, P, flush);
    dirty.lost(now, P, E2);
    assert!(dirty.need(P, None).lost);
}

#[test]
fn clean_associations_are_lost_without_harm() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    let round = dirty.begin_flush(P, E1).expect("alive");
    dirty.flushed(P, E1, round);
    dirty.lost(now, P, E1);
    assert!(!dirty.need(P, None).lost);
}

#[test]
fn a_write_that_one_group_reports_after_another_saw_the_loss_is_lost() {
    let now = Instant::now();
    let dirty = started();
    dirty.lost(now, P, E1);
    dirty.mark(now, P, E1);
    assert!(dirty.need(P, None).lost);

    let dirty = started();
    dirty.up(now, P, E2, false);
    dirty.mark(now, P, E1);
    assert!(dirty.need(P, None).lost);
    assert!(!is_dirty(&dirty), "the new association has nothing to do with it");
}

#[test]
fn a_flush_of_an_old_association_cleans_nothing_of_the_new_one() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    let round = dirty.begin_flush(P, E1).expect("alive");
    dirty.up(now, P, E2, false);
    dirty.mark(now, P, E2);
    dirty.flushed(P, E1, round);
    assert!(is_dirty(&dirty));
    assert_eq!(dirty.begin_flush(P, E1), None);
}

#[test]
fn associations_are_presumed_dirty_until_a_flush_succeeds_and_only_with_a_volatile_cache() {
    let now = Instant::now();
    let dirty = DirtyPaths::new();
    dirty.up(now, P, E1, true);
    dirty.up(now, P, E1, true);
    let need = dirty.need(P, None).dirty.expect("presumed dirty");
    assert!(need.presumed);
    dirty.lost(now, P, E1);
    assert!(!dirty.need(P, None).lost, "no write of ours was lost");
    dirty.up(now, P, E2, true);
    assert!(dirty.need(P, None).dirty.expect("the controller may still have them").presumed);
    let round = dirty.begin_flush(P, E2).expect("alive");
    dirty.flushed(P, E2, round);
    dirty.up(now, P, Epoch(3), true);
    assert!(!is_dirty(&dirty));

    let dirty = DirtyPaths::new();
    dirty.up(now, P, E1, true);
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    assert!(dirty.need(P, None).lost);
}

#[test]
fn what_a_removed_path_lost_is_reported_and_the_next_one_is_presumed_dirty() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    dirty.removed(P);
    assert!(dirty.need(P, None).lost);
    dirty.up(now, P, E2, true);
    let need = dirty.need(P, None);
    assert!(need.lost && need.dirty.is_some_and(|association| association.presumed), "{need:?}");
    dirty.lost(now, P, E2);
    let later = now + STILL_UNDER_WAY;
    let flush = dirty.flush_submitted(later, P);
    dirty.report(later, P, flush);
    assert!(!dirty.need(P, None).lost, "the first loss is told, and the second one is none");
}

/// Writers and flushers on real threads. What every write stores is the model's count of completed writes; what a
/// flush proves durable is the count it read after `begin_flush`. A flush that `need` calls unnecessary must find
/// everything that had finished before it already durable.
#[test]
fn threads_agree() {
    use std::sync::atomic::AtomicU64 as Count;
    let now = Instant::now();
    let dirty = started();
    let (completed, finished, durable) = (Count::new(0), Count::new(0), Count::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=20_000 {
                completed.store(n, Ordering::SeqCst);
                dirty.mark(now, P, E1);
                finished.store(n, Ordering::SeqCst);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while finished.load(Ordering::SeqCst) < 20_000 {
                    let must_cover = finished.load(Ordering::SeqCst);
                    if dirty.need(P, None).dirty.is_some() {
                        let round = dirty.begin_flush(P, E1).expect("alive");
                        let covers = completed.load(Ordering::SeqCst);
                        durable.fetch_max(covers, Ordering::SeqCst);
                        dirty.flushed(P, E1, round);
                    }
                    assert!(durable.load(Ordering::SeqCst) >= must_cover);
                }
            });
        }
    });
}

#[test]
fn what_is_lost_at_the_end_is_reported_by_the_next_process() {
    let now = Instant::now();
    let dirty = started();
    assert!(!dirty.has_unreported_loss());
    dirty.mark(now, P, E1);
    dirty.lost(now, P, E1);
    assert!(dirty.has_unreported_loss());
    let next = DirtyPaths::new();
    next.set_lost(now);
    assert!(next.has_unreported_loss());
    next.up(now, P, E1, true);
    // It has waited in its virtqueue, maybe since before the write.
    let flush = next.flush_submitted(now, P);
    assert!(next.need(P, Some(flush)).lost);
    next.report(now, P, flush);
    let flush = next.flush_submitted(now + STILL_UNDER_WAY, P);
    assert!(next.need(P, Some(flush)).lost);
    next.report(now + STILL_UNDER_WAY, P, flush);
    assert!(!next.has_unreported_loss());
    let flush = next.flush_submitted(now + 2 * STILL_UNDER_WAY, P);
    assert!(!next.need(P, Some(flush)).lost);
}

#[test]
fn what_is_not_flushed_at_the_end_counts_as_lost() {
    let now = Instant::now();
    let dirty = started();
    dirty.mark(now, P, E1);
    assert!(dirty.has_unreported_loss());
    let round = dirty.begin_flush(P, E1).expect("alive");
    dirty.flushed(P, E1, round);
    assert!(!dirty.has_unreported_loss());
    // What a process before this one may have left counts only if that was killed.
    for (dirty, counts) in [(DirtyPaths::new(), false), (DirtyPaths::after_crash(), true)] {
        dirty.up(now, P, E1, true);
        assert_eq!(dirty.has_unreported_loss(), counts);
    }
}
