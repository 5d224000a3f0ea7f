//! The memory of a virtual machine: a file that the daemon maps too.

use std::fs::File;
use std::os::unix::fs::FileExt;

use virtio_guest::memory_file;
use vm_memory::volatile_memory::VolatileMemory;
use vm_memory::{FileOffset, MmapRegion};

const PAGE_BYTES: usize = virtio_guest::PAGE_BYTES as usize;

/// The truncation of the file.
#[derive(Debug)]
struct Truncation {
    at: usize,
    /// All of the memory as the guest sees it.
    contents: Vec<u8>,
}

/// The memory of a virtual machine.
#[derive(Debug)]
pub(super) struct Memory {
    region: MmapRegion,
    truncation: Option<Truncation>,
    /// The memory at the destination of a migration.
    copy: Option<Vec<u8>>,
}

impl Memory {
    /// `bytes` bytes, all zero.
    pub(super) fn new(bytes: usize) -> Self {
        let region = MmapRegion::from_file(FileOffset::new(memory_file(bytes as u64), 0), bytes)
            .expect("memory for a small machine");
        Self { region, truncation: None, copy: None }
    }

    pub(super) fn file(&self) -> &File {
        self.region.file_offset().expect("it is a file").file()
    }

    pub(super) fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Truncates the file at a page that `choice` decides. From now on, only the guest sees the memory behind that page.
    pub(super) fn truncate(&mut self, choice: u64) {
        let at = choice as usize % self.bytes().div_ceil(PAGE_BYTES) * PAGE_BYTES;
        let contents = self.read(0, self.bytes());
        self.file().set_len(at as u64).expect("a file can be shorter");
        self.truncation = Some(Truncation { at, contents });
        self.copy = None;
    }

    /// Begins the copy of a migration. There is no copy if the memory is truncated.
    pub(super) fn begin_copy(&mut self) {
        self.copy = (!self.is_truncated()).then(|| self.read(0, self.bytes()));
    }

    /// Ends the migration. Returns its copy of the memory.
    pub(super) fn take_copy(&mut self) -> Option<Vec<u8>> {
        self.copy.take()
    }

    /// Copies these pages again.
    pub(super) fn copy_again(&mut self, pages: Vec<u64>) {
        let Some(mut copy) = self.copy.take() else { return };
        for page in pages {
            let at = page as usize * PAGE_BYTES;
            let end = self.bytes().min(at + PAGE_BYTES);
            copy[at..end].copy_from_slice(&self.read(at, end - at));
        }
        self.copy = Some(copy);
    }

    pub(super) fn has_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// The first byte that the copy lacks.
    pub(super) fn first_not_copied(&self) -> Option<usize> {
        let copy = self.copy.as_ref()?;
        self.read(0, self.bytes()).iter().zip(copy).position(|(byte, copied)| byte != copied)
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.truncation.is_some()
    }

    /// Writes for the guest. The copy of a migration gets these bytes too, without the dirty log.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        if let Some(copy) = &mut self.copy {
            copy[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let mut there = bytes.len();
        if let Some(Truncation { at: end, contents }) = &mut self.truncation {
            contents[at..at + bytes.len()].copy_from_slice(bytes);
            there = end.saturating_sub(at).min(there);
        }
        self.region.get_slice(at, there).expect("inside the machine").copy_from(&bytes[..there]);
    }

    pub(super) fn read(&self, at: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.read_to(at, &mut bytes);
        bytes
    }

    pub(super) fn read_to(&self, at: usize, bytes: &mut [u8]) {
        let Some(Truncation { at: end, contents }) = &self.truncation else {
            self.region.get_slice(at, bytes.len()).expect("inside the machine").copy_to(bytes);
            return;
        };
        // Read from the file, as an access to the truncated part of the mapping would end the simulator.
        bytes.copy_from_slice(&contents[at..at + bytes.len()]);
        let there = end.saturating_sub(at).min(bytes.len());
        self.file().read_exact_at(&mut bytes[..there], at as u64).expect("that much is there");
    }
}
