//! TCP and MPTCP connections, and their subflows.

use std::net::SocketAddr;
use std::time::Duration;

/// A TCP or MPTCP socket that is connecting, established or closing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// `SO_COOKIE` of the socket.
    pub cookie: u64,
    /// The local address. For an MPTCP socket, that of the first subflow.
    pub local: SocketAddr,
    /// The remote address. For an MPTCP socket, that of the first subflow.
    pub remote: SocketAddr,
    /// `None` for a TCP socket.
    pub mptcp: Option<Mptcp>,
    /// Subflows that are connecting, established or closing, in the order of local address ids as far as these are known.
    /// A TCP socket is its own only subflow.
    pub subflows: Vec<Subflow>,
}

/// The state that only MPTCP sockets have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mptcp {
    /// The kernel's identifier of the connection, as in `ip mptcp monitor`.
    pub token: u32,
    /// The connection is plain TCP for good, because the peer or the network does not support MPTCP.
    pub fallback: bool,
    /// The most subflows that the kernel opens in addition to the first subflow (`ip mptcp limits show`).
    pub subflows_max: u8,
    /// Whether the data have MPTCP checksums. False before Linux 5.14.
    pub checksum: bool,
    /// The traffic of all subflows. `None` before Linux 6.5.
    pub totals: Option<Totals>,
}

/// Traffic of a connection since its start, over all its subflows, closed subflows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent, without retransmissions at MPTCP's level.
    pub bytes_sent: u64,
    /// Bytes that the peer has acknowledged at MPTCP's level.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent again at MPTCP's level, over another subflow.
    pub bytes_retransmitted: u64,
    /// Retransmissions at MPTCP's level.
    pub retransmits: u32,
}

/// One TCP connection: that of a TCP socket, or one of an MPTCP connection. `None` is what the kernel does not report: each version
/// of Linux appends fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subflow {
    /// The local address.
    pub local: SocketAddr,
    /// The remote address.
    pub remote: SocketAddr,
    /// The state.
    pub state: State,
    /// MPTCP's state of the subflow. `None` for a TCP socket, and before Linux 6.15 without `CAP_NET_ADMIN`, because the kernel
    /// does not show it.
    pub options: Option<MptcpOptions>,
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// The mean deviation of the round-trip time.
    pub rtt_var: Option<Duration>,
    /// The congestion window.
    pub cwnd_segments: Option<u32>,
    /// The largest segment sent.
    pub mss_bytes: Option<u32>,
    /// Bytes sent, including retransmissions. Since Linux 4.19.
    pub bytes_sent: Option<u64>,
    /// Bytes that the peer has acknowledged. Since Linux 4.1.
    pub bytes_acked: Option<u64>,
    /// Bytes received. Since Linux 4.1.
    pub bytes_received: Option<u64>,
    /// Bytes retransmitted. Since Linux 4.19.
    pub bytes_retransmitted: Option<u64>,
    /// Segments in flight that are presumed lost.
    pub lost_segments: Option<u32>,
    /// Segments retransmitted since the subflow was opened.
    pub retransmitted_segments: Option<u32>,
}

/// MPTCP's state of a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MptcpOptions {
    /// The id of the local address. The first subflow has 0.
    pub id_local: u8,
    /// The id of the remote address. The first subflow has 0.
    pub id_remote: u8,
    /// The subflow joined the connection (`MP_JOIN`). False for the first subflow.
    pub joined: bool,
    /// This side requested to use the subflow only if no other subflow works.
    pub backup_local: bool,
    /// The other side requested this.
    pub backup_remote: bool,
}

impl MptcpOptions {
    /// Whether a side requested to use the subflow only if no other subflow works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.backup_local || self.backup_remote
    }
}

/// The state of a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The peer has not answered yet.
    Connecting,
    /// Both sides may send.
    Established,
    /// One side has ended the subflow.
    Closing,
}
