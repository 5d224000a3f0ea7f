//! Random faults: runs seeds, and replays one.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use monotonic::Instant;
use mpath_sim::{Counts, Report, print_line};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 2000, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them, decimal or 0x…; a fresh one by default
    #[arg(long, value_parser = parse_seed, conflicts_with = "seed")]
    first_seed: Option<u64>,
    /// Replay this one
    #[arg(long, value_parser = parse_seed)]
    seed: Option<u64>,
    /// Try every order of events in small worlds
    #[arg(long, conflicts_with_all = ["seed", "seeds", "first_seed", "jobs"])]
    small: bool,
    /// Print everything that happens
    #[arg(long, short, requires = "seed")]
    verbose: bool,
    /// Seeds at a time; as many as there are processors by default
    #[arg(long)]
    jobs: Option<usize>,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; a seed is a number of 64 bits, decimal or 0x…"))
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.small {
        return explore_all();
    }
    if let Some(seed) = args.seed {
        on_panic(seed);
        let report = if args.verbose { mpath_sim::run_verbose(seed) } else { mpath_sim::run(seed) };
        let virtual_seconds = report.virtual_time.as_secs_f64();
        print_line(format_args!("{:?} in {virtual_seconds:.1} s of virtual time", report.counts));
        return finish(&report);
    }
    let first = args.first_seed.unwrap_or_else(fresh_seed);
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    print_line(format_args!("mpath-sim: {} seeds from {first:#x}", args.seeds));
    run_all(first, args.seeds, jobs.max(1))
}

/// Every order of events of the small worlds.
fn explore_all() -> ExitCode {
    let explore = |plan| move || (plan, Instant::now(), mpath_sim::small::explore(plan), Instant::now());
    let explored = std::thread::scope(|scope| {
        let all = mpath_sim::small::PLANS.map(|plan| scope.spawn(explore(plan)));
        all.map(|one| one.join().expect("a world that panics says so itself"))
    });
    for (plan, began, explored, ended) in &explored {
        let seconds = (*ended - *began).as_secs_f64();
        print_line(format_args!("mpath-sim: {plan:?}: {} states in {seconds:.1} s", explored.states));
    }
    let violation = explored.into_iter().find_map(|(_, _, explored, _)| explored.violation);
    let Some(violation) = violation else { return ExitCode::SUCCESS };
    print_line(violation);
    ExitCode::FAILURE
}

fn run_all(first: u64, seeds: u64, jobs: usize) -> ExitCode {
    let started = Instant::now();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let totals = Mutex::new((0, 0.0, Counts::default(), None));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        break;
                    }
                    let seed = first.wrapping_add(index);
                    on_panic(seed);
                    let report = mpath_sim::run(seed);
                    let mut totals = totals.lock().expect("no thread panics here");
                    totals.0 += 1;
                    totals.1 += report.virtual_time.as_secs_f64();
                    totals.2 += report.counts;
                    if report.violation.is_some() && totals.3.is_none() {
                        stop.store(true, Ordering::Relaxed);
                        totals.3 = Some(report);
                    }
                }
            });
        }
    });
    let (runs, virtual_seconds, counts, failed) = totals.into_inner().expect("no thread panics here");
    let seconds = started.elapsed().as_secs_f64();
    print_line(format_args!("{runs} runs in {seconds:.1} s, {virtual_seconds:.0} s of virtual time; {counts:?}"));
    failed.map_or(ExitCode::SUCCESS, |report| finish(&report))
}

fn finish(report: &Report) -> ExitCode {
    let Some(violation) = &report.violation else { return ExitCode::SUCCESS };
    report.history.iter().for_each(print_line);
    print_line(format_args!("{:>13.6} {}", violation.at.as_secs_f64(), violation.what));
    print_line(format_args!("replay: cargo run --release -p mpath-sim -- --seed {:#x}", report.seed));
    ExitCode::FAILURE
}

/// Prints how to replay this seed when an assertion of the code under test breaks, because that ends the process.
fn on_panic(seed: u64) {
    thread_local! {
        static SEED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    static HOOK: std::sync::Once = std::sync::Once::new();
    SEED.set(seed);
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            print_line(format_args!("replay: cargo run --release -p mpath-sim -- --seed {:#x} --verbose", SEED.get()));
        }));
    });
}

fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The low 20 bits are 0, so that the seeds of runs close in time do not overlap.
    since.as_nanos() as u64 & !0xf_ffff
}
