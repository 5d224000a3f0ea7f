//! The whole run: one stack, rounds, results.

use crate::BurstError;
use crate::bench::Bench;
use crate::line::Line;
use crate::plan::Plan;
use crate::results::Results;
use crate::targets::targets;
use crate::{chart, document, threads};
use burst_sim::scenario::{SERVICE, SLOTS};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::publish::{Machine, Publication};
use vublk_bench::stack::MpathStack;
use vublk_bench::stalls::{How, Watch};
use vublk_bench::units::about;

/// In the documentation's folder.
pub(crate) const DOCUMENT: &str = "scheduler-results.md";

/// Where it is published.
pub(crate) fn publication(line: &Line) -> Publication {
    Publication { docs: line.docs.clone(), document: DOCUMENT, section: document::SECTION }
}

/// Measures everything, then writes it: an interrupted run leaves no half.
pub(crate) fn run(line: &Line, machine: Machine, interrupted: &AtomicBool) -> Result<(), BurstError> {
    let plan = line.plan();
    let mut results = Results::new(machine, &plan);
    let cells: usize = plan.rows().iter().map(|row| row.schedulers.len()).sum();
    let threads = if plan.threads { ", I/O threads" } else { "" };
    eprintln!("{} rows of {cells} cells{threads}, {} rounds, {}", plan.rows().len(), plan.rounds, about(plan.time()));
    let watch = Watch::start()?;
    if watch.how() == How::Ordinary {
        eprintln!(
            "SCHED_FIFO is not permitted: of the stalls of the machine those are not seen that meet a busy processor"
        );
    }
    if !plan.tables.is_empty() {
        tables(line, &plan, &watch, &mut results, interrupted)?;
    }
    if plan.threads {
        results.threads = threads::run(line, &plan, &watch, interrupted)?;
    }
    results.watched = Some(watch.watched()?);
    results.targets = targets(&results);
    let section = document::section(&results);
    publication(line).write(&results, &chart::draw(&results)?, &section)?;
    println!("{section}");
    Ok(())
}

fn tables(
    line: &Line,
    plan: &Plan,
    watch: &Watch,
    results: &mut Results,
    interrupted: &AtomicBool,
) -> Result<(), BurstError> {
    let directory = tempfile::Builder::new().prefix("burst-").tempdir().map_err(BurstError::Directory)?;
    let (alone, rows) = (plan.alone(), plan.rows());
    let queues = rows.iter().map(|row| row.spec.queues()).max().unwrap_or(1);
    // The window is the service slots, and counts in each I/O thread: so one of them.
    let (stack, control) = start(line, directory.path(), plan.jitter, (SLOTS, 1), queues)?;
    results.commands = stack.command_lines(directory.path());
    let bench = Bench { stack: &stack, control: &control, watch, seed: plan.seed, interrupted };
    for round in 0..plan.rounds {
        for (stream, row) in alone.iter().chain(&rows).enumerate().filter(|(_, row)| round < row.rounds) {
            bench.row(round, stream, row, &mut results.cells)?;
        }
    }
    results.cells.add_virtual_time(plan.seed);
    Ok(())
}

/// A daemon over a path with a window of so many requests in each of so many I/O threads, and how to tell it.
pub(crate) fn start(
    line: &Line,
    directory: &Path,
    jitter: Duration,
    (window, io_threads): (usize, usize),
    queues: usize,
) -> Result<(MpathStack, Control), BurstError> {
    let [window, io_threads, queues] = [window, io_threads, queues].map(|number| number.to_string());
    let settings = ["--policy", "numa", "--scheduler", "fifo", "--window-ios", &window];
    let settings = [&settings[..], &["--queues", &queues, "--io-threads", &io_threads]].concat();
    let stack = MpathStack::start(&line.programs, directory, 1, &settings)?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    control.wait_until_live(1).map_err(|error| BurstError::NotReady { error, log: stack.daemon.log_tail() })?;
    set_service(&control, jitter)?;
    Ok((stack, control))
}

/// The target answers after the shortest service; what varies is added by the daemon on the way there, on both sides of
/// its mean.
fn set_service(control: &Control, jitter: Duration) -> Result<(), ControlError> {
    control.set_listener(1, &[format!("delay={}us", SERVICE.saturating_sub(jitter).as_micros())])?;
    if jitter.is_zero() {
        return Ok(());
    }
    let jitter = format!("{}us", jitter.as_micros());
    control.inject(&["--latency", &jitter, "--jitter", &jitter])
}
