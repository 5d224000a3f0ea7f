//! The MPTCP connections of a path.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The connections of a live path over MPTCP, as the kernel reported them in the last two seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Mptcp {
    /// The connections in the order of their queues. Empty until the kernel has been asked.
    pub connections: Vec<MptcpConnection>,
    /// Why the kernel did not report them, one line. `null` if it did.
    pub error: Option<String>,
}

impl Mptcp {
    /// Connections that fell back to plain TCP.
    #[must_use]
    pub fn fallbacks(&self) -> usize {
        self.connections.iter().filter(|connection| connection.fallback).count()
    }

    /// Established subflows of all connections that are MPTCP.
    #[must_use]
    pub fn established(&self) -> usize {
        let counts = |(connection, subflow): &(&MptcpConnection, &Subflow)| {
            !connection.fallback && subflow.state == SubflowState::Established
        };
        self.subflows().filter(counts).count()
    }

    /// Every subflow with its connection.
    pub fn subflows(&self) -> impl Iterator<Item = (&MptcpConnection, &Subflow)> {
        self.connections
            .iter()
            .flat_map(|connection| connection.subflows.iter().map(move |subflow| (connection, subflow)))
    }
}

/// One MPTCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MptcpConnection {
    /// The queue that it carries: 0 is the admin queue, n is the I/O queue of I/O thread n - 1.
    pub queue: u16,
    /// Whether the connection is plain TCP over one subflow, because the peer or the network does not support MPTCP.
    pub fallback: bool,
    /// The most subflows that this host's kernel opens after the first one (`ip mptcp limits`).
    pub subflows_max: u8,
    /// Its subflows.
    pub subflows: Vec<Subflow>,
}

/// One subflow of an MPTCP connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Subflow {
    /// Local address.
    pub local: SocketAddr,
    /// Address of the target.
    pub remote: SocketAddr,
    /// State.
    pub state: SubflowState,
    /// Whether a side has marked the subflow as backup: used only if no other subflow works. `null` if the kernel does not report
    /// it, as Linux before 6.15 does not without `CAP_NET_ADMIN`.
    pub backup: Option<bool>,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Mean deviation of the round-trip time.
    pub rtt_var_us: u64,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Largest segment sent, in bytes.
    pub mss_bytes: u32,
    /// Bytes sent, including retransmissions.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments in flight that the kernel counts as lost.
    pub lost_segments: u32,
}

/// State of a subflow.
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
