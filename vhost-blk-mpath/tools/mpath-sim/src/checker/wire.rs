//! The PDUs on a connection of a queue pair, read from its bytes (NVMe/TCP transport specification 1.1). The parser shares no code
//! with the host that it checks.

use std::collections::BTreeMap;
use std::ops::Range;

use monotonic::Instant;

/// PDU types and flags.
const CAPSULE_CMD: u8 = 0x04;
const CAPSULE_RESP: u8 = 0x05;
const H2C_DATA: u8 = 0x06;
const C2H_DATA: u8 = 0x07;
const R2T: u8 = 0x09;
/// The status Transient Transport Error, without its phase tag.
const TRANSPORT_ERROR: u16 = 0x22;
const C2H_SUCCESS: u8 = 1 << 3;
/// The common header: type, flags, HLEN, PDO, PLEN.
const COMMON_BYTES: usize = 8;
/// Opcodes of commands that name their blocks.
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
/// The SGL descriptor type of data in the capsule, in the upper half of its byte.
const SGL_IN_CAPSULE: u8 = 0;
/// The part of a PDU that is parsed: common header and submission queue entry.
const HEAD_BYTES: usize = 72;

/// PDUs of one direction.
#[derive(Debug, Default)]
struct PduStream {
    head: Vec<u8>,
    /// Bytes of the PDU that are not parsed.
    skip: usize,
}

/// A place in the stream.
enum Place<'a> {
    /// The part of a PDU that is parsed has come.
    Head(&'a [u8]),
    /// The PDU has come to its end.
    End,
}

impl PduStream {
    /// Calls `on_place` for each place in the stream that these bytes reach.
    fn read(&mut self, mut bytes: &[u8], mut on_place: impl FnMut(Place<'_>)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
                if self.skip == 0 {
                    on_place(Place::End);
                }
                continue;
            }
            let wanted = if self.head.len() < COMMON_BYTES { COMMON_BYTES } else { self.length().min(HEAD_BYTES) };
            let taken = (wanted - self.head.len()).min(bytes.len());
            self.head.extend(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.head.len() >= COMMON_BYTES && self.head.len() == self.length().min(HEAD_BYTES) {
                on_place(Place::Head(&self.head));
                self.skip = self.length() - self.head.len();
                self.head.clear();
                if self.skip == 0 {
                    on_place(Place::End);
                }
            }
        }
    }

    /// Whether a PDU has begun and not ended.
    fn is_within(&self) -> bool {
        self.skip > 0
    }

    /// PLEN, which is at least the length of the common header.
    fn length(&self) -> usize {
        (le32(&self.head, 4) as usize).max(COMMON_BYTES)
    }
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The effect of a command, as far as the checker needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    Flush,
    Read,
    /// The command changes data.
    Change,
}

/// A command that the host has sent, or whose end it has received.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) kind: CommandKind,
    pub(crate) nsid: u32,
    /// Not known for commands that name their blocks in their data.
    pub(crate) blocks: Option<Range<u64>>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    Success,
    /// With an error that another controller does not have.
    OfPath,
    /// With an error that may pass.
    Passing,
    /// With an error of the request itself, which must not be retried.
    Final,
}

/// Types and codes of errors that another controller does not have, apart from those of type 3.
const OF_PATH: [u16; 10] = [0x08, 0x0b, 0x18, 0x19, 0x26, 0x27, 0x11a, 0x12a, 0x188, 0x191];
/// Types and codes of errors that are final without the bit too: opcode, field, reservation.
const FINAL: [u16; 3] = [0x01, 0x02, 0x83];
/// Namespace Not Ready, with the bit Do Not Retry.
const NOT_READY_FOR_LONG: u16 = 0x4082;

impl CommandEnd {
    /// The status field of a completion, without its phase tag (NVMe base specification 2.1, section 4.2.3).
    fn of(status: u16) -> Self {
        let (code_type, do_not_retry) = (status >> 8 & 7, status >> 14 & 1 == 1);
        match status & 0x7ff {
            0 => Self::Success,
            code if code_type == 3 || OF_PATH.contains(&code) || status & 0x47ff == NOT_READY_FOR_LONG => Self::OfPath,
            code if do_not_retry || FINAL.contains(&code) => Self::Final,
            _ => Self::Passing,
        }
    }
}

/// The direction of a command's data: the low two bits of its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataDirection {
    None,
    Out,
    In,
}

/// A command that has not ended.
#[derive(Debug)]
struct OpenCommand {
    command: Command,
    since: Instant,
    direction: DataDirection,
    /// Bytes of data to move.
    length: u32,
    /// Bytes of data that are in the capsule, that R2Ts requested, or that have arrived.
    moved: u32,
    /// Bytes of data that were sent.
    sent: u32,
}

impl OpenCommand {
    fn new(since: Instant, head: &[u8]) -> Self {
        let kind = match head[8] {
            0x00 => CommandKind::Flush,
            READ => CommandKind::Read,
            _ => CommandKind::Change,
        };
        let direction = match head[8] & 3 {
            1 => DataDirection::Out,
            2 => DataDirection::In,
            _ => DataDirection::None,
        };
        // The data pointer is one SGL descriptor at byte 24 of the submission queue entry.
        let length = if direction == DataDirection::None { 0 } else { le32(head, 8 + 24 + 8) };
        let in_capsule = direction == DataDirection::Out && head[8 + 24 + 15] >> 4 == SGL_IN_CAPSULE;
        let moved = if in_capsule { length } else { 0 };
        let first = u64::from(le32(head, 8 + 40)) | u64::from(le32(head, 8 + 44)) << 32;
        let after = first.saturating_add(u64::from(le16(head, 8 + 48)) + 1);
        let has_blocks = [WRITE, READ, WRITE_ZEROES].contains(&head[8]);
        let command = Command { kind, nsid: le32(head, 12), blocks: has_blocks.then_some(first..after) };
        Self { command, since, direction, length, moved, sent: moved }
    }

    /// Notes that the controller sends or requests data of the command. Returns whether that is legal.
    fn move_data(&mut self, direction: DataDirection, offset: u32, length: u32) -> bool {
        let is_legal = self.direction == direction && offset == self.moved && length <= self.length - self.moved;
        self.moved = if is_legal { self.moved + length } else { self.moved };
        is_legal
    }
}

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    sent: PduStream,
    received: PduStream,
    /// By command identifier.
    open: BTreeMap<u16, OpenCommand>,
    /// The command of the PDU that was last begun, and whether the PDU is a capsule.
    begun: Option<(u16, bool)>,
    /// The command that the PDU being received ends, and its status.
    ending: Option<(u16, u16)>,
    /// Errors of data digests that the controller noticed.
    pub(crate) digest_errors: u64,
    /// The controller has broken the protocol. The host ignores further PDUs, and sends only the rest of PDUs that it has begun.
    is_broken: bool,
}

impl Wire {
    /// Reads bytes that the host sends. Returns the commands that begin in them, or `None` if the host had to end the association
    /// instead.
    pub(crate) fn host_sends(&mut self, now: Instant, bytes: &[u8]) -> Option<Vec<Command>> {
        let (mut commands, mut is_illegal) = (Vec::new(), false);
        let Self { sent, open, begun, is_broken, .. } = self;
        sent.read(bytes, |place| {
            let Place::Head(head) = place else { return };
            match head[0] {
                CAPSULE_CMD => {
                    let (cid, new) = (le16(head, 10), OpenCommand::new(now, head));
                    commands.push(new.command.clone());
                    open.insert(cid, new);
                    (*begun, is_illegal) = (Some((cid, true)), *is_broken);
                }
                H2C_DATA => {
                    let cid = le16(head, 8);
                    if let Some(command) = open.get_mut(&cid) {
                        command.sent += le32(head, 16);
                    }
                    (*begun, is_illegal) = (Some((cid, false)), *is_broken);
                }
                _ => *begun = None,
            }
        });
        (!is_illegal).then_some(commands)
    }

    /// Commands that have not ended.
    pub(crate) fn open_commands(&self) -> usize {
        self.open.len()
    }

    /// Whether commands of a namespace have not ended.
    pub(crate) fn has_commands_of(&self, nsid: u32) -> bool {
        self.open.values().any(|open| open.command.nsid == nsid)
    }

    /// When the oldest command that has not ended began. Flushes are left out: those at the daemon's end have a limit of their
    /// own.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let open = self.open.values().filter(|open| open.command.kind != CommandKind::Flush);
        open.map(|open| open.since).min()
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The host has received a record that was changed on its way.
    pub(crate) fn record_changed(&mut self) {
        self.is_broken = true;
    }

    /// Reads bytes that the host receives. Returns the commands that end in them, each with its end and when it was sent.
    pub(crate) fn host_receives(&mut self, bytes: &[u8]) -> Vec<(Command, CommandEnd, Instant)> {
        let mut ends = Vec::new();
        let Self { received, open, is_broken, ending, digest_errors, .. } = self;
        let half_sent = self.begun.filter(|_| self.sent.is_within());
        received.read(bytes, |place| {
            if *is_broken {
                return;
            }
            let Place::Head(head) = place else {
                let Some((cid, status)) = ending.take() else { return };
                let is_whole = half_sent.is_none_or(|(half, is_capsule)| half != cid || !is_capsule && status != 0);
                let may_end = |open: &OpenCommand| {
                    let is_sent = open.direction != DataDirection::Out || open.sent == open.length;
                    status != 0 || open.moved == open.length && is_sent
                };
                match open.remove(&cid) {
                    Some(open) if is_whole && may_end(&open) => {
                        ends.push((open.command, CommandEnd::of(status), open.since));
                    }
                    _ => *is_broken = true,
                }
                return;
            };
            let is_legal = match head[0] {
                R2T => {
                    let (command, length) = (open.get_mut(&le16(head, 8)), le32(head, 16));
                    command.is_some_and(|open| length > 0 && open.move_data(DataDirection::Out, le32(head, 12), length))
                }
                C2H_DATA => {
                    let (cid, is_end) = (le16(head, 8), head[1] & C2H_SUCCESS != 0);
                    *ending = is_end.then_some((cid, 0));
                    open.get_mut(&cid).is_some_and(|open| {
                        let is_legal = open.move_data(DataDirection::In, le32(head, 12), le32(head, 16));
                        is_legal && (!is_end || open.moved == open.length)
                    })
                }
                CAPSULE_RESP => {
                    let status = le16(head, 22) >> 1;
                    *digest_errors += u64::from(status & 0x7ff == TRANSPORT_ERROR);
                    *ending = Some((le16(head, 20), status));
                    true
                }
                _ => true,
            };
            *is_broken = !is_legal;
        });
        ends
    }
}
