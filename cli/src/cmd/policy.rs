//! `mpathctl policy`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{DiskPolicy, Policy, PolicyDetail, SetPolicy};
use mpath_api::{PolicyClass, PolicyKind};

use super::{DiskArg, parameter, policy_show};
use crate::Failure;
use crate::output::{Column, Output, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every policy and the disks that use it; of disks over the same paths, the one that has these
    List,
    /// Show which policy each disk uses
    Get(DiskArg),
    /// Show the policies in force with their parameters, and what they think of each path
    ///
    /// 1S and 1M are the path's part of the I/Os of its class in the last second and in the last minute. WEIGHT is how many
    /// I/Os in a round go there, EST the latency it is taken to have, WINDOW what it may have in flight; AGE is how many
    /// I/Os have passed it over since the last one that went there, IGNORED the same since it came up; CKPTS is how often it began
    /// to be measured anew, CKPT-IOS and CKPT-AVG what came of that since. What a policy has no notion of is "-".
    Show(DiskArg),
    /// Switch to a policy; the very next request follows it
    Set {
        /// The policy, as listed by `mpathctl policy list`
        name: PolicyKind,
        /// A parameter of it: `mpathctl policy list` names them, `policy show` tells more; `NAME=default` for its default. Those not named keep their
        /// values if the policy is in force already
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter::parse)]
        params: Vec<(String, String)>,
        /// Only for these requests, read or write (which is all but reads), and not for all
        #[arg(long, value_name = "CLASS")]
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
                output.print(&client.policy(disk.as_deref())?, |policies| by_disk(policies))?;
            }
            Self::Show(DiskArg { disk }) => {
                let shown = |disks: &Vec<PolicyDetail>| {
                    disks.iter().map(policy_show::for_people).collect::<Vec<_>>().join("\n")
                };
                output.print(&client.policy_detail(disk.as_deref())?, shown)?;
            }
            Self::Set { name, params, class, disk: DiskArg { disk } } => {
                let wanted = SetPolicy { policy: *name, params: params.clone(), class: *class, disk: disk.clone() };
                output.print(&client.set_policy(&wanted)?, |policies| by_disk(policies))?;
            }
        }
        Ok(())
    }
}

fn every_policy(policies: &[Policy]) -> String {
    let columns =
        [Column::Text("POLICY"), Column::Text("ACTIVE ON"), Column::Text("PARAMETERS"), Column::Text("DESCRIPTION")];
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

fn by_disk(policies: &[DiskPolicy]) -> String {
    let row = |policy: &DiskPolicy| [policy.disk.clone(), policy.policy.to_string()];
    table([Column::Text("DISK"), Column::Text("POLICY")], policies.iter().map(row))
}
