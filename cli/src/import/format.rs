//! Decides: an imported file has this format.

use serde_json::Value;

use super::{ini, stas};

/// How a file is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `config.json` of nvme-cli.
    Json,
    /// `nvme-fabrics.conf` of nvme-cli.
    Ini,
    /// `stacd.conf` or `stafd.conf` of nvme-stas.
    Stas,
    /// `discovery.conf` of nvme-cli.
    Lines,
    Foreign(Foreign),
}

/// A file that cannot be read. The text says what to give in place of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Foreign {
    #[error(
        "a multipath.conf of dm-multipath, which has no addresses of controllers; give a file of nvme-cli or nvme-stas, and set the \
         policy as from-other-tools.md says"
    )]
    DmMultipath,
    #[error(
        "a configuration of SPDK; give a file of nvme-cli or nvme-stas, or write each `traddr` and `trsvcid` of \
         bdev_nvme_attach_controller as a path tcp://TRADDR:TRSVCID"
    )]
    Spdk,
    #[error(
        "a configuration of an NVMe target (nvmetcli), and not of a host; give a file of the host's nvme-cli or nvme-stas, or write \
         each port's `traddr` and `trsvcid` as a path tcp://TRADDR:TRSVCID"
    )]
    Nvmet,
}

impl Format {
    pub(super) fn of(text: &str, has_drop_ins: bool) -> Self {
        let first = text.trim_start().chars().next();
        let sections = || ini::sections(text);
        if first == Some('{') || first == Some('[') && sections().next().is_none() {
            foreign_json(text).map_or(Self::Json, Self::Foreign)
        } else if sections().any(stas::has_section) {
            Self::Stas
        } else if has_drop_ins || sections().next().is_some() {
            Self::Ini
        } else if text.lines().any(is_dm_multipath) {
            Self::Foreign(Foreign::DmMultipath)
        } else {
            Self::Lines
        }
    }
}

/// Whether a line begins a section of `multipath.conf`.
fn is_dm_multipath(line: &str) -> bool {
    const SECTIONS: [&str; 7] =
        ["defaults", "blacklist", "blacklist_exceptions", "devices", "multipaths", "overrides", "protocol"];
    line.split_once('{').is_some_and(|(name, _)| SECTIONS.contains(&name.trim()))
}

/// The other tool whose JSON it is. A list, or an object with only `hosts`, is of nvme-cli.
fn foreign_json(text: &str) -> Option<Foreign> {
    let file: Value = serde_json::from_str(text).ok()?;
    let any = |of: &Value, key| of.as_array().is_some_and(|items| items.iter().any(|item| item.get(key).is_some()));
    let is_spdk = ["subsystem", "method"].iter().any(|key| file.get(key).is_some())
        || any(&file, "method")
        || any(&file["subsystems"], "subsystem");
    let is_nvmet = ["subsystems", "ports"].iter().any(|key| file.get(key).is_some_and(Value::is_array))
        || any(&file["hosts"], "nqn");
    is_spdk.then_some(Foreign::Spdk).or_else(|| is_nvmet.then_some(Foreign::Nvmet))
}
