//! `mpathctl config`

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use mpath_api::config::Nqn;

use crate::Failure;
use crate::import::{Selection, import};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a configuration made from a file of nvme-cli: discovery.conf, config.json or nvme-fabrics.conf
    ///
    /// The drop-ins of nvme-fabrics.conf, in FILE.d/, are read too. The command needs no daemon and changes none. Save the output, check it, and start the daemon with it. Options without a
    /// counterpart become comments. The output is YAML, whatever --output says.
    Import {
        /// File in the format of /etc/nvme/discovery.conf, /etc/nvme/config.json or /etc/nvme/nvme-fabrics.conf
        file: PathBuf,
        /// Only this subsystem. Required for discovery.conf, which names none
        #[arg(long, value_name = "NQN")]
        subsystem: Option<Nqn>,
        /// Host NQN: selects one of several hosts in config.json or nvme-fabrics.conf; with discovery.conf, the host to connect as
        #[arg(long, value_name = "NQN")]
        hostnqn: Option<Nqn>,
    },
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Self::Import { file, subsystem, hostnqn } = self;
        let selection = Selection { subsystem: subsystem.clone(), hostnqn: hostnqn.clone() };
        let text = import(file, &selection)?;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}
