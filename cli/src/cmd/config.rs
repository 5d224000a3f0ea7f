//! `mpathctl config`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use mpath_api::Config;
use mpath_api::config::{ConfigError, Nqn, read_file, read_text};
use serde::Serialize;

use crate::import::{Selection, import};
use crate::output::Output;
use crate::{Failure, Kind};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a configuration file and report all its errors
    ///
    /// The command needs no daemon. It exits with 2 if there are errors. `vhost-blk-mpath --check` also checks what the daemon needs of
    /// its host.
    Check {
        /// File, or - for standard input
        file: PathBuf,
    },
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
    pub(crate) fn run(&self, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Check { file } => check(file, output),
            Self::Import { file, subsystem, hostnqn } => {
                let selection = Selection { subsystem: subsystem.clone(), hostnqn: hostnqn.clone() };
                let text = import(file, &selection)?;
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                Ok(stdout.flush()?)
            }
        }
    }
}

/// What `config check` reports.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    errors: Vec<CheckedError>,
}

#[derive(Debug, Serialize)]
struct CheckedError {
    line: Option<usize>,
    column: Option<usize>,
    message: String,
}

fn check(file: &Path, output: &mut Output) -> Result<(), Failure> {
    let (file, text) = match file.to_str() {
        Some("-") => (Path::new("standard input"), read_text(Path::new("standard input"), std::io::stdin())?),
        _ => (file, read_file(file)?),
    };
    let errors = Config::check(&text).err().unwrap_or_default();
    let error = |error: &ConfigError| CheckedError {
        line: error.place().map(|(line, _)| line),
        column: error.place().map(|(_, column)| column),
        message: error.message(),
    };
    let checked = Checked { file: file.display().to_string(), errors: errors.iter().map(error).collect() };
    output.print(&checked, |Checked { file, .. }| match &errors[..] {
        [] => format!("{file}: no errors\n"),
        errors => errors.iter().map(|error| [file, ":", &error.to_string(), "\n"].concat()).collect(),
    })?;
    if errors.is_empty() { Ok(()) } else { Err(Failure::Reported(Kind::Usage)) }
}
