//! Decides: an option of nvme-cli becomes a setting.
//!
//! One controller in a file of nvme-cli: its address and options.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use mpath_config::{
    CtrlLossTmo, DiscoveryAddress, FastIoFailTmo, KeepAliveTmo, PathAddress, QueueEntries, ReconnectDelay,
    default_keep_alive_tmo, default_queue_size, default_reconnect_delay,
};

use super::ImportedDisk;
use super::settings::{NEVER, Settings};

/// An option of nvme-cli, its name with `-` for `_`.
#[derive(Debug, Clone)]
pub(super) struct NvmeOption {
    pub(super) name: String,
    /// The value. `true` for a flag.
    pub(super) value: String,
}

/// What becomes of an option of security. `None` for other options.
pub(super) fn security(name: &str) -> Option<&'static str> {
    match name {
        "tls" => Some("write the key to the files that the settings name, and let only the daemon's user read them"),
        "tls-key" => Some("not copied, because it is a secret; write the key to the files that the settings name"),
        "tls-key-identity" => Some("NOT MET: the daemon makes identities of hostnqn, subsystem and the key"),
        "keyring" => Some("NOT MET: the daemon uses no keyring; write the key to the files that the settings name"),
        "concat" => Some(
            "NOT MET: write the secrets to files, and set `concat`, `dhchap-secret-file` and perhaps `dhchap-ctrl-secret-file` in place of `tls-key-file`; discovery has no such keys",
        ),
        _ if ["chap", "secret"].iter().any(|word| name.contains(word)) => Some(
            "NOT MET: the daemon reads secrets from files; write the secret to a file and set `dhchap-secret-file` or `dhchap-ctrl-secret-file`",
        ),
        _ => None,
    }
}

impl NvmeOption {
    /// Whether it is a flag that is off, or a key that is `none`.
    pub(super) fn is_off(&self) -> bool {
        self.flag() == Some(false) || self.value == "none" && security(&self.name).is_some()
    }

    /// The comment on an option without a counterpart. `None` for a flag that is off.
    pub(super) fn note(&self) -> Option<String> {
        (!self.is_off()).then(|| format!("{self}: {}", security(&self.name).unwrap_or("no counterpart")))
    }

    /// Whether connections use TLS because of this option.
    pub(super) fn requires_tls(&self) -> bool {
        matches!(self.name.as_str(), "tls" | "tls-key" | "tls-key-identity" | "concat") && !self.is_off()
    }

    /// The value of a flag, as nvme-cli 3 reads it.
    fn flag(&self) -> Option<bool> {
        match self.value.to_ascii_lowercase().as_str() {
            "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
            "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
            _ => None,
        }
    }

    /// The setting for this option. `None` if none is needed. The error says why there is none.
    fn setting(&self) -> Result<Option<(&'static str, String)>, String> {
        let Self { name, value } = self;
        let flag = |key| match self.flag() {
            Some(is_on) => Ok(Some((key, is_on.to_string()))),
            None => Err(format!("left out: `{value}` is neither true nor false; the default of {key} is false")),
        };
        match name.as_str() {
            "keep-alive-tmo" => set::<KeepAliveTmo>("keep-alive-tmo", value, default_keep_alive_tmo()),
            "reconnect-delay" => set::<ReconnectDelay>("reconnect-delay", value, default_reconnect_delay()),
            "queue-size" => set::<QueueEntries>("queue-size", value, default_queue_size()),
            "ctrl-loss-tmo" => limit::<CtrlLossTmo>("ctrl-loss-tmo", value),
            "fast-io-fail-tmo" => limit::<FastIoFailTmo>("fast-io-fail-tmo", value),
            "hdr-digest" => flag("hdr-digest"),
            "data-digest" => flag("data-digest"),
            // Connections to discovery controllers are always persistent if the controller allows it.
            "persistent" => Ok(None),
            "nr-io-queues" => Err("no counterpart: a path has one I/O queue per I/O thread, see io-threads".into()),
            _ if self.is_off() && name != "tos" => Ok(None),
            _ => Err(security(name).unwrap_or("no counterpart").into()),
        }
    }

    fn is_of_address(&self) -> bool {
        matches!(self.name.as_str(), "host-traddr" | "host-iface")
    }
}

impl std::fmt::Display for NvmeOption {
    /// The text for a comment, without secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_secret = ["key", "secret"].iter().any(|word| self.name.contains(word));
        write!(f, "{} {}", self.name, if is_secret { "(a secret)" } else { &self.value })
    }
}

/// The address of a controller.
#[derive(Debug)]
pub(super) struct ControllerAddress {
    pub(super) transport: String,
    pub(super) traddr: String,
    pub(super) trsvcid: Option<String>,
}

impl ControllerAddress {
    /// The name in comments.
    pub(super) fn name(&self) -> String {
        let port = self.trsvcid.as_ref().map_or_else(String::new, |port| format!(":{port}"));
        format!("{}://{}{port}", self.transport, host(&self.traddr))
    }

    /// The URL with the options that belong to the address.
    fn url(&self, options: &[NvmeOption]) -> String {
        let mut url = self.name().to_ascii_lowercase();
        for NvmeOption { name, value } in options.iter().filter(|option| option.is_of_address()) {
            let separator = if url.contains('?') { "&" } else { "?" };
            for part in [separator, name, "=", value] {
                url.push_str(part);
            }
        }
        url
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.transport.eq_ignore_ascii_case("tcp")
    }
}

/// The host part of a URL, with brackets around an IPv6 address.
fn host(traddr: &str) -> String {
    if traddr.contains(':') { format!("[{traddr}]") } else { traddr.into() }
}

/// Parses a setting. The error says why the value is left out, and what applies without it.
fn set<T: FromStr<Err: Display> + ToString>(
    key: &'static str,
    value: &str,
    default: impl Display,
) -> Result<Option<(&'static str, String)>, String> {
    let refused = |error| format!("left out: {error}; the default of {key} is {default}");
    value.parse::<T>().map(|value| Some((key, value.to_string()))).map_err(refused)
}

/// Parses a time that can be without limit: `off`, or a number below zero as the kernel reads it.
fn limit<T: FromStr<Err: Display> + ToString>(
    key: &'static str,
    value: &str,
) -> Result<Option<(&'static str, String)>, String> {
    if value == "off" || value.parse::<i64>().is_ok_and(|seconds| seconds < 0) {
        Ok(Some((key, NEVER.into())))
    } else {
        set::<T>(key, value, "never")
    }
}

impl ImportedDisk {
    /// Adds a controller as a path or as a discovery controller. If that fails, adds a comment with the reason.
    pub(super) fn add(&mut self, address: &ControllerAddress, is_discovery: bool, options: &[NvmeOption]) {
        match self.add_address(address, is_discovery, options) {
            Ok(()) => self.add_options(&address.name(), is_discovery, options),
            Err(reason) => self.notes.push(format!("{}: left out, {reason}", address.name())),
        }
    }

    fn add_address(
        &mut self,
        address: &ControllerAddress,
        is_discovery: bool,
        options: &[NvmeOption],
    ) -> Result<(), String> {
        if !address.is_tcp() {
            return Err("only transport tcp is supported".into());
        }
        if address.traddr.is_empty() {
            return Err("traddr missing".into());
        }
        if is_discovery {
            let address: DiscoveryAddress = address.url(options).parse().map_err(|error| format!("{error}"))?;
            if !self.discovery.contains(&address) {
                self.discovery.push(address);
            }
        } else {
            let address: PathAddress = address.url(options).parse().map_err(|error| format!("{error}"))?;
            if !self.paths.contains(&address) {
                self.paths.push(address);
            }
        }
        Ok(())
    }

    /// Adds the options of a path, of a discovery controller, or of a disk without paths in the file. `of` is the name in comments.
    pub(super) fn add_options(&mut self, of: &str, is_discovery: bool, options: &[NvmeOption]) {
        let mut settings = BTreeMap::new();
        for option in options.iter().filter(|option| !option.is_of_address()) {
            self.tls |= option.requires_tls();
            match option.setting() {
                Ok(Some((_, value))) if is_discovery && value == "false" => {}
                Ok(Some((key, _))) if is_discovery => self.notes.push(format!(
                    "{option} of {of}: left out, because the {key} of a disk is that of its paths, and this is a discovery controller"
                )),
                Ok(setting) => settings.extend(setting),
                Err(reason) => self.notes.push(format!("{option} of {of}: {reason}")),
            }
        }
        if !is_discovery {
            self.settings.push(Settings { of: of.into(), values: settings });
        }
    }
}
