//! Subflows of a path, grouped by addresses. Local ports change with each connection, and would make a new time series of each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::types::{Mptcp, SubflowState};

/// All established subflows of one path from one local address to one remote address.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SubflowGroup {
    /// The longest round-trip time.
    pub(super) rtt_us: u64,
    pub(super) cwnd_bytes: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    /// Whether one of them is for backup. `None` if not known.
    pub(super) backup: Option<bool>,
}

/// The groups of a path, by local and remote address.
pub(super) fn subflow_groups(mptcp: &Mptcp) -> BTreeMap<(IpAddr, SocketAddr), SubflowGroup> {
    let mut groups = BTreeMap::<_, SubflowGroup>::new();
    for (_, subflow) in mptcp.subflows().filter(|(_, subflow)| subflow.state == SubflowState::Established) {
        let group = groups.entry((subflow.local.ip(), subflow.remote)).or_default();
        group.rtt_us = group.rtt_us.max(subflow.rtt_us);
        group.cwnd_bytes += u64::from(subflow.cwnd_segments) * u64::from(subflow.mss_bytes);
        group.bytes_sent += subflow.bytes_sent;
        group.bytes_received += subflow.bytes_received;
        group.bytes_retransmitted += subflow.bytes_retransmitted;
        group.backup = subflow.backup.map(|backup| backup || group.backup == Some(true)).or(group.backup);
    }
    groups
}
