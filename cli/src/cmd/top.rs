//! `mpathctl top`

use std::sync::Arc;
use std::time::Duration;

use mpath_api::client::Client;

use crate::{Failure, top, watch};

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Time between two looks at the daemon, 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = watch::interval)]
    interval: Duration,
}

impl Command {
    pub(crate) fn run(&self, client: &Arc<Client>) -> Result<(), Failure> {
        top::run(client, self.interval)
    }
}
