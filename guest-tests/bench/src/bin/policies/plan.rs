//! What is going to be measured, and how long that takes.

use crate::tables::{RowSpec, Table};
use std::time::Duration;

/// What a cell takes beside its warm-up and its measurement: switching, connecting, draining.
const OVERHEAD: Duration = Duration::from_millis(150);
/// What a table takes before its first cell: starting, connecting, filling the disk.
const PER_TABLE: Duration = Duration::from_secs(3);

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
        self.seconds / 6
    }

    /// How long a request without any delay is looked at, for each kind of request in a table.
    pub(crate) fn floor_time(&self) -> Duration {
        self.seconds / 10
    }

    fn cell(&self, row: &RowSpec) -> Duration {
        self.warmup() + row.length.time(self.seconds) + OVERHEAD
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

    /// What issue and manual promise, with every policy that there is going to be.
    #[test]
    fn the_default_run_takes_less_than_an_hour() {
        let total: Duration = Table::ALL.iter().map(|table| DEFAULT.table_time(*table, 9)).sum();
        assert!(total < Duration::from_secs(3600), "{total:?}");
        assert!(total > Duration::from_secs(1800), "{total:?}");
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
