//! One I/O thread beside two: the same slots in one, or divided among both, each of which schedules its own virtqueues.
//! And a disk's limit, which is one of both.

use crate::BurstError;
use crate::bench::Bench;
use crate::cells::{Cell, Cells, Row};
use crate::line::Line;
use crate::plan::{self, Plan};
use crate::row::{BUSY_FLOWS, COUNT, Flows, RowSpec};
use crate::run::start;
use mpath_core::SchedulerKind;
use serde::Serialize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::stalls::Watch;

/// I/O threads, and the window in each of them. 13 slots cannot be halved.
const WINDOWS: [(usize, usize); 2] = [(1, 12), (2, 6)];
/// Less than half of the service.
pub(crate) const LIMIT_IOPS: u32 = 500;
pub(crate) const LIMIT_BURST: &str = "100ms";

const MOST_ROUNDS: u16 = 3;
const BUSY: RowSpec = RowSpec { busy: BUSY_FLOWS, interactive: NONE, attackers: NONE };
const NONE: Flows = Flows { flows: 0, count: 0 };

/// The virtqueues divided among so many I/O threads.
#[derive(Debug, Serialize)]
pub(crate) struct Divided {
    pub(crate) io_threads: usize,
    /// In each of them.
    pub(crate) window_ios: usize,
    /// The daemon's command line.
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) cells: Cells,
}

/// The headline row with its floors, and busy flows alone, which are limited.
struct Rows {
    alone: Vec<plan::Row>,
    together: plan::Row,
    limited: plan::Row,
}

impl Rows {
    fn new(plan: &Plan) -> Self {
        let compared = [SchedulerKind::Fifo, SchedulerKind::BurstCredit];
        let chosen = compared.into_iter().filter(|kind| plan.schedulers.contains(kind)).collect();
        let row = |spec, schedulers, time| plan::Row { spec, schedulers, rounds: plan.rounds.min(MOST_ROUNDS), time };
        Self {
            alone: [1, COUNT].map(|count| row(RowSpec::one(count, 0), vec![SchedulerKind::Fifo], plan.seconds)).into(),
            together: row(RowSpec::one(COUNT, BUSY_FLOWS), chosen, plan.seconds),
            // What a limit allows in a turn of the slots is to be little of what is counted.
            limited: row(BUSY, vec![SchedulerKind::BurstCredit], plan.seconds * 2),
        }
    }

    fn takes(&self) -> Duration {
        self.alone.iter().chain([&self.together, &self.limited]).map(plan::Row::takes).sum()
    }
}

/// About how long it takes.
pub(crate) fn takes(plan: &Plan) -> Duration {
    Rows::new(plan).takes() * WINDOWS.len() as u32
}

/// A daemon for each number of I/O threads, one after the other.
pub(crate) fn run(
    line: &Line,
    plan: &Plan,
    watch: &Watch,
    interrupted: &AtomicBool,
) -> Result<Vec<Divided>, BurstError> {
    WINDOWS.into_iter().map(|windows| with(line, plan, windows, watch, interrupted)).collect()
}

fn with(
    line: &Line,
    plan: &Plan,
    (io_threads, window_ios): (usize, usize),
    watch: &Watch,
    interrupted: &AtomicBool,
) -> Result<Divided, BurstError> {
    let Rows { alone, together, limited } = Rows::new(plan);
    let directory = tempfile::Builder::new().prefix("burst-").tempdir().map_err(BurstError::Directory)?;
    let queues = together.spec.queues();
    let (stack, control) = start(line, directory.path(), plan.jitter, (window_ios, io_threads), queues)?;
    let command = stack.command_lines(directory.path()).remove("daemon").unwrap_or_default();
    let mut cells = Cells::new(&alone, &[together.clone(), limited.clone()]);
    eprintln!("--io-threads {io_threads} --window-ios {window_ios}");
    let bench = Bench { stack: &stack, control: &control, watch, seed: plan.seed, interrupted };
    for round in 0..together.rounds {
        for (stream, row) in alone.iter().chain([&together]).enumerate() {
            bench.row(round, stream, row, &mut cells)?;
        }
        control.limit(&["set", "--iops", &LIMIT_IOPS.to_string(), "--burst", LIMIT_BURST])?;
        bench.row(round, alone.len() + 1, &limited, &mut cells)?;
        control.limit(&["clear"])?;
    }
    Ok(Divided { io_threads, window_ios, command, cells })
}

impl Divided {
    pub(crate) fn name(&self) -> String {
        match self.io_threads {
            1 => format!("1 I/O thread of {} slots", self.window_ios),
            threads => format!("{threads} I/O threads of {} slots", self.window_ios),
        }
    }

    /// The row with bursts.
    pub(crate) fn together(&self) -> Option<&Row> {
        self.cells.row(RowSpec::one(COUNT, BUSY_FLOWS))
    }

    /// Busy flows under the limit.
    pub(crate) fn limited(&self) -> Option<&Cell> {
        self.cells.row(BUSY)?.cells.first().filter(|cell| !cell.samples.is_empty())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::plan::tests::plan;

    /// Both, with bursts of this length under `burst-credit` and ten times that under `fifo`, and the limit's IOPS.
    pub(crate) fn threads(bursts_ms: f64, limited_iops: f64) -> Vec<Divided> {
        let Rows { alone, together, limited } = Rows::new(&plan(&[]));
        let with = |(io_threads, window_ios): (usize, usize)| {
            let mut cells = Cells::new(&alone, &[together.clone(), limited.clone()]);
            cells.add(RowSpec::one(1, 0), "fifo", sample(&[10.0], 100.0));
            cells.add(RowSpec::one(COUNT, 0), "fifo", sample(&[30.0 * io_threads as f64], 500.0));
            cells.add(together.spec, "fifo", sample(&[10.0 * bursts_ms], 1200.0));
            cells.add(together.spec, "burst-credit", sample(&[bursts_ms], 1200.0));
            cells.add(BUSY, "burst-credit", sample(&[], limited_iops));
            let command = format!("vhost-blk-mpath --io-threads {io_threads}");
            Divided { io_threads, window_ios, command, cells }
        };
        WINDOWS.map(with).into()
    }

    #[test]
    fn the_slots_are_the_same_however_many_threads_have_them() {
        assert!(WINDOWS.iter().all(|(threads, window)| threads * window == WINDOWS[0].1));
    }

    #[test]
    fn the_headline_row_its_floors_and_a_limit() {
        let rows = Rows::new(&plan(&[]));
        let names: Vec<String> = rows.together.schedulers.iter().map(ToString::to_string).collect();
        assert_eq!((names.join(" "), rows.together.rounds), ("fifo burst-credit".to_owned(), 3));
        assert_eq!((rows.limited.spec.bursts().count(), rows.limited.time), (0, Duration::from_secs(4)));
        let one = &threads(34.0, 500.0)[0];
        assert_eq!(one.cells.floor_ms(one.together().unwrap()), Some(30.0));
        assert!(one.limited().is_some_and(|cell| cell.iops.median > 499.0));
        assert!((Duration::from_mins(1)..Duration::from_mins(3)).contains(&takes(&plan(&[]))));
    }
}
