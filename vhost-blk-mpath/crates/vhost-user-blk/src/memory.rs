//! Guest memory that the front-end shares: the mapped regions, and the two kinds of addresses in them.
//!
//! Descriptors carry *guest* addresses. Ring addresses in `VHOST_USER_SET_VRING_ADDR` are *front-end* (user) addresses.

use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{StatFs, fstatfs};
use rustix::mm::{Advice, madvise};
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

use crate::memory_faults::{self, Fault, Guard};

/// Most regions of one connection: QEMU's limit for x86 guests.
pub(crate) const MAX_MEMORY_REGIONS: usize = 509;

/// Why a memory region was refused.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More regions than a connection may have.
    #[error("more than {MAX_MEMORY_REGIONS} memory regions, which is the most of a connection")]
    TooManyRegions,
    /// The address range is empty or wraps.
    #[error("memory region at guest address {guest_start:#x} is empty or wraps")]
    BadRange {
        /// First guest address of the region.
        guest_start: u64,
    },
    /// Two regions have guest addresses in common.
    #[error("memory region at guest address {guest_start:#x} overlaps another")]
    Overlap {
        /// First guest address of the region that came second.
        guest_start: u64,
    },
    /// The file is shorter than the region. An access beyond its end would raise SIGBUS.
    #[error("memory file of {file_bytes:#x} bytes is shorter than its region, which ends at {region_end:#x}")]
    BeyondFile {
        /// Length of the file.
        file_bytes: u64,
        /// End of the region in the file.
        region_end: u64,
    },
    /// No such region is mapped.
    #[error("no memory region at guest address {guest_start:#x}")]
    NoSuchRegion {
        /// First guest address named in the request.
        guest_start: u64,
    },
    /// The file cannot be examined.
    #[error("cannot examine the memory file: {0}")]
    File(#[source] io::Error),
    /// A process of the host or another host serves the file system.
    #[error(
        "memory is on a {file_system} file system, whose server could hang disks of other guests; give QEMU a memory-backend-memfd, or a memory-backend-file on tmpfs or hugetlbfs"
    )]
    RemoteFile {
        /// The kind of file system.
        file_system: &'static str,
    },
    /// The file cannot be mapped.
    #[error("cannot map guest memory: {0}; QEMU has to share memory that can be read and written: `share=on`")]
    Map(#[source] vm_memory::mmap::MmapRegionError),
    /// The SIGBUS guard of the mapping could not be set up.
    #[error("cannot guard a mapping of guest memory against faults: {0}")]
    Guard(#[source] io::Error),
}

/// The purpose of memory that a front-end shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemory {
    /// Guest memory.
    Guest,
    /// The in-flight log.
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

/// An access to shared memory that failed. The affected requests fail, and the back-end hangs up on the front-end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{memory} {address:#x} cannot be accessed: {reason}")]
pub struct MemoryFault {
    /// The purpose of the memory.
    pub memory: SharedMemory,
    /// Guest address or offset of the first byte that could not be accessed, or of one shortly before it.
    pub address: u64,
    /// The cause.
    pub reason: FaultReason,
}

/// Why mapped memory cannot be accessed, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// The file was truncated while it was mapped.
    Truncated {
        /// Length of the file.
        file_bytes: u64,
        /// Bytes of the file that were mapped.
        mapped_bytes: u64,
    },
    /// The page has a hardware memory error.
    Poisoned,
    /// The file has its full length, but pages are missing.
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

/// The place of a region in each of its three address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    pub(crate) guest_start: u64,
    pub(crate) user_start: u64,
    pub(crate) bytes: u64,
    /// Offset of the region in its file.
    pub(crate) file_offset: u64,
}

/// A guarded mapping: a fault in it affects only its front-end.
pub(crate) struct Mapping {
    /// Declared before the region, so that it is dropped before the region is unmapped.
    guard: Guard,
    region: MmapRegion<()>,
    /// Bytes in use, from the start of the mapping.
    used_bytes: u64,
}

impl Mapping {
    /// Guards a region. Its length is a multiple of `page_bytes`, the size of its pages.
    fn guarded(region: MmapRegion<()>, page_bytes: usize, used_bytes: u64) -> Result<Self, MemoryError> {
        // SAFETY: the kernel maps at multiples of a page. The region is unmapped after the guard is dropped. All
        // accesses to bytes that another process shares are volatile or atomic.
        let guard = unsafe { Guard::new(region.as_ptr(), region.size(), page_bytes) };
        Ok(Self { guard: guard.map_err(MemoryError::Guard)?, region, used_bytes })
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn region(&self) -> &MmapRegion<()> {
        &self.region
    }

    /// The first fault of the mapping, for the error message. The memory begins at `start` in the mapping and has the
    /// address `address`.
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
        memory_faults::any_fault() && self.guard.fault().is_some()
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
        let mapping = Arc::new(map_file(file, region_end)?);
        tracing::debug!(
            guest_address = format_args!("{guest_start:#x}"),
            user_address = format_args!("{user_start:#x}"),
            bytes,
            file_offset,
            "guest memory mapped"
        );
        Ok(Self { layout, mapping })
    }

    /// Offset in the region of a byte of this process, if it lies in the region.
    fn offset_of(&self, host: NonNull<u8>) -> Option<u64> {
        let first = self.mapping.region().as_ptr().addr() as u64 + self.layout.file_offset;
        let offset = (host.addr().get() as u64).checked_sub(first)?;
        (offset < self.layout.bytes).then_some(offset)
    }

    /// Offset in the region of a guest address, if it lies in the region.
    fn guest_offset(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.layout.guest_start);
        (offset < self.layout.bytes).then_some(offset)
    }

    /// The byte at an offset that lies in the region. The mapping covers the region, so the sum is in it.
    fn host(&self, offset: u64) -> *mut u8 {
        self.mapping.region().as_ptr().wrapping_add((self.layout.file_offset + offset) as usize)
    }

    /// The part of `[offset, offset + bytes)` that lies in the region. `offset` itself must lie in it.
    fn slice(&self, offset: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        let bytes = bytes.min(self.layout.bytes.checked_sub(offset)?);
        let start = usize::try_from(self.layout.file_offset.checked_add(offset)?).ok()?;
        self.mapping.region().get_slice(start, usize::try_from(bytes).ok()?).ok()
    }

    /// Offset of the bytes in the mapping, if all of them lie in the region.
    fn mapped_offset(&self, host: NonNull<u8>, bytes: usize) -> Option<usize> {
        let offset = self.offset_of(host)?;
        let inside = offset.checked_add(bytes as u64).is_some_and(|end| end <= self.layout.bytes);
        inside.then(|| (offset + self.layout.file_offset) as usize)
    }
}

/// Maps the first `bytes` of a front-end's file.
///
/// The mapping starts at offset 0 of the file. On hugetlbfs an offset must be a multiple of the huge page, and a
/// region's offset need not be: QEMU splits below 1 MiB. This spends address space only.
pub(crate) fn map_file(file: File, bytes: u64) -> Result<Mapping, MemoryError> {
    let metadata = file.metadata().map_err(MemoryError::File)?;
    let too_short = MemoryError::BeyondFile { file_bytes: metadata.len(), region_end: bytes };
    if metadata.is_file() && metadata.len() < bytes {
        return Err(too_short);
    }
    let file_system = fstatfs(&file).map_err(|errno| MemoryError::File(errno.into()))?;
    if let Some(file_system) = remote(&file_system) {
        return Err(MemoryError::RemoteFile { file_system });
    }
    let page_bytes = page_bytes(&file_system);
    // The kernel maps and unmaps whole pages.
    let mapped_bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(page_bytes));
    let Some(mapped_bytes) = mapped_bytes else { return Err(too_short) };
    let region = MmapRegion::from_file(FileOffset::new(file, 0), mapped_bytes).map_err(MemoryError::Map)?;
    // The kernel may know no such advice, and the core dump is then larger.
    // SAFETY: all pages of a mapping of this function, whose content the advice leaves as it is.
    let _ = unsafe { madvise(region.as_ptr().cast(), mapped_bytes, Advice::LinuxDontDump) };
    Mapping::guarded(region, page_bytes, bytes)
}

/// File systems whose server decides how long an access to mapped memory takes, by their magic numbers. An I/O thread that waits for
/// one serves no other disk.
const REMOTE_FILE_SYSTEMS: [(libc::__fsword_t, &str); 7] = [
    (libc::FUSE_SUPER_MAGIC, "FUSE"),
    (libc::NFS_SUPER_MAGIC, "NFS"),
    (libc::SMB_SUPER_MAGIC, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
];

/// The name of a remote file system.
fn remote(file_system: &StatFs) -> Option<&'static str> {
    REMOTE_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == file_system.f_type).map(|(_, name)| *name)
}

/// The size of the pages in which a file of this file system is mapped.
fn page_bytes(file_system: &StatFs) -> usize {
    let huge =
        (file_system.f_type == libc::HUGETLBFS_MAGIC).then(|| usize::try_from(file_system.f_bsize).ok()).flatten();
    huge.unwrap_or_else(rustix::param::page_size)
}

/// A range of guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestRange {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// An immutable memory map. A change makes a new map, which shares the unchanged mappings. A mapping lives as long as
/// any map that has it, so requests in flight keep their buffers mapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestMemory {
    /// Sorted by guest address, without overlaps.
    regions: Vec<Region>,
    hint: RegionHint,
}

/// Index of the region that was found last. Any value is allowed: it is only the first region to be tried.
#[derive(Debug, Default)]
struct RegionHint(AtomicUsize);

impl Clone for RegionHint {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl GuestMemory {
    /// This map with one more region.
    pub(crate) fn with_region(&self, layout: RegionLayout, file: File) -> Result<Self, MemoryError> {
        if self.regions.len() >= MAX_MEMORY_REGIONS {
            return Err(MemoryError::TooManyRegions);
        }
        self.insert(Region::map(layout, file)?)
    }

    /// This map without the region. The offset in its file is not compared (vhost-user, `REM_MEM_REG`).
    pub(crate) fn without_region(&self, layout: &RegionLayout) -> Result<Self, MemoryError> {
        let same = |region: &Region| {
            let have = region.layout;
            (have.guest_start, have.user_start, have.bytes) == (layout.guest_start, layout.user_start, layout.bytes)
        };
        let mut regions = self.regions.clone();
        let at = regions.iter().position(same).ok_or(MemoryError::NoSuchRegion { guest_start: layout.guest_start })?;
        regions.remove(at);
        Ok(Self::of(regions))
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
        Ok(Self::of(regions))
    }

    fn of(regions: Vec<Region>) -> Self {
        Self { regions, hint: RegionHint::default() }
    }

    /// The region of a guest address.
    fn region_of(&self, address: u64) -> Option<&Region> {
        let hinted = self.regions.get(self.hint.0.load(Ordering::Relaxed));
        hinted.filter(|region| region.guest_offset(address).is_some()).or_else(|| {
            let at = self.regions.partition_point(|region| region.layout.guest_start <= address).checked_sub(1)?;
            self.hint.0.store(at, Ordering::Relaxed);
            self.regions.get(at).filter(|region| region.guest_offset(address).is_some())
        })
    }

    /// The mapped bytes from guest address `address` on: at most `bytes`, at least one, and only up to the end of the
    /// region.
    pub(crate) fn locate(&self, address: u64, bytes: u32) -> Option<(NonNull<u8>, u32)> {
        let region = self.region_of(address)?;
        let offset = region.guest_offset(address)?;
        // At most `bytes`.
        let taken = u64::from(bytes).min(region.layout.bytes - offset) as u32;
        Some((NonNull::new(region.host(offset))?, taken)).filter(|_| taken > 0)
    }

    /// The mapped bytes from guest address `address` on: at most `bytes`, and only up to the end of the region.
    pub(crate) fn guest_slice(&self, address: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        let region = self.region_of(address)?;
        let slice = region.slice(region.guest_offset(address)?, bytes)?;
        (!slice.is_empty()).then_some(slice)
    }

    /// `N` pairs of little-endian words from guest address `address` on, each word read once. `None` unless they are aligned
    /// and lie in one region.
    pub(crate) fn word_pairs<const N: usize>(&self, address: u64) -> Option<[[u64; 2]; N]> {
        let wanted = size_of::<[[u64; 2]; N]>() as u32;
        let (start, taken) = self.locate(address, wanted)?;
        let pairs = Some(start.cast::<[[u64; 2]; N]>()).filter(|pairs| taken == wanted && pairs.is_aligned())?;
        // SAFETY: the words lie in one mapping of this map and are aligned, and any bytes are valid words. The guest may
        // change them at the same time, which the volatile read allows for.
        Some(unsafe { pairs.read_volatile() }.map(|pair| pair.map(u64::from_le)))
    }

    /// Whether guest addresses `[address, address + bytes)` are mapped, perhaps in several regions.
    pub(crate) fn contains(&self, mut address: u64, mut bytes: u64) -> bool {
        while let Some(slice) = self.guest_slice(address, bytes) {
            let mapped = slice.len() as u64;
            bytes -= mapped;
            match address.checked_add(mapped) {
                Some(next) if bytes > 0 => address = next,
                _ => return bytes == 0,
            }
        }
        false
    }

    /// The guest address of a byte that [`guest_slice`](Self::guest_slice) found.
    pub(crate) fn guest_address(&self, host: NonNull<u8>) -> Option<u64> {
        self.regions.iter().find_map(|region| Some(region.layout.guest_start + region.offset_of(host)?))
    }

    /// The first guest address behind all regions.
    pub(crate) fn guest_end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.layout.guest_start + region.layout.bytes)
    }

    /// The first fault in the map, if there was one.
    pub(crate) fn fault(&self, memory: SharedMemory) -> Option<MemoryFault> {
        let fault = |Region { layout, mapping }: &Region| mapping.fault(memory, layout.file_offset, layout.guest_start);
        self.has_faulted().then(|| self.regions.iter().find_map(fault)).flatten()
    }

    /// Whether an access to the map has failed. If so, earlier reads may have returned zeroes, and earlier writes may
    /// be lost.
    pub(crate) fn has_faulted(&self) -> bool {
        memory_faults::any_fault() && self.regions.iter().any(|region| region.mapping.has_faulted())
    }

    /// Whether these bytes may lie in a page that was replaced after a fault.
    pub(crate) fn has_lost(&self, host: NonNull<u8>, bytes: usize) -> bool {
        let lost = |region: &Region| {
            let offset = region.mapped_offset(host, bytes);
            offset.is_some_and(|offset| region.mapping.guard().has_lost(offset, bytes))
        };
        memory_faults::any_fault() && self.regions.iter().any(lost)
    }

    /// Replaces the pages of these ranges that cannot be read. Replaces all of them if all can be read: the kernel has
    /// just failed to access one of them, and would fail for ever. Returns `false` if a range is not in the regions, or
    /// if there is no memory for new pages.
    pub(crate) fn replace_inaccessible(&self, ranges: &[(NonNull<u8>, usize)]) -> bool {
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

    /// Replaces all pages by private zeroes: the front-end sees no further writes. Returns `false` if the kernel has no
    /// memory for that.
    #[must_use]
    pub(crate) fn discard(&self) -> bool {
        self.regions.iter().all(|Region { mapping, .. }| mapping.guard().discard(0, mapping.region().size()))
    }

    /// Exactly `bytes` bytes from front-end address `address` on, all in one region.
    pub(crate) fn user_slice(&self, address: u64, bytes: u64) -> Option<VolatileSlice<'_>> {
        self.regions.iter().find_map(|region| {
            let offset = address.checked_sub(region.layout.user_start)?;
            let end = offset.checked_add(bytes)?;
            (end <= region.layout.bytes).then(|| region.slice(offset, bytes)).flatten()
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
