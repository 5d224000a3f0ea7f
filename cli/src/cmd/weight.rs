//! `mpathctl weight`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::config::Weight;
use mpath_api::types::{DiskWeight, SetWeight};

use super::{DiskArg, the_only_disk};
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
        /// Disk [default: the only disk]
        #[arg(long, value_name = "DISK")]
        disk: Option<String>,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let disks = match self {
            Self::List(DiskArg { disk }) => client.weights(disk.as_deref())?,
            Self::Set { weight, disk } => {
                let disk = the_only_disk(client, disk.as_ref(), |_| true)?;
                client.set_weight(&SetWeight { weight: *weight, disk: Some(disk) })?
            }
        };
        Ok(output.print(&disks, |disks| by_disk(disks))?)
    }
}

fn by_disk(disks: &[DiskWeight]) -> Table {
    let row = |DiskWeight { disk, weight, shares_paths_of }: &DiskWeight| {
        let paths_of = shares_paths_of.as_ref().unwrap_or(disk);
        [disk.clone(), weight.to_string(), paths_of.clone()]
    };
    table([Column::Text("DISK"), Column::Number("WEIGHT"), Column::Text("PATHS OF")], disks.iter().map(row))
}
