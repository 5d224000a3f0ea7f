use proptest::prelude::*;

use super::*;
use crate::netlink::{emit, messages};

/// A message as the kernel makes it.
pub(crate) fn listed(listed: Listed, info: &[u8], subflow: Option<(u32, u8, u8)>) -> Vec<u8> {
    let mut payload = listed.as_bytes().to_vec();
    push_attribute(&mut payload, 8, &[0]);
    push_attribute(&mut payload, INFO, info);
    if let Some((flags, id_local, id_remote)) = subflow {
        let mut nested = Vec::new();
        push_attribute(&mut nested, 2, &[1, 2, 3, 4]);
        push_attribute(&mut nested, SUBFLOW_FLAGS, &flags.to_ne_bytes());
        push_attribute(&mut nested, SUBFLOW_ID_REMOTE, &[id_remote]);
        push_attribute(&mut nested, SUBFLOW_ID_LOCAL, &[id_local]);
        let mut ulp = Vec::new();
        push_attribute(&mut ulp, 1, b"mptcp\0");
        push_attribute(&mut ulp, ULP_MPTCP | 0x8000, &nested);
        push_attribute(&mut payload, ULP_INFO | 0x8000, &ulp);
    }
    emit(BY_FAMILY, 2, &payload)
}

fn parse(bytes: &[u8]) -> Result<Option<Record>, Malformed> {
    Record::parse(&messages(bytes).next().unwrap().unwrap())
}

fn ipv4() -> Listed {
    let mut id = SocketId { source_port: 53488.into(), destination_port: 4420.into(), ..SocketId::default() };
    id.source[..4].copy_from_slice(&[10, 1, 0, 1]);
    id.destination[..4].copy_from_slice(&[10, 1, 0, 2]);
    id.cookie = [5, 1];
    Listed { family: INET, state: TCP_ESTABLISHED, id, inode: 77, ..Listed::default() }
}

#[test]
fn a_subflow() {
    let record = parse(&listed(ipv4(), b"info", Some((0b10_0000 | 0b1000, 3, 4)))).unwrap().unwrap();
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
fn every_flag_has_its_place() {
    let of = |flags: u32| parse(&listed(ipv4(), &[], Some((flags, 0, 0)))).unwrap().unwrap().options.unwrap();
    let told = |flags: u32| (of(flags).joined, of(flags).backup_local, of(flags).backup_remote, of(flags).is_backup());
    assert_eq!(told(1 << 0 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 8), (false, false, false, false));
    assert_eq!(told(1 << 2), (true, false, false, false));
    assert_eq!(told(1 << 3), (true, false, false, false));
    assert_eq!(told(1 << 4), (false, false, true, true));
    assert_eq!(told(1 << 5), (false, true, false, true));
}

#[test]
fn addresses_of_ipv6_sockets() {
    let mut of = Listed { family: INET6, ..ipv4() };
    of.id.source = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets();
    of.id.destination = "::ffff:10.1.0.2".parse::<Ipv6Addr>().unwrap().octets();
    let record = parse(&listed(of, &[], None)).unwrap().unwrap();
    assert_eq!(record.local.to_string(), "[2001:db8::1]:53488");
    assert_eq!(record.remote.to_string(), "10.1.0.2:4420");
    let unknown = Listed { family: 1, ..ipv4() };
    assert_eq!(parse(&listed(unknown, &[], None)), Err(Malformed::Family { family: 1 }));
}

#[test]
fn states() {
    let of = |state| parse(&listed(Listed { state, ..ipv4() }, &[], None)).unwrap().map(|record| record.state);
    let all: Vec<_> = (0..14).map(of).collect();
    let (connecting, established, closing) = (Some(State::Connecting), Some(State::Established), Some(State::Closing));
    let expected = [
        None,
        established,
        connecting,
        None,
        closing,
        closing,
        None,
        None,
        closing,
        closing,
        None,
        closing,
        None,
        None,
    ];
    assert_eq!(all, expected);
}

/// Plain TCP has no protocol above it; TLS is one, but not ours.
#[test]
fn another_protocol_above_tcp_is_none() {
    assert_eq!(parse(&listed(ipv4(), &[], None)).unwrap().unwrap().options, None);
    let mut payload = ipv4().as_bytes().to_vec();
    let mut ulp = Vec::new();
    push_attribute(&mut ulp, 1, b"tls\0");
    push_attribute(&mut ulp, 2, &[1; 20]);
    push_attribute(&mut payload, ULP_INFO, &ulp);
    assert_eq!(parse(&emit(BY_FAMILY, 2, &payload)).unwrap().unwrap().options, None);
}

#[test]
fn what_is_too_short_is_refused() {
    let short = emit(BY_FAMILY, 2, &ipv4().as_bytes()[..71]);
    assert_eq!(parse(&short), Err(Malformed::ShortMessage { kind: BY_FAMILY, length: 71 }));
    let mut nested = Vec::new();
    push_attribute(&mut nested, SUBFLOW_FLAGS, &[1, 2]);
    let mut ulp = Vec::new();
    push_attribute(&mut ulp, ULP_MPTCP, &nested);
    assert_eq!(options(&ulp), Err(Malformed::Short { kind: SUBFLOW_FLAGS, length: 2 }));
}

/// As `ss` asks: the protocol does not fit its byte, and is an attribute.
#[test]
fn a_request() {
    let bytes = request(INET, 262);
    assert_eq!(bytes.len(), 64);
    assert_eq!(bytes[..4], [INET, 6, 2, 0]);
    assert_eq!(bytes[4..8], 0b1011_0011_0110_u32.to_ne_bytes());
    assert_eq!(attributes(&bytes[56..]).next(), Some(Ok((3, &262_u32.to_ne_bytes()[..]))));
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail(payload in proptest::collection::vec(any::<u8>(), 0..300), family: bool, state in 0..14_u8) {
        let mut payload = payload;
        if let [first, second, ..] = &mut payload[..] {
            (*first, *second) = (if family { INET } else { INET6 }, state);
        }
        let _ = parse(&emit(BY_FAMILY, 0, &payload));
        let _ = options(&payload);
    }
}
