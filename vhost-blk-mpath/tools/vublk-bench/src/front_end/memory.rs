//! The data buffers: one memfd, mapped here and by the back-end, cut into equal slots.

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Memory that the back-end reads and writes while requests are in flight. No reference to it is ever made; bytes
/// move by copy.
#[derive(Debug)]
pub(super) struct SharedMemory {
    file: File,
    map: MmapRaw,
}

impl SharedMemory {
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        let file: File = memfd_create("vublk-bench-data", MemfdFlags::CLOEXEC)?.into();
        file.set_len(bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok(Self { file, map })
    }

    pub(super) fn address(&self) -> usize {
        self.map.as_ptr() as usize
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.map.len()), "slot buffers lie inside the memory");
    }

    pub(super) fn copy_in(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        // SAFETY: the destination lies inside the mapping (checked above), which lives as long as `self`. It cannot
        // overlap `data`: nobody holds references into the mapping. The back-end may touch the same bytes only if it
        // breaks the protocol, and then the bytes, not our memory safety, are what is wrong.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.map.as_mut_ptr().add(offset), data.len()) }
    }

    pub(super) fn copy_out(&self, offset: usize, data: &mut [u8]) {
        self.check(offset, data.len());
        // SAFETY: as in `copy_in`, with source and destination exchanged.
        unsafe { std::ptr::copy_nonoverlapping(self.map.as_ptr().add(offset), data.as_mut_ptr(), data.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_there_and_back() {
        let memory = SharedMemory::new(8192).unwrap();
        memory.copy_in(4000, &[7; 200]);
        let mut data = [0; 202];
        memory.copy_out(3999, &mut data);
        assert_eq!((data[0], data[1], data[200], data[201]), (0, 7, 7, 0));
    }

    #[test]
    #[should_panic(expected = "inside the memory")]
    fn refuses_what_is_outside() {
        SharedMemory::new(4096).unwrap().copy_in(4000, &[0; 97]);
    }
}
