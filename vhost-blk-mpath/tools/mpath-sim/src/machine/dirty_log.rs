//! The dirty log of a migration (vhost-user, "Migration"): a bit for each page of the guest that the device has written.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::VhostUserDirtyLogRegion;

use super::memory::{GUEST_START, PAGE_BYTES};

/// Memory for each byte of the log.
const BYTE_COVERS: u64 = 8 * PAGE_BYTES as u64;

/// The dirty log of a machine.
#[derive(Debug)]
pub(super) struct DirtyLog {
    file: File,
    /// The part that is for the machine's memory.
    bytes: u64,
}

impl DirtyLog {
    /// The log of a machine with this much memory.
    pub(super) fn new(memory_bytes: usize) -> Self {
        let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).expect("memory for a small log"));
        let bytes = (memory_bytes as u64).div_ceil(BYTE_COVERS);
        file.set_len(GUEST_START / BYTE_COVERS + bytes).expect("memory for a small log");
        Self { file, bytes }
    }

    pub(super) fn region(&self) -> VhostUserDirtyLogRegion {
        let mmap_size = GUEST_START / BYTE_COVERS + self.bytes;
        VhostUserDirtyLogRegion { mmap_size, mmap_offset: 0, mmap_handle: self.file.as_raw_fd() }
    }

    /// Takes the marks: the offsets of the pages in the memory.
    pub(super) fn take(&self) -> Vec<usize> {
        let mut marks = vec![0; self.bytes as usize];
        self.file.read_exact_at(&mut marks, GUEST_START / BYTE_COVERS).expect("a log for all of the memory");
        self.file.write_all_at(&vec![0; marks.len()], GUEST_START / BYTE_COVERS).expect("room that is there");
        let pages = (0..8 * marks.len()).filter(|page| marks[page / 8] & 1 << (page % 8) != 0);
        pages.map(|page| page * PAGE_BYTES).collect()
    }
}
