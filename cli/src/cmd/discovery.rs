//! `mpathctl discovery`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::DiscoveryController;
use mpath_config::LiveSetting;

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List discovery controllers: state, generation and records of their last log, last error
    ///
    /// TLS says whether the last log was read with TLS. `-o json` has the cipher suite. BY is the discovery controller that refers to
    /// this one. A lost controller is tried again. Its last log still applies.
    List(DiskArg),
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let Self::List(DiskArg { disk }) = self;
        let mut named = None;
        if disk.is_some() {
            // Reports an unknown disk. A disk that shares paths has the discovery controllers of the other one.
            named = client.disks_with(LiveSetting::Policy, disk.as_deref())?.into_iter().map(|of| of.name).next();
        }
        let mut controllers = client.status()?.discovery;
        controllers.retain(|controller| named.as_ref().is_none_or(|disk| *disk == controller.disk));
        Ok(output.print(&controllers, |controllers| table(COLUMNS, controllers.iter().map(row)))?)
    }
}

const COLUMNS: [Column; 8] = [
    Column::Text("DISK"),
    Column::Text("ADDRESS"),
    Column::State("STATE"),
    Column::LateNumber("GENCTR"),
    Column::LateNumber("RECORDS"),
    Column::Text("TLS"),
    Column::Text("BY"),
    Column::Long("LAST ERROR"),
];

fn row(controller: &DiscoveryController) -> [String; 8] {
    [
        controller.disk.clone(),
        controller.address.to_string(),
        controller.state.to_string(),
        or_dash(controller.generation),
        or_dash(controller.records),
        or_dash(controller.read_at.as_ref().map(|_| if controller.tls_suite.is_some() { "on" } else { "off" })),
        or_dash(controller.referred_by.as_ref()),
        or_dash(controller.last_error.as_ref()),
    ]
}
