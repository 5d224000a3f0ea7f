//! One row after the other on a stack that is there.

use crate::BurstError;
use crate::cells::Cells;
use crate::counted::Sample;
use crate::load::{Load, LoadError};
use crate::plan::{Row, settle};
use crate::row::RowSpec;
use mpath_core::SchedulerKind;
use std::sync::atomic::AtomicBool;
use vublk_bench::control::{Control, ControlError};
use vublk_bench::stack::MpathStack;
use vublk_bench::stalls::Watch;

/// What measures.
pub(crate) struct Bench<'a> {
    pub(crate) stack: &'a MpathStack,
    pub(crate) control: &'a Control,
    pub(crate) watch: &'a Watch,
    pub(crate) seed: u64,
    pub(crate) interrupted: &'a AtomicBool,
}

impl Bench<'_> {
    /// A round of a row under all of its schedulers. Rows of one round have different `stream`s.
    pub(crate) fn row(&self, round: u16, stream: usize, row: &Row, cells: &mut Cells) -> Result<(), BurstError> {
        let failed = |error: LoadError| match error {
            LoadError::Interrupted => BurstError::Interrupted,
            error => BurstError::Load { row: row.spec.name(), error, log: self.stack.daemon.log_tail() },
        };
        let stream = (u64::from(round) << 16) | stream as u64;
        let mut load =
            Load::connect(&self.stack.socket, row.spec, (self.seed, stream), self.interrupted).map_err(failed)?;
        // Every scheduler has every place in the order.
        for &scheduler in row.schedulers.iter().cycle().skip(usize::from(round)).take(row.schedulers.len()) {
            let mut cell = || -> Result<Sample, BurstError> {
                self.switch(scheduler)?;
                let counted = load.measure(settle(scheduler, row.spec), row.time).map_err(failed)?;
                let (from, until) = counted.span();
                let sample = counted.sample(&self.watch.between(from, until));
                tell((round, row.rounds), row.spec, scheduler, &sample);
                Ok(sample)
            };
            let mut sample = cell()?;
            if !sample.is_reliable() {
                sample = Sample { repeated: true, ..cell()? };
            }
            cells.add(row.spec, scheduler.name(), sample);
        }
        load.finish().map_err(failed)
    }

    /// Puts a scheduler into force that knows nothing: one that is in force already would keep what it knows.
    fn switch(&self, scheduler: SchedulerKind) -> Result<(), ControlError> {
        self.control.set("scheduler", SchedulerKind::Fifo.name(), &[])?;
        self.control.set("scheduler", scheduler.name(), &[])
    }
}

fn tell((round, rounds): (u16, u16), row: RowSpec, scheduler: SchedulerKind, sample: &Sample) {
    let bursts = match sample.bursts_ms.len() {
        0 => String::new(),
        bursts => format!("p50 {:>7.1} ms, {bursts:>3} bursts, ", sample.p50_ms()),
    };
    let stalls = match sample.stalls_ms.len() {
        0 => String::new(),
        stalls => format!("; {stalls} stalls, {} bursts set aside", sample.set_aside_ms.len()),
    };
    eprintln!(
        "{}/{rounds}: {:<33} {scheduler:<12} {bursts}{:>5.0} IOPS, {:>5.0} of busy flows{stalls}",
        round + 1,
        row.name(),
        sample.iops,
        sample.busy_iops
    );
}
