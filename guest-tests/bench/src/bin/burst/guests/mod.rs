//! The same rule with two real guests, each with a disk of its own over the same path. The guests and what runs in them are
//! `guest-tests/burst/measure`'s; medians, table and picture are made here.

mod chart;
mod document;
mod plan;
mod reads;
mod results;
mod targets;

use crate::BurstError;
use crate::line::Line;
use crate::run::DOCUMENT;
pub(crate) use plan::Plan;
pub(crate) use reads::NotBursts;
use results::{Measured, Results};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use targets::targets;
use vublk_bench::measurement::measure;
use vublk_bench::publish::{Machine, Publication};
use vublk_bench::units::about;

/// Where it is published.
pub(crate) fn publication(line: &Line) -> Publication {
    Publication { docs: line.docs.clone(), document: DOCUMENT, section: document::SECTION }
}

/// Measures everything, then writes it: an interrupted run leaves no half.
pub(crate) fn run(line: &Line, machine: Machine, interrupted: &AtomicBool) -> Result<(), BurstError> {
    let plan = line.guests();
    eprintln!("two guests × {} schedulers × {} rounds, {}", plan.schedulers.len(), plan.rounds, about(plan.time()));
    let mut command = Command::new(&line.measure);
    command.args(plan.arguments());
    let measured: Measured = measure(command, interrupted)?;
    let mut results = Results::new(machine, plan, measured)?;
    results.targets = targets(&results);
    let section = document::section(&results);
    publication(line).write(&results, &chart::draw(&results)?, &section)?;
    println!("{section}");
    Ok(())
}
