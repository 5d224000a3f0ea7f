//! The daemon `vhost-blk-mpath`: virtio disks over several NVMe/TCP paths, for QEMU and any other vhost-user
//! front-end.
//!
//! Threads: the main thread is the control thread, with the API and the tasks of all paths. One thread for each disk
//! speaks vhost-user. The I/O threads (crate `reactor`) move data.

mod args;
mod control;
mod discovery;
mod disk;
mod events;
mod fence_record;
mod host;
mod io_threads;
mod open_files;
mod path;
mod run;
mod service;
mod signals;
mod sockets;
mod subsystem;
mod transport;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::args::Args;

fn main() -> ExitCode {
    if args::wants_capabilities() {
        // A reader that has closed its end wants no answer.
        let _ = writeln!(std::io::stdout(), "{}", args::CAPABILITIES);
        return ExitCode::SUCCESS;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return args::explain(&error),
    };
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // By default a log line that cannot be written is reported on stderr, which then panics. No guest may lose its
    // disk for that.
    log.log_internal_errors(false).init();
    match args.into_config().and_then(|(config, activation_sockets)| run::run(config, activation_sockets)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "vhost-blk-mpath: {error}");
            error.exit_code()
        }
    }
}
