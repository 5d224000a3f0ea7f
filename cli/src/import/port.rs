//! One controller as nvme-cli names it: where it is, and options.

use std::fmt::Display;
use std::str::FromStr;

use mpath_api::config::{
    CtrlLossTmo, FastIoFailTmo, KeepAliveTmo, QueueEntries, RangeError, ReconnectDelay, default_keep_alive_tmo,
    default_queue_size, default_reconnect_delay,
};
use mpath_api::{DiscoveryAddress, PathAddress};

use super::ImportedDisk;

/// An option of nvme-cli, its name with `-` for `_`.
#[derive(Debug, Clone)]
pub(super) struct Opt {
    pub(super) name: String,
    /// `true` of a flag.
    pub(super) value: String,
}

impl Opt {
    fn is_of_address(&self) -> bool {
        matches!(self.name.as_str(), "host-traddr" | "host-iface")
    }
}

impl std::fmt::Display for Opt {
    /// For a comment, which shows no secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_secret = ["key", "secret"].iter().any(|word| self.name.contains(word));
        write!(f, "{} {}", self.name, if is_secret { "(a secret)" } else { &self.value })
    }
}

/// Where a controller is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) transport: String,
    pub(super) traddr: String,
    pub(super) trsvcid: Option<String>,
}

impl Place {
    /// How comments name it.
    pub(super) fn name(&self) -> String {
        let port = self.trsvcid.as_ref().map_or_else(String::new, |port| format!(":{port}"));
        format!("{}://{}{port}", self.transport, host(&self.traddr))
    }

    /// With what of the options belongs to the address.
    fn uri(&self, options: &[Opt]) -> String {
        let mut uri = self.name().to_ascii_lowercase();
        for Opt { name, value } in options.iter().filter(|option| option.is_of_address()) {
            let separator = if uri.contains('?') { "&" } else { "?" };
            for part in [separator, name, "=", value] {
                uri.push_str(part);
            }
        }
        uri
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.transport.eq_ignore_ascii_case("tcp")
    }
}

/// IPv6 addresses stand in brackets in an URI.
fn host(traddr: &str) -> String {
    if traddr.contains(':') { format!("[{traddr}]") } else { traddr.into() }
}

/// A setting, if its value is one for us. If not: why, and what holds instead.
fn set<T: FromStr<Err = RangeError> + ToString>(
    key: &'static str,
    value: &str,
    default: impl Display,
) -> Result<Option<(&'static str, String)>, String> {
    let refused = |RangeError { min, max, .. }| {
        format!("left out, not an integer from {min} to {max}; without {key} it is {default}")
    };
    value.parse::<T>().map(|value| Some((key, value.to_string()))).map_err(refused)
}

impl ImportedDisk {
    /// Adds a controller as a path or as a discovery controller; one that cannot be either is a comment, with its reason.
    pub(super) fn add(&mut self, place: &Place, is_discovery: bool, options: &[Opt]) {
        match self.add_address(place, is_discovery, options) {
            Ok(()) => {
                let others = options.iter().filter(|option| !option.is_of_address());
                others.for_each(|option| self.option(place, option));
            }
            Err(reason) => self.notes.push(format!("{}: left out, {reason}", place.name())),
        }
    }

    fn add_address(&mut self, place: &Place, is_discovery: bool, options: &[Opt]) -> Result<(), String> {
        if !place.is_tcp() {
            return Err("only transport tcp is supported".into());
        }
        if place.traddr.is_empty() {
            return Err("traddr missing".into());
        }
        if place.traddr.contains('%') {
            return Err("a link-local address, which needs an interface (%), is not supported".into());
        }
        if is_discovery {
            let address: DiscoveryAddress = place.uri(options).parse().map_err(|error| format!("{error}"))?;
            if !self.discovery.contains(&address) {
                self.discovery.push(address);
            }
        } else {
            let address: PathAddress = place.uri(options).parse().map_err(|error| format!("{error}"))?;
            if !self.paths.contains(&address) {
                self.paths.push(address);
            }
        }
        Ok(())
    }

    fn option(&mut self, place: &Place, option: &Opt) {
        let Opt { name, value } = option;
        let flag = |key| match value.as_str() {
            "true" | "1" => Ok(Some((key, "true".to_owned()))),
            "false" | "0" => Ok(None),
            _ => Err(format!("left out, neither true nor false; without {key} it is false")),
        };
        let outcome = match name.as_str() {
            "keep-alive-tmo" => set::<KeepAliveTmo>("keep-alive-tmo", value, default_keep_alive_tmo()),
            "reconnect-delay" => set::<ReconnectDelay>("reconnect-delay", value, default_reconnect_delay()),
            "queue-size" => set::<QueueEntries>("queue-size", value, default_queue_size()),
            // For ever, which is our default too.
            "ctrl-loss-tmo" | "fast-io-fail-tmo" if matches!(value.as_str(), "-1" | "off") => Ok(None),
            "ctrl-loss-tmo" => set::<CtrlLossTmo>("ctrl-loss-tmo", value, "never"),
            "fast-io-fail-tmo" => set::<FastIoFailTmo>("fast-io-fail-tmo", value, "never"),
            "hdr-digest" => flag("hdr-digest"),
            "data-digest" => flag("data-digest"),
            // A connection to a discovery controller always stays where the controller lets it.
            "persistent" => Ok(None),
            "nr-io-queues" => Err("no counterpart: a path has one I/O queue an I/O thread, see io-threads".into()),
            _ if value == "false" => Ok(None),
            _ => Err("no counterpart".into()),
        };
        match outcome {
            Ok(None) => {}
            Ok(Some((key, value))) => match self.settings.get(key) {
                Some(first) if *first != value => self.notes.push(format!(
                    "{key} {value} of {}: left out, all paths of a disk have one, and {first} came first",
                    place.name()
                )),
                _ => {
                    self.settings.insert(key, value);
                }
            },
            Err(reason) => self.notes.push(format!("{option} of {}: {reason}", place.name())),
        }
    }
}
