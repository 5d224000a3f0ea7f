//! The whole run: one stack, rounds, results.

use crate::BurstError;
use crate::counted::Sample;
use crate::line::Line;
use crate::load::{Load, LoadError};
use crate::plan::{Group, Plan, RowSpec, settle};
use crate::results::Results;
use crate::targets::targets;
use crate::{chart, document};
use burst_sim::scenario::{SERVICE, SLOTS};
use burst_sim::targets::BUSY;
use mpath_core::SchedulerKind;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::publish::{Machine, Publication};
use vublk_bench::stack::MpathStack;
use vublk_bench::units::about;

/// In the documentation's folder.
pub(crate) const DOCUMENT: &str = "scheduler.md";

/// Where it is published.
pub(crate) fn publication(line: &Line) -> Publication {
    Publication { docs: line.docs.clone(), document: DOCUMENT, section: document::SECTION }
}

/// Measures everything, then writes it: an interrupted run leaves no half.
pub(crate) fn run(line: &Line, machine: Machine, interrupted: &AtomicBool) -> Result<(), BurstError> {
    let plan = line.plan();
    let directory = tempfile::Builder::new().prefix("burst-").tempdir().map_err(BurstError::Directory)?;
    let (slots, queues) = (SLOTS.to_string(), (BUSY.into_iter().max().unwrap_or(0) + 1).to_string());
    // The window is the service slots, and counts in each I/O thread: so one of them.
    let settings = ["--policy", "numa", "--scheduler", "fifo", "--window-ios", &slots, "--queues", &queues];
    let settings = [&settings[..], &["--io-threads", "1"]].concat();
    let stack = MpathStack::start(&line.programs, directory.path(), 1, &settings)?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    let mut results = Results::new(machine, &plan, stack.command_lines(directory.path()));
    control.wait_until_live(1).map_err(|error| BurstError::NotReady { error, log: stack.daemon.log_tail() })?;
    set_service(&control, plan.jitter)?;
    eprintln!(
        "{} rows × {} schedulers × {} rounds, {}",
        results.rows.len(),
        plan.schedulers.len(),
        plan.rounds,
        about(plan.time())
    );
    let bench = Bench { stack: &stack, control: &control, plan: &plan, interrupted };
    for round in 0..plan.rounds {
        bench.round(round, &mut results)?;
    }
    results.add_virtual_time(&plan);
    results.targets = targets(&results);
    let section = document::section(&results);
    publication(line).write(&results, &chart::draw(&results)?, &section)?;
    println!("{section}");
    Ok(())
}

/// The target answers after the shortest service; what varies is added by the daemon on the way there, on both sides of its mean.
fn set_service(control: &Control, jitter: Duration) -> Result<(), ControlError> {
    control.set_listener(1, &[format!("delay={}us", SERVICE.saturating_sub(jitter).as_micros())])?;
    if jitter.is_zero() {
        return Ok(());
    }
    let jitter = format!("{}us", jitter.as_micros());
    control.inject(&["--latency", &jitter, "--jitter", &jitter])
}

struct Bench<'a> {
    stack: &'a MpathStack,
    control: &'a Control,
    plan: &'a Plan,
    interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    fn round(&self, round: u16, results: &mut Results) -> Result<(), BurstError> {
        self.group(round, &self.plan.alone(), &[SchedulerKind::Fifo], results)?;
        for group in self.plan.groups() {
            self.group(round, &group, &self.plan.schedulers, results)?;
        }
        Ok(())
    }

    fn group(
        &self,
        round: u16,
        group: &Group,
        schedulers: &[SchedulerKind],
        results: &mut Results,
    ) -> Result<(), BurstError> {
        let failed = |error: LoadError| match error {
            LoadError::Interrupted => BurstError::Interrupted,
            error => BurstError::Load { busy: group.busy, error, log: self.stack.daemon.log_tail() },
        };
        let stream = (u64::from(round) << 16) | group.busy as u64;
        let socket = &self.stack.socket;
        let mut load = Load::connect(socket, group, (self.plan.seed, stream), self.interrupted).map_err(failed)?;
        for &count in &group.counts {
            let row = RowSpec { busy: group.busy, count };
            // Every scheduler has every place in the order.
            for &scheduler in schedulers.iter().cycle().skip(usize::from(round)).take(schedulers.len()) {
                self.switch(scheduler)?;
                let warmup = settle(scheduler, group.busy);
                let sample = load.measure(count, warmup, self.plan.seconds).map_err(failed)?;
                self.tell(round, row, scheduler, &sample);
                results.add(row, scheduler.name(), sample);
            }
        }
        load.finish().map_err(failed)
    }

    /// Puts a scheduler into force that knows nothing: one that is in force already would keep what it knows.
    fn switch(&self, scheduler: SchedulerKind) -> Result<(), ControlError> {
        self.control.set("scheduler", SchedulerKind::Fifo.name(), &[])?;
        self.control.set("scheduler", scheduler.name(), &[])
    }

    fn tell(&self, round: u16, row: RowSpec, scheduler: SchedulerKind, sample: &Sample) {
        eprintln!(
            "{}/{}: {:<12} {scheduler:<17} p50 {:>7.1} ms, {:>3} bursts, {:>5.0} IOPS",
            round + 1,
            self.plan.rounds,
            row.name(),
            sample.p50_ms(),
            sample.bursts_ms.len(),
            sample.iops
        );
    }
}
