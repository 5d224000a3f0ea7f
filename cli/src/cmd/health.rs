//! `mpathctl health`

use mpath_api::client::Client;
use mpath_api::types::{Condition, Disk};

use super::{DiskArg, status};
use crate::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    #[command(flatten)]
    disk: DiskArg,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let disks = match client.disks(self.disk.disk.as_deref()) {
            Ok(disks) => disks,
            Err(error) => return Err(Failure::Unwell(Unwell::Unknown, Some(error))),
        };
        output.print(&disks, |disks| line(disks))?;
        match disks.iter().flat_map(conditions).max() {
            None | Some(Condition::Ok) => Ok(()),
            Some(Condition::Degraded) => Err(Failure::Unwell(Unwell::Degraded, None)),
            Some(_) => Err(Failure::Unwell(Unwell::Worse, None)),
        }
    }
}

/// The verdict for monitors, with the exit codes of monitoring plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unwell {
    /// Warning: a disk is degraded.
    Degraded = 1,
    /// Critical: a disk is waiting, held or failing.
    Worse = 2,
    /// Unknown: no daemon answers, or the disk is unknown.
    Unknown = 3,
}

/// The conditions of a disk. A disk without a front-end has no guest that could notice, so this counts as none.
fn conditions(disk: &Disk) -> impl Iterator<Item = Condition> {
    disk.health.reasons.iter().map(|reason| reason.condition).filter(|condition| *condition != Condition::NoFrontEnd)
}

/// One line for people and for monitors.
fn line(disks: &[Disk]) -> String {
    let reasons: Vec<_> = status::merged_reasons(disks).map(|(disks, reason)| format!("{disks}: {reason}")).collect();
    match (reasons.is_empty(), disks.len()) {
        (true, 1) => "ok: 1 disk\n".into(),
        (true, count) => format!("ok: {count} disks\n"),
        (false, _) => reasons.join("; ") + "\n",
    }
}
