//! `vublk-bench`: load, latency and data verification for any vhost-user-blk back-end.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

use clap::Parser;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use vublk_bench::options::{Options, Output};
use vublk_bench::session::{self, Progress, RunError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_NO_CONNECTION: u8 = 3;

/// Drives a vhost-user-blk back-end without a guest: measures a fixed load, or verifies every byte of a random one.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: 0 all well; 1 I/O errors, wrong data, lost or doubly completed requests; \
    2 bad options, or options that do not fit the disk; 3 cannot connect; 130 interrupted, nothing wrong up to then."
)]
struct Line {
    #[command(flatten)]
    options: Options,

    /// Format of the results on stdout
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// A line of progress each second on stderr [default: if that is a terminal]
    #[arg(long)]
    progress: bool,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let interrupted = match signals::interrupted() {
        Ok(interrupted) => interrupted,
        Err(error) => {
            eprintln!("vublk-bench: cannot handle signals: {error}");
            return EXIT_FAILED.into();
        }
    };
    let on_terminal = stderr().is_terminal();
    let report = session::run(&line.options, &interrupted, |progress| {
        if on_terminal || line.progress {
            show(&progress, on_terminal);
        }
    });
    if on_terminal {
        eprint!("\r\x1b[K");
    }
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            eprintln!("vublk-bench: {error}");
            return match error {
                RunError::Options(_) => EXIT_USAGE.into(),
                RunError::Connect(_) => EXIT_NO_CONNECTION.into(),
            };
        }
    };
    match line.output {
        Output::Table => print!("{}", report.table()),
        Output::Json => match serde_json::to_string_pretty(&report) {
            Ok(json) => println!("{json}"),
            Err(error) => {
                eprintln!("vublk-bench: cannot write the results: {error}");
                return EXIT_FAILED.into();
            }
        },
    }
    match (report.ok, report.interrupted) {
        (false, _) => EXIT_FAILED.into(),
        (true, true) => EXIT_INTERRUPTED.into(),
        (true, false) => ExitCode::SUCCESS,
    }
}

fn show(progress: &Progress, on_terminal: bool) {
    let seconds = progress.interval.as_secs_f64();
    let iops = progress.completed as f64 / seconds;
    let mib = progress.bytes as f64 / 1_048_576.0 / seconds;
    let (start, end) = if on_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
    let wrong = match (progress.errors, progress.miscompares) {
        (0, 0) => String::new(),
        (errors, miscompares) => format!(", {errors} errors, {miscompares} miscompares"),
    };
    eprint!("{start}{:4} s: {iops:.0} IOPS, {mib:.1} MiB/s{wrong}{end}", progress.elapsed.as_secs());
}
