//! What goes over a connection of a queue pair, read from its bytes (NVMe/TCP transport specification 1.1): what the judge knows of
//! the host.

use std::collections::BTreeMap;

/// PDU types and flags.
const CAPSULE_CMD: u8 = 0x04;
const CAPSULE_RESP: u8 = 0x05;
const C2H_DATA: u8 = 0x07;
const C2H_SUCCESS: u8 = 1 << 3;
/// The common header: type, flags, HLEN, PDO, PLEN.
const COMMON_BYTES: usize = 8;
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

/// What a command does, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Flush,
    Read,
    /// It changes data.
    Change,
}

/// A command that the host has sent, or whose end it has heard of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    pub(super) what: What,
    pub(super) nsid: u32,
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

#[derive(Debug, Default)]
pub(super) struct Wire {
    sent: Stream,
    received: Stream,
    /// By command identifier.
    open: BTreeMap<u16, Command>,
    /// The controller has ended a command that there is not: the host listens no more.
    is_broken: bool,
}

impl Wire {
    /// The host sends these bytes: the commands that begin in them.
    pub(super) fn sends(&mut self, bytes: &[u8]) -> Vec<Command> {
        let mut commands = Vec::new();
        self.sent.read(bytes, |head| {
            if head[0] != CAPSULE_CMD {
                return;
            }
            let what = match head[8] {
                0x00 => What::Flush,
                0x02 => What::Read,
                _ => What::Change,
            };
            let command = Command { what, nsid: le32(head, 12) };
            self.open.insert(le16(head, 10), command);
            commands.push(command);
        });
        commands
    }

    /// Commands that have not ended.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// The host hears these bytes: the commands that end in them, and how.
    pub(super) fn hears(&mut self, bytes: &[u8]) -> Vec<(Command, End)> {
        let mut ends = Vec::new();
        self.received.read(bytes, |head| {
            if self.is_broken {
                return;
            }
            let (cid, status) = match head[0] {
                CAPSULE_RESP => (le16(head, 20), le16(head, 22) >> 1),
                C2H_DATA if head[1] & C2H_SUCCESS != 0 => (le16(head, 8), 0),
                _ => return,
            };
            match self.open.remove(&cid) {
                Some(command) => ends.push((command, End::of(status))),
                None => self.is_broken = true,
            }
        });
        ends
    }
}
