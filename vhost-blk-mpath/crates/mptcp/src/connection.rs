//! MPTCP connections and their subflows.

use std::net::SocketAddr;
use std::time::Duration;

/// An MPTCP socket that is connected, or about to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// `SO_COOKIE` of the MPTCP socket.
    pub cookie: u64,
    /// The token by which the kernel names the connection, also in `ip mptcp monitor`.
    pub token: u32,
    /// The peer, or something on the way to it, does not speak MPTCP: this is TCP over one subflow, and stays so.
    pub fallback: bool,
    /// Where the first subflow begins.
    pub local: SocketAddr,
    /// Where the first subflow leads.
    pub remote: SocketAddr,
    /// The most subflows that the kernel would open in addition to the first one (`ip mptcp limits show`).
    pub subflows_max: u8,
    /// Whether data bears MPTCP checksums; false before Linux 5.14.
    pub checksum: bool,
    /// Counted over all subflows; none before Linux 6.5.
    pub totals: Option<Totals>,
    /// Those that are connecting, established or closing; in the order of local address ids, where those are known.
    pub subflows: Vec<Subflow>,
}

/// Traffic of a connection in its life, over all its subflows, closed ones too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes sent, retransmissions at MPTCP's level left out.
    pub bytes_sent: u64,
    /// Bytes sent that the peer has acknowledged at MPTCP's level.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent a second time over another subflow, because the first one did not bring them.
    pub bytes_retransmitted: u64,
    /// How often that happened.
    pub retransmits: u32,
}

/// One TCP connection below an MPTCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subflow {
    /// Its address on this side.
    pub local: SocketAddr,
    /// Its address on the other side.
    pub remote: SocketAddr,
    /// How far it is.
    pub state: State,
    /// What MPTCP says of it. None if the kernel does not tell: before Linux 6.15 it does so only with `CAP_NET_ADMIN`.
    pub options: Option<MptcpOptions>,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Its mean deviation.
    pub rtt_var: Duration,
    /// The congestion window.
    pub cwnd_segments: u32,
    /// The largest segment sent.
    pub mss_bytes: u32,
    /// Bytes sent, with retransmitted ones.
    pub bytes_sent: u64,
    /// Bytes that the peer has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent again.
    pub bytes_retransmitted: u64,
    /// Segments in flight that count as lost now.
    pub lost_segments: u32,
    /// Segments sent again since it was opened.
    pub retransmitted_segments: u32,
}

/// What MPTCP says of a subflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MptcpOptions {
    /// The id of the local address; 0 is the one that the connection began with.
    pub id_local: u8,
    /// The id of the remote address; 0 is the one that the connection began with.
    pub id_remote: u8,
    /// It joined a connection that was there (`MP_JOIN`), and is not the one it began with.
    pub joined: bool,
    /// This side asked to use it only if no other subflow works.
    pub backup_local: bool,
    /// The other side asked for that.
    pub backup_remote: bool,
}

impl MptcpOptions {
    /// Whether one of the sides asked to use it only if no other subflow works.
    #[must_use]
    pub fn is_backup(&self) -> bool {
        self.backup_local || self.backup_remote
    }
}

/// How far a subflow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The peer has not answered yet.
    Connecting,
    /// Both sides may send.
    Established,
    /// One side has ended it.
    Closing,
}
