//! `mpathctl hedge`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{Disk, SetSettings};
use mpath_config::{Hedge, HedgeBudget, LiveSetting};

use super::{DiskArg, settings};
use crate::Failure;
use crate::output::{Column, Output, Table, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the hedging of each disk, and its results
    ///
    /// READS are reads submitted while hedging was on. SENT are hedges, WON are hedges that answered first. `mpathctl path show` has SENT
    /// and WON of each path.
    Show(DiskArg),
    /// Set which reads are hedged
    ///
    /// A setting that is not given keeps its value.
    Set {
        /// off, or a quantile from p50 to p99.9: reads slower than this quantile of recent reads are hedged
        #[arg(required_unless_present = "hedge_budget")]
        hedge: Option<Hedge>,
        /// Most hedges, as a share of all reads, 0.1% to 5%
        #[arg(long, value_name = "PERCENT")]
        hedge_budget: Option<HedgeBudget>,
        #[command(flatten)]
        disk: DiskArg,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let disks = match self {
            Self::Show(DiskArg { disk }) => client.disks_with(LiveSetting::Hedge, disk.as_deref())?,
            Self::Set { hedge, hedge_budget, disk: DiskArg { disk } } => {
                let (hedge, hedge_budget, disk) = (*hedge, *hedge_budget, disk.clone());
                client.set(&SetSettings { hedge, hedge_budget, disk, ..SetSettings::default() })?
            }
        };
        let keys = ["hedge", "hedge-budget", "hedgeable-reads", "hedges", "hedges-won"];
        settings::print(output, &disks, &[LiveSetting::Hedge, LiveSetting::HedgeBudget], &keys, by_disk)
    }
}

fn by_disk(disks: &[Disk]) -> Table {
    let columns = [
        Column::Text("DISK"),
        Column::Text("HEDGE"),
        Column::Number("BUDGET"),
        Column::Number("READS"),
        Column::Number("SENT"),
        Column::Number("WON"),
    ];
    let row = |Disk { name, hedge: status, .. }: &Disk| {
        let [reads, sent, won] =
            [status.hedgeable_reads, status.hedges, status.hedges_won].map(|count| count.to_string());
        [name.clone(), status.hedge.to_string(), status.hedge_budget.to_string(), reads, sent, won]
    };
    table(columns, disks.iter().map(row))
}
