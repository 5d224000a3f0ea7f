//! The storage of namespaces.
//!
//! Callers have checked each range against the size of the namespace. A range outside is a defect of this program and cannot
//! come from a guest.

mod file;
mod memory;

pub use file::FileError;
pub(crate) use file::{FileIdentity, FileStore};
pub(crate) use memory::{MAX_MEMORY_BYTES, MemoryStore};

use std::io;

/// The storage of a namespace, addressed in bytes. All methods may be called by several threads in parallel. Each is atomic for
/// at least one logical block.
pub(crate) trait Store: Send + Sync {
    /// Appends `bytes` bytes from `offset` on to `out`. Unwritten and deallocated bytes read as zero. After an error the new end
    /// of `out` is undefined.
    fn read(&self, offset: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()>;

    /// Stores `data` at `offset`. With `fua` the data are on stable media on return.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()>;

    /// Makes `bytes` bytes from `offset` on read as zero. Frees their space if `deallocate`.
    fn write_zeroes(&self, offset: u64, bytes: u64, deallocate: bool, fua: bool) -> io::Result<()>;

    /// Brings all written data to stable media.
    fn flush(&self) -> io::Result<()>;
}
