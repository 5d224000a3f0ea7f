use std::net::IpAddr;

use netlink_packet_core::{NLA_F_NESTED, NLM_F_MULTIPART};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{InetResponse, InetResponseHeader};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, SockDiagMessage, TCP_CLOSING, TCP_FIN_WAIT1};
use proptest::prelude::*;
use rustix::net::ipproto;

use super::*;

/// The header of a socket that is established.
pub(crate) fn header(inode: u32, cookie: u32) -> InetResponseHeader {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let socket_id = SocketId {
        source_port: 53488,
        destination_port: 4420,
        source_address: ip("10.1.0.1"),
        destination_address: ip("10.1.0.2"),
        interface_id: 0,
        cookie: zerocopy::transmute!([cookie, 1]),
    };
    let (recv_queue, send_queue, uid) = (0, 0, 0);
    InetResponseHeader {
        family: AF_INET,
        state: TCP_ESTABLISHED,
        timer: None,
        socket_id,
        recv_queue,
        send_queue,
        uid,
        inode,
    }
}

/// A message as the kernel sends it: flags, local id and remote id are those of a subflow.
pub(crate) fn listed(header: InetResponseHeader, info: &[u8], subflow: Option<(u32, u8, u8)>) -> Vec<u8> {
    let ulp = subflow.map(|(flags, id_local, id_remote)| {
        let nested = attributes(&[
            (2, &[1, 2, 3, 4]),
            (SUBFLOW_FLAGS, &flags.to_ne_bytes()),
            (SUBFLOW_ID_REMOTE, &[id_remote]),
            (SUBFLOW_ID_LOCAL, &[id_local]),
        ]);
        attributes(&[(1, b"mptcp\0"), (ULP_MPTCP | NLA_F_NESTED, &nested)])
    });
    message(header, info, ulp)
}

fn message(header: InetResponseHeader, info: &[u8], ulp: Option<Vec<u8>>) -> Vec<u8> {
    let info = DefaultNla::new(INET_DIAG_INFO, info.to_vec());
    let ulp = ulp.map(|ulp| DefaultNla::new(ULP_INFO | NLA_F_NESTED, ulp));
    let nlas = [Nla::Shutdown(0)].into_iter().chain([info].into_iter().chain(ulp).map(Nla::Other)).collect();
    let response = SockDiagMessage::InetResponse(Box::new(InetResponse { header, nlas }));
    serialize(NLM_F_MULTIPART, response.into())
}

fn attributes(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let attributes: Vec<_> = attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_vec())).collect();
    let mut bytes = vec![0; attributes.as_slice().buffer_len()];
    attributes.as_slice().emit(&mut bytes);
    bytes
}

fn parse(message: &[u8]) -> Result<Record, DecodeError> {
    let mut header = NetlinkHeader::default();
    header.message_type = SOCK_DIAG_BY_FAMILY;
    Record::deserialize(&header, &message[16..])
}

#[test]
fn a_subflow() {
    let record = parse(&listed(header(77, 5), b"info", Some((0b10_0000 | 0b1000, 3, 4)))).unwrap();
    let options = MptcpOptions { id_local: 3, id_remote: 4, joined: true, backup_local: true, backup_remote: false };
    let expected = Record {
        cookie: 0x1_0000_0005,
        inode: 77,
        state: State::Established,
        local: "10.1.0.1:53488".parse().unwrap(),
        remote: "10.1.0.2:4420".parse().unwrap(),
        info: b"info".to_vec(),
        options: Some(options),
    };
    assert_eq!(record, expected);
}

#[test]
fn each_flag_has_one_meaning() {
    let options = |flags: u32| parse(&listed(header(1, 1), &[], Some((flags, 0, 0)))).unwrap().options.unwrap();
    let flags = |bits: u32| {
        let options = options(bits);
        (options.joined, options.backup_local, options.backup_remote, options.is_backup())
    };
    assert_eq!(flags(1 << 0 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 8), (false, false, false, false));
    assert_eq!(flags(1 << 2), (true, false, false, false));
    assert_eq!(flags(1 << 3), (true, false, false, false));
    assert_eq!(flags(1 << 4), (false, false, true, true));
    assert_eq!(flags(1 << 5), (false, true, false, true));
}

#[test]
fn addresses_of_ipv6_sockets() {
    let mut ipv6 = InetResponseHeader { family: AF_INET6, ..header(1, 1) };
    ipv6.socket_id.source_address = "2001:db8::1".parse().unwrap();
    ipv6.socket_id.destination_address = "::ffff:10.1.0.2".parse().unwrap();
    let record = parse(&listed(ipv6, &[], None)).unwrap();
    assert_eq!(record.local.to_string(), "[2001:db8::1]:53488");
    assert_eq!(record.remote.to_string(), "10.1.0.2:4420");
}

#[test]
fn states() {
    let state = |state| parse(&listed(InetResponseHeader { state, ..header(1, 1) }, &[], None)).unwrap().state;
    assert_eq!(state(TCP_ESTABLISHED), State::Established);
    assert_eq!(state(TCP_SYN_SENT), State::Connecting);
    assert_eq!((state(TCP_FIN_WAIT1), state(TCP_CLOSING)), (State::Closing, State::Closing));
}

/// Plain TCP has no protocol above it. TLS is another protocol.
#[test]
fn only_mptcp_has_options() {
    assert_eq!(parse(&listed(header(1, 1), &[], None)).unwrap().options, None);
    let tls = attributes(&[(1, b"tls\0"), (2, &[1; 20])]);
    assert_eq!(parse(&message(header(1, 1), &[], Some(tls))).unwrap().options, None);
}

#[test]
fn short_messages_and_attributes_are_refused() {
    let whole = listed(header(1, 1), &[], None);
    assert!(parse(&whole[..16 + 71]).is_err());
    let nested = attributes(&[(SUBFLOW_FLAGS, &[1, 2])]);
    assert!(options(&attributes(&[(ULP_MPTCP, &nested)])).is_err());
}

/// As `ss` sends it.
#[test]
fn a_request() {
    let bytes = request(AF_INET, ipproto::MPTCP, Some(4420));
    assert_eq!(bytes.len(), 16 + 64);
    assert_eq!(bytes[16..20], [AF_INET, 6, 2, 0]);
    assert_eq!(bytes[20..24], 0b1011_0011_0110_u32.to_ne_bytes());
    assert_eq!(bytes[26..28], 4420_u16.to_be_bytes());
    assert_eq!(bytes[72..], attributes(&[(REQUEST_PROTOCOL, &262_u32.to_ne_bytes())]));
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(payload in proptest::collection::vec(any::<u8>(), 0..300), family: bool) {
        let mut message = [vec![0; 16], payload].concat();
        if let Some(first) = message.get_mut(16) {
            *first = if family { AF_INET } else { AF_INET6 };
        }
        let _ = parse(&message);
        let _ = options(&message[16..]);
    }
}
