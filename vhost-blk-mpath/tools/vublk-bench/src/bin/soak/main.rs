//! `soak`: verified I/O on a two-path disk while policies and injections of every kind change all the time.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod control;
mod memory;

use clap::Parser;
use control::Controller;
use memory::MemoryWatch;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use vublk_bench::harness::{Failure, run_program};
use vublk_bench::options::{Mode, Options};
use vublk_bench::report::Report;
use vublk_bench::session;
use vublk_bench::stack::{MpathStack, Programs};
use vublk_bench::units::parse_duration;

/// The time between two policy switches.
const SWITCH_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest run. It has one memory sample a second, and fewer samples show nothing.
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

    /// How long to switch and verify, at least 10 s
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = run_time)]
    time: Duration,

    /// The policies to go round
    #[arg(
        long,
        default_value = "numa,round-robin,queue-depth,adaptive,pid,latency,latency-rr,service-time,bdp",
        value_name = "NAMES",
        value_delimiter = ','
    )]
    policies: Vec<String>,
}

fn run_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        time if time < SHORTEST_RUN => Err(format!("a run shorter than {SHORTEST_RUN:?} cannot judge memory")),
        time => Ok(time),
    }
}

fn main() -> ExitCode {
    run_program("soak", soak)
}

fn soak(line: &CommandLine, interrupted: &AtomicBool) -> Result<(), Failure> {
    let first_policy = line.policies.first().map_or("round-robin", String::as_str);
    let MpathStack { mut stack, control, paths } =
        MpathStack::start(&line.programs, 2, &["--policy", first_policy, "--poll-us", "auto"])?;
    let options = Options {
        bs: 64 << 10,
        iodepth: 16,
        queues: 4,
        time: line.time,
        size: Some(256 << 20),
        ..Options::with_defaults(&stack.socket, Mode::Verify)
    };
    println!("soak: {:?} of verified I/O, paths {}", line.time, paths.join(" "));

    let mut controller = Controller::new(&control, &paths, &line.policies);
    let mut memory = MemoryWatch::new(stack.daemon.pid());
    let report = thread::scope(|scope| {
        let run = scope.spawn(|| session::run(&options, interrupted, |progress| eprintln!("{progress}")));
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
    let report = report.map_err(|error| Failure::NotStarted(format!("{error}\n{}", stack.logs())))?;
    let died = stack.daemon.exited().map(|status| format!("the daemon ended: {status}"));
    let passed = summarise(&report, &controller, &memory, died);
    if report.interrupted {
        return Err(Failure::Interrupted);
    }
    if passed { Ok(()) } else { Err(Failure::Failed(format!("failed\n{}", stack.logs()))) }
}

/// Prints the result, a line for each demand. True if all demands are met.
fn summarise(report: &Report, controller: &Controller<'_>, memory: &MemoryWatch, died: Option<String>) -> bool {
    print!("\n{}", report.table());
    let mut passed = true;
    let mut demand = |met: bool, text: String| {
        println!("{} {text}", if met { "PASS" } else { "FAIL" });
        passed &= met;
    };
    let verify = report.verify.as_ref();
    let miscompares = verify.map_or(0, |verify| verify.counts.miscompares);
    let read_back = verify.is_some_and(|verify| verify.read_back);
    demand(died.is_none(), died.unwrap_or("the daemon ran to the end".to_owned()));
    demand(miscompares == 0 && read_back, format!("{miscompares} miscompares, everything read back: {read_back}"));
    let (lost, broken) = (report.failures.lost.len(), report.failures.fatal.len());
    demand(lost == 0 && broken == 0, format!("{lost} requests lost, {broken} queues ended early"));
    demand(report.total.errors == 0, format!("{} requests failed", report.total.errors));
    let Controller { switches, injections_set, injections_cleared, failures, .. } = controller;
    demand(
        failures.is_empty() && *switches > 0,
        format!(
            "{switches} policy switches, {injections_set} injections set, {injections_cleared} cleared, {} refused",
            failures.len()
        ),
    );
    for failure in failures.iter().take(5) {
        println!("     {failure}");
    }
    let (is_flat, words) = memory.verdict();
    demand(is_flat, words);
    passed
}
