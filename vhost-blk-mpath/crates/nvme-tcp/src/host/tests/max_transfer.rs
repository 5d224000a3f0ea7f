//! A controller that reports no MDTS and refuses commands above some size.

use super::handshake::Peer;
use super::{Dice, queue_config};
use crate::host::{Completion, IoCommand, LostRequest, QueueConfig, RecallOutcome, Tag};
use crate::wire::{C2hData, Digests, NvmCommand, Pdu, R2t, Status};

const MIB: u32 = 1 << 20;
const KIB: u32 = 1 << 10;

/// A controller of 1 MiB of namespace, and the largest command it takes.
struct Controller {
    peer: Peer,
    most: u32,
    refusal: Status,
    /// Commands not answered, with the data they carry.
    sent: Vec<(Pdu, Vec<u8>)>,
    /// Bytes of the commands that were sent, in order.
    commands: Vec<u32>,
    /// Blocks on which a read or write fails.
    bad: Option<u64>,
    disk: Vec<u8>,
    dice: Dice,
}

impl Controller {
    fn new(reports_max_transfer: bool, most: u32, refusal: Status) -> Self {
        let config = QueueConfig { max_transfer_bytes: MIB, reports_max_transfer, ..queue_config(Digests::default()) };
        let disk = vec![0; MIB as usize];
        Self {
            peer: Peer::ready_as(config, MIB),
            most,
            refusal,
            sent: Vec::new(),
            commands: Vec::new(),
            bad: None,
            disk,
            dice: Dice(7),
        }
    }

    fn submit(&mut self, tag: Tag, command: IoCommand) {
        let (slba, blocks) = command.range().unwrap();
        let byte = |at: u64| (at % 251) as u8;
        let content = (slba * 512..).take(blocks as usize * 512).map(byte);
        *self.peer.payloads.of(tag) = match command {
            IoCommand::Write { .. } => content.collect(),
            _ => vec![0; blocks as usize * 512],
        };
        self.peer.queue.submit(tag, 0, command).unwrap();
    }

    /// Answers all that is sent, in any order, until there is nothing more: what has completed.
    fn run(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        loop {
            let sent = self.peer.sent();
            self.sent.extend(sent);
            if self.sent.is_empty() {
                return done;
            }
            let (Pdu::CapsuleCmd(sqe), data) = self.sent.swap_remove(self.dice.below(self.sent.len())) else {
                panic!()
            };
            self.answer(sqe.cid.get(), NvmCommand::parse(&sqe).unwrap(), &data);
            done.extend(std::iter::from_fn(|| self.peer.queue.poll_completion()));
        }
    }

    fn answer(&mut self, cid: u16, command: NvmCommand, in_capsule: &[u8]) {
        let (slba, blocks) = match command {
            NvmCommand::Read { slba, blocks } | NvmCommand::Write { slba, blocks, .. } => (slba, blocks),
            other => panic!("{other:?}"),
        };
        let length = blocks * 512;
        self.commands.push(length);
        if length > self.most {
            return self.peer.complete(cid, self.refusal, 0).unwrap();
        }
        if self.bad.is_some_and(|bad| (slba..slba + u64::from(blocks)).contains(&bad)) {
            return self.peer.complete(cid, Status::INTERNAL_ERROR, 0).unwrap();
        }
        let range = slba as usize * 512..(slba as usize + blocks as usize) * 512;
        if matches!(command, NvmCommand::Read { .. }) {
            let data = C2hData { cid, offset: 0, length, last: true, success: true };
            self.peer.send(Pdu::C2hData(data), &self.disk[range]).unwrap();
        } else if in_capsule.is_empty() {
            self.peer.send(Pdu::R2t(R2t { cid, ttag: 0, offset: 0, length }), &[]).unwrap();
            let mut next = range.start;
            for (pdu, data) in self.peer.sent() {
                let Pdu::H2cData(header) = pdu else {
                    self.sent.push((pdu, data));
                    continue;
                };
                assert_eq!(header.cid, cid);
                self.disk[next..next + data.len()].copy_from_slice(&data);
                next += data.len();
            }
            assert_eq!(next, range.end);
            self.peer.complete(cid, Status::SUCCESS, 0).unwrap();
        } else {
            self.disk[range].copy_from_slice(in_capsule);
            self.peer.complete(cid, Status::SUCCESS, 0).unwrap();
        }
    }
}

fn write(slba: u64, blocks: u32) -> IoCommand {
    IoCommand::Write { slba, blocks, fua: false }
}

fn ok(tag: Tag) -> Completion {
    Completion { tag, result: Ok(()) }
}

#[test]
fn refused_commands_are_repeated_in_smaller_ones_and_the_size_is_remembered() {
    for refusal in [Status::INTERNAL_ERROR, Status::INTERNAL_ERROR.with_dnr(), Status::INVALID_FIELD.with_dnr()] {
        let mut controller = Controller::new(false, 200 * KIB, refusal);
        controller.submit(Tag(0), write(0, 2048));
        assert_eq!(controller.run(), [ok(Tag(0))]);
        assert_eq!(controller.commands[..3], [MIB, 512 * KIB, 512 * KIB]);
        assert_eq!(controller.commands[controller.commands.len() - 8..], [128 * KIB; 8]);
        assert!((0..MIB as usize).all(|at| controller.disk[at] == (at % 251) as u8));
        assert_eq!(controller.peer.queue.take_smaller_transfer(), None, "the refusal may pass");
        controller.submit(Tag(2), write(0, 2048));
        assert_eq!(controller.run(), [ok(Tag(2))]);
        assert_eq!(
            (controller.peer.queue.take_smaller_transfer(), controller.peer.queue.take_smaller_transfer()),
            (Some(128 * KIB), None)
        );
        // Later ones are cut at once.
        controller.commands.clear();
        controller.submit(Tag(1), IoCommand::Read { slba: 0, blocks: 2048 });
        assert_eq!((controller.run(), &controller.commands[..]), (vec![ok(Tag(1))], &[128 * KIB; 8][..]));
        assert!(controller.peer.payloads.of(Tag(1)) == &controller.disk);
    }
}

/// Several at a time shrink it no further than one.
#[test]
fn requests_that_are_refused_together_halve_it_once() {
    let mut controller = Controller::new(false, 512 * KIB, Status::INTERNAL_ERROR);
    for tag in 0..4 {
        controller.submit(Tag(tag), IoCommand::Read { slba: 0, blocks: 2048 });
    }
    assert_eq!(controller.run().len(), 4);
    assert_eq!(controller.peer.queue.take_smaller_transfer(), Some(512 * KIB));
    assert_eq!(controller.commands.iter().filter(|&&bytes| bytes == MIB).count(), 4);
    assert_eq!(controller.commands.len(), 12);
}

#[test]
fn a_failure_that_passes_changes_nothing() {
    let mut controller = Controller::new(false, 512 * KIB, Status::INTERNAL_ERROR);
    controller.submit(Tag(0), write(0, 2048));
    assert_eq!(controller.run(), [ok(Tag(0))]);
    controller.most = MIB;
    controller.commands.clear();
    controller.submit(Tag(1), write(0, 2048));
    assert_eq!((controller.run(), &controller.commands[..]), (vec![ok(Tag(1))], &[MIB][..]));
    assert_eq!(controller.peer.queue.take_smaller_transfer(), None);
}

#[test]
fn a_medium_that_fails_changes_nothing() {
    // Before anything has been completed: smaller commands are tried, and then the guest is told.
    let mut controller = Controller::new(false, MIB, Status::INTERNAL_ERROR);
    controller.bad = Some(5);
    controller.submit(Tag(0), write(0, 2048));
    assert_eq!(controller.run(), [Completion { tag: Tag(0), result: Err(Status::INTERNAL_ERROR) }]);
    assert!(controller.commands.len() > 1);
    assert_eq!(controller.peer.queue.take_smaller_transfer(), None);
    // What has worked once is not taken for too large.
    controller.bad = None;
    controller.submit(Tag(1), write(0, 2048));
    assert_eq!(controller.run(), [ok(Tag(1))]);
    controller.bad = Some(5);
    controller.commands.clear();
    controller.submit(Tag(2), write(0, 2048));
    assert_eq!(controller.run(), [Completion { tag: Tag(2), result: Err(Status::INTERNAL_ERROR) }]);
    assert_eq!(controller.commands, [MIB]);
}

#[test]
fn a_controller_that_reports_mdts_is_believed_and_other_errors_are_errors() {
    for (reports, refusal) in
        [(true, Status::INTERNAL_ERROR), (false, Status::WRITE_FAULT), (false, Status::ANA_INACCESSIBLE)]
    {
        let mut controller = Controller::new(reports, 512 * KIB, refusal);
        controller.submit(Tag(0), write(0, 2048));
        assert_eq!(controller.run(), [Completion { tag: Tag(0), result: Err(refusal) }]);
        assert_eq!(controller.commands, [MIB]);
    }
}

/// Between two attempts nothing is in flight, so nothing is in doubt; a read can be taken back then as ever.
#[test]
fn what_waits_to_be_repeated_is_lost_and_recalled_as_if_unsent() {
    let refuse_once = |command| {
        let mut controller = Controller::new(false, 64 * KIB, Status::INTERNAL_ERROR);
        controller.submit(Tag(0), command);
        let [(Pdu::CapsuleCmd(sqe), _)] = &controller.peer.sent()[..] else { panic!() };
        controller.peer.complete(sqe.cid.get(), Status::INTERNAL_ERROR, 0).unwrap();
        assert_eq!(controller.peer.queue.poll_completion(), None);
        controller.peer.queue
    };
    let lost: Vec<_> = refuse_once(write(0, 2048)).into_lost().collect();
    assert_eq!(lost, [LostRequest { tag: Tag(0), indeterminate: false }]);
    let mut queue = refuse_once(IoCommand::Read { slba: 0, blocks: 2048 });
    assert_eq!((queue.recall(Tag(0)), queue.in_flight()), (RecallOutcome::Unsent, 0));
}
