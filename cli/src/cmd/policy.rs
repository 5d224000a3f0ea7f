//! `mpathctl policy`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{Disk, Policy, PolicyDetail, SetPolicy, SetSettings};
use mpath_config::{LiveSetting, PolicyClass, PolicyKind, one_of};

use super::{DiskArg, parameter, policy_show, settings};
use crate::Failure;
use crate::output::{Column, Output, Table, Text, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every policy and the disks that use it; disks that share paths are not listed
    List,
    /// Show the policy of each disk
    Get(DiskArg),
    /// Show the policies in force with their parameters and their estimates of each path
    ///
    /// 1S and 1M are the path's share of the I/Os of the class in the last second and in the last minute. WEIGHT is I/Os sent to the path
    /// in one round, EST the estimated latency, WINDOW the bytes that may be in flight. AGE is I/Os that passed the path over since its
    /// last one, IGNORED the same since it became live. CKPTS is how often the policy began to measure the path again, CKPT-IOS and
    /// CKPT-AVG are the I/Os since then and their average latency. "-" is a value that the policy does not use.
    Show(DiskArg),
    /// Set the policy; it applies from the next request on
    Set {
        /// Policy, from `mpathctl policy list`
        #[arg(value_parser = one_of::<PolicyKind>(PolicyKind::ALL.map(PolicyKind::name)))]
        name: PolicyKind,
        /// Parameter of the policy; `mpathctl policy list` and `policy show` show parameters. `NAME=default` sets the default. If the
        /// policy is already in force, parameters that are not given keep their values
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter::parse)]
        params: Vec<(String, String)>,
        /// Only for this class of requests: read, or write (everything but reads)
        #[arg(long, value_name = "CLASS", value_parser = one_of::<PolicyClass>(["read", "write"]))]
        class: Option<PolicyClass>,
        #[command(flatten)]
        disk: DiskArg,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::List => output.print(&client.policies()?, |policies| every_policy(policies))?,
            Self::Get(DiskArg { disk }) => {
                print(output, &client.disks_with(LiveSetting::Policy, disk.as_deref())?)?;
            }
            Self::Show(DiskArg { disk }) => {
                let shown = |disks: &Vec<PolicyDetail>| Text::paragraphs(disks.iter().map(policy_show::for_people));
                output.print(&client.policy_detail(disk.as_deref())?, shown)?;
            }
            Self::Set { name, params, class, disk: DiskArg { disk } } => {
                let policy = SetPolicy { name: *name, params: params.clone(), class: *class };
                print(output, &client.set(&SetSettings { disk: disk.clone(), ..policy.into() })?)?;
            }
        }
        Ok(())
    }
}

fn every_policy(policies: &[Policy]) -> Table {
    let columns =
        [Column::Text("POLICY"), Column::Text("ACTIVE ON"), Column::Long("PARAMETERS"), Column::Long("DESCRIPTION")];
    let row = |policy: &Policy| {
        let active_on = if policy.active_on.is_empty() { "-".into() } else { policy.active_on.join(",") };
        let params = parameter::names(&policy.params);
        let description = match &*policy.aliases {
            [] => policy.description.clone(),
            aliases => format!("{} (also: {})", policy.description, aliases.join(", ")),
        };
        [policy.name.to_string(), active_on, params, description]
    };
    table(columns, policies.iter().map(row))
}

fn print(output: &mut Output, disks: &[Disk]) -> Result<(), Failure> {
    let row = |disk: &Disk| [disk.name.clone(), disk.policy.to_string()];
    settings::print(output, disks, &[LiveSetting::Policy], &["policy"], |disks| {
        table([Column::Text("DISK"), Column::Text("POLICY")], disks.iter().map(row))
    })
}
