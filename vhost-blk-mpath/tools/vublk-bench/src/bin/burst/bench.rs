//! The measurement by sockets: one cell after the other on a stack.

use crate::CommandLine;
use crate::cell::{add_all_rounds, is_reliable};
use crate::load::{Load, LoadError};
use crate::rows::{LIMIT_IOPS, STACKS, TimedRow, plan};
use crate::stalls::Watch;
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::SERVICE;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::control::ControlError;
use vublk_bench::harness::{Bench, Failure, Machine, PlannedRow, Results, Sample, measure};
use vublk_bench::stack::MpathStack;

/// How far the service varies either way. With an exact service all slots come to begin and end together, and a single request
/// then takes half a service more than its floor.
const JITTER: Duration = Duration::from_millis(1);
/// Makes pauses and offsets repeatable.
const SEED: u64 = 1;
/// The burst of the limited disk: how much of its limit the disk may save up.
const LIMIT_BURST: &str = "100ms";

/// Measures the rows of all tables, on a stack for each number of I/O threads and slots.
pub(crate) fn measure_sockets(
    line: &CommandLine,
    machine: Machine,
    interrupted: &AtomicBool,
) -> Result<Results, Failure> {
    let plan = |stack| plan(stack, &line.only, &line.schedulers(), line.writing.rounds(), line.seconds);
    let plans = STACKS.map(|stack| (stack, plan(stack)));
    eprintln!("{} rows, {} rounds", plans.iter().map(|(_, rows)| rows.len()).sum::<usize>(), line.writing.rounds());
    let watch = Watch::start()
        .map_err(|error| Failure::NotStarted(format!("cannot watch for stalls of the machine: {error}")))?;
    let settings = [("rounds", line.writing.rounds().into()), ("seconds", line.seconds.as_secs_f64().into())];
    let mut results = Results::new(machine, &settings);
    for ((io_threads, window), mut rows) in plans.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        let queues = rows.iter().map(|row| row.spec.spec.queues()).max().unwrap_or(1);
        // The window is the number of service slots, and counts in each I/O thread.
        let [window, io_threads, queues] = [window, io_threads, queues].map(|number| number.to_string());
        let settings = ["--policy", "numa", "--scheduler", "fifo", "--window-ios", &window];
        let settings = [&settings[..], &["--queues", &queues, "--io-threads", &io_threads]].concat();
        let stack = MpathStack::start(&line.programs, 1, &settings)?;
        set_service(&stack)?;
        results.commands.extend(stack.stack.command_lines());
        let mut bench = SocketBench { stack: &stack, watch: &watch, interrupted, load: None };
        measure(&mut rows, &mut bench, &["p50_ms", "iops", "busy_iops"])?;
        rows.iter_mut().flat_map(|row| &mut row.row.cells).for_each(add_all_rounds);
        results.rows.extend(rows.into_iter().map(|PlannedRow { row, .. }| row));
    }
    results.settings.insert("watched".into(), watch.sums());
    Ok(results)
}

/// Sets the service time. The target delays each answer by the shortest service. An injection of the daemon adds `JITTER` on
/// average, and varies by `JITTER` either way.
fn set_service(stack: &MpathStack) -> Result<(), ControlError> {
    stack.control.set_listener(1, &[format!("delay={}us", SERVICE.saturating_sub(JITTER.into()).as_micros())])?;
    let jitter = format!("{}us", JITTER.as_micros());
    stack.control.daemon(&["inject", "set", "all", "--latency", &jitter, "--jitter", &jitter]).map(|_| ())
}

struct SocketBench<'a> {
    stack: &'a MpathStack,
    watch: &'a Watch,
    interrupted: &'a AtomicBool,
    load: Option<Load<'a>>,
}

impl SocketBench<'_> {
    fn failed(&self, row: &TimedRow, error: LoadError) -> Failure {
        match error {
            LoadError::Interrupted => Failure::Interrupted,
            error => Failure::Failed(format!("{}: {error}\n{}", row.spec.name(), self.stack.stack.logs())),
        }
    }

    fn measure(&mut self, row: &TimedRow, scheduler: SchedulerKind) -> Result<Sample, Failure> {
        // A scheduler that is in force already would keep its knowledge.
        self.stack.control.set("scheduler", SchedulerKind::Fifo.name(), &[])?;
        self.stack.control.set("scheduler", scheduler.name(), &[])?;
        let load = self.load.as_mut().expect("a round of a row has begun");
        let counted = load.measure(row.spec.settle_time(scheduler), row.time);
        let counted = counted.map_err(|error| self.failed(row, error))?;
        let (from, until) = counted.span();
        Ok(counted.sample(&self.watch.between(from, until)))
    }
}

impl Bench<TimedRow, SchedulerKind> for SocketBench<'_> {
    /// Connects once for all schedulers of a round. Each round of a row has its own pauses and offsets.
    fn begin(&mut self, row: &TimedRow, round: u16, place: usize) -> Result<(), Failure> {
        if row.spec.is_limited {
            let iops = LIMIT_IOPS.to_string();
            self.stack.control.daemon(&["limit", "set", "--iops", &iops, "--burst", LIMIT_BURST])?;
        }
        let stream = (u64::from(round) << 16) | place as u64;
        let load = Load::connect(&self.stack.stack.socket, row.spec, (SEED, stream), self.interrupted);
        self.load = Some(load.map_err(|error| self.failed(row, error))?);
        Ok(())
    }

    fn cell(
        &mut self,
        row: &PlannedRow<TimedRow, SchedulerKind>,
        scheduler: &SchedulerKind,
    ) -> Result<Sample, Failure> {
        let sample = self.measure(&row.spec, *scheduler)?;
        if is_reliable(&sample) {
            return Ok(sample);
        }
        let mut sample = self.measure(&row.spec, *scheduler)?;
        sample.figures.insert("repeated".into(), 1.0);
        Ok(sample)
    }

    fn end(&mut self, row: &TimedRow) -> Result<(), Failure> {
        if let Some(load) = self.load.take() {
            load.finish().map_err(|error| self.failed(row, error))?;
        }
        if row.spec.is_limited {
            self.stack.control.daemon(&["limit", "clear"])?;
        }
        Ok(())
    }
}
