//! `vublk-bench`: load, latency and data verification for any vhost-user-blk back-end.

use clap::Parser;
use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use vublk_bench::harness::{Failure, run_program};
use vublk_bench::options::{Options, Output};
use vublk_bench::report::json;
use vublk_bench::session;

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
    run_program("vublk-bench", |line: &Line, interrupted| {
        let on_terminal = stderr().is_terminal();
        let report = session::run(&line.options, interrupted, |progress| {
            if on_terminal {
                eprint!("\r\x1b[K{progress}");
            }
        });
        if on_terminal {
            eprint!("\r\x1b[K");
        }
        let report = report?;
        match line.output {
            Output::Table => print!("{}", report.table()),
            Output::Json => println!("{}", json(&report)),
        }
        match (report.ok, report.interrupted) {
            (false, _) => Err(Failure::Failed("the run has failed".to_owned())),
            (true, true) => Err(Failure::Interrupted),
            (true, false) => Ok(()),
        }
    })
}
