//! The output of nouns whose settings can be changed while I/O runs.

use std::collections::BTreeMap;

use mpath_api::types::{Disk, LastChange};
use mpath_config::LiveSetting;
use serde_yaml::{Mapping, Value};

use super::last_change::with_changes;
use crate::Failure;
use crate::output::{Output, Table};

/// Prints these settings of disks, and who has changed them last. JSON and YAML have these keys, which may be those of limits, and
/// `changed` by setting.
pub(super) fn print(
    output: &mut Output,
    disks: &[Disk],
    settings: &[LiveSetting],
    keys: &[&str],
    as_table: impl FnOnce(&[Disk]) -> Table,
) -> Result<(), Failure> {
    let parts: Vec<_> = disks.iter().map(|disk| parts(disk, settings, keys)).collect();
    let last = |disk| changes(disk, settings).map(|(_, change)| change).max_by_key(|change| &change.at);
    Ok(output.print(&parts, |_| with_changes(as_table(disks), &disks.iter().map(last).collect::<Vec<_>>()))?)
}

/// The last change of each of these settings that was changed.
fn changes<'a>(disk: &'a Disk, settings: &[LiveSetting]) -> impl Iterator<Item = (&'static str, &'a LastChange)> {
    settings.iter().filter_map(|setting| Some((setting.name(), disk.last_change(*setting)?)))
}

fn parts(disk: &Disk, settings: &[LiveSetting], keys: &[&str]) -> Mapping {
    let changed: BTreeMap<_, _> = changes(disk, settings).collect();
    let changed =
        (!changed.is_empty()).then(|| (Value::from("changed"), serde_yaml::to_value(changed).unwrap_or_default()));
    let all = serde_yaml::to_value(disk).unwrap_or_default();
    let value = |key: &str| all.get(key).or_else(|| all["limits"].get(key)).cloned().unwrap_or_default();
    let name = (Value::from("disk"), Value::from(disk.name.as_str()));
    [name].into_iter().chain(keys.iter().map(|key| (Value::from(*key), value(key)))).chain(changed).collect()
}
