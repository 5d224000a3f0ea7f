//! Guest memory as the front-end shares it: the mapped regions, and the two ways to name a byte in them.
//!
//! Descriptors carry *guest* addresses; ring addresses in `VHOST_USER_SET_VRING_ADDR` are *front-end* (user) addresses.

use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::fstatfs;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::memory_faults::{self, Fault, Guard};

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
    /// Faults of the mapping cannot be kept from ending the process.
    #[error("cannot guard a mapping of guest memory: {0}")]
    Guard(#[source] io::Error),
}

/// What a front-end shares memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemory {
    /// The guest's.
    Guest,
    /// The log of requests in flight.
    Inflight,
    /// The dirty log of a migration.
    DirtyLog,
}

impl fmt::Display for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guest => "guest memory at guest address",
            Self::Inflight => "in-flight memory at offset",
            Self::DirtyLog => "the dirty log at offset",
        })
    }
}

/// Memory that a front-end shares and that could not be accessed. The requests that it was for fail, and the front-end is hung up on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{memory} {address:#x} cannot be accessed: {reason}")]
pub struct MemoryFault {
    /// What it is for.
    pub memory: SharedMemory,
    /// The first byte that could not be accessed, or one shortly before it: a guest address, or an offset.
    pub address: u64,
    /// Why.
    pub reason: FaultReason,
}

/// Why memory that was mapped can no longer be accessed, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// The file became shorter than what was mapped of it.
    Truncated {
        /// Its length.
        file_bytes: u64,
        /// What was mapped of it.
        mapped_bytes: u64,
    },
    /// A memory error of this host.
    Poisoned,
    /// The file has its length, so its pages are missing.
    Missing,
}

impl fmt::Display for FaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { file_bytes, mapped_bytes } => write!(
                f,
                "its file was truncated to {file_bytes} bytes while {mapped_bytes} were in use; \
                 memory must keep its length until the front-end takes it back"
            ),
            Self::Poisoned => f.write_str("a memory error of this host has poisoned the page; see the kernel log"),
            Self::Missing => f.write_str(
                "its file system is full (tmpfs, huge pages) or the page is poisoned; \
                 make room for all of the memory, or see the kernel log",
            ),
        }
    }
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

/// A mapping whose faults end nobody but its front-end.
pub(crate) struct Mapping {
    /// Before the region, which is unmapped when it is dropped.
    guard: Guard,
    region: MmapRegion<()>,
    /// What of it is used, in bytes from its start on.
    used_bytes: u64,
}

impl Mapping {
    /// Guards a region that is a multiple of `page_bytes` long, the size of its pages.
    fn guarded(region: MmapRegion<()>, page_bytes: usize, used_bytes: u64) -> Result<Self, MemoryError> {
        // SAFETY: the kernel maps at multiples of a page, the region is unmapped after the guard is dropped, and nothing but volatile
        // and atomic accesses is made to what another process shares.
        let guard = unsafe { Guard::new(region.as_ptr(), region.size(), page_bytes) };
        Ok(Self { guard: guard.map_err(MemoryError::Guard)?, region, used_bytes })
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn region(&self) -> &MmapRegion<()> {
        &self.region
    }

    /// What is to be said of its first fault, if there was one, in memory that begins at `start` of it.
    pub(crate) fn fault(&self, memory: SharedMemory, start: u64, address: u64) -> Option<MemoryFault> {
        let Fault { offset, poisoned } = self.guard.fault()?;
        let mapped_bytes = self.used_bytes;
        let file_bytes = self.region.file_offset().and_then(|file| Some(file.file().metadata().ok()?.len()));
        let reason = match file_bytes {
            Some(file_bytes) if file_bytes < mapped_bytes => FaultReason::Truncated { file_bytes, mapped_bytes },
            _ if poisoned => FaultReason::Poisoned,
            _ => FaultReason::Missing,
        };
        Some(MemoryFault { memory, address: address + (offset as u64).saturating_sub(start), reason })
    }

    pub(crate) fn has_faulted(&self) -> bool {
        memory_faults::any() && self.guard.fault().is_some()
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.region.fmt(f)
    }
}

#[derive(Clone, Debug)]
struct Region {
    layout: RegionLayout,
    mapping: Arc<Mapping>,
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
        let first = self.mapping.region().as_ptr().addr() as u64 + self.layout.file_offset;
        let offset = (host.addr().get() as u64).checked_sub(first)?;
        (offset < self.layout.bytes).then_some(offset)
    }

    /// The part of `[offset, offset + bytes)` of this region that lies in it; `offset` does.
    fn slice(&self, offset: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        let bytes = bytes.min(self.layout.bytes.checked_sub(offset)?);
        let start = usize::try_from(self.layout.file_offset.checked_add(offset)?).ok()?;
        self.mapping.region().get_slice(start, usize::try_from(bytes).ok()?).ok()
    }

    /// Where the bytes lie in the mapping, if all of them do in the region.
    fn mapped_offset(&self, host: NonNull<u8>, bytes: usize) -> Option<usize> {
        let offset = self.offset_of(host)?;
        let inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.layout.bytes);
        inside.then(|| (offset + self.layout.file_offset) as usize)
    }
}

/// Maps the first `bytes` of a file of the front-end's.
///
/// From offset 0, not from where in it something begins: on hugetlbfs an offset must be a multiple of the huge page, which a
/// region's offset (QEMU splits below 1 MiB) is not. Only address space is spent.
pub(crate) fn map_file(file: File, bytes: u64) -> Result<Mapping, MemoryError> {
    let metadata = file.metadata().map_err(MemoryError::File)?;
    let too_short = MemoryError::BeyondFile { file_bytes: metadata.len(), region_end: bytes };
    if metadata.is_file() && metadata.len() < bytes {
        return Err(too_short);
    }
    let page_bytes = page_bytes(&file).map_err(MemoryError::File)?;
    // The kernel maps, and unmaps, whole pages.
    let mapped_bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(page_bytes));
    let Some(mapped_bytes) = mapped_bytes else { return Err(too_short) };
    let region = MmapRegion::from_file(FileOffset::new(file, 0), mapped_bytes).map_err(MemoryError::Map)?;
    Mapping::guarded(region, page_bytes, bytes)
}

/// The size of the pages in which a file is mapped.
fn page_bytes(file: &File) -> io::Result<usize> {
    let status = fstatfs(file)?;
    let huge = (status.f_type == libc::HUGETLBFS_MAGIC).then(|| usize::try_from(status.f_bsize).ok()).flatten();
    Ok(huge.unwrap_or_else(rustix::param::page_size))
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

    /// What is to be said of memory that could not be accessed, if there is any.
    pub(crate) fn fault(&self, memory: SharedMemory) -> Option<MemoryFault> {
        let fault = |Region { layout, mapping }: &Region| mapping.fault(memory, layout.file_offset, layout.guest_start);
        self.has_faulted().then(|| self.regions.iter().find_map(fault)).flatten()
    }

    /// Whether any of it could not be accessed. What was read before this was asked may be zeroes then, and what was written lost.
    pub(crate) fn has_faulted(&self) -> bool {
        memory_faults::any() && self.regions.iter().any(|region| region.mapping.has_faulted())
    }

    /// Whether these bytes of a region may have been lost with a page that could not be accessed.
    pub(crate) fn has_lost(&self, host: NonNull<u8>, bytes: usize) -> bool {
        let lost = |region: &Region| {
            let offset = region.mapped_offset(host, bytes);
            offset.is_some_and(|offset| region.mapping.guard().has_lost(offset, bytes))
        };
        memory_faults::any() && self.regions.iter().any(lost)
    }

    /// Gives up the pages of these ranges that cannot be read; all of them, if all can: the kernel could not access one of them a moment
    /// ago, and would be asked for ever. `false` if not all of them are in the regions, or there is no memory to replace them.
    pub(crate) fn give_up(&self, ranges: &[(NonNull<u8>, usize)]) -> bool {
        let place = |&(host, bytes): &(NonNull<u8>, usize)| {
            let in_region = |region: &Region| Some((region.mapping.clone(), region.mapped_offset(host, bytes)?, bytes));
            self.regions.iter().find_map(in_region)
        };
        let Some(places) = ranges.iter().map(place).collect::<Option<Vec<_>>>() else { return false };
        let touch = |found, (mapping, offset, bytes): &(Arc<Mapping>, usize, usize)| {
            mapping.guard().touch(*offset, *bytes) || found
        };
        let discard =
            |(mapping, offset, bytes): &(Arc<Mapping>, usize, usize)| mapping.guard().discard(*offset, *bytes);
        places.iter().fold(false, touch) || places.iter().all(discard)
    }

    /// Gives up all of it: from now on nothing that is written reaches anybody, and zeroes are read. `false` if the kernel has no
    /// memory for that.
    #[must_use]
    pub(crate) fn discard(&self) -> bool {
        self.regions.iter().all(|Region { mapping, .. }| mapping.guard().discard(0, mapping.region().size()))
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
            let page_bytes = rustix::param::page_size();
            let mapped_bytes = usize::try_from(bytes).unwrap().next_multiple_of(page_bytes);
            let mapping = Mapping::guarded(MmapRegion::new(mapped_bytes).unwrap(), page_bytes, bytes).unwrap();
            memory.insert(Region { layout, mapping: Arc::new(mapping) }).unwrap()
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
