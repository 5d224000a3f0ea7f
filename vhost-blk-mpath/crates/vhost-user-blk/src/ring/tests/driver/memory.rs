//! The guest memory of the test driver: its regions, and the guards around them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{BUFFERS, GUARD, GUARD_BYTES, MEMORY_BYTES, PAGE_BYTES, REGION_BYTES, TestDriver};
use crate::memory::{GuestMemory, RegionLayout};

impl TestDriver {
    pub(crate) fn memory(&self) -> GuestMemory {
        let region = |file: usize, guest_start, user_start: u64, end: u64| {
            let file_offset = GUARD_BYTES + user_start % REGION_BYTES;
            let layout = RegionLayout { guest_start, user_start, bytes: end - user_start, file_offset };
            (layout, self.files[file].try_clone().unwrap())
        };
        let mut regions = vec![region(1, REGION_BYTES, REGION_BYTES, MEMORY_BYTES)];
        if self.rings == 0 {
            regions.push(region(0, 0, 0, REGION_BYTES));
        } else {
            regions.extend([region(0, BUFFERS, BUFFERS, REGION_BYTES), region(0, self.rings, 0, BUFFERS)]);
        }
        let add = |memory: GuestMemory, (layout, file)| memory.with_region(layout, file).unwrap();
        regions.into_iter().fold(GuestMemory::default(), add)
    }

    /// The parts of `[address, address + bytes)` in each region: file, offset there, length.
    fn parts(&self, address: u64, bytes: usize) -> impl Iterator<Item = (&File, u64, usize)> {
        let (mut address, mut left) = (address, bytes);
        std::iter::from_fn(move || {
            let offset = address % REGION_BYTES;
            let taken = left.min((REGION_BYTES - offset) as usize);
            let file = self.files.get((address / REGION_BYTES) as usize)?;
            (address, left) = (address + taken as u64, left - taken);
            Some((file, GUARD_BYTES + offset, taken))
        })
        .take_while(|part| part.2 > 0)
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (file, at, taken) in self.parts(address, bytes.len()) {
            file.write_all_at(&rest[..taken], at).unwrap();
            rest = &rest[taken..];
        }
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for (file, at, taken) in self.parts(address, bytes) {
            let mut part = vec![0; taken];
            file.read_exact_at(&mut part, at).unwrap();
            all.extend(part);
        }
        all
    }

    /// All guest memory.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let region = |file: &File| {
            let mut bytes = vec![0; REGION_BYTES as usize];
            file.read_exact_at(&mut bytes, GUARD_BYTES).unwrap();
            bytes
        };
        self.files.each_ref().map(region).concat()
    }

    /// The pages that differ from `before`.
    pub(crate) fn changed_since(&self, before: &[u8]) -> Vec<u64> {
        let pages = before.chunks(PAGE_BYTES as usize).zip(0..);
        let after = self.snapshot();
        let same = |page: u64, before: &[u8]| &after[(page * PAGE_BYTES) as usize..][..before.len()] == before;
        pages.filter(|&(before, page)| !same(page, before)).map(|(_, page)| page).collect()
    }

    pub(crate) fn assert_guards(&self) {
        for file in &self.files {
            for at in [0, GUARD_BYTES + REGION_BYTES] {
                let mut guard = [0; GUARD_BYTES as usize];
                file.read_exact_at(&mut guard, at).unwrap();
                assert_eq!(guard, [GUARD; GUARD_BYTES as usize], "memory outside of the guest's was written");
            }
        }
    }
}
