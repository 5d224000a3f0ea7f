//! Commands of one request that fail, while its other commands succeed.

use super::handshake::Peer;
use super::{Dice, queue_config};
use crate::host::{Completion, IoCommand, Part, QueueConfig, RecallOutcome, Tag};
use crate::wire::{Digests, DsmRange, NvmCommand, Pdu, Status};

const TAG: Tag = Tag(0);
/// A request has sixteen commands of four blocks.
const BLOCKS: u32 = 64;
const COMMAND_BLOCKS: u32 = 4;

fn peer() -> Peer {
    let config = QueueConfig { max_transfer_bytes: COMMAND_BLOCKS * 512, ..queue_config(Digests::default()) };
    let mut peer = Peer::ready_as(config, 1 << 20);
    *peer.payloads.of(TAG) = vec![7; BLOCKS as usize * 512];
    peer
}

fn read() -> IoCommand {
    IoCommand::Read { slba: 100, blocks: BLOCKS }
}

fn part(first: u32, blocks: u32) -> Part {
    Part { first, blocks }
}

/// Answers each command with the status that `status` gives for its first block, counted from that of the request. Returns
/// these blocks.
fn answer(peer: &mut Peer, mut status: impl FnMut(u32) -> Status) -> Vec<u32> {
    let mut blocks = Vec::new();
    loop {
        let sent = peer.sent();
        if sent.is_empty() {
            return blocks;
        }
        for (pdu, data) in sent {
            let Pdu::CapsuleCmd(sqe) = pdu else { panic!("{pdu:?}") };
            let slba = match NvmCommand::parse(&sqe).unwrap() {
                NvmCommand::Read { slba, .. } | NvmCommand::WriteZeroes { slba, .. } => slba,
                NvmCommand::DatasetManagement { .. } => DsmRange::slice(&data)[0].slba.get(),
                other => panic!("{other:?}"),
            };
            let block = (slba - 100) as u32;
            blocks.push(block);
            match status(block) {
                Status::SUCCESS if !peer.payloads.of(TAG).is_empty() => {
                    let length = COMMAND_BLOCKS * 512;
                    let data =
                        crate::wire::C2hData { cid: sqe.cid.get(), offset: 0, length, last: true, success: true };
                    peer.send(Pdu::C2hData(data), &vec![block as u8; length as usize]).unwrap();
                }
                status => peer.complete(sqe.cid.get(), status, 0).unwrap(),
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as `completion` returns it")]
fn failed(status: Status) -> Option<Completion> {
    Some(Completion { tag: TAG, result: Err(status), sent_at: None })
}

const OK: Option<Completion> = Some(Completion { tag: TAG, result: Ok(()), sent_at: None });

#[test]
fn only_failed_commands_are_left_to_be_done() {
    let mut peer = peer();
    peer.queue.submit(TAG, 0, read()).unwrap();
    let fails = |block| if [8, 12, 32].contains(&block) { Status::INTERNAL_ERROR } else { Status::SUCCESS };
    assert_eq!(answer(&mut peer, fails).len(), 16, "the others are sent all the same");
    assert_eq!(peer.completion(), failed(Status::INTERNAL_ERROR));
    let unfinished = peer.queue.take_unfinished();
    assert_eq!(unfinished, [part(8, 8), part(32, 4)]);
    peer.queue.submit_parts(TAG, 0, read(), &unfinished).unwrap();
    assert_eq!(
        answer(&mut peer, |block| if block == 12 { Status::INTERNAL_ERROR } else { Status::SUCCESS }),
        [8, 12, 32]
    );
    assert_eq!(peer.completion(), failed(Status::INTERNAL_ERROR));
    assert_eq!(peer.queue.take_unfinished(), [part(12, 4)]);
    peer.queue.submit_parts(TAG, 0, read(), &[part(12, 4)]).unwrap();
    assert_eq!(answer(&mut peer, |_| Status::SUCCESS), [12]);
    assert_eq!((peer.completion(), peer.queue.take_unfinished()), (OK, vec![]));
    let payload = peer.payloads.of(TAG);
    assert!((0..BLOCKS).all(|block| payload[block as usize * 512] == (block & !3) as u8), "each part at its place");
}

#[test]
fn a_request_of_which_nothing_was_done_is_left_as_a_whole() {
    let mut peer = peer();
    peer.queue.submit(TAG, 0, read()).unwrap();
    answer(&mut peer, |_| Status::INTERNAL_ERROR);
    assert_eq!((peer.completion(), peer.queue.take_unfinished()), (failed(Status::INTERNAL_ERROR), vec![]));
    peer.queue.submit_parts(TAG, 0, read(), &[part(8, 4)]).unwrap();
    answer(&mut peer, |_| Status::INTERNAL_ERROR);
    assert_eq!((peer.completion(), peer.queue.take_unfinished()), (failed(Status::INTERNAL_ERROR), vec![]));
}

/// A path that refuses a command refuses the others too, and a final error is final.
#[test]
fn after_another_error_the_remaining_commands_are_not_issued() {
    for status in [Status::INVALID_NAMESPACE.with_dnr(), Status::WRITE_FAULT.with_dnr()] {
        let mut config = queue_config(Digests::default());
        (config.max_transfer_bytes, config.entries) = (COMMAND_BLOCKS * 512, 5);
        let mut peer = Peer::ready_as(config, 1 << 20);
        *peer.payloads.of(TAG) = vec![7; BLOCKS as usize * 512];
        peer.queue.submit(TAG, 0, read()).unwrap();
        let statuses = |block| match block {
            4 => Status::INTERNAL_ERROR,
            8 => status,
            _ => Status::SUCCESS,
        };
        assert_eq!(answer(&mut peer, statuses), [0, 4, 8, 12], "four have a CID");
        assert_eq!(peer.completion(), failed(status), "the worst one");
        assert_eq!(peer.queue.take_unfinished(), [part(4, 8), part(16, 48)]);
    }
}

#[test]
fn zeroes_and_discards_are_repeated_in_parts_too() {
    for command in [
        IoCommand::WriteZeroes { slba: 100, blocks: BLOCKS, deallocate: false, fua: false },
        IoCommand::Deallocate { slba: 100, blocks: BLOCKS },
    ] {
        let mut config = queue_config(Digests::default());
        config.command_limits.max_write_zeroes_bytes = (COMMAND_BLOCKS * 512).into();
        let mut peer = Peer::ready_as(config, 1 << 20);
        peer.payloads.of(TAG).clear();
        // Discards are split only at millions of blocks.
        if let IoCommand::WriteZeroes { .. } = command {
            peer.queue.submit(TAG, 0, command).unwrap();
            answer(&mut peer, |block| if block == 20 { Status::COMMAND_INTERRUPTED } else { Status::SUCCESS });
            assert_eq!(peer.completion(), failed(Status::COMMAND_INTERRUPTED));
            assert_eq!(peer.queue.take_unfinished(), [part(20, 4)]);
        }
        peer.queue.submit_parts(TAG, 0, command, &[part(20, 4), part(40, 4)]).unwrap();
        assert_eq!(answer(&mut peer, |_| Status::SUCCESS), [20, 40]);
        assert_eq!(peer.completion(), OK);
    }
}

#[test]
fn parts_of_a_recalled_read_do_not_reach_the_next_request() {
    let mut peer = peer();
    let parts = [part(0, 4), part(8, 4), part(16, 4)];
    peer.queue.submit_parts(TAG, 0, read(), &parts).unwrap();
    assert_eq!(peer.queue.recall(TAG), RecallOutcome::Unsent);
    peer.queue.submit(TAG, 0, read()).unwrap();
    assert_eq!(answer(&mut peer, |_| Status::SUCCESS).len(), 16);
    assert_eq!(peer.completion(), OK);
    // After the recall of a read that was sent, its parts are not needed either.
    peer.queue.submit_parts(TAG, 0, read(), &parts).unwrap();
    let sent = peer.sent();
    assert_eq!((sent.len(), peer.queue.recall(TAG)), (3, RecallOutcome::Abandoned));
    for (pdu, _) in sent {
        let Pdu::CapsuleCmd(sqe) = pdu else { panic!("{pdu:?}") };
        peer.complete(sqe.cid.get(), Status::INTERNAL_ERROR, 0).unwrap();
    }
    assert_eq!((peer.completion(), peer.queue.in_flight()), (None, 0));
}

/// Sixteen commands, three of ten of which fail. A request has six attempts.
#[test]
fn a_large_request_gets_through_a_controller_that_fails_often() {
    let mut dice = Dice(9);
    let mut through = 0;
    for _ in 0..100 {
        let mut peer = peer();
        let mut parts = Vec::new();
        for _ in 0..6 {
            peer.queue.submit_parts(TAG, 0, read(), &parts).unwrap();
            answer(&mut peer, |_| if dice.below(10) < 3 { Status::INTERNAL_ERROR } else { Status::SUCCESS });
            if peer.completion() == OK {
                through += 1;
                break;
            }
            let left = peer.queue.take_unfinished();
            parts = if left.is_empty() { parts } else { left };
        }
    }
    assert!(through >= 95, "{through} of 100");
}
