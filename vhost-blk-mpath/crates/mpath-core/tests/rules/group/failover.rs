//! Failovers, retries, delays and fences.

use super::*;

#[test]
fn reads_and_unsent_writes_fail_over_at_once_and_first() {
    let mut t = Test::new(window(2, 1 << 20));
    t.submit(0, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.submit(1, Op::Read);
    t.submit(2, Op::Write);
    assert_eq!(t.actions(), [issue(P1, 1), issue(P0, 2)]);
    t.submit(3, Op::Read);
    t.submit(4, Op::Read);
    assert_eq!(t.actions(), [issue(P1, 3)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 2, UNSENT);
    t.complete(P0, 0, LOST);
    t.complete(P1, 1, Outcome::Success);
    t.complete(P1, 3, Outcome::Success);
    assert_eq!(t.actions(), [ok(1), ok(3), issue(P1, 0), issue(P1, 2)], "before what waits");
}

#[test]
fn an_indeterminate_write_waits_for_the_fence_of_its_own_association() {
    let mut t = Test::new(config());
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, LOST);
    assert_eq!(t.actions(), []);
    t.up(P0, 2, AnaState::Optimized);
    t.group.path_lost(t.now, P0);
    t.group.fence_lifted(t.now, P0, Epoch(2));
    t.group.fence_lifted(t.now, P1, Epoch(9));
    assert_eq!(t.actions(), [], "other fences prove nothing about it");
    assert_eq!(t.group.stats(t.now).paths[0].fenced, 1);
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 0)]);
}

#[test]
#[should_panic(expected = "a fence lifts after the loss of its requests was reported")]
fn a_fence_does_not_lift_before_the_loss_is_reported() {
    let mut t = Test::new(config());
    t.submit(0, Op::Discard);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.path_lost(t.now, P0);
    t.group.fence_lifted(t.now, P0, Epoch(1));
}

#[test]
fn retries_wait_and_are_capped() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), max_retries: 2, ..config() });
    t.submit(0, Op::Write);
    for path in [P0, P1] {
        assert_eq!(t.actions(), [issue(path, 0)], "not again by the path that asked for it");
        t.complete(path, 0, crate::retry(300 * MS));
        assert_eq!(t.actions(), []);
        assert_eq!(t.group.stats(t.now).backoff, 1);
        assert_eq!(t.sleep(), 300 * MS);
    }
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, crate::retry(Duration::ZERO));
    assert_eq!(t.actions(), [failed(0, IoError::Attempts)]);
    let stats = t.group.stats(t.now);
    let writes = stats.paths[0].class(OpClass::Write);
    assert_eq!((writes.errors, writes.retries, writes.ios), (2, 1, 0));
}

#[test]
fn a_request_leaves_a_controller_with_a_long_delay_and_does_not_return() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    let asked = t.now;
    t.complete(P0, 0, crate::retry(60_000 * MS));
    assert_eq!((t.actions(), t.sleep()), (vec![], 10_000 * MS));
    assert_eq!(t.actions(), [issue(P1, 0)]);
    // A shorter delay of the other controller delays this request, and no other of its flow.
    t.complete(P1, 0, crate::retry(100 * MS));
    assert_eq!(t.actions(), []);
    assert_eq!(t.done(1, Op::Write), P0);
    assert_eq!(t.sleep(), 100 * MS);
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.complete(P1, 0, crate::retry(300_000 * MS));
    while t.actions().is_empty() {
        t.sleep();
    }
    assert_eq!(t.now - asked, 60_000 * MS, "then the first one's is over");
    assert_eq!(t.group.stats(t.now).backoff, 0);
}

#[test]
fn a_long_delay_of_the_only_controller_is_kept() {
    let mut t = Test::down(GroupConfig { policy: PolicyKind::Numa.into(), ..config() }, &[SharedDisk::default()]);
    t.up(P0, 1, AnaState::Optimized);
    t.submit(0, Op::Read);
    let asked = t.now;
    assert_eq!(t.actions(), [issue(P0, 0)]);
    let longest = 6_553_500 * MS;
    t.complete(P0, 0, crate::retry(longest));
    while t.actions().is_empty() {
        t.sleep();
    }
    assert_eq!(t.now - asked, longest);
}

/// The other path is lost before it has room, or a worse path comes up.
#[test]
fn a_delay_outlives_changes_of_the_paths() {
    let mut t = Test::down(GroupConfig { policy: PolicyKind::Numa.into(), ..config() }, &[SharedDisk::default()]);
    t.up(P0, 1, AnaState::Optimized);
    t.submit(0, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, crate::retry(60_000 * MS));
    t.sleep();
    assert_eq!(t.actions(), []);
    // Without any path it waits in its flow, as requests without a delay do.
    t.group.path_lost(t.now, P0);
    t.sleep();
    assert_eq!(t.actions(), []);
    assert_eq!(t.group.stats(t.now).backoff, 0);
    t.up(P0, 2, AnaState::Optimized);
    assert_eq!(t.actions(), []);
    assert_eq!(t.group.stats(t.now).backoff, 1);
    t.up(P1, 1, AnaState::NonOptimized);
    t.sleep();
    assert_eq!(t.actions(), [issue(P1, 0)]);
}

#[test]
fn a_retry_stays_on_its_path_if_no_other_is_as_good() {
    let mut t = Test::down(GroupConfig { policy: PolicyKind::Numa.into(), ..config() }, &[SharedDisk::default()]);
    t.up(P0, 1, AnaState::Optimized);
    t.up(P1, 1, AnaState::NonOptimized);
    t.submit(0, Op::Write);
    for _ in 0..2 {
        assert_eq!(t.actions(), [issue(P0, 0)]);
        t.complete(P0, 0, crate::retry(Duration::ZERO));
    }
}

#[test]
fn a_path_that_fails_at_once_is_not_a_fast_one() {
    for outcome in [crate::retry(Duration::ZERO), Outcome::Failed(IoError::Controller)] {
        for policy in [PolicyKind::Latency, PolicyKind::LatencyRr, PolicyKind::Bdp, PolicyKind::Adaptive] {
            let mut t = Test::new(GroupConfig { policy: policy.into(), ..config() });
            // Both paths are measured. Then one of them answers only with errors.
            let (mut failures, mut bad) = (0, None);
            for n in 0..400 {
                t.submit(0, Op::Read);
                loop {
                    let [Action::Issue { path, .. }] = t.actions_but_probes()[..] else { panic!("one issue") };
                    let fails = n >= 200 && *bad.get_or_insert(path) == path;
                    t.now += if fails { MS / 100 } else { 5 * MS };
                    failures += u32::from(fails);
                    t.complete(path, 0, if fails { outcome } else { Outcome::Success });
                    if !fails || matches!(outcome, Outcome::Failed(_)) {
                        break;
                    }
                }
                t.actions_but_probes();
            }
            // `adaptive` keeps a weight for every path, and updates it at the end of an interval. A few final
            // failures are no fault of the path.
            let few = if matches!(outcome, Outcome::Failed(_)) { 13 } else { 5 };
            let most = if policy == PolicyKind::Adaptive { 150 } else { few };
            assert!((1..=most).contains(&failures), "{policy:?}, {outcome:?}: {failures} of 200");
        }
    }
}

/// Errors caused by the guest are no fault of the path.
#[test]
fn single_media_errors_do_not_count_against_a_path() {
    for policy in [PolicyKind::Latency, PolicyKind::LatencyRr, PolicyKind::Bdp, PolicyKind::Adaptive] {
        let mut t = Test::new(GroupConfig { policy: policy.into(), ..config() });
        for n in 0..400 {
            t.submit(0, Op::Read);
            let [Action::Issue { path, .. }] = t.actions_but_probes()[..] else { panic!("one issue") };
            t.now += 5 * MS;
            t.complete(path, 0, if n % 10 == 9 { Outcome::Failed(IoError::Controller) } else { Outcome::Success });
            t.actions_but_probes();
        }
        let stats = t.group.stats(t.now);
        let used = stats.paths.iter().filter(|path| path.class(OpClass::Read).ios > 0);
        let known: Vec<Duration> =
            used.filter_map(|path| path.estimates[OpClass::Read.index()].average_latency()).collect();
        // The first read may have waited for probes of both paths.
        assert!(!known.is_empty() && known.iter().all(|latency| *latency < 50 * MS), "{policy:?}: {known:?}");
    }
}

#[test]
fn a_path_error_fails_over_and_rests_the_path() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::PathError);
    assert_eq!(t.actions(), [issue(P1, 0)], "a completion arrived, so no fence is needed");
    t.complete(P1, 0, Outcome::PathError);
    assert_eq!(t.actions(), [], "both rest");
    assert_eq!(t.sleep(), 100 * MS);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::PathError);
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.complete(P1, 0, Outcome::PathError);
    assert_eq!(t.actions(), []);
    t.group.ana_changed(t.now, P1, DiskId(0), AnaState::Optimized);
    assert_eq!(t.actions(), [issue(P1, 0)], "news of the ANA state end the rest");
}

#[test]
fn a_failover_time_starts_at_the_failed_bind() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    t.submit(0, Op::Read);
    t.submit(1, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.now += 40 * MS;
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, LOST);
    t.complete(P0, 1, LOST);
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.now += 60 * MS;
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 1)]);
    t.complete(P1, 1, crate::retry(Duration::ZERO));
    assert_eq!(t.actions(), [issue(P1, 1)], "its path did not fail it");
    let failover_times = t.group.stats(t.now).failover_times;
    for (class, ms) in [(OpClass::Read, 40), (OpClass::Write, 100)] {
        let times = failover_times.class(class);
        assert_eq!((times.ns().len(), times.counted().sum()), (1, ms * MS), "{class:?}");
    }
}

#[test]
fn the_first_request_that_moves_is_counted_once_at_each_failure_of_a_path() {
    let mut t = Test::new(GroupConfig { policy: PolicyKind::Numa.into(), ..config() });
    let firsts = |t: &Test| {
        let stats = t.group.stats(t.now);
        (stats.failover_times.first().ns().len(), stats.failover_times.first().counted().sum())
    };
    // The association ends: the read moves at once, both writes after the fence.
    t.submit(0, Op::Write);
    t.submit(1, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.now += 10 * MS;
    t.submit(2, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 2)]);
    t.now += 30 * MS;
    t.group.path_lost(t.now, P0);
    (0..3).for_each(|tag| t.complete(P0, tag, LOST));
    assert_eq!(t.actions(), [issue(P1, 2)]);
    assert_eq!(firsts(&t), (1, 30 * MS));
    t.now += 60 * MS;
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [issue(P1, 0), issue(P1, 1)]);
    assert_eq!(firsts(&t), (1, 30 * MS), "the same failure");
    assert_eq!(t.group.stats(t.now).fence_waits, [FenceWaits { requests: 2, time: 120 * MS }]);
    (0..3).for_each(|tag| t.complete(P1, tag, Outcome::Success));
    t.actions();
    // The path is back, and answers with path errors.
    t.up(P0, 2, AnaState::Optimized);
    t.now += MS;
    t.submit(0, Op::Read);
    t.submit(1, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.now += 5 * MS;
    (0..2).for_each(|tag| t.complete(P0, tag, Outcome::PathError));
    assert_eq!(t.actions(), [issue(P1, 1), issue(P1, 0)]);
    assert_eq!(firsts(&t), (2, 35 * MS));
}

#[test]
fn failovers_are_capped() {
    let mut t = Test::new(GroupConfig { max_failovers: 1, policy: PolicyKind::Numa.into(), ..config() });
    t.submit(0, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    for epoch in [2, 3] {
        t.group.path_lost(t.now, P0);
        t.complete(P0, 0, LOST);
        let actions = t.actions();
        if epoch == 3 {
            assert_eq!(actions, [failed(0, IoError::Attempts)]);
        } else {
            assert_eq!(actions, [issue(P1, 0)]);
            t.up(P0, epoch, AnaState::Optimized);
            t.complete(P1, 0, Outcome::PathError);
            assert_eq!(t.actions(), [issue(P0, 0)], "the first path error of a path counts for nothing");
        }
    }
}

#[test]
fn a_write_in_doubt_uses_up_a_failover_with_each_fence() {
    let mut t = Test::new(GroupConfig { max_failovers: 1, policy: PolicyKind::Numa.into(), ..config() });
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    for (epoch, action) in [(1, issue(P0, 0)), (2, failed(0, IoError::Attempts))] {
        t.group.path_lost(t.now, P0);
        t.complete(P0, 0, LOST);
        t.up(P0, epoch + 1, AnaState::Optimized);
        t.group.fence_lifted(t.now, P0, Epoch(epoch));
        assert_eq!(t.actions(), [action]);
    }
}

/// A path that refuses one request over and over and serves all others does not keep the request for ever.
#[test]
fn path_errors_count_only_if_the_path_serves_other_requests() {
    let mut t = Test::new(GroupConfig { max_failovers: 1, policy: PolicyKind::Numa.into(), ..config() });
    t.group.path_lost(t.now, P1);
    t.submit(0, Op::Read);
    for _ in 0..40 {
        assert_eq!(t.actions(), [issue(P0, 0)]);
        t.complete(P0, 0, Outcome::PathError);
        assert_eq!(t.actions(), []);
        t.sleep();
    }
    for others in 0..2 {
        assert_eq!(t.actions(), [issue(P0, 0)]);
        t.submit(1, Op::Read);
        assert_eq!(t.actions(), [issue(P0, 1)]);
        t.complete(P0, 1, Outcome::Success);
        assert_eq!(t.actions(), [ok(1)]);
        t.complete(P0, 0, Outcome::PathError);
        assert_eq!(t.actions(), if others == 0 { vec![] } else { vec![failed(0, IoError::Attempts)] });
        t.sleep();
    }
}

/// As without a path, but the path is tried again after each rest.
#[test]
fn if_every_path_refuses_requests_wait_for_the_configured_time() {
    let disk = SharedDisk::default();
    let config = GroupConfig { no_path_timeout: Some(5000 * MS), policy: PolicyKind::Numa.into(), ..config() };
    let mut t = Test::up_with(config, std::slice::from_ref(&disk));
    assert!(disk.usable.contains(P0) && disk.usable.contains(P1));
    t.submit(0, Op::Write);
    let (start, mut attempts) = (t.now, 0);
    let end = loop {
        match t.actions()[..] {
            [Action::Issue { path, tag }] => {
                attempts += 1;
                t.complete(path, tag.0, Outcome::PathError);
            }
            [] => _ = t.sleep(),
            [end] => break end,
            ref other => panic!("{other:?}"),
        }
        assert!(attempts == 0 || !disk.usable.contains(P1) || attempts == 1, "no path counts as usable");
    };
    assert_eq!((end, t.now - start), (failed(0, IoError::NoPath), 5000 * MS));
    assert!(attempts > 6, "{attempts}: the rests double");
    // New requests fail at once while the paths rest.
    t.submit(1, Op::Write);
    assert_eq!(t.actions(), [failed(1, IoError::NoPath)]);
    t.now += 10_000 * MS;
    t.submit(2, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 2)], "the rest is over");
    assert!(!disk.usable.contains(P0), "it has to succeed first");
    t.complete(P0, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);
    assert!(disk.usable.contains(P0) && disk.usable.contains(P1));
}

#[test]
fn a_request_out_of_retries_fails_for_the_last_cause() {
    for (cause, error) in [
        (RetryCause::Medium, IoError::Medium),
        (RetryCause::Internal, IoError::Attempts),
        (RetryCause::NotExecuted, IoError::Attempts),
    ] {
        let mut t = Test::new(GroupConfig { max_retries: 1, ..config() });
        t.submit(0, Op::Read);
        assert_eq!(t.actions(), [issue(P0, 0)]);
        t.complete(P0, 0, crate::retry(Duration::ZERO));
        assert_eq!(t.actions(), [issue(P1, 0)]);
        t.complete(P1, 0, Outcome::Retry { after: Duration::ZERO, cause });
        assert_eq!(t.actions(), [failed(0, error)]);
    }
}

#[test]
fn a_final_error_is_final() {
    let mut t = Test::new(config());
    t.submit(0, Op::WriteZeroes);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::Failed(IoError::Unsupported));
    assert_eq!(t.actions(), [Action::Finish { tag: Tag(0), result: Err(IoError::Unsupported) }]);
}

#[test]
fn without_a_path_requests_wait_for_the_configured_time() {
    let mut t = Test::new(GroupConfig { no_path_timeout: Some(5000 * MS), ..config() });
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.path_lost(t.now, P0);
    t.group.path_lost(t.now, P1);
    t.complete(P0, 0, LOST);
    t.submit(1, Op::Read);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), []);
    assert_eq!(t.sleep(), 5000 * MS);
    assert_eq!(t.actions(), [failed(1, IoError::NoPath), failed(2, IoError::NoPath)]);
    assert_eq!(t.group.next_timeout(), None);
    t.submit(3, Op::Read);
    assert_eq!(t.actions(), [failed(3, IoError::NoPath)], "at once by now");
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [failed(0, IoError::NoPath)], "an indeterminate write not before its fence");
    t.up(P1, 2, AnaState::Optimized);
    t.submit(4, Op::Read);
    assert_eq!(t.actions(), [issue(P1, 4)]);
}

#[test]
fn requests_do_not_wait_for_paths_that_will_not_come_back() {
    let mut t = Test::new(config());
    t.submit(0, Op::Write);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.group.path_lost(t.now, P0);
    t.complete(P0, 0, LOST);
    t.group.set_paths_expected(false);
    t.submit(1, Op::Read);
    assert_eq!(t.actions(), [issue(P1, 1)], "there still is one");
    t.group.set_paths_expected(true);
    t.group.path_lost(t.now, P1);
    t.complete(P1, 1, LOST);
    t.submit(2, Op::Flush);
    assert_eq!(t.actions(), []);
    t.group.set_paths_expected(false);
    assert!(t.group.next_timeout().is_some_and(|at| at <= t.now));
    assert_eq!(t.actions(), [failed(1, IoError::NoPath), failed(2, IoError::NoPath)]);
    t.submit(3, Op::Read);
    assert_eq!(t.actions(), [failed(3, IoError::NoPath)]);
    t.group.fence_lifted(t.now, P0, Epoch(1));
    assert_eq!(t.actions(), [failed(0, IoError::NoPath)], "an indeterminate write not before its fence");
    t.group.set_paths_expected(true);
    t.submit(4, Op::Read);
    assert_eq!(t.actions(), []);
    t.up(P1, 2, AnaState::Optimized);
    assert_eq!(t.actions(), [issue(P1, 4)]);
}

#[test]
fn without_a_timeout_requests_wait_without_end() {
    let mut t = Test::down(config(), &[SharedDisk::default()]);
    t.submit(0, Op::Read);
    assert_eq!(t.actions(), []);
    assert_eq!(t.group.next_timeout(), None);
    t.up(P1, 1, AnaState::NonOptimized);
    assert_eq!(t.actions(), [issue(P1, 0)]);
}
