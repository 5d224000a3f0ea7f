//! `mpathctl status`

use std::time::Duration;

use mpath_api::client::Client;
use mpath_api::types::{Condition, Disk, DiskState, GuestErrorReason, REMOVING_MAX, Status};

use super::tree;
use crate::Failure;
use crate::output::{Column, Output, Text, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Show subsystems, their disks and the paths of each as a tree
    ///
    /// A path has its state, the ANA state of the disk's namespace, and its share of the I/Os in the last minute. Counters of paths that
    /// several disks use are those of all of them. -o json has the same tree.
    #[arg(long)]
    tree: bool,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let status = client.status()?;
        if self.tree {
            let paths = client.paths(None)?;
            return Ok(output.print(&tree::tree(&status, &paths), |subsystems| tree::for_people(subsystems))?);
        }
        Ok(output.print(&status, for_people)?)
    }
}

fn for_people(status: &Status) -> Text {
    let uptime = humantime::format_duration(Duration::from_secs(status.uptime_s));
    let head = format!("vhost-blk-mpath {}, pid {}, up {uptime}\n\n", status.version, status.pid);
    Text::from(head).then(table_of(&status.disks))
}

/// Disks, one per line, then notes on disks that are being removed, and the reasons of their conditions.
pub(super) fn table_of(disks: &[Disk]) -> Text {
    let columns = [
        Column::Text("DISK"),
        Column::State("CONDITION"),
        Column::Text("GUEST"),
        Column::Text("POLICY"),
        Column::Number("USABLE"),
        Column::Number("PATHS"),
        Column::Number("QUEUED"),
        Column::SpareNumber("SIZE(MiB)"),
        Column::SpareNumber("BLOCK(B)"),
        Column::SpareText("MODE"),
        Column::SpareText("SOCKET"),
    ];
    let table = Text::from(table(columns, disks.iter().map(row)));
    let removing = disks.iter().filter_map(|disk| Some(format!("{}: REMOVING: {}\n", disk.name, removing(disk)?)));
    let of_disk = |disk| {
        reasons(disk).chain(out_of_use(disk)).chain(medium_errors(disk)).map(move |reason| (&*disk.name, reason))
    };
    let reasons =
        merged(disks.iter().flat_map(of_disk)).into_iter().map(|(disks, reason)| format!("{disks}: {reason}\n"));
    let notes: Vec<_> = removing.chain(reasons).collect();
    if notes.is_empty() { table } else { table.then(format!("\n{}", notes.concat())) }
}

/// The reasons of the conditions of disks, each once, with its disks.
pub(super) fn merged_reasons(disks: &[Disk]) -> impl Iterator<Item = (String, String)> {
    let of_disk = |disk| reasons(disk).map(move |reason| (&*disk.name, reason));
    merged(disks.iter().flat_map(of_disk)).into_iter()
}

/// Each reason once, with its disks: disks over the same paths often have the same.
fn merged<'a>(reasons: impl Iterator<Item = (&'a str, String)>) -> Vec<(String, String)> {
    let mut merged: Vec<(String, String)> = Vec::new();
    for (disk, reason) in reasons {
        match merged.iter_mut().find(|(_, other)| *other == reason) {
            Some((disks, _)) => disks.extend([", ", disk]),
            None => merged.push((disk.into(), reason)),
        }
    }
    merged
}

/// The paths that operators keep from use. They are no condition of the disk.
fn out_of_use(disk: &Disk) -> Option<String> {
    let count = disk.path_counts.total.saturating_sub(disk.path_counts.expected);
    (count > 0).then(|| format!("paths that are drained, disabled or being removed: {count}"))
}

/// The errors of the medium that the guest got. They are no condition of the disk.
fn medium_errors(disk: &Disk) -> Option<String> {
    let of_medium = || disk.health.guest_errors.iter().filter(|of| of.reason == GuestErrorReason::Medium);
    let (count, last) = (of_medium().map(|of| of.count).sum::<u64>(), of_medium().map(|of| &of.last_at).max()?);
    Some(format!("medium errors: the guest got {count} so far, the last at {last}"))
}

/// The note on a disk that is being removed.
pub(super) fn removing(disk: &Disk) -> Option<String> {
    let within = REMOVING_MAX.as_secs();
    (disk.state == DiskState::Removing).then(|| {
        format!(
            "the daemon closes its front-ends' connections; the disk is gone within {within} s, and its name and socket are free after that"
        )
    })
}

/// The reasons of a disk's condition. A missing front-end shows in the table.
pub(super) fn reasons(disk: &Disk) -> impl Iterator<Item = String> {
    let reasons = disk.health.reasons.iter().filter(|reason| reason.condition != Condition::NoFrontEnd);
    reasons.map(|reason| format!("{}: {}", reason.condition, reason.message))
}

fn row(disk: &Disk) -> [String; 11] {
    [
        disk.name.clone(),
        disk.health.condition.to_string(),
        match disk.state {
            DiskState::Removing => "removing",
            DiskState::Starting => "starting",
            DiskState::Served if disk.connected => "connected",
            DiskState::Served => "-",
        }
        .into(),
        disk.policy.to_string(),
        disk.path_counts.usable.to_string(),
        match &disk.shares_paths_of {
            Some(owner) => format!("{} of {owner}", disk.path_counts.total),
            None => disk.path_counts.total.to_string(),
        },
        disk.queued.to_string(),
        (disk.capacity_bytes >> 20).to_string(),
        disk.block_size_bytes.to_string(),
        if disk.read_only { "ro" } else { "rw" }.into(),
        disk.socket_path.clone(),
    ]
}
