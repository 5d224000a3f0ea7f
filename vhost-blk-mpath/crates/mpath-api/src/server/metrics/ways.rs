//! Subflows by the way they take: from one address here to one of a target. Ports change with each connection, and would make
//! another time series of it each time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::types::{Mptcp, SubflowState};

/// All established subflows of one path that take the same way.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) rtt_us: u64,
    pub(super) cwnd_bytes: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_retransmitted: u64,
    pub(super) backup: Option<bool>,
}

/// The ways of a path: from where, to where.
pub(super) fn ways(mptcp: &Mptcp) -> BTreeMap<(IpAddr, SocketAddr), Way> {
    let mut ways = BTreeMap::<_, Way>::new();
    for (_, subflow) in mptcp.subflows().filter(|(_, subflow)| subflow.state == SubflowState::Established) {
        let way = ways.entry((subflow.local.ip(), subflow.remote)).or_default();
        way.rtt_us = way.rtt_us.max(subflow.rtt_us);
        way.cwnd_bytes += u64::from(subflow.cwnd_segments) * u64::from(subflow.mss_bytes);
        way.bytes_sent += subflow.bytes_sent;
        way.bytes_received += subflow.bytes_received;
        way.bytes_retransmitted += subflow.bytes_retransmitted;
        way.backup = subflow.backup.map(|backup| backup || way.backup == Some(true)).or(way.backup);
    }
    ways
}
