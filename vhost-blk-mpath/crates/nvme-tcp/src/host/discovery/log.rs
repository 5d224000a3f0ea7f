//! Reading the Discovery log page: its header, its records in parts, and its header again. The reading is repeated until both
//! headers are equal (Base 5.16.1.23).

use super::LOG_RECORDS_MAX;
use crate::wire::{DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryEntryError, DiscoveryHeader, DiscoveryHeaderError};

/// Bytes of a record, and of the header.
const RECORD_BYTES: u32 = DISCOVERY_ENTRY_BYTES as u32;

/// The most bytes that one command reads. Any controller can transfer this, and it needs little memory.
const PART_BYTES_MAX: u32 = 64 * 1024;

/// The most attempts to read a log that changes meanwhile.
const READS_MAX: u32 = 10;

/// A Discovery log page of a single generation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryLog {
    /// GENCTR.
    pub generation: u64,
    /// The valid records, in order.
    pub entries: Vec<DiscoveryEntry>,
    /// The malformed records, by position from 0.
    pub unreadable: Vec<(u32, DiscoveryEntryError)>,
}

impl DiscoveryLog {
    /// NUMREC: the number of records, including malformed ones.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len() + self.unreadable.len()
    }
}

/// Why a log cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryLogError {
    /// The header is malformed.
    #[error(transparent)]
    Header(#[from] DiscoveryHeaderError),
    /// The log has more records than this host accepts.
    #[error("the discovery log has {0} records; at most {LOG_RECORDS_MAX} are accepted")]
    TooManyRecords(u64),
    /// The controller supports no log page offset (LPA bit 2), and the log is longer than a transfer.
    #[error(
        "the discovery log of {records} records is longer than a transfer, and the controller supports no log page offset"
    )]
    LongerThanTransfer {
        /// NUMREC.
        records: u64,
    },
    /// The log changed during each attempt.
    #[error("the discovery log changed during each of {READS_MAX} attempts to read it")]
    Unstable,
}

/// A part of the log to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// RAE: the event that announced the change stays outstanding, because this part is not the last.
    pub(super) retain_event: bool,
}

/// The next part to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    /// The records after this many.
    Records(u32),
    /// Header and records in one command, for a controller without offsets.
    Whole,
    HeaderAgain,
}

/// One reading of a log.
#[derive(Debug)]
pub(super) struct LogReader {
    stage: Stage,
    /// MDTS in bytes.
    max_transfer_bytes: u32,
    /// LPA: Get Log Page supports an offset.
    has_offsets: bool,
    header: DiscoveryHeader,
    log: DiscoveryLog,
    /// Attempts so far.
    reads: u32,
}

impl LogReader {
    /// A reader at the start of the log. `max_transfer_bytes` is at least 4096.
    pub(super) fn new(max_transfer_bytes: u32, has_offsets: bool) -> Self {
        Self {
            stage: Stage::Header,
            max_transfer_bytes,
            has_offsets,
            header: DiscoveryHeader::default(),
            log: DiscoveryLog::default(),
            reads: 1,
        }
    }

    /// The next part to read.
    pub(super) fn next(&self) -> Part {
        let header = Part { offset: 0, bytes: RECORD_BYTES, retain_event: true };
        match self.stage {
            Stage::Header => header,
            Stage::Records(done) => Part {
                offset: u64::from(RECORD_BYTES) * u64::from(1 + done),
                bytes: self.part_records(done) * RECORD_BYTES,
                retain_event: true,
            },
            Stage::Whole => Part { bytes: (1 + self.records()) * RECORD_BYTES, retain_event: false, ..header },
            Stage::HeaderAgain => Part { retain_event: false, ..header },
        }
    }

    /// Takes the data of the part from [`next`](Self::next). Returns the log once it is complete.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<DiscoveryLog>, DiscoveryLogError> {
        match self.stage {
            Stage::Header => {
                self.begin(DiscoveryHeader::parse(data)?)?;
                Ok(None)
            }
            Stage::Records(done) => {
                let count = self.part_records(done);
                self.take_records(data);
                let done = done + count;
                self.stage = if done < self.records() { Stage::Records(done) } else { Stage::HeaderAgain };
                Ok(None)
            }
            Stage::Whole => {
                let header = DiscoveryHeader::parse(data)?;
                self.take_records(data.get(DISCOVERY_ENTRY_BYTES..).unwrap_or_default());
                self.compare(header)
            }
            Stage::HeaderAgain => self.compare(DiscoveryHeader::parse(data)?),
        }
    }

    fn begin(&mut self, header: DiscoveryHeader) -> Result<(), DiscoveryLogError> {
        if header.records > u64::from(LOG_RECORDS_MAX) {
            return Err(DiscoveryLogError::TooManyRecords(header.records));
        }
        self.header = header;
        self.log = DiscoveryLog { generation: header.generation, ..DiscoveryLog::default() };
        self.stage = if self.has_offsets {
            if header.records == 0 { Stage::HeaderAgain } else { Stage::Records(0) }
        } else if (1 + self.records()) * RECORD_BYTES <= self.max_transfer_bytes {
            Stage::Whole
        } else {
            return Err(DiscoveryLogError::LongerThanTransfer { records: header.records });
        };
        Ok(())
    }

    /// Compares the header after all records were read. Returns the log if it has not changed, and otherwise starts again.
    fn compare(&mut self, header: DiscoveryHeader) -> Result<Option<DiscoveryLog>, DiscoveryLogError> {
        if header == self.header {
            return Ok(Some(std::mem::take(&mut self.log)));
        }
        if self.reads == READS_MAX {
            return Err(DiscoveryLogError::Unstable);
        }
        self.reads += 1;
        self.begin(header)?;
        Ok(None)
    }

    /// NUMREC, which was checked to be at most [`LOG_RECORDS_MAX`].
    fn records(&self) -> u32 {
        self.header.records as u32
    }

    /// The number of records in the next part.
    fn part_records(&self, done: u32) -> u32 {
        let most = self.max_transfer_bytes.min(PART_BYTES_MAX) / RECORD_BYTES;
        (self.records() - done).min(most)
    }

    fn take_records(&mut self, data: &[u8]) {
        let (records, _) = data.as_chunks::<DISCOVERY_ENTRY_BYTES>();
        for record in records {
            match DiscoveryEntry::parse(record) {
                Ok(entry) => self.log.entries.push(entry),
                Err(error) => self.log.unreadable.push((self.log.records() as u32, error)),
            }
        }
    }
}
