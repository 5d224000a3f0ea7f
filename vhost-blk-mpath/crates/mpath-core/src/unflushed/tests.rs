use super::*;

const P: PathId = PathId(0);
const E1: Epoch = Epoch(1);
const E2: Epoch = Epoch(2);

fn started() -> UnflushedPaths {
    let unflushed = UnflushedPaths::new();
    unflushed.association_begun(Instant::now(), P, E1, false);
    unflushed
}

fn is_unflushed(unflushed: &UnflushedPaths) -> bool {
    unflushed.need(P, None).unflushed.is_some()
}

#[test]
fn a_flush_covers_only_writes_that_completed_before_it() {
    let now = Instant::now();
    let unflushed = started();
    assert!(!is_unflushed(&unflushed));
    unflushed.mark(now, P, E1);
    assert!(is_unflushed(&unflushed));
    let round = unflushed.begin_flush(P, E1).expect("alive");
    // This write completes while the flush is under way.
    unflushed.mark(now, P, E1);
    unflushed.flushed(P, E1, round);
    assert!(is_unflushed(&unflushed));
    let round = unflushed.begin_flush(P, E1).expect("alive");
    unflushed.flushed(P, E1, round);
    assert!(!is_unflushed(&unflushed));
}

#[test]
fn a_flush_under_way_covers_nothing_yet() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    let _ = unflushed.begin_flush(P, E1);
    assert!(is_unflushed(&unflushed), "a second flush must not be answered before the first");
}

#[test]
fn forgotten_losses_are_reported_by_no_flush() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.set_lost(now);
    unflushed.mark(now, P, E1);
    assert!(unflushed.has_known_loss());
    unflushed.forget_losses();
    assert_eq!((unflushed.has_known_loss(), unflushed.need(P, None).lost), (false, false));
    assert!(is_unflushed(&unflushed), "only losses are forgotten");
    unflushed.association_lost(now, P, E1);
    assert!(unflushed.has_known_loss() && unflushed.need(P, None).lost, "a later loss counts");
}

/// Groups are told later, each at its own time.
#[test]
fn a_loss_counts_from_the_reading_of_the_log_and_once() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.loss_read(now, P, Epoch(E1.0 + 1));
    assert!(!unflushed.has_known_loss(), "of an association that no group knows");
    unflushed.loss_read(now, P, E1);
    assert!(unflushed.has_known_loss() && unflushed.begin_flush(P, E1).is_none());
    unflushed.forget_losses();
    unflushed.mark(now, P, E1);
    assert!(unflushed.has_known_loss(), "a write sent before the loss");
    unflushed.forget_losses();
    // The log repeats the state, and two groups learn of it.
    unflushed.loss_read(now, P, E1);
    let second = CachePeriod::from(E1).next();
    (0..2).for_each(|_| unflushed.namespace_lost(now, P, second));
    unflushed.namespace_back(P, second, true);
    assert!(!unflushed.has_known_loss());
    unflushed.mark(now, P, second);
    unflushed.loss_read(now, P, E1);
    assert!(unflushed.has_known_loss());
    // This group still has to learn that the namespace was back.
    unflushed.namespace_back(P, second, true);
    assert!(unflushed.begin_flush(P, E1).is_none());
    unflushed.namespace_back(P, second.next(), true);
    assert!(unflushed.begin_flush(P, E1).is_some());
}

/// The controller may have left the state of persistent loss again when it executes the flush.
#[test]
fn a_flush_that_succeeds_while_the_log_is_read_proves_nothing() {
    let now = Instant::now();
    let unflushed = UnflushedPaths::new();
    unflushed.ana_reading_begun(P, E1);
    unflushed.association_begun(now, P, E1, false);
    unflushed.mark(now, P, E1);
    let round = unflushed.begin_flush(P, E1).expect("alive");
    assert!(!unflushed.flushed(P, E1, round) && is_unflushed(&unflushed), "begun before any group knew of the path");
    unflushed.ana_read(P, Epoch(E1.0 - 1));
    assert!(!unflushed.flushed(P, E1, round), "the log of another association was read");
    unflushed.ana_read(P, E1);
    assert!(unflushed.flushed(P, E1, round) && !is_unflushed(&unflushed));
    // The association ends before its log is read.
    unflushed.ana_reading_begun(P, E1);
    unflushed.mark(now, P, E1);
    let round = unflushed.begin_flush(P, E1).expect("alive");
    assert!(!unflushed.flushed(P, E1, round));
    unflushed.association_lost(now, P, E1);
    assert!(unflushed.has_known_loss());
    unflushed.association_begun(now, P, E2, false);
    unflushed.mark(now, P, E2);
    let round = unflushed.begin_flush(P, E2).expect("alive");
    assert!(unflushed.flushed(P, E2, round) && !is_unflushed(&unflushed));
}

#[test]
fn a_loss_is_reported_by_every_flush_under_way_and_then_forgotten() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    let now = now + SUBMIT_DELAY_MAX;
    let first = unflushed.flush_submitted(now, P);
    assert_eq!(unflushed.need(P, None), FlushNeed { unflushed: None, lost: true });
    unflushed.flush_submitted(now, P);
    assert!(unflushed.need(P, None).lost);
    unflushed.report(now, P, first);
    assert!(!unflushed.need(P, None).lost);
    unflushed.mark(now, P, E2);
    unflushed.association_lost(now, P, E2);
    assert!(unflushed.need(P, None).lost, "a second loss is another error");
}

#[test]
fn a_flush_that_came_in_before_the_report_reports_the_loss_too() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    let now = now + SUBMIT_DELAY_MAX;
    let (first, second) = (unflushed.flush_submitted(now, P), unflushed.flush_submitted(now, P));
    assert!(unflushed.need(P, Some(first)).lost);
    unflushed.report(now, P, first);
    assert!(unflushed.need(P, Some(second)).lost, "it has not started yet, and its guest knows nothing");
    let third = unflushed.flush_submitted(now + SUBMIT_DELAY_MAX / 2, P);
    assert!(unflushed.need(P, Some(third)).lost, "it may have waited in its virtqueue all the time");
    unflushed.report(now + SUBMIT_DELAY_MAX / 2, P, third);
    let fourth = unflushed.flush_submitted(now + SUBMIT_DELAY_MAX, P);
    assert!(!unflushed.need(P, Some(fourth)).lost, "repeating it is no news");
}

#[test]
fn a_flush_that_waited_unseen_reports_losses_reported_since() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    let (reported_at, later) = (now + 2 * SUBMIT_DELAY_MAX, now + 100 * SUBMIT_DELAY_MAX);
    let first = unflushed.flush_submitted(reported_at, P);
    unflushed.report(reported_at, P, first);
    let waited = unflushed.flush_submitted(now + SUBMIT_DELAY_MAX, P);
    assert!(unflushed.need(P, Some(waited)).lost);
    unflushed.report(later, P, waited);
    let next = unflushed.flush_submitted(later, P);
    assert!(!unflushed.need(P, Some(next)).lost);
}

#[test]
fn a_flush_submitted_before_the_last_write_completed_leaves_its_loss_unreported() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    let under_way = unflushed.flush_submitted(now, P);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    let just_after = unflushed.flush_submitted(now + SUBMIT_DELAY_MAX / 2, P);
    for early in [under_way, just_after] {
        unflushed.report(now + SUBMIT_DELAY_MAX, P, early);
        assert!(unflushed.need(P, None).lost);
    }
    let later = unflushed.flush_submitted(now + SUBMIT_DELAY_MAX, P);
    unflushed.report(now + SUBMIT_DELAY_MAX, P, later);
    assert!(!unflushed.need(P, None).lost);
}

#[test]
fn a_report_does_not_cover_a_later_loss() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    let flush = unflushed.flush_submitted(now, P);
    unflushed.mark(now, P, E2);
    unflushed.association_lost(now, P, E2);
    unflushed.report(now, P, flush);
    assert!(unflushed.need(P, None).lost);
}

#[test]
fn a_report_does_not_cover_writes_lost_after_it() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.association_begun(now, P, E2, false);
    unflushed.mark(now, P, E2);
    let flush = unflushed.flush_submitted(now, P);
    unflushed.report(now, P, flush);
    unflushed.association_lost(now, P, E2);
    assert!(unflushed.need(P, None).lost);
}

#[test]
fn an_association_without_unflushed_writes_ends_without_a_loss() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    let round = unflushed.begin_flush(P, E1).expect("alive");
    unflushed.flushed(P, E1, round);
    unflushed.association_lost(now, P, E1);
    assert!(!unflushed.need(P, None).lost);
}

#[test]
fn a_write_that_one_group_reports_after_another_saw_the_loss_is_lost() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.association_lost(now, P, E1);
    unflushed.mark(now, P, E1);
    assert!(unflushed.need(P, None).lost);

    let unflushed = started();
    unflushed.association_begun(now, P, E2, false);
    unflushed.mark(now, P, E1);
    assert!(unflushed.need(P, None).lost);
    assert!(!is_unflushed(&unflushed), "the new association has nothing to do with it");
}

#[test]
fn a_flush_of_an_old_association_covers_nothing_of_the_new_one() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    let round = unflushed.begin_flush(P, E1).expect("alive");
    unflushed.association_begun(now, P, E2, false);
    unflushed.mark(now, P, E2);
    unflushed.flushed(P, E1, round);
    assert!(is_unflushed(&unflushed));
    assert_eq!(unflushed.begin_flush(P, E1), None);
}

#[test]
fn associations_are_presumed_unflushed_until_a_flush_succeeds_and_only_with_a_volatile_cache() {
    let now = Instant::now();
    let unflushed = UnflushedPaths::new();
    unflushed.association_begun(now, P, E1, true);
    unflushed.association_begun(now, P, E1, true);
    let need = unflushed.need(P, None).unflushed.expect("presumed unflushed");
    assert!(need.is_presumed);
    unflushed.association_lost(now, P, E1);
    assert!(!unflushed.need(P, None).lost, "no write of ours was lost");
    unflushed.association_begun(now, P, E2, true);
    assert!(unflushed.need(P, None).unflushed.expect("the controller may still have them").is_presumed);
    let round = unflushed.begin_flush(P, E2).expect("alive");
    unflushed.flushed(P, E2, round);
    unflushed.association_begun(now, P, Epoch(3), true);
    assert!(!is_unflushed(&unflushed));

    let unflushed = UnflushedPaths::new();
    unflushed.association_begun(now, P, E1, true);
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    assert!(unflushed.need(P, None).lost);
}

#[test]
fn the_loss_of_a_removed_path_is_reported_and_the_next_path_is_presumed_unflushed() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    unflushed.path_removed(P);
    assert!(unflushed.need(P, None).lost);
    unflushed.association_begun(now, P, E2, true);
    let need = unflushed.need(P, None);
    assert!(need.lost && need.unflushed.is_some_and(|association| association.is_presumed), "{need:?}");
    unflushed.association_lost(now, P, E2);
    let later = now + SUBMIT_DELAY_MAX;
    let flush = unflushed.flush_submitted(later, P);
    unflushed.report(later, P, flush);
    assert!(!unflushed.need(P, None).lost, "the first loss is told, and the second one is none");
}

/// Writers and flushers on real threads. Each write stores the model's count of completed writes. A flush makes the
/// count durable that it read after `begin_flush`. If `need` calls a flush needless, everything that had finished
/// before it must be durable.
#[test]
fn concurrent_writers_and_flushers_miss_no_write() {
    use std::sync::atomic::AtomicU64 as Count;
    let now = Instant::now();
    let unflushed = started();
    let (completed, finished, durable) = (Count::new(0), Count::new(0), Count::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=20_000 {
                completed.store(n, Ordering::SeqCst);
                unflushed.mark(now, P, E1);
                finished.store(n, Ordering::SeqCst);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while finished.load(Ordering::SeqCst) < 20_000 {
                    let must_cover = finished.load(Ordering::SeqCst);
                    if unflushed.need(P, None).unflushed.is_some() {
                        let round = unflushed.begin_flush(P, E1).expect("alive");
                        let covers = completed.load(Ordering::SeqCst);
                        durable.fetch_max(covers, Ordering::SeqCst);
                        unflushed.flushed(P, E1, round);
                    }
                    assert!(durable.load(Ordering::SeqCst) >= must_cover);
                }
            });
        }
    });
}

#[test]
fn a_loss_at_the_end_is_reported_by_the_next_daemon() {
    let now = Instant::now();
    let unflushed = started();
    assert!(!unflushed.has_unreported_loss());
    unflushed.mark(now, P, E1);
    unflushed.association_lost(now, P, E1);
    assert!(unflushed.has_unreported_loss());
    let next = UnflushedPaths::new();
    next.set_lost(now);
    assert!(next.has_unreported_loss());
    next.association_begun(now, P, E1, true);
    // The flush has waited in its virtqueue, perhaps since before the write.
    let flush = next.flush_submitted(now, P);
    assert!(next.need(P, Some(flush)).lost);
    next.report(now, P, flush);
    let flush = next.flush_submitted(now + SUBMIT_DELAY_MAX, P);
    assert!(next.need(P, Some(flush)).lost);
    next.report(now + SUBMIT_DELAY_MAX, P, flush);
    assert!(!next.has_unreported_loss());
    let flush = next.flush_submitted(now + 2 * SUBMIT_DELAY_MAX, P);
    assert!(!next.need(P, Some(flush)).lost);
}

#[test]
fn unflushed_writes_at_the_end_count_as_lost() {
    let now = Instant::now();
    let unflushed = started();
    unflushed.mark(now, P, E1);
    assert!(unflushed.has_unreported_loss());
    let round = unflushed.begin_flush(P, E1).expect("alive");
    unflushed.flushed(P, E1, round);
    assert!(!unflushed.has_unreported_loss());
    // Writes of an earlier daemon count only if that daemon was killed.
    for (unflushed, counts) in [(UnflushedPaths::new(), false), (UnflushedPaths::after_crash(), true)] {
        unflushed.association_begun(now, P, E1, true);
        assert_eq!(unflushed.has_unreported_loss(), counts);
    }
}
