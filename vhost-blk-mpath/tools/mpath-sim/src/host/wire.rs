//! The PDUs on a connection of a queue pair, read from its bytes (NVMe/TCP transport specification 1.1). The judge knows the host
//! by these alone.

use std::collections::BTreeMap;
use std::ops::Range;

/// PDU types and flags.
const CAPSULE_CMD: u8 = 0x04;
const CAPSULE_RESP: u8 = 0x05;
const H2C_DATA: u8 = 0x06;
const C2H_DATA: u8 = 0x07;
const R2T: u8 = 0x09;
const C2H_SUCCESS: u8 = 1 << 3;
/// The common header: type, flags, HLEN, PDO, PLEN.
const COMMON_BYTES: usize = 8;
/// Opcodes of commands that name their blocks.
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
/// The SGL descriptor type of data in the capsule, in the upper half of its byte.
const SGL_IN_CAPSULE: u8 = 0;
/// As much of a PDU as is looked at: common header and submission queue entry.
const HEAD_BYTES: usize = 72;

/// PDUs of one direction.
#[derive(Debug, Default)]
struct Stream {
    head: Vec<u8>,
    /// Bytes of the PDU that are not looked at.
    skip: usize,
}

impl Stream {
    /// The heads of the PDUs that begin in these bytes, as far as they are there.
    fn read(&mut self, mut bytes: &[u8], mut on_head: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
            let wanted = if self.head.len() < COMMON_BYTES { COMMON_BYTES } else { self.length().min(HEAD_BYTES) };
            let taken = (wanted - self.head.len()).min(bytes.len());
            self.head.extend(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.head.len() >= COMMON_BYTES && self.head.len() == self.length().min(HEAD_BYTES) {
                on_head(&self.head);
                self.skip = self.length() - self.head.len();
                self.head.clear();
            }
        }
    }

    /// Whether a PDU has begun that has not ended.
    fn is_within(&self) -> bool {
        self.skip > 0
    }

    /// PLEN, if it can be one.
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

/// The effect of a command, as far as the judge needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Flush,
    Read,
    /// It changes data.
    Change,
}

/// A command that the host has sent, or whose end it has heard of.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) what: What,
    pub(super) nsid: u32,
    /// Not known of those that have them in their data.
    pub(super) blocks: Option<Range<u64>>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Success,
    /// With an error that may pass, or be another controller's alone.
    Passing,
    /// With an error that is the request's: it is not to be retried, or the medium failed.
    Final,
}

impl End {
    /// The status field of a completion, without its phase tag (NVMe base specification 2.1, section 4.2.3).
    fn of(status: u16) -> Self {
        let (code_type, do_not_retry) = (status >> 8 & 7, status >> 14 & 1 == 1);
        match status {
            0 => Self::Success,
            _ if do_not_retry || code_type == 2 => Self::Final,
            _ => Self::Passing,
        }
    }
}

/// Which way a command's data go: the low two bits of its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    None,
    Out,
    In,
}

/// A command that has not ended.
#[derive(Debug)]
struct Open {
    command: Command,
    way: Way,
    /// Bytes of data that it is to move.
    length: u32,
    /// Bytes of them that are in the capsule, that R2Ts asked for, or that have come.
    moved: u32,
    /// Bytes of them that were sent.
    sent: u32,
}

impl Open {
    fn new(head: &[u8]) -> Self {
        let what = match head[8] {
            0x00 => What::Flush,
            READ => What::Read,
            _ => What::Change,
        };
        let way = match head[8] & 3 {
            1 => Way::Out,
            2 => Way::In,
            _ => Way::None,
        };
        // The data pointer is one SGL descriptor at byte 24 of the submission queue entry.
        let length = if way == Way::None { 0 } else { le32(head, 8 + 24 + 8) };
        let in_capsule = way == Way::Out && head[8 + 24 + 15] >> 4 == SGL_IN_CAPSULE;
        let moved = if in_capsule { length } else { 0 };
        let first = u64::from(le32(head, 8 + 40)) | u64::from(le32(head, 8 + 44)) << 32;
        let after = first.saturating_add(u64::from(le16(head, 8 + 48)) + 1);
        let has_blocks = [WRITE, READ, WRITE_ZEROES].contains(&head[8]);
        let command = Command { what, nsid: le32(head, 12), blocks: has_blocks.then_some(first..after) };
        Self { command, way, length, moved, sent: moved }
    }

    /// Data come for it, or are asked for: whether the controller may do that.
    fn moves(&mut self, way: Way, offset: u32, length: u32) -> bool {
        let is_legal = self.way == way && offset == self.moved && length <= self.length - self.moved;
        self.moved = if is_legal { self.moved + length } else { self.moved };
        is_legal
    }
}

#[derive(Debug, Default)]
pub(super) struct Wire {
    sent: Stream,
    received: Stream,
    /// By command identifier.
    open: BTreeMap<u16, Open>,
    /// The command of the PDU that was last begun, and whether the PDU is a capsule.
    begun: Option<(u16, bool)>,
    /// The controller has broken the protocol: the host stops listening, and sends only what it has begun.
    is_broken: bool,
}

impl Wire {
    /// The host sends these bytes: the commands that begin in them; nothing if it should have ended the association instead.
    pub(super) fn sends(&mut self, bytes: &[u8]) -> Option<Vec<Command>> {
        let (mut commands, mut goes_on) = (Vec::new(), false);
        let Self { sent, open, begun, is_broken, .. } = self;
        sent.read(bytes, |head| match head[0] {
            CAPSULE_CMD => {
                let (cid, new) = (le16(head, 10), Open::new(head));
                commands.push(new.command.clone());
                open.insert(cid, new);
                (*begun, goes_on) = (Some((cid, true)), *is_broken);
            }
            H2C_DATA => {
                let cid = le16(head, 8);
                if let Some(command) = open.get_mut(&cid) {
                    command.sent += le32(head, 16);
                }
                (*begun, goes_on) = (Some((cid, false)), *is_broken);
            }
            _ => *begun = None,
        });
        (!goes_on).then_some(commands)
    }

    /// Commands that have not ended.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The host hears these bytes: the commands that end in them, and how.
    pub(super) fn hears(&mut self, bytes: &[u8]) -> Vec<(Command, End)> {
        let mut ends = Vec::new();
        let Self { received, open, is_broken, .. } = self;
        let half_sent = self.begun.filter(|_| self.sent.is_within());
        received.read(bytes, |head| {
            if *is_broken {
                return;
            }
            let mut end = None;
            let is_legal = match head[0] {
                R2T => {
                    let (command, length) = (open.get_mut(&le16(head, 8)), le32(head, 16));
                    command.is_some_and(|open| length > 0 && open.moves(Way::Out, le32(head, 12), length))
                }
                C2H_DATA => {
                    let cid = le16(head, 8);
                    end = (head[1] & C2H_SUCCESS != 0).then_some((cid, 0));
                    open.get_mut(&cid).is_some_and(|open| open.moves(Way::In, le32(head, 12), le32(head, 16)))
                }
                CAPSULE_RESP => {
                    end = Some((le16(head, 20), le16(head, 22) >> 1));
                    true
                }
                _ => true,
            };
            *is_broken = !is_legal;
            let Some((cid, status)) = end.filter(|_| is_legal) else { return };
            let is_whole = half_sent.is_none_or(|(half, is_capsule)| half != cid || !is_capsule && status != 0);
            let may_succeed =
                |open: &Open| open.moved == open.length && (open.way != Way::Out || open.sent == open.length);
            *is_broken = !is_whole || open.get(&cid).is_none_or(|open| status == 0 && !may_succeed(open));
            if !*is_broken && let Some(open) = open.remove(&cid) {
                ends.push((open.command, End::of(status)));
            }
        });
        ends
    }
}
