use netlink_packet_core::{DoneMessage, ErrorMessage};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::inet::nlas::{TcpInfo, TcpInfoBuffer};
use proptest::prelude::*;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::assemble::assemble;
use crate::connection::MptcpOptions;
use crate::info::{FALLBACK, MptcpInfo};
use crate::message::serialize;
use crate::record::tests::{header, listed};

fn socket(inode: u32, cookie: u32, info: &[u8], subflow: Option<(u32, u8, u8)>) -> Vec<u8> {
    listed(header(inode, cookie), info, subflow)
}

/// A `tcp_info` with this round-trip time.
fn tcp_info(rtt: u32) -> Vec<u8> {
    let info = TcpInfo::parse(TcpInfoBuffer::new_zeroed().as_bytes()).unwrap();
    TcpInfoBuffer::from(&TcpInfo { rtt, ..info }).as_bytes().to_vec()
}

fn done(code: i32) -> Vec<u8> {
    let mut done = DoneMessage::default();
    done.code = code;
    serialize::<SockDiagMessage>(0, NetlinkPayload::Done(done))
}

fn error(code: i32) -> Vec<u8> {
    let mut error = ErrorMessage::default();
    error.code = code.try_into().ok();
    serialize::<SockDiagMessage>(0, NetlinkPayload::Error(error))
}

/// The last progress, and the lower halves of the cookies found.
fn receive(datagrams: &[&[u8]]) -> Result<(Progress, Vec<u32>), DiagError> {
    let mut dump = Dump::new(Protocol::Mptcp);
    let mut progress = Progress::More;
    for datagram in datagrams {
        progress = dump.receive(datagram, |record| record.inode == 1)?;
    }
    Ok((progress, dump.found.iter().map(|record| record.cookie as u32).collect()))
}

#[test]
fn a_dump_keeps_only_wanted_sockets_of_all_datagrams() {
    let first = [socket(1, 10, &[], None), socket(2, 11, &[], None)].concat();
    let second = [socket(1, 12, &[], None), done(0)].concat();
    assert_eq!(receive(&[&first]).unwrap(), (Progress::More, vec![10]));
    assert_eq!(receive(&[&first, &second]).unwrap(), (Progress::Complete, vec![10, 12]));
}

#[test]
fn a_list_that_changed_is_interrupted() {
    for mut message in [socket(1, 10, &[], None), done(0)] {
        message[6] = NLM_F_DUMP_INTR as u8;
        assert_eq!(receive(&[&message]).unwrap().0, Progress::Interrupted);
    }
}

/// Kernels answer with either message.
#[test]
fn a_kernel_without_the_list_is_reported() {
    for message in [done, error] {
        let missing = receive(&[&message(-2)]).unwrap_err();
        assert_eq!(missing.to_string(), "this kernel cannot list mptcp sockets; is there a module mptcp_diag?");
        let refused = receive(&[&message(-1)]).unwrap_err();
        assert!(matches!(refused, DiagError::Refused { protocol: "mptcp", .. }), "{refused}");
        let odd = receive(&[&message(i32::MIN)]).unwrap_err();
        assert!(matches!(odd, DiagError::Refused { .. }), "{odd}");
    }
    let mut short = done(0);
    short.truncate(18);
    short[0] = 18;
    let short = receive(&[&short]).unwrap_err();
    assert!(matches!(short, DiagError::Malformed(_)), "{short}");
}

#[test]
fn a_list_has_an_end() {
    let mut dump = Dump::new(Protocol::Tcp);
    dump.listed = MAX_SOCKETS - 1;
    assert_eq!(dump.receive(&socket(2, 1, &[], None), |_| false).unwrap(), Progress::More);
    let error = dump.receive(&socket(2, 1, &[], None), |_| false).unwrap_err();
    assert!(matches!(error, DiagError::TooMany { protocol: "tcp" }), "{error}");
}

fn records(protocol: Protocol, bytes: &[u8]) -> Vec<Record> {
    let mut dump = Dump::new(protocol);
    dump.receive(bytes, |_| true).unwrap();
    dump.found
}

#[test]
fn subflows_belong_to_the_socket_with_their_inode() {
    let info = |token, flags| MptcpInfo { token, flags, subflows_max: 2, ..MptcpInfo::default() };
    let sockets =
        [socket(1, 20, info(7, 0).as_bytes(), None), socket(2, 10, info(8, FALLBACK).as_bytes(), None)].concat();
    let subflows = [
        socket(1, 30, &tcp_info(3), Some((1 << 2, 2, 0))),
        socket(1, 31, &tcp_info(1), Some((0, 0, 0))),
        socket(1, 32, &tcp_info(2), Some((1 << 3 | 1 << 4, 1, 0))),
        socket(1, 32, &tcp_info(2), Some((1 << 3 | 1 << 4, 1, 0))),
        socket(2, 33, &tcp_info(4), None),
        socket(9, 34, &tcp_info(5), None),
    ]
    .concat();
    let connections = assemble(&records(Protocol::Mptcp, &sockets), &records(Protocol::Tcp, &subflows));
    let [fell_back, whole] = &connections[..] else { panic!("{connections:?}") };
    let state = |of: &crate::Connection| {
        let mptcp = of.mptcp.as_ref().unwrap();
        (of.cookie as u32, mptcp.token, mptcp.fallback, mptcp.subflows_max)
    };
    assert_eq!((state(fell_back), state(whole)), ((10, 8, true, 2), (20, 7, false, 2)));
    let rtts =
        |of: &crate::Connection| of.subflows.iter().map(|subflow| subflow.rtt.unwrap().as_micros()).collect::<Vec<_>>();
    assert_eq!((rtts(fell_back), rtts(whole)), (vec![4], vec![1, 2, 3]));
    let backup = MptcpOptions { id_local: 1, id_remote: 0, joined: true, backup_local: false, backup_remote: true };
    assert_eq!(whole.subflows[1].options, Some(backup));
    assert_eq!(fell_back.subflows[0].options, None);
}

proptest! {
    #[test]
    fn any_datagram_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = receive(&[&bytes]);
    }

    /// An answer of the kernel, with a wrong byte or without its end.
    #[test]
    fn any_damage_is_read_or_refused(at: usize, byte: u8, cut: usize) {
        let mut bytes = [socket(1, 10, &tcp_info(3), Some((4, 1, 1))), socket(1, 11, &[], None), done(0)].concat();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut % (bytes.len() + 1));
        let mut dump = Dump::new(Protocol::Tcp);
        let _ = dump.receive(&bytes, |_| true);
        let _ = assemble(&dump.found, &dump.found);
    }
}
