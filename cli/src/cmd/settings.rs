//! The output of nouns whose settings can be changed while I/O runs.

use mpath_api::types::Disk;
use serde_yaml::{Mapping, Value};

use crate::Failure;
use crate::output::{Output, Table};

/// Prints settings of disks. JSON and YAML have these keys, which may be those of limits.
pub(super) fn print(
    output: &mut Output,
    disks: &[Disk],
    keys: &[&str],
    as_table: impl FnOnce(&[Disk]) -> Table,
) -> Result<(), Failure> {
    let parts: Vec<_> = disks.iter().map(|disk| parts(disk, keys)).collect();
    Ok(output.print(&parts, |_| as_table(disks))?)
}

fn parts(disk: &Disk, keys: &[&str]) -> Mapping {
    let all = serde_yaml::to_value(disk).unwrap_or_default();
    let value = |key: &str| all.get(key).or_else(|| all["limits"].get(key)).cloned().unwrap_or_default();
    let name = (Value::from("disk"), Value::from(disk.name.as_str()));
    [name].into_iter().chain(keys.iter().map(|key| (Value::from(*key), value(key)))).collect()
}
