//! What is going to be measured, and how long that takes.

use burst_sim::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use burst_sim::targets::{BUSY, COUNTS};
use clap::ValueEnum;
use mpath_core::SchedulerSpec;
use std::collections::BTreeSet;
use std::time::Duration;

/// N of the first table, K of the second one.
pub(crate) const COUNT: u32 = 32;
pub(crate) const BUSY_FLOWS: usize = 16;

/// What a row takes beside its cells: connecting, and the end of the requests that are outstanding.
const PER_ROW: Duration = Duration::from_millis(150);
/// What a cell takes beside its warm-up and its measurement: `mpathctl`.
const PER_CELL: Duration = Duration::from_millis(30);
/// Starting, and the model afterwards.
const ONCE: Duration = Duration::from_secs(15);

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
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

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) tables: Vec<Table>,
    pub(crate) schedulers: Vec<SchedulerSpec>,
    pub(crate) rounds: u16,
    /// `--seconds`
    pub(crate) seconds: Duration,
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

    /// What the busy flows have outstanding at the end.
    fn backlog(self) -> Duration {
        SERVICE * self.busy as u32 * DEPTH / SLOTS as u32
    }
}

impl Plan {
    /// Every row once: the tables have one in common.
    pub(crate) fn rows(&self) -> Vec<RowSpec> {
        let rows: BTreeSet<RowSpec> = self.tables.iter().flat_map(|table| table.rows()).collect();
        rows.into_iter().collect()
    }

    /// Every N once.
    pub(crate) fn counts(&self) -> Vec<u32> {
        let counts: BTreeSet<u32> = self.rows().into_iter().map(|row| row.count).collect();
        counts.into_iter().collect()
    }

    /// What runs before each cell is measured, to the end of a burst.
    pub(crate) fn warmup(&self) -> Duration {
        self.seconds / 8
    }

    fn cell(&self, row: RowSpec) -> Duration {
        // The last burst of the warm-up, of which it has one at least, and the last one that counts begin in time; on the
        // average half of each is left then.
        let half = row.longest_burst() / 2;
        PER_CELL + PAUSE + self.warmup().max(half) + half + self.seconds + half
    }

    /// About how long it takes; longer than needed, as if no scheduler were faster than turns.
    pub(crate) fn time(&self) -> Duration {
        let rows =
            self.rows().into_iter().map(|row| PER_ROW + row.backlog() + self.cell(row) * self.schedulers.len() as u32);
        let alone = self.counts().into_iter().map(|count| PER_ROW + self.cell(RowSpec { busy: 0, count }));
        ONCE + rows.chain(alone).sum::<Duration>() * u32::from(self.rounds)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use burst_sim::scenario::schedulers;

    pub(crate) fn plan(tables: &[Table]) -> Plan {
        let schedulers = schedulers().into();
        Plan { tables: tables.into(), schedulers, rounds: 5, seconds: Duration::from_millis(2500), seed: 1 }
    }

    #[test]
    fn rows_of_both_tables_are_measured_once() {
        let both = plan(&Table::ALL);
        assert_eq!((both.rows().len(), both.counts()), (10, COUNTS.into()));
        assert_eq!(plan(&[Table::K]).counts(), [32]);
        assert_eq!(both.rows()[0], RowSpec { busy: 4, count: 32 });
        assert!(Table::ALL.iter().flat_map(|table| table.rows()).all(|row| both.rows().contains(&row)));
    }

    /// The manual promises 15 minutes.
    #[test]
    fn the_default_run_takes_less_than_a_quarter_of_an_hour() {
        let time = plan(&Table::ALL).time();
        assert!((Duration::from_mins(11)..Duration::from_mins(15)).contains(&time), "{time:?}");
    }

    #[test]
    fn time_grows_with_rounds_and_tables() {
        let one = plan(&[Table::K]);
        let more = Plan { rounds: 10, ..one.clone() };
        assert_eq!(more.time() - ONCE, (one.time() - ONCE) * 2);
        assert!(plan(&Table::ALL).time() > one.time());
    }
}
