//! What links can carry.

use serde::{Deserialize, Serialize};

/// A full packet of TCP on a link of the lab: MTU and Ethernet header, which count for the link's rate.
const PACKET_BYTES: f64 = 1514.0;
/// What of it is left without the headers of Ethernet, IPv4 and TCP with its timestamps.
const PAYLOAD_BYTES: f64 = 1448.0;

/// One of them, each way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) rate_mbit: f64,
    pub(crate) delay_ms: f64,
    pub(crate) loss_percent: f64,
}

impl Link {
    /// Payload of TCP when the link is full and loses nothing. That of MPTCP is 1.4 % less, for its option of 20 bytes.
    pub(crate) fn payload_mib_s(&self) -> f64 {
        self.rate_mbit * 1e6 / 8.0 * PAYLOAD_BYTES / PACKET_BYTES / 1_048_576.0
    }
}

/// Of all of them.
pub(crate) fn payload_mib_s(links: &[Link]) -> f64 {
    links.iter().map(Link::payload_mib_s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_not_payload() {
        let links = [200.0, 50.0].map(|rate_mbit| Link { rate_mbit, delay_ms: 0.0, loss_percent: 0.0 });
        assert!((links[0].payload_mib_s() - 22.80).abs() < 0.01, "{}", links[0].payload_mib_s());
        assert!((payload_mib_s(&links) - 28.50).abs() < 0.01, "{}", payload_mib_s(&links));
    }
}
