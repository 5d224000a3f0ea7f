//! Converts files of nvme-cli and nvme-stas to a configuration. Options without a counterpart become comments, so nothing is dropped silently.

mod conf;
mod controller;
mod format;
mod ini;
mod json;
mod settings;
mod stas;
mod yaml;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mpath_config::{Config, ConfigError, DiscoveryAddress, HostId, Nqn, PathAddress};

use self::format::{Foreign, Format};
use self::settings::Settings;

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The name of the discovery service.
const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Why a file cannot be imported. The text begins with the name of the file, and the line if there is one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: larger than {MAX_FILE_BYTES} bytes; name a file of nvme-cli or nvme-stas", file.display())]
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
    #[error("{}: {foreign}", file.display())]
    Foreign { file: PathBuf, foreign: Foreign },
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
    /// Whether an option of any path asks for TLS.
    tls: bool,
    /// Whether an option of any discovery controller asks for TLS.
    discovery_tls: bool,
    /// What each path sets.
    settings: Vec<Settings>,
    notes: Vec<String>,
}

impl Imported {
    /// The disk of this subsystem, a new one if there is none: two disks on one namespace would not know of each other's writes.
    fn disk(&mut self, nqn: &str) -> &mut ImportedDisk {
        let found = self.disks.iter().position(|disk| disk.subsystem == nqn);
        let at = found.unwrap_or(self.disks.len());
        if found.is_none() {
            self.disks.push(ImportedDisk { subsystem: nqn.into(), ..ImportedDisk::default() });
        }
        &mut self.disks[at]
    }

    /// The disk of a section. A further section of the same subsystem adds to it.
    fn disk_of_section(&mut self, nqn: &str) -> &mut ImportedDisk {
        let is_again = self.disks.iter().any(|disk| disk.subsystem == nqn);
        let disk = self.disk(nqn);
        if is_again {
            disk.notes.push(format!("nqn {nqn}: more than once in the file; one disk, with the ports of all"));
        }
        disk
    }
}

impl ImportedDisk {
    /// Adds a comment if a discovery subsystem has a name of its own: the daemon asks for the name of the service.
    fn note_other_name(&mut self, nqn: &str) {
        if nqn != DISCOVERY_NQN {
            self.notes.push(format!("nqn {nqn}: no counterpart, {DISCOVERY_NQN} is asked"));
        }
    }
}

fn read_file(file: &Path) -> Result<String, ImportError> {
    let opened = File::open(file).map_err(|source| ImportError::Read { file: file.into(), source })?;
    read_text(file, opened)
}

/// Reads a source that has this name.
fn read_text(file: &Path, source: impl Read) -> Result<String, ImportError> {
    let mut text = String::new();
    let read = source.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|source| ImportError::Read { file: file.into(), source })?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(ImportError::TooLarge { file: file.into() });
    }
    Ok(text.strip_prefix('\u{feff}').map(ToOwned::to_owned).unwrap_or(text))
}

/// Reads a file of one of the formats, with the drop-ins of an `nvme-fabrics.conf`, or standard input for `-`. Returns the text of a
/// configuration.
pub(crate) fn import(file: &Path, selection: &Selection) -> Result<String, ImportError> {
    if file == Path::new("-") {
        let file = Path::new("standard input");
        return convert(file, &read_text(file, io::stdin().lock())?, &[], selection);
    }
    let drop_ins = ini::drop_ins(file);
    let text = match read_file(file) {
        // The drop-ins alone are a configuration.
        Err(ImportError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound && !drop_ins.is_empty() => {
            String::new()
        }
        text => text?,
    };
    convert(file, &text, &drop_ins, selection)
}

fn convert(file: &Path, text: &str, drop_ins: &[PathBuf], selection: &Selection) -> Result<String, ImportError> {
    let mut imported = match Format::of(text, !drop_ins.is_empty()) {
        Format::Json => json::read(file, text, selection)?,
        Format::Stas => stas::read(file, text, selection)?,
        Format::Ini => ini::read(file, text, drop_ins, selection)?,
        Format::Lines => conf::read(file, text, selection)?,
        Format::Foreign(foreign) => return Err(ImportError::Foreign { file: file.into(), foreign }),
    };
    if imported.disks.iter().all(|disk| disk.paths.is_empty() && disk.discovery.is_empty()) {
        let notes = imported.notes.into_iter().chain(imported.disks.into_iter().flat_map(|disk| disk.notes)).collect();
        return Err(ImportError::Nothing { file: file.into(), notes });
    }
    imported.disks.iter_mut().for_each(ImportedDisk::note_differences);
    let text = yaml::write(file, &imported);
    Config::parse(&text).map_err(|source| ImportError::Result { file: file.into(), source })?;
    Ok(text)
}

/// Leaves only the selected subsystem, and gives the discovery controllers to each disk. `discovered` has what a disk sets whose paths
/// are all discovered.
fn choose(
    file: &Path,
    selection: &Selection,
    imported: &mut Imported,
    discovery: &ImportedDisk,
    discovered: ImportedDisk,
) -> Result<(), ImportError> {
    if let Some(nqn) = &selection.subsystem {
        let there = imported.disks.iter().map(|disk| disk.subsystem.clone()).collect();
        imported.disks.retain(|disk| disk.subsystem == nqn.as_str());
        if imported.disks.is_empty() {
            if discovery.discovery.is_empty() {
                return Err(ImportError::NoSubsystem { file: file.into(), there });
            }
            imported.disks.push(ImportedDisk { subsystem: nqn.to_string(), ..discovered });
        }
    } else if imported.disks.is_empty() && !discovery.discovery.is_empty() {
        return Err(ImportError::WhichSubsystem { file: file.into() });
    }
    for disk in &mut imported.disks {
        disk.discovery.clone_from(&discovery.discovery);
        if discovery.tls && !disk.tls && !disk.paths.is_empty() {
            let note = "tls-key-file: a discovery controller has TLS; if no path has, remove the setting";
            disk.notes.push(note.into());
        }
        disk.tls |= discovery.tls;
        disk.discovery_tls = discovery.tls;
    }
    // A subsystem without a usable port becomes a comment.
    let (disks, empty): (Vec<_>, Vec<_>) =
        imported.disks.drain(..).partition(|disk| !disk.paths.is_empty() || !disk.discovery.is_empty());
    imported.disks = disks;
    for disk in empty {
        imported.notes.push(format!("subsystem {}: left out, it has no TCP port that can be used", disk.subsystem));
        imported.notes.extend(disk.notes);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
