//! The local end of connections: nvme-cli's host-traddr and host-iface.

use std::fmt;
use std::net::IpAddr;

use super::AddressError;

/// Longest name of an interface in bytes (`IFNAMSIZ` without its zero).
const MAX_INTERFACE_BYTES: usize = 15;

/// The local end of connections, as far as the address names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalEnd {
    traddr: Option<IpAddr>,
    iface: Option<InterfaceName>,
}

/// The name of a network interface: up to 15 bytes without spaces, `/`, `:` and `&`, as in `eth0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        // As Linux's `dev_valid_name`, without `&`, which ends an option here.
        let byte_ok = |byte: u8| byte.is_ascii_graphic() && !b"/:&".contains(&byte);
        let ok = (1..=MAX_INTERFACE_BYTES).contains(&text.len())
            && ![".", ".."].contains(&text)
            && text.bytes().all(byte_ok);
        ok.then(|| Self(text.to_owned()))
    }
}

impl LocalEnd {
    /// `host-traddr`: the source address of connections.
    #[must_use]
    pub fn traddr(&self) -> Option<&IpAddr> {
        self.traddr.as_ref()
    }

    /// `host-iface`: the interface that connections use, whatever the routes say. With MPTCP this applies to the first subflow.
    #[must_use]
    pub fn iface(&self) -> Option<&InterfaceName> {
        self.iface.as_ref()
    }

    /// Parses `options`, the part of the address `text` after `?`.
    pub(super) fn parse(text: &str, options: &str) -> Result<Self, AddressError> {
        let mut local = Self::default();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let twice = |option| AddressError::OptionTwice { text: text.into(), option };
            match name {
                "host-traddr" => {
                    let bad = |_| AddressError::BadHostTraddr { text: text.into(), value: value.into() };
                    let traddr = value.parse().map_err(bad)?;
                    if local.traddr.replace(traddr).is_some() {
                        return Err(twice("host-traddr"));
                    }
                }
                "host-iface" => {
                    let bad = || AddressError::BadHostIface { text: text.into(), value: value.into() };
                    let iface = InterfaceName::parse(value).ok_or_else(bad)?;
                    if local.iface.replace(iface).is_some() {
                        return Err(twice("host-iface"));
                    }
                }
                _ => return Err(AddressError::UnknownOption { text: text.into(), option: name.into() }),
            }
        }
        Ok(local)
    }
}

impl fmt::Display for LocalEnd {
    /// Nothing, or with its `?` in front.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = '?';
        if let Some(traddr) = &self.traddr {
            write!(f, "{before}host-traddr={traddr}")?;
            before = '&';
        }
        if let Some(InterfaceName(iface)) = &self.iface {
            write!(f, "{before}host-iface={iface}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn local_ends() -> impl Strategy<Value = LocalEnd> {
        let iface = "[a-z][a-z0-9.@_?=-]{0,14}".prop_map(|name| InterfaceName::parse(&name).unwrap());
        (any::<Option<IpAddr>>(), prop::option::of(iface)).prop_map(|(traddr, iface)| LocalEnd { traddr, iface })
    }

    #[test]
    fn interfaces_are_what_linux_takes() {
        for name in ["lo", "eth0.100", "enp0s31f6", "a?b=c", "123456789012345"] {
            assert_eq!(InterfaceName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "..", "a b", "a/b", "a:b", "a&b", "1234567890123456", "\u{e4}"] {
            assert_eq!(InterfaceName::parse(name), None, "{name}");
        }
    }
}
