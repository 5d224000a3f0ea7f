//! `/etc/nvme/config.json` of nvme-cli 2.x: hosts, their subsystems, and the ports of these. The list of hosts is the file, or
//! `hosts` in it. A value that is null counts as not given.

use std::collections::BTreeMap;
use std::path::Path;

use mpath_config::{HostId, Nqn};
use serde::{Deserialize, Deserializer, de};

use super::controller::{ControllerAddress, NvmeOption};
use super::{DISCOVERY_NQN, ImportError, Imported, ImportedDisk, Selection, choose};

const NONE: &str = "none";

#[derive(Debug, Deserialize)]
struct HostList {
    hosts: Vec<Host>,
}

#[derive(Debug, Deserialize)]
struct Host {
    hostnqn: Option<Nqn>,
    hostid: Option<HostId>,
    subsystems: Option<Vec<Subsystem>>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_yaml::Value>,
}

#[derive(Debug, Deserialize)]
struct Subsystem {
    nqn: Nqn,
    ports: Option<Vec<Port>>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_yaml::Value>,
}

#[derive(Debug, Deserialize)]
struct Port {
    transport: String,
    traddr: Option<String>,
    trsvcid: Option<Trsvcid>,
    discovery: Option<bool>,
    #[serde(flatten)]
    other: BTreeMap<String, serde_yaml::Value>,
}

impl Port {
    fn is_discovery(&self) -> bool {
        self.discovery == Some(true)
    }
}

/// TRSVCID: a port, as a text or a number.
#[derive(Debug)]
struct Trsvcid(String);

impl<'de> Deserialize<'de> for Trsvcid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Trsvcid;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a port")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Trsvcid, E> {
                Ok(Trsvcid(text.into()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Trsvcid, E> {
                Ok(Trsvcid(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

pub(super) fn read(file: &Path, text: &str, selection: &Selection) -> Result<Imported, ImportError> {
    // JSON is YAML, and the YAML reader names the position of a wrong value.
    let hosts = if text.trim_start().starts_with('[') {
        serde_yaml::from_str(text)
    } else {
        serde_yaml::from_str(text).map(|HostList { hosts }| hosts)
    };
    let mut hosts: Vec<Host> = hosts.map_err(|error| refused(file, &error))?;
    if let Some(hostnqn) = &selection.hostnqn {
        hosts.retain(|host| host.hostnqn.as_ref() == Some(hostnqn));
    }
    let [host] = &hosts[..] else {
        let names = hosts.iter().map(|host| host.hostnqn.as_ref().map_or_else(|| "unnamed".into(), Nqn::to_string));
        return Err(ImportError::Hosts { file: file.into(), given: hosts.len(), hosts: names.collect() });
    };
    let mut imported = Imported { hostnqn: host.hostnqn.clone(), hostid: host.hostid, ..Imported::default() };
    imported.notes.extend(options(&host.other).filter_map(|option| Some(format!("host: {}", option.note()?))));

    // Discovery controllers belong to no subsystem; every disk may ask them.
    let mut discovery = ImportedDisk::default();
    for subsystem in host.subsystems.iter().flatten() {
        let (nqn, ports) = (subsystem.nqn.as_str(), subsystem.ports.as_deref().unwrap_or_default());
        // A discovery subsystem is no disk, even with a name of its own.
        let is_service = nqn == DISCOVERY_NQN || !ports.is_empty() && ports.iter().all(Port::is_discovery);
        if is_service {
            discovery.note_other_name(nqn);
        }
        let mut disk = (!is_service).then(|| imported.disk_of_section(nqn));
        let notes = options(&subsystem.other).filter_map(|option| option.note());
        disk.as_deref_mut().unwrap_or(&mut discovery).notes.extend(notes);
        for port in ports {
            let is_discovery = port.is_discovery() || is_service;
            let address = ControllerAddress {
                transport: port.transport.clone(),
                traddr: port.traddr.clone().unwrap_or_default(),
                trsvcid: port.trsvcid.as_ref().map(|port| port.0.clone()).filter(|port| port != NONE),
            };
            let to = disk.as_deref_mut().filter(|_| !is_discovery).unwrap_or(&mut discovery);
            let options: Vec<_> = options(&port.other).collect();
            to.add(&address, is_discovery, &options);
        }
    }
    imported.notes.append(&mut discovery.notes);
    choose(file, selection, &mut imported, &discovery, ImportedDisk::default())?;
    Ok(imported)
}

/// The options that are given: neither null nor `none`, which libnvme takes for no value.
fn options(other: &BTreeMap<String, serde_yaml::Value>) -> impl Iterator<Item = NvmeOption> {
    other.iter().filter_map(|(name, value)| {
        let value = match value {
            serde_yaml::Value::Null => return None,
            serde_yaml::Value::String(text) => text.clone(),
            serde_yaml::Value::Bool(value) => value.to_string(),
            serde_yaml::Value::Number(value) => value.to_string(),
            _ => "(several values)".into(),
        };
        (value != NONE).then(|| NvmeOption { name: name.replace('_', "-"), value })
    })
}

fn refused(file: &Path, error: &serde_yaml::Error) -> ImportError {
    // At the top level, the path of a field begins with a dot.
    let message = error.to_string();
    let message = message.strip_prefix('.').unwrap_or(&message);
    let reason = match error.location() {
        Some(at) => {
            let suffix = format!(" at line {} column {}", at.line(), at.column());
            format!("{}:{}: {}", at.line(), at.column(), message.replace(&suffix, ""))
        }
        None => format!(" {message}"),
    };
    let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    ImportError::Json { file: file.into(), reason }
}
