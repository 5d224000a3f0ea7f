//! `/etc/nvme/nvme-fabrics.conf` of nvme-cli 3 and its drop-ins: sections, each with lines `key = value`.
//!
//! A value is looked up in the line of a controller, in its section, in `[Host]`, and in the defaults of its kind. A drop-in has its own
//! `[Host]`, and its defaults overlay those of the main file. An empty value means the kernel's default.

use std::fs;
use std::path::{Path, PathBuf};

use mpath_config::{HostId, Nqn};

use super::controller::{ControllerAddress, NvmeOption, security};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection, choose, read_file};

/// One file.
#[derive(Debug, Default)]
struct IniFile {
    host: Vec<NvmeOption>,
    has_host: bool,
    discovery_defaults: Vec<NvmeOption>,
    io_defaults: Vec<NvmeOption>,
    endpoints: Vec<Endpoint>,
    notes: Vec<String>,
}

/// A section `[Discovery Controller]` or `[Subsystem]`.
#[derive(Debug)]
struct Endpoint {
    line: usize,
    is_discovery: bool,
    options: Vec<NvmeOption>,
    /// The lines `controller =`, each with its number.
    controllers: Vec<(usize, Vec<NvmeOption>)>,
}

#[derive(Clone, Copy)]
enum Section {
    Host,
    DiscoveryDefaults,
    IoDefaults,
    Endpoint,
    Unknown,
}

/// The drop-ins of a main file, in the order of their names.
pub(super) fn drop_ins(file: &Path) -> Vec<PathBuf> {
    let mut directory = file.as_os_str().to_owned();
    directory.push(".d");
    let found = fs::read_dir(directory).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> = found.filter(|file| file.extension().is_some_and(|ending| ending == "conf")).collect();
    found.sort();
    found
}

/// Whether the text has the header of a section, as nvme-fabrics.conf does.
pub(super) fn has_section(text: &str) -> bool {
    let is_section = |line: &str| {
        let name = uncommented(line).strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
    };
    text.lines().any(is_section)
}

pub(super) fn read(
    file: &Path,
    text: &str,
    drop_ins: &[PathBuf],
    selection: &Selection,
) -> Result<Imported, ImportError> {
    let main = IniFile::parse(file, text)?;
    let mut files = Vec::new();
    for drop_in in drop_ins {
        let mut parsed = IniFile::parse(drop_in, &read_file(drop_in)?)?;
        parsed.discovery_defaults = overlaid([&main.discovery_defaults[..], &parsed.discovery_defaults]);
        parsed.io_defaults = overlaid([&main.io_defaults[..], &parsed.io_defaults]);
        if !parsed.has_host {
            parsed.host.clone_from(&main.host);
        }
        files.push((drop_in.as_path(), parsed));
    }
    files.insert(0, (file, main));
    files.retain(|(_, parsed)| !parsed.endpoints.is_empty());
    let host_of = |parsed: &IniFile| value(&parsed.host, "hostnqn").map(ToOwned::to_owned);
    if let Some(hostnqn) = &selection.hostnqn {
        files.retain(|(_, parsed)| host_of(parsed).as_deref() == Some(hostnqn.as_str()));
    }
    let mut hosts: Vec<_> = files.iter().map(|(_, parsed)| host_of(parsed)).collect();
    hosts.dedup();
    if selection.hostnqn.is_some() && hosts.is_empty() || hosts.len() > 1 {
        let names = hosts.iter().map(|name| name.clone().unwrap_or_else(|| "unnamed".into())).collect();
        return Err(ImportError::Hosts { file: file.into(), given: hosts.len(), hosts: names });
    }
    let (mut imported, mut discovery) = (Imported::default(), ImportedDisk::default());
    for (file, parsed) in files {
        parsed.import(file, &mut imported, &mut discovery)?;
    }
    imported.notes.append(&mut discovery.notes);
    choose(file, selection, &mut imported, &discovery)?;
    Ok(imported)
}

impl IniFile {
    fn parse(file: &Path, text: &str) -> Result<Self, ImportError> {
        let (mut parsed, mut section) = (Self::default(), None);
        for (line, text) in (1..).zip(text.lines()) {
            let refuse = |option: &str, reason: &str| refused(file, line, option, reason);
            let text = uncommented(text);
            if text.is_empty() {
                continue;
            }
            if let Some(name) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                section = Some(match name.trim() {
                    "Host" if std::mem::replace(&mut parsed.has_host, true) => {
                        return Err(refuse("[Host]", "given twice; a file has one host"));
                    }
                    "Host" => Section::Host,
                    "Discovery Controller Defaults" => Section::DiscoveryDefaults,
                    "I/O Controller Defaults" => Section::IoDefaults,
                    name @ ("Discovery Controller" | "Subsystem") => {
                        let is_discovery = name != "Subsystem";
                        let (options, controllers) = (Vec::new(), Vec::new());
                        parsed.endpoints.push(Endpoint { line, is_discovery, options, controllers });
                        Section::Endpoint
                    }
                    name => {
                        parsed.notes.push(format!("{}:{line}: [{name}]: no counterpart", file.display()));
                        Section::Unknown
                    }
                });
                continue;
            }
            let Some((key, value)) = text.split_once('=') else {
                return Err(refuse(text, "neither a [Section] nor `key = value`"));
            };
            let option = NvmeOption { name: key.trim().into(), value: value.trim().into() };
            match (section, parsed.endpoints.last_mut()) {
                (None, _) => return Err(refuse(&option.name, "stands before the first [Section]")),
                (Some(Section::Endpoint), Some(endpoint)) if option.name == "controller" => {
                    endpoint.controllers.push((line, controller(file, line, &option.value)?));
                }
                (Some(Section::Endpoint), Some(endpoint)) => endpoint.options.push(option),
                (Some(Section::Host), _) => parsed.host.push(option),
                (Some(Section::DiscoveryDefaults), _) => parsed.discovery_defaults.push(option),
                (Some(Section::IoDefaults), _) => parsed.io_defaults.push(option),
                (Some(Section::Unknown | Section::Endpoint), _) => {}
            }
        }
        Ok(parsed)
    }

    fn import(self, file: &Path, imported: &mut Imported, discovery: &mut ImportedDisk) -> Result<(), ImportError> {
        imported.notes.extend(self.notes);
        let mut host = self.host;
        let mut take = |name: &str| {
            let found = value(&host, name).map(ToOwned::to_owned);
            host.retain(|option| option.name != name);
            found
        };
        // The line number of an identity is not kept. The file and the key say where a wrong one is.
        let (hostnqn, hostid) = (take("hostnqn"), take("hostid"));
        if let Some(hostnqn) = hostnqn {
            let hostnqn: Nqn = hostnqn.parse().map_err(|error| refused(file, 1, "hostnqn", &format!("{error}")))?;
            imported.hostnqn = Some(hostnqn);
        }
        if let Some(hostid) = hostid {
            let hostid: HostId = hostid.parse().map_err(|error| refused(file, 1, "hostid", &format!("{error}")))?;
            imported.hostid = Some(hostid);
        }
        if let Some(name) = take("hostsymname") {
            imported.notes.push(format!("host: hostsymname {name}: no counterpart"));
        }
        for endpoint in self.endpoints {
            let defaults = if endpoint.is_discovery { &self.discovery_defaults } else { &self.io_defaults };
            endpoint.import(file, &overlaid([defaults, &host]), imported, discovery)?;
        }
        Ok(())
    }
}

impl Endpoint {
    fn import(
        self,
        file: &Path,
        outer: &[NvmeOption],
        imported: &mut Imported,
        discovery: &mut ImportedDisk,
    ) -> Result<(), ImportError> {
        let Self { line, is_discovery, options, controllers } = self;
        let mut section = overlaid([outer, &options]);
        let nqn = value(&section, "nqn").map(ToOwned::to_owned);
        section.retain(|option| option.name != "nqn");
        // Secrets and TLS belong to the section, and are noted once.
        let (secure, section): (Vec<_>, Vec<_>) =
            section.into_iter().partition(|option| security(&option.name).is_some());
        let of = nqn.as_deref().unwrap_or(DISCOVERY_NQN);
        let is_discovery = is_discovery || nqn.as_deref() == Some(DISCOVERY_NQN);
        let notes = secure
            .iter()
            .filter(|option| !option.is_off())
            .filter_map(|option| Some(format!("{option} of nqn {of}: {}", security(&option.name)?)));
        let to = if is_discovery {
            discovery.notes.extend(notes);
            discovery.note_other_name(of);
            discovery
        } else {
            let nqn = nqn.as_deref().ok_or_else(|| refused(file, line, "nqn", "missing; give the subsystem's NQN"))?;
            let nqn: Nqn = nqn.parse().map_err(|error| refused(file, line, "nqn", &format!("{error}")))?;
            let disk = imported.disk(nqn.as_str());
            disk.notes.extend(notes);
            disk
        };
        to.tls |= secure.iter().any(NvmeOption::requires_tls);
        for (line, given) in controllers {
            let mut all = overlaid([&section, &given]);
            let mut take = |name: &str| {
                let found = value(&all, name).map(ToOwned::to_owned);
                all.retain(|option| option.name != name);
                found
            };
            let transport = take("transport");
            let transport = transport.ok_or_else(|| refused(file, line, "transport", "missing; give transport=tcp"))?;
            let traddr = take("traddr");
            let traddr = traddr.ok_or_else(|| refused(file, line, "traddr", "missing; give traddr=ADDRESS"))?;
            to.add(&ControllerAddress { transport, traddr, trsvcid: take("trsvcid") }, is_discovery, &all);
        }
        Ok(())
    }
}

/// The options of a line `controller =`: `key=value`, separated by semicolons.
fn controller(file: &Path, line: usize, text: &str) -> Result<Vec<NvmeOption>, ImportError> {
    let option = |part: &str| {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| refused(file, line, "controller", &format!("`{part}` is not `key=value`")))?;
        Ok(NvmeOption { name: name.trim().into(), value: value.trim().into() })
    };
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(option).collect()
}

/// The options of all scopes, which are given from the outermost to the innermost. An inner value replaces an outer one, and an
/// empty value removes it.
fn overlaid<const N: usize>(scopes: [&[NvmeOption]; N]) -> Vec<NvmeOption> {
    let mut all: Vec<NvmeOption> = Vec::new();
    for option in scopes.into_iter().flatten() {
        all.retain(|outer| outer.name != option.name);
        if !option.value.is_empty() {
            all.push(option.clone());
        }
    }
    all
}

fn value<'a>(options: &'a [NvmeOption], name: &str) -> Option<&'a str> {
    let found = options.iter().rfind(|option| option.name == name);
    found.map(|option| option.value.as_str()).filter(|value| !value.is_empty())
}

/// The line without its comment, which begins with `#` at its start or after a blank.
fn uncommented(line: &str) -> &str {
    let comment = line.match_indices('#').find(|(at, _)| line[..*at].ends_with([' ', '\t']) || *at == 0);
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

fn refused(file: &Path, line: usize, option: &str, reason: &str) -> ImportError {
    ImportError::Option { file: file.into(), line, option: option.into(), reason: reason.into() }
}
