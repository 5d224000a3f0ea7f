//! `/etc/nvme/nvme-fabrics.conf` of nvme-cli 3 and its drop-ins: sections, each with lines `key = value`.
//!
//! A value is looked up in the line of a controller, in its section, in `[Host]`, and in the defaults of its kind. A drop-in has its own
//! `[Host]`, and its defaults overlay those of the main file. An empty value means the kernel's default.

use std::fs;
use std::path::{Path, PathBuf};

use mpath_config::{HostId, Nqn};

use super::controller::{ControllerAddress, NvmeOption, security};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection, choose, read_file};

/// The options of `[Host]` that say who the host is.
const IDENTITY: [&str; 3] = ["hostnqn", "hostid", "hostsymname"];

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

/// The names of the sections of a text.
pub(super) fn sections(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(section);
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
}

/// The name in the header of a section.
fn section(line: &str) -> Option<&str> {
    uncommented(line).strip_prefix('[')?.strip_suffix(']').map(str::trim)
}

/// A line, with its number.
pub(super) enum Line<'a> {
    Section(usize, &'a str),
    Option(usize, NvmeOption),
}

/// The lines of a text, without empty lines and comments.
pub(super) fn lines<'a>(file: &'a Path, text: &'a str) -> impl Iterator<Item = Result<Line<'a>, ImportError>> {
    (1..).zip(text.lines()).filter(|(_, text)| !uncommented(text).is_empty()).map(|(line, text)| {
        if let Some(name) = section(text) {
            return Ok(Line::Section(line, name));
        }
        let text = uncommented(text);
        let (name, value) =
            text.split_once('=').ok_or_else(|| refused(file, line, text, "neither a [Section] nor `key = value`"))?;
        Ok(Line::Option(line, NvmeOption { name: name.trim().into(), value: value.trim().into() }))
    })
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
    let (mut imported, mut discovery, mut discovered) =
        (Imported::default(), ImportedDisk::default(), ImportedDisk::default());
    if let Some((_, of)) = files.iter().find(|(_, parsed)| parsed.endpoints.iter().any(Endpoint::asks_discovery)) {
        let mut options = overlaid([&of.io_defaults, &of.host]);
        options.retain(|option| !IDENTITY.contains(&option.name.as_str()));
        discovered.add_options("the discovered paths", false, &options);
    }
    for (file, parsed) in files {
        parsed.import(file, &mut imported, &mut discovery)?;
    }
    imported.notes.append(&mut discovery.notes);
    choose(file, selection, &mut imported, &discovery, discovered)?;
    Ok(imported)
}

impl IniFile {
    fn parse(file: &Path, text: &str) -> Result<Self, ImportError> {
        let (mut parsed, mut section) = (Self::default(), None);
        for line in lines(file, text) {
            let (line, option) = match line? {
                Line::Option(line, option) => (line, option),
                Line::Section(line, name) => {
                    section = Some(match name {
                        "Host" if std::mem::replace(&mut parsed.has_host, true) => {
                            return Err(refused(file, line, "[Host]", "given twice; a file has one host"));
                        }
                        "Host" => Section::Host,
                        "Discovery Controller Defaults" => Section::DiscoveryDefaults,
                        "I/O Controller Defaults" => Section::IoDefaults,
                        "Discovery Controller" | "Subsystem" => {
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
            };
            match (section, parsed.endpoints.last_mut()) {
                (None, _) => return Err(refused(file, line, &option.name, "stands before the first [Section]")),
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
        // The line number of an identity is not kept. The file and the key say where a wrong one is.
        let [hostnqn, hostid, hostsymname] = IDENTITY.map(|name| take(&mut host, name));
        if let Some(hostnqn) = hostnqn {
            let hostnqn: Nqn = hostnqn.parse().map_err(|error| refused(file, 1, "hostnqn", &format!("{error}")))?;
            imported.hostnqn = Some(hostnqn);
        }
        if let Some(hostid) = hostid {
            let hostid: HostId = hostid.parse().map_err(|error| refused(file, 1, "hostid", &format!("{error}")))?;
            imported.hostid = Some(hostid);
        }
        if let Some(name) = hostsymname {
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
    fn asks_discovery(&self) -> bool {
        self.is_discovery || value(&self.options, "nqn") == Some(DISCOVERY_NQN)
    }

    fn import(
        self,
        file: &Path,
        outer: &[NvmeOption],
        imported: &mut Imported,
        discovery: &mut ImportedDisk,
    ) -> Result<(), ImportError> {
        let is_discovery = self.asks_discovery();
        let Self { line, options, controllers, .. } = self;
        let mut section = overlaid([outer, &options]);
        let nqn = value(&section, "nqn").map(ToOwned::to_owned);
        section.retain(|option| option.name != "nqn");
        // Secrets and TLS belong to the section, and are noted once.
        let (secure, section): (Vec<_>, Vec<_>) =
            section.into_iter().partition(|option| security(&option.name).is_some());
        let of = nqn.as_deref().unwrap_or(DISCOVERY_NQN);
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
            let disk = imported.disk_of_section(nqn.as_str());
            disk.notes.extend(notes);
            disk
        };
        to.tls |= secure.iter().any(NvmeOption::requires_tls);
        let paths_before = to.paths.len();
        for (line, given) in controllers {
            let mut all = overlaid([&section, &given]);
            let address = take_address(file, line, &mut all)?;
            to.add(&address, is_discovery, &all);
        }
        if !is_discovery && to.paths.len() == paths_before {
            to.add_options(&format!("nqn {of}"), false, &section);
        }
        Ok(())
    }
}

/// Takes the address out of the options of a controller.
pub(super) fn take_address(
    file: &Path,
    line: usize,
    options: &mut Vec<NvmeOption>,
) -> Result<ControllerAddress, ImportError> {
    let mut required = |name: &str, remedy: &str| {
        take(options, name).ok_or_else(|| refused(file, line, name, &format!("missing; give {remedy}")))
    };
    let (transport, traddr) = (required("transport", "transport=tcp")?, required("traddr", "traddr=ADDRESS")?);
    Ok(ControllerAddress { transport, traddr, trsvcid: take(options, "trsvcid") })
}

/// Takes the value of an option out of the options.
pub(super) fn take(options: &mut Vec<NvmeOption>, name: &str) -> Option<String> {
    let found = value(options, name).map(ToOwned::to_owned);
    options.retain(|option| option.name != name);
    found
}

/// The options of a line `controller =`: `key=value`, separated by semicolons.
pub(super) fn controller(file: &Path, line: usize, text: &str) -> Result<Vec<NvmeOption>, ImportError> {
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
pub(super) fn overlaid<const N: usize>(scopes: [&[NvmeOption]; N]) -> Vec<NvmeOption> {
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

/// The line without its comment, which begins with `#` at its start or after a blank. nvme-stas also has lines that begin with `;`.
fn uncommented(line: &str) -> &str {
    if line.trim_start().starts_with(';') {
        return "";
    }
    let comment = line.match_indices('#').find(|(at, _)| line[..*at].ends_with([' ', '\t']) || *at == 0);
    line[..comment.map_or(line.len(), |(at, _)| at)].trim()
}

pub(super) fn refused(file: &Path, line: usize, option: &str, reason: &str) -> ImportError {
    ImportError::Option { file: file.into(), line, option: option.into(), reason: reason.into() }
}
