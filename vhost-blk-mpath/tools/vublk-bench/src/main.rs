//! `vublk-bench`: load, latency and data verification for any vhost-user-blk back-end.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use vublk_bench::harness::{Failure, run_program};
use vublk_bench::options::{Line, Output};
use vublk_bench::report::json;
use vublk_bench::session;

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
