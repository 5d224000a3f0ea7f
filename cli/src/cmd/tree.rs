//! The output of `mpathctl status --tree`: subsystems, their disks, and the paths of each.

use mpath_api::types::{AnaState, Disk, Path, Status};
use serde::Serialize;

use super::path::state_without_ana;
use crate::output::{Column, Text, or_dash, table};

/// One subsystem.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Subsystem<'a> {
    subsystem: &'a str,
    disks: Vec<Branch<'a>>,
}

/// A disk, and its paths, which may be another disk's.
#[derive(Debug, Serialize)]
struct Branch<'a> {
    #[serde(flatten)]
    disk: &'a Disk,
    paths: Vec<&'a Path>,
}

/// The subsystems in the order of their first disks.
pub(super) fn tree<'a>(status: &'a Status, paths: &'a [Path]) -> Vec<Subsystem<'a>> {
    let mut subsystems: Vec<Subsystem> = Vec::new();
    for disk in &status.disks {
        let owner = disk.shares_paths_of.as_ref().unwrap_or(&disk.name);
        let branch = Branch { disk, paths: paths.iter().filter(|path| path.disk == *owner).collect() };
        match subsystems.iter_mut().find(|of| of.subsystem == disk.subsystem) {
            Some(of) => of.disks.push(branch),
            None => subsystems.push(Subsystem { subsystem: &disk.subsystem, disks: vec![branch] }),
        }
    }
    subsystems
}

pub(super) fn for_people(subsystems: &[Subsystem]) -> Text {
    let lines = Lines::of_locale(|name| std::env::var(name).ok());
    Text::paragraphs(subsystems.iter().map(|of| subsystem(of, lines)))
}

const COLUMNS: [Column; 5] =
    [Column::Text(""), Column::State(""), Column::Text(""), Column::Number(""), Column::Long("")];

fn subsystem(of: &Subsystem, lines: Lines) -> Text {
    let mut rows = Vec::new();
    for (at, branch) in of.disks.iter().enumerate() {
        let (fork, stem) = lines.forks(at + 1 == of.disks.len());
        rows.push(disk(fork, branch.disk));
        for (at, of) in branch.paths.iter().enumerate() {
            let (fork, _) = lines.forks(at + 1 == branch.paths.len());
            rows.push(path(&format!("{stem}{fork}"), of, branch.disk));
        }
    }
    Text::from(format!("{}\n", of.subsystem)).then(table(COLUMNS, rows).without_headers())
}

/// The characters of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lines {
    Unicode,
    Ascii,
}

impl Lines {
    /// Those that the locale has. The first of these variables that is set counts.
    fn of_locale(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let locale = set.unwrap_or_default().to_ascii_lowercase();
        if ["utf-8", "utf8"].iter().any(|name| locale.contains(name)) { Self::Unicode } else { Self::Ascii }
    }

    /// The lines in front of an entry, and in front of the entries below it.
    fn forks(self, is_last: bool) -> (&'static str, &'static str) {
        match (self, is_last) {
            (Self::Unicode, true) => ("└─ ", "   "),
            (Self::Unicode, false) => ("├─ ", "│  "),
            (Self::Ascii, true) => ("`- ", "   "),
            (Self::Ascii, false) => ("|- ", "|  "),
        }
    }
}

fn disk(fork: &str, disk: &Disk) -> [String; 5] {
    let mode = if disk.read_only { "ro" } else { "rw" };
    let guest = if disk.connected { ", guest connected" } else { "" };
    [
        format!("{fork}{}", disk.name),
        disk.health.condition.to_string(),
        format!("namespace {}", or_dash(disk.namespace)),
        format!("{} MiB", disk.capacity_bytes >> 20),
        format!("{mode}, policy {}{guest}", disk.policy),
    ]
}

/// A path as the disk sees it, with its share of the last minute.
fn path(forks: &str, path: &Path, disk: &Disk) -> [String; 5] {
    let sharer = path.sharers.iter().find(|of| of.disk == disk.name);
    let (ana, unusable): (Option<AnaState>, _) =
        sharer.map_or((path.ana_state, &path.unusable), |of| (of.ana_state, &of.unusable));
    [
        format!("{forks}{} {}", path.index, path.address),
        state_without_ana(path),
        or_dash(ana),
        format!("{:.1} %", path.io_share_60s * 100.0),
        unusable.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_which_lines_a_terminal_shows() {
        for (set, lines) in [
            (&[("LANG", "en_US.UTF-8")][..], Lines::Unicode),
            (&[("LANG", "C.utf8")], Lines::Unicode),
            (&[("LANG", "C"), ("LC_CTYPE", "de_DE.UTF-8")], Lines::Unicode),
            (&[("LANG", "en_US.UTF-8"), ("LC_ALL", "")], Lines::Unicode),
            (&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")], Lines::Ascii),
            (&[("LANG", "de_DE@euro")], Lines::Ascii),
            (&[], Lines::Ascii),
        ] {
            let variable = |name: &str| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(Lines::of_locale(variable), lines, "{set:?}");
        }
    }
}
