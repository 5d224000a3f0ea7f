//! The command line.

use crate::plan::Plan;
use crate::tables::Table;
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;
use vublk_bench::stack::Programs;
use vublk_bench::units::parse_seconds;

/// Measures every policy of the daemon side by side, in tables, and rewrites the published results: for each table
/// DOCS/results/policies-TABLE.json, .svg, and its section of DOCS/benchmarks.md. Tables that are not measured stay as they are.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 measured and written; 1 a run failed or the results could not be written; 2 bad options; \
    3 something could not be started; 130 interrupted, nothing written."
)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) programs: Programs,

    /// mpathctl [default: beside this program]
    #[arg(long, value_name = "PATH", env = "MPATHCTL")]
    pub(crate) mpathctl: Option<PathBuf>,

    /// Tables to measure
    #[arg(long, value_name = "TABLES", value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    pub(crate) only: Vec<Table>,

    /// Policies to measure [default: all that the daemon has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) policies: Vec<String>,

    /// Rounds; the median of them is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured where the tail is judged; a third of that where only throughput is, and paths change by it
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// Table a: every operation at every depth, size and place of the slow path
    #[arg(long)]
    full: bool,

    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    pub(crate) docs: PathBuf,
}

impl Line {
    pub(crate) fn plan(&self) -> Plan {
        Plan { seconds: self.seconds, rounds: self.rounds, full: self.full }
    }

    /// Each once, in their own order.
    pub(crate) fn tables(&self) -> Vec<Table> {
        Table::ALL.into_iter().filter(|table| self.only.contains(table)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("policies").chain(arguments.split_whitespace()))
    }

    #[test]
    fn defaults() {
        let line = line("").unwrap();
        assert_eq!(line.tables(), Table::ALL);
        let plan = line.plan();
        assert_eq!((plan.seconds, plan.rounds, plan.full), (Duration::from_secs(3), 5, false));
        assert!(line.policies.is_empty());
    }

    #[test]
    fn a_part() {
        let line = line("--only d,b,d --policies numa,bdp --rounds 1 --seconds 0.2").unwrap();
        assert_eq!(line.tables(), [Table::B, Table::D]);
        assert_eq!(line.policies, ["numa", "bdp"]);
        assert_eq!(line.plan().seconds, Duration::from_millis(200));
    }

    #[test]
    fn bad_values_are_named() {
        for (arguments, message) in [
            ("--only e", "invalid value 'e' for '--only <TABLES>'"),
            ("--seconds 0", "must be from 0.1 to 600"),
            ("--seconds nan", "must be from 0.1 to 600"),
            ("--seconds long", "is not a number of seconds"),
            ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
        ] {
            let error = line(arguments).unwrap_err().to_string();
            assert!(error.contains(message), "{arguments}: {error}");
        }
    }
}
