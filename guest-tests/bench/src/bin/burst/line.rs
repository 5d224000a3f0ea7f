//! The command line.

use crate::guests;
use crate::plan::Plan;
use crate::row::Table;
use clap::{Parser, ValueEnum};
use mpath_core::SchedulerKind;
use std::path::PathBuf;
use std::time::Duration;
use vublk_bench::stack::Programs;
use vublk_bench::units::{UnitError, parse_duration, parse_seconds};

/// In the order of the tables.
pub(crate) const SCHEDULERS: [SchedulerKind; 3] =
    [SchedulerKind::Fifo, SchedulerKind::Published, SchedulerKind::BurstCredit];

/// Half of the service.
const LONGEST_JITTER: Duration = Duration::from_millis(5);

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Bursts of 32 against K busy flows
    K,
    /// Bursts of N against 16 busy flows
    N,
    /// Attackers that send bursts without a pause, against 16 busy flows, and a victim
    A,
    /// m interactive flows at once against 16 busy ones
    M,
    /// One I/O thread beside two, and a limit over both
    T,
    /// Two guests, one with bursts
    Guests,
}

impl From<Table> for Part {
    fn from(table: Table) -> Self {
        match table {
            Table::K => Self::K,
            Table::N => Self::N,
            Table::A => Self::A,
            Table::M => Self::M,
        }
    }
}

/// Measures every scheduler of the daemon side by side, virtqueues that send bursts beside others that keep a deep
/// queue, by sockets and by two guests, and rewrites the published results: DOCS/results/burst.json, burst-guests.json,
/// their pictures and the sections of DOCS/scheduler-results.md.
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

    /// What to measure
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',', default_value = "k,n,a,m,t,guests")]
    only: Vec<Part>,

    /// Schedulers to measure
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fifo,published,burst-credit")]
    schedulers: Vec<SchedulerKind>,

    /// Rounds; the median of them is published. Tables a, m, t have 3 at the most
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured, 4 seconds at least in tables a and m; a burst that has begun by then is waited for
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The same with two guests
    #[arg(long, default_value = "4", value_name = "SECONDS", value_parser = parse_seconds)]
    guest_seconds: Duration,

    /// How far the service of 10 ms varies either way, at random; up to 5ms
    #[arg(long, default_value = "1ms", value_name = "TIME", value_parser = parse_jitter)]
    jitter: Duration,

    /// Makes pauses and offsets over sockets repeatable
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// The program that measures with two guests
    #[arg(long, default_value = "guest-tests/burst/measure", value_name = "PATH")]
    pub(crate) measure: PathBuf,

    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    pub(crate) docs: PathBuf,
}

/// What is wrong with `--jitter`.
#[derive(Debug, thiserror::Error)]
enum JitterError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("must be 5ms at the most")]
    TooLong,
}

fn parse_jitter(text: &str) -> Result<Duration, JitterError> {
    let jitter = parse_duration(text)?;
    if jitter > LONGEST_JITTER { Err(JitterError::TooLong) } else { Ok(jitter) }
}

impl Line {
    pub(crate) fn plan(&self) -> Plan {
        let Self { rounds, seconds, jitter, seed, .. } = *self;
        let threads = self.only.contains(&Part::T);
        Plan { tables: self.tables(), threads, schedulers: self.schedulers(), rounds, seconds, jitter, seed }
    }

    pub(crate) fn guests(&self) -> guests::Plan {
        guests::Plan::new(&self.schedulers(), self.rounds, self.guest_seconds)
    }

    /// Anything but guests.
    pub(crate) fn has_sockets(&self) -> bool {
        self.only.iter().any(|part| *part != Part::Guests)
    }

    pub(crate) fn has_guests(&self) -> bool {
        self.only.contains(&Part::Guests)
    }

    fn tables(&self) -> Vec<Table> {
        Table::ALL.into_iter().filter(|table| self.only.contains(&Part::from(*table))).collect()
    }

    fn schedulers(&self) -> Vec<SchedulerKind> {
        SCHEDULERS.into_iter().filter(|kind| self.schedulers.contains(kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &str) -> Result<Line, clap::Error> {
        Line::try_parse_from(std::iter::once("burst").chain(arguments.split_whitespace()))
    }

    fn plan(arguments: &str) -> Result<Plan, clap::Error> {
        line(arguments).map(|line| line.plan())
    }

    #[test]
    fn defaults() {
        let plan = plan("").unwrap();
        assert_eq!((plan.tables, plan.rounds, plan.seconds), (Table::ALL.into(), 5, Duration::from_secs(2)));
        assert_eq!((plan.schedulers, plan.threads), (SCHEDULERS.into(), true));
        assert_eq!(plan.jitter, Duration::from_millis(1), "an exact service comes to lock step");
    }

    #[test]
    fn a_part_in_its_own_order() {
        let plan =
            plan("--only n,n --schedulers burst-credit,fifo --rounds 1 --seconds 0.2 --jitter 2ms --seed 7").unwrap();
        assert_eq!((plan.tables, plan.rounds, plan.seconds), (vec![Table::N], 1, Duration::from_millis(200)));
        assert_eq!(plan.schedulers, [SchedulerKind::Fifo, SchedulerKind::BurstCredit]);
        assert_eq!((plan.jitter, plan.seed, plan.threads), (Duration::from_millis(2), 7, false));
        assert_eq!(line("--only m,a,t").unwrap().plan().tables, [Table::A, Table::M]);
    }

    #[test]
    fn guests_with_or_without_the_tables() {
        let parts = |arguments| line(arguments).map(|line| (line.has_sockets(), line.has_guests())).unwrap();
        assert_eq!(
            (parts(""), parts("--only guests"), parts("--only k"), parts("--only t")),
            ((true, true), (false, true), (true, false), (true, false))
        );
        let plan =
            line("--only guests --schedulers burst-credit,fifo --rounds 2 --guest-seconds 3.5").unwrap().guests();
        assert_eq!((plan.schedulers.join(" "), plan.rounds), ("fifo burst-credit".to_owned(), 2));
        assert!((plan.seconds - 3.5).abs() < 1e-9);
    }

    #[test]
    fn bad_values_are_named() {
        for (arguments, message) in [
            ("--only x", "invalid value 'x' for '--only <PARTS>'"),
            ("--schedulers cfq", "unknown scheduler 'cfq'"),
            ("--jitter 6ms", "must be 5ms at the most"),
            ("--seconds 0", "must be from 0.1 to 600"),
            ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
        ] {
            let error = plan(arguments).unwrap_err().to_string();
            assert!(error.contains(message), "{arguments}: {error}");
        }
    }
}
