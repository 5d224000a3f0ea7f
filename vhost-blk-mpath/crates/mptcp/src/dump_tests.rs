use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::assemble::assemble;
use crate::connection::MptcpOptions;
use crate::info::{FALLBACK, MptcpInfo, TcpInfo};
use crate::record::tests::listed;
use crate::record::{Listed, SocketId};

fn socket(inode: u32, cookie: u32, info: &[u8], subflow: Option<(u32, u8, u8)>) -> Vec<u8> {
    let id = SocketId { cookie: [cookie, 0], ..SocketId::default() };
    listed(Listed { family: INET, state: 1, id, inode, ..Listed::default() }, info, subflow)
}

fn done(result: i32) -> Vec<u8> {
    emit(DONE, 2, &result.to_ne_bytes())
}

fn take(pieces: &[&[u8]]) -> Result<(Progress, Vec<u64>), DiagError> {
    let mut answer = Answer::new(Protocol::Mptcp);
    let mut progress = Progress::More;
    for piece in pieces {
        progress = answer.take(piece, |record| record.inode == 1)?;
    }
    Ok((progress, answer.found.iter().map(|record| record.cookie).collect()))
}

#[test]
fn an_answer_comes_in_pieces_and_only_what_is_wanted_is_kept() {
    let first = [socket(1, 10, &[], None), socket(2, 11, &[], None)].concat();
    let second = [socket(1, 12, &[], None), done(0)].concat();
    assert_eq!(take(&[&first]).unwrap(), (Progress::More, vec![10]));
    assert_eq!(take(&[&first, &second]).unwrap(), (Progress::Complete, vec![10, 12]));
}

#[test]
fn a_list_that_changed_is_asked_for_again() {
    let interrupted = emit(BY_FAMILY, DUMP_INTERRUPTED, &[]);
    assert_eq!(take(&[&interrupted]).unwrap().0, Progress::Changed);
    assert_eq!(take(&[&emit(DONE, DUMP_INTERRUPTED, &[0; 4])]).unwrap().0, Progress::Changed);
}

/// Kernels say it in either way.
#[test]
fn a_kernel_without_the_list_says_so() {
    for kind in [DONE, ERROR] {
        let missing = take(&[&emit(kind, 0, &(-2_i32).to_ne_bytes())]).unwrap_err();
        assert_eq!(missing.to_string(), "this kernel cannot list mptcp sockets; is there a module mptcp_diag?");
        let refused = take(&[&emit(kind, 0, &(-1_i32).to_ne_bytes())]).unwrap_err();
        assert!(matches!(refused, DiagError::Refused { protocol: "mptcp", .. }), "{refused}");
        let odd = take(&[&emit(kind, 0, &i32::MIN.to_ne_bytes())]).unwrap_err();
        assert!(matches!(odd, DiagError::Refused { .. }), "{odd}");
        let short = take(&[&emit(kind, 0, &[0; 2])]).unwrap_err();
        assert!(matches!(short, DiagError::Malformed(_)), "{short}");
    }
}

#[test]
fn a_list_has_an_end() {
    let mut answer = Answer::new(Protocol::Tcp);
    answer.listed = MAX_SOCKETS - 1;
    assert_eq!(answer.take(&socket(2, 1, &[], None), |_| false).unwrap(), Progress::More);
    let error = answer.take(&socket(2, 1, &[], None), |_| false).unwrap_err();
    assert!(matches!(error, DiagError::TooMany { protocol: "tcp" }), "{error}");
}

fn records(protocol: Protocol, bytes: &[u8]) -> Vec<Record> {
    let mut answer = Answer::new(protocol);
    answer.take(bytes, |_| true).unwrap();
    answer.found
}

#[test]
fn subflows_belong_to_the_socket_whose_inode_they_bear() {
    let info = |token, flags| MptcpInfo { token, flags, subflows_max: 2, ..MptcpInfo::default() };
    let sockets =
        [socket(1, 20, info(7, 0).as_bytes(), None), socket(2, 10, info(8, FALLBACK).as_bytes(), None)].concat();
    let rtt = |rtt_us| TcpInfo { rtt_us, ..TcpInfo::default() };
    let subflows = [
        socket(1, 30, rtt(3).as_bytes(), Some((1 << 2, 2, 0))),
        socket(1, 31, rtt(1).as_bytes(), Some((0, 0, 0))),
        socket(1, 32, rtt(2).as_bytes(), Some((1 << 3 | 1 << 4, 1, 0))),
        socket(1, 32, rtt(2).as_bytes(), Some((1 << 3 | 1 << 4, 1, 0))),
        socket(2, 33, rtt(4).as_bytes(), None),
        socket(9, 34, rtt(5).as_bytes(), None),
    ]
    .concat();
    let connections = assemble(&records(Protocol::Mptcp, &sockets), &records(Protocol::Tcp, &subflows));
    let [fell_back, whole] = &connections[..] else { panic!("{connections:?}") };
    assert_eq!((fell_back.cookie, fell_back.token, fell_back.fallback), (10, 8, true));
    assert_eq!((whole.cookie, whole.token, whole.fallback, whole.subflows_max), (20, 7, false, 2));
    let rtts = |of: &crate::Connection| of.subflows.iter().map(|subflow| subflow.rtt.as_micros()).collect::<Vec<_>>();
    assert_eq!((rtts(fell_back), rtts(whole)), (vec![4], vec![1, 2, 3]));
    let backup = MptcpOptions { id_local: 1, id_remote: 0, joined: true, backup_local: false, backup_remote: true };
    assert_eq!(whole.subflows[1].options, Some(backup));
    assert_eq!(fell_back.subflows[0].options, None);
}

proptest! {
    #[test]
    fn any_piece_is_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = take(&[&bytes]);
    }

    /// An answer of the kernel, with a wrong byte or without its end.
    #[test]
    fn any_damage_is_taken_or_refused(at: usize, byte: u8, cut: usize) {
        let info = TcpInfo { rtt_us: 3, ..TcpInfo::default() };
        let mut bytes = [socket(1, 10, info.as_bytes(), Some((4, 1, 1))), socket(1, 11, &[], None), done(0)].concat();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut % (bytes.len() + 1));
        let mut answer = Answer::new(Protocol::Tcp);
        let _ = answer.take(&bytes, |_| true);
        prop_assert!(assemble(&answer.found, &answer.found).len() <= 2);
    }
}
