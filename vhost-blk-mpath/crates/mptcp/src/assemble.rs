//! Which TCP sockets belong to which MPTCP socket.

use std::collections::BTreeSet;
use std::time::Duration;

use netlink_packet_core::DecodeError;
use netlink_packet_sock_diag::inet::nlas::TcpInfo;

use crate::connection::{Connection, Subflow};
use crate::dump::{DiagError, Protocol, dump};
use crate::info::{FALLBACK, MptcpInfo};
use crate::record::Record;

/// The connections of the MPTCP sockets with these cookies ([`cookie_of`](crate::cookie_of)), in the order of cookies.
///
/// Leaves out sockets that are plain TCP, not connected, gone, or in another network namespace. The TCP sockets are listed after
/// the MPTCP sockets, so a subflow opened in between may be missing.
pub fn connections(of: &BTreeSet<u64>) -> Result<Vec<Connection>, DiagError> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let sockets = dump(Protocol::Mptcp, |socket| of.contains(&socket.cookie))?;
    let inodes: BTreeSet<u32> = sockets.iter().map(|socket| socket.inode).collect();
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    // Orphaned sockets, and sockets that are not accepted yet, have inode 0.
    let subflows = dump(Protocol::Tcp, |socket| socket.inode != 0 && inodes.contains(&socket.inode))?;
    Ok(assemble(&sockets, &subflows)?)
}

/// The connections of MPTCP sockets, each with the TCP sockets that have its inode; in the order of cookies.
pub(crate) fn assemble(sockets: &[Record], subflows: &[Record]) -> Result<Vec<Connection>, DecodeError> {
    let connections = sockets.iter().map(|socket| connection(socket, subflows));
    let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
    connections.sort_by_key(|connection| connection.cookie);
    // A socket that moved within the kernel's table during the dump may be listed twice.
    connections.dedup_by_key(|connection| connection.cookie);
    Ok(connections)
}

fn connection(socket: &Record, subflows: &[Record]) -> Result<Connection, DecodeError> {
    let (info, totals) = MptcpInfo::parse(&socket.info);
    let mut own: Vec<&Record> = subflows.iter().filter(|subflow| subflow.inode == socket.inode).collect();
    let id = |subflow: &Record| subflow.options.map(|options| (options.joined, options.id_local, options.id_remote));
    own.sort_by_key(|subflow| (id(subflow), subflow.cookie));
    own.dedup_by_key(|subflow| subflow.cookie);
    Ok(Connection {
        cookie: socket.cookie,
        token: info.token,
        fallback: info.flags & FALLBACK != 0,
        local: socket.local,
        remote: socket.remote,
        subflows_max: info.subflows_max,
        checksum: info.csum_enabled != 0,
        totals,
        subflows: own.into_iter().map(subflow).collect::<Result<_, _>>()?,
    })
}

/// Every kernel with MPTCP has all fields of [`TcpInfo`].
fn subflow(record: &Record) -> Result<Subflow, DecodeError> {
    let info = TcpInfo::parse(&record.info)?;
    Ok(Subflow {
        local: record.local,
        remote: record.remote,
        state: record.state,
        options: record.options,
        rtt: Duration::from_micros(info.rtt.into()),
        rtt_var: Duration::from_micros(info.rttvar.into()),
        cwnd_segments: info.snd_cwnd,
        mss_bytes: info.snd_mss,
        bytes_sent: info.bytes_sent,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        bytes_retransmitted: info.bytes_retrans,
        lost_segments: info.lost,
        retransmitted_segments: info.total_retrans,
    })
}
