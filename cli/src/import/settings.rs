//! Decides: an imported disk gets the value of one of its paths.
//!
//! The paths of a disk share their settings. In a file, each path has its own.

use std::collections::{BTreeMap, BTreeSet};

use super::ImportedDisk;

/// The value of a time without limit, in the words of nvme-cli. It is the default, so no setting is written.
pub(super) const NEVER: &str = "-1";

/// What one path sets.
#[derive(Debug)]
pub(super) struct Settings {
    /// The name of the path in comments.
    pub(super) of: String,
    /// Values by key.
    pub(super) values: BTreeMap<&'static str, String>,
}

impl ImportedDisk {
    /// The value of the disk, and the path that has it: no limit or a digest if any path has it, otherwise the first value.
    fn chosen(&self, key: &str) -> Option<(&str, &str)> {
        let given = || self.settings.iter().filter_map(|path| Some((path.values.get(key)?.as_str(), path.of.as_str())));
        given().find(|(value, _)| [NEVER, "true"].contains(value)).or_else(|| given().next())
    }

    /// The settings of the disk that differ from the defaults.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let chosen = self.keys().into_iter().filter_map(|key| Some((key, self.chosen(key)?.0)));
        chosen.filter(|(_, value)| ![NEVER, "false"].contains(value))
    }

    fn keys(&self) -> BTreeSet<&'static str> {
        self.settings.iter().flat_map(|path| path.values.keys().copied()).collect()
    }

    /// Adds comments on values that the disk does not have, and on paths that have a value only because the disk has it.
    pub(super) fn note_differences(&mut self) {
        let mut notes = Vec::new();
        for key in self.keys() {
            let Some((chosen, chosen_of)) = self.chosen(key) else { continue };
            if chosen == NEVER {
                notes.push(format!("{key} {NEVER} of {chosen_of}: never, which is the default without the setting"));
            }
            let mut without = Vec::new();
            for Settings { of, values } in &self.settings {
                match values.get(key) {
                    Some(value) if value != chosen => notes.push(format!(
                        "{key} {value} of {of}: left out, because all paths of a disk share one value, and {chosen} of {chosen_of} counts"
                    )),
                    Some(_) => {}
                    None => without.push(of.as_str()),
                }
            }
            if !without.is_empty() && ![NEVER, "false"].contains(&chosen) {
                notes.push(format!("{key} {chosen} of {chosen_of}: also for {}, which had none", without.join(", ")));
            }
        }
        self.notes.append(&mut notes);
    }
}
