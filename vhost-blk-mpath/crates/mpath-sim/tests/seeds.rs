//! A few hundred fixed seeds, some fresh ones, and the simulator's own promise: the same seed is the same run.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs seeds in parallel; stops early only for a violation, or for time where `most` allows.
fn check(seeds: std::ops::Range<u64>, most: Duration) {
    let started = Instant::now();
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let mine = seeds.clone().skip(job as usize).step_by(jobs as usize);
            scope.spawn(move || {
                for seed in mine {
                    if started.elapsed() > most {
                        println!("seeds from {seed:#x} on are left out for lack of time");
                        return;
                    }
                    let caught = std::panic::catch_unwind(|| mpath_sim::run(seed));
                    let report = caught.unwrap_or_else(|_| panic!("replay: {}", replay(seed)));
                    if let Some(violation) = report.violation {
                        report.history.iter().for_each(|line| println!("{line}"));
                        panic!("{}\nreplay: {}", violation.what, replay(seed));
                    }
                }
            });
        }
    });
}

fn replay(seed: u64) -> String {
    format!("cargo run --release -p mpath-sim -- --seed {seed:#x}")
}

#[test]
fn fixed_seeds() {
    check(0..300, Duration::MAX);
}

#[test]
fn fresh_seeds() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = since.as_nanos() as u64 & !0xf_ffff;
    // Past the capture of the test's output: a run of CI says what it ran.
    let _ = writeln!(std::io::stderr(), "mpath-sim: 100 fresh seeds from {first:#x}");
    check(first..first + 100, Duration::from_secs(30));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1000..1010 {
        let (one, other) = (mpath_sim::run(seed), mpath_sim::run(seed));
        assert_eq!((one.fingerprint, one.counts), (other.fingerprint, other.counts), "seed {seed:#x}");
    }
}

/// What the runs are made of: a simulator that checks nothing passes everything.
#[test]
fn runs_meet_what_they_are_for() {
    let reports: Vec<_> = (0..80).map(mpath_sim::run).collect();
    let sum = |of: fn(&mpath_sim::Counts) -> u64| reports.iter().map(|report| of(&report.counts)).sum::<u64>();
    assert!(sum(|counts| counts.answered) > 20_000);
    assert!(sum(|counts| counts.associations_lost) > 100);
    assert!(sum(|counts| counts.late) > 20, "commands executed after their connection was gone");
    assert!(sum(|counts| counts.lost) > 10, "blocks that a crash took");
    assert!(sum(|counts| counts.failed) > 10);
    assert!(sum(|counts| counts.resets) > 10, "fences lifted by a cross-controller reset");
    assert!(sum(|counts| counts.hedges) > 100 && sum(|counts| counts.hedges_won) > 20);
    assert!(sum(|counts| counts.kills) > 5);
    assert!(sum(|counts| counts.removals) > 5);
    assert!(sum(|counts| counts.given_up) > 5, "requests that went down with their daemon");
}
