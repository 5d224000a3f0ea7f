//! Decides: an ANA log is read in parts, without lists of namespaces, or again.
//!
//! Reading the ANA log: in one command if it fits, and otherwise in parts, and its header again. The reading is repeated until
//! both headers are equal. A log with long lists of namespaces is read without them.

use super::{ControllerError, Step, Unsupported};
use crate::host::AdminError;
use crate::wire::{ANA_LOG_PART_MIN, AnaLog, AnaLogParser, IdentifyController, Status};

/// The most bytes of a part. Keep-alives wait for few bytes then, and the log is often shorter than announced.
const PART_BYTES_MAX: u32 = 32 * 1024;

/// The longest log that is read with its lists of namespaces. The host wants a few of them, and can ask for the group of each.
/// Without offsets, one command reads as much.
const LISTED_BYTES_MAX: u32 = 256 * 1024;

/// The longest log that is read. It has room for the most groups, and for some lists of a controller that always sends them.
const BYTES_MAX: u64 = 4 << 20;

/// The most attempts to read a log that changes meanwhile.
const READS_MAX: u32 = 10;

/// LSP of the ANA log: Return Groups Only.
const LSP_GROUPS_ONLY: u8 = 1;

/// Bytes of the header.
const HEADER_BYTES: u32 = AnaLog::len_for(0, 0) as u32;

/// A part of the log to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) lsp: u8,
    /// RAE. The first part clears the event that announced a change, so that a later change has an event of its own. Some
    /// controllers count no changes, and report none while an event is outstanding.
    pub(super) retain_event: bool,
}

/// One reading of a log.
#[derive(Debug)]
pub(super) struct AnaLogReader {
    parser: AnaLogParser,
    /// The log as far as it was parsed before the reading was begun again. Its persistent losses count: the next reading may not show
    /// them.
    pub(super) discarded: Option<AnaLog>,
    groups_only: bool,
    /// Where the next part starts.
    offset: u64,
    /// All is read but the header, which is read again.
    reads_header: bool,
    /// The most bytes of a part.
    part_max: u32,
    /// LPA: Get Log Page supports an offset.
    has_offsets: bool,
    /// The longest log that the controller announces, without and with lists.
    announced: [u64; 2],
    /// Attempts so far.
    reads: u32,
}

impl AnaLogReader {
    /// A reader at the start of the log. `mdts`: the most bytes of a transfer, at least 4096.
    pub(super) fn new(identify: &IdentifyController, mdts: Option<u32>) -> Self {
        let has_offsets = identify.lpa & IdentifyController::LPA_EXTENDED != 0;
        let part_max = mdts.unwrap_or(u32::MAX).min(if has_offsets { PART_BYTES_MAX } else { LISTED_BYTES_MAX });
        let announced = [false, true].map(|listed| announced_bytes(identify, listed));
        let listed_max = if has_offsets { LISTED_BYTES_MAX } else { part_max };
        Self {
            parser: AnaLogParser::default(),
            discarded: None,
            groups_only: announced[1] > listed_max.into(),
            offset: 0,
            reads_header: false,
            part_max,
            has_offsets,
            announced,
            reads: 1,
        }
    }

    /// The next part to read.
    pub(super) fn next(&self) -> Part {
        let lsp = if self.groups_only { LSP_GROUPS_ONLY } else { 0 };
        if self.reads_header {
            return Part { offset: 0, bytes: HEADER_BYTES, lsp, retain_event: true };
        }
        // A log may be longer than announced.
        let left = self.announced().checked_sub(self.offset).filter(|left| *left > 0).unwrap_or(self.part_max.into());
        let bytes = u32::try_from(left).unwrap_or(u32::MAX).clamp(ANA_LOG_PART_MIN, self.part_max);
        Part { offset: self.offset, bytes, lsp, retain_event: self.offset > 0 }
    }

    fn announced(&self) -> u64 {
        self.announced[usize::from(!self.groups_only)]
    }

    /// Takes the status of a part that was refused. The offset of a later part may lie behind the end of a log that has shrunk.
    pub(super) fn refused(&mut self, status: Status) -> Result<(), ControllerError> {
        self.begin_again(AdminError::Command { step: Step::AnaLog, status }.into()).map(drop)
    }

    /// Takes the data of the part from [`next`](Self::next). Returns the log once it is complete. `is_wanted`: the namespaces of
    /// the host.
    pub(super) fn take(
        &mut self,
        data: &[u8],
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<Option<AnaLog>, ControllerError> {
        if self.reads_header {
            return self.compare(data);
        }
        let is_first = self.offset == 0;
        match self.parser.take(data, is_wanted) {
            Ok(parsed) => self.offset += parsed as u64,
            Err(error) => return self.begin_again(error.into()),
        }
        if self.parser.is_complete() {
            if is_first {
                // One command has read it, so no change can lie between parts.
                return Ok(Some(std::mem::take(&mut self.parser).finish()?));
            }
            self.reads_header = true;
        } else if !self.groups_only && (!self.has_offsets || self.offset > LISTED_BYTES_MAX.into()) {
            // The lists are longer than announced.
            self.groups_only = true;
            self.begin();
        } else if !self.has_offsets {
            return Err(Unsupported::AnaLog(self.part_max.into()).into());
        } else if self.offset > BYTES_MAX {
            return Err(Unsupported::AnaLog(BYTES_MAX).into());
        }
        Ok(None)
    }

    fn begin(&mut self) {
        (self.offset, self.reads_header) = (0, false);
        self.discarded = Some(std::mem::take(&mut self.parser).into_parsed());
    }

    /// Starts again after the fault of a later part, because the log may have changed since its first one. Some controllers count
    /// no changes, so the header cannot tell. The fault of a first part is an error.
    fn begin_again(&mut self, error: ControllerError) -> Result<Option<AnaLog>, ControllerError> {
        if self.offset == 0 || self.reads == READS_MAX {
            return Err(error);
        }
        self.reads += 1;
        self.begin();
        Ok(None)
    }

    /// Compares the header after all parts were read. Returns the log if it has not changed, and otherwise starts again. A log that
    /// never stands still is used in the end. Each change since its first part has an event, and the event has the log read again.
    fn compare(&mut self, header: &[u8]) -> Result<Option<AnaLog>, ControllerError> {
        if !self.parser.is_unchanged(header) && self.reads < READS_MAX {
            self.reads += 1;
            self.begin();
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.parser).finish()?))
    }
}

/// The largest size of the log in bytes, with or without lists of namespaces.
fn announced_bytes(identify: &IdentifyController, listed: bool) -> u64 {
    let namespaces = match (listed, identify.mnan.get()) {
        (false, _) => 0,
        (true, 0) => identify.nn.get(),
        (true, mnan) => mnan,
    };
    AnaLog::len_for(0, 0) as u64 + u64::from(identify.nanagrpid.get()) * 32 + u64::from(namespaces) * 4
}
