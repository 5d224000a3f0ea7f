//! The commands, one noun a file.

mod config;
mod discovery;
mod disk;
mod events;
mod hedge;
mod inject;
mod limit;
mod mptcp;
mod parameter;
mod path;
mod path_show;
mod policy;
mod policy_show;
mod scheduler;
mod status;
mod weight;

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::Disk;

pub(crate) use self::disk::SocketError;
use crate::Failure;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the daemon and its disks
    Status,
    /// Show disks; add and remove them
    #[command(subcommand)]
    Disk(disk::Command),
    /// Show paths and their statistics; add and remove them; take them out of use and back into it
    #[command(subcommand)]
    Path(path::Command),
    /// Show the discovery controllers that disks learn paths from
    #[command(subcommand)]
    Discovery(discovery::Command),
    /// Make configurations; needs no daemon
    #[command(subcommand)]
    Config(config::Command),
    /// Show or switch path selection policies, also while I/O runs
    #[command(subcommand)]
    Policy(policy::Command),
    /// Show or change which slow reads are sent a second time, also while I/O runs
    #[command(subcommand)]
    Hedge(hedge::Command),
    /// Show or switch schedulers, which give virtqueues their turns, also while I/O runs
    #[command(subcommand)]
    Scheduler(scheduler::Command),
    /// Show or change what disks may do in a second, also while I/O runs
    #[command(subcommand)]
    Limit(limit::Command),
    /// Show or change the parts that disks have of the service of paths they share, also while I/O runs
    #[command(subcommand)]
    Weight(weight::Command),
    /// Impair paths on purpose, to see what a policy makes of it
    #[command(subcommand)]
    Inject(inject::Command),
    /// See whether this host is set up for MPTCP; keep endpoints in step with their links; needs no daemon
    #[command(subcommand)]
    Mptcp(mptcp::Command),
    /// Show what has happened: paths, ANA states, fences, front-ends, and what operators did
    ///
    /// The daemon keeps the last 1024 events, and numbers them from its start on.
    Events(events::Command),
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Status => status::show(client, output),
            Self::Disk(command) => command.run(client, output),
            Self::Path(command) => command.run(client, output),
            Self::Config(command) => command.run(),
            Self::Discovery(command) => command.run(client, output),
            Self::Policy(command) => command.run(client, output),
            Self::Hedge(command) => command.run(client, output),
            Self::Scheduler(command) => command.run(client, output),
            Self::Limit(command) => command.run(client, output),
            Self::Weight(command) => command.run(client, output),
            Self::Inject(command) => command.run(client, output),
            Self::Mptcp(command) => command.run(output),
            Self::Events(command) => command.run(client, output),
        }
    }
}

/// Narrows a command to one disk.
#[derive(Debug, clap::Args)]
pub(crate) struct DiskArg {
    /// Only this disk; every disk if left out
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

/// The disk named, or the only one there is of those that can be meant.
fn the_only_disk(
    client: &Client,
    named: Option<&String>,
    can_be_meant: impl Fn(&Disk) -> bool,
) -> Result<String, Failure> {
    if let Some(disk) = named {
        return Ok(disk.clone());
    }
    let mut disks = client.status()?.disks.into_iter().filter(can_be_meant).map(|disk| disk.name);
    match (disks.next(), disks.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Failure::WhichDisk),
    }
}
