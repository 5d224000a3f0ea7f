//! `mpathctl hedge`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::config::{Hedge, HedgeBudget};
use mpath_api::types::{DiskHedge, SetHedge};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how each disk hedges, and what came of it
    ///
    /// READS were submitted while it was not off, SENT is how many of them were sent a second time, WON how many of those
    /// answered first. `mpathctl path show` has the last two of each path.
    Show(DiskArg),
    /// Hedge reads that take longer than a quantile of the others, or none
    ///
    /// What is not given stays as it is.
    Set {
        /// off, or a quantile from p50 to p99.9: what takes longer is sent a second time
        #[arg(required_unless_present = "budget")]
        hedge: Option<Hedge>,
        /// Hedges at most, as a share of the reads, 0.1% to 5%
        #[arg(long, value_name = "PERCENT")]
        budget: Option<HedgeBudget>,
        #[command(flatten)]
        disk: DiskArg,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let disks = match self {
            Self::Show(DiskArg { disk }) => client.hedge(disk.as_deref())?,
            Self::Set { hedge, budget, disk: DiskArg { disk } } => {
                client.set_hedge(&SetHedge { hedge: *hedge, budget: *budget, disk: disk.clone() })?
            }
        };
        Ok(output.print(&disks, |disks| by_disk(disks))?)
    }
}

fn by_disk(disks: &[DiskHedge]) -> String {
    let columns = [
        Column::Text("DISK"),
        Column::Text("HEDGE"),
        Column::Number("BUDGET"),
        Column::Number("READS"),
        Column::Number("SENT"),
        Column::Number("WON"),
    ];
    let row = |DiskHedge { disk, status }: &DiskHedge| {
        let [reads, sent, won] = [status.reads, status.sent, status.won].map(|count| count.to_string());
        [disk.clone(), status.hedge.to_string(), status.budget.to_string(), reads, sent, won]
    };
    table(columns, disks.iter().map(row))
}
