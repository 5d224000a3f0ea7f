//! The whole run: a stack for each table, rounds, results.

use crate::PoliciesError;
use crate::contender::{Listed, contenders, names};
use crate::line::Line;
use crate::measure::{Bench, Bound};
use crate::plan::Plan;
use crate::results::Results;
use crate::tables::{RowSpec, Table};
use crate::targets::targets;
use crate::{chart, document};
use std::sync::atomic::AtomicBool;
use vublk_bench::control::Control;
use vublk_bench::options::Mode;
use vublk_bench::publish::{Machine, Publication};
use vublk_bench::sizes::Sizes;
use vublk_bench::stack::MpathStack;
use vublk_bench::units::about;

/// What the daemon starts with; every cell sets its own.
const FIRST_POLICY: &str = "numa";

/// In the documentation's folder.
const DOCUMENT: &str = "benchmarks.md";

/// Measures all tables, then writes them all: an interrupted run leaves no half.
pub(crate) fn run(line: &Line, interrupted: &AtomicBool) -> Result<(), PoliciesError> {
    let (plan, machine) = (line.plan(), Machine::look(None));
    machine.objection().iter().for_each(|objection| eprintln!("warning: {objection}"));
    let tables = line.tables();
    for &table in &tables {
        // Not after an hour.
        publication(line, table).check()?;
    }
    let mut done = Vec::new();
    for (index, &table) in tables.iter().enumerate() {
        let to_come = &tables[index..];
        done.push((table, measure_table(line, plan, to_come, &machine, interrupted)?));
    }
    for (table, results) in &done {
        publish(line, *table, results)?;
    }
    Ok(())
}

/// The first of `tables`; the others are only for the announcement.
fn measure_table(
    line: &Line,
    plan: Plan,
    tables: &[Table],
    machine: &Machine,
    interrupted: &AtomicBool,
) -> Result<Results, PoliciesError> {
    let table = tables[0];
    let specs = table.rows(plan.full);
    let directory = tempfile::Builder::new().prefix("policies-").tempdir().map_err(PoliciesError::Directory)?;
    let paths = specs[0].scene.len();
    let stack = MpathStack::start(&line.programs, directory.path(), paths as u16, &["--policy", FIRST_POLICY])?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    let mut bench = Bench { stack: &stack, control: &control, plan, interrupted, scene: None };
    bench.fill()?;
    control.wait_until_live(paths)?;
    let listed = Listed::all(&control)?;
    let chosen = |table| contenders(&listed, &line.policies, table, plan.warmup());
    let contenders = match chosen(table) {
        Ok(contenders) => contenders,
        Err(name) => return Err(PoliciesError::NoSuchPolicy { name, offered: names(listed) }),
    };
    let left =
        tables.iter().map(|table| plan.table_time(*table, chosen(*table).map_or(0, |chosen| chosen.len()))).sum();
    eprintln!(
        "table {}: {} ({} rows × {} policies × {} rounds); {} to the end of the run",
        table.letter(),
        table.title(),
        specs.len(),
        contenders.len(),
        plan.rounds,
        about(left)
    );
    let mut results = Results::new(table, machine, &plan, stack.command_lines(directory.path()), &contenders);
    add_rows(&mut results, &mut bench, &specs, plan)?;
    for round in 0..usize::from(plan.rounds) {
        for (row, spec) in specs.iter().enumerate() {
            // Every policy has every place in the order.
            for policy in contenders.iter().cycle().skip(round % contenders.len()).take(contenders.len()) {
                let sample = bench.cell(spec, &results.rows[row].bound, policy)?;
                let percent = sample.iops / results.rows[row].bound.iops * 100.0;
                eprintln!(
                    "{} {}/{}: {:<40} {:<21} {:>8.0} IOPS {:>7.1} MiB/s {percent:>4.0} % of the bound, {:.1} µs daemon CPU per I/O",
                    table.letter(),
                    round + 1,
                    plan.rounds,
                    spec.name,
                    policy.name,
                    sample.iops,
                    sample.mib_per_second,
                    sample.cpu_us_per_io.get("daemon").copied().unwrap_or_default()
                );
                results.rows[row].add(policy, sample);
            }
        }
    }
    results.targets = targets(table, &results);
    Ok(results)
}

/// Each row with its bound. What a request takes without delay is measured once for each kind of request.
fn add_rows(results: &mut Results, bench: &mut Bench<'_>, specs: &[RowSpec], plan: Plan) -> Result<(), PoliciesError> {
    let mut floors: Vec<(Mode, Sizes, f64)> = Vec::new();
    for spec in specs {
        let known = floors.iter().find(|(mode, sizes, _)| *mode == spec.mode && *sizes == spec.sizes);
        let floor = if let Some((_, _, floor)) = known {
            *floor
        } else {
            let floor = bench.floor(spec)?;
            floors.push((spec.mode, spec.sizes.clone(), floor));
            floor
        };
        results.add_row(spec, Bound::of(spec, floor), &plan);
    }
    Ok(())
}

fn publication(line: &Line, table: Table) -> Publication {
    Publication { docs: line.docs.clone(), document: DOCUMENT, section: table.section() }
}

fn publish(line: &Line, table: Table, results: &Results) -> Result<(), PoliciesError> {
    let section = document::section(results);
    publication(line, table).write(results, &chart::draw(results)?, &section)?;
    println!("## {}\n\n{section}", results.title);
    Ok(())
}
