//! `burst`: virtqueues that send bursts and others that keep a deep queue, on the daemon over real sockets, under every
//! scheduler. Rows: one flow with bursts; several, with and without a pause; the same over two I/O threads; two guests.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bench;
mod bursts;
mod cell;
mod guests;
mod load;
mod rows;
mod stalls;
mod tables;
mod targets;
mod timeline;

use clap::Parser;
use mpath_core::SchedulerKind;
use rows::Table;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use vublk_bench::harness::{EXIT_STATUS, Part, Writing, parse_seconds, publish, run_program};
use vublk_bench::stack::Programs;

/// In the order of the tables.
const SCHEDULERS: [SchedulerKind; 3] = [SchedulerKind::Fifo, SchedulerKind::Published, SchedulerKind::BurstCredit];

/// Measures every scheduler of the daemon side by side, by sockets and by two guests. Some virtqueues send bursts while
/// others keep a deep queue. Rewrites the published results: DOCS/results/burst.json, burst-guests.json, their pictures
/// and the sections of DOCS/scheduler-results.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// What to measure. Tables a, m and t have 3 rounds at the most
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',', default_value = "k,n,a,m,t,guests")]
    only: Vec<Table>,

    /// Schedulers to measure
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fifo,published,burst-credit")]
    schedulers: Vec<SchedulerKind>,

    /// How long a cell is measured, 4 seconds at least in tables a and m; the last burst that begins by then is waited for
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The program that measures with two guests
    #[arg(long, default_value = "guest-tests/burst/measure", value_name = "PATH")]
    measure: PathBuf,

    #[command(flatten)]
    writing: Writing,
}

impl CommandLine {
    /// The wanted schedulers, each once, in the order of the tables.
    fn schedulers(&self) -> Vec<SchedulerKind> {
        SCHEDULERS.into_iter().filter(|kind| self.schedulers.contains(kind)).collect()
    }
}

fn main() -> ExitCode {
    run_program("burst", |line: &CommandLine, interrupted| {
        let sockets = line.only.iter().any(|table| *table != Table::Guests);
        let guests = line.only.contains(&Table::Guests);
        let sockets = sockets.then(|| -> Part<'_> {
            (tables::PUBLICATION, Box::new(|machine| bench::measure_sockets(line, machine, interrupted)))
        });
        let guests = guests.then(|| -> Part<'_> {
            (guests::PUBLICATION, Box::new(|machine| guests::measure(line, machine, interrupted)))
        });
        publish(sockets.into_iter().chain(guests).collect(), &line.writing, None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_measured_in_the_order_of_the_tables() {
        let parse = |words: &str| CommandLine::try_parse_from(std::iter::once("burst").chain(words.split_whitespace()));
        let line = parse("--only n,k,t --schedulers burst-credit,fifo").unwrap();
        assert_eq!(line.schedulers(), [SchedulerKind::Fifo, SchedulerKind::BurstCredit]);
        assert_eq!(line.only, [Table::N, Table::K, Table::T]);
        let error = parse("--schedulers lifo").unwrap_err().to_string();
        assert!(error.contains("lifo"), "{error}");
    }
}
