//! Decides: a live change is written into the text of the file.
//!
//! Changes settings in the text of a configuration file. Comments and the form of everything else stay.

mod document;
mod render;

use serde_json::Value;

use self::document::{Document, Node};
use self::render::{block, flow};
use super::{Change, Config, DiskConfig, difference, written_disk};
use crate::PathAddress;

/// Why the changes cannot be written into a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is no configuration.
    #[error("the file has errors; `mpathctl config check` shows them")]
    Invalid,
    /// The text has a form that the edit does not know, such as an alias, or the result would mean something else.
    #[error("`{change}` cannot be written into the file as it is; edit the file by hand, or save to a new file")]
    Form {
        /// The change.
        change: String,
    },
}

/// Writes the live differences from the text's configuration to `wanted` into the text. Returns the new text and the differences.
/// Other differences stay. The new text was read again, and has no live difference to `wanted`.
pub fn edit(text: &str, wanted: &Config) -> Result<(String, Vec<Change>), EditError> {
    let parse = |text: &str| Config::parse(text).map_err(|_| EditError::Invalid);
    let (changes, others): (Vec<_>, Vec<_>) = difference(&parse(text)?, wanted).into_iter().partition(Change::is_live);
    let mut edited = text.to_owned();
    for change in &changes {
        let form = || EditError::Form { change: change.to_string() };
        edited = apply(&edited, change, wanted).ok_or_else(form)?;
    }
    let left = Config::parse(&edited).ok().map(|config| difference(&config, wanted));
    // All live differences are gone, and nothing else has changed.
    let wrong = match &left {
        Some(left) => left.iter().find(|change| !others.contains(change)),
        None => changes.last(),
    };
    wrong.map_or(Ok((edited, changes.clone())), |change| Err(EditError::Form { change: change.to_string() }))
}

/// The text with one change. `None` if its form is not known.
fn apply(text: &str, change: &Change, wanted: &Config) -> Option<String> {
    let document = Document::parse(text)?;
    let disks = document.disks()?;
    match change {
        Change::Setting { disk, setting, from, to, .. } => set(text, disk.as_deref()?, setting, from, to),
        Change::PathAdded { disk, path } => {
            let settings = document.disk(disk)?;
            let item = flow(&serde_yaml::to_value(path).ok()?);
            match settings.get("paths") {
                Some(paths) => document.append(paths, &block(&serde_yaml::to_value(path).ok()?), &item),
                None => document.insert(settings, "paths", &format!("[{item}]")),
            }
        }
        Change::PathRemoved { disk, path } => {
            let paths = document.disk(disk)?.get("paths")?;
            let is_it =
                |item: &Node| item.scalar().and_then(|text| text.parse::<PathAddress>().ok()).as_ref() == Some(path);
            document.remove(paths, paths.items().iter().position(is_it)?)
        }
        Change::DiskRemoved { disk } => document.remove(disks, document.position(disk)?),
        Change::DiskAdded { disk } => {
            let added: &DiskConfig = wanted.disks.iter().find(|config| config.name.as_str() == disk)?;
            let settings = written_disk(added);
            document.append(disks, &block(&settings), &flow(&settings))
        }
    }
}

/// Sets a setting of a disk. In a mapping with the same keys, only the values that differ are set.
fn set(text: &str, disk: &str, setting: &str, from: &Value, to: &Value) -> Option<String> {
    let parts = match (from.as_object(), to.as_object()) {
        (Some(from), Some(to)) if from.keys().eq(to.keys()) => {
            to.iter().filter(|(key, value)| from.get(*key) != Some(value)).collect()
        }
        _ => Vec::new(),
    };
    let document = Document::parse(text)?;
    let mapping = document.disk(disk)?;
    match mapping.get(setting) {
        // The other keys keep their defaults.
        None if !parts.is_empty() => {
            let parts = parts.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            return set_key(&document, mapping, setting, &Value::Object(parts));
        }
        Some(node) if !parts.is_empty() && node.is_mapping() => {}
        _ => return set_key(&document, mapping, setting, to),
    }
    parts.into_iter().try_fold(text.to_owned(), |text, (key, value)| {
        let document = Document::parse(&text)?;
        set_key(&document, document.disk(disk)?.get(setting)?, key, value)
    })
}

fn set_key(document: &Document<'_>, mapping: &Node, key: &str, value: &Value) -> Option<String> {
    let value = flow(&serde_yaml::to_value(value).ok()?);
    match mapping.get(key) {
        Some(node) => Some(document.replace(node, &value)),
        None => document.insert(mapping, key, &value),
    }
}

#[cfg(test)]
mod tests;
