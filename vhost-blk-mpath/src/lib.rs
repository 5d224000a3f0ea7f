//! The daemon `vhost-blk-mpath`: virtio disks over several NVMe/TCP paths, for QEMU and any other vhost-user
//! front-end.
//!
//! Threads: the main thread is the control thread, with the API and the tasks of all paths. A front-end that says something
//! gets a thread for it. The I/O threads (crate `reactor`) move data.

mod args;
mod check;
mod clock;
mod configuration;
mod control;
mod diagnostics;
mod discovery;
mod disk;
mod disk_files;
mod events;
mod host;
mod host_stalls;
mod io_threads;
mod log;
mod log_limit;
mod metrics;
mod open_files;
mod path;
mod run;
mod saved_events;
mod service;
mod signals;
mod sockets;
mod subsystem;
#[cfg(test)]
mod tests;
mod transport;
mod upgrade;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mpath_config::completable;

use crate::args::Args;
use crate::log::Log;

/// The command line, for its manual page and completions.
#[must_use]
pub fn command_line() -> clap::Command {
    completable(Args::command())
}

/// Runs the daemon until it ends.
#[must_use]
pub fn main() -> ExitCode {
    if args::wants_capabilities() {
        // A reader that has closed its end wants no answer.
        let _ = writeln!(std::io::stdout(), "{}", args::CAPABILITIES);
        return ExitCode::SUCCESS;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::explain(&error),
    };
    if args.check {
        return check::check(args);
    }
    let log = Log::start(args.log_format());
    let mut predecessor = None;
    let configured = args.into_config(&mut predecessor);
    let ran = configured.and_then(|(config, given, sockets)| run::run(config, given, sockets, predecessor.as_mut()));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(predecessor) = &mut predecessor {
                predecessor.fail(error.to_string());
            }
            log.failure(&error);
            error.exit_code()
        }
    }
}
