//! What is going to be measured, and how long that takes.

use burst_sim::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use burst_sim::targets::{BUSY, COUNTS};
use mpath_core::SchedulerKind;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// N of the first table, K of the second one.
pub(crate) const COUNT: u32 = 32;
pub(crate) const BUSY_FLOWS: usize = 16;

/// To a scheduler that comes into force under load every virtqueue is a new one. What is given to new ones is used up, and has
/// left the account of who lives on it (this second's and the last one's), in this time; `burst-credit` gives each
/// `START_CREDIT` requests.
const SETTLE: Duration = Duration::from_millis(2500);
const START_CREDIT: u32 = 64;

/// What connecting takes, and a switch.
const PER_GROUP: Duration = Duration::from_millis(150);
const PER_SWITCH: Duration = Duration::from_millis(40);
/// Starting, and the model afterwards.
const ONCE: Duration = Duration::from_secs(15);

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// Bursts of 32 against K busy flows
    K,
    /// Bursts of N against 16 busy flows
    N,
}

/// Bursts of so many requests against so many busy flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowSpec {
    pub(crate) busy: usize,
    pub(crate) count: u32,
}

/// Rows with as many busy flows, which are measured over one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) busy: usize,
    pub(crate) counts: Vec<u32>,
}

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    /// With their defaults.
    pub(crate) schedulers: Vec<SchedulerKind>,
    pub(crate) rounds: u16,
    /// `--seconds`
    pub(crate) seconds: Duration,
    /// How far the service varies either way.
    pub(crate) jitter: Duration,
    pub(crate) seed: u64,
}

impl Table {
    pub(crate) const ALL: [Self; 2] = [Self::K, Self::N];

    pub(crate) fn rows(self) -> Vec<RowSpec> {
        match self {
            Self::K => BUSY.map(|busy| RowSpec { busy, count: COUNT }).into(),
            Self::N => COUNTS.map(|count| RowSpec { busy: BUSY_FLOWS, count }).into(),
        }
    }
}

impl RowSpec {
    /// As progress and targets call it.
    pub(crate) fn name(self) -> String {
        format!("N={}, K={}", self.count, self.busy)
    }

    /// What a burst takes if every flow gets a request in its turn.
    fn longest_burst(self) -> Duration {
        SERVICE * (self.busy as u32 + 1) * self.count / SLOTS as u32
    }
}

impl Group {
    /// What the busy flows have outstanding at the end.
    fn backlog(&self) -> Duration {
        SERVICE * self.busy as u32 * DEPTH / SLOTS as u32
    }
}

/// How long a scheduler takes to know the difference between flows. `fifo` makes none.
pub(crate) fn settle(scheduler: SchedulerKind, busy: usize) -> Duration {
    match scheduler {
        SchedulerKind::Fifo => Duration::ZERO,
        SchedulerKind::BurstCredit | SchedulerKind::BurstCreditDrr => {
            SETTLE.max(SERVICE * (busy as u32 + 1) * START_CREDIT / SLOTS as u32)
        }
    }
}

impl Plan {
    /// Every row once: the tables have one in common.
    pub(crate) fn rows(&self) -> Vec<RowSpec> {
        let rows: BTreeSet<RowSpec> = self.tables.iter().flat_map(|table| table.rows()).collect();
        rows.into_iter().collect()
    }

    /// The same rows by the number of busy flows.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for row in self.rows() {
            groups.entry(row.busy).or_default().push(row.count);
        }
        groups.into_iter().map(|(busy, counts)| Group { busy, counts }).collect()
    }

    /// Every N once, without any busy flow; and a single request, which tells what a service takes.
    pub(crate) fn alone(&self) -> Group {
        let counts: BTreeSet<u32> = self.rows().into_iter().map(|row| row.count).chain([1]).collect();
        Group { busy: 0, counts: counts.into_iter().collect() }
    }

    /// A cell begins with the end of a burst, and the last burst that counts begins in its time; on the average half of it is
    /// left then.
    fn cell(&self, row: RowSpec, scheduler: SchedulerKind) -> Duration {
        let burst = match scheduler {
            SchedulerKind::Fifo => row.longest_burst(),
            SchedulerKind::BurstCredit | SchedulerKind::BurstCreditDrr => RowSpec { busy: 0, ..row }.longest_burst(),
        };
        PER_SWITCH + settle(scheduler, row.busy).max(burst) + PAUSE + self.seconds + burst / 2
    }

    fn group(&self, group: &Group, schedulers: &[SchedulerKind]) -> Duration {
        let rows = group.counts.iter().map(|&count| RowSpec { busy: group.busy, count });
        let cells = rows.flat_map(|row| schedulers.iter().map(move |&scheduler| self.cell(row, scheduler)));
        PER_GROUP + group.backlog() + cells.sum::<Duration>()
    }

    /// About how long it takes.
    pub(crate) fn time(&self) -> Duration {
        let alone = self.group(&self.alone(), &[SchedulerKind::Fifo]);
        let groups: Duration = self.groups().iter().map(|group| self.group(group, &self.schedulers)).sum();
        ONCE + (alone + groups) * u32::from(self.rounds)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(tables: &[Table]) -> Plan {
        let schedulers = SchedulerKind::ALL.into();
        Plan {
            tables: tables.into(),
            schedulers,
            rounds: 5,
            seconds: Duration::from_secs(2),
            jitter: Duration::ZERO,
            seed: 1,
        }
    }

    #[test]
    fn rows_of_both_tables_are_measured_once() {
        let both = plan(&Table::ALL);
        assert_eq!((both.rows().len(), both.alone()), (10, Group { busy: 0, counts: COUNTS.into() }));
        assert_eq!(both.groups().len(), 5);
        assert_eq!(both.groups()[2], Group { busy: 16, counts: COUNTS.into() });
        assert_eq!(plan(&[Table::K]).alone().counts, [1, 32]);
        assert_eq!(both.rows()[0], RowSpec { busy: 4, count: 32 });
        assert!(Table::ALL.iter().flat_map(|table| table.rows()).all(|row| both.rows().contains(&row)));
    }

    /// The manual promises 15 minutes; a busy machine takes longer than planned.
    #[test]
    fn the_default_run_takes_less_than_a_quarter_of_an_hour() {
        let time = plan(&Table::ALL).time();
        assert!((Duration::from_mins(10)..Duration::from_mins(14)).contains(&time), "{time:?}");
    }

    #[test]
    fn a_scheduler_has_the_time_to_forget_that_all_flows_were_new() {
        let settle = |scheduler, busy| settle(scheduler, busy).as_millis();
        assert_eq!(settle(SchedulerKind::Fifo, 64), 0);
        assert_eq!(settle(SchedulerKind::BurstCreditDrr, 4), 2500);
        // 64 credits each.
        assert_eq!(settle(SchedulerKind::BurstCredit, 64), 3200);
    }

    #[test]
    fn time_grows_with_rounds_and_tables() {
        let one = plan(&[Table::K]);
        let more = Plan { rounds: 10, ..one.clone() };
        assert_eq!(more.time() + ONCE, one.time() * 2);
        assert!(plan(&Table::ALL).time() > one.time());
    }
}
