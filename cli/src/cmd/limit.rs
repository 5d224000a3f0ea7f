//! `mpathctl limit`

use clap::{Args, Subcommand};
use mpath_api::client::Client;
use mpath_api::types::{Disk, SetLimits, SetSettings};
use mpath_config::{LimitBandwidth, LimitBurst, LimitIops, LiveSetting};

use super::{DiskArg, OneOrAll, settings};
use crate::Failure;
use crate::output::{Column, Output, Table, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the limits of each disk and their balances
    ///
    /// LEFT is what may be sent at once. Below 0, more was sent, and requests wait until it is 0. THROTTLED is how long limits have kept
    /// requests waiting: the longest of all I/O threads.
    Show(DiskArg),
    /// Set limits of a disk; a limit that is not given keeps its value
    Set(Set),
    /// Remove all limits
    Clear(OneOrAll),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true, args = ["iops", "bandwidth", "burst"])]
pub(crate) struct Set {
    /// Requests per second, 1 to 1000000000, or off
    #[arg(long, value_name = "N")]
    iops: Option<LimitIops>,
    /// Bytes per second, 4KiB to 1TiB, or off
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<LimitBandwidth>,
    /// Burst that an idle disk may save up: what the limits allow in this time, 0ms to 3600s
    #[arg(long, value_name = "TIME")]
    burst: Option<LimitBurst>,
    #[command(flatten)]
    disks: OneOrAll,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let set = |limits: SetLimits, OneOrAll { disk, all }: &OneOrAll| {
            client.set(&SetSettings { disk: disk.clone(), all: *all, ..limits.into() })
        };
        let disks = match self {
            Self::Show(DiskArg { disk }) => client.disks_with(LiveSetting::Limits, disk.as_deref())?,
            Self::Set(Set { iops, bandwidth, burst, disks }) => {
                set(SetLimits { iops: *iops, bandwidth: *bandwidth, burst: *burst }, disks)?
            }
            Self::Clear(disks) => {
                let (iops, bandwidth) = (Some(LimitIops::default()), Some(LimitBandwidth::default()));
                set(SetLimits { iops, bandwidth, burst: None }, disks)?
            }
        };
        let keys = ["iops", "bandwidth", "burst", "balance-ios", "balance-bytes", "throttled-ms"];
        settings::print(output, &disks, &[LiveSetting::Limits], &keys, by_disk)
    }
}

fn by_disk(disks: &[Disk]) -> Table {
    let columns = [
        Column::Text("DISK"),
        Column::Number("IOPS"),
        Column::Number("BANDWIDTH"),
        Column::Number("BURST"),
        Column::Number("LEFT(ios)"),
        Column::Number("LEFT(KiB)"),
        Column::Number("THROTTLED(ms)"),
    ];
    let row = |Disk { name, limits: status, .. }: &Disk| {
        let status = status.as_ref();
        [
            name.clone(),
            or_dash(status.map(|status| status.limits.iops)),
            or_dash(status.map(|status| status.limits.bandwidth)),
            or_dash(status.map(|status| status.limits.burst)),
            or_dash(status.and_then(|status| status.balance_ios)),
            or_dash(status.and_then(|status| status.balance_bytes).map(|bytes| bytes >> 10)),
            or_dash(status.map(|status| status.throttled_ms)),
        ]
    };
    table(columns, disks.iter().map(row))
}
