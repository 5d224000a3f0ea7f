//! Which TCP sockets belong to which MPTCP socket.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::connection::{Connection, Subflow};
use crate::dump::{DiagError, Protocol, list};
use crate::info::{FALLBACK, MptcpInfo, TcpInfo};
use crate::record::Record;

/// The connections of the MPTCP sockets with these cookies ([`cookie_of`](crate::cookie_of)), in the order of cookies.
///
/// Sockets that are plain TCP, not connected or gone are left out; so are all of other network namespaces. The lists of MPTCP
/// and of TCP sockets are made one after the other, so that a subflow may be missing that came in between.
pub fn connections(of: &BTreeSet<u64>) -> Result<Vec<Connection>, DiagError> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let sockets = list(Protocol::Mptcp, |socket| of.contains(&socket.cookie))?;
    let inodes: BTreeSet<u32> = sockets.iter().map(|socket| socket.inode).collect();
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    // A socket that is orphaned or not accepted yet has none.
    let subflows = list(Protocol::Tcp, |socket| socket.inode != 0 && inodes.contains(&socket.inode))?;
    Ok(assemble(&sockets, &subflows))
}

/// The connections of MPTCP sockets, each with the TCP sockets that have its inode; in the order of cookies.
pub(crate) fn assemble(sockets: &[Record], subflows: &[Record]) -> Vec<Connection> {
    let mut connections: Vec<_> = sockets.iter().map(|socket| connection(socket, subflows)).collect();
    connections.sort_by_key(|connection| connection.cookie);
    // A list may hold a socket twice that changed its place while it was made.
    connections.dedup_by_key(|connection| connection.cookie);
    connections
}

fn connection(socket: &Record, subflows: &[Record]) -> Connection {
    let (info, totals) = MptcpInfo::parse(&socket.info);
    let mut own: Vec<&Record> = subflows.iter().filter(|subflow| subflow.inode == socket.inode).collect();
    let id = |subflow: &Record| subflow.options.map(|options| (options.joined, options.id_local, options.id_remote));
    own.sort_by_key(|subflow| (id(subflow), subflow.cookie));
    own.dedup_by_key(|subflow| subflow.cookie);
    Connection {
        cookie: socket.cookie,
        token: info.token,
        fallback: info.flags & FALLBACK != 0,
        local: socket.local,
        remote: socket.remote,
        subflows_max: info.subflows_max,
        checksum: info.csum_enabled != 0,
        totals,
        subflows: own.into_iter().map(subflow).collect(),
    }
}

fn subflow(record: &Record) -> Subflow {
    let info = TcpInfo::parse(&record.info);
    Subflow {
        local: record.local,
        remote: record.remote,
        state: record.state,
        options: record.options,
        rtt: Duration::from_micros(info.rtt_us.into()),
        rtt_var: Duration::from_micros(info.rttvar_us.into()),
        cwnd_segments: info.snd_cwnd,
        mss_bytes: info.snd_mss,
        bytes_sent: info.bytes_sent,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        bytes_retransmitted: info.bytes_retrans,
        lost_segments: info.lost,
        retransmitted_segments: info.total_retrans,
    }
}
