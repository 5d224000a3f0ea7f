//! Terminate requests to a controller that has violated the protocol.

use super::handshake::Peer;
use super::hostile::half_laid_out;
use super::violations::{busy, r2t};
use crate::host::QueueError;
use crate::wire::{C2hData, Cqe, Digests, FatalError, Framing, IcResp, Pdu, Status, TermReq};

/// The terminate request after these bytes, with the returned header.
fn term_req_after(peer: &mut Peer, bytes: &[u8]) -> Option<(TermReq, Vec<u8>)> {
    assert_eq!(peer.queue.term_req(), None);
    peer.queue.receive(bytes, &mut peer.payloads).unwrap_err();
    peer.reader.feed(&peer.queue.term_req()?);
    match peer.reader.next() {
        Some((Pdu::H2cTermReq(term), header)) => Some((term, header)),
        other => panic!("{other:?}"),
    }
}

fn bytes_of(pdu: Pdu, digests: Digests, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu.emit(&Framing { digests, alignment: 0 }, data, &mut bytes);
    bytes
}

#[test]
fn a_terminate_request_names_the_fault_and_returns_the_header() {
    use FatalError::{DataOutOfRange, InvalidHeaderField, LimitExceeded, PduSequence};

    let none = Digests::default();
    let response = |cid| Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 0));
    let data = |cid, offset, length| Pdu::C2hData(C2hData { cid, offset, length, last: false, success: false });
    let check = |make: &dyn Fn(u16, u16) -> (Pdu, usize), fes, fei| {
        let (mut peer, read, write) = busy(none);
        let (pdu, data_len) = make(read, write);
        let bytes = bytes_of(pdu, none, &vec![0; data_len]);
        let (term, header) = term_req_after(&mut peer, &bytes).unwrap();
        assert_eq!((term.fes, term.fei), (fes, fei), "{pdu:?}");
        assert_eq!(header, bytes[..24], "{pdu:?}");
        assert_eq!(peer.sent(), [], "nothing follows");
    };
    check(&|_, _| (response(0xfff), 0), InvalidHeaderField, 20);
    check(&|_, write| (response(write), 0), PduSequence, 0);
    check(&|_, _| (data(0xfff, 0, 512), 512), InvalidHeaderField, 8);
    check(&|_, write| (data(write, 0, 512), 512), InvalidHeaderField, 8);
    check(&|read, _| (data(read, 512, 512), 512), InvalidHeaderField, 12);
    check(&|read, _| (data(read, 0, 8704), 8704), DataOutOfRange, 0);
    check(&|_, write| (r2t(write, 1, 0, 0), 0), InvalidHeaderField, 16);
    check(&|_, write| (r2t(write, 1, 0, 1 << 20), 0), DataOutOfRange, 0);
    let icresp = Pdu::IcResp(IcResp { cpda: 0, digests: none, maxh2cdata: 4096 });
    let (mut peer, ..) = busy(none);
    let bytes = bytes_of(icresp, none, &[]);
    assert_eq!(term_req_after(&mut peer, &bytes), Some((TermReq { fes: PduSequence, fei: 0 }, bytes)));
    let (mut peer, _, write) = busy(none);
    for n in 0..4 {
        peer.send(r2t(write, n, u32::from(n) * 512, 512), &[]).unwrap();
    }
    let bytes = bytes_of(r2t(write, 4, 2048, 512), none, &[]);
    assert_eq!(term_req_after(&mut peer, &bytes), Some((TermReq { fes: LimitExceeded, fei: 0 }, bytes)));
}

/// For an incomplete header it returns the received part. For a wrong header digest it reports the digest.
#[test]
fn a_terminate_request_returns_the_received_part_of_an_invalid_header() {
    let (mut peer, ..) = busy(Digests::default());
    let (term, header) = term_req_after(&mut peer, &[0x55, 0, 24, 0, 24, 0, 0, 0, 1, 2, 3]).unwrap();
    assert_eq!(
        (term.fes, term.fei, &header[..]),
        (FatalError::InvalidHeaderField, 0, &[0x55, 0, 24, 0, 24, 0, 0, 0][..])
    );
    let both = Digests { header: true, data: true };
    let (mut peer, read, _) = busy(both);
    let mut bytes = bytes_of(Pdu::CapsuleResp(Cqe::new(read, 0, Status::SUCCESS, 0)), both, &[]);
    bytes[24..28].copy_from_slice(&[1, 2, 3, 4]);
    let (term, header) = term_req_after(&mut peer, &bytes).unwrap();
    assert_eq!((term.fes, term.fei), (FatalError::HeaderDigest, 0x0403_0201));
    assert_eq!(header[..24], bytes[..24]);
}

#[test]
fn there_is_no_terminate_request_within_a_partial_pdu() {
    let (mut peer, cid) = half_laid_out();
    peer.complete(cid, Status::SUCCESS, 0).unwrap_err();
    assert_eq!(peer.queue.term_req(), None);
}

#[test]
fn there_is_no_terminate_request_after_a_terminate_request() {
    let (mut peer, ..) = busy(Digests::default());
    let term = Pdu::C2hTermReq(TermReq { fes: FatalError::PduSequence, fei: 0 });
    assert_eq!(term_req_after(&mut peer, &bytes_of(term, Digests::default(), &[])), None);
    assert!(matches!(peer.queue.error(), Some(QueueError::Protocol(_))));
}
