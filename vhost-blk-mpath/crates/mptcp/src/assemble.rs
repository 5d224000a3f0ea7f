//! Connections from lists of sockets: which TCP sockets belong to which MPTCP socket.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::connection::{Connection, Mptcp, Subflow};
use crate::dump::{DiagError, Protocol, dump};
use crate::info::{FALLBACK, MptcpInfo, TcpInfo};
use crate::record::Record;

/// The connections of the MPTCP sockets with these cookies ([`cookie_of`](crate::cookie_of)), in the order of cookies.
///
/// Leaves out sockets that are plain TCP, not connected, gone, or in another network namespace. The TCP sockets are listed after
/// the MPTCP sockets, so a subflow opened in between may be missing.
pub fn mptcp_connections(of: &BTreeSet<u64>) -> Result<Vec<Connection>, DiagError> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let sockets = dump(Protocol::Mptcp, None, Some(of.len()), |socket| of.contains(&socket.cookie))?;
    let inodes: BTreeSet<u32> = sockets.iter().map(|socket| socket.inode).collect();
    if inodes.is_empty() {
        return Ok(Vec::new());
    }
    // Orphaned sockets, and sockets that are not accepted yet, have inode 0.
    let subflows = dump(Protocol::Tcp, None, None, |socket| socket.inode != 0 && inodes.contains(&socket.inode))?;
    Ok(assemble(&sockets, &subflows))
}

/// The connections of the TCP sockets with these cookies that lead to this remote port, in the order of cookies. The kernel lists
/// no sockets to other ports, of which a host may have many.
///
/// Leaves out sockets that are not connected, gone, or in another network namespace.
pub fn tcp_connections(remote_port: u16, of: &BTreeSet<u64>) -> Result<Vec<Connection>, DiagError> {
    let sockets = dump(Protocol::Tcp, Some(remote_port), Some(of.len()), |socket| of.contains(&socket.cookie))?;
    Ok(in_order(sockets.iter().map(|socket| connection(socket, None, vec![subflow(socket)]))))
}

/// The connections of MPTCP sockets, each with the TCP sockets that have its inode; in the order of cookies.
pub(crate) fn assemble(sockets: &[Record], subflows: &[Record]) -> Vec<Connection> {
    in_order(sockets.iter().map(|socket| mptcp_connection(socket, subflows)))
}

fn in_order(connections: impl Iterator<Item = Connection>) -> Vec<Connection> {
    let mut connections: Vec<_> = connections.collect();
    connections.sort_by_key(|connection| connection.cookie);
    // A socket that moved within the kernel's table during the dump may be listed twice.
    connections.dedup_by_key(|connection| connection.cookie);
    connections
}

fn mptcp_connection(socket: &Record, subflows: &[Record]) -> Connection {
    let (info, totals) = MptcpInfo::parse(&socket.info);
    let mut own: Vec<&Record> = subflows.iter().filter(|subflow| subflow.inode == socket.inode).collect();
    let id = |subflow: &Record| subflow.options.map(|options| (options.joined, options.id_local, options.id_remote));
    own.sort_by_key(|subflow| (id(subflow), subflow.cookie));
    own.dedup_by_key(|subflow| subflow.cookie);
    let mptcp = Mptcp {
        token: info.token,
        fallback: info.flags & FALLBACK != 0,
        subflows_max: info.subflows_max,
        checksum: info.csum_enabled != 0,
        totals,
    };
    connection(socket, Some(mptcp), own.into_iter().map(subflow).collect())
}

fn connection(socket: &Record, mptcp: Option<Mptcp>, subflows: Vec<Subflow>) -> Connection {
    Connection { cookie: socket.cookie, local: socket.local, remote: socket.remote, mptcp, subflows }
}

fn subflow(record: &Record) -> Subflow {
    let info = TcpInfo::parse(&record.info);
    let micros = |us: u32| Duration::from_micros(us.into());
    Subflow {
        local: record.local,
        remote: record.remote,
        state: record.state,
        options: record.options,
        rtt: info.rtt_us.map(micros),
        rtt_var: info.rttvar_us.map(micros),
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
