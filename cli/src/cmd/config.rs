//! `mpathctl config`

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use mpath_api::config::Nqn;

use crate::Failure;
use crate::import::{Wanted, import};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a configuration made of a file of nvme-cli: discovery.conf, or config.json
    ///
    /// No daemon is asked or changed: keep what is printed, look through it, and start the daemon with it. Options without a
    /// counterpart are comments in it. It is YAML, whatever --output says.
    Import {
        /// /etc/nvme/discovery.conf, /etc/nvme/config.json, or one like them
        file: PathBuf,
        /// Only this subsystem. discovery.conf names none, so it has to be said
        #[arg(long, value_name = "NQN")]
        subsystem: Option<Nqn>,
        /// Of several hosts in config.json this one; of discovery.conf the one to connect as
        #[arg(long, value_name = "NQN")]
        hostnqn: Option<Nqn>,
    },
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Self::Import { file, subsystem, hostnqn } = self;
        let wanted = Wanted { subsystem: subsystem.clone(), hostnqn: hostnqn.clone() };
        let text = import(file, &wanted)?;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}
