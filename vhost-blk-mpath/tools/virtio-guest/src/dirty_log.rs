//! The dirty log of a migration (vhost-user, "Migration"): a bit for each page of the guest that the device has
//! written.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use vhost::VhostUserDirtyLogRegion;

use crate::front_end::{GUEST_START, PAGE_BYTES, memory_file};

/// A dirty log for memory from [`GUEST_START`] on. The bits of lower addresses stay clear.
#[derive(Debug)]
pub struct DirtyLog {
    file: File,
    bytes: u64,
}

impl DirtyLog {
    /// The size of a log for this much memory.
    #[must_use]
    pub const fn bytes_for(memory_bytes: u64) -> u64 {
        (GUEST_START + memory_bytes).div_ceil(8 * PAGE_BYTES)
    }

    /// A log of `bytes`, in a file of `file_bytes`.
    #[must_use]
    pub fn new(bytes: u64, file_bytes: u64) -> Self {
        Self { file: memory_file(file_bytes), bytes }
    }

    /// The file that the device writes to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The log as a front-end passes it.
    #[must_use]
    pub fn region(&self) -> VhostUserDirtyLogRegion {
        VhostUserDirtyLogRegion { mmap_size: self.bytes, mmap_offset: 0, mmap_handle: self.file.as_raw_fd() }
    }

    /// Takes the marks: the pages, counted from [`GUEST_START`].
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        // Most of the log is for addresses below the guest's memory.
        let below = GUEST_START / PAGE_BYTES / 8;
        let mut marks = vec![0; (self.bytes - below) as usize];
        self.file.read_exact_at(&mut marks, below).expect("all of the log is there");
        self.file.write_all_at(&vec![0; marks.len()], below).expect("room that is there");
        (0..8 * marks.len() as u64).filter(|page| marks[(page / 8) as usize] & 1 << (page % 8) != 0).collect()
    }
}
