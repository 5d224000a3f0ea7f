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

/// Bytes of the header of a request.
pub(crate) const HEADER_BYTES: u64 = 16;
const RANGE_BYTES: u64 = 16;

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

/// The meaning of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ParsedChain {
    /// A request. The data of a read are the first `bytes` writable bytes. The data of a write follow the header.
    Request { op: Op, sector: u64, bytes: u32 },
    /// The chain is answered without I/O.
    Answer(Answer),
}

/// The type and the sector of a header: le32 type, le32 reserved, le64 sector.
fn kind_and_sector([first, second]: [u64; 2]) -> (u32, u64) {
    (first as u32, second)
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
        let payload_bytes = readable.bytes().checked_sub(HEADER_BYTES).ok_or(BlkStatus::IoErr)?;
        // The header is read once, because the guest can change it at any time.
        let mut header = [0; HEADER_BYTES as usize];
        readable.copy_to(0, &mut header);
        let header = u128::from_le_bytes(header);
        let (kind, sector) = kind_and_sector([header as u64, (header >> 64) as u64]);
        match kind {
            VIRTIO_BLK_T_IN => self.transfer(Op::Read, sector, writable.bytes() - 1),
            VIRTIO_BLK_T_OUT => {
                self.check_writable()?;
                self.transfer(Op::Write { fua: self.write_through() }, sector, payload_bytes)
            }
            VIRTIO_BLK_T_FLUSH => Ok(ParsedChain::Request { op: Op::Flush, sector: 0, bytes: 0 }),
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

    /// The operation and the sector of a read or write with this header and `bytes` of data, not 0. `None` if it is neither,
    /// or cannot be executed: [`parse`](Self::parse) tells what it is then.
    pub(crate) fn parse_transfer(&self, header: [u64; 2], bytes: u32, is_writable: bool) -> Option<(Op, u64)> {
        let (kind, sector) = kind_and_sector(header);
        let op = match (kind, is_writable) {
            (VIRTIO_BLK_T_IN, true) => Op::Read,
            (VIRTIO_BLK_T_OUT, false) if self.check_writable().is_ok() => Op::Write { fua: self.write_through() },
            _ => return None,
        };
        self.is_valid_transfer(sector, bytes.into()).then_some((op, sector))
    }

    fn is_valid_transfer(&self, sector: u64, bytes: u64) -> bool {
        bytes <= self.disk.geometry().transfer_bytes_max().into() && self.disk.contains(sector, bytes)
    }

    /// A read or write. Without data it completes at once.
    fn transfer(&self, op: Op, sector: u64, bytes: u64) -> Result<ParsedChain, BlkStatus> {
        if !self.is_valid_transfer(sector, bytes) {
            return Err(BlkStatus::IoErr);
        }
        if bytes == 0 {
            return Ok(ParsedChain::Answer(Answer::status(BlkStatus::Ok)));
        }
        // In range: at most the disk's maximum, a `u32`.
        Ok(ParsedChain::Request { op, sector, bytes: bytes as u32 })
    }

    /// Discard and write zeroes: one range, given in the data (5.2.6.2).
    fn range(&self, readable: &Segments, payload_bytes: u64, is_discard: bool) -> Result<ParsedChain, BlkStatus> {
        self.check_writable()?;
        if payload_bytes == 0 || !payload_bytes.is_multiple_of(RANGE_BYTES) {
            return Err(BlkStatus::IoErr);
        }
        if payload_bytes > RANGE_BYTES {
            // The device advertises one range per request.
            return Err(BlkStatus::Unsupp);
        }
        let mut range = [0; RANGE_BYTES as usize];
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
        Ok(ParsedChain::Request { op, sector, bytes: bytes as u32 })
    }

    fn check_writable(&self) -> Result<(), BlkStatus> {
        if self.disk.geometry().read_only { Err(BlkStatus::IoErr) } else { Ok(()) }
    }

    /// Whether writes must be stable when they complete (5.2.6.2). Without `FLUSH` the driver has no other way to make
    /// them stable. With `CONFIG_WCE` the driver chooses.
    fn write_through(&self) -> bool {
        !self.has(VIRTIO_BLK_F_FLUSH) || (self.has(VIRTIO_BLK_F_CONFIG_WCE) && !self.disk.writeback())
    }
}
