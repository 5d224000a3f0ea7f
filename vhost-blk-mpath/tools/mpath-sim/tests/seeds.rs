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
    assert!(counts.answered_over_packed_rings > 40_000);
    assert!(counts.associations_lost > 300);
    assert!(counts.late_store_changes > 40, "commands executed after their connection was gone");
    assert!(counts.blocks_lost > 50, "blocks that a crash took");
    assert!(counts.caches_lost > 5, "persistent losses that took something");
    assert!(counts.failed > 500);
    assert!(counts.cross_resets > 100, "fences lifted by a cross-controller reset");
    assert!(
        counts.associations_drained > 100 && counts.fences_lifted_by_drain > 50,
        "drains, and fences lifted by them"
    );
    assert!(
        counts.drained_with_commands > 50 && counts.drains_cut > 20,
        "drains of held commands, and drains cut short"
    );
    assert!(counts.hedges > 500 && counts.hedges_won > 100);
    assert!(counts.kills > 20 && counts.held_for_attempts > 5, "kills, and waits for first attempts after them");
    assert!(counts.removals > 20);
    assert!(counts.discovered > 100 && counts.unlisted > 10, "paths that discovery added, and removed");
    assert!(counts.sessions_kept_alive > 50, "discovery sessions without news that keep-alives kept open");
    assert!(counts.hang_ups > 50);
    assert!(counts.continued_without_log > 10, "front-ends without an in-flight log whose guests went on");
    assert!(counts.queue_stops > 50, "virtqueues that were stopped, all of a disk");
    assert!(counts.migrations > 30 && counts.moves > 20, "memories that a migration copied, and guests that moved there");
    assert!(
        counts.truncations > 20 && counts.hung_up_by_daemon > 10 && counts.torn_writes > 0,
        "machines that lost memory"
    );
    assert!(counts.given_up > 20, "requests that went down with their daemon");
    assert!(
        counts.runs_with_several_disks > 60 && counts.runs_with_several_disks < 120,
        "runs with several disks, and with one"
    );
    assert!(counts.answered_by_other_disks > 30_000, "by other disks than the first");
    assert!(counts.runs_with_spared_disk > 8);
    assert!(counts.disk_paths_lost > 30, "namespaces that vanished");
    assert!(counts.ended_by_replaced_namespace > 10, "namespaces that became another one");
    assert!(counts.spoilt_r2ts > 50 && counts.protocol_errors > 80, "protocols that controllers broke");
    assert!(counts.pieces > 10_000 && counts.commands_cut > 0, "commands executed in part");
    assert!(counts.runs_with_shared_cache > 10, "runs with one cache");
    assert!(
        counts.closed_with_commands > 2 && counts.handshakes_unanswered > 30,
        "orderly ends, and handshakes that nobody answered"
    );
    assert!(counts.in_capsule > 20_000 && counts.requested_by_r2t > 20_000 && counts.capsule_bytes_max > 64 << 10);
    assert!(counts.namespaces_added > 10, "namespaces that came back");
    assert!(
        counts.grown_while_no_daemon_ran > 5 && counts.openings_repeated > 15,
        "namespaces that grew while no daemon ran, and steps of openings that failed"
    );
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
