//! A controller that reports no limits and fails commands above some size.

use zerocopy::FromBytes;

use super::handshake::Peer;
use super::{Dice, queue_config};
use crate::host::{CommandLimits, Completion, IoCommand, LostRequest, QueueConfig, RecallOutcome, Tag};
use crate::wire::{C2hData, Digests, DsmRange, NvmCommand, Pdu, R2t, Status};

const MIB: u32 = 1 << 20;
const KIB: u32 = 1 << 10;

/// A controller with a namespace of 1 MiB and a limit of the command size.
struct Controller {
    peer: Peer,
    most: u32,
    refusal: Status,
    /// Unanswered commands, with their data.
    sent: Vec<(Pdu, Vec<u8>)>,
    /// The sizes of all commands, in order.
    commands: Vec<u32>,
    /// Blocks on which reads and writes fail.
    bad: Option<u64>,
    disk: Vec<u8>,
    dice: Dice,
}

impl Controller {
    fn new(reports_max_transfer: bool, most: u32, refusal: Status) -> Self {
        Self::with_limits(reports_max_transfer, most, refusal, CommandLimits::NONE)
    }

    fn with_limits(reports_max_transfer: bool, most: u32, refusal: Status, command_limits: CommandLimits) -> Self {
        let config = queue_config(Digests::default());
        let config = QueueConfig { max_transfer_bytes: MIB, reports_max_transfer, command_limits, ..config };
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

    /// Answers all commands in random order. Returns the completions.
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
            done.extend(std::iter::from_fn(|| self.peer.completion()));
        }
    }

    fn answer(&mut self, cid: u16, command: NvmCommand, in_capsule: &[u8]) {
        let (slba, blocks) = match command {
            NvmCommand::Read { slba, blocks }
            | NvmCommand::Write { slba, blocks, .. }
            | NvmCommand::WriteZeroes { slba, blocks, .. } => (slba, blocks),
            NvmCommand::DatasetManagement { .. } => {
                let range = DsmRange::read_from_bytes(in_capsule).unwrap();
                (range.slba.get(), range.blocks.get())
            }
            NvmCommand::Flush => panic!("no flush"),
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
        if matches!(command, NvmCommand::WriteZeroes { .. } | NvmCommand::DatasetManagement { .. }) {
            self.disk[range].fill(0);
            self.peer.complete(cid, Status::SUCCESS, 0).unwrap();
        } else if matches!(command, NvmCommand::Read { .. }) {
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
    Completion { tag, result: Ok(()), sent_at: None }
}

#[test]
fn failed_commands_are_retried_with_smaller_ones_and_the_size_is_learned() {
    for refusal in [Status::INTERNAL_ERROR, Status::INTERNAL_ERROR.with_dnr(), Status::INVALID_FIELD.with_dnr()] {
        let mut controller = Controller::new(false, 200 * KIB, refusal);
        controller.submit(Tag(0), write(0, 2048));
        assert_eq!(controller.run(), [ok(Tag(0))]);
        assert_eq!(controller.commands[..3], [MIB, 512 * KIB, 512 * KIB]);
        assert_eq!(controller.commands[controller.commands.len() - 8..], [128 * KIB; 8]);
        assert!((0..MIB as usize).all(|at| controller.disk[at] == (at % 251) as u8));
        assert_eq!(controller.peer.queue.take_smaller_transfer(), None, "a single failure does not change the limit");
        controller.submit(Tag(2), write(0, 2048));
        assert_eq!(controller.run(), [ok(Tag(2))]);
        assert_eq!(
            (controller.peer.queue.take_smaller_transfer(), controller.peer.queue.take_smaller_transfer()),
            (Some(128 * KIB), None)
        );
        // Later requests are split accordingly.
        controller.commands.clear();
        controller.submit(Tag(1), IoCommand::Read { slba: 0, blocks: 2048 });
        assert_eq!((controller.run(), &controller.commands[..]), (vec![ok(Tag(1))], &[128 * KIB; 8][..]));
        assert!(controller.peer.payloads.of(Tag(1)) == &controller.disk);
    }
}

#[test]
fn commands_without_data_are_retried_with_fewer_blocks() {
    let (slba, blocks) = (0, 2048);
    let zeroes = IoCommand::WriteZeroes { slba, blocks, deallocate: false, fua: false };
    let refusals = [Status::INVALID_FIELD.with_dnr(), Status::CONNECT_RESTART_DISCOVERY.with_dnr()];
    for (command, refusal) in [(zeroes, refusals[0]), (IoCommand::Deallocate { slba, blocks }, refusals[1])] {
        let mut controller = Controller::new(true, 200 * KIB, refusal);
        for tag in 0..3 {
            controller.disk.fill(1);
            controller.commands.clear();
            controller.submit(Tag(tag), command);
            assert_eq!(controller.run(), [ok(Tag(tag))], "{command:?}");
            assert!(controller.disk.iter().all(|byte| *byte == 0));
        }
        assert_eq!(controller.commands, [128 * KIB; 8], "the size is learned");
        assert_eq!(controller.peer.queue.take_smaller_transfer(), None, "the size of transfers has not changed");
    }
    // A command that the controller does not know fails.
    let mut controller = Controller::new(true, 0, refusals[0]);
    controller.submit(Tag(0), zeroes);
    assert_eq!(controller.run(), [Completion { tag: Tag(0), result: Err(refusals[0]), sent_at: None }]);
    // A reported limit is the controller's own.
    let commands = CommandLimits { max_write_zeroes_bytes: u64::from(MIB), ..CommandLimits::NONE };
    let mut controller = Controller::with_limits(true, 512 * KIB, refusals[0], commands);
    controller.submit(Tag(0), zeroes);
    assert_eq!((controller.run().len(), &controller.commands[..]), (1, &[MIB][..]));
}

/// Several failures at the same time reduce the limit no further than a single failure.
#[test]
fn requests_that_fail_together_halve_the_limit_once() {
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
fn a_passing_failure_does_not_change_the_limit() {
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
fn a_failing_medium_does_not_change_the_limit() {
    // Before any success, smaller commands are tried before the guest gets the error.
    let mut controller = Controller::new(false, MIB, Status::INTERNAL_ERROR);
    controller.bad = Some(5);
    controller.submit(Tag(0), write(0, 2048));
    assert_eq!(controller.run(), [Completion { tag: Tag(0), result: Err(Status::INTERNAL_ERROR), sent_at: None }]);
    assert!(controller.commands.len() > 1);
    assert_eq!(controller.peer.queue.take_smaller_transfer(), None);
    // A size that has succeeded is not taken as too large.
    controller.bad = None;
    controller.submit(Tag(1), write(0, 2048));
    assert_eq!(controller.run(), [ok(Tag(1))]);
    controller.bad = Some(5);
    controller.commands.clear();
    controller.submit(Tag(2), write(0, 2048));
    assert_eq!(controller.run(), [Completion { tag: Tag(2), result: Err(Status::INTERNAL_ERROR), sent_at: None }]);
    assert_eq!(controller.commands, [MIB]);
}

#[test]
fn with_mdts_or_another_error_there_is_no_retry() {
    for (reports, refusal) in
        [(true, Status::INTERNAL_ERROR), (false, Status::WRITE_FAULT), (false, Status::ANA_INACCESSIBLE)]
    {
        let mut controller = Controller::new(reports, 512 * KIB, refusal);
        controller.submit(Tag(0), write(0, 2048));
        assert_eq!(controller.run(), [Completion { tag: Tag(0), result: Err(refusal), sent_at: None }]);
        assert_eq!(controller.commands, [MIB]);
    }
}

/// Between two attempts no command is in flight, so no data are in doubt, and a read can be recalled.
#[test]
fn a_request_that_waits_for_its_retry_counts_as_unsent() {
    let refuse_once = |command| {
        let mut controller = Controller::new(false, 64 * KIB, Status::INTERNAL_ERROR);
        controller.submit(Tag(0), command);
        let [(Pdu::CapsuleCmd(sqe), _)] = &controller.peer.sent()[..] else { panic!() };
        controller.peer.complete(sqe.cid.get(), Status::INTERNAL_ERROR, 0).unwrap();
        assert_eq!(controller.peer.completion(), None);
        controller.peer.queue
    };
    let lost: Vec<_> = refuse_once(write(0, 2048)).into_lost().collect();
    assert_eq!(lost, [LostRequest { tag: Tag(0), indeterminate: false }]);
    let mut queue = refuse_once(IoCommand::Read { slba: 0, blocks: 2048 });
    assert_eq!((queue.recall(Tag(0)), queue.in_flight()), (RecallOutcome::Unsent, 0));
}
