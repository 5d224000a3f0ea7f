//! `mpathctl upgrade`

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{Disk, ErrorCode, ErrorInfo, Status, Upgrade};

use crate::Failure;
use crate::output::Output;

/// How long the new process may take until it answers.
const TIME_MAX: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct Command {
    /// Upgrade although the new process reaches a disk over none of its paths, or a connected front-end loses its disk or gets another
    /// one
    #[arg(long)]
    force: bool,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let before = client.status()?.disks;
        let upgrade = client.upgrade(self.force)?;
        let after = wait_for(client, &upgrade)?.disks;
        Ok(output.print(&upgrade, |Upgrade { from_version, version, pid }| {
            let changes: String = before.iter().flat_map(|disk| changes(disk, &after)).collect();
            format!("upgraded from {from_version} to {version}, process {pid}\n{changes}")
        })?)
    }
}

/// The settings of a disk that the new process has otherwise, a line each.
fn changes(before: &Disk, after: &[Disk]) -> Vec<String> {
    let name = &before.name;
    let Some(after) = after.iter().find(|disk| disk.name == *name) else {
        return vec![format!("{name}: the configuration does not have this disk\n")];
    };
    let settings = [
        ("policy", before.policy.to_string(), after.policy.to_string()),
        ("weight", before.weight.to_string(), after.weight.to_string()),
        ("hedging", before.hedge.hedge.to_string(), after.hedge.hedge.to_string()),
    ];
    let changed = settings.into_iter().filter(|(_, before, after)| before != after);
    changed
        .map(|(setting, before, after)| format!("{name}: {setting} was {before}, and is {after} as configured\n"))
        .collect()
}

/// The new process has ended, and another daemon was started since.
fn another(status: &Status, upgrade: &Upgrade) -> ClientError {
    let message =
        format!("process {} was to take over, and process {} serves; see the daemon's log", upgrade.pid, status.pid);
    ClientError::Refused(ErrorInfo { code: ErrorCode::UpgradeFailed, message })
}

/// Waits until the new process answers, and returns its status.
fn wait_for(client: &Client, upgrade: &Upgrade) -> Result<Status, ClientError> {
    let deadline = Instant::now() + TIME_MAX;
    loop {
        match client.status() {
            Ok(status) if status.pid == upgrade.pid => return Ok(status),
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(status) if Instant::now() > deadline => return Err(another(&status, upgrade)),
            // The daemon that ends has answered, or has closed the connection.
            _ => thread::sleep(RETRY_INTERVAL),
        }
    }
}
