//! Decides: a reload applies a change, or only names it (`is_live`).
//!
//! The differences between two configurations.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::live::is_live;
use super::{Config, DiskConfig, SharerConfig};
use crate::PathAddress;

/// The settings of a disk that are compared item by item.
const LISTS: [&str; 2] = ["paths", "share-paths-with"];

/// A change from one configuration to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Change {
    /// A setting has another value.
    Setting {
        /// The disk. `null` for a setting of the daemon.
        disk: Option<String>,
        /// The setting's name.
        setting: String,
        /// The value in effect. `null` without one.
        from: Value,
        /// The wanted value. `null` without one.
        to: Value,
        /// What has to be done for it.
        applies: Applies,
    },
    /// A disk has a path more.
    PathAdded {
        /// The disk.
        disk: String,
        /// The path.
        path: PathAddress,
    },
    /// A disk has a path less.
    PathRemoved {
        /// The disk.
        disk: String,
        /// The path.
        path: PathAddress,
    },
    /// A disk goes, with the disks that share its paths.
    DiskRemoved {
        /// The disk.
        disk: String,
    },
    /// A disk comes, with the disks that share its paths.
    DiskAdded {
        /// The disk.
        disk: String,
    },
}

/// When a changed setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Applies {
    /// At once, while I/O runs.
    Live,
    /// When the disk is removed and added, or when the daemon is restarted.
    AddingDisk,
    /// When the daemon is restarted.
    Restart,
}

impl Change {
    /// Whether a running daemon can apply it without the end of a disk.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::Setting { applies: Applies::AddingDisk | Applies::Restart, .. })
    }

    /// The position in the order of application. Paths are added before others are removed, so that no disk is without a path.
    /// Disks are removed before others are added, because a new disk may have the name or socket of a removed one.
    fn rank(&self) -> u8 {
        match self {
            Self::Setting { applies: Applies::Live, .. } => 0,
            Self::PathAdded { .. } => 1,
            Self::PathRemoved { .. } => 2,
            Self::DiskRemoved { .. } => 3,
            Self::DiskAdded { .. } => 4,
            Self::Setting { .. } => 5,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { disk, setting, from, to, applies } => {
                disk.iter().try_for_each(|disk| write!(f, "disk `{disk}`: "))?;
                write!(f, "{setting}: {} becomes {}", Shown(from), Shown(to))?;
                f.write_str(match applies {
                    Applies::Live => "",
                    Applies::AddingDisk => "; remove and add the disk, or restart the daemon",
                    Applies::Restart => "; restart the daemon",
                })
            }
            Self::PathAdded { disk, path } => write!(f, "disk `{disk}`: path {path} is added"),
            Self::PathRemoved { disk, path } => write!(f, "disk `{disk}`: path {path} is removed"),
            Self::DiskRemoved { disk } => write!(f, "disk `{disk}` is removed"),
            Self::DiskAdded { disk } => write!(f, "disk `{disk}` is added"),
        }
    }
}

/// A value on one line.
struct Shown<'a>(&'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("nothing"),
            Value::String(text) => f.write_str(text),
            Value::Object(map) => {
                let pair = |(key, value): (&String, &Value)| format!("{key}: {}", Shown(value));
                write!(f, "{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
            }
            Value::Array(items) => {
                write!(f, "[{}]", items.iter().map(|item| Shown(item).to_string()).collect::<Vec<_>>().join(", "))
            }
            other => other.fmt(f),
        }
    }
}

/// The changes from a configuration to the wanted one, in the order of application. Disks of the same name are the same disk.
#[must_use]
pub fn difference(from: &Config, to: &Config) -> Vec<Change> {
    let mut changes = settings(None, &from.without_disks(), &to.without_disks(), |_| Applies::Restart);
    let disk = |config: &Config, disk: &DiskConfig| config.disks.iter().find(|other| other.name == disk.name).cloned();
    for before in &from.disks {
        match disk(to, before) {
            Some(after) => of_disk(before, &after, &mut changes),
            None => changes.push(Change::DiskRemoved { disk: before.name.to_string() }),
        }
    }
    let added = to.disks.iter().filter(|after| disk(from, after).is_none());
    changes.extend(added.map(|disk| Change::DiskAdded { disk: disk.name.to_string() }));
    // A disk of another name on the same socket is the same disk for its guest, which must not see the socket vanish.
    for before in &from.disks {
        let is_renamed = |after: &&DiskConfig| after.socket_path == before.socket_path && after.name != before.name;
        let Some(after) = to.disks.iter().find(is_renamed) else { continue };
        let (old, new) = (before.name.to_string(), after.name.to_string());
        if disk(to, before).is_none() && disk(from, after).is_none() {
            changes.retain(|change| match change {
                Change::DiskRemoved { disk } => *disk != old,
                Change::DiskAdded { disk } => *disk != new,
                _ => true,
            });
            changes.push(Change::Setting {
                disk: Some(old.clone()),
                setting: "name".into(),
                from: old.into(),
                to: new.into(),
                applies: Applies::Restart,
            });
        }
    }
    changes.sort_by_key(Change::rank);
    changes
}

fn of_disk(from: &DiskConfig, to: &DiskConfig, changes: &mut Vec<Change>) {
    let disk = from.name.to_string();
    let applies = |setting: &str| if is_live(setting) { Applies::Live } else { Applies::AddingDisk };
    changes.extend(settings(Some(&disk), from, to, applies));
    let missing = |from: &DiskConfig, to: &DiskConfig| -> Vec<_> {
        to.paths.iter().filter(|path| !from.paths.contains(path)).cloned().collect()
    };
    changes.extend(missing(from, to).into_iter().map(|path| Change::PathAdded { disk: disk.clone(), path }));
    changes.extend(missing(to, from).into_iter().map(|path| Change::PathRemoved { disk: disk.clone(), path }));
    let names = |config: &DiskConfig| -> BTreeSet<_> {
        config.share_paths_with.iter().map(|sharer| sharer.name.to_string()).collect()
    };
    if names(from) != names(to) {
        let value = |config: &DiskConfig| names(config).into_iter().collect::<Vec<_>>().into();
        let (setting, applies) = ("share-paths-with".into(), Applies::AddingDisk);
        changes.push(Change::Setting { disk: Some(disk), setting, from: value(from), to: value(to), applies });
    }
    for before in &from.share_paths_with {
        let same = |after: &&SharerConfig| after.name == before.name;
        if let Some(after) = to.share_paths_with.iter().find(same) {
            changes.extend(settings(Some(before.name.as_str()), before, after, applies));
        }
    }
}

/// The settings that differ, except lists of paths and disks.
fn settings<T: Serialize>(disk: Option<&str>, from: &T, to: &T, applies: impl Fn(&str) -> Applies) -> Vec<Change> {
    let (from, to) = (values(from), values(to));
    let keys: BTreeSet<_> = from.keys().chain(to.keys()).filter(|key| !LISTS.contains(&key.as_str())).collect();
    let value = |of: &Map<String, Value>, key: &String| of.get(key).cloned().unwrap_or_default();
    let differing = keys.into_iter().filter(|key| from.get(*key) != to.get(*key));
    let change = |key: &String| Change::Setting {
        disk: disk.map(Into::into),
        setting: key.clone(),
        from: value(&from, key),
        to: value(&to, key),
        applies: applies(key),
    };
    differing.map(change).collect()
}

/// The settings by name.
fn values(of: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("settings are a mapping with keys of text"),
    }
}

impl Config {
    fn without_disks(&self) -> Self {
        Self { disks: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "
        disks:
          - name: a
            socket-path: /run/a.sock
            subsystem: nqn.a
            namespace: 1
            paths: [tcp://192.0.2.1, tcp://192.0.2.2]
            share-paths-with: [{name: s, socket-path: /run/s.sock, namespace: 2}]
          - {name: b, socket-path: /run/b.sock, subsystem: nqn.b, paths: [tcp://192.0.2.1]}";

    fn changes(edits: &[(&str, &str)]) -> Vec<String> {
        let mut to = FROM.to_owned();
        for (from, with) in edits {
            assert!(to.contains(from), "{from}");
            to = to.replacen(from, with, 1);
        }
        let (from, to) = (Config::parse(FROM).unwrap(), Config::parse(&to).unwrap());
        assert_eq!(difference(&to, &to), []);
        let changes = difference(&from, &to);
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Change>>(&text).unwrap(), changes);
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_and_orders_make_no_difference() {
        assert_eq!(
            changes(&[("namespace: 1", "namespace: 1\n            policy: bdp\n            weight: 100")]),
            [""; 0]
        );
        assert_eq!(changes(&[("tcp://192.0.2.1, tcp://192.0.2.2", "tcp://192.0.2.2:4420, tcp://192.0.2.1")]), [""; 0]);
    }

    #[test]
    fn live_settings_come_first_and_paths_are_added_before_others_go() {
        let settings = "namespace: 1
            policy: {read: numa, write: latency-rr}
            hedge: p95
            limits: {iops: 5}
            queues: 3";
        assert_eq!(
            changes(&[
                ("disks:", "io-threads: 2\n        disks:"),
                ("namespace: 1", settings),
                ("tcp://192.0.2.2]", "tcp://192.0.2.3]"),
                ("namespace: 2", "namespace: 3, weight: 7"),
                ("name: b, socket-path: /run/b.sock", "name: c, socket-path: /run/c.sock"),
            ]),
            [
                "disk `a`: hedge: off becomes p95",
                "disk `a`: limits: {bandwidth: off, burst: 1s, iops: off} becomes {bandwidth: off, burst: 1s, iops: 5}",
                "disk `a`: policy: bdp becomes {read: numa, write: latency-rr}",
                "disk `s`: weight: 100 becomes 7",
                "disk `a`: path tcp://192.0.2.3:4420 is added",
                "disk `a`: path tcp://192.0.2.2:4420 is removed",
                "disk `b` is removed",
                "disk `c` is added",
                "io-threads: 1 becomes 2; restart the daemon",
                "disk `a`: queues: 64 becomes 3; remove and add the disk, or restart the daemon",
                "disk `s`: namespace: 2 becomes 3; remove and add the disk, or restart the daemon",
            ]
        );
    }

    #[test]
    fn disks_over_shared_paths_come_and_go_with_the_disk_that_has_the_paths() {
        assert_eq!(
            changes(&[("{name: s, socket-path: /run/s.sock, namespace: 2}", "")]),
            ["disk `a`: share-paths-with: [s] becomes []; remove and add the disk, or restart the daemon"]
        );
        assert_eq!(
            changes(&[("socket-path: /run/b.sock", "socket-path: /run/b.sock, ctrl-loss-tmo: 7")]),
            ["disk `b`: ctrl-loss-tmo: nothing becomes 7; remove and add the disk, or restart the daemon"]
        );
    }

    #[test]
    fn a_renamed_disk_keeps_its_socket_and_waits_for_a_restart() {
        assert_eq!(changes(&[("name: b", "name: c")]), ["disk `b`: name: b becomes c; restart the daemon"]);
    }
}
