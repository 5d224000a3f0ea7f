//! The memory of a virtual machine: a file, which the daemon maps too.

use std::fs::File;

use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::volatile_memory::VolatileMemory;
use vm_memory::{FileOffset, MmapRegion};

/// Where the guest has it, and where the front-end does.
pub(super) const GUEST_START: u64 = 0x4000_0000;
pub(super) const USER_START: u64 = 0x7f00_0000_0000;

#[derive(Debug)]
pub(super) struct Memory(MmapRegion);

impl Memory {
    /// So many bytes, all zero.
    pub(super) fn new(bytes: usize) -> Self {
        let file = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).expect("memory for a small machine"));
        file.set_len(bytes as u64).expect("memory for a small machine");
        Self(MmapRegion::from_file(FileOffset::new(file, 0), bytes).expect("memory for a small machine"))
    }

    pub(super) fn file(&self) -> &File {
        self.0.file_offset().expect("it is a file").file()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        self.0.get_slice(at, bytes.len()).expect("inside the machine").copy_from(bytes);
    }

    pub(super) fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.get_slice(at, length).expect("inside the machine").copy_to(&mut bytes);
        bytes
    }

    pub(super) fn u16_at(&self, at: usize) -> u16 {
        self.read(at, 2).try_into().map_or(0, u16::from_le_bytes)
    }

    pub(super) fn u32_at(&self, at: usize) -> u32 {
        self.read(at, 4).try_into().map_or(0, u32::from_le_bytes)
    }
}
