//! Where a namespace's bytes live.
//!
//! Callers have checked every range against the namespace's size, so a range outside of it is a
//! defect of this program and not a guest's doing.

mod file;
mod memory;

pub use file::FileError;
pub(crate) use file::{FileIdentity, FileStore};
pub(crate) use memory::{MAX_MEMORY_BYTES, MemoryStore};

use std::io;

/// A namespace's storage, addressed in bytes. All methods may be called by many threads at once;
/// each one is atomic per logical block at least.
pub(crate) trait Store: Send + Sync {
    /// Fills `buf` from `offset` on. What was never written or was deallocated reads as zero.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Stores `data` at `offset`. With `fua` it is on stable media when this returns.
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> io::Result<()>;

    /// Makes `bytes` bytes from `offset` on read as zero, giving the space back if `deallocate`.
    fn write_zeroes(&self, offset: u64, bytes: u64, deallocate: bool, fua: bool) -> io::Result<()>;

    /// Brings everything written before to stable media.
    fn flush(&self) -> io::Result<()>;
}
