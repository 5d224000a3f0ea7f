//! What carries a path whose transport is MPTCP.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The connections of a live path whose transport is MPTCP, as the kernel told within the last second or two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mptcp {
    /// In the order of queues; empty until the kernel has been asked.
    pub connections: Vec<MptcpConnection>,
    /// Why the kernel did not tell, one line; `null` if it did.
    pub error: Option<String>,
}

impl Mptcp {
    /// Connections that are plain TCP, though MPTCP was wanted.
    #[must_use]
    pub fn fallbacks(&self) -> usize {
        self.connections.iter().filter(|connection| connection.fallback).count()
    }

    /// Established subflows of all connections together, without those that are plain TCP.
    #[must_use]
    pub fn established(&self) -> usize {
        let counts = |(connection, subflow): &(&MptcpConnection, &Subflow)| {
            !connection.fallback && subflow.state == SubflowState::Established
        };
        self.subflows().filter(counts).count()
    }

    /// Every subflow, with its connection.
    pub fn subflows(&self) -> impl Iterator<Item = (&MptcpConnection, &Subflow)> {
        self.connections
            .iter()
            .flat_map(|connection| connection.subflows.iter().map(move |subflow| (connection, subflow)))
    }
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MptcpConnection {
    /// Which queue it carries: 0 is the admin queue, n the I/O queue of I/O thread n - 1.
    pub queue: u16,
    /// The peer, or something on the way to it, has no MPTCP: this is plain TCP over one subflow, and stays so.
    pub fallback: bool,
    /// Subflows beside the first one that this host's kernel would open at most (`ip mptcp limits`).
    pub subflows_max: u8,
    /// Its subflows.
    pub subflows: Vec<Subflow>,
}

/// One TCP connection below an MPTCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// Its address on this side.
    pub local: SocketAddr,
    /// Its address on the target's side.
    pub remote: SocketAddr,
    /// How far it is.
    pub state: SubflowState,
    /// Whether one of the sides wants it used only if no other one works; `null` if the kernel does not tell, as before Linux 6.15
    /// without `CAP_NET_ADMIN`.
    pub backup: Option<bool>,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Its mean deviation.
    pub rtt_var_us: u64,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Largest segment sent, in bytes.
    pub mss_bytes: u32,
    /// Bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent again.
    pub bytes_retransmitted: u64,
    /// Segments in flight that count as lost now.
    pub lost_segments: u32,
}

/// How far a subflow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubflowState {
    /// The peer has not answered yet.
    Connecting,
    /// In use.
    Established,
    /// One side has ended it.
    Closing,
}

impl fmt::Display for SubflowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "connecting",
            Self::Established => "established",
            Self::Closing => "closing",
        })
    }
}
