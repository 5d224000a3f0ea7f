//! `mpathctl fence`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{ClearedFences, DiskFences, PathFence};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, Table, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List fences, guests that may come back, and lost writes that no flush has reported
    ///
    /// LEFT is the time until a fence lifts at the latest. The fences of paths that several disks share are listed under the disk that
    /// has the paths.
    List(DiskArg),
    /// Declare void what a disk keeps for a guest that cannot come back
    ///
    /// Make sure first that this guest has ended, or was reset: it must not go on with requests that it has sent. The socket may then
    /// serve another namespace, and refused paths are tried again. A front-end must not be connected.
    Clear {
        /// The disk
        #[arg(value_name = "DISK")]
        disk: String,
        /// Also clear what can lose data: a fence that has not passed, and lost writes. Old writes may overwrite newer data then, and
        /// no guest learns of the loss
        #[arg(long)]
        force: bool,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::List(DiskArg { disk }) => Ok(output.print(&client.fences(disk.as_deref())?, |all| for_people(all))?),
            Self::Clear { disk, force } => Ok(output.print(&client.clear_fences(disk, *force)?, cleared)?),
        }
    }
}

fn for_people(all: &[DiskFences]) -> Table {
    let columns = [
        Column::Text("DISK"),
        Column::Text("KIND"),
        Column::Text("PATH"),
        Column::LateText("SINCE(UTC)"),
        Column::Number("LEFT(s)"),
        Column::Long("MEANING"),
    ];
    table(columns, all.iter().flat_map(rows))
}

fn rows(of: &DiskFences) -> Vec<[String; 6]> {
    let row = |kind: &str, left: Option<u64>, meaning: String| {
        [of.disk.clone(), kind.into(), "-".into(), "-".into(), seconds(left), meaning]
    };
    let mut rows: Vec<_> = of.fences.iter().map(|fence| path_row(&of.disk, fence)).collect();
    rows.extend(of.inherited.as_ref().map(|fence| {
        let whose = fence.removed_disk.as_ref().map_or_else(
            || "the earlier daemon or disk of this socket".into(),
            |disk| format!("the removed disk {disk}"),
        );
        row("inherited", Some(fence.ends_in_ms), format!("requests wait for writes of {whose}"))
    }));
    rows.extend(of.guest_of.as_ref().map(|namespace| {
        row("guest", None, format!("may come back with unanswered requests; only {namespace} is served"))
    }));
    let told = || row("lost writes", None, "the guest's next flush fails".into());
    rows.extend(of.lost_writes.then(told));
    rows
}

fn path_row(disk: &str, fence: &PathFence) -> [String; 6] {
    let lifts: Vec<_> = fence.lifts_by.iter().map(ToString::to_string).collect();
    [
        disk.into(),
        "path".into(),
        or_dash(fence.path.as_ref().map(|path| &path.address)),
        fence.since.clone(),
        seconds(fence.ends_in_ms),
        format!("its writes in doubt wait; lifted by {}", lifts.join(" or ")),
    ]
}

fn seconds(ms: Option<u64>) -> String {
    or_dash(ms.map(|ms| ms.div_ceil(1000)))
}

fn cleared(of: &ClearedFences) -> String {
    let parts: Vec<_> = of.cleared.iter().map(ToString::to_string).collect();
    if parts.is_empty() {
        format!("{}: nothing to clear\n", of.disk)
    } else {
        format!("{}: cleared: {}\n", of.disk, parts.join(", "))
    }
}
