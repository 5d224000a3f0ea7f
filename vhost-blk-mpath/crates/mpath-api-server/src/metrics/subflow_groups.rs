//! Subflows of a path, grouped by addresses. Local ports change with each connection, and would make a new time series of each.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use mpath_api::types::{Path, SubflowState};

/// All established subflows of one path from one local address to one remote address. `None` is not known of any of them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct SubflowGroup {
    /// The longest round-trip time.
    pub(super) rtt_us: Option<u64>,
    pub(super) cwnd_bytes: Option<u64>,
    pub(super) bytes_sent: Option<u64>,
    pub(super) bytes_received: Option<u64>,
    pub(super) bytes_retransmitted: Option<u64>,
    /// Whether one of them is for backup.
    pub(super) backup: Option<bool>,
}

/// The groups of a path, by local and remote address.
pub(super) fn subflow_groups(path: &Path) -> BTreeMap<(IpAddr, SocketAddr), SubflowGroup> {
    let mut groups = BTreeMap::<_, SubflowGroup>::new();
    for (_, subflow) in path.subflows().filter(|(_, subflow)| subflow.state == SubflowState::Established) {
        let group = groups.entry((subflow.local.ip(), subflow.remote)).or_default();
        let cwnd = subflow.cwnd_segments.zip(subflow.mss_bytes);
        group.rtt_us = group.rtt_us.max(subflow.rtt_us);
        add(&mut group.cwnd_bytes, cwnd.map(|(segments, mss)| u64::from(segments) * u64::from(mss)));
        add(&mut group.bytes_sent, subflow.bytes_sent);
        add(&mut group.bytes_received, subflow.bytes_received);
        add(&mut group.bytes_retransmitted, subflow.bytes_retransmitted);
        group.backup = group.backup.max(subflow.backup);
    }
    groups
}

/// Adds what is known.
fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}
