//! `mpathctl upgrade`

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{ErrorCode, ErrorInfo, Status, Upgrade};

use crate::Failure;
use crate::output::Output;

/// How long the new process may take until it answers.
const TIME_MAX: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct Command {
    /// Upgrade although the new process reaches a disk over none of its paths or cannot use its metrics address, or a connected
    /// front-end loses its disk or gets another one
    #[arg(long)]
    force: bool,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let upgrade = client.upgrade(self.force)?;
        wait_for(client, &upgrade)?;
        Ok(output.print(&upgrade, |Upgrade { from_version, version, pid }| {
            format!("upgraded from {from_version} to {version}, process {pid}\n")
        })?)
    }
}

/// The error if another process serves than the one that was to take over.
fn another(status: &Status, upgrade: &Upgrade) -> ClientError {
    let message =
        format!("process {} was to take over, and process {} serves; see the daemon's log", upgrade.pid, status.pid);
    ClientError::Refused(ErrorInfo { code: ErrorCode::UpgradeFailed, message })
}

/// Waits until the new process answers.
fn wait_for(client: &Client, upgrade: &Upgrade) -> Result<(), ClientError> {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        match client.status() {
            Ok(status) if status.pid == upgrade.pid => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(status) if Instant::now() > deadline => return Err(another(&status, upgrade)),
            // The daemon that ends has answered, or has closed the connection.
            _ => thread::sleep(RETRY_INTERVAL),
        }
    }
}
