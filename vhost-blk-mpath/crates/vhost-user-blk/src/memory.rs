//! Guest memory as the front-end shares it: the mapped regions, and the two ways to name a byte in them.
//!
//! Descriptors carry *guest* addresses; ring addresses in `VHOST_USER_SET_VRING_ADDR` are *front-end* (user) addresses.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

/// Regions one connection may have: what QEMU allows an x86 guest.
pub(crate) const MAX_MEMORY_REGIONS: usize = 509;

/// Why a memory region was refused.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More regions than a connection may have.
    #[error("more than {MAX_MEMORY_REGIONS} memory regions")]
    TooManyRegions,
    /// An address range that is empty or wraps.
    #[error("memory region at guest address {guest_start:#x} is empty or wraps")]
    BadRange {
        /// First guest address of the region.
        guest_start: u64,
    },
    /// Two regions claim the same guest addresses.
    #[error("memory region at guest address {guest_start:#x} overlaps another")]
    Overlap {
        /// First guest address of the region that came second.
        guest_start: u64,
    },
    /// The file is shorter than the region: touching the rest would kill the process.
    #[error("memory file ends at {file_bytes:#x}, the region at {region_end:#x}")]
    BeyondFile {
        /// Length of the file.
        file_bytes: u64,
        /// Where in the file the region ends.
        region_end: u64,
    },
    /// No such region to remove.
    #[error("no memory region at guest address {guest_start:#x}")]
    NoSuchRegion {
        /// First guest address named in the request.
        guest_start: u64,
    },
    /// The file cannot be examined.
    #[error("cannot examine the memory file: {0}")]
    File(#[source] io::Error),
    /// The file cannot be mapped.
    #[error("cannot map guest memory: {0}")]
    Map(#[source] vm_memory::mmap::MmapRegionError),
}

/// Where a region lies in each of its three address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    pub(crate) guest_start: u64,
    pub(crate) user_start: u64,
    pub(crate) bytes: u64,
    /// Offset of the region in its file.
    pub(crate) file_offset: u64,
}

#[derive(Clone, Debug)]
struct Region {
    layout: RegionLayout,
    mapping: Arc<MmapRegion<()>>,
}

impl Region {
    fn map(layout: RegionLayout, file: File) -> Result<Self, MemoryError> {
        let RegionLayout { guest_start, user_start, bytes, file_offset } = layout;
        let bad_range = MemoryError::BadRange { guest_start };
        if bytes == 0 || guest_start.checked_add(bytes).is_none() || user_start.checked_add(bytes).is_none() {
            return Err(bad_range);
        }
        let Some(region_end) = file_offset.checked_add(bytes) else { return Err(bad_range) };
        Ok(Self { layout, mapping: Arc::new(map_file(file, region_end)?) })
    }

    /// Where the byte at this address of ours lies in the region, if it does.
    fn offset_of(&self, host: NonNull<u8>) -> Option<u64> {
        let first = self.mapping.as_ptr().addr() as u64 + self.layout.file_offset;
        let offset = (host.addr().get() as u64).checked_sub(first)?;
        (offset < self.layout.bytes).then_some(offset)
    }

    /// The part of `[offset, offset + bytes)` of this region that lies in it; `offset` does.
    fn slice(&self, offset: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        let bytes = bytes.min(self.layout.bytes.checked_sub(offset)?);
        let start = usize::try_from(self.layout.file_offset.checked_add(offset)?).ok()?;
        self.mapping.get_slice(start, usize::try_from(bytes).ok()?).ok()
    }
}

/// Maps the first `bytes` of a file of the front-end's.
///
/// From offset 0, not from where in it something begins: on hugetlbfs an offset must be a multiple of the huge page, which a
/// region's offset (QEMU splits below 1 MiB) is not. Only address space is spent.
pub(crate) fn map_file(file: File, bytes: u64) -> Result<MmapRegion<()>, MemoryError> {
    let metadata = file.metadata().map_err(MemoryError::File)?;
    let too_short = MemoryError::BeyondFile { file_bytes: metadata.len(), region_end: bytes };
    if metadata.is_file() && metadata.len() < bytes {
        return Err(too_short);
    }
    let Ok(bytes) = usize::try_from(bytes) else { return Err(too_short) };
    MmapRegion::from_file(FileOffset::new(file, 0), bytes).map_err(MemoryError::Map)
}

/// A range of guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestRange {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// An immutable memory map. A change makes a new map that shares the unchanged mappings; a mapping lives until the last
/// map that has it is gone, so in-flight requests keep their buffers mapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestMemory {
    /// Sorted by guest address, without overlaps.
    regions: Vec<Region>,
}

impl GuestMemory {
    /// This map and one more region.
    pub(crate) fn with_region(&self, layout: RegionLayout, file: File) -> Result<Self, MemoryError> {
        if self.regions.len() >= MAX_MEMORY_REGIONS {
            return Err(MemoryError::TooManyRegions);
        }
        self.insert(Region::map(layout, file)?)
    }

    /// This map without the region of that layout; where in its file it lay does not matter (vhost-user, `REM_MEM_REG`).
    pub(crate) fn without_region(&self, layout: &RegionLayout) -> Result<Self, MemoryError> {
        let same = |region: &Region| {
            let have = region.layout;
            (have.guest_start, have.user_start, have.bytes) == (layout.guest_start, layout.user_start, layout.bytes)
        };
        let mut regions = self.regions.clone();
        let at = regions.iter().position(same).ok_or(MemoryError::NoSuchRegion { guest_start: layout.guest_start })?;
        regions.remove(at);
        Ok(Self { regions })
    }

    fn insert(&self, region: Region) -> Result<Self, MemoryError> {
        let RegionLayout { guest_start, bytes, .. } = region.layout;
        let at = self.regions.partition_point(|have| have.layout.guest_start < guest_start);
        let overlaps_next = self.regions.get(at).is_some_and(|next| next.layout.guest_start - guest_start < bytes);
        let overlaps_previous = at > 0
            && self.regions.get(at - 1).is_some_and(|have| guest_start - have.layout.guest_start < have.layout.bytes);
        if overlaps_next || overlaps_previous {
            return Err(MemoryError::Overlap { guest_start });
        }
        let mut regions = self.regions.clone();
        regions.insert(at, region);
        Ok(Self { regions })
    }

    /// The mapped bytes from guest address `address` on, at most `bytes`, less where a region ends.
    pub(crate) fn guest_slice(&self, address: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        let after = self.regions.partition_point(|region| region.layout.guest_start <= address);
        let region = self.regions.get(after.checked_sub(1)?)?;
        let slice = region.slice(address - region.layout.guest_start, bytes)?;
        (!slice.is_empty()).then_some(slice)
    }

    /// The guest address of a byte that [`guest_slice`](Self::guest_slice) found.
    pub(crate) fn guest_address(&self, host: NonNull<u8>) -> Option<u64> {
        self.regions.iter().find_map(|region| Some(region.layout.guest_start + region.offset_of(host)?))
    }

    /// The first guest address after all regions.
    pub(crate) fn guest_end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.layout.guest_start + region.layout.bytes)
    }

    /// Exactly `bytes` mapped bytes from front-end address `address` on, in one region.
    pub(crate) fn user_slice(&self, address: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        self.regions.iter().find_map(|region| {
            let offset = address.checked_sub(region.layout.user_start)?;
            let end = offset.checked_add(bytes)?;
            (end <= region.layout.bytes).then(|| region.slice(offset, bytes)).flatten()
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A memory map of unshared memory; each region is `(guest and user start, bytes)`.
    pub(crate) fn anonymous(regions: &[(u64, u64)]) -> GuestMemory {
        regions.iter().fold(GuestMemory::default(), |memory, &(start, bytes)| {
            let layout = RegionLayout { guest_start: start, user_start: start, bytes, file_offset: 0 };
            let mapping = Arc::new(MmapRegion::new(usize::try_from(bytes).unwrap()).unwrap());
            memory.insert(Region { layout, mapping }).unwrap()
        })
    }

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn layout(guest_start: u64, bytes: u64) -> RegionLayout {
        RegionLayout { guest_start, user_start: guest_start + 0x7000_0000, bytes, file_offset: 0 }
    }

    #[test]
    fn guest_addresses_are_found_and_bounded() {
        let memory = anonymous(&[(0x1000, 0x1000), (0x4000, 0x2000)]);
        assert!(memory.guest_slice(0xfff, 1).is_none());
        assert_eq!(memory.guest_slice(0x1000, 0x1000).unwrap().len(), 0x1000);
        assert_eq!(memory.guest_slice(0x1fff, 8).unwrap().len(), 1);
        assert!(memory.guest_slice(0x2000, 1).is_none());
        assert_eq!(memory.guest_slice(0x5000, 0x10_0000).unwrap().len(), 0x1000);
        assert!(memory.guest_slice(u64::MAX, u64::MAX).is_none());
    }

    #[test]
    fn guest_addresses_are_found_back() {
        let file_offset = RegionLayout { file_offset: 0x800, ..layout(0x9000, 0x1000) };
        let memory = anonymous(&[(0x1000, 0x1000), (0x4000, 0x2000)]).with_region(file_offset, file(0x1800)).unwrap();
        for address in [0x1000, 0x1fff, 0x4000, 0x5123, 0x9000, 0x9fff] {
            let slice = memory.guest_slice(address, 1).unwrap();
            let host = NonNull::new(slice.ptr_guard_mut().as_ptr()).unwrap();
            assert_eq!(memory.guest_address(host), Some(address), "{address:#x}");
        }
        let first = memory.guest_slice(0x9000, 1).unwrap().ptr_guard_mut().as_ptr();
        assert_eq!(
            memory.guest_address(NonNull::new(first.wrapping_sub(1)).unwrap()),
            None,
            "of the file, not of the guest"
        );
        assert_eq!(memory.guest_address(NonNull::dangling()), None);
        assert_eq!((memory.guest_end(), GuestMemory::default().guest_end()), (0xa000, 0));
    }

    #[test]
    fn user_ranges_must_lie_in_one_region() {
        let memory = anonymous(&[(0x1000, 0x1000), (0x2000, 0x1000)]);
        assert!(memory.user_slice(0x1800, 0x800).is_some());
        assert!(memory.user_slice(0x1800, 0x801).is_none());
        assert!(memory.user_slice(u64::MAX, 2).is_none());
    }

    #[test]
    fn regions_are_added_removed_and_never_overlap() {
        let memory = GuestMemory::default().with_region(layout(0x1000, 0x1000), file(0x1000)).unwrap();
        for start in [0x0, 0x1000, 0x1800] {
            let refused = memory.with_region(layout(start, 0x1001), file(0x2000));
            assert!(matches!(refused, Err(MemoryError::Overlap { .. })), "{start:#x}");
        }
        let both = memory.with_region(layout(0x2000, 0x1000), file(0x1000)).unwrap();
        let one = both.without_region(&layout(0x1000, 0x1000)).unwrap();
        assert!(one.guest_slice(0x1000, 1).is_none() && one.guest_slice(0x2000, 1).is_some());
        assert!(matches!(one.without_region(&layout(0x1000, 0x1000)), Err(MemoryError::NoSuchRegion { .. })));
    }

    #[test]
    fn a_region_beyond_its_file_is_refused() {
        let at_offset = RegionLayout { file_offset: 0x800, ..layout(0, 0x1000) };
        let refused = GuestMemory::default().with_region(at_offset, file(0x1000));
        assert!(matches!(refused, Err(MemoryError::BeyondFile { file_bytes: 0x1000, region_end: 0x1800 })));
    }

    #[test]
    fn ranges_that_wrap_are_refused() {
        for bad in [layout(0, 0), RegionLayout { guest_start: u64::MAX, ..layout(0, 2) }] {
            let refused = GuestMemory::default().with_region(bad, file(0x1000));
            assert!(matches!(refused, Err(MemoryError::BadRange { .. })));
        }
    }

    #[test]
    fn a_region_starts_at_its_offset_in_the_file() {
        use std::os::unix::fs::FileExt;
        let file = file(0x2000);
        file.write_at(b"here", 0x1000).unwrap();
        let at_offset = RegionLayout { file_offset: 0x1000, ..layout(0x8000, 0x1000) };
        let memory = GuestMemory::default().with_region(at_offset, file).unwrap();
        let mut bytes = [0; 4];
        memory.guest_slice(0x8000, 4).unwrap().copy_to(&mut bytes);
        assert_eq!(&bytes, b"here");
    }
}
