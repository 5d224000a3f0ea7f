//! The whole run: one stack, rounds, results.

use crate::BurstError;
use crate::counted::Sample;
use crate::line::Line;
use crate::load::{Load, LoadError};
use crate::plan::{Plan, RowSpec};
use crate::results::Results;
use crate::targets::targets;
use crate::{chart, document};
use burst_sim::scenario::{SERVICE, SLOTS};
use burst_sim::targets::BUSY;
use mpath_core::{SchedulerKind, SchedulerSpec};
use std::sync::atomic::AtomicBool;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::publish::{Machine, Publication};
use vublk_bench::stack::MpathStack;
use vublk_bench::units::about;

/// In the documentation's folder.
const DOCUMENT: &str = "scheduler.md";

/// Measures everything, then writes it: an interrupted run leaves no half.
pub(crate) fn run(line: &Line, interrupted: &AtomicBool) -> Result<(), BurstError> {
    let publication = Publication { docs: line.docs.clone(), document: DOCUMENT, section: document::SECTION };
    // Not after a quarter of an hour.
    publication.check()?;
    let (plan, machine) = (line.plan(), Machine::look(None));
    let directory = tempfile::Builder::new().prefix("burst-").tempdir().map_err(BurstError::Directory)?;
    let (slots, queues) = (SLOTS.to_string(), (BUSY.into_iter().max().unwrap_or(0) + 1).to_string());
    // The window is the service slots, and counts in each I/O thread: so one of them.
    let settings = ["--policy", "numa", "--scheduler", "fifo", "--window-ios", &slots, "--queues", &queues];
    let settings = [&settings[..], &["--io-threads", "1"]].concat();
    let stack = MpathStack::start(&line.programs, directory.path(), 1, &settings)?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    let mut results = Results::new(machine, &plan, stack.command_lines(directory.path()));
    control.wait_until_live(1)?;
    control.set_listener(1, &[format!("delay={}us", SERVICE.as_micros())])?;
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
    publication.write(&results, &chart::draw(&results)?, &section)?;
    println!("{section}");
    Ok(())
}

struct Bench<'a> {
    stack: &'a MpathStack,
    control: &'a Control,
    plan: &'a Plan,
    interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    fn round(&self, round: u16, results: &mut Results) -> Result<(), BurstError> {
        let plan = self.plan;
        let mut streams = (u64::from(round) << 8)..;
        let mut connect = |row: RowSpec| self.connect(row, streams.next().unwrap_or_default());
        self.switch(SchedulerKind::Fifo.into())?;
        for floor in &mut results.floors {
            let row = RowSpec { busy: 0, count: floor.count };
            let mut load = connect(row)?;
            let sample = self.measure(&mut load, row)?;
            self.tell(round, row, "alone", &sample);
            floor.cell.add(sample);
            load.finish().map_err(|error| self.failed(row, error))?;
        }
        for row in &mut results.rows {
            let mut load = connect(row.spec)?;
            let schedulers = plan.schedulers.iter().zip(&mut row.cells);
            let mut schedulers: Vec<_> = schedulers.collect();
            // Every scheduler has every place in the order.
            let first = usize::from(round) % schedulers.len().max(1);
            schedulers.rotate_left(first);
            for (scheduler, cell) in schedulers {
                self.switch(*scheduler)?;
                let sample = self.measure(&mut load, row.spec)?;
                self.tell(round, row.spec, &cell.scheduler, &sample);
                cell.add(sample);
            }
            load.finish().map_err(|error| self.failed(row.spec, error))?;
        }
        Ok(())
    }

    fn connect(&self, row: RowSpec, stream: u64) -> Result<Load<'_>, BurstError> {
        Load::connect(&self.stack.socket, row, (self.plan.seed, stream), self.interrupted)
            .map_err(|error| self.failed(row, error))
    }

    /// Puts a scheduler into force that knows nothing: one that is in force already would keep what it knows.
    fn switch(&self, scheduler: SchedulerSpec) -> Result<(), ControlError> {
        self.control.set("scheduler", SchedulerKind::Fifo.name(), &[])?;
        let params: Vec<String> =
            scheduler.changed_params().map(|(param, text)| format!("{}={text}", param.name())).collect();
        self.control.set("scheduler", scheduler.kind().name(), &params)
    }

    fn measure(&self, load: &mut Load<'_>, row: RowSpec) -> Result<Sample, BurstError> {
        load.measure(self.plan.warmup(), self.plan.seconds).map_err(|error| self.failed(row, error))
    }

    fn failed(&self, row: RowSpec, error: LoadError) -> BurstError {
        match error {
            LoadError::Interrupted => BurstError::Interrupted,
            error => BurstError::Load { what: row.name(), error, log: self.stack.daemon.log_tail() },
        }
    }

    fn tell(&self, round: u16, row: RowSpec, scheduler: &str, sample: &Sample) {
        eprintln!(
            "{}/{}: {:<12} {scheduler:<22} p50 {:>7.1} ms, {:>3} bursts, {:>5.0} IOPS",
            round + 1,
            self.plan.rounds,
            row.name(),
            sample.p50_ms(),
            sample.bursts_ms.len(),
            sample.iops
        );
    }
}
