//! Reading the Discovery log page: its header, its records piece by piece, and its header again, until both headers say the
//! same (Base 5.16.1.23).

use super::LOG_RECORDS_MAX;
use crate::wire::{DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryEntryError, DiscoveryHeader, DiscoveryHeaderError};

/// Bytes of a record, and of the header, as commands count them.
const RECORD_BYTES: u32 = DISCOVERY_ENTRY_BYTES as u32;

/// How much is read at once: what any controller transfers, and little enough to have around.
const PIECE_BYTES_MAX: u32 = 64 * 1024;

/// How often a log that moves while it is read is read again.
const READS_MAX: u32 = 10;

/// A Discovery log page, all of one generation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoveryLog {
    /// GENCTR.
    pub generation: u64,
    /// The records that could be read, in their order.
    pub entries: Vec<DiscoveryEntry>,
    /// Those that could not, by position from 0.
    pub unreadable: Vec<(u32, DiscoveryEntryError)>,
}

impl DiscoveryLog {
    /// NUMREC: records, those that could not be read included.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len() + self.unreadable.len()
    }
}

/// Why there is no reading a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryLogError {
    /// Its header.
    #[error(transparent)]
    Header(#[from] DiscoveryHeaderError),
    /// More records than this host takes.
    #[error("the discovery log has {0} records; {LOG_RECORDS_MAX} are the most taken")]
    Records(u64),
    /// It has to be read at once, for want of offsets (LPA bit 2), and is longer than a transfer.
    #[error(
        "the discovery log of {records} records is longer than a transfer, and the controller takes no log page offset"
    )]
    Whole {
        /// NUMREC.
        records: u64,
    },
    /// It was another one each time.
    #[error("the discovery log changed during each of {READS_MAX} attempts to read it")]
    Unstable,
}

/// A part of the log to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// RAE: the event that announced the log stays outstanding, as this part is not the last.
    pub(super) retain_event: bool,
}

/// Where the reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    /// So many records have been read.
    Records(u32),
    /// Header and records in one, for a controller without offsets.
    Whole,
    HeaderAgain,
}

/// One reading of a log.
#[derive(Debug)]
pub(super) struct LogReader {
    stage: Stage,
    /// MDTS in bytes.
    max_transfer_bytes: u32,
    /// LPA: Get Log Page takes an offset.
    offsets: bool,
    header: DiscoveryHeader,
    log: DiscoveryLog,
    /// Readings begun.
    reads: u32,
}

impl LogReader {
    /// A reading that is to begin. `max_transfer_bytes` is 4096 at least.
    pub(super) fn new(max_transfer_bytes: u32, offsets: bool) -> Self {
        Self {
            stage: Stage::Header,
            max_transfer_bytes,
            offsets,
            header: DiscoveryHeader::default(),
            log: DiscoveryLog::default(),
            reads: 1,
        }
    }

    /// What to read next.
    pub(super) fn next(&self) -> Part {
        let header = Part { offset: 0, bytes: RECORD_BYTES, retain_event: true };
        match self.stage {
            Stage::Header => header,
            Stage::Records(done) => Part {
                offset: u64::from(RECORD_BYTES) * u64::from(1 + done),
                bytes: self.piece(done) * RECORD_BYTES,
                retain_event: true,
            },
            Stage::Whole => Part { bytes: (1 + self.records()) * RECORD_BYTES, retain_event: false, ..header },
            Stage::HeaderAgain => Part { retain_event: false, ..header },
        }
    }

    /// Takes the part that was asked for. The log, once it is complete.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<DiscoveryLog>, DiscoveryLogError> {
        match self.stage {
            Stage::Header => {
                self.begin(DiscoveryHeader::parse(data)?)?;
                Ok(None)
            }
            Stage::Records(done) => {
                let piece = self.piece(done);
                self.take_records(data);
                let done = done + piece;
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
            return Err(DiscoveryLogError::Records(header.records));
        }
        self.header = header;
        self.log = DiscoveryLog { generation: header.generation, ..DiscoveryLog::default() };
        self.stage = if self.offsets {
            if header.records == 0 { Stage::HeaderAgain } else { Stage::Records(0) }
        } else if (1 + self.records()) * RECORD_BYTES <= self.max_transfer_bytes {
            Stage::Whole
        } else {
            return Err(DiscoveryLogError::Whole { records: header.records });
        };
        Ok(())
    }

    /// All records have been read: the log if it is still the one they were read of.
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

    /// NUMREC, which was checked.
    fn records(&self) -> u32 {
        self.header.records as u32
    }

    /// How many records the next part has.
    fn piece(&self, done: u32) -> u32 {
        let most = self.max_transfer_bytes.min(PIECE_BYTES_MAX) / RECORD_BYTES;
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
