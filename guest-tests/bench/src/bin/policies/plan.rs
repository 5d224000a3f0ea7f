//! What is going to be measured, and how long that takes.

use crate::tables::{Length, RowSpec, Table};
use std::time::Duration;

/// What a cell takes beside its warm-up and its measurement: switching, connecting, draining.
const OVERHEAD: Duration = Duration::from_millis(150);
/// What a table takes before its first cell, about: starting, connecting, filling the disk, requests without any delay.
const PER_TABLE: Duration = Duration::from_secs(15);

/// The times of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// `--seconds`
    pub(crate) seconds: Duration,
    pub(crate) rounds: u16,
    /// `--full`
    pub(crate) full: bool,
}

impl Plan {
    /// What runs before each cell is measured. A series is measured from its start.
    pub(crate) fn warmup(&self) -> Duration {
        self.seconds / 10
    }

    /// How long a request without any delay is looked at, for each kind of request in a table.
    pub(crate) fn floor_time(&self) -> Duration {
        self.seconds / 10
    }

    fn cell(&self, row: &RowSpec) -> Duration {
        let warmup = if matches!(row.length, Length::Series(_)) { Duration::ZERO } else { self.warmup() };
        warmup + row.length.time(self.seconds) + OVERHEAD
    }

    /// How long a table takes with so many policies.
    pub(crate) fn table_time(&self, table: Table, policies: usize) -> Duration {
        let cells: Duration = table.rows(self.full).iter().map(|row| self.cell(row)).sum();
        PER_TABLE + cells * u32::from(self.rounds) * policies as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Plan = Plan { seconds: Duration::from_secs(3), rounds: 5, full: false };

    /// Nine policies, and two more to compare with in table a. The manual promises an hour; a busy machine takes longer than planned.
    #[test]
    fn the_default_run_takes_less_than_an_hour() {
        let policies = |table| if table == Table::A { 11 } else { 9 };
        let total: Duration = Table::ALL.iter().map(|table| DEFAULT.table_time(*table, policies(*table))).sum();
        assert!(total < Duration::from_mins(56), "{total:?}");
        assert!(total > Duration::from_mins(30), "{total:?}");
    }

    #[test]
    fn time_grows_with_policies_rounds_and_rows() {
        let time = |plan: Plan, policies| plan.table_time(Table::A, policies).saturating_sub(PER_TABLE);
        let one = time(DEFAULT, 1);
        assert_eq!(time(DEFAULT, 4), one * 4);
        assert_eq!(time(Plan { rounds: 10, ..DEFAULT }, 1), one * 2);
        assert!(time(Plan { full: true, ..DEFAULT }, 1) > one * 2);
    }
}
