//! The address on which metrics are read.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use mpath_core::json_schema;
use serde_json::json;

use crate::text::{ValueError, text_serde};

/// An IP address and a TCP port from 1 to 65535, such as `127.0.0.1:9464` or `[::1]:9464`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsAddress(SocketAddr);

impl MetricsAddress {
    /// The address and the port.
    #[must_use]
    pub fn get(self) -> SocketAddr {
        self.0
    }

    /// Whether only this host can connect.
    #[must_use]
    pub fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MetricsAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let address = text.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
        let expected =
            "an IP address with a port from 1 to 65535; give both as numbers, such as 127.0.0.1:9464 or [::1]:9464";
        address.map(Self).ok_or_else(|| ValueError::not(text, expected))
    }
}

text_serde!(MetricsAddress, "an IP address with a port, such as 127.0.0.1:9464");
json_schema!(
    MetricsAddress,
    "MetricsAddress",
    json!({
        "type": "string",
        "description": "An IPv4 address, or an IPv6 address in brackets, with a TCP port from 1 to 65535.",
        "pattern": r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+(%[0-9]+)?\]):[0-9]{1,5}$",
        "examples": ["127.0.0.1:9464", "[::1]:9464"],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_numbers_with_a_port() {
        for (text, is_loopback) in [
            ("127.0.0.1:9464", true),
            ("127.255.0.9:1", true),
            ("[::1]:65535", true),
            ("[::ffff:127.0.0.1]:9464", true),
            ("0.0.0.0:9464", false),
            ("[::]:9464", false),
            ("192.0.2.1:9464", false),
        ] {
            let address: MetricsAddress = text.parse().unwrap();
            assert_eq!((address.to_string(), address.is_loopback()), (text.into(), is_loopback));
        }
        for text in
            ["", "localhost:9464", "127.0.0.1", "[::1]", "::1:9464", "9464", ":9464", "127.0.0.1:0", "127.0.0.1:65536"]
        {
            let refused = text.parse::<MetricsAddress>().unwrap_err().to_string();
            let said = "is not an IP address with a port from 1 to 65535; give both as numbers, such as 127.0.0.1:9464 or [::1]:9464";
            assert_eq!(refused, format!("`{text}` {said}"));
        }
    }
}
