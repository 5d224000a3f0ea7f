//! The connections of a path.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One TCP or MPTCP connection of a live path, as the kernel reported it in the last two seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Connection {
    /// The queue that it carries: 0 is the admin queue, n is the I/O queue of I/O thread n - 1.
    pub queue: u16,
    /// Whether the connection is plain TCP over one subflow although the address says MPTCP, because the peer or the network does not
    /// support MPTCP.
    pub fallback: bool,
    /// The most subflows that this host's kernel opens after the first one (`ip mptcp limits`). `null` over TCP.
    pub subflows_max: Option<u8>,
    /// Its subflows. A TCP connection is its own only subflow.
    pub subflows: Vec<Subflow>,
}

/// One subflow of an MPTCP connection, or a TCP connection. `null` is what the kernel does not report: older kernels know less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Subflow {
    /// Local address.
    #[schema(value_type = String, example = "192.0.2.7:40312")]
    pub local: SocketAddr,
    /// Address of the target.
    #[schema(value_type = String, example = "192.0.2.1:4420")]
    pub remote: SocketAddr,
    /// State.
    pub state: SubflowState,
    /// Whether a side has marked the subflow as backup: used only if no other subflow works. `null` over TCP, and if the kernel does
    /// not report it, as Linux before 6.15 does not without `CAP_NET_ADMIN`.
    pub backup: Option<bool>,
    /// Smoothed round-trip time.
    pub rtt_us: Option<u64>,
    /// Mean deviation of the round-trip time.
    pub rtt_var_us: Option<u64>,
    /// Congestion window in segments.
    pub cwnd_segments: Option<u32>,
    /// Largest segment sent, in bytes.
    pub mss_bytes: Option<u32>,
    /// Bytes sent, including retransmissions.
    pub bytes_sent: Option<u64>,
    /// Bytes received.
    pub bytes_received: Option<u64>,
    /// Bytes retransmitted.
    pub bytes_retransmitted: Option<u64>,
    /// Segments retransmitted.
    pub retransmitted_segments: Option<u32>,
    /// Segments in flight that the kernel counts as lost.
    pub lost_segments: Option<u32>,
}

/// State of a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
