//! `mpathctl config show`

use mpath_api::client::Client;
use mpath_api::types::Configuration;
use mpath_config::{Config, DiskName, is_live};
use serde_yaml::Value;

use crate::Failure;
use crate::output::Output;

/// Comments are aligned behind the longest line. Lines that are longer than this do not count.
const ALIGN_MAX: usize = 60;

pub(super) fn show(client: &Client, disk: Option<&str>, output: &mut Output) -> Result<(), Failure> {
    if let Some(disk) = disk {
        // Fails with the daemon's error if there is no disk of this name.
        client.disks(Some(disk))?;
    }
    let mut configuration = client.configuration()?;
    if let (Some(disk), Some(disks)) = (disk, configuration.effective["disks"].as_array_mut()) {
        let is_it = |of: &serde_json::Value| of["name"] == disk;
        disks.retain(|of| {
            is_it(of) || of["share-paths-with"].as_array().is_some_and(|sharers| sharers.iter().any(is_it))
        });
    }
    Ok(output.print(&configuration, as_yaml)?)
}

/// The settings in effect, each with a comment that says where the value comes from.
fn as_yaml(configuration: &Configuration) -> String {
    // A `Config` has its settings in the order of the sample configuration.
    let ordered = |value: &serde_json::Value| -> Option<Value> {
        let config: Config = serde_json::from_value(value.clone()).ok()?;
        serde_yaml::to_value(config).ok()
    };
    let effective = ordered(&configuration.effective).or_else(|| serde_yaml::to_value(&configuration.effective).ok());
    let (resolved, given) = (ordered(&configuration.given), serde_yaml::to_value(&configuration.given).ok());
    let file = configuration.file.as_deref();
    let source = file.map_or("flags", |file| file.rsplit('/').next().unwrap_or(file));
    let mut lines = Lines { source, lines: Vec::new() };
    let from = Given { resolved: resolved.as_ref(), written: given.as_ref(), is_live: false };
    lines.add("", &effective.unwrap_or_default(), from);
    let width = lines.lines.iter().map(|(text, _)| text.chars().count()).filter(|width| *width <= ALIGN_MAX).max();
    let width = width.unwrap_or_default();
    let line = |(text, comment): &(String, Option<String>)| match comment {
        Some(comment) => format!("{text:<width$}  # {comment}\n"),
        None => format!("{text}\n"),
    };
    let begin = format!("# In effect. The daemon was started with {}.\n", file.unwrap_or("flags"));
    begin + &lines.lines.iter().map(line).collect::<String>()
}

/// The given value of a setting: `resolved` with defaults, `written` as the operator has written it.
#[derive(Clone, Copy)]
struct Given<'a> {
    resolved: Option<&'a Value>,
    written: Option<&'a Value>,
    /// Whether the value can be changed while I/O runs.
    is_live: bool,
}

impl<'a> Given<'a> {
    fn part(self, key: &str) -> Self {
        let part = |of: Option<&'a Value>| of?.get(key);
        let is_live = self.is_live || is_live(key);
        Self { resolved: part(self.resolved), written: part(self.written), is_live }
    }

    /// The given value of a list's item: the item of the same name, or an equal one.
    fn item(self, item: &Value) -> Self {
        let default = Value::from(DiskName::default().as_str());
        let name = |of: &Value| of.get("name").cloned().unwrap_or_else(|| default.clone());
        let is_same = |of: &&Value| if item.is_mapping() { name(of) == name(item) } else { *of == item };
        let resolved = self.resolved.and_then(Value::as_sequence).and_then(|items| items.iter().find(is_same));
        let written = self.written.and_then(Value::as_sequence).and_then(|items| items.iter().find(is_same));
        // An address may be written in another form.
        let written = written.or(resolved.filter(|item| !item.is_mapping()));
        Self { resolved, written, is_live: self.is_live || resolved.is_none() }
    }
}

struct Lines<'a> {
    source: &'a str,
    /// Each line, and its comment if it has one.
    lines: Vec<(String, Option<String>)>,
}

impl Lines<'_> {
    /// Adds a value. `begin` is the line so far.
    fn add(&mut self, begin: &str, value: &Value, given: Given<'_>) {
        let indent = begin.len() - begin.trim_start_matches([' ', '-']).len();
        match value {
            Value::Mapping(map) if !map.is_empty() => {
                let is_item = begin.len() == indent;
                if !is_item {
                    self.lines.push((begin.trim_end().into(), None));
                }
                let inner = if is_item { indent } else { indent + 2 };
                for (number, (key, value)) in map.iter().enumerate() {
                    let key = key.as_str().unwrap_or_default();
                    let lead = if is_item && number == 0 { begin.to_owned() } else { " ".repeat(inner) };
                    self.add(&format!("{lead}{key}: "), value, given.part(key));
                }
            }
            Value::Sequence(items) if !items.is_empty() => {
                self.lines.push((begin.trim_end().into(), None));
                for item in items {
                    self.add(&format!("{}- ", " ".repeat(indent + 2)), item, given.item(item));
                }
            }
            scalar => {
                let text = serde_yaml::to_string(scalar).unwrap_or_default();
                let comment = self.origin(scalar, given);
                self.lines.push((format!("{begin}{}", text.trim_end()), Some(comment)));
            }
        }
    }

    fn origin(&self, value: &Value, given: Given<'_>) -> String {
        match given {
            Given { resolved: Some(resolved), written, .. } if resolved == value => {
                if written.is_some() {
                    self.source.into()
                } else {
                    "default".into()
                }
            }
            Given { is_live: true, .. } => "changed live".into(),
            _ => format!("until a restart: {} differs", self.source),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_value_says_where_it_comes_from() {
        let given = json!({
            "io-threads": 2,
            "disks": [{"socket-path": "/s", "subsystem": "nqn.a", "paths": ["tcp://h"], "limits": {"burst": "2s"}}],
        });
        let config: Config = serde_json::from_value(given.clone()).unwrap();
        let mut effective = serde_json::to_value(&config).unwrap();
        let disk = &mut effective["disks"][0];
        (disk["policy"], disk["limits"]["iops"]) = (json!({"name": "latency-rr", "threshold": "2"}), json!(5));
        disk["queues"] = json!(3);
        disk["paths"] = json!(["tcp://h:4420", "tcp://i:4420"]);
        let shown = as_yaml(&Configuration { file: Some("/etc/c.yaml".into()), given, effective: effective.clone() });
        let read: Config = Config::parse(&shown).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), effective);
        let squeezed: Vec<_> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for line in [
            "# In effect. The daemon was started with /etc/c.yaml.",
            "io-threads: 2 # c.yaml",
            "wait-for: none # default",
            "- name: disk0 # default",
            "- tcp://h:4420 # c.yaml",
            "- tcp://i:4420 # changed live",
            "name: latency-rr # changed live",
            "threshold: '2' # changed live",
            "iops: 5 # changed live",
            "burst: 2s # c.yaml",
            "weight: 100 # default",
            "queues: 3 # until a restart: c.yaml differs",
        ] {
            assert!(squeezed.iter().any(|shown| shown == line), "{line}\n{shown}");
        }
    }
}
