//! Recalled reads and flushes.

use super::handshake::Peer;
use super::violations::{READ, WRITE, busy, violation};
use crate::host::{Completion, DirectRecv, IoCommand, LostRequest, ProtocolError, RecallOutcome, SubmitError, Tag};
use crate::wire::{C2hData, CommonHeader, Digests, Framing, Pdu, PduType, Status};

const BOTH: Digests = Digests { header: true, data: true };

fn data(cid: u16, offset: u32, length: u32) -> (Pdu, Vec<u8>) {
    (Pdu::C2hData(C2hData { cid, offset, length, last: false, success: false }), vec![3; length as usize])
}

/// The CIDs of the commands that are sent by this call.
fn sent(peer: &mut Peer) -> Vec<u16> {
    let cid = |(pdu, _): (Pdu, Vec<u8>)| if let Pdu::CapsuleCmd(sqe) = pdu { Some(sqe.cid.get()) } else { None };
    peer.sent().into_iter().filter_map(cid).collect()
}

fn read(peer: &mut Peer, tag: u32) -> Result<(), SubmitError> {
    peer.payloads.of(Tag(tag)).resize(512, 0);
    peer.queue.submit(Tag(tag), 0, IoCommand::Read { slba: 0, blocks: 1 })
}

fn ok(tag: Tag) -> Completion {
    Completion { tag, result: Ok(()), sent_at: None }
}

#[test]
fn an_unsent_request_is_removed_immediately() {
    let mut peer = Peer::ready(Digests::default());
    for tag in 0..3 {
        read(&mut peer, tag).unwrap();
    }
    assert_eq!(peer.queue.recall(Tag(1)), RecallOutcome::Unsent);
    assert_eq!(peer.queue.in_flight(), 2);
    read(&mut peer, 1).unwrap();
    assert_eq!(sent(&mut peer).len(), 3);
    assert_eq!(peer.queue.into_lost().count(), 3);
}

#[test]
fn a_sent_request_gets_no_data_and_no_completion_and_its_answer_is_counted() {
    for digests in [Digests::default(), BOTH] {
        let (mut peer, cid, _) = busy(digests);
        assert_eq!(peer.queue.recall(READ), RecallOutcome::Abandoned);
        *peer.payloads.of(READ) = Vec::new();
        let (pdu, bytes) = data(cid, 0, 8192);
        peer.send(pdu, &bytes).unwrap();
        assert_eq!(peer.queue.take_answered().requests, 0, "data do not count as an answer");
        peer.complete(cid, Status::SUCCESS, 0).unwrap();
        assert_eq!((peer.queue.take_answered().requests, peer.queue.take_answered().requests), (1, 0));
        assert_eq!((peer.completion(), peer.queue.in_flight()), (None, 1));
    }
}

#[test]
fn data_of_abandoned_requests_are_checked() {
    let pdu = PduType::C2hData;
    let (mut peer, cid, _) = busy(Digests::default());
    peer.queue.recall(READ);
    let (wrong, bytes) = data(cid, 512, 512);
    assert_eq!(peer.send(wrong, &bytes), violation(ProtocolError::Offset { pdu, cid, expected: 0, got: 512 }));
    let (mut peer, cid, _) = busy(Digests::default());
    peer.queue.recall(READ);
    let short = ProtocolError::ShortData { cid, moved: 0, total: 8192 };
    assert_eq!(peer.complete(cid, Status::SUCCESS, 0), violation(short));
    assert_eq!(peer.queue.into_lost().collect::<Vec<_>>(), [LostRequest { tag: WRITE, indeterminate: true }]);
}

#[test]
fn errors_of_abandoned_requests_are_ignored() {
    let (mut peer, cid, _) = busy(BOTH);
    peer.queue.recall(READ);
    let (pdu, bytes) = data(cid, 0, 8192);
    let mut stream = Vec::new();
    pdu.emit(&Framing { digests: BOTH, alignment: 0 }, &bytes, &mut stream);
    assert!(CommonHeader::parse(stream.first_chunk::<8>().unwrap()).is_ok());
    *stream.last_mut().unwrap() ^= 1;
    peer.queue.receive(&stream, &mut peer.payloads).unwrap();
    peer.complete(cid, Status::SUCCESS, 0).unwrap();
    assert_eq!((peer.queue.take_answered().requests, peer.completion()), (1, None));
    let (mut peer, cid, _) = busy(BOTH);
    peer.queue.recall(READ);
    peer.complete(cid, Status::INTERNAL_ERROR, 0).unwrap();
    assert_eq!((peer.queue.take_answered().requests, peer.completion()), (1, None));
}

#[test]
fn a_recall_during_the_data_stops_the_copying() {
    let (mut peer, cid, _) = busy(Digests::default());
    let (pdu, bytes) = data(cid, 0, 8192);
    let mut stream = Vec::new();
    pdu.emit(&Framing::default(), &bytes, &mut stream);
    let (first, rest) = stream.split_at(stream.len() - 8000);
    peer.queue.receive(first, &mut peer.payloads).unwrap();
    assert_eq!(peer.queue.direct(), Some(DirectRecv { tag: READ, offset: 192, len: 8000 }));
    assert_eq!(peer.queue.recall(READ), RecallOutcome::Abandoned);
    assert_eq!(peer.queue.direct(), None);
    // Bytes of a direct receive that started earlier count.
    peer.queue.received_direct(1000).unwrap();
    peer.queue.receive(&rest[1000..], &mut peer.payloads).unwrap();
    assert_eq!(peer.payloads.of(READ)[..], [[3; 192].as_slice(), &[0; 8000]].concat());
    peer.complete(cid, Status::SUCCESS, 0).unwrap();
    assert_eq!((peer.queue.take_answered().requests, peer.completion()), (1, None));
}

#[test]
fn a_tag_can_be_used_again_while_its_abandoned_request_is_in_flight() {
    let mut peer = Peer::ready(Digests::default());
    let mut cids = Vec::new();
    for _ in 0..3 {
        read(&mut peer, 5).unwrap();
        cids.extend(sent(&mut peer));
        assert_eq!(peer.queue.recall(Tag(5)), RecallOutcome::Abandoned);
    }
    read(&mut peer, 5).unwrap();
    cids.extend(sent(&mut peer));
    assert_eq!(cids.len(), 4);
    // The newest request is answered first, and the others later with other data.
    for (n, &cid) in cids.iter().enumerate().rev() {
        let pdu = Pdu::C2hData(C2hData { cid, offset: 0, length: 512, last: true, success: true });
        peer.send(pdu, &[n as u8; 512]).unwrap();
        assert_eq!(peer.completion(), (n == 3).then(|| ok(Tag(5))));
    }
    assert_eq!((peer.payloads.of(Tag(5))[..].to_vec(), peer.queue.take_answered().requests), (vec![3; 512], 3));
}

#[test]
fn abandoned_requests_occupy_the_queue_until_they_are_answered() {
    let mut peer = Peer::ready(Digests::default());
    let capacity = peer.queue.capacity() as u32;
    for tag in 0..capacity {
        read(&mut peer, tag).unwrap();
    }
    let cids = sent(&mut peer);
    for tag in 0..capacity {
        assert_eq!(peer.queue.recall(Tag(tag)), RecallOutcome::Abandoned);
    }
    assert_eq!(read(&mut peer, 0), Err(SubmitError::Full));
    assert_eq!(peer.queue.in_flight() as u32, capacity);
    peer.complete(cids[3], Status::INTERNAL_ERROR, 0).unwrap();
    read(&mut peer, 0).unwrap();
    let again = sent(&mut peer);
    assert!(again.len() == 1 && !cids.contains(&again[0]), "a CID in use is not used again");
    assert_eq!(peer.queue.into_lost().collect::<Vec<_>>(), [LostRequest { tag: Tag(0), indeterminate: false }]);
}

#[test]
fn the_rest_of_a_recalled_split_read_is_not_sent() {
    let mut peer = Peer::ready(Digests::default());
    // 8 commands of 128 KiB, with only 7 CIDs.
    peer.payloads.of(READ).resize(8 << 17, 0);
    peer.queue.submit(READ, 0, IoCommand::Read { slba: 0, blocks: 2048 }).unwrap();
    read(&mut peer, 1).unwrap();
    let cids = sent(&mut peer);
    assert_eq!(cids.len(), 7);
    assert_eq!(peer.queue.recall(READ), RecallOutcome::Abandoned);
    for &cid in &cids[..6] {
        peer.complete(cid, Status::INTERNAL_ERROR, 0).unwrap();
        assert_eq!(peer.queue.take_answered().requests, 0, "a part is not answered");
    }
    assert_eq!(sent(&mut peer).len(), 1, "the other read only");
    peer.complete(cids[6], Status::INTERNAL_ERROR, 0).unwrap();
    assert_eq!((peer.queue.take_answered().requests, peer.completion()), (1, None));
}

#[test]
fn a_split_read_without_commands_in_flight_is_removed_immediately() {
    let mut peer = Peer::ready(Digests::default());
    let capacity = peer.queue.capacity() as u32;
    for tag in 2..=capacity {
        read(&mut peer, tag).unwrap();
    }
    peer.payloads.of(READ).resize(2 << 17, 3);
    let others = sent(&mut peer);
    peer.queue.submit(READ, 0, IoCommand::Read { slba: 0, blocks: 512 }).unwrap();
    let cids = sent(&mut peer);
    assert_eq!((others.len(), cids.len()), (6, 1), "one CID was left for the first half");
    let (pdu, bytes) = data(cids[0], 0, 1 << 17);
    peer.send(pdu, &bytes).unwrap();
    peer.complete(cids[0], Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.queue.recall(READ), RecallOutcome::Unsent);
    assert_eq!((sent(&mut peer).len(), peer.queue.in_flight()), (0, 6));
}

#[test]
fn a_completed_request_is_not_recalled() {
    let (mut peer, cid, _) = busy(Digests::default());
    let (pdu, bytes) = data(cid, 0, 8192);
    peer.send(pdu, &bytes).unwrap();
    peer.complete(cid, Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.queue.recall(READ), RecallOutcome::Completed);
    assert_eq!((peer.completion(), peer.queue.take_answered().requests), (Some(ok(READ)), 0));
}

#[test]
#[should_panic(expected = "in doubt")]
fn writes_cannot_be_recalled() {
    let (mut peer, ..) = busy(Digests::default());
    peer.queue.recall(WRITE);
}
