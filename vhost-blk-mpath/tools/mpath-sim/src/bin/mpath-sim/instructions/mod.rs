//! The instructions in user space that a request takes, stage by stage, compared with those of the baseline.
//!
//! valgrind counts them, so the same build has the same numbers on every machine. The program runs itself under it, once for each case.
//! The work of kernel, guest and target is not counted. docs/design-notes/benchmarks.md says what the numbers mean.

mod baseline;
mod cases;
mod codec;
mod core;
mod guest;
mod io_thread;
mod meter;
mod queue_pair;

use std::process::ExitCode;
use std::thread;

use mpath_core::SchedulerKind;

use self::baseline::Baseline;
use self::meter::{Case, Meter};

/// Numbers of flows in the table of schedulers.
const FLOWS: [u16; 4] = [8, 64, 512, 16_384];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the counts into the baseline, rather than compare them with it
    #[arg(long, conflicts_with = "flows")]
    write: bool,
    /// Only the schedulers, with up to 16384 flows, without a comparison
    #[arg(long)]
    flows: bool,
    /// Only the work of this case, uncounted
    #[arg(long, hide = true)]
    case: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.case {
        Some(name) => work(name),
        None if args.flows => print_flows(),
        None => compare(args.write),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mpath-sim instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The work of a case, first to warm up, and then for valgrind.
fn work(name: &str) -> Result<(), String> {
    let mut all = cases::all().into_iter().chain(flows());
    let case = all.find(|case| case.name == name).ok_or_else(|| format!("there is no case '{name}'"))?;
    let mut work = (case.set_up)();
    work(Meter::On, case.times);
    meter::warmed_up_for_valgrind();
    work(Meter::On, case.times);
    Ok(())
}

fn flows() -> impl Iterator<Item = Case> {
    FLOWS.into_iter().flat_map(|flows| SchedulerKind::ALL.map(|kind| cases::scheduler(kind, flows)))
}

fn print_flows() -> Result<(), String> {
    let counts = count(&flows().collect::<Vec<_>>())?;
    println!("| flows | {} |\n|--:|--:|--:|--:|", SchedulerKind::ALL.map(SchedulerKind::name).join(" | "));
    for (flows, counts) in FLOWS.iter().zip(counts.chunks(SchedulerKind::ALL.len())) {
        println!("| {flows} | {} |", counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

fn compare(write: bool) -> Result<(), String> {
    let before = if write { Baseline::default() } else { Baseline::read()? };
    let cases = cases::all();
    let counts = cases.iter().map(|case| case.name.clone()).zip(count(&cases)?).collect::<Vec<_>>();
    if write {
        return Baseline::of(counts).write();
    }
    println!("| case | instructions | baseline | change |\n|---|--:|--:|--:|");
    for (name, count) in &counts {
        println!("{}", before.row(name, *count));
    }
    if let Some(skipped) = before.other_compiler() {
        println!("{skipped}");
        return Ok(());
    }
    for advice in counts.iter().filter_map(|(name, count)| before.advice(name, *count)) {
        println!("{advice}");
    }
    let mut problems: Vec<String> = counts.iter().filter_map(|(name, count)| before.problem(name, *count)).collect();
    problems.extend(before.not_counted(&counts));
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\nmpath-sim instructions: ")) }
}

/// The instructions of each case for one request. Two cases run at a time.
fn count(cases: &[Case]) -> Result<Vec<u64>, String> {
    let each = |cases: &[Case]| cases.iter().map(meter::instructions).collect::<Result<Vec<_>, _>>();
    let (first, second) = cases.split_at(cases.len() / 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| each(first));
        let second = each(second)?;
        let mut counts = first.join().expect("a count panics nowhere")?;
        counts.extend(second);
        Ok(counts)
    })
}
