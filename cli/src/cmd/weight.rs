//! `mpathctl weight`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{Disk, SetSettings};
use mpath_config::{LiveSetting, Weight};

use super::{DiskArg, OneOrAll, settings};
use crate::Failure;
use crate::output::{Column, Output, Table, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the weight of each disk, and the disk that has the paths
    List(DiskArg),
    /// Set the weight of a disk; it applies from the next request on
    Set {
        /// Share among the disks over the same paths, 1 to 1000
        weight: Weight,
        #[command(flatten)]
        disks: OneOrAll,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let disks = match self {
            Self::List(DiskArg { disk }) => client.disks_with(LiveSetting::Weight, disk.as_deref())?,
            Self::Set { weight, disks: OneOrAll { disk, all } } => {
                let (disk, weight) = (disk.clone(), Some(*weight));
                client.set(&SetSettings { disk, all: *all, weight, ..SetSettings::default() })?
            }
        };
        settings::print(output, &disks, &[LiveSetting::Weight], &["weight", "shares-paths-of"], by_disk)
    }
}

fn by_disk(disks: &[Disk]) -> Table {
    let row = |Disk { name, weight, shares_paths_of, .. }: &Disk| {
        let paths_of = shares_paths_of.as_ref().unwrap_or(name);
        [name.clone(), weight.to_string(), paths_of.clone()]
    };
    table([Column::Text("DISK"), Column::Number("WEIGHT"), Column::Text("PATHS OF")], disks.iter().map(row))
}
