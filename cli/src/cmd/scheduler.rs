//! `mpathctl scheduler`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{Disk, QueueTurns, Scheduler, SchedulerDetail, SetScheduler, SetSettings};
use mpath_config::{LiveSetting, SchedulerKind, one_of};

use super::{DiskArg, parameter, settings};
use crate::Failure;
use crate::output::{Column, Output, Table, Text, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every scheduler and the disks that use it
    List,
    /// Show the scheduler of each disk
    Get(DiskArg),
    /// Show the scheduler in force with its parameters, the weight and tier of each disk, and each virtqueue
    ///
    /// TIER is the tier of the virtqueue's next request. A virtqueue that was idle is sparse until its burst is sent, and then bulk. Sparse
    /// goes first. Disks over the same paths have tiers in the same way. CREDIT is the burst credit in requests of 4 KiB: what the virtqueue
    /// may send before it is bulk. QUEUED requests wait for their turn, IN-FLIGHT requests are sent. SERVED counts requests sent, MiB their
    /// data, and WAIT how long they waited, all since the daemon started.
    Show(DiskArg),
    /// Set the scheduler; it applies from the next request on
    Set {
        /// Scheduler, from `mpathctl scheduler list`
        #[arg(value_parser = one_of::<SchedulerKind>(SchedulerKind::ALL.map(SchedulerKind::name)))]
        name: SchedulerKind,
        /// Parameter of the scheduler; `mpathctl scheduler list` and `scheduler show` show parameters. `NAME=default` sets the default. If
        /// the scheduler is already in force, parameters that are not given keep their values
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
                print(output, &client.disks_with(LiveSetting::Scheduler, disk.as_deref())?)?;
            }
            Self::Show(DiskArg { disk }) => {
                let shown = |disks: &Vec<SchedulerDetail>| Text::paragraphs(disks.iter().map(detail));
                output.print(&client.scheduler_detail(disk.as_deref())?, shown)?;
            }
            Self::Set { name, params, disk: DiskArg { disk } } => {
                let scheduler = SetScheduler { name: *name, params: params.clone() };
                print(output, &client.set(&SetSettings { disk: disk.clone(), ..scheduler.into() })?)?;
            }
        }
        Ok(())
    }
}

fn every_scheduler(schedulers: &[Scheduler]) -> Table {
    let columns =
        [Column::Text("SCHEDULER"), Column::Text("ACTIVE ON"), Column::Long("PARAMETERS"), Column::Long("DESCRIPTION")];
    let row = |scheduler: &Scheduler| {
        let active_on = if scheduler.active_on.is_empty() { "-".into() } else { scheduler.active_on.join(",") };
        let params = parameter::names(&scheduler.params);
        [scheduler.name.to_string(), active_on, params, scheduler.description.clone()]
    };
    table(columns, schedulers.iter().map(row))
}

fn print(output: &mut Output, disks: &[Disk]) -> Result<(), Failure> {
    let row = |disk: &Disk| [disk.name.clone(), or_dash(disk.scheduler)];
    settings::print(output, disks, &[LiveSetting::Scheduler], &["scheduler"], |disks| {
        table([Column::Text("DISK"), Column::Text("SCHEDULER")], disks.iter().map(row))
    })
}

fn detail(of: &SchedulerDetail) -> Text {
    let shared = of.shares_paths_of.as_ref().map_or(String::new(), |owner| format!(", over the paths of {owner}"));
    let tier = of.tier.map_or(String::new(), |tier| format!(", {tier}"));
    let head =
        format!("{}, weight {}{tier}{shared}: {}: {}\n\n", of.disk, of.weight, of.scheduler.kind(), of.description);
    let mut text = Text::from(head);
    if !of.params.is_empty() {
        text = text.then(parameter::all(&of.params)).then("\n");
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
    text.then(table(columns, of.queues.iter().map(queue)))
}

fn queue(queue: &QueueTurns) -> [String; 9] {
    // Beyond 2^52 us the second decimal may be wrong.
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
