//! What is going to be measured, and how long that takes.

use crate::row::{RowSpec, Table};
use crate::threads;
use burst_sim::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use mpath_core::SchedulerKind;
use std::collections::BTreeSet;
use std::time::Duration;

/// What connecting takes, and a switch.
const PER_ROW: Duration = Duration::from_millis(150);
const PER_SWITCH: Duration = Duration::from_millis(40);
/// Starting, and the model afterwards.
const ONCE: Duration = Duration::from_secs(15);

/// A row as it is measured, over one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) spec: RowSpec,
    pub(crate) schedulers: Vec<SchedulerKind>,
    pub(crate) rounds: u16,
    /// Of each cell.
    pub(crate) time: Duration,
}

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    /// Whether one I/O thread is compared with two.
    pub(crate) threads: bool,
    pub(crate) schedulers: Vec<SchedulerKind>,
    pub(crate) rounds: u16,
    /// `--seconds`
    pub(crate) seconds: Duration,
    /// How far the service varies either way.
    pub(crate) jitter: Duration,
    pub(crate) seed: u64,
}

/// To a scheduler that comes into force under load every virtqueue is new, the busy ones too: each sends so many requests as a burst
/// first. With `burst-credit` these are one turn, and the rest of an interactive flow's burst takes turns with the busy flows.
pub(crate) fn settle(scheduler: SchedulerKind, row: RowSpec) -> Duration {
    let new = match scheduler {
        SchedulerKind::Fifo => return Duration::ZERO,
        SchedulerKind::Published => 64,
        SchedulerKind::BurstCredit => 8,
    };
    SERVICE * row.queues() as u32 * new / SLOTS as u32 + row.longest_burst()
}

impl Row {
    /// What the busy flows have outstanding at the end.
    fn backlog(&self) -> Duration {
        SERVICE * self.spec.busy as u32 * DEPTH / SLOTS as u32
    }

    /// A cell begins when each flow has ended a burst that began in it, and the last burst that counts begins in its time; on the average half of
    /// it is left then.
    fn cell(&self, scheduler: SchedulerKind) -> Duration {
        let first = self.spec.longest_burst();
        let last = if scheduler == SchedulerKind::Fifo { first } else { self.spec.alone().longest_burst() };
        PER_SWITCH + settle(scheduler, self.spec).max(first / 2 + PAUSE + last) + PAUSE + self.time + last / 2
    }

    /// About how long all of its rounds take.
    pub(crate) fn takes(&self) -> Duration {
        let cells: Duration = self.schedulers.iter().map(|scheduler| self.cell(*scheduler)).sum();
        (PER_ROW + self.backlog() + cells) * u32::from(self.rounds)
    }
}

impl Plan {
    /// Every row once: some are in several tables.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let specs: BTreeSet<RowSpec> = self.tables.iter().flat_map(|table| table.rows()).collect();
        specs.into_iter().map(|spec| self.row(spec)).collect()
    }

    /// As the table wants it that wants most.
    fn row(&self, spec: RowSpec) -> Row {
        let tables = || self.tables.iter().filter(|table| table.rows().contains(&spec));
        Row {
            spec,
            schedulers: self.schedulers.clone(),
            rounds: tables().map(|table| table.rounds(self.rounds)).max().unwrap_or(0),
            time: tables().map(|table| table.time(self.seconds)).max().unwrap_or_default(),
        }
    }

    /// All that sends bursts and pauses, without any other flow; and a single request, which tells what a service
    /// takes.
    pub(crate) fn alone(&self) -> Vec<Row> {
        let rows = self.rows();
        let single = RowSpec::one(1, 0);
        let specs = rows.iter().map(|row| row.spec.alone()).filter(|spec| *spec != RowSpec::default());
        let specs: BTreeSet<RowSpec> = specs.chain((!rows.is_empty()).then_some(single)).collect();
        let rounds = |spec: RowSpec| {
            let of = rows.iter().filter(|row| spec == single || row.spec.alone() == spec);
            of.map(|row| row.rounds).max().unwrap_or(0)
        };
        let row = |spec| Row { spec, schedulers: vec![SchedulerKind::Fifo], rounds: rounds(spec), time: self.seconds };
        specs.into_iter().map(row).collect()
    }

    /// About how long it takes.
    pub(crate) fn time(&self) -> Duration {
        let rows: Duration = self.alone().iter().chain(&self.rows()).map(Row::takes).sum();
        let threads: Duration = if self.threads { threads::takes(self) } else { Duration::ZERO };
        ONCE + rows + threads
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::line::SCHEDULERS;
    use crate::row::{BUSY_FLOWS, COUNT};
    use burst_sim::targets::COUNTS;

    pub(crate) fn plan(tables: &[Table]) -> Plan {
        Plan {
            tables: tables.into(),
            threads: false,
            schedulers: SCHEDULERS.into(),
            rounds: 5,
            seconds: Duration::from_secs(2),
            jitter: Duration::ZERO,
            seed: 1,
        }
    }

    fn specs(rows: &[Row]) -> Vec<RowSpec> {
        rows.iter().map(|row| row.spec).collect()
    }

    #[test]
    fn rows_of_several_tables_are_measured_once() {
        let published = plan(&Table::PUBLISHED);
        assert_eq!(published.rows().len(), 10);
        assert_eq!(specs(&published.alone()), COUNTS.map(|count| RowSpec::one(count, 0)));
        assert_eq!(specs(&plan(&[Table::K]).alone()), [RowSpec::one(1, 0), RowSpec::one(32, 0)]);
        let all = plan(&Table::ALL);
        // One of m in k and n.
        assert_eq!(all.rows().len(), 10 + 3 + 6);
        assert!(Table::ALL.iter().flat_map(|table| table.rows()).all(|row| specs(&all.rows()).contains(&row)));
        // N=2; and 2, 3, 4, 6, 8 and 16 flows.
        assert_eq!(all.alone().len(), COUNTS.len() + 1 + 6);
        assert!(plan(&[]).alone().is_empty(), "nothing needs a floor");
    }

    #[test]
    fn a_row_has_what_the_table_wants_that_wants_most() {
        let all = plan(&Table::ALL);
        let found = |spec: RowSpec| all.rows().into_iter().find(|row| row.spec == spec).unwrap();
        let of = |spec: RowSpec| (found(spec).rounds, found(spec).time.as_secs());
        assert_eq!(of(RowSpec::one(COUNT, 64)), (5, 2));
        assert_eq!(of(RowSpec::one(COUNT, BUSY_FLOWS)), (5, 4), "the headline row is in m too");
        assert!([Table::M.rows()[1], Table::A.rows()[1]].into_iter().all(|row| of(row) == (3, 4)));
        let rounds = |spec| all.alone().into_iter().find(|row| row.spec == spec).unwrap().rounds;
        assert_eq!((rounds(RowSpec::one(COUNT, 0)), rounds(RowSpec::one(2, 0))), (5, 3));
        let fifo = Plan { schedulers: vec![SchedulerKind::Fifo], rounds: 2, ..plan(&[Table::A]) };
        assert_eq!((fifo.rows()[0].schedulers.len(), fifo.rows()[0].rounds), (1, 2));
        assert_eq!(fifo.alone()[0].rounds, 2, "the service is of as many rounds as anything");
    }

    /// The manual promises 22 minutes.
    #[test]
    fn the_default_run_takes_little_more_than_twenty_minutes() {
        let time = Plan { threads: true, ..plan(&Table::ALL) }.time();
        assert!((Duration::from_mins(14)..Duration::from_mins(22)).contains(&time), "{time:?}");
    }

    #[test]
    fn a_scheduler_has_the_time_to_forget_that_all_flows_were_new() {
        let settle = |scheduler, busy| settle(scheduler, RowSpec::one(COUNT, busy)).as_millis();
        assert_eq!(settle(SchedulerKind::Fifo, 64), 0);
        // 64 or 8 requests each, and a burst in turn with the others.
        assert_eq!((settle(SchedulerKind::Published, 64), settle(SchedulerKind::Published, 12)), (4800, 960));
        assert_eq!((settle(SchedulerKind::BurstCredit, 64), settle(SchedulerKind::BurstCredit, 12)), (2000, 400));
    }

    #[test]
    fn time_grows_with_rounds_and_tables() {
        let one = plan(&[Table::K]);
        let more = Plan { rounds: 10, ..one.clone() };
        assert_eq!(more.time() + ONCE, one.time() * 2);
        assert!(plan(&Table::PUBLISHED).time() > one.time());
        assert!(Plan { threads: true, ..one.clone() }.time() > one.time());
    }
}
