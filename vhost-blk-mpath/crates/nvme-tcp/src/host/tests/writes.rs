//! Writes: violations of the rules for R2T, and the data that are sent.

use monotonic::Instant;

use super::handshake::Peer;
use super::violations::{READ, WRITE, busy, keep_busy, r2t, violation};
use super::{ENOUGH, queue_config};
use crate::host::{Completion, IoCommand, ProtocolError, QueueConfig, STAGING_MIN, Tag, TxPart};
use crate::wire::{Digests, Pdu, PduType, Sgl, Status};

#[test]
fn r2ts_must_fit_their_command() {
    let pdu = PduType::R2t;
    let check = |make: &dyn Fn(u16, u16) -> Pdu, expect: &dyn Fn(u16, u16) -> ProtocolError| {
        let (mut peer, read, write) = busy(Digests::default());
        peer.send(r2t(write, 1, 0, 4096), &[]).unwrap();
        assert_eq!(peer.send(make(read, write), &[]), violation(expect(read, write)));
    };
    check(&|read, _| r2t(read, 2, 0, 512), &|cid, _| ProtocolError::WrongDirection { pdu, cid });
    check(&|_, write| r2t(write, 2, 4096, 0), &|_, cid| ProtocolError::EmptyR2t { cid });
    check(&|_, write| r2t(write, 2, 0, 512), &|_, cid| ProtocolError::Offset { pdu, cid, expected: 4096, got: 0 });
    check(&|_, write| r2t(write, 2, 8192, 512), &|_, cid| ProtocolError::Offset {
        pdu,
        cid,
        expected: 4096,
        got: 8192,
    });
    check(&|_, write| r2t(write, 2, 4096, u32::MAX), &|_, cid| ProtocolError::Overrun {
        pdu,
        cid,
        offset: 4096,
        length: u32::MAX,
        total: 131_072,
    });
    let (mut peer, _, write) = busy(Digests::default());
    for n in 0..4 {
        peer.send(r2t(write, n, u32::from(n) * 512, 512), &[]).unwrap();
    }
    let limit = ProtocolError::R2tLimit { cid: write, limit: 4 };
    assert_eq!(peer.send(r2t(write, 4, 2048, 512), &[]), violation(limit));
}

#[test]
fn an_in_capsule_write_accepts_no_r2t() {
    let mut peer = Peer::ready(Digests::default());
    *peer.payloads.of(READ) = vec![1; 4096];
    peer.queue.submit(READ, 0, IoCommand::Write { slba: 0, blocks: 8, fua: false }).unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(sqe), data)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(*data, [1; 4096]);
    let cid = sqe.cid.get();
    let error = ProtocolError::Offset { pdu: PduType::R2t, cid, expected: 4096, got: 0 };
    assert_eq!(peer.send(r2t(cid, 0, 0, 512), &[]), violation(error));
}

/// Linux' target never requests data that fit the capsule (16 KiB with its defaults).
#[test]
fn data_that_fit_are_sent_in_the_capsule() {
    for digests in [Digests::default(), BOTH] {
        let mut config = queue_config(digests);
        config.in_capsule_bytes = 16_384;
        let mut peer = Peer::ready_as(config, 8192);
        *peer.payloads.of(WRITE) = (0..33 * 512u32).map(|byte| (byte % 251) as u8).collect();
        for (blocks, carried) in [(16, 16 * 512), (17, 17 * 512), (32, 32 * 512), (33, 0)] {
            peer.queue.submit(WRITE, 0, IoCommand::Write { slba: 0, blocks, fua: false }).unwrap();
            let sent = peer.sent();
            let [(Pdu::CapsuleCmd(sqe), data)] = &sent[..] else { panic!("{sent:?}") };
            assert_eq!(*data, peer.payloads.of(WRITE)[..carried], "{blocks} blocks");
            let length = blocks * 512;
            let sgl = if carried > 0 { Sgl::InCapsule { offset: 0, length } } else { Sgl::Transport { length } };
            assert_eq!(sqe.dptr, sgl.emit());
            peer.complete(sqe.cid.get(), Status::ABORT_REQUESTED, 0).unwrap();
            assert!(peer.completion().is_some());
        }
    }
}

#[test]
fn several_r2ts_are_answered_in_order_within_maxh2cdata() {
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        let (mut peer, _, write) = busy(digests);
        peer.send(r2t(write, 7, 0, 20_000), &[]).unwrap();
        peer.send(r2t(write, 8, 20_000, 4), &[]).unwrap();
        let (mut next, mut lasts) = (0, Vec::new());
        for (pdu, bytes) in peer.sent() {
            let Pdu::H2cData(header) = pdu else { panic!("{pdu:?}") };
            assert_eq!((header.cid, header.offset), (write, next));
            assert!(header.length <= 8192 && header.offset % 4 == 0);
            assert_eq!(bytes, peer.payloads.of(WRITE)[next as usize..(next + header.length) as usize]);
            next += header.length;
            if header.last {
                lasts.push((header.ttag, next));
            }
        }
        assert_eq!(lasts, [(7, 20_000), (8, 20_004)]);
    }
}

#[test]
fn the_first_error_of_a_split_request_ends_it() {
    let mut peer = Peer::ready(Digests::default());
    *peer.payloads.of(WRITE) = vec![0; 512 * 2048];
    // 1 MiB in parts of 128 KiB: eight commands, with seven entries.
    peer.queue.submit(WRITE, 0, IoCommand::Write { slba: 0, blocks: 2048, fua: false }).unwrap();
    let cids: Vec<u16> = peer
        .sent()
        .iter()
        .map(|(pdu, _)| if let Pdu::CapsuleCmd(sqe) = pdu { sqe.cid.get() } else { panic!("{pdu:?}") })
        .collect();
    assert_eq!(cids.len(), 7);
    peer.complete(cids[3], Status::ANA_INACCESSIBLE, 0).unwrap();
    assert_eq!(peer.sent(), [], "the eighth is not worth sending");
    peer.complete(cids[4], Status::INTERNAL_ERROR, 0).unwrap();
    for index in [0, 1, 2, 5] {
        peer.complete(cids[index], Status::ABORT_REQUESTED, 0).unwrap();
        assert_eq!(peer.completion(), None);
    }
    peer.complete(cids[6], Status::ABORT_REQUESTED, 0).unwrap();
    let result = Err(Status::ANA_INACCESSIBLE);
    assert_eq!(peer.completion(), Some(Completion { tag: WRITE, result, sent_at: None }));
    assert_eq!((peer.completion(), peer.queue.in_flight()), (None, 0));
    // The queue still works.
    peer.queue.submit(WRITE, 0, IoCommand::Flush).unwrap();
    assert_eq!(peer.sent().len(), 1);
}

/// Large requested data do not delay new commands until all data are sent.
#[test]
fn a_command_does_not_wait_for_all_requested_data() {
    let mut peer = Peer::ready_with(Digests::default(), 1 << 20);
    let writes = [10, 11, 12].map(Tag);
    for (tag, slba) in writes.into_iter().zip((0..).step_by(256)) {
        *peer.payloads.of(tag) = vec![tag.0 as u8; 131_072];
        peer.queue.submit(tag, 0, IoCommand::Write { slba, blocks: 256, fua: false }).unwrap();
    }
    for (pdu, _) in peer.sent() {
        let Pdu::CapsuleCmd(sqe) = pdu else { panic!("{pdu:?}") };
        peer.send(r2t(sqe.cid.get(), 7, 0, 131_072), &[]).unwrap();
    }
    for (turn, tag) in (0..).zip(writes) {
        peer.queue.submit(Tag(100 + turn), 0, IoCommand::Flush).unwrap();
        let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
        peer.queue.fill_tx(Instant::now(), &mut staging, &peer.payloads, &mut plan, ENOUGH);
        // A flush and the header of the data, then the data.
        let [TxPart::Staged { start: 0, len }, payload] = plan[..] else { panic!("{plan:?}") };
        assert_eq!((len, payload), (72 + 24, TxPart::Payload { tag, offset: 0, len: 131_072 }));
    }
    assert!(peer.sent().is_empty());
}

/// A single large R2T does not delay new commands either: a link of 200 Mbit/s takes 42 ms for 1 MiB.
#[test]
fn a_command_does_not_wait_for_all_data_of_one_r2t() {
    const MIB: u32 = 1 << 20;
    let config = QueueConfig { max_transfer_bytes: MIB, ..queue_config(Digests::default()) };
    let mut peer = Peer::ready_as(config, 4 * MIB);
    *peer.payloads.of(WRITE) = (0..MIB).map(|byte| (byte % 251) as u8).collect();
    peer.queue.submit(WRITE, 0, IoCommand::Write { slba: 0, blocks: 2048, fua: false }).unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(sqe), _)] = &sent[..] else { panic!("{sent:?}") };
    let write = sqe.cid.get();
    peer.send(r2t(write, 7, 0, MIB), &[]).unwrap();
    let (mut next, mut calls) = (0, 0);
    while next < MIB {
        peer.queue.submit(Tag(100 + calls), 0, IoCommand::Flush).unwrap();
        let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
        peer.queue.fill_tx(Instant::now(), &mut staging, &peer.payloads, &mut plan, ENOUGH);
        let mut bytes = Vec::new();
        for part in plan {
            match part {
                TxPart::Staged { start, len } => bytes.extend_from_slice(&staging[start..][..len]),
                TxPart::Payload { tag, offset, len } => {
                    bytes.extend_from_slice(&peer.payloads.of(tag)[offset as usize..][..len as usize]);
                }
            }
        }
        assert!(bytes.len() as u32 <= ENOUGH + (32 << 10) + 144, "{} bytes", bytes.len());
        peer.reader.feed(&bytes);
        let Some((Pdu::CapsuleCmd(flush), _)) = peer.reader.next() else { panic!("the flush first, in call {calls}") };
        while let Some((pdu, data)) = peer.reader.next() {
            let Pdu::H2cData(header) = pdu else { panic!("{pdu:?}") };
            assert_eq!((header.cid, header.ttag, header.offset), (write, 7, next));
            assert_eq!(data, peer.payloads.of(WRITE)[next as usize..][..data.len()]);
            next += header.length;
            assert_eq!(header.last, next == MIB);
        }
        peer.complete(flush.cid.get(), Status::SUCCESS, 0).unwrap();
        assert_eq!(peer.completion().map(|done| done.tag), Some(Tag(100 + calls)));
        calls += 1;
    }
    assert!((6..=9).contains(&calls), "{calls} calls");
    peer.complete(write, Status::SUCCESS, 0).unwrap();
}

/// A stream of commands with in-capsule data does not delay requested data forever.
#[test]
fn requested_data_do_not_wait_forever_for_in_capsule_data() {
    const PAYLOAD: u32 = 16_384;
    for digests in [Digests::default(), BOTH] {
        let config = QueueConfig { entries: 128, in_capsule_bytes: PAYLOAD, ..queue_config(digests) };
        let mut peer = Peer::ready_as(config, 1 << 20);
        let large = Tag(0);
        *peer.payloads.of(large) = vec![1; 131_072];
        peer.queue.submit(large, 0, IoCommand::Write { slba: 0, blocks: 256, fua: false }).unwrap();
        let sent = peer.sent();
        let [(Pdu::CapsuleCmd(sqe), _)] = &sent[..] else { panic!("{sent:?}") };
        let asked_of = sqe.cid.get();
        peer.send(r2t(asked_of, 7, 0, 131_072), &[]).unwrap();
        // A fixed number of requests in flight: each completed one is replaced.
        let mut free: Vec<_> = (1..=48).map(Tag).collect();
        let is_sent = (0..8).any(|_| {
            for tag in free.drain(..) {
                *peer.payloads.of(tag) = vec![2; PAYLOAD as usize];
                peer.queue.submit(tag, 0, IoCommand::Write { slba: 256, blocks: 32, fua: false }).unwrap();
            }
            let (mut staging, mut plan) = (Vec::with_capacity(256 << 10), Vec::new());
            peer.queue.fill_tx(Instant::now(), &mut staging, &peer.payloads, &mut plan, ENOUGH);
            let mut bytes = Vec::new();
            for part in plan {
                match part {
                    TxPart::Staged { start, len } => bytes.extend_from_slice(&staging[start..start + len]),
                    TxPart::Payload { tag, len, .. } => {
                        bytes.extend(std::iter::repeat_n(if tag == large { 1 } else { 2 }, len as usize));
                    }
                }
            }
            peer.reader.feed(&bytes);
            let mut asked_for = false;
            while let Some((pdu, _)) = peer.reader.next() {
                match pdu {
                    Pdu::CapsuleCmd(sqe) => peer.complete(sqe.cid.get(), Status::SUCCESS, 0).unwrap(),
                    Pdu::H2cData(data) => asked_for |= data.cid == asked_of,
                    other => panic!("{other:?}"),
                }
            }
            free.extend(std::iter::from_fn(|| peer.completion()).map(|done| done.tag));
            asked_for
        });
        assert!(is_sent, "{digests:?}");
    }
}

const BOTH: Digests = Digests { header: true, data: true };

/// Linux' target computes the data digest over the whole command, so the size of the staging buffer must not split PDUs.
#[test]
fn a_transfer_with_data_digest_is_one_pdu_with_any_buffer() {
    let (mut peer, _, write) = keep_busy(Peer::ready_with(BOTH, 1 << 20));
    peer.send(r2t(write, 7, 0, 131_072), &[]).unwrap();
    // The reader verifies the digests. The buffer has the least capacity.
    let sent = peer.sent();
    let [(Pdu::H2cData(header), bytes)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((header.length, header.last), (131_072, true));
    assert_eq!(bytes, peer.payloads.of(WRITE));
    peer.complete(write, Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.completion(), Some(Completion { tag: WRITE, result: Ok(()), sent_at: None }));
}

#[test]
fn a_partial_pdu_is_completed_even_if_its_command_has_failed() {
    let (mut peer, _, write) = keep_busy(Peer::ready_with(BOTH, 1 << 20));
    peer.send(r2t(write, 7, 0, 131_072), &[]).unwrap();
    let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::new());
    peer.queue.fill_tx(Instant::now(), &mut staging, &peer.payloads, &mut plan, ENOUGH);
    peer.reader.feed(&staging);
    assert_eq!(peer.reader.next(), None);
    let begun = staging.len() - 28;
    peer.complete(write, Status::WRITE_FAULT, 0).unwrap();
    assert_eq!(peer.completion().map(|done| done.tag), Some(WRITE));
    // The payload is not read after the failure.
    peer.payloads.of(WRITE).truncate(begun);
    peer.queue.submit(WRITE, 0, IoCommand::Flush).unwrap();
    let sent = peer.sent();
    let [(Pdu::H2cData(_), bytes), (Pdu::CapsuleCmd(flush), _)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(bytes[..begun], *peer.payloads.of(WRITE));
    assert!(bytes[begun..].iter().all(|&byte| byte == 0));
    peer.complete(flush.cid.get(), Status::SUCCESS, 0).unwrap();
    assert!(peer.queue.is_ready());

    let (mut peer, _, write) = keep_busy(Peer::ready_with(BOTH, 1 << 20));
    peer.send(r2t(write, 7, 0, 131_072), &[]).unwrap();
    let mut staging = Vec::with_capacity(STAGING_MIN);
    peer.queue.fill_tx(Instant::now(), &mut staging, &peer.payloads, &mut Vec::new(), ENOUGH);
    let short = ProtocolError::ShortData { cid: write, moved: 131_072, total: 131_072 };
    assert_eq!(peer.complete(write, Status::SUCCESS, 0), violation(short));
}
