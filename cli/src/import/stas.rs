//! `/etc/stas/stacd.conf` and `/etc/stas/stafd.conf` of nvme-stas: the I/O controllers and the discovery controllers of a host.
//!
//! A value is looked up in the line of a controller and in `[Global]`. stacd connects paths, stafd asks discovery controllers.

use std::path::Path;

use mpath_config::Nqn;

use super::controller::NvmeOption;
use super::ini::{Line, controller, lines, overlaid, refused, take, take_address};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection, choose};

const IO_SECTION: &str = "I/O controller connection management";
const DISCOVERY_SECTIONS: [&str; 2] = ["Discovery controller connection management", "Service Discovery"];

/// The options of `[Global]` that controllers have. The daemon of nvme-stas has the others.
const OF_CONTROLLERS: [&str; 10] = [
    "hdr-digest",
    "data-digest",
    "keep-alive-tmo",
    "nr-io-queues",
    "nr-write-queues",
    "nr-poll-queues",
    "queue-size",
    "reconnect-delay",
    "ctrl-loss-tmo",
    "disable-sqflow",
];

/// Whether only nvme-stas has a section of this name.
pub(super) fn has_section(name: &str) -> bool {
    ["Global", "Controllers", IO_SECTION].contains(&name) || DISCOVERY_SECTIONS.contains(&name)
}

#[derive(Debug, Default)]
struct StasFile {
    global: Vec<NvmeOption>,
    /// The lines `controller =`, each with its number.
    controllers: Vec<(usize, Vec<NvmeOption>)>,
    /// The lines `exclude =`.
    excluded: Vec<(usize, Vec<NvmeOption>)>,
    /// Whether a section says that it is the file of stafd, or of stacd.
    asks_discovery: Option<bool>,
    notes: Vec<String>,
}

pub(super) fn read(file: &Path, text: &str, selection: &Selection) -> Result<Imported, ImportError> {
    let StasFile { global, controllers, excluded, asks_discovery, notes } = StasFile::parse(file, text)?;
    // stacd needs the NQN of every controller.
    let asks_discovery = asks_discovery
        .unwrap_or_else(|| controllers.iter().any(|(_, given)| given.iter().all(|option| option.name != "nqn")));
    let mut imported = Imported { hostnqn: selection.hostnqn.clone(), notes, ..Imported::default() };
    let mut discovery = ImportedDisk::default();
    for (line, given) in controllers {
        if let Some((by, _)) = excluded.iter().find(|(_, pattern)| matches(pattern, &given)) {
            let given = described(&given);
            imported.notes.push(format!("{}:{line}: {given}: left out, line {by} excludes it", file.display()));
            continue;
        }
        let mut options = overlaid([&global, &given]);
        let address = take_address(file, line, &mut options)?;
        let nqn = take(&mut options, "nqn");
        let of = nqn.as_deref().unwrap_or(DISCOVERY_NQN);
        if asks_discovery || of == DISCOVERY_NQN {
            discovery.note_other_name(of);
            discovery.add(&address, true, &options);
        } else {
            let nqn: Nqn = of.parse().map_err(|error| refused(file, line, "nqn", &format!("{error}")))?;
            imported.disk(nqn.as_str()).add(&address, false, &options);
        }
    }
    for (line, pattern) in &excluded {
        let pattern = described(pattern);
        imported.notes.push(format!("{}:{line}: exclude {pattern}: not for discovered paths", file.display()));
    }
    imported.notes.append(&mut discovery.notes);
    choose(file, selection, &mut imported, &discovery, ImportedDisk::default())?;
    Ok(imported)
}

impl StasFile {
    fn parse(file: &Path, text: &str) -> Result<Self, ImportError> {
        let (mut parsed, mut section) = (Self::default(), "");
        for line in lines(file, text) {
            let (line, option) = match line? {
                Line::Section(_, name) => {
                    section = name;
                    if name == IO_SECTION || DISCOVERY_SECTIONS.contains(&name) {
                        parsed.asks_discovery = Some(name != IO_SECTION);
                    }
                    continue;
                }
                Line::Option(line, option) => (line, option),
            };
            let NvmeOption { name, value } = option;
            let name = if name == "kato" { "keep-alive-tmo".into() } else { name };
            match (section, name.as_str()) {
                (_, _) if value.is_empty() => {}
                ("Controllers", "controller") => parsed.controllers.push((line, given(file, line, &value)?)),
                ("Controllers", "exclude") => parsed.excluded.push((line, given(file, line, &value)?)),
                ("Global", key) if OF_CONTROLLERS.contains(&key) => parsed.global.push(NvmeOption { name, value }),
                _ => {
                    let note = NvmeOption { name, value }.note();
                    parsed.notes.extend(note.map(|note| format!("{}:{line}: [{section}] {note}", file.display())));
                }
            }
        }
        Ok(parsed)
    }
}

/// The options of a line of a controller, with the names that nvme-cli has.
fn given(file: &Path, line: usize, text: &str) -> Result<Vec<NvmeOption>, ImportError> {
    let mut options = controller(file, line, text)?;
    options.iter_mut().filter(|option| option.name == "kato").for_each(|option| option.name = "keep-alive-tmo".into());
    Ok(options)
}

/// Whether a controller has all values of a line `exclude =`, which `host-traddr` does not belong to.
fn matches(pattern: &[NvmeOption], controller: &[NvmeOption]) -> bool {
    let mut pattern = pattern.iter().filter(|option| option.name != "host-traddr").peekable();
    let is_there = |option: &NvmeOption| controller.iter().any(|of| of.name == option.name && of.value == option.value);
    pattern.peek().is_some() && pattern.all(is_there)
}

fn described(options: &[NvmeOption]) -> String {
    options.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
