//! `mpathctl scheduler`

use clap::Subcommand;
use mpath_api::SchedulerKind;
use mpath_api::client::Client;
use mpath_api::types::{DiskScheduler, QueueTurns, Scheduler, SchedulerDetail, SetScheduler};

use super::{DiskArg, parameter};
use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every scheduler and the disks that use it
    List,
    /// Show which scheduler each disk uses
    Get(DiskArg),
    /// Show the scheduler in force with its parameters, the weight and tier of each disk, and each virtqueue
    ///
    /// TIER is where the virtqueue's next request belongs. A virtqueue that was idle is sparse until its burst is sent, and then bulk; sparse goes
    /// first. Disks over the same paths have tiers in the same way. CREDIT is how many requests of 4 KiB more the virtqueue may send before it is
    /// bulk. QUEUED wait for their turn, IN-FLIGHT are sent. SERVED is how many have been sent, MiB what they carried, and WAIT how long they had
    /// waited for their turn, all since the daemon started.
    Show(DiskArg),
    /// Switch to a scheduler; the very next request follows it
    Set {
        /// The scheduler, as listed by `mpathctl scheduler list`
        name: SchedulerKind,
        /// A parameter of it: `mpathctl scheduler list` names them, `scheduler show` tells more; `NAME=default` for its default. Those not named
        /// keep their values if the scheduler is in force already
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter::parse)]
        params: Vec<(String, String)>,
        #[command(flatten)]
        disk: DiskArg,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::List => output.print(&client.schedulers()?, |schedulers| every_scheduler(schedulers))?,
            Self::Get(DiskArg { disk }) => {
                output.print(&client.scheduler(disk.as_deref())?, |schedulers| by_disk(schedulers))?;
            }
            Self::Show(DiskArg { disk }) => {
                let shown = |disks: &Vec<SchedulerDetail>| disks.iter().map(detail).collect::<Vec<_>>().join("\n");
                output.print(&client.scheduler_detail(disk.as_deref())?, shown)?;
            }
            Self::Set { name, params, disk: DiskArg { disk } } => {
                let wanted = SetScheduler { scheduler: *name, params: params.clone(), disk: disk.clone() };
                output.print(&client.set_scheduler(&wanted)?, |schedulers| by_disk(schedulers))?;
            }
        }
        Ok(())
    }
}

fn every_scheduler(schedulers: &[Scheduler]) -> String {
    let columns =
        [Column::Text("SCHEDULER"), Column::Text("ACTIVE ON"), Column::Text("PARAMETERS"), Column::Text("DESCRIPTION")];
    let row = |scheduler: &Scheduler| {
        let active_on = if scheduler.active_on.is_empty() { "-".into() } else { scheduler.active_on.join(",") };
        let params = parameter::names(&scheduler.params);
        [scheduler.name.to_string(), active_on, params, scheduler.description.clone()]
    };
    table(columns, schedulers.iter().map(row))
}

fn by_disk(schedulers: &[DiskScheduler]) -> String {
    let row = |of: &DiskScheduler| [of.disk.clone(), of.scheduler.to_string()];
    table([Column::Text("DISK"), Column::Text("SCHEDULER")], schedulers.iter().map(row))
}

fn detail(of: &SchedulerDetail) -> String {
    let shared = of.shares_paths_of.as_ref().map_or(String::new(), |owner| format!(", over the paths of {owner}"));
    let tier = of.tier.map_or(String::new(), |tier| format!(", {tier}"));
    let mut text =
        format!("{}, weight {}{tier}{shared}: {}: {}\n\n", of.disk, of.weight, of.scheduler.kind(), of.description);
    if !of.params.is_empty() {
        text += &parameter::all(&of.params);
        text += "\n";
    }
    let columns = [
        Column::Number("QUEUE"),
        Column::Text("TIER"),
        Column::Number("CREDIT"),
        Column::Number("QUEUED"),
        Column::Number("IN-FLIGHT"),
        Column::Number("SERVED"),
        Column::Number("MiB"),
        Column::Number("WAIT-P50(ms)"),
        Column::Number("WAIT-P99(ms)"),
    ];
    text + &table(columns, of.queues.iter().map(queue))
}

fn queue(queue: &QueueTurns) -> [String; 9] {
    // Of two decimals the second would be off beyond 2^52 µs.
    #[allow(clippy::cast_precision_loss)]
    let ms = |us: Option<u64>| or_dash(us.map(|us| format!("{:.2}", us as f64 / 1e3)));
    [
        queue.queue.to_string(),
        queue.tier.to_string(),
        or_dash(queue.credit),
        queue.queued.to_string(),
        queue.in_flight.to_string(),
        queue.served.to_string(),
        (queue.served_bytes >> 20).to_string(),
        ms(queue.waited.map(|waited| waited.p50_us)),
        ms(queue.waited.map(|waited| waited.p99_us)),
    ]
}
