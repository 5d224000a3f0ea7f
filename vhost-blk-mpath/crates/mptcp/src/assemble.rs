//! Which TCP sockets belong to which MPTCP socket.

use std::time::Duration;

use crate::connection::{Connection, Subflow};
use crate::info::{FALLBACK, MptcpInfo, TcpInfo};
use crate::record::Record;

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
