//! Requests to the disk, and its answers.

use serde::Serialize;
use std::fmt;

/// Bytes of a virtio sector, whatever the block size (VIRTIO 1.2, 5.2.4).
pub const SECTOR_BYTES: u64 = 512;

/// The operations of a virtio disk that this front-end uses (VIRTIO 1.2, 5.2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes { unmap: bool },
}

/// One request. `offset` and `len` are bytes, multiples of [`SECTOR_BYTES`]; both are 0 for a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Request {
    pub kind: Kind,
    /// First byte on the disk.
    pub offset: u64,
    /// Bytes on the disk.
    pub len: u32,
}

impl Request {
    pub const FLUSH: Self = Self { kind: Kind::Flush, offset: 0, len: 0 };
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Flush => return f.write_str("flush"),
            Kind::Discard => "discard",
            Kind::WriteZeroes { unmap: false } => "write-zeroes",
            Kind::WriteZeroes { unmap: true } => "write-zeroes (unmap)",
        };
        write!(f, "{name} of {} bytes at sector {}", self.len, self.offset / SECTOR_BYTES)
    }
}

/// The status byte of a completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// `VIRTIO_BLK_S_OK`
    Ok,
    /// `VIRTIO_BLK_S_IOERR`
    IoError,
    /// `VIRTIO_BLK_S_UNSUPP`
    Unsupported,
    /// The initial value: the back-end used the chain without writing a status.
    NotWritten,
    /// A value that the standard does not define.
    Invalid(u8),
}

impl Status {
    /// Stands in the status byte before the back-end writes it.
    pub const NOT_WRITTEN: u8 = 0xff;

    /// Decodes a status byte.
    pub fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Ok,
            1 => Self::IoError,
            2 => Self::Unsupported,
            Self::NOT_WRITTEN => Self::NotWritten,
            other => Self::Invalid(other),
        }
    }
}
