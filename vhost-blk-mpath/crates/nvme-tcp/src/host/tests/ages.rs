//! The age of commands without completion.

use monotonic::Duration;

use super::handshake::Peer;
use crate::host::{AbandonedAnswers, IoCommand, RecallOutcome, Tag};
use crate::wire::{C2hData, Digests, Pdu, Status};

const SECOND: Duration = Duration::from_secs(1);

/// The CIDs of the commands that are sent by this call.
fn sent(peer: &mut Peer) -> Vec<u16> {
    let cid = |(pdu, _): (Pdu, Vec<u8>)| if let Pdu::CapsuleCmd(sqe) = pdu { Some(sqe.cid.get()) } else { None };
    peer.sent().into_iter().filter_map(cid).collect()
}

fn flush(peer: &mut Peer, tag: u32) {
    peer.queue.submit(Tag(tag), 0, IoCommand::Flush).unwrap();
}

#[test]
fn the_age_of_a_command_counts_from_its_sending() {
    let mut peer = Peer::ready(Digests::default());
    assert_eq!(peer.queue.oldest_sent(), None, "Connect has completed");
    flush(&mut peer, 0);
    assert_eq!(peer.queue.oldest_sent(), None, "not sent");
    peer.now += SECOND;
    let first = peer.now;
    let a = sent(&mut peer);
    peer.now += SECOND;
    flush(&mut peer, 1);
    let b = sent(&mut peer);
    assert_eq!(peer.queue.oldest_sent(), Some(first));
    peer.complete(b[0], Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.queue.oldest_sent(), Some(first), "answers to later commands change nothing");
    peer.complete(a[0], Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.queue.oldest_sent(), None);
}

#[test]
fn each_command_of_a_split_request_has_its_own_age() {
    let mut peer = Peer::ready(Digests::default());
    // 8 commands of 128 KiB, with only 7 CIDs.
    peer.payloads.of(Tag(0)).resize(8 << 17, 0);
    peer.queue.submit(Tag(0), 0, IoCommand::Read { slba: 0, blocks: 2048 }).unwrap();
    let cids = sent(&mut peer);
    let first = peer.now;
    peer.now += SECOND;
    let answer = |peer: &mut Peer, cid| {
        let data = C2hData { cid, offset: 0, length: 1 << 17, last: true, success: true };
        peer.send(Pdu::C2hData(data), &vec![7; 1 << 17]).unwrap();
    };
    answer(&mut peer, cids[0]);
    let last = sent(&mut peer);
    assert_eq!((cids.len(), last.len(), peer.queue.oldest_sent()), (7, 1, Some(first)));
    for &cid in &cids[1..] {
        answer(&mut peer, cid);
    }
    assert_eq!(peer.queue.oldest_sent(), Some(first + SECOND));
}

#[test]
fn a_recalled_command_keeps_its_age() {
    let mut peer = Peer::ready(Digests::default());
    peer.payloads.of(Tag(0)).resize(512, 0);
    let read = IoCommand::Read { slba: 0, blocks: 1 };
    peer.queue.submit(Tag(0), 0, read).unwrap();
    let first = peer.now;
    let a = sent(&mut peer);
    assert_eq!(peer.queue.recall(Tag(0)), RecallOutcome::Abandoned);
    peer.now += SECOND;
    // The same tag is used again later.
    peer.queue.submit(Tag(0), 0, read).unwrap();
    let b = sent(&mut peer);
    assert_eq!(peer.queue.oldest_sent(), Some(first));
    assert_eq!(peer.queue.recall(Tag(0)), RecallOutcome::Abandoned);
    peer.complete(b[0], Status::INTERNAL_ERROR, 0).unwrap();
    assert_eq!(peer.queue.take_answered(), AbandonedAnswers { requests: 1, read: Some((first + SECOND, 512)) });
    assert_eq!(peer.queue.oldest_sent(), Some(first));
    peer.complete(a[0], Status::INTERNAL_ERROR, 0).unwrap();
    assert_eq!(peer.queue.take_answered(), AbandonedAnswers { requests: 1, read: Some((first, 512)) });
    assert_eq!((peer.queue.take_answered(), peer.queue.oldest_sent()), (AbandonedAnswers::default(), None));
}

#[test]
fn a_late_answer_to_a_flush_does_not_count_as_a_read() {
    let mut peer = Peer::ready(Digests::default());
    flush(&mut peer, 0);
    let cids = sent(&mut peer);
    peer.queue.recall(Tag(0));
    peer.complete(cids[0], Status::SUCCESS, 0).unwrap();
    assert_eq!(peer.queue.take_answered(), AbandonedAnswers { requests: 1, read: None });
}
