//! Fixed seeds, some fresh ones, and the simulator's own promise: the same seed is the same run.

use std::io::Write;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use monotonic::{Duration, Instant};
use mpath_sim::Counts;

/// Runs seeds in parallel. Returns the counts of all runs. Stops early only for a violation, or when `most` time has passed.
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

/// The counts, each with its name and with the number that it has to exceed.
macro_rules! counts_above {
    ($counts:ident, $($name:ident: $least:expr,)*) => {
        [$((stringify!($name), $counts.$name, $least)),*]
    };
}

/// The runs contain enough of everything: a simulator without faults, or with faults that have no effect, passes every check. The
/// minimums are far below the counts of these seeds. [`Counts`] says what is counted.
#[test]
fn fixed_seeds() {
    let counts = check(0..150, Duration::MAX);
    let expected = counts_above! { counts,
        answered: 100_000,
        answered_over_packed_rings: 40_000,
        failed: 500,
        repeated: 100,
        caches_dropped: 0,
        writes_lost: 50,
        answered_by_other_disks: 30_000,
        runs_with_several_disks: 60,
        disk_paths_lost: 30,
        ended_by_replaced_namespace: 10,
        namespaces_added: 10,
        unverified: 20,
        fewer_queues: 50,
        queues_lacking: 5,
        ana_parts: 200,
        ana_moves: 30,
        runs_with_spared_disk: 8,
        late_store_changes: 40,
        blocks_lost: 50,
        caches_lost: 5,
        shared_caches_lost: 0,
        runs_with_shared_cache: 10,
        hedges: 100,
        hedges_won: 40,
        associations_lost: 300,
        cross_resets: 100,
        cross_resets_refused: 40,
        cross_resets_begun: 30,
        cross_resets_deadly: 10,
        associations_drained: 100,
        drained_with_commands: 40,
        drains_cut: 10,
        fences_lifted_by_drain: 30,
        removals: 20,
        daemon_flushes: 20,
        removals_held: 0,
        removals_taken_back: 0,
        tried_as_saved: 40,
        closed_in_order: 40,
        discovered: 100,
        unlisted: 10,
        sessions_kept_alive: 20,
        logs_polled: 8,
        persistence_refused: 8,
        sessions_silent: 2,
        kills: 20,
        restarts: 50,
        disks_replaced: 20,
        removed_in_doubt: 1,
        pending_fences: 0,
        held_for_attempts: 5,
        records_not_written: 50,
        disks_grown: 10,
        sizes_not_saved: 1,
        grown_while_no_daemon_ran: 5,
        openings_repeated: 15,
        hang_ups: 50,
        continued_without_log: 10,
        queue_stops: 50,
        stops_without_path: 0,
        long_chains: 2_000,
        migrations: 30,
        moves: 20,
        truncations: 20,
        hung_up_by_daemon: 10,
        torn_writes: 5,
        given_up: 100,
        spoilt_r2ts: 30,
        connections_deaf: 20,
        protocol_errors: 60,
        too_large_refused: 50,
        associations_timed_out: 50,
        closed_with_commands: 20,
        handshakes_unanswered: 20,
        in_capsule: 20_000,
        requested_by_r2t: 15_000,
        capsule_bytes_max: 64 << 10,
        pieces: 8_000,
        commands_cut: 0,
        pieces_delayed: 500,
        deliveries_frozen: 3,
        digest_errors: 15,
        runs_with_tls: 20,
        handshakes_failed: 20,
        sessions_failed: 40,
        records_changed: 1,
        waits_for_paused_node: 100,
        commands_slowed: 150,
        slow_arrays: 5,
        commands_lost: 5,
        responses_repeated: 2,
        policies_changed: 30,
        weights_changed: 30,
        held_by_injection: 2,
        disks_throttled: 30,
    };
    let low: Vec<_> = expected.into_iter().filter(|(_, count, least)| count <= least).collect();
    assert!(low.is_empty(), "too rare, each with its number, which has to be above the next one: {low:?}");
    assert!(counts.runs_with_several_disks < 120, "runs with one disk");
}

#[test]
fn fresh_seeds() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = since.as_nanos() as u64 & !0xf_ffff;
    // Past the capture of the test's output: a run of CI says what it ran.
    let _ = writeln!(std::io::stderr(), "mpath-sim: 100 fresh seeds from {first:#x}");
    check(first..first + 100, Duration::from_secs(8));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1000..1010 {
        let (one, other) = (mpath_sim::run(seed), mpath_sim::run(seed));
        assert_eq!((one.fingerprint, one.counts), (other.fingerprint, other.counts), "seed {seed:#x}");
    }
}
