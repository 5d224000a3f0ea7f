//! Decides: a page is marked in the dirty log.
//!
//! The dirty log of a live migration (vhost-user, "Migration"): a bitmap in memory shared with the front-end. A bit is
//! set when this back-end has written to its 4 KiB page of guest memory.
//!
//! The front-end clears bits at any time and copies their pages afterwards. So a page is marked *after* it was written.
//! Marked too early, the page could be copied before the write, and its bit would be gone.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use vm_memory::VolatileMemory;

use crate::memory::{GuestMemory, GuestRange, Mapping, MemoryError, MemoryFault, SharedMemory, map_file};

const PAGE_BYTES: u64 = 4096;
const PAGES_PER_BYTE: u64 = 8;

/// Why a dirty log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirtyLogError {
    /// The file is too short or cannot be mapped.
    #[error("cannot map the dirty log: {0}")]
    Map(#[source] MemoryError),
    /// Part of guest memory has no bit. The migration would lose writes to it.
    #[error(
        "the dirty log ends at guest address {log_end:#x}, but writes may reach {written_end:#x}: \
         the migration would lose them"
    )]
    TooShort {
        /// First guest address without a bit.
        log_end: u64,
        /// First guest address behind the memory that may be written.
        written_end: u64,
    },
}

/// The mapped bitmap.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    mapping: Mapping,
    /// Start of the bitmap in the mapping.
    start: u64,
    bytes: u64,
}

impl DirtyLog {
    /// Maps the bitmap of `bytes` at `start` in the file.
    pub(crate) fn map(file: File, start: u64, bytes: u64) -> Result<Self, DirtyLogError> {
        let end = start.saturating_add(bytes);
        Ok(Self { mapping: map_file(file, end).map_err(DirtyLogError::Map)?, start, bytes })
    }

    /// Checks that each page before guest address `written_end` has a bit.
    fn check_covers_to(&self, written_end: u64) -> Result<(), DirtyLogError> {
        let log_end = self.bytes.saturating_mul(PAGES_PER_BYTE * PAGE_BYTES);
        if written_end <= log_end { Ok(()) } else { Err(DirtyLogError::TooShort { log_end, written_end }) }
    }

    /// Whether marks may be lost after a fault of the log's memory.
    pub(crate) fn has_faulted(&self) -> bool {
        self.mapping.has_faulted()
    }

    /// The first fault of the log's memory, if there was one.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        self.has_faulted().then(|| self.mapping.fault(SharedMemory::DirtyLog, 0, 0)).flatten()
    }

    /// Marks the pages of a range that was written.
    ///
    /// # Panics
    ///
    /// If the range ends behind the log. The caller has checked that.
    fn mark(&self, range: GuestRange) {
        if range.bytes == 0 {
            return;
        }
        let (first, last) = (range.start / PAGE_BYTES, (range.start + range.bytes - 1) / PAGE_BYTES);
        for byte in first / PAGES_PER_BYTE..=last / PAGES_PER_BYTE {
            let first_page = byte * PAGES_PER_BYTE;
            let from = first.saturating_sub(first_page);
            let to = (last - first_page).min(PAGES_PER_BYTE - 1);
            let bits = (u8::MAX << from) & (u8::MAX >> (PAGES_PER_BYTE - 1 - to));
            assert!(byte < self.bytes, "a page after the end of the dirty log");
            let byte = self.mapping.region().get_atomic_ref::<AtomicU8>((self.start + byte) as usize).expect("mapped");
            #[cfg(test)]
            crate::testing::before_store();
            // Release: a front-end that takes the bit sees the bytes written to the page. The bit is stored even if a
            // load shows it set: the front-end may take that bit before it can see these bytes.
            byte.fetch_or(bits, Ordering::Release);
        }
    }
}

/// How one queue marks its writes.
#[derive(Clone, Debug)]
pub(crate) struct QueueDirtyLog {
    pub(crate) log: Arc<DirtyLog>,
    /// Guest address for marks of a split queue's used ring, if the front-end wants them.
    pub(crate) used_ring: Option<u64>,
}

impl QueueDirtyLog {
    /// Checks that the log covers all writes of a queue with a used ring of `used_ring_bytes`.
    pub(crate) fn check(&self, memory: &GuestMemory, used_ring_bytes: u64) -> Result<(), DirtyLogError> {
        self.log.check_covers_to(memory.guest_end())?;
        let used_ring_end = self.used_ring.map(|start| start.saturating_add(used_ring_bytes));
        used_ring_end.map_or(Ok(()), |end| self.log.check_covers_to(end))
    }

    pub(crate) fn mark(&self, ranges: impl IntoIterator<Item = GuestRange>) {
        ranges.into_iter().for_each(|range| self.log.mark(range));
    }

    /// Marks bytes of the used ring.
    pub(crate) fn mark_used(&self, offset: usize, bytes: usize) {
        if let Some(start) = self.used_ring {
            self.log.mark(GuestRange { start: start + offset as u64, bytes: bytes as u64 });
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::memory::tests::anonymous;

    /// A dirty log, as a front-end holds it.
    pub(crate) struct SharedLog {
        file: File,
        pages: u64,
    }

    impl SharedLog {
        /// Bytes of the file before the bitmap. Nothing may write to them.
        const START: u64 = 8;

        pub(crate) fn new(pages: u64) -> Self {
            let file = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
            file.set_len(Self::START + pages / PAGES_PER_BYTE).unwrap();
            Self { file, pages }
        }

        pub(crate) fn map(&self) -> DirtyLog {
            DirtyLog::map(self.file.try_clone().unwrap(), Self::START, self.pages / PAGES_PER_BYTE).unwrap()
        }

        /// Takes the marks, like a front-end that copies the pages.
        pub(crate) fn take(&self) -> Vec<u64> {
            let pages = self.pages();
            self.file.write_all_at(&vec![0; (self.pages / PAGES_PER_BYTE) as usize], Self::START).unwrap();
            pages
        }

        /// The marked pages.
        pub(crate) fn pages(&self) -> Vec<u64> {
            let mut bytes = vec![0; (Self::START + self.pages / PAGES_PER_BYTE) as usize];
            self.file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes[..Self::START as usize], [0; Self::START as usize]);
            let bits = &bytes[Self::START as usize..];
            (0..self.pages).filter(|page| bits[(page / 8) as usize] & 1 << (page % 8) != 0).collect()
        }
    }

    fn range(start: u64, bytes: u64) -> GuestRange {
        GuestRange { start, bytes }
    }

    #[test]
    fn memory_without_a_bit_in_the_log_is_refused() {
        let log = QueueDirtyLog { log: Arc::new(SharedLog::new(16).map()), used_ring: Some(0xf000) };
        assert!(log.check(&anonymous(&[(0, 0x1_0000)]), 0x1000).is_ok());
        let too_short = |log: &QueueDirtyLog, memory, used| match log.check(&anonymous(memory), used) {
            Err(DirtyLogError::TooShort { log_end: 0x1_0000, written_end }) => written_end,
            other => panic!("{other:?}"),
        };
        assert_eq!(too_short(&log, &[(0, 0x1000), (0x1_0000, 0x1000)], 1), 0x1_1000);
        assert_eq!(too_short(&log, &[(0, 0x1_0000)], 0x1001), 0x1_0001);
        let log = QueueDirtyLog { used_ring: Some(u64::MAX), ..log };
        assert_eq!(too_short(&log, &[], 6), u64::MAX);
    }

    #[test]
    fn a_log_beyond_its_file_is_refused() {
        let file = || SharedLog::new(64).file;
        for (start, bytes) in [(0, 17), (9, 8), (u64::MAX, 8), (8, u64::MAX)] {
            let refused = DirtyLog::map(file(), start, bytes);
            assert!(matches!(refused, Err(DirtyLogError::Map(MemoryError::BeyondFile { .. }))), "{start}+{bytes}");
        }
    }

    #[test]
    #[should_panic(expected = "after the end of the dirty log")]
    fn marking_behind_the_end_panics() {
        SharedLog::new(8).map().mark(range(0x7fff, 2));
    }

    proptest! {
        /// A page is marked if and only if one of its bytes was written.
        #[test]
        fn the_pages_of_all_ranges_are_marked_and_no_others(
            ranges in prop::collection::vec((0_u64..64 * PAGE_BYTES, 0_u64..10 * PAGE_BYTES), 0..5),
        ) {
            let shared = SharedLog::new(64);
            let log = shared.map();
            let mut expected = std::collections::BTreeSet::new();
            for (start, bytes) in ranges {
                let bytes = bytes.min(64 * PAGE_BYTES - start);
                log.mark(range(start, bytes));
                expected.extend((0..64).filter(|page| {
                    bytes > 0 && start < (page + 1) * PAGE_BYTES && page * PAGE_BYTES < start + bytes
                }));
            }
            prop_assert_eq!(shared.pages(), expected.into_iter().collect::<Vec<_>>());
        }
    }
}
