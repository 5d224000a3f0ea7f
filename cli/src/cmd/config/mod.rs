//! `mpathctl config`

mod change;
mod save;
mod show;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::Configuration;
use mpath_config::{Config, ConfigError, Nqn, read_file, read_text};
use serde::Serialize;

pub(crate) use self::save::SaveError;

use crate::import::{Selection, import};
use crate::output::{Output, write};
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
    /// Show the settings in effect, and where each value comes from
    ///
    /// `# default`, the name of the file, or `# changed live`. Discovered paths are no settings. -o json has the settings as they were
    /// given and as they are in effect.
    Show {
        /// Only this disk, with the disks over the same paths
        #[arg(long, value_name = "DISK")]
        disk: Option<String>,
    },
    /// Show what a reload would change, and which settings need a restart
    ///
    /// Exits with 0 without differences, and with 4 otherwise.
    Diff {
        /// Another file [default: the file that the daemon was started with]
        file: Option<PathBuf>,
    },
    /// Have the daemon read its file again and apply the differences
    ///
    /// Afterwards the daemon is as a restart makes it, but for settings that need a restart. Changes that are not in the file are undone:
    /// `config diff` shows them before, and `config save` keeps them. If the file has an error, nothing is changed. SIGHUP does the same.
    ///
    /// Exits with 1 if a change failed.
    Reload {
        /// Change nothing, and print what would be changed
        #[arg(long)]
        dry_run: bool,
        /// Remove disks even if a front-end is connected, and paths even if they are the last
        #[arg(long)]
        force: bool,
    },
    /// Write the live changes into the file that the daemon was started with
    ///
    /// Only policy, scheduler, limits, weight, hedging, paths and disks are changed. Comments and all other lines stay. The file is
    /// replaced at once, after the new text was checked.
    Save {
        /// Another file, or - for standard output. If it does not exist, it begins as a copy of the daemon's
        file: Option<PathBuf>,
    },
    /// Print a configuration made from a file of nvme-cli or nvme-stas
    ///
    /// discovery.conf, config.json, nvme-fabrics.conf with its drop-ins in FILE.d/, stacd.conf or stafd.conf: the contents say which. The
    /// command needs no daemon and changes none. Save the output, check it, and start the daemon with it. Options without a counterpart
    /// become comments. The output is YAML, whatever --output says.
    Import {
        /// File in the format of /etc/nvme/discovery.conf, /etc/nvme/config.json, /etc/nvme/nvme-fabrics.conf, /etc/stas/stacd.conf or
        /// /etc/stas/stafd.conf, or - for standard input
        file: PathBuf,
        /// Only this subsystem. Required for discovery.conf and stafd.conf, which name none
        #[arg(long, value_name = "NQN")]
        subsystem: Option<Nqn>,
        /// Host NQN: selects one of several hosts in config.json or nvme-fabrics.conf; with discovery.conf, the host to connect as
        #[arg(long, value_name = "NQN")]
        hostnqn: Option<Nqn>,
    },
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Show { disk } => show::show(client, disk.as_deref(), output),
            Self::Diff { file } => change::diff(client, file.as_deref(), output),
            Self::Reload { dry_run, force } => change::reload(client, *dry_run, *force, output),
            Self::Save { file } => save::save(client, file.as_deref(), output),
            Self::Check { file } => check(file, output),
            Self::Import { file, subsystem, hostnqn } => {
                let selection = Selection { subsystem: subsystem.clone(), hostnqn: hostnqn.clone() };
                Ok(write(&import(file, &selection)?)?)
            }
        }
    }
}

/// The configuration in effect.
fn effective(configuration: &Configuration) -> Result<Config, Failure> {
    serde_json::from_value(configuration.effective.clone()).map_err(Failure::Effective)
}

/// What `config check` reports.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    errors: Vec<CheckedError>,
    #[serde(rename = "not-checked")]
    left_out: &'static str,
}

#[derive(Debug, Serialize)]
struct CheckedError {
    line: Option<usize>,
    column: Option<usize>,
    message: String,
}

/// What `config check` leaves to the daemon's own check.
const NOT_CHECKED: &str = "this host: io_uring, sockets, accounts, keys and secrets; run `vhost-blk-mpath --check --config FILE` as the \
    daemon's user";

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
    let checked =
        Checked { file: file.display().to_string(), errors: errors.iter().map(error).collect(), left_out: NOT_CHECKED };
    output.print(&checked, |Checked { file, .. }| match &errors[..] {
        [] => format!("{file}: no errors\nnot checked: {NOT_CHECKED}\n"),
        errors => errors.iter().map(|error| [file, ":", &error.to_string(), "\n"].concat()).collect(),
    })?;
    if errors.is_empty() { Ok(()) } else { Err(Failure::Reported(Kind::Usage)) }
}
