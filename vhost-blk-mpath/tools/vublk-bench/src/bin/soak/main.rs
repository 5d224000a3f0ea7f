//! `soak`: verified I/O on a two-path disk while policies and injections of every kind change all the time.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod control;
mod memory;

use clap::Parser;
use control::Controller;
use memory::MemoryWatch;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vublk_bench::harness::{Failure, run_program};
use vublk_bench::options::{Mode, Options};
use vublk_bench::report::Report;
use vublk_bench::session;
use vublk_bench::signals::EXIT_INTERRUPTED;
use vublk_bench::stack::{MpathStack, Programs, directory, sibling};
use vublk_bench::units::{UnitError, parse_duration, parse_size};

const EXIT_FAILED: u8 = 1;

/// Between two policy switches.
const SWITCH_INTERVAL: Duration = Duration::from_millis(100);

/// With one memory sample a second.
const SHORTEST_RUN: Duration = Duration::from_secs(10);

/// Verified I/O through the daemon over two paths, while the policy is switched every 100 ms and an injection
/// is set and cleared on both paths.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: 0 no wrong data, nothing lost, every switch accepted, memory flat; 1 any of that \
    failed; 2 bad options; 3 something could not be started; 130 interrupted. Everything started is ended."
)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// mpathctl [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATHCTL")]
    mpathctl: Option<PathBuf>,

    /// How long to switch and verify, at least 10 s
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = run_time)]
    time: Duration,

    /// Virtqueues
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,

    /// Requests in flight on each queue
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=341))]
    iodepth: u16,

    /// The largest request
    #[arg(long, default_value = "64k", value_name = "BYTES", value_parser = parse_size)]
    bs: u64,

    /// Bytes of the disk to use
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_size)]
    size: u64,

    /// The policies to go round
    #[arg(
        long,
        default_value = "numa,round-robin,queue-depth,adaptive,pid,latency,latency-rr,service-time,bdp",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    policies: Vec<String>,

    /// Makes the requests repeatable
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What is wrong with `--time`.
#[derive(Debug, thiserror::Error)]
enum RunTimeError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("the run must last at least {} s, or its memory cannot be judged", SHORTEST_RUN.as_secs())]
    TooShort,
}

fn run_time(text: &str) -> Result<Duration, RunTimeError> {
    let time = parse_duration(text)?;
    if time < SHORTEST_RUN { Err(RunTimeError::TooShort) } else { Ok(time) }
}

fn main() -> ExitCode {
    run_program("soak", soak)
}

fn soak(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    let directory = directory("soak-")?;
    let first_policy = line.policies.first().map_or("round-robin", String::as_str);
    let mut stack = MpathStack::start(&line.programs, directory.path(), 2, &["--policy", first_policy])?;
    let options = Options {
        bs: line.bs,
        iodepth: line.iodepth,
        queues: line.queues,
        time: line.time,
        size: Some(line.size),
        seed: line.seed,
        ..Options::with_defaults(&stack.socket, Mode::Verify)
    };
    println!(
        "soak: {} s of verified I/O, {} queues, paths {}",
        line.time.as_secs(),
        line.queues,
        stack.paths.join(" ")
    );

    let ctl = sibling(line.mpathctl.as_ref(), "mpathctl");
    let mut controller = Controller::new(ctl, &stack.api, &stack.paths, &line.policies);
    let mut memory = MemoryWatch::new(stack.daemon.pid());
    let report = thread::scope(|scope| {
        let run = scope.spawn(|| {
            session::run(&options, interrupted, |progress| {
                eprintln!(
                    "{:4} s: {:.0} IOPS, {} errors, {} miscompares",
                    progress.elapsed.as_secs(),
                    progress.completed as f64 / progress.interval.as_secs_f64(),
                    progress.errors,
                    progress.miscompares
                );
            })
        });
        let mut next_switch = Instant::now() + SWITCH_INTERVAL;
        while !run.is_finished() {
            memory.sample();
            let now = Instant::now();
            if now >= next_switch && !interrupted.load(Ordering::Relaxed) {
                controller.switch();
                // No catching up after a slow one: that would be a burst, not a rhythm.
                next_switch = Instant::now().max(next_switch + SWITCH_INTERVAL);
            }
            thread::sleep(Duration::from_millis(10));
        }
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let report = report
        .map_err(|error| Failure::NotStarted(format!("{error}\nthe daemon's log:\n{}", stack.daemon.log_tail())))?;
    let died = stack.daemon.exited().map(|status| format!("the daemon ended: {status}"));
    let passed = summarise(&report, &controller, &memory, died.as_deref());
    if !passed {
        println!("the daemon's log:\n{}", stack.daemon.log_tail());
    }
    Ok(match (passed, report.interrupted) {
        (_, true) => EXIT_INTERRUPTED,
        (false, false) => EXIT_FAILED,
        (true, false) => 0,
    })
}

/// Prints the result, a line for each demand. True if all demands are met.
fn summarise(report: &Report, controller: &Controller, memory: &MemoryWatch, died: Option<&str>) -> bool {
    print!("\n{}", report.table());
    let mut passed = true;
    let mut demand = |met: bool, text: String| {
        println!("{} {text}", if met { "PASS" } else { "FAIL" });
        passed &= met;
    };
    let verify = report.verify.as_ref();
    let miscompares = verify.map_or(0, |verify| verify.counts.miscompares);
    let read_back = verify.is_some_and(|verify| verify.read_back);
    demand(died.is_none(), died.unwrap_or("the daemon ran to the end").to_owned());
    demand(miscompares == 0 && read_back, format!("{miscompares} miscompares, everything read back: {read_back}"));
    let (lost, broken) = (report.failures.lost.len(), report.failures.fatal.len());
    demand(lost == 0 && broken == 0, format!("{lost} requests lost, {broken} queues ended early"));
    demand(report.total.errors == 0, format!("{} requests failed", report.total.errors));
    demand(
        controller.failures().is_empty() && controller.switches() > 0,
        format!(
            "{} policy switches, {} injections set, {} cleared, {} refused",
            controller.switches(),
            controller.injections_set(),
            controller.injections_cleared(),
            controller.failures().len()
        ),
    );
    for failure in controller.failures().iter().take(5) {
        println!("     {failure}");
    }
    let verdict = memory.verdict();
    demand(verdict.is_flat(), verdict.to_string());
    passed
}
