//! `burst`: virtqueues that send bursts and others that keep a deep queue, on the daemon over real sockets, under every
//! scheduler. Rows: one flow with bursts; several, with and without a pause; the same over two I/O threads; two guests.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bench;
mod bursts;
mod cell;
mod flow;
mod guests;
mod load;
mod rows;
mod section;
mod targets;
mod timeline;

use bench::SocketBench;
use clap::{Parser, ValueEnum};
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{SERVICE, SLOTS};
use rows::{Table, WINDOWS, duration, plan, threads_plan};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::harness::{
    EXIT_STATUS, Failure, Machine, PlannedRow, Publication, Results, Writing, measure, run_program,
};
use vublk_bench::stack::{MpathStack, Programs, command_lines, directory};
use vublk_bench::stalls::{How, Watch};
use vublk_bench::units::{about, parse_seconds};

/// In the order of the tables.
const SCHEDULERS: [SchedulerKind; 3] = [SchedulerKind::Fifo, SchedulerKind::Published, SchedulerKind::BurstCredit];

/// How far the service varies either way. With an exact service all slots come to begin and end together, and a single request
/// then takes half a service more than its floor.
const JITTER: Duration = Duration::from_millis(1);
/// Makes pauses and offsets repeatable.
const SEED: u64 = 1;
/// Starting, and connecting.
const ONCE: Duration = Duration::from_secs(15);

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Bursts of 32 against K busy flows
    K,
    /// Bursts of N against 16 busy flows
    N,
    /// Attackers that send bursts without a pause, against 16 busy flows, and a victim
    A,
    /// m interactive flows at once against 16 busy ones
    M,
    /// One I/O thread compared with two, and a limit over both
    T,
    /// Two guests, one with bursts
    Guests,
}

/// Measures every scheduler of the daemon side by side, by sockets and by two guests. Some virtqueues send bursts while
/// others keep a deep queue. Rewrites the published results: DOCS/results/burst.json, burst-guests.json, their pictures
/// and the sections of DOCS/scheduler-results.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// mpathctl [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATHCTL")]
    mpathctl: Option<PathBuf>,

    /// What to measure
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',', default_value = "k,n,a,m,t,guests")]
    only: Vec<Part>,

    /// Schedulers to measure
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fifo,published,burst-credit")]
    schedulers: Vec<SchedulerKind>,

    /// Rounds; their median is published. Tables a, m, t have 3 at the most
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured, 4 seconds at least in tables a and m; the last burst that begins by then is waited for
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The program that measures with two guests
    #[arg(long, default_value = "guest-tests/burst/measure", value_name = "PATH")]
    measure: PathBuf,

    #[command(flatten)]
    writing: Writing,
}

const PUBLICATION: Publication = Publication {
    name: "burst",
    command: "make bench-burst",
    document: "scheduler-results.md",
    targets: targets::targets,
    section: section::section,
    chart: section::chart,
};

fn main() -> ExitCode {
    run_program("burst", burst)
}

fn burst(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    let guests = line.only.contains(&Part::Guests).then_some(guests::PUBLICATION);
    let sockets = line.only.iter().any(|part| *part != Part::Guests).then_some(PUBLICATION);
    let publications = || sockets.iter().chain(&guests);
    if line.writing.render {
        return publications().try_for_each(|publication| publication.render(&line.writing)).map(|()| 0);
    }
    publications().try_for_each(|publication| publication.check(&line.writing.docs))?;
    // Looked at once: the first publication changes the tree.
    let machine = Machine::look_and_warn(None);
    if sockets.is_some() {
        measure_sockets(line, machine.clone(), interrupted)?;
    }
    if guests.is_some() {
        guests::measure(line, machine, interrupted)?;
    }
    Ok(0)
}

impl CommandLine {
    /// Each once, in the order of the tables.
    fn schedulers(&self) -> Vec<SchedulerKind> {
        SCHEDULERS.into_iter().filter(|kind| self.schedulers.contains(kind)).collect()
    }

    fn tables(&self) -> Vec<Table> {
        let parts = [(Part::K, Table::K), (Part::N, Table::N), (Part::A, Table::A), (Part::M, Table::M)];
        parts.into_iter().filter(|(part, _)| self.only.contains(part)).map(|(_, table)| table).collect()
    }
}

/// Measures everything, then writes it. So an interrupted run writes nothing.
fn measure_sockets(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<(), Failure> {
    let (schedulers, rounds, seconds) = (line.schedulers(), line.rounds, line.seconds);
    // The window is the number of service slots, and counts in each I/O thread.
    let tables = plan(&line.tables(), &schedulers, rounds, seconds);
    let mut parts = vec![((1, SLOTS), tables)];
    if line.only.contains(&Part::T) {
        parts.extend(WINDOWS.map(|window| (window, threads_plan(window, &schedulers, rounds, seconds))));
    }
    parts.retain(|(_, rows)| !rows.is_empty());
    let (rows, time) =
        parts.iter().fold((0, ONCE), |(rows, time), (_, part)| (rows + part.len(), time + duration(part)));
    eprintln!("{rows} rows, {rounds} rounds, {}", about(time));
    let watch = Watch::start()?;
    if watch.how() == How::Ordinary {
        eprintln!("SCHED_FIFO is not permitted, so stalls of the machine that meet a busy processor are not seen");
    }
    let settings = [("rounds", rounds.into()), ("seconds", seconds.as_secs_f64().into())];
    let mut results = Results::new(machine, &settings);
    for ((io_threads, window), mut rows) in parts {
        let directory = directory("burst-")?;
        let queues = rows.iter().map(|row| row.spec.spec.queues()).max().unwrap_or(1);
        let (stack, control) = start(line, directory.path(), (window, io_threads), queues)?;
        results.commands.extend(command_lines(&stack.processes(), directory.path()));
        let mut bench = SocketBench::new(&stack, &control, &watch, SEED, interrupted);
        measure(&mut rows, &mut bench, &["p50_ms", "iops", "busy_iops"])?;
        rows.iter_mut().flat_map(|row| &mut row.row.cells).for_each(cell::add_all_rounds);
        results.rows.extend(rows.into_iter().map(|PlannedRow { row, .. }| row));
    }
    let watched = serde_json::to_value(watch.watched()?).map_err(|error| Failure::Failed(error.to_string()))?;
    results.settings.insert("watched".into(), watched);
    PUBLICATION.publish(&line.writing, &results, &results.samples())
}

/// A daemon over a path with this window in each of its I/O threads.
fn start(
    line: &CommandLine,
    directory: &std::path::Path,
    (window, io_threads): (usize, usize),
    queues: usize,
) -> Result<(MpathStack, Control), Failure> {
    let [window, io_threads, queues] = [window, io_threads, queues].map(|number| number.to_string());
    let settings = ["--policy", "numa", "--scheduler", "fifo", "--window-ios", &window];
    let settings = [&settings[..], &["--queues", &queues, "--io-threads", &io_threads]].concat();
    let stack = MpathStack::start(&line.programs, directory, 1, &settings)?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    let ready = control.wait_until_live(1).and_then(|()| set_service(&control));
    ready.map_err(|error| Failure::NotStarted(format!("{error}\nthe daemon's log:\n{}", stack.daemon.log_tail())))?;
    Ok((stack, control))
}

/// The target answers after the shortest service. The daemon adds what varies on the way there, on both sides of its mean.
fn set_service(control: &Control) -> Result<(), ControlError> {
    control.set_listener(1, &[format!("delay={}us", SERVICE.saturating_sub(JITTER).as_micros())])?;
    let jitter = format!("{}us", JITTER.as_micros());
    control.inject(&["--latency", &jitter, "--jitter", &jitter])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_measured_in_the_order_of_the_tables() {
        let parse = |words: &str| CommandLine::try_parse_from(std::iter::once("burst").chain(words.split_whitespace()));
        let line = parse("--only n,k,t --schedulers burst-credit,fifo").unwrap();
        assert_eq!(line.schedulers(), [SchedulerKind::Fifo, SchedulerKind::BurstCredit]);
        assert_eq!(line.tables(), [Table::K, Table::N]);
        let error = parse("--schedulers lifo").unwrap_err().to_string();
        assert!(error.contains("lifo"), "{error}");
    }
}
