//! One cell after the other on a stack.

use crate::cell::is_reliable;
use crate::load::{Load, LoadError};
use crate::rows::{LIMIT_IOPS, TimedRow};
use mpath_core::SchedulerKind;
use std::sync::atomic::AtomicBool;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::harness::{Bench, Failure, PlannedRow, Sample};
use vublk_bench::stack::MpathStack;
use vublk_bench::stalls::Watch;

/// How much a disk may save up of its limit.
pub(crate) const LIMIT_BURST: &str = "100ms";

pub(crate) struct SocketBench<'a> {
    stack: &'a MpathStack,
    control: &'a Control,
    watch: &'a Watch,
    seed: u64,
    interrupted: &'a AtomicBool,
    load: Option<Load<'a>>,
}

impl<'a> SocketBench<'a> {
    pub(crate) fn new(
        stack: &'a MpathStack,
        control: &'a Control,
        watch: &'a Watch,
        seed: u64,
        interrupted: &'a AtomicBool,
    ) -> Self {
        Self { stack, control, watch, seed, interrupted, load: None }
    }

    fn failed(&self, row: &TimedRow, error: LoadError) -> Failure {
        match error {
            LoadError::Interrupted => Failure::Interrupted,
            error => {
                let (name, log) = (row.spec.name(), self.stack.daemon.log_tail());
                Failure::Failed(format!("{name}: {error}\nthe daemon's log:\n{log}"))
            }
        }
    }

    fn measure(&mut self, row: &TimedRow, scheduler: SchedulerKind) -> Result<Sample, Failure> {
        self.switch(scheduler)?;
        let load = self.load.as_mut().expect("a round of a row has begun");
        let counted = load.measure(row.spec.settle_time(scheduler), row.time);
        let counted = counted.map_err(|error| self.failed(row, error))?;
        let (from, until) = counted.span();
        Ok(counted.sample(&self.watch.between(from, until)))
    }

    /// Puts a scheduler into force without knowledge. A scheduler that is in force already would keep its knowledge.
    fn switch(&self, scheduler: SchedulerKind) -> Result<(), ControlError> {
        self.control.set("scheduler", SchedulerKind::Fifo.name(), &[])?;
        self.control.set("scheduler", scheduler.name(), &[])
    }
}

impl Bench<TimedRow, SchedulerKind> for SocketBench<'_> {
    /// Connects once for all schedulers of a round. Each round of a row has its own pauses and offsets.
    fn begin(&mut self, row: &TimedRow, round: u16, place: usize) -> Result<(), Failure> {
        if row.spec.is_limited {
            self.control.limit(&["set", "--iops", &LIMIT_IOPS.to_string(), "--burst", LIMIT_BURST])?;
        }
        let stream = (u64::from(round) << 16) | place as u64;
        let load = Load::connect(&self.stack.socket, row.spec, (self.seed, stream), self.interrupted);
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
            self.control.limit(&["clear"])?;
        }
        Ok(())
    }
}
