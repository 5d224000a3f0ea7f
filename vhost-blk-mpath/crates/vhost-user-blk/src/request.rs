//! Decides: a guest sees this virtio status of a malformed request.
//! Decides: a request is malformed.
//!
//! Block requests (virtio 1.2, 5.2.6): parses the bytes of a chain into a request that the disk can execute.

use std::sync::Arc;

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES,
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
    VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};

use crate::buffer::Segments;
use crate::disk::{SECTOR_BYTES, VirtioDisk};

const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the segments from the disk.
    Read,
    /// Store the segments on the disk.
    Write {
        /// The data must be on stable storage before the request completes.
        fua: bool,
    },
    /// Bring all writes completed so far to stable storage.
    Flush,
    /// Release the range. The guest no longer needs its contents.
    Discard,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// The range may be deallocated.
        unmap: bool,
        /// The zeroes must be on stable storage before the request completes.
        fua: bool,
    },
}

/// The status byte of a request (virtio 1.2, 5.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlkStatus {
    /// Done.
    Ok = VIRTIO_BLK_S_OK as u8,
    /// Failed.
    IoErr = VIRTIO_BLK_S_IOERR as u8,
    /// The disk does not support the operation.
    Unsupp = VIRTIO_BLK_S_UNSUPP as u8,
}

/// The outcome of a request that needs no I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: BlkStatus,
    /// Bytes written from the start of the writable part, the status byte not counted.
    pub(crate) filled: u32,
}

impl Answer {
    pub(crate) fn status(status: BlkStatus) -> Self {
        Self { status, filled: 0 }
    }
}

#[derive(Debug)]
pub(crate) enum ParsedChain {
    Request { op: Op, sector: u64, bytes: u32, segments: Segments },
    Answer(Answer),
}

/// Turns chains into requests of one disk under one set of negotiated features.
#[derive(Debug)]
pub(crate) struct Parser {
    disk: Arc<VirtioDisk>,
    features: u64,
}

impl Parser {
    pub(crate) fn new(disk: Arc<VirtioDisk>, features: u64) -> Self {
        Self { disk, features }
    }

    fn has(&self, feature: u32) -> bool {
        self.features & (1 << feature) != 0
    }

    /// Parses one chain. `writable` includes the status byte at its end, so it has at least one byte.
    pub(crate) fn parse(&self, readable: &Segments, writable: &Segments) -> ParsedChain {
        self.parse_or_status(readable, writable).unwrap_or_else(|status| ParsedChain::Answer(Answer::status(status)))
    }

    fn parse_or_status(&self, readable: &Segments, writable: &Segments) -> Result<ParsedChain, BlkStatus> {
        let payload_bytes = readable.bytes().checked_sub(HEADER_BYTES as u64).ok_or(BlkStatus::IoErr)?;
        // The header is read once, because the guest can change it at any time.
        let mut header = [0; HEADER_BYTES];
        readable.copy_to(0, &mut header);
        // le32 type, le32 reserved, le64 sector.
        let header = u128::from_le_bytes(header);
        let (kind, sector) = (header as u32, (header >> 64) as u64);
        match kind {
            VIRTIO_BLK_T_IN => {
                let bytes = self.check_data(sector, writable.bytes() - 1)?;
                Ok(Self::transfer(Op::Read, sector, writable.part(0, u64::from(bytes))))
            }
            VIRTIO_BLK_T_OUT => {
                self.check_writable()?;
                let bytes = self.check_data(sector, payload_bytes)?;
                let data = readable.part(HEADER_BYTES as u64, u64::from(bytes));
                Ok(Self::transfer(Op::Write { fua: self.write_through() }, sector, data))
            }
            VIRTIO_BLK_T_FLUSH => {
                Ok(ParsedChain::Request { op: Op::Flush, sector: 0, bytes: 0, segments: writable.none() })
            }
            VIRTIO_BLK_T_GET_ID => {
                let space = writable.bytes() - 1;
                let id = &self.disk.geometry().serial[..space.min(u64::from(VIRTIO_BLK_ID_BYTES)) as usize];
                writable.copy_from(0, id);
                Ok(ParsedChain::Answer(Answer { status: BlkStatus::Ok, filled: id.len() as u32 }))
            }
            VIRTIO_BLK_T_DISCARD if self.has(VIRTIO_BLK_F_DISCARD) => self.range(readable, payload_bytes, true),
            VIRTIO_BLK_T_WRITE_ZEROES if self.has(VIRTIO_BLK_F_WRITE_ZEROES) => {
                self.range(readable, payload_bytes, false)
            }
            _ => Err(BlkStatus::Unsupp),
        }
    }

    /// A read or write. Without data it completes at once.
    fn transfer(op: Op, sector: u64, segments: Segments) -> ParsedChain {
        // In range: the length was checked against the disk's maximum, a `u32`.
        let bytes = segments.bytes() as u32;
        if bytes == 0 {
            return ParsedChain::Answer(Answer::status(BlkStatus::Ok));
        }
        ParsedChain::Request { op, sector, bytes, segments }
    }

    /// Discard and write zeroes: one range, given in the data (5.2.6.2).
    fn range(&self, readable: &Segments, payload_bytes: u64, is_discard: bool) -> Result<ParsedChain, BlkStatus> {
        self.check_writable()?;
        if payload_bytes == 0 || !payload_bytes.is_multiple_of(RANGE_BYTES as u64) {
            return Err(BlkStatus::IoErr);
        }
        if payload_bytes > RANGE_BYTES as u64 {
            // The device advertises one range per request.
            return Err(BlkStatus::Unsupp);
        }
        let mut range = [0; RANGE_BYTES];
        readable.copy_to(HEADER_BYTES as u32, &mut range);
        // le64 sector, le32 sectors, le32 flags.
        let range = u128::from_le_bytes(range);
        let (sector, sectors, flags) = (range as u64, (range >> 64) as u32, (range >> 96) as u32);
        let unmap = flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0;
        if flags & !VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP != 0 || (is_discard && unmap) {
            return Err(BlkStatus::Unsupp);
        }
        let geometry = self.disk.geometry();
        let (max_sectors, op) = if is_discard {
            (geometry.max_discard_sectors, Op::Discard)
        } else {
            (geometry.max_write_zeroes_sectors, Op::WriteZeroes { unmap, fua: self.write_through() })
        };
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        if sectors > max_sectors || !self.disk.contains(sector, bytes) {
            return Err(BlkStatus::IoErr);
        }
        if sectors == 0 {
            return Ok(ParsedChain::Answer(Answer::status(BlkStatus::Ok)));
        }
        // In range: the disk's maxima are below 4 GiB.
        Ok(ParsedChain::Request { op, sector, bytes: bytes as u32, segments: readable.none() })
    }

    fn check_writable(&self) -> Result<(), BlkStatus> {
        if self.disk.geometry().read_only { Err(BlkStatus::IoErr) } else { Ok(()) }
    }

    fn check_data(&self, sector: u64, bytes: u64) -> Result<u32, BlkStatus> {
        let max = self.disk.geometry().transfer_bytes_max();
        let bytes_in_range = u32::try_from(bytes).ok().filter(|&bytes| bytes <= max);
        bytes_in_range.filter(|_| self.disk.contains(sector, bytes)).ok_or(BlkStatus::IoErr)
    }

    /// Whether writes must be stable when they complete (5.2.6.2). Without `FLUSH` the driver has no other way to make
    /// them stable. With `CONFIG_WCE` the driver chooses.
    fn write_through(&self) -> bool {
        !self.has(VIRTIO_BLK_F_FLUSH) || (self.has(VIRTIO_BLK_F_CONFIG_WCE) && !self.disk.writeback())
    }
}
