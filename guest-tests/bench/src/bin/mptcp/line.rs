//! The command line.

use clap::Parser;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use vublk_bench::units::parse_seconds;

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Table {
    /// One, two and four equal links
    A,
    /// Links of 200 and 50 Mbit/s
    B,
    /// Links that lose packets
    C,
    /// A link that is lost, and returns
    D,
}

/// Measures TCP multipath, MPTCP and both together over links of the network lab, beside plain sockets, and rewrites
/// the published results: DOCS/results/mptcp.json, mptcp.svg and the section of DOCS/mptcp.md.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 measured and written; 1 the results could not be written; 2 bad options; \
    3 something could not be started or ended, or was not what it claims to be; 130 interrupted, nothing written."
)]
pub(crate) struct Line {
    /// What to measure; the section then has nothing else
    #[arg(long, value_name = "TABLES", value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    only: Vec<Table>,

    /// Rounds; the median of them is published
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell of tables a, b and c is measured; 0.8 s run before
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The program that measures
    #[arg(long, default_value = "guest-tests/mptcp/measure", value_name = "PATH")]
    pub(crate) measure: PathBuf,

    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    pub(crate) docs: PathBuf,
}

/// Until slow start and policies are done with.
const WARM_UP: Duration = Duration::from_millis(800);

/// A run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    #[serde(skip)]
    only: Vec<Table>,
    pub(crate) rounds: u16,
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
}

impl Line {
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            only: self.only.clone(),
            rounds: self.rounds,
            seconds: self.seconds.as_secs_f64(),
            warm_up_seconds: WARM_UP.as_secs_f64(),
        }
    }
}

impl Plan {
    /// Of the program that measures.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let tables: Vec<String> =
            self.only.iter().filter_map(|table| Some(table.to_possible_value()?.get_name().to_owned())).collect();
        let words = [
            ("--only", tables.join(",")),
            ("--rounds", self.rounds.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--warm-up", self.warm_up_seconds.to_string()),
        ];
        words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(line: &str) -> Plan {
        Line::try_parse_from(std::iter::once("mptcp").chain(line.split_whitespace())).unwrap().plan()
    }

    #[test]
    fn the_program_is_told_everything() {
        let arguments = |line: &str| plan(line).arguments().join(" ");
        assert_eq!(arguments(""), "--only a,b,c,d --rounds 3 --seconds 2 --warm-up 0.8");
        let some = arguments("--only d,b --rounds 1 --seconds 0.5");
        assert_eq!(some, "--only d,b --rounds 1 --seconds 0.5 --warm-up 0.8");
    }

    #[test]
    fn bad_values_are_named() {
        for (arguments, message) in [
            ("--seconds 0", "must be from 0.1 to 600"),
            ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
            ("--only e", "invalid value 'e' for '--only <TABLES>'"),
        ] {
            let error = Line::try_parse_from(std::iter::once("mptcp").chain(arguments.split_whitespace())).unwrap_err();
            assert!(error.to_string().contains(message), "{arguments}: {error}");
        }
    }
}
