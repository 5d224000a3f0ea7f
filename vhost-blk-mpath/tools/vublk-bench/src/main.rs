//! `vublk-bench`: load, latency and data verification for any vhost-user-blk back-end.

use clap::Parser;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use vublk_bench::options::{Options, Output};
use vublk_bench::session::{self, RunError};
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
        if on_terminal {
            eprint!("\r\x1b[K{progress}");
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
