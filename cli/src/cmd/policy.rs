//! `mpathctl policy`

use clap::Subcommand;
use mpath_api::PolicyKind;
use mpath_api::client::Client;
use mpath_api::types::{DiskPolicy, Policy, SetPolicy};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every policy and the disks that use it
    List,
    /// Show which policy each disk uses
    Get(DiskArg),
    /// Switch to a policy; the very next request follows it
    Set {
        /// The policy, as listed by `mpathctl policy list`
        name: PolicyKind,
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
            Self::Set { name, disk: DiskArg { disk } } => {
                let wanted = SetPolicy { policy: *name, disk: disk.clone() };
                output.print(&client.set_policy(&wanted)?, |policies| by_disk(policies))?;
            }
        }
        Ok(())
    }
}

fn every_policy(policies: &[Policy]) -> String {
    let columns = [Column::Text("POLICY"), Column::Text("ACTIVE ON"), Column::Text("DESCRIPTION")];
    let row = |policy: &Policy| {
        let active_on = if policy.active_on.is_empty() { "-".into() } else { policy.active_on.join(",") };
        [policy.name.to_string(), active_on, policy.description.clone()]
    };
    table(columns, policies.iter().map(row))
}

fn by_disk(policies: &[DiskPolicy]) -> String {
    let row = |policy: &DiskPolicy| [policy.disk.clone(), policy.policy.to_string()];
    table([Column::Text("DISK"), Column::Text("POLICY")], policies.iter().map(row))
}
