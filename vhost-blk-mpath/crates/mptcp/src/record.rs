//! A socket as the kernel's socket diagnostics lists it: `struct inet_diag_msg` and its attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, big_endian};

use crate::connection::{MptcpOptions, State};
use crate::netlink::{Malformed, Message, attributes, push_attribute, value};

/// `SOCK_DIAG_BY_FAMILY`: the type of requests and of sockets listed.
pub(crate) const BY_FAMILY: u16 = 20;

/// `INET_DIAG_INFO`
const INFO: u16 = 2;
/// `INET_DIAG_ULP_INFO`, which comes with [`INFO`] and needs no asking.
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

/// `INET_DIAG_REQ_PROTOCOL`: for protocols that do not fit a byte.
const REQUEST_PROTOCOL: u16 = 3;

const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_SENT: u8 = 2;
/// `FIN_WAIT1`, `FIN_WAIT2`, `CLOSE_WAIT`, `LAST_ACK`, `CLOSING`
const TCP_CLOSING: [u8; 5] = [4, 5, 8, 9, 11];

/// `AF_INET`
pub(crate) const INET: u8 = 2;
/// `AF_INET6`
pub(crate) const INET6: u8 = 10;

/// `struct inet_diag_sockid`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SocketId {
    pub(crate) source_port: big_endian::U16,
    pub(crate) destination_port: big_endian::U16,
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    pub(crate) interface: u32,
    /// The lower half first, whatever the byte order.
    pub(crate) cookie: [u32; 2],
}

/// `struct inet_diag_req_v2`
#[derive(Debug, Clone, Copy, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Request {
    family: u8,
    protocol: u8,
    extensions: u8,
    pad: u8,
    states: u32,
    id: SocketId,
}

/// `struct inet_diag_msg`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Listed {
    pub(crate) family: u8,
    pub(crate) state: u8,
    pub(crate) timer: u8,
    pub(crate) retrans: u8,
    pub(crate) id: SocketId,
    pub(crate) expires: u32,
    pub(crate) rqueue: u32,
    pub(crate) wqueue: u32,
    pub(crate) uid: u32,
    pub(crate) inode: u32,
}

const _: () = assert!(size_of::<Request>() == 56 && size_of::<Listed>() == 72);

/// The payload that asks for all sockets of a family and a protocol that are connecting, established or closing.
pub(crate) fn request(family: u8, protocol: u32) -> Vec<u8> {
    let states = TCP_CLOSING.iter().fold(1 << TCP_ESTABLISHED | 1 << TCP_SYN_SENT, |states, state| states | 1 << state);
    let request = Request {
        family,
        protocol: protocol as u8,
        extensions: 1 << (INFO - 1),
        pad: 0,
        states,
        id: SocketId::default(),
    };
    let mut bytes = request.as_bytes().to_vec();
    push_attribute(&mut bytes, REQUEST_PROTOCOL, &protocol.to_ne_bytes());
    bytes
}

/// A socket listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) cookie: u64,
    pub(crate) inode: u32,
    pub(crate) state: State,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// `tcp_info` or `mptcp_info`.
    pub(crate) info: Vec<u8>,
    /// Only of TCP sockets that are subflows, if the kernel tells.
    pub(crate) options: Option<MptcpOptions>,
}

impl Record {
    /// Parses a message of type [`BY_FAMILY`]; none if it is in a state that was not asked for.
    pub(crate) fn parse(message: &Message<'_>) -> Result<Option<Self>, Malformed> {
        let Message { kind, payload, .. } = *message;
        let (listed, rest) =
            Listed::read_from_prefix(payload).map_err(|_| Malformed::ShortMessage { kind, length: payload.len() })?;
        let state = match listed.state {
            TCP_ESTABLISHED => State::Established,
            TCP_SYN_SENT => State::Connecting,
            state if TCP_CLOSING.contains(&state) => State::Closing,
            _ => return Ok(None),
        };
        let SocketId { source, source_port, destination, destination_port, cookie: [low, high], .. } = listed.id;
        let mut record = Self {
            cookie: u64::from(high) << 32 | u64::from(low),
            inode: listed.inode,
            state,
            local: address(listed.family, source, source_port)?,
            remote: address(listed.family, destination, destination_port)?,
            info: Vec::new(),
            options: None,
        };
        for attribute in attributes(rest) {
            match attribute? {
                (INFO, info) => record.info = info.to_vec(),
                (ULP_INFO, ulp) => record.options = options(ulp)?,
                _ => {}
            }
        }
        Ok(Some(record))
    }
}

fn address(family: u8, ip: [u8; 16], port: big_endian::U16) -> Result<SocketAddr, Malformed> {
    let ip = match (family, ip) {
        (INET, [a, b, c, d, ..]) => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        // An IPv6 socket may lead to an IPv4 address.
        (INET6, ip) => Ipv6Addr::from(ip).to_canonical(),
        _ => return Err(Malformed::Family { family }),
    };
    Ok(SocketAddr::new(ip, port.get()))
}

/// MPTCP's options in the attribute of the protocol above TCP; none if that protocol is another one.
fn options(ulp: &[u8]) -> Result<Option<MptcpOptions>, Malformed> {
    let mut found = None;
    for attribute in attributes(ulp) {
        let (ULP_MPTCP, nested) = attribute? else { continue };
        let (mut flags, mut id_local, mut id_remote) = (0_u32, 0, 0);
        for attribute in attributes(nested) {
            let attribute = attribute?;
            match attribute.0 {
                SUBFLOW_FLAGS => flags = value(attribute)?,
                SUBFLOW_ID_LOCAL => id_local = value(attribute)?,
                SUBFLOW_ID_REMOTE => id_remote = value(attribute)?,
                _ => {}
            }
        }
        found = Some(MptcpOptions {
            id_local,
            id_remote,
            joined: flags & JOIN != 0,
            backup_local: flags & BACKUP_LOCAL != 0,
            backup_remote: flags & BACKUP_REMOTE != 0,
        });
    }
    Ok(found)
}

#[cfg(test)]
#[path = "record_tests.rs"]
pub(crate) mod tests;
