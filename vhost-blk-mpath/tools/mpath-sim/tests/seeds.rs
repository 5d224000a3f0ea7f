//! Fixed seeds, some fresh ones, and the simulator's own promise: the same seed is the same run.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mpath_sim::Counts;

/// Runs seeds in parallel: what the runs were made of. Stops early only for a violation, or for time where `most` allows.
fn check(seeds: std::ops::Range<u64>, most: Duration) -> Counts {
    let started = Instant::now();
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let counts = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let mine = seeds.clone().skip(job as usize).step_by(jobs as usize);
            let counts = &counts;
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
                    *counts.lock().expect("nobody panics here") += report.counts;
                }
            });
        }
    });
    counts.into_inner().expect("nobody panics here")
}

fn replay(seed: u64) -> String {
    format!("cargo run --release -p mpath-sim -- --seed {seed:#x}")
}

/// And what they are made of: a simulator that checks nothing passes everything.
#[test]
fn fixed_seeds() {
    let counts = check(0..150, Duration::MAX);
    assert!(counts.answered > 100_000);
    assert!(counts.associations_lost > 300);
    assert!(counts.late > 40, "commands executed after their connection was gone");
    assert!(counts.lost > 50, "blocks that a crash took");
    assert!(counts.caches_taken > 5, "persistent losses that took something");
    assert!(counts.failed > 500);
    assert!(counts.resets > 100, "fences lifted by a cross-controller reset");
    assert!(counts.hedges > 500 && counts.hedges_won > 100);
    assert!(counts.kills > 20);
    assert!(counts.removals > 20);
    assert!(counts.discovered > 100 && counts.listed_no_more > 10, "paths that discovery added, and removed");
    assert!(counts.sessions_kept_alive > 50, "discovery sessions without news that keep-alives kept open");
    assert!(counts.hang_ups > 50);
    assert!(counts.stops > 50, "virtqueues that were stopped, all of a disk");
    assert!(counts.cut_off > 20 && counts.hung_up_on > 10 && counts.torn > 0, "machines that lost memory");
    assert!(counts.given_up > 20, "requests that went down with their daemon");
    assert!(counts.several > 60 && counts.several < 120, "runs with several disks, and with one");
    assert!(counts.answered_beside > 30_000, "by other disks than the first");
    assert!(counts.spared > 8);
    assert!(counts.disks_lost > 30, "namespaces that vanished");
    assert!(counts.ended_by_another > 10, "namespaces that became another one");
    assert!(counts.spoilt_r2ts > 50 && counts.broken > 80, "protocols that controllers broke");
    assert!(counts.pieces > 10_000 && counts.cut > 0, "commands executed in part");
    assert!(counts.shared_caches > 10, "runs with one cache");
    assert!(counts.finished > 2 && counts.unanswered > 30, "orderly ends, and handshakes that nobody answered");
    assert!(counts.in_capsule > 20_000 && counts.asked_for > 20_000 && counts.capsule_bytes_max > 64 << 10);
    assert!(counts.namespaces_added > 10, "namespaces that came back");
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
