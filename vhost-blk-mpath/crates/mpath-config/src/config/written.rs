//! A configuration without its defaults, as an operator would write it.

use serde::Serialize;
use serde_yaml::{Mapping, Value};

use super::{Config, DiskConfig, SharerConfig};

/// The settings of a configuration that are required or differ from their defaults, in the order of the sample.
#[must_use]
pub fn written(config: &Config) -> Value {
    let mut map = without(config, &Config::new(Vec::new()), &[]);
    map.insert("disks".into(), config.disks.iter().map(written_disk).collect());
    Value::Mapping(map)
}

/// The settings of one disk that are required or differ from their defaults.
#[must_use]
pub fn written_disk(disk: &DiskConfig) -> Value {
    let default = DiskConfig::new(disk.socket_path.clone(), disk.subsystem.clone(), Vec::new());
    let mut map = without(disk, &default, &["name", "socket-path", "subsystem"]);
    if let Some(sharers) = map.get_mut("share-paths-with") {
        *sharers = disk.share_paths_with.iter().map(written_sharer).collect();
    }
    Value::Mapping(map)
}

fn written_sharer(sharer: &SharerConfig) -> Value {
    let default = SharerConfig::new(sharer.name.clone(), sharer.socket_path.clone(), sharer.namespace);
    Value::Mapping(without(sharer, &default, &["name", "socket-path", "namespace"]))
}

/// The settings that are `required` or differ from the defaults.
fn without<T: Serialize>(settings: &T, default: &T, required: &[&str]) -> Mapping {
    let mapping = |of: &T| match serde_yaml::to_value(of) {
        Ok(Value::Mapping(map)) => map,
        _ => unreachable!("settings are a mapping with keys of text"),
    };
    let default = mapping(default);
    let is_written = |key: &Value, value: &Value| {
        key.as_str().is_some_and(|key| required.contains(&key)) || default.get(key) != Some(value)
    };
    mapping(settings).into_iter().filter(|(key, value)| is_written(key, value)).collect()
}
