//! The commands, one file per noun.

mod config;
mod discovery;
mod disk;
mod events;
mod explain;
mod fence;
mod health;
mod hedge;
mod history;
mod history_picture;
mod inject;
mod last_change;
mod limit;
mod mptcp;
mod parameter;
mod path;
mod path_show;
mod policy;
mod policy_show;
mod scheduler;
mod settings;
mod slow;
mod status;
mod top;
mod tree;
mod upgrade;
mod weight;

use std::sync::Arc;

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::Disk;

pub(crate) use self::config::SaveError;
pub(crate) use self::disk::RelativePathError;
pub(crate) use self::health::Unwell;
pub(crate) use self::inject::injection_line;
pub(crate) use self::path::{injected, state};
use crate::Failure;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the daemon and its disks
    Status(status::Command),
    /// Show disks, paths and virtqueues live, and change them by keys
    ///
    /// `?` shows the keys. The disks are sorted by condition, the worst first. Latencies, IOPS and shares are those of the last second.
    /// The terminal needs at least 80 columns and 24 rows. A larger one shows more.
    Top(top::Command),
    /// Show, add and remove disks
    #[command(subcommand)]
    Disk(disk::Command),
    /// Show, add, remove, drain, disable, enable and reset paths
    ///
    /// Without --disk, a command applies to such a path of every disk. `path add` adds to one disk.
    #[command(subcommand)]
    Path(path::Command),
    /// Show discovery controllers
    #[command(subcommand)]
    Discovery(discovery::Command),
    /// Explain which path the next read and write of a disk would take, why not the others, and what its requests wait for
    ///
    /// The answer comes from the code that chooses, and changes nothing. Each I/O thread has windows and estimates of its own, so each
    /// is shown. BUSY are I/Os in flight on the path. BEHIND are virtqueues with a request that goes first.
    Explain(explain::Command),
    /// Show the slowest requests of the last five minutes, and where their time went
    ///
    /// At most 16 of each 10 s and I/O thread are kept. STAGES are those that took at least a hundredth of the time, the longest first.
    /// PATHS are all paths that got the request. TRIES are attempts.
    Slow(slow::Command),
    /// Show the last two days of a disk, minute by minute: what its guest felt, and whose fault it was
    ///
    /// The daemon keeps the minutes in a file next to the disk's socket, also over restarts and upgrades. A minute without requests is
    /// left out. LONG REQUESTS has the stages of requests of 10 ms and more. HOST is the time for which the host did not run the I/O
    /// threads.
    History(history::Command),
    /// Say in a line whether all is well, for monitors: exit code 0 ok, 1 degraded, 2 worse, 3 unknown
    ///
    /// Worse are the conditions waiting, held and failing. A disk without a front-end is as good as its paths.
    Health(health::Command),
    /// Show, compare, reload and save the daemon's configuration; check and make files
    #[command(subcommand)]
    Config(config::Command),
    /// Show or set policies, which pick the path of a request
    #[command(subcommand)]
    Policy(policy::Command),
    /// Show or set hedging, which sends slow reads a second time over another path
    #[command(subcommand)]
    Hedge(hedge::Command),
    /// Show or set schedulers, which pick the virtqueue that is served next
    #[command(subcommand)]
    Scheduler(scheduler::Command),
    /// Show or set limits of requests and bytes per second
    #[command(subcommand)]
    Limit(limit::Command),
    /// Show or set weights, the shares of disks over the same paths
    #[command(subcommand)]
    Weight(weight::Command),
    /// Impair paths on purpose, for tests
    #[command(subcommand)]
    Inject(inject::Command),
    /// Show what disks wait for or keep because of earlier writes, and clear it
    #[command(subcommand)]
    Fence(fence::Command),
    /// Check the MPTCP setup of this host; delete and add endpoints as links go down and up; needs no daemon
    #[command(subcommand)]
    Mptcp(mptcp::Command),
    /// Start the daemon's program anew, and hand disks and sockets over to it
    ///
    /// The new process reads the configuration, and tries to reach each disk. Only then does the old one end. If the new process fails
    /// before, the old one goes on. Guests reconnect, and none of their requests is lost.
    ///
    /// Settings made by mpathctl are gone, as after a restart, unless `config save` wrote them into the file: paths, disks, limits,
    /// weights, policies, hedging, schedulers. Injections are gone too.
    ///
    /// Ctrl-C ends mpathctl. The upgrade goes on: `mpathctl events` and the daemon's log say how it ends.
    Upgrade(upgrade::Command),
    /// Show events of paths, ANA states, fences and front-ends, and actions of operators
    ///
    /// The daemon keeps the last 1024 events, also over a restart and an upgrade. BY is the client of the API: its user, the user who
    /// logged in, its process and its program. -o json has its command and its systemd unit too.
    Events(events::Command),
}

impl Command {
    pub(crate) fn run(&self, client: &Arc<Client>, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Status(command) => command.run(client, output),
            Self::Top(command) => command.run(client),
            Self::Disk(command) => command.run(client, output),
            Self::Path(command) => command.run(client, output),
            Self::Config(command) => command.run(client, output),
            Self::Discovery(command) => command.run(client, output),
            Self::Policy(command) => command.run(client, output),
            Self::Hedge(command) => command.run(client, output),
            Self::Scheduler(command) => command.run(client, output),
            Self::Limit(command) => command.run(client, output),
            Self::Weight(command) => command.run(client, output),
            Self::Inject(command) => command.run(client, output),
            Self::Fence(command) => command.run(client, output),
            Self::Mptcp(command) => command.run(output),
            Self::Events(command) => command.run(client, output),
            Self::Explain(command) => command.run(client, output),
            Self::Upgrade(command) => command.run(client, output),
            Self::Slow(command) => command.run(client, output),
            Self::History(command) => command.run(client, output),
            Self::Health(command) => command.run(client, output),
        }
    }
}

/// The option that limits a command to one disk.
#[derive(Debug, clap::Args)]
pub(crate) struct DiskArg {
    /// Only this disk [default: every disk]
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

/// The options that say which disks a change is meant for.
#[derive(Debug, clap::Args)]
pub(crate) struct OneOrAll {
    /// Only this disk [default: the only disk]
    #[arg(long, value_name = "DISK", conflicts_with = "all")]
    disk: Option<String>,
    /// Every disk
    #[arg(long)]
    all: bool,
}

/// The named disk, or the only one that `is_candidate`.
fn the_only_disk(
    client: &Client,
    named: Option<&String>,
    is_candidate: impl Fn(&Disk) -> bool,
) -> Result<String, Failure> {
    if let Some(disk) = named {
        return Ok(disk.clone());
    }
    let mut disks = client.status()?.disks.into_iter().filter(is_candidate).map(|disk| disk.name);
    match (disks.next(), disks.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(Failure::AmbiguousDisk),
    }
}

/// Microseconds as milliseconds.
fn ms(us: u64) -> String {
    // Beyond 2^52 us the second decimal may be wrong.
    #[allow(clippy::cast_precision_loss)]
    let ms = us as f64 / 1e3;
    format!("{ms:.2}")
}
