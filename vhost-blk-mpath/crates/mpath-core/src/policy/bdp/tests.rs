use super::*;
use crate::PolicyKind;
use crate::policy::testing::{busy, candidate, done, full, path, read};

const MS: Duration = Duration::from_millis(1);

fn bdp(params: &[(&str, &str)]) -> Bdp {
    Bdp::new(&PolicySpec::new(PolicyKind::Bdp, params.iter().copied()).expect("parameters"))
}

/// Four probes of each path with these latencies.
fn probe(policy: &mut Bdp, now: Instant, latencies: &[Duration]) {
    for _ in 0..4 {
        for (path, latency) in (0..).map(PathId).zip(latencies) {
            policy.probed(&ProbeResult { now, path, bytes: 4096, latency: Some(*latency) });
        }
    }
}

#[test]
fn unknown_paths_are_probed_and_used_in_turn() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    assert_eq!(policy.probe(now, 0b11, false), Some((PathId(0), 4096)));
    assert_eq!(policy.probe(now, 0b10, false), Some((PathId(1), 4096)));
    assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(0));
    assert_eq!(policy.select(&read(now), &[busy(0, now), candidate(1)]), path(1));
}

#[test]
fn a_single_request_takes_the_fast_path() {
    let now = Instant::now();
    for (latencies, fast) in [([MS, 30 * MS], 0), ([30 * MS, MS], 1)] {
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &latencies);
        let candidates = [candidate(0), candidate(1)];
        assert_eq!(policy.select(&read(now), &candidates), path(fast));
        assert_eq!(policy.estimate(PathId(fast), OpClass::Read).latency, Some(MS));
        policy.completed(&done(now + MS, fast, MS));
        assert_eq!(policy.select(&read(now + MS), &candidates), path(fast));
    }
}

#[test]
fn requests_wait_for_a_full_fast_path_and_an_idle_disk_is_not_probed() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 30 * MS]);
    let again = Choice::Wait { again: Some(now + LOOK_AGAIN) };
    assert_eq!(policy.select(&read(now), &[full(0), candidate(1)]), again);
    assert_eq!(policy.probe(now, 0b11, false), None);
    assert_eq!(policy.probe(now + 300 * MS, 0b11, false), None);
    assert!(policy.probe(now + 300 * MS, 0b10, true).is_some(), "a busy one is");
}

#[test]
fn a_recalled_request_marks_its_path_slow() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 2 * MS]);
    let candidates = [candidate(0), candidate(1)];
    assert_eq!(policy.select(&read(now), &candidates), path(0));
    policy.completed(&CompletedAttempt { ended: AttemptEnd::Failed, ..done(now + 300 * MS, 0, 300 * MS) });
    assert_eq!(policy.select(&read(now + 300 * MS), &candidates), path(1));
}

/// Reads continue on the path, so there are no probes to show that it has improved.
#[test]
fn a_path_that_failed_one_request_is_tried_again() {
    for class in [OpClass::Write, OpClass::Other] {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        let candidates = [candidate(0), candidate(1)];
        let choose = |policy: &mut Bdp, class, at| {
            let Choice::Path(path) = policy.select(&Query { class, ..read(at) }, &candidates) else {
                panic!("idle paths have room")
            };
            path
        };
        for at in (0..200).map(|n| now + n * MS) {
            (0..2).for_each(|path| policy.completed(&done(at, path, MS)));
            let path = choose(&mut policy, class, at);
            policy.completed(&CompletedAttempt { class, ..done(at, path.0, MS) });
        }
        let failed = now + 200 * MS;
        let bad = choose(&mut policy, class, failed);
        let failure =
            CompletedAttempt { class, ended: AttemptEnd::Failed, ..done(failed, bad.0, Duration::from_secs(1)) };
        policy.completed(&failure);
        assert_ne!(choose(&mut policy, class, failed + MS), bad, "{class:?}");
        // The other path is as good, so it is full in this query.
        let only_bad = candidates.map(|c| if c.path == bad { c } else { full(c.path.0) });
        let query = |at| Query { class, ..read(at) };
        let before = policy.select(&query(failed + FAILED_FOR / 2), &only_bad);
        assert!(matches!(before, Choice::Wait { .. }), "{class:?}");
        assert_eq!(policy.select(&query(failed + FAILED_FOR), &only_bad), Choice::Path(bad), "{class:?}");
    }
}

/// Probes do not measure writes: the cause of slow writes may have passed.
#[test]
fn slow_writes_are_tried_again_where_reads_are_fast() {
    for reads_too in [false, true] {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        let write = |now| Query { class: OpClass::Write, ..read(now) };
        let written = |now, latency| CompletedAttempt { class: OpClass::Write, ..done(now, 0, latency) };
        // The other path is as good, and full.
        let candidates = [candidate(0), full(1)];
        let mut at = now;
        for _ in 0..200 {
            at += MS;
            (0..2).for_each(|path| policy.completed(&done(at, path, MS)));
            assert_eq!(policy.select(&write(at), &candidates), path(0));
            policy.completed(&written(at + MS, MS));
            policy.completed(&CompletedAttempt { class: OpClass::Write, ..done(at + MS, 1, MS) });
        }
        let used_at = at;
        let late = at + 200 * MS;
        for _ in 0..8 {
            policy.completed(&written(late, 200 * MS));
            if reads_too {
                policy.completed(&done(late, 0, 200 * MS));
            }
        }
        let before = policy.select(&write(used_at + 490 * MS), &candidates);
        assert!(matches!(before, Choice::Wait { .. }), "{before:?}");
        let again = used_at + 500 * MS;
        let after = policy.select(&write(again), &candidates);
        assert_eq!(after == path(0), !reads_too, "{after:?}");
        // The writes of the trial take long again.
        (0..8).for_each(|_| policy.completed(&written(again + 200 * MS, 200 * MS)));
        let before = policy.select(&write(again + 990 * MS), &candidates);
        assert!(matches!(before, Choice::Wait { .. }), "{before:?}");
        let after = policy.select(&write(again + 1000 * MS), &candidates);
        assert_eq!(after == path(0), !reads_too, "{after:?}");
    }
}

#[test]
fn a_read_overtaken_by_its_hedge_does_not_count_against_its_path() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 5 * MS]);
    let candidates = [candidate(0), candidate(1)];
    for n in 0..100 {
        let at = now + n * MS;
        assert_eq!(policy.select(&read(at), &candidates), path(0));
        let ended = if n % 20 == 10 { AttemptEnd::Overtaken } else { AttemptEnd::Answered };
        policy.completed(&CompletedAttempt {
            ended,
            ..done(at, 0, if ended == AttemptEnd::Answered { MS } else { 50 * MS })
        });
    }
    let latency = policy.estimate(PathId(0), OpClass::Read).latency.expect("known");
    assert!(latency < MS * 11 / 10, "{latency:?}");
}

#[test]
fn no_request_waits_for_a_silent_path() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 5 * MS]);
    assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(0));
    let stalled = Candidate { has_room: false, ..busy(0, now) };
    let Choice::Wait { again: Some(again) } = policy.select(&read(now + MS), &[stalled, candidate(1)]) else {
        panic!("it is waited for while it may answer")
    };
    assert_eq!(policy.select(&read(again), &[stalled, candidate(1)]), path(1));
    // A single late request, while others are answered, is not silence.
    policy.completed(&done(again + 5 * MS, 0, MS));
    let choice = policy.select(&read(again + 6 * MS), &[stalled, candidate(1)]);
    assert!(matches!(choice, Choice::Wait { .. }), "{choice:?}");
}

#[test]
fn probes_go_to_the_path_that_has_waited_longest() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 5 * MS, 5 * MS, 5 * MS]);
    let mut order = Vec::new();
    let mut at = now;
    while order.len() < 6 {
        // The budget is for one a second: fewer than the three idle paths could do with.
        at += 10 * MS;
        let idle = [0, 1, 2, 3].map(candidate);
        // Rare requests still take the fast path.
        assert_eq!(policy.select(&read(at), &idle), path(0));
        policy.completed(&done(at + MS, 0, MS));
        if let Some((path, bytes)) = policy.probe(at, 0b1110, true) {
            policy.probed(&ProbeResult { now: at, path, bytes, latency: Some(5 * MS) });
            order.push(path.0);
        }
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn writes_do_not_estimate_reads_and_probes_do_not_estimate_writes() {
    let now = Instant::now();
    let write = |now| Query { class: OpClass::Write, ..read(now) };
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, MS]);
    let mut at = now;
    let (mut probes, mut used) = (0, PathId(0));
    for _ in 0..3000 {
        at += 10 * MS;
        let Choice::Path(path) = policy.select(&write(at), &[candidate(0), candidate(1)]) else {
            panic!("idle paths have room")
        };
        used = path;
        policy.completed(&CompletedAttempt { class: OpClass::Write, ..done(at + MS, path.0, MS) });
        // While there are only writes, reads have become far slower, and vary.
        if let Some((path, bytes)) = policy.probe(at, 0b11, true) {
            policy.probed(&ProbeResult {
                now: at,
                path,
                bytes,
                latency: Some(if probes % 2 == 0 { 20 * MS } else { 40 * MS }),
            });
            probes += 1;
        }
    }
    // One probe for a hundred writes, and the probes that are owed.
    assert!((10..=30 + 18).contains(&probes), "{probes}");
    let latency = |class| policy.estimate(used, class).latency.expect("known");
    assert!(latency(OpClass::Read) > 10 * MS && latency(OpClass::Write) < 2 * MS);
}

#[test]
fn a_path_with_scattered_probes_leaves_probes_to_the_others() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 8 * MS, 10 * MS]);
    let (mut probes, mut waited) = ([0_u32; 3], [0_u32; 3]);
    for n in 0..10_000 {
        let at = now + n * 5 * MS;
        policy.select(&read(at), &[candidate(0)]);
        policy.completed(&done(at + MS, 0, MS));
        waited = waited.map(|waited| waited + 1);
        if let Some((path, bytes)) = policy.probe(at, 0b111, true) {
            let index = path.index();
            // Each probe of path 1 is far from the estimate of the path, and from the probe before.
            let latency = if index == 2 { 10 * MS } else { [2 * MS, 30 * MS][probes[index] as usize % 2] };
            policy.probed(&ProbeResult { now: at, path, bytes, latency: Some(latency) });
            probes[index] += 1;
            waited[index] = 0;
        }
        assert!(n < 1000 || waited[2] <= 420, "{probes:?} {waited:?}");
    }
    assert!(probes[2] >= 25 && probes.iter().sum::<u32>() <= 100 + 24 + 8, "{probes:?}");
}

/// With any answers, and with any number of replaced means.
#[test]
fn a_path_that_keeps_changing_has_no_more_probes_than_others() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 8 * MS, 10 * MS]);
    let (mut at, mut probes) = (now, 0);
    let mut ask = |policy: &mut Bdp, at: Instant, busy: bool| {
        let Some((path, bytes)) = policy.probe(at, 0b111, busy) else { return 0 };
        let latency = if path.0 == 1 { [2, 20, 200][probes % 3] } else { 10 };
        probes += 1;
        policy.probed(&ProbeResult { now: at, path, bytes, latency: Some(latency * MS) });
        1
    };
    let mut asked = 0;
    for _ in 0..10_000 {
        at += 5 * MS;
        policy.select(&read(at), &[candidate(0)]);
        policy.completed(&done(at + MS, 0, MS));
        asked += ask(&mut policy, at, true);
    }
    assert!((80..=100 + 24).contains(&asked), "{asked}");
    let idle: i32 = (0..1000).map(|n| ask(&mut policy, at + n * 5 * MS, false)).sum();
    assert_eq!(idle, 0, "nothing is wanted of it");
}

#[test]
fn a_probe_follows_as_soon_as_the_budget_allows() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 8 * MS]);
    let mut at = now + 300 * MS;
    let (path, bytes) = policy.probe(at, 0b10, true).expect("saved");
    policy.probed(&ProbeResult { now: at, path, bytes, latency: Some(8 * MS) });
    at += 300 * MS;
    assert_eq!(policy.probe(at, 0b10, true), None);
    (0..200).for_each(|_| policy.completed(&done(at, 0, MS)));
    assert_eq!(policy.probe(at + MS, 0b10, true).map(|probe| probe.0), Some(PathId(1)));
}

#[test]
fn the_first_request_of_a_path_does_not_size_its_window() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    for _ in 0..1000 {
        policy.select(&read(now), &[candidate(0)]);
    }
    policy.path_changed(PathId(1));
    let large = Query { bytes: 1 << 20, ..read(now) };
    assert_eq!(policy.select(&large, &[candidate(1)]), path(1));
    // The mean is 14 KiB by now.
    let usage = Usage { ios: 13, bytes: (1 << 20) + 12 * 4096 };
    let oldest = Some(super::super::Oldest { bound_at: now, bytes: 1 << 20 });
    let held = Candidate { of_class: usage, in_flight: 13, oldest, ..candidate(1) };
    assert!(matches!(policy.select(&read(now), &[held]), Choice::Wait { .. }), "three more of the mean size");
}

#[test]
fn a_path_that_comes_back_is_measured_again() {
    let now = Instant::now();
    let mut policy = bdp(&[]);
    probe(&mut policy, now, &[MS, 30 * MS]);
    policy.path_changed(PathId(1));
    assert_eq!(policy.estimate(PathId(1), OpClass::Read).latency, None);
    assert_eq!(policy.probe(now, 0b11, false), Some((PathId(1), 4096)));
}
