//! The flows that work at a time, and the rows of each table.

use clap::ValueEnum;
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{SERVICE, SLOTS};
use mpath_sim::bursts::targets::{BUSY, COUNTS, MANY};
use std::collections::BTreeMap;
use std::time::Duration;
use vublk_bench::harness::{PlannedRow, Results, Row};

/// N of table k, and K of the other tables.
pub(crate) const COUNT: u32 = 32;
pub(crate) const BUSY_FLOWS: usize = 16;

/// The length of a cell with sustained bursts. It is several seconds, because the worst second of a cell is judged.
pub(crate) const LONGER: Duration = Duration::from_secs(4);
/// Rounds of tables a, m and t.
const MOST_ROUNDS: u16 = 3;

/// I/O threads, and the window in each, which is its number of service slots. 13 slots cannot be halved for table t.
pub(crate) const STACKS: [(usize, usize); 3] = [(1, SLOTS), (1, 12), (2, 6)];
/// The limit of a limited disk, in requests per second: less than half of what the service can do.
pub(crate) const LIMIT_IOPS: u32 = 500;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Table {
    /// Bursts of 32 against K busy flows
    K,
    /// Bursts of N against 16 busy flows
    N,
    /// Attackers that send bursts without a pause, against 16 busy flows, and a victim
    A,
    /// m interactive flows at once against 16 busy ones
    M,
    /// One I/O thread compared with two, and a limit over both
    T,
    /// Two guests, one with bursts
    Guests,
}

/// Flows that send bursts of `count` requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flows {
    pub(crate) flows: usize,
    pub(crate) count: u32,
}

const NONE: Flows = Flows { flows: 0, count: 0 };
/// A flow whose bursts fit into a turn and into its share of the service. It asks for 2 requests in 60 ms, which is 33 a second,
/// and its share is 62 a second.
const VICTIM: Flows = Flows { flows: 1, count: 2 };
/// The attackers of each row, and the victim that runs at the same time.
const ATTACKS: [(Flows, Flows); 3] = [
    (Flows { flows: 1, count: 64 }, NONE),
    (Flows { flows: 4, count: 64 }, VICTIM),
    (Flows { flows: 4, count: 32 }, NONE),
];

/// The flows of a row. They have the virtqueues in the order of [`Role`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowSpec {
    /// Flows that keep a deep queue.
    pub(crate) busy: usize,
    /// Flows that pause between bursts.
    pub(crate) interactive: Flows,
    /// Flows that do not pause between bursts.
    pub(crate) attackers: Flows,
    /// Whether the disk has a limit of [`LIMIT_IOPS`].
    pub(crate) is_limited: bool,
}

/// The role of a virtqueue.
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

impl Table {
    pub(crate) fn specs(self) -> Vec<RowSpec> {
        let against =
            |(attackers, interactive)| RowSpec { busy: BUSY_FLOWS, interactive, attackers, is_limited: false };
        match self {
            Self::K => BUSY.map(|busy| RowSpec::one(COUNT, busy)).into(),
            Self::N => COUNTS.map(|count| RowSpec::one(count, BUSY_FLOWS)).into(),
            Self::A => ATTACKS.map(against).into(),
            Self::M => MANY.map(|flows| against((NONE, Flows { flows, count: COUNT }))).into(),
            Self::T => vec![RowSpec::one(COUNT, BUSY_FLOWS), RowSpec::LIMITED],
            Self::Guests => Vec::new(),
        }
    }

    /// The rows that were measured on this stack: all or none.
    pub(crate) fn rows(self, results: &Results, stack: (usize, usize)) -> Vec<(RowSpec, &Row)> {
        let table = stack_name(stack);
        let specs = self.specs().into_iter();
        let rows: Option<Vec<_>> = specs.map(|spec| Some((spec, results.row(&table, &spec.name())?))).collect();
        rows.unwrap_or_default()
    }

    /// How often and how long a cell is measured.
    fn effort(self, spec: RowSpec, rounds: u16, seconds: Duration) -> (u16, Duration) {
        match self {
            Self::A | Self::M => (rounds.min(MOST_ROUNDS), seconds.max(LONGER)),
            // Twice as long, so that the requests that the limit allows in one turn of the slots are a small part.
            Self::T if spec.is_limited => (rounds.min(MOST_ROUNDS), seconds * 2),
            Self::T => (rounds.min(MOST_ROUNDS), seconds),
            _ => (rounds, seconds),
        }
    }

    /// The schedulers under which a row is measured. Table t has `fifo` and `burst-credit` only, and `burst-credit` alone for its
    /// limited row.
    fn schedulers(self, spec: RowSpec, schedulers: &[SchedulerKind]) -> Vec<SchedulerKind> {
        if spec.is_limited {
            return vec![SchedulerKind::BurstCredit];
        }
        let is_in = |scheduler: &SchedulerKind| self != Self::T || *scheduler != SchedulerKind::Published;
        schedulers.iter().copied().filter(is_in).collect()
    }
}

impl RowSpec {
    /// Busy flows under a limit.
    pub(crate) const LIMITED: Self = Self { busy: BUSY_FLOWS, interactive: NONE, attackers: NONE, is_limited: true };

    /// One flow with bursts of `count` requests against busy ones.
    pub(crate) fn one(count: u32, busy: usize) -> Self {
        Self { busy, interactive: Flows { flows: 1, count }, ..Self::default() }
    }

    /// The interactive flows alone: their floor.
    pub(crate) fn alone(self) -> Self {
        Self { interactive: self.interactive, ..Self::default() }
    }

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
        let mut words = Vec::new();
        match self.interactive {
            Flows { flows: 0, .. } => {}
            Flows { flows: 1, count } => words.push(format!("N={count}")),
            Flows { flows, count } => words.push(format!("{flows} × N={count}")),
        }
        let Flows { flows, count } = self.attackers;
        if flows > 0 {
            words.push(format!("attackers {flows} × {count} without a pause"));
        }
        words.push(format!("K={}", self.busy));
        if self.is_limited {
            words.push(format!("{LIMIT_IOPS} IOPS"));
        }
        words.join(", ")
    }

    /// How long the load runs after a change of the scheduler before it is measured.
    ///
    /// The scheduler knows no virtqueue yet. So each virtqueue, busy or not, first gets the burst of a new virtqueue: 64
    /// requests with `published`, one turn with `burst-credit`. Then the rest of an interactive flow's burst takes turns
    /// with the busy flows.
    pub(crate) fn settle_time(self, scheduler: SchedulerKind) -> Duration {
        let new = match scheduler {
            SchedulerKind::Fifo => return Duration::ZERO,
            SchedulerKind::Published => 64,
            SchedulerKind::BurstCredit => 8,
        };
        let longest = self.bursts().map(|(count, _)| count).max().unwrap_or(0);
        let turn = SERVICE * self.queues() as u32;
        (turn * new / SLOTS as u32 + turn * longest / SLOTS as u32).into()
    }
}

/// Every row that these tables have on a stack, once, with the rounds and the time of the table that wants most. There are also
/// rows for the floors of these rows, and one with a single request, which shows the service time.
pub(crate) fn plan(
    stack: (usize, usize),
    tables: &[Table],
    schedulers: &[SchedulerKind],
    rounds: u16,
    seconds: Duration,
) -> Vec<PlannedRow<TimedRow, SchedulerKind>> {
    let mut rows: BTreeMap<RowSpec, (u16, Duration, Vec<SchedulerKind>)> = BTreeMap::new();
    let mut add = |spec, rounds: u16, time: Duration, schedulers: Vec<SchedulerKind>| {
        let row = rows.entry(spec).or_default();
        *row = (rounds.max(row.0), time.max(row.1), schedulers);
    };
    for table in tables.iter().filter(|table| (**table == Table::T) == (stack != STACKS[0])) {
        for spec in table.specs() {
            let (rounds, time) = table.effort(spec, rounds, seconds);
            add(spec, rounds, time, table.schedulers(spec, schedulers));
            for floor in [spec.alone(), RowSpec::one(1, 0)].into_iter().filter(|floor| floor.queues() > 0) {
                add(floor, rounds, seconds, vec![SchedulerKind::Fifo]);
            }
        }
    }
    let planned = |(spec, (rounds, time, schedulers)): (RowSpec, _)| {
        PlannedRow::new(&stack_name(stack), &spec.name(), TimedRow { spec, time }, schedulers, rounds)
    };
    rows.into_iter().map(planned).collect()
}

/// The name under which the rows of a stack are stored.
pub(crate) fn stack_name((io_threads, slots): (usize, usize)) -> String {
    match (io_threads, slots) {
        (1, SLOTS) => "rows".to_owned(),
        (1, _) => format!("1 I/O thread of {slots} slots"),
        _ => format!("{io_threads} I/O threads of {slots} slots"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEDULERS;

    const SECONDS: Duration = Duration::from_secs(2);

    fn find(rows: &[PlannedRow<TimedRow, SchedulerKind>], spec: RowSpec) -> (u16, u64) {
        let row = rows.iter().find(|row| row.spec.spec == spec).unwrap();
        (row.rounds, row.spec.time.as_secs())
    }

    #[test]
    fn virtqueues_go_to_interactive_flows_attackers_and_busy_flows() {
        let spec = Table::A.specs()[1];
        assert_eq!(spec.name(), "N=2, attackers 4 × 64 without a pause, K=16");
        assert_eq!((spec.queues(), spec.role(0), spec.role(4)), (21, Role::Interactive, Role::Attacker));
        assert!((5..21).all(|queue| spec.role(queue) == Role::Busy));
        assert_eq!(spec.bursts().collect::<Vec<_>>(), [(2, true), (64, false), (64, false), (64, false), (64, false)]);
        assert_eq!((spec.alone().name(), Table::M.specs()[1].name()), ("N=2, K=0".into(), "2 × N=32, K=16".into()));
    }

    #[test]
    fn rows_of_several_tables_are_measured_once_as_the_most_demanding_table_wants() {
        let tables = [Table::K, Table::N, Table::A, Table::M];
        let all = plan(STACKS[0], &tables, &SCHEDULERS, 5, SECONDS);
        // There are floors of 6 counts, of N=2, and of 2, 3, 4, 6, 8 and 16 flows. One row of table m is also in k and n.
        assert_eq!(all.len(), (6 + 1 + 6) + (10 + 3 + 6));
        assert_eq!(find(&all, RowSpec::one(COUNT, 64)), (5, 2));
        assert_eq!(find(&all, RowSpec::one(COUNT, BUSY_FLOWS)), (5, 4));
        assert_eq!((find(&all, Table::M.specs()[1]), find(&all, Table::A.specs()[1])), ((3, 4), (3, 4)));
        assert_eq!((find(&all, RowSpec::one(COUNT, 0)).0, find(&all, RowSpec::one(2, 0)).0), (5, 3));
        assert!(plan(STACKS[0], &[Table::T], &SCHEDULERS, 5, SECONDS).is_empty());
        assert_eq!(plan(STACKS[1], &[Table::T], &SCHEDULERS, 5, SECONDS).len(), 4);
        assert_eq!(STACKS[1].0 * STACKS[1].1, STACKS[2].0 * STACKS[2].1);
    }

    #[test]
    fn a_scheduler_has_time_to_forget_that_all_flows_were_new() {
        let settle = |scheduler, busy| RowSpec::one(COUNT, busy).settle_time(scheduler).as_millis();
        assert_eq!(settle(SchedulerKind::Fifo, 64), 0);
        // 64 or 8 requests for each virtqueue, and then a burst that takes turns with the others.
        assert_eq!((settle(SchedulerKind::Published, 64), settle(SchedulerKind::Published, 12)), (4800, 960));
        assert_eq!((settle(SchedulerKind::BurstCredit, 64), settle(SchedulerKind::BurstCredit, 12)), (2000, 400));
    }
}
