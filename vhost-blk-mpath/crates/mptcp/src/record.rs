//! A socket as the kernel's socket diagnostics lists it: `struct inet_diag_msg` and its attributes.
//!
//! `netlink-packet-sock-diag` knows no MPTCP: neither its protocol number, which needs an attribute, nor its attributes.

use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkPayload,
    NetlinkSerializable, NlasIterator, Parseable, parse_u8, parse_u32,
};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use netlink_packet_sock_diag::{INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY, TCP_ESTABLISHED, TCP_SYN_SENT};
use rustix::net::Protocol;

use crate::connection::{MptcpOptions, State};
use crate::message::serialize;

/// `INET_DIAG_REQ_PROTOCOL`: for protocols that do not fit a byte.
const REQUEST_PROTOCOL: u16 = 3;
/// `INET_DIAG_ULP_INFO`. The kernel sends it with `INET_DIAG_INFO`, unasked.
const ULP_INFO: u16 = 19;
/// `INET_ULP_INFO_MPTCP`
const ULP_MPTCP: u16 = 3;
/// `MPTCP_SUBFLOW_ATTR_FLAGS`
const SUBFLOW_FLAGS: u16 = 8;
/// `MPTCP_SUBFLOW_ATTR_ID_REM`
const SUBFLOW_ID_REMOTE: u16 = 9;
/// `MPTCP_SUBFLOW_ATTR_ID_LOC`
const SUBFLOW_ID_LOCAL: u16 = 10;
/// `MPTCP_SUBFLOW_FLAG_JOIN_REM` and `MPTCP_SUBFLOW_FLAG_JOIN_LOC`
const JOIN: u32 = 1 << 2 | 1 << 3;
/// `MPTCP_SUBFLOW_FLAG_BKUP_REM`
const BACKUP_REMOTE: u32 = 1 << 4;
/// `MPTCP_SUBFLOW_FLAG_BKUP_LOC`
const BACKUP_LOCAL: u32 = 1 << 5;

/// Asks for a list of sockets.
struct Request {
    inet: InetRequest,
    protocol: DefaultNla,
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.inet.buffer_len() + self.protocol.buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (inet, protocol) = buffer.split_at_mut(self.inet.buffer_len());
        self.inet.emit(inet);
        self.protocol.emit(protocol);
    }
}

/// The message that asks for all sockets of a family and a protocol that are connecting, established or closing, and lead to the
/// remote port, if one is given.
pub(crate) fn request(family: u8, protocol: Protocol, remote_port: Option<u16>) -> Vec<u8> {
    let states =
        StateFlags::all() - StateFlags::SYN_RECV - StateFlags::TIME_WAIT - StateFlags::CLOSE - StateFlags::LISTEN;
    let protocol = protocol.as_raw().get();
    let inet = InetRequest {
        family,
        protocol: protocol as u8,
        extensions: ExtensionFlags::INFO,
        states,
        // A list is filtered by ports alone. Port 0 is any.
        socket_id: SocketId { destination_port: remote_port.unwrap_or(0), ..SocketId::new_v4() },
    };
    let protocol = DefaultNla::new(REQUEST_PROTOCOL, protocol.to_ne_bytes().to_vec());
    serialize(NLM_F_REQUEST | NLM_F_DUMP, NetlinkPayload::InnerMessage(Request { inet, protocol }))
}

/// A socket listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// `SO_COOKIE` of the socket.
    pub(crate) cookie: u64,
    pub(crate) inode: u32,
    pub(crate) state: State,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// `tcp_info` or `mptcp_info`.
    pub(crate) info: Vec<u8>,
    /// Only of TCP sockets that are subflows, if the kernel sends it.
    pub(crate) options: Option<MptcpOptions>,
}

impl NetlinkDeserializable for Record {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        if header.message_type != SOCK_DIAG_BY_FAMILY {
            return Err("it lists no socket".into());
        }
        let header = InetResponseHeader::parse(payload)?;
        let attributes = &payload[header.buffer_len()..];
        let id = header.socket_id;
        // The lower half comes first, whatever the byte order.
        let [low, high]: [u32; 2] = zerocopy::transmute!(id.cookie);
        let mut record = Self {
            cookie: u64::from(high) << 32 | u64::from(low),
            inode: header.inode,
            // The request names the states. All others of them are closing.
            state: match header.state {
                TCP_ESTABLISHED => State::Established,
                TCP_SYN_SENT => State::Connecting,
                _ => State::Closing,
            },
            local: address(id.source_address, id.source_port),
            remote: address(id.destination_address, id.destination_port),
            info: Vec::new(),
            options: None,
        };
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            match attribute.kind() {
                INET_DIAG_INFO => record.info = attribute.value().to_vec(),
                ULP_INFO => record.options = options(attribute.value())?,
                _ => {}
            }
        }
        Ok(record)
    }
}

/// An IPv6 socket may lead to an IPv4 address.
fn address(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}

/// MPTCP's options in the attribute of the protocol above TCP. `None` if that protocol is another one.
fn options(ulp: &[u8]) -> Result<Option<MptcpOptions>, DecodeError> {
    let mut options = None;
    for attribute in NlasIterator::new(ulp) {
        let attribute = attribute?;
        if attribute.kind() == ULP_MPTCP {
            options = Some(subflow_options(attribute.value())?);
        }
    }
    Ok(options)
}

fn subflow_options(nested: &[u8]) -> Result<MptcpOptions, DecodeError> {
    let (mut flags, mut id_local, mut id_remote) = (0, 0, 0);
    for attribute in NlasIterator::new(nested) {
        let attribute = attribute?;
        match attribute.kind() {
            SUBFLOW_FLAGS => flags = parse_u32(attribute.value())?,
            SUBFLOW_ID_LOCAL => id_local = parse_u8(attribute.value())?,
            SUBFLOW_ID_REMOTE => id_remote = parse_u8(attribute.value())?,
            _ => {}
        }
    }
    Ok(MptcpOptions {
        id_local,
        id_remote,
        joined: flags & JOIN != 0,
        backup_local: flags & BACKUP_LOCAL != 0,
        backup_remote: flags & BACKUP_REMOTE != 0,
    })
}

#[cfg(test)]
pub(crate) mod tests;
