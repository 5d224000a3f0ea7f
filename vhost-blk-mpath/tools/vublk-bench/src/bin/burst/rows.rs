//! The flows that work at a time, the rows of each table, and how long measuring them takes.

use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{DEPTH, PAUSE, SERVICE, SLOTS, published_by_k, published_by_n};
use mpath_sim::bursts::targets::{BUSY, COUNTS, MANY};
use std::collections::BTreeSet;
use std::time::Duration;
use vublk_bench::harness::{PlannedRow, Results, Row};

/// N of table k, and K of the other tables.
pub(crate) const COUNT: u32 = 32;
pub(crate) const BUSY_FLOWS: usize = 16;

/// Attackers, and the requests that each sends at once.
const ATTACKS: [Flows; 3] =
    [Flows { flows: 1, count: 64 }, Flows { flows: 4, count: 64 }, Flows { flows: 4, count: 32 }];
/// The attack with a victim.
const ATTACK: Flows = ATTACKS[1];
/// Within a turn and its share of the service: 2 requests in 60 ms are 33/s, of 62/s.
const VICTIM: Flows = Flows { flows: 1, count: 2 };

/// Length of a cell with sustained bursts: its worst second is one of several.
pub(crate) const LONGER: Duration = Duration::from_secs(4);
/// Rounds of tables a, m and t.
const MOST_ROUNDS: u16 = 3;

/// I/O threads, and the window in each. 13 slots cannot be halved.
pub(crate) const WINDOWS: [(usize, usize); 2] = [(1, 12), (2, 6)];
/// Less than half of the service.
pub(crate) const LIMIT_IOPS: u32 = 500;

/// The table of the rows that share one daemon.
pub(crate) const ROWS: &str = "rows";

/// Flows that send bursts of `count` requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flows {
    pub(crate) flows: usize,
    pub(crate) count: u32,
}

/// The flows of a row. They have the virtqueues in the order of [`Role`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowSpec {
    /// Flows that keep a deep queue.
    pub(crate) busy: usize,
    /// Flows that pause between bursts.
    pub(crate) interactive: Flows,
    /// Flows that do not.
    pub(crate) attackers: Flows,
    /// Whether the disk has a limit of [`LIMIT_IOPS`].
    pub(crate) is_limited: bool,
}

/// The part of a virtqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Interactive,
    Attacker,
    Busy,
}

/// A row with the length of its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimedRow {
    pub(crate) spec: RowSpec,
    pub(crate) time: Duration,
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    K,
    N,
    A,
    M,
}

impl Table {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] = [Self::K, Self::N, Self::A, Self::M];
    /// The tables with sustained bursts.
    pub(crate) const SUSTAINED: [Self; 2] = [Self::A, Self::M];

    pub(crate) fn specs(self) -> Vec<RowSpec> {
        let against =
            |interactive, attackers| RowSpec { busy: BUSY_FLOWS, interactive, attackers, ..RowSpec::default() };
        let none = Flows::default();
        match self {
            Self::K => BUSY.map(|busy| RowSpec::one(COUNT, busy)).into(),
            Self::N => COUNTS.map(|count| RowSpec::one(count, BUSY_FLOWS)).into(),
            Self::A => ATTACKS.map(|attack| against(if attack == ATTACK { VICTIM } else { none }, attack)).into(),
            Self::M => MANY.map(|flows| against(Flows { flows, count: COUNT }, none)).into(),
        }
    }

    /// The rows that were measured: all or none.
    pub(crate) fn rows(self, results: &Results) -> Vec<(RowSpec, &Row)> {
        let rows: Option<Vec<_>> =
            self.specs().into_iter().map(|spec| Some((spec, results.row(ROWS, &spec.name())?))).collect();
        rows.unwrap_or_default()
    }

    /// p50 in ms as published, without and with credits.
    pub(crate) fn published(self, spec: RowSpec) -> Option<[f64; 2]> {
        match self {
            Self::K => published_by_k(spec.busy),
            Self::N => published_by_n(spec.interactive.count),
            Self::A | Self::M => None,
        }
    }

    fn rounds(self, rounds: u16) -> u16 {
        if Self::SUSTAINED.contains(&self) { rounds.min(MOST_ROUNDS) } else { rounds }
    }

    fn time(self, seconds: Duration) -> Duration {
        if Self::SUSTAINED.contains(&self) { seconds.max(LONGER) } else { seconds }
    }
}

impl RowSpec {
    /// One flow with bursts of `count` requests against busy ones.
    pub(crate) fn one(count: u32, busy: usize) -> Self {
        Self { busy, interactive: Flows { flows: 1, count }, ..Self::default() }
    }

    /// The interactive flows alone: their floor.
    pub(crate) fn alone(self) -> Self {
        Self { interactive: self.interactive, ..Self::default() }
    }

    /// The number of virtqueues.
    pub(crate) fn queues(self) -> usize {
        self.interactive.flows + self.attackers.flows + self.busy
    }

    /// The requests of each flow that sends bursts, and whether it pauses.
    pub(crate) fn bursts(self) -> impl Iterator<Item = (u32, bool)> {
        let flows = |of: Flows, pauses| std::iter::repeat_n((of.count, pauses), of.flows);
        flows(self.interactive, true).chain(flows(self.attackers, false))
    }

    pub(crate) fn role(self, queue: usize) -> Role {
        match queue {
            queue if queue < self.interactive.flows => Role::Interactive,
            queue if queue < self.interactive.flows + self.attackers.flows => Role::Attacker,
            _ => Role::Busy,
        }
    }

    pub(crate) fn name(self) -> String {
        let interactive = match self.interactive {
            Flows { flows: 0, .. } => None,
            Flows { flows: 1, count } => Some(format!("N={count}")),
            Flows { flows, count } => Some(format!("{flows} × N={count}")),
        };
        let Flows { flows, count } = self.attackers;
        let attackers = (flows > 0).then(|| format!("{flows} × {count} without a pause"));
        let limit = self.is_limited.then(|| format!("{LIMIT_IOPS} IOPS"));
        let busy = Some(format!("K={}", self.busy));
        [interactive, attackers, busy, limit].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Time of the longest burst if every flow gets a request in its turn.
    pub(crate) fn longest_burst(self) -> Duration {
        let count = self.bursts().map(|(count, _)| count).max().unwrap_or(0);
        SERVICE * self.queues() as u32 * count / SLOTS as u32
    }

    /// To a scheduler that comes into force under load every virtqueue is new, the busy ones too. Each first sends what the scheduler
    /// grants a new one as a burst: 64 requests with `published`, a turn with `burst-credit`. Then the rest of an
    /// interactive flow's burst takes turns with the busy flows.
    pub(crate) fn settle_time(self, scheduler: SchedulerKind) -> Duration {
        let new = match scheduler {
            SchedulerKind::Fifo => return Duration::ZERO,
            SchedulerKind::Published => 64,
            SchedulerKind::BurstCredit => 8,
        };
        SERVICE * self.queues() as u32 * new / SLOTS as u32 + self.longest_burst()
    }
}

type Planned = PlannedRow<TimedRow, SchedulerKind>;

fn planned(table: &str, spec: RowSpec, schedulers: &[SchedulerKind], rounds: u16, time: Duration) -> Planned {
    PlannedRow::new(table, &spec.name(), TimedRow { spec, time }, schedulers.into(), rounds)
}

/// Every row of these tables once, as the most demanding of them wants it; before them what their flows take alone, and a single
/// request, which tells the service.
pub(crate) fn plan(tables: &[Table], schedulers: &[SchedulerKind], rounds: u16, seconds: Duration) -> Vec<Planned> {
    let specs: BTreeSet<RowSpec> = tables.iter().flat_map(|table| table.specs()).collect();
    let row = |spec: RowSpec| {
        let of = || tables.iter().filter(|table| table.specs().contains(&spec));
        let rounds = of().map(|table| table.rounds(rounds)).max().unwrap_or(0);
        planned(ROWS, spec, schedulers, rounds, of().map(|table| table.time(seconds)).max().unwrap_or_default())
    };
    let rows: Vec<Planned> = specs.into_iter().map(row).collect();
    let single = RowSpec::one(1, 0);
    let alone = rows.iter().map(|row| row.spec.spec.alone()).filter(|spec| *spec != RowSpec::default());
    let alone: BTreeSet<RowSpec> = alone.chain((!rows.is_empty()).then_some(single)).collect();
    let floor = |spec: RowSpec| {
        let of = rows.iter().filter(|row| spec == single || row.spec.spec.alone() == spec);
        planned(ROWS, spec, &[SchedulerKind::Fifo], of.map(|row| row.rounds).max().unwrap_or(0), seconds)
    };
    let floors: Vec<Planned> = alone.into_iter().map(floor).collect();
    floors.into_iter().chain(rows).collect()
}

/// The same slots in one I/O thread or divided among two: the headline row with its floors, and busy flows under a limit.
pub(crate) fn threads_plan(
    window: (usize, usize),
    schedulers: &[SchedulerKind],
    rounds: u16,
    seconds: Duration,
) -> Vec<Planned> {
    let (table, rounds) = (threads_table(window), rounds.min(MOST_ROUNDS));
    let compared = [SchedulerKind::Fifo, SchedulerKind::BurstCredit];
    let compared: Vec<SchedulerKind> = compared.into_iter().filter(|kind| schedulers.contains(kind)).collect();
    let limited = RowSpec { busy: BUSY_FLOWS, is_limited: true, ..RowSpec::default() };
    vec![
        planned(&table, RowSpec::one(1, 0), &[SchedulerKind::Fifo], rounds, seconds),
        planned(&table, RowSpec::one(COUNT, 0), &[SchedulerKind::Fifo], rounds, seconds),
        planned(&table, RowSpec::one(COUNT, BUSY_FLOWS), &compared, rounds, seconds),
        // Twice as long, so that what the limit allows in a turn of the slots is a small part.
        planned(&table, limited, &[SchedulerKind::BurstCredit], rounds, seconds * 2),
    ]
}

/// The table of a number of I/O threads.
pub(crate) fn threads_table((io_threads, slots): (usize, usize)) -> String {
    format!("{io_threads} I/O thread{} of {slots} slots", if io_threads == 1 { "" } else { "s" })
}

/// About how long rows take.
pub(crate) fn duration(rows: &[Planned]) -> Duration {
    const PER_ROW: Duration = Duration::from_millis(150);
    const PER_SWITCH: Duration = Duration::from_millis(40);
    let cell = |TimedRow { spec, time }: TimedRow, scheduler: SchedulerKind| {
        let first = spec.longest_burst();
        let last = if scheduler == SchedulerKind::Fifo { first } else { spec.alone().longest_burst() };
        // A cell begins when each flow has ended a burst that began in it. The last burst that counts begins in the cell's time;
        // on average half of it is left then.
        PER_SWITCH + spec.settle_time(scheduler).max(first / 2 + PAUSE + last) + PAUSE + time + last / 2
    };
    let row = |row: &Planned| {
        let backlog = SERVICE * row.spec.spec.busy as u32 * DEPTH / SLOTS as u32;
        let cells = row.contenders.iter().map(|scheduler| cell(row.spec, *scheduler)).sum::<Duration>();
        (PER_ROW + backlog + cells) * u32::from(row.rounds)
    };
    rows.iter().map(row).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEDULERS;

    const SECONDS: Duration = Duration::from_secs(2);

    fn find(rows: &[Planned], spec: RowSpec) -> (u16, u64) {
        let row = rows.iter().find(|row| row.spec.spec == spec).unwrap();
        (row.rounds, row.spec.time.as_secs())
    }

    #[test]
    fn virtqueues_go_to_interactive_flows_attackers_and_busy_flows() {
        let spec = Table::A.specs()[1];
        assert_eq!(spec.name(), "N=2, 4 × 64 without a pause, K=16");
        assert_eq!((spec.queues(), spec.role(0), spec.role(4)), (21, Role::Interactive, Role::Attacker));
        assert!((5..21).all(|queue| spec.role(queue) == Role::Busy));
        assert_eq!(spec.bursts().collect::<Vec<_>>(), [(2, true), (64, false), (64, false), (64, false), (64, false)]);
        assert_eq!((spec.alone().name(), Table::M.specs()[1].name()), ("N=2, K=0".into(), "2 × N=32, K=16".into()));
    }

    #[test]
    fn rows_of_several_tables_are_measured_once_as_the_most_demanding_table_wants() {
        let all = plan(&Table::ALL, &SCHEDULERS, 5, SECONDS);
        // Floors of 6 counts, of N=2, and of 2, 3, 4, 6, 8 and 16 flows; one row of m is also in k and n.
        assert_eq!(all.len(), (6 + 1 + 6) + (10 + 3 + 6));
        assert_eq!(find(&all, RowSpec::one(COUNT, 64)), (5, 2));
        assert_eq!(find(&all, RowSpec::one(COUNT, BUSY_FLOWS)), (5, 4));
        assert_eq!((find(&all, Table::M.specs()[1]), find(&all, Table::A.specs()[1])), ((3, 4), (3, 4)));
        assert_eq!((find(&all, RowSpec::one(COUNT, 0)).0, find(&all, RowSpec::one(2, 0)).0), (5, 3));
        assert!(plan(&[], &SCHEDULERS, 5, SECONDS).is_empty());
    }

    /// The manual promises 22 minutes.
    #[test]
    fn the_default_run_takes_little_more_than_twenty_minutes() {
        let threads = WINDOWS.map(|window| threads_plan(window, &SCHEDULERS, 5, SECONDS));
        let time = duration(&plan(&Table::ALL, &SCHEDULERS, 5, SECONDS)) + duration(&threads.concat());
        assert!((Duration::from_mins(14)..Duration::from_mins(22)).contains(&time), "{time:?}");
        assert!(WINDOWS.iter().all(|(threads, slots)| threads * slots == WINDOWS[0].1));
    }

    #[test]
    fn a_scheduler_has_time_to_forget_that_all_flows_were_new() {
        let settle = |scheduler, busy| RowSpec::one(COUNT, busy).settle_time(scheduler).as_millis();
        assert_eq!(settle(SchedulerKind::Fifo, 64), 0);
        // 64 or 8 requests each, and a burst in turn with the others.
        assert_eq!((settle(SchedulerKind::Published, 64), settle(SchedulerKind::Published, 12)), (4800, 960));
        assert_eq!((settle(SchedulerKind::BurstCredit, 64), settle(SchedulerKind::BurstCredit, 12)), (2000, 400));
    }
}
