//! `mpathctl status`

use std::time::Duration;

use mpath_api::client::Client;
use mpath_api::types::{Disk, Status};

use crate::Failure;
use crate::output::{Column, Output, table};

pub(crate) fn show(client: &Client, output: &mut Output) -> Result<(), Failure> {
    Ok(output.print(&client.status()?, for_people)?)
}

fn for_people(status: &Status) -> String {
    let uptime = humantime::format_duration(Duration::from_secs(status.uptime_s));
    let head = format!("vhost-blk-mpath {}, pid {}, up {uptime}\n\n", status.version, status.pid);
    head + &table_of(&status.disks)
}

/// Disks, one a line.
pub(super) fn table_of(disks: &[Disk]) -> String {
    let columns = [
        Column::Text("DISK"),
        Column::Text("GUEST"),
        Column::Text("POLICY"),
        Column::Number("LIVE"),
        Column::Number("PATHS"),
        Column::Number("QUEUED"),
        Column::Number("SIZE(MiB)"),
        Column::Number("BLOCK(B)"),
        Column::Text("MODE"),
        Column::Text("SOCKET"),
    ];
    table(columns, disks.iter().map(row))
}

fn row(disk: &Disk) -> [String; 10] {
    [
        disk.name.clone(),
        if disk.connected { "connected" } else { "-" }.into(),
        disk.policy.to_string(),
        disk.paths.live.to_string(),
        match &disk.shares_paths_of {
            Some(owner) => format!("{} of {owner}", disk.paths.total),
            None => disk.paths.total.to_string(),
        },
        disk.queued.to_string(),
        (disk.capacity_bytes >> 20).to_string(),
        disk.block_size_bytes.to_string(),
        if disk.read_only { "ro" } else { "rw" }.into(),
        disk.socket.clone(),
    ]
}
