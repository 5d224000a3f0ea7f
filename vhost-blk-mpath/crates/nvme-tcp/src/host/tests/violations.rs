//! Violations of the rules for PDUs to a host.

use super::handshake::Peer;
use crate::host::{Completion, IoCommand, LostRequest, ProtocolError, QueueError, Tag};
use crate::wire::{C2hData, Digests, Framing, Pdu, PduError, PduField, PduType, R2t, Status, crc32c};

pub(super) const READ: Tag = Tag(0);
pub(super) const WRITE: Tag = Tag(1);

/// A ready queue with an 8 KiB read and a 128 KiB write in flight: the CIDs of both.
pub(super) fn busy(digests: Digests) -> (Peer, u16, u16) {
    keep_busy(Peer::ready(digests))
}

pub(super) fn keep_busy(mut peer: Peer) -> (Peer, u16, u16) {
    *peer.payloads.of(READ) = vec![0; 8192];
    *peer.payloads.of(WRITE) = (0..131_072u32).map(|i| (i >> 3) as u8).collect();
    peer.queue.submit(READ, 0, IoCommand::Read { slba: 0, blocks: 16 }).unwrap();
    peer.queue.submit(WRITE, 0, IoCommand::Write { slba: 16, blocks: 256, fua: true }).unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(read), _), (Pdu::CapsuleCmd(write), _)] = &sent[..] else { panic!("{sent:?}") };
    let (read, write) = (read.cid.get(), write.cid.get());
    (peer, read, write)
}

pub(super) fn violation(error: ProtocolError) -> Result<(), QueueError> {
    Err(QueueError::Protocol(error))
}

/// A `C2hData` PDU with `length` bytes of data for `offset`.
fn data(cid: u16, offset: u32, length: u32) -> (Pdu, Vec<u8>) {
    (Pdu::C2hData(C2hData { cid, offset, length, last: false, success: false }), vec![3; length as usize])
}

pub(super) fn r2t(cid: u16, ttag: u16, offset: u32, length: u32) -> Pdu {
    Pdu::R2t(R2t { cid, ttag, offset, length })
}

#[test]
fn completions_must_name_a_command_in_flight() {
    for wrong in [0x0fff, 0x7000, 0xffff] {
        let (mut peer, ..) = busy(Digests::default());
        let error = ProtocolError::UnknownCid { pdu: PduType::CapsuleResp, cid: wrong };
        assert_eq!(peer.complete(wrong, Status::SUCCESS, 0), violation(error));
    }
    let (mut peer, read, _) = busy(Digests::default());
    peer.complete(read, Status::INTERNAL_ERROR, 0).unwrap();
    let error = ProtocolError::UnknownCid { pdu: PduType::CapsuleResp, cid: read };
    assert_eq!(peer.complete(read, Status::INTERNAL_ERROR, 0), violation(error), "completed twice");
    let done = Completion { tag: READ, result: Err(Status::INTERNAL_ERROR), sent_at: None };
    assert_eq!((peer.completion(), peer.completion()), (Some(done), None));
    assert_eq!(peer.queue.into_lost().collect::<Vec<_>>(), [LostRequest { tag: WRITE, indeterminate: true }]);
}

/// Without data, the host could not notice the end of the PDU.
#[test]
fn read_data_are_never_empty() {
    let (mut peer, read, _) = busy(Digests::default());
    let [low, high] = read.to_le_bytes();
    let flags = 0x0c; // LAST and SUCCESS
    let bytes = [7, flags, 24, 24, 24, 0, 0, 0, low, high, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let received = peer.queue.receive(&bytes, &mut peer.payloads);
    let error = PduError::InvalidField { pdu: PduType::C2hData, field: PduField::Plen, value: 24 };
    assert_eq!(received, violation(ProtocolError::Pdu(error)));
}

#[test]
fn read_data_must_fit_their_command() {
    let pdu = PduType::C2hData;
    let check = |make: &dyn Fn(u16, u16) -> (Pdu, Vec<u8>), expect: &dyn Fn(u16, u16) -> ProtocolError| {
        let (mut peer, read, write) = busy(Digests::default());
        let (first, bytes) = data(read, 0, 4096);
        peer.send(first, &bytes).unwrap();
        let (wrong, bytes) = make(read, write);
        assert_eq!(peer.send(wrong, &bytes), violation(expect(read, write)));
        let lost: Vec<LostRequest> = peer.queue.into_lost().collect();
        assert_eq!(
            lost,
            [LostRequest { tag: READ, indeterminate: false }, LostRequest { tag: WRITE, indeterminate: true }]
        );
    };
    check(&|_, write| data(write, 0, 512), &|_, cid| ProtocolError::WrongDirection { pdu, cid });
    check(&|read, _| data(read ^ 0x1000, 4096, 512), &|read, _| ProtocolError::UnknownCid { pdu, cid: read ^ 0x1000 });
    check(&|read, _| data(read, 0, 512), &|cid, _| ProtocolError::Offset { pdu, cid, expected: 4096, got: 0 });
    check(&|read, _| data(read, 4608, 512), &|cid, _| ProtocolError::Offset { pdu, cid, expected: 4096, got: 4608 });
    check(&|read, _| data(read, 4096, 4100), &|cid, _| ProtocolError::Overrun {
        pdu,
        cid,
        offset: 4096,
        length: 4100,
        total: 8192,
    });
}

#[test]
fn success_needs_all_data() {
    let short = |cid, moved, total| violation(ProtocolError::ShortData { cid, moved, total });
    let (mut peer, read, _) = busy(Digests::default());
    let (pdu, bytes) = data(read, 0, 4096);
    peer.send(pdu, &bytes).unwrap();
    assert_eq!(peer.complete(read, Status::SUCCESS, 0), short(read, 4096, 8192));

    let (mut peer, read, _) = busy(Digests::default());
    let early = C2hData { cid: read, offset: 0, length: 4096, last: true, success: true };
    let mut header = Vec::new();
    Pdu::C2hData(early).emit_header(&Framing::default(), 4096, &mut header);
    assert_eq!(peer.queue.receive(&header, &mut peer.payloads), short(read, 4096, 8192), "the data need not come");

    let (mut peer, _, write) = busy(Digests::default());
    assert_eq!(peer.complete(write, Status::SUCCESS, 0), short(write, 0, 131_072));

    // The data are requested but not encoded.
    let (mut peer, _, write) = busy(Digests::default());
    peer.send(r2t(write, 1, 0, 131_072), &[]).unwrap();
    assert_eq!(peer.complete(write, Status::SUCCESS, 0), short(write, 131_072, 131_072));

    // An error may arrive at any time. Then requested data are not sent.
    let (mut peer, _, write) = busy(Digests::default());
    peer.send(r2t(write, 1, 0, 4096), &[]).unwrap();
    peer.complete(write, Status::WRITE_FAULT, 0).unwrap();
    assert_eq!(peer.sent(), []);
    assert_eq!(peer.completion().map(|done| done.result), Some(Err(Status::WRITE_FAULT)));
}

#[test]
fn no_completion_follows_the_success_flag() {
    let (mut peer, read, _) = busy(Digests::default());
    let all = C2hData { cid: read, offset: 0, length: 8192, last: true, success: true };
    peer.send(Pdu::C2hData(all), &[5; 8192]).unwrap();
    assert_eq!(peer.completion(), Some(Completion { tag: READ, result: Ok(()), sent_at: None }));
    assert_eq!(*peer.payloads.of(READ), [5; 8192]);
    let error = ProtocolError::UnknownCid { pdu: PduType::CapsuleResp, cid: read };
    assert_eq!(peer.complete(read, Status::SUCCESS, 0), violation(error));
}

#[test]
fn success_requires_last() {
    let (mut peer, read, _) = busy(Digests::default());
    let error = PduError::InvalidField { pdu: PduType::C2hData, field: PduField::Flags, value: 8 };
    let mut bytes = Vec::new();
    data(read, 0, 512).0.emit_header(&Framing::default(), 512, &mut bytes);
    bytes[1] |= 8;
    assert_eq!(peer.queue.receive(&bytes, &mut peer.payloads), violation(ProtocolError::Pdu(error)));
}

#[test]
fn digests_are_verified() {
    let digests = Digests { header: true, data: true };
    let (mut peer, read, _) = busy(digests);
    let framing = Framing { digests, alignment: 0 };
    let mut bytes = Vec::new();
    data(read, 0, 8192).0.emit(&framing, &[3; 8192], &mut bytes);
    let mut bad_header = bytes.clone();
    bad_header[12] ^= 4;
    let received = u32::from_le_bytes(bad_header[24..28].try_into().unwrap());
    let computed = crc32c(&bad_header[..24]);
    let error = PduError::HeaderDigest { pdu: PduType::C2hData, received, computed };
    assert_eq!(peer.queue.receive(&bad_header, &mut peer.payloads), violation(ProtocolError::Pdu(error)));

    // Wrong data fail only their command, with a retryable status.
    let (mut peer, read, write) = busy(digests);
    bytes[100] ^= 1;
    peer.queue.receive(&bytes, &mut peer.payloads).unwrap();
    peer.complete(read, Status::SUCCESS, 0).unwrap();
    let result = Err(Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(peer.completion(), Some(Completion { tag: READ, result, sent_at: None }));
    assert!(peer.queue.is_ready());
    peer.complete(write, Status::LBA_OUT_OF_RANGE.with_dnr(), 0).unwrap();
    let result = Err(Status::LBA_OUT_OF_RANGE.with_dnr());
    assert_eq!(peer.completion(), Some(Completion { tag: WRITE, result, sent_at: None }));

    // A PDU without the negotiated digest.
    let (mut peer, read, _) = busy(digests);
    peer.framing.digests.data = false;
    let error = PduError::InvalidField { pdu: PduType::C2hData, field: PduField::Flags, value: 1 };
    let (pdu, bytes) = data(read, 0, 512);
    assert_eq!(peer.send(pdu, &bytes), violation(ProtocolError::Pdu(error)));
}

#[test]
fn unfetched_completions_are_lost_but_not_in_doubt() {
    let (mut peer, _, write) = busy(Digests::default());
    peer.complete(write, Status::WRITE_FAULT, 0).unwrap();
    let lost: Vec<LostRequest> = peer.queue.into_lost().collect();
    assert_eq!(
        lost,
        [LostRequest { tag: WRITE, indeterminate: false }, LostRequest { tag: READ, indeterminate: false }]
    );
}
