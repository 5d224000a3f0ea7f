//! Converts files of nvme-cli to a configuration. Options without a counterpart become comments, so nothing is dropped silently.

mod conf;
mod json;
mod port;
mod yaml;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mpath_api::config::{Config, ConfigError, HostId, Nqn};
use mpath_api::{DiscoveryAddress, PathAddress};

/// The largest file read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The name of the discovery service.
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Why a file cannot be imported. The text begins with the name of the file, and the line if there is one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: larger than {MAX_FILE_BYTES} bytes; name a file of nvme-cli", file.display())]
    TooLarge { file: PathBuf },
    #[error("{}:{line}: {option}: {reason}", file.display())]
    Option { file: PathBuf, line: usize, option: String, reason: String },
    /// As the parser puts it: `LINE:COLUMN: FIELD: reason`.
    #[error("{}:{reason}", file.display())]
    Json { file: PathBuf, reason: String },
    #[error("{}: {given} hosts ({}), and a daemon is one host; choose one with --hostnqn", file.display(), hosts.join(", "))]
    Hosts { file: PathBuf, given: usize, hosts: Vec<String> },
    #[error("{}: the chosen host has no such subsystem{}", file.display(), available(.there))]
    NoSubsystem { file: PathBuf, there: Vec<String> },
    #[error("{}: has only discovery controllers; name the subsystem with --subsystem NQN", file.display())]
    WhichSubsystem { file: PathBuf },
    #[error("{}: no TCP path and no discovery controller in it{}", file.display(), reasons(.notes))]
    Nothing { file: PathBuf, notes: Vec<String> },
    #[error("{}: the result is no valid configuration:{source}", file.display())]
    Result { file: PathBuf, source: ConfigError },
}

fn available(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!("; there are: {}", there.join(", ")) }
}

/// The comments, on one line.
fn reasons(notes: &[String]) -> String {
    let one_line = |note: &String| format!("; {}", yaml::one_line(note));
    notes.iter().map(one_line).collect()
}

/// What to import from a file.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) subsystem: Option<Nqn>,
    pub(crate) hostnqn: Option<Nqn>,
}

/// The contents of a file.
#[derive(Debug, Default)]
struct Imported {
    hostnqn: Option<Nqn>,
    hostid: Option<HostId>,
    disks: Vec<ImportedDisk>,
    /// Comments that belong to no disk.
    notes: Vec<String>,
}

/// One subsystem.
#[derive(Debug, Default)]
struct ImportedDisk {
    subsystem: String,
    paths: Vec<PathAddress>,
    discovery: Vec<DiscoveryAddress>,
    /// Settings by key.
    settings: BTreeMap<&'static str, String>,
    notes: Vec<String>,
}

/// Reads `discovery.conf` or `config.json`, whichever it is, and writes a configuration.
pub(crate) fn import(file: &Path, selection: &Selection) -> Result<String, ImportError> {
    let read = || {
        let mut text = String::new();
        File::open(file)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|source| ImportError::Read { file: file.into(), source })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ImportError::TooLarge { file: file.into() });
    }
    let is_json = text.trim_start().starts_with(['[', '{']);
    let imported = if is_json { json::read(file, &text, selection)? } else { conf::read(file, &text, selection)? };
    if imported.disks.iter().all(|disk| disk.paths.is_empty() && disk.discovery.is_empty()) {
        let notes = imported.notes.into_iter().chain(imported.disks.into_iter().flat_map(|disk| disk.notes)).collect();
        return Err(ImportError::Nothing { file: file.into(), notes });
    }
    let text = yaml::write(file, &imported);
    Config::parse(&text).map_err(|source| ImportError::Result { file: file.into(), source })?;
    Ok(text)
}

#[cfg(test)]
mod tests;
