//! A target that sends anything at any time.
//!
//! The queue never panics, reads the payloads only of requests in flight, and sends only the bytes of the right command.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::handshake::Peer;
use super::{Dice, queue_config};
use crate::host::{
    HostQueue, IoCommand, NamespaceLimits, PayloadSink, PayloadSource, ProtocolError, QueueConfig, QueueError,
    RecallOutcome, STAGING_MIN, Tag, TxPart,
};
use crate::wire::{
    C2hData, CommonHeader, Cqe, Digests, DsmRange, Framing, IcResp, NvmCommand, Pdu, R2t, Sgl, Sqe, Status, crc32c,
};

/// Each request has this many blocks for itself, so that each byte identifies its request.
const PLACE_BLOCKS: u64 = 1 << 16;

/// The byte that guests write at this offset of the namespace. It is never 0, which the queue sends in place of lost payloads.
fn content(offset: u64) -> u8 {
    1 + ((offset ^ (offset >> 9) ^ (offset >> 25).wrapping_mul(0x9d)) % 255) as u8
}

/// The memory of the requests in flight.
#[derive(Default)]
struct Guest {
    in_flight: BTreeMap<Tag, IoCommand>,
}

impl Guest {
    fn first_byte(&self, tag: Tag) -> u64 {
        let command = self.in_flight.get(&tag).expect("only the payloads of requests in flight are touched");
        command.range().expect("a flush has no payload").0 * 512
    }
}

impl PayloadSource for Guest {
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]) {
        assert!(matches!(self.in_flight.get(&tag), Some(IoCommand::Write { .. })), "{tag:?} writes nothing");
        let first = self.first_byte(tag) + u64::from(offset);
        (first..).zip(dst).for_each(|(at, byte)| *byte = content(at));
    }
}

impl PayloadSink for Guest {
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]) {
        let Some(&IoCommand::Read { blocks, .. }) = self.in_flight.get(&tag) else { panic!("{tag:?} reads nothing") };
        assert!(u64::from(offset) + src.len() as u64 <= u64::from(blocks) * 512);
    }
}

/// A command as received by the target.
#[derive(Debug, Clone, Copy)]
struct Seen {
    command: NvmCommand,
    /// Bytes of its data.
    length: u32,
    in_capsule: bool,
    /// Bytes that were received from the host, or sent to it.
    moved: u32,
    /// Bytes that R2Ts have requested.
    asked: u32,
    /// All PDUs for the command are complete, including digests.
    whole: bool,
    /// The command was answered with an error.
    failed: bool,
}

impl Seen {
    fn is_write(&self) -> bool {
        matches!(self.command, NvmCommand::Write { .. } | NvmCommand::DatasetManagement { .. })
    }

    /// The expected data at this offset.
    fn expected(&self, offset: u32, len: usize) -> Option<Vec<u8>> {
        let NvmCommand::Write { slba, .. } = self.command else { return None };
        let first = slba * 512 + u64::from(offset);
        Some((first..).take(len).map(content).collect())
    }
}

/// The stream from the host, parsed byte by byte, including incomplete PDUs.
struct Wire {
    framing: Framing,
    bytes: Vec<u8>,
    /// By CID.
    commands: BTreeMap<u16, Seen>,
    /// The PDU at the front: the command, the offset of its data, and the number of data bytes received.
    open: Option<(u16, u32, usize)>,
}

impl Wire {
    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while self.step() {}
    }

    /// Takes the received part of the first PDU. Returns whether the PDU was complete.
    fn step(&mut self) -> bool {
        let Some(start) = self.bytes.first_chunk::<8>() else { return false };
        let common = CommonHeader::parse(start).unwrap();
        let layout = self.framing.layout(&common).unwrap();
        let data_start = layout.data_start() as usize;
        if self.bytes.len() < data_start {
            return false;
        }
        if self.open.is_none() {
            self.open = Some(match Pdu::parse(&common, &layout, &self.bytes).unwrap() {
                Pdu::CapsuleCmd(sqe) => self.on_capsule(&sqe, layout.data_len),
                Pdu::H2cData(data) => (data.cid, data.offset, 0),
                other => panic!("{other:?}"),
            });
        }
        let (cid, offset, seen) = self.open.expect("just set");
        let data_end = data_start + layout.data_len as usize;
        let there = self.bytes.len().min(data_end) - data_start;
        let command = self.commands.get_mut(&cid).expect("data of a command that was sent");
        command.whole = false;
        command.moved += (there - seen) as u32;
        if let Some(expected) = command.expected(offset + seen as u32, there - seen) {
            let got = &self.bytes[data_start + seen..data_start + there];
            let zeroes_from = got.iter().position(|&byte| byte == 0).unwrap_or(got.len());
            assert!(zeroes_from == got.len() || command.failed, "zeroes in place of the payload of {command:?}");
            assert!(got[..zeroes_from] == expected[..zeroes_from], "the payload of another request in {command:?}");
        }
        self.open = Some((cid, offset, there));
        if self.bytes.len() < common.plen as usize {
            return false;
        }
        if layout.data_digest {
            let crc = crc32c(&self.bytes[data_start..data_end]);
            assert_eq!(self.bytes[data_end..data_end + 4], crc.to_le_bytes());
        }
        if let (NvmCommand::DatasetManagement { .. }, true) = (command.command, layout.data_len == 16) {
            let range = DsmRange::slice(&self.bytes[data_start..data_end])[0];
            // A part of a request, if the target has refused all of it as too large.
            assert!((1..=PLACE_BLOCKS - range.slba.get() % PLACE_BLOCKS).contains(&range.blocks.get().into()));
        }
        command.whole = true;
        self.open = None;
        self.bytes.drain(..common.plen as usize);
        true
    }

    fn on_capsule(&mut self, sqe: &Sqe, carried: u32) -> (u16, u32, usize) {
        let command = NvmCommand::parse(sqe).unwrap();
        let sgl = Sgl::parse(&sqe.dptr).unwrap();
        let in_capsule = matches!(sgl, Sgl::InCapsule { .. });
        assert_eq!(carried, if in_capsule { sgl.length() } else { 0 });
        let seen =
            Seen { command, length: sgl.length(), in_capsule, moved: 0, asked: carried, whole: false, failed: false };
        self.commands.insert(sqe.cid.get(), seen);
        (sqe.cid.get(), 0, 0)
    }
}

struct Session {
    dice: Dice,
    queue: HostQueue,
    guest: Guest,
    wire: Wire,
    place: u64,
    /// Answered CIDs.
    answered: Vec<u16>,
    ttag: u16,
    /// The target has violated the protocol, so its accounting is invalid.
    is_lost: bool,
}

type Received = Result<(), QueueError>;

impl Session {
    fn new(config: QueueConfig, maxh2cdata: u32, seed: u64) -> Self {
        let framing = Framing { digests: config.digests, alignment: 0 };
        let queue = Peer::ready_as(config, maxh2cdata).queue;
        let wire = Wire { framing, bytes: Vec::new(), commands: BTreeMap::new(), open: None };
        let (guest, answered) = (Guest::default(), Vec::new());
        Self { dice: Dice(seed), queue, guest, wire, place: 0, answered, ttag: 0, is_lost: false }
    }

    fn submit(&mut self) {
        // Like an I/O thread: the tag that became free last is used first.
        let tag =
            (0..64).map(Tag).find(|tag| !self.guest.in_flight.contains_key(tag)).expect("more than the queue takes");
        let slba = self.place * PLACE_BLOCKS;
        let blocks = 1 + self.dice.below([8, 64, 600, 2100][self.dice.clone().below(4)]) as u32;
        let command = match self.dice.below(8) {
            0..2 => IoCommand::Read { slba, blocks },
            2..6 => IoCommand::Write { slba, blocks, fua: false },
            6 => IoCommand::Deallocate { slba, blocks },
            _ => IoCommand::Flush,
        };
        if self.queue.submit(tag, 0, command).is_ok() {
            self.guest.in_flight.insert(tag, command);
            self.place += 1;
        }
    }

    fn recall(&mut self) {
        let mut reads = self.guest.in_flight.iter().filter(|(_, command)| matches!(command, IoCommand::Read { .. }));
        let Some((&tag, _)) = reads.next() else { return };
        assert_ne!(self.queue.recall(tag), RecallOutcome::Completed, "completions are fetched as they come");
        self.guest.in_flight.remove(&tag);
    }

    fn fill(&mut self) {
        let (capacity, enough) = (STAGING_MIN + self.dice.below(30_000), 1 + self.dice.below(300_000) as u32);
        let (mut staging, mut plan) = (Vec::with_capacity(capacity), Vec::new());
        let has_output = self.queue.has_output();
        self.queue.fill_tx(monotonic::Instant::now(), &mut staging, &self.guest, &mut plan, enough);
        assert!(has_output || plan.is_empty(), "the queue pair has said that there is nothing to send");
        for part in plan {
            match part {
                TxPart::Staged { start, len } => self.wire.feed(&staging[start..start + len]),
                TxPart::Payload { tag, offset, len } => {
                    let mut bytes = vec![0; len as usize];
                    self.guest.gather(tag, offset, &mut bytes);
                    self.wire.feed(&bytes);
                }
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) -> Received {
        let mut left = bytes;
        let mut received = Ok(());
        while !left.is_empty() && received.is_ok() {
            received = if let Some(direct) = self.queue.direct().filter(|_| self.dice.one_in(2)) {
                let count = 1 + self.dice.below(left.len().min(direct.len as usize));
                self.guest.scatter(direct.tag, direct.offset, &left[..count]);
                left = &left[count..];
                self.queue.received_direct(count as u32)
            } else {
                let (now, later) = left.split_at(1 + self.dice.below(left.len()));
                left = later;
                self.queue.receive(now, &mut self.guest)
            };
            self.fetch();
        }
        received
    }

    fn fetch(&mut self) {
        while let Some(done) = self.queue.poll_completion() {
            assert!(self.guest.in_flight.remove(&done.tag).is_some(), "{:?} ends once", done.tag);
        }
    }

    fn send(&mut self, pdu: Pdu, data: &[u8]) -> Received {
        let mut bytes = Vec::new();
        pdu.emit(&self.wire.framing, data, &mut bytes);
        if self.wire.framing.digests.data && !data.is_empty() && self.dice.one_in(8) {
            *bytes.last_mut().expect("a digest") ^= 1;
        }
        self.receive(&bytes)
    }

    /// Answers a command with a status, and checks the reaction of the queue.
    fn complete(&mut self, cid: u16, status: Status) -> Received {
        let seen = self.wire.commands[&cid];
        let is_copied = seen.whole && (!seen.is_write() || seen.moved == seen.length);
        let legal = if status.is_success() {
            if seen.is_write() { is_copied } else { seen.moved == seen.length }
        } else {
            // A target cannot judge a capsule that has not arrived. It may answer before the data of an R2T arrive.
            seen.whole || !seen.in_capsule
        };
        let received = self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, status, 0)), &[]);
        assert!(received.is_ok() == legal || self.is_lost, "{status} for {seen:?}: {received:?}");
        self.answered(cid, status);
        received
    }

    fn answered(&mut self, cid: u16, status: Status) {
        if let Some(seen) = self.wire.commands.get_mut(&cid) {
            seen.failed = !status.is_success();
        }
        self.answered.push(cid);
    }

    fn live(&mut self) -> Option<(u16, Seen)> {
        let live: Vec<_> = self.wire.commands.iter().filter(|(cid, _)| !self.answered.contains(cid)).collect();
        if live.is_empty() {
            return None;
        }
        let (&cid, &seen) = live[self.dice.below(live.len())];
        Some((cid, seen))
    }

    /// A random action that a target is allowed to take.
    fn behave(&mut self) -> Received {
        let Some((cid, seen)) = self.live() else { return Ok(()) };
        let rest = if seen.is_write() { seen.length - seen.asked } else { seen.length - seen.moved };
        let part = if self.dice.one_in(2) { rest } else { (self.dice.below(rest as usize + 1) as u32 + 3) & !3 };
        let length = part.min(rest);
        if self.dice.one_in(12) && (seen.whole || !seen.in_capsule) {
            return self.complete(cid, Status::WRITE_FAULT);
        }
        if length > 0 && seen.is_write() {
            self.ttag = self.ttag.wrapping_add(1);
            self.wire.commands.get_mut(&cid).expect("live").asked += length;
            return self.send(Pdu::R2t(R2t { cid, ttag: self.ttag, offset: seen.asked, length }), &[]);
        }
        if length > 0 {
            let last = length == rest;
            let success = last && self.dice.one_in(2);
            self.wire.commands.get_mut(&cid).expect("live").moved += length;
            if success {
                self.answered(cid, Status::SUCCESS);
            }
            let data = C2hData { cid, offset: seen.moved, length, last, success };
            return self.send(Pdu::C2hData(data), &vec![7; length as usize]);
        }
        if rest == 0 && seen.whole && (!seen.is_write() || seen.moved == seen.length) {
            return self.complete(cid, Status::SUCCESS);
        }
        Ok(())
    }

    /// A random violation of the protocol.
    fn misbehave(&mut self) -> Received {
        let live = self.live();
        let any_cid = self.dice.next() as u16;
        let cid = live.map_or(any_cid, |(cid, _)| cid);
        let length = 1 + self.dice.below(9000) as u32;
        let offset = (self.dice.next() as u32) >> self.dice.below(32);
        let what = self.dice.below(9);
        self.is_lost |= what > 3;
        match what {
            // An answer that comes too early, if a command allows it.
            0..3 if live.is_some() => {
                let status = if self.dice.one_in(2) { Status::SUCCESS } else { Status::INTERNAL_ERROR };
                self.complete(cid, status)
            }
            3 if !self.answered.is_empty() => {
                let again = self.answered[self.dice.below(self.answered.len())];
                if live.is_some_and(|(cid, _)| cid == again) || self.wire.commands.contains_key(&again) {
                    self.send(Pdu::CapsuleResp(Cqe::new(again, 0, Status::SUCCESS, 0)), &[])
                } else {
                    Ok(())
                }
            }
            4 => self.send(Pdu::R2t(R2t { cid, ttag: 1, offset, length }), &[]),
            5 => {
                let last = self.dice.one_in(2);
                let success = last && self.dice.one_in(2);
                let data = C2hData { cid, offset, length, last, success };
                self.send(Pdu::C2hData(data), &vec![7; length as usize])
            }
            6 => {
                let digests = self.wire.framing.digests;
                self.send(Pdu::IcResp(IcResp { cpda: 0, digests, maxh2cdata: 4096 }), &[])
            }
            7 => {
                let bytes: Vec<u8> = (0..length % 200).map(|_| self.dice.next() as u8).collect();
                self.receive(&bytes)
            }
            _ => self.send(Pdu::CapsuleResp(Cqe::new(any_cid, 0, Status::SUCCESS, 0)), &[]),
        }
    }

    /// Runs until the queue fails, or for this many turns.
    fn run(mut self, turns: usize) {
        let mut ended = Ok(());
        for _ in 0..turns {
            match self.dice.below(16) {
                0..4 => self.submit(),
                4..8 => self.fill(),
                8 => self.recall(),
                9 if self.dice.one_in(3) => ended = self.misbehave(),
                _ => ended = self.behave(),
            }
            if ended.is_err() {
                break;
            }
        }
        // After the failure, further bytes and calls must have no effect.
        if let Err(error) = ended {
            self.fill();
            assert_eq!(self.queue.receive(&[0; 64], &mut self.guest), Err(error.clone()));
            assert_eq!(self.queue.error(), Some(error));
            self.fetch();
        }
        for lost in self.queue.into_lost() {
            let command = self.guest.in_flight.remove(&lost.tag).expect("lost once");
            assert!(command.is_mutating() || !lost.indeterminate);
        }
        assert!(self.guest.in_flight.is_empty(), "every request ends: {:?}", self.guest.in_flight);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_target_touches_another_request(
        seed: u64, header: bool, data: bool, in_capsule in 0usize..6, entries in 2u16..20, maxh2cdata in 1u32..=256,
    ) {
        let in_capsule_bytes = [0, 512, 8192, 16 << 10, 256 << 10, 1 << 20][in_capsule];
        let namespace = NamespaceLimits { nsid: 1, block_bytes: 512, namespace_blocks: 1 << 50, noiob_blocks: 0 };
        let config = QueueConfig {
            in_capsule_bytes,
            entries,
            max_transfer_bytes: 1 << 20,
            reports_max_transfer: seed.is_multiple_of(2),
            namespaces: vec![Some(namespace)],
            ..queue_config(Digests { header, data })
        };
        Session::new(config, maxh2cdata * 4096, seed).run(300);
    }
}

/// A write whose capsule needs several calls of `fill_tx`, after the first of these calls. Returns the queue with its payloads,
/// and the CID of the write.
pub(super) fn half_laid_out() -> (Peer, u16) {
    let both = Digests { header: true, data: true };
    let mut peer = Peer::ready_as(QueueConfig { in_capsule_bytes: 1 << 17, ..queue_config(both) }, 8192);
    *peer.payloads.of(Tag(0)) = vec![1; 1 << 16];
    peer.queue.submit(Tag(0), 0, IoCommand::Write { slba: 0, blocks: 128, fua: false }).unwrap();
    let mut staging = Vec::with_capacity(STAGING_MIN);
    peer.queue.fill_tx(monotonic::Instant::now(), &mut staging, &peer.payloads, &mut Vec::new(), u32::MAX);
    assert!(staging.len() < 1 << 16);
    let cid = u16::from_le_bytes([staging[10], staging[11]]);
    (peer, cid)
}

#[test]
fn an_answer_before_the_end_of_a_capsule_ends_the_connection() {
    for status in [Status::SUCCESS, Status::INTERNAL_ERROR] {
        let (mut peer, cid) = half_laid_out();
        let error = QueueError::Protocol(ProtocolError::EarlyResponse { cid });
        assert_eq!(peer.complete(cid, status, 0), Err(error));
        // The rest of the capsule is not sent, and its payload is not read.
        *peer.payloads.of(Tag(0)) = Vec::new();
        assert_eq!(peer.sent(), []);
        let lost: Vec<_> = peer.queue.into_lost().collect();
        assert_eq!(lost, [crate::host::LostRequest { tag: Tag(0), indeterminate: true }]);
    }
}
