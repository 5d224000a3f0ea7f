//! The guest buffers of a request: address ranges that are checked and translated once, and stay mapped.

use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;
use vm_memory::VolatileSlice;

use crate::memory::{GuestMemory, GuestRange};

/// Segments of a request before its list moves to the heap.
const INLINE_SEGMENTS: usize = 2;

/// A range of mapped guest memory. It is valid only while its memory map lives, so it is never handed out alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    start: NonNull<u8>,
    bytes: u32,
}

impl Segment {
    /// The guest addresses `[address, address + bytes)`, if they lie in one region of memory.
    pub(crate) fn at(memory: &GuestMemory, address: u64, bytes: u32) -> Option<Self> {
        let (start, taken) = memory.locate(address, bytes)?;
        (taken == bytes).then_some(Self { start, bytes })
    }
}

// SAFETY: a mapping is the same on every thread, and a segment is followed only in `Segments`, which keeps it mapped,
// by volatile accesses, which need no exclusive owner.
unsafe impl Send for Segment {}
// SAFETY: as for Send; a shared reference allows the same volatile accesses only.
unsafe impl Sync for Segment {}

/// One byte of mapped guest memory. It is valid as long as a [`Segment`] is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestByte(NonNull<u8>);

// SAFETY: a mapping is the same on every thread, and `write` requires that it still exists.
unsafe impl Send for GuestByte {}

impl GuestByte {
    /// The byte at a guest address, if it is mapped.
    pub(crate) fn at(memory: &GuestMemory, address: u64) -> Option<Self> {
        memory.locate(address, 1).map(|(place, _)| Self(place))
    }

    pub(crate) fn place(self) -> NonNull<u8> {
        self.0
    }

    /// Writes the byte.
    ///
    /// # Safety
    ///
    /// A memory map that the byte came from is still alive.
    pub(crate) unsafe fn write(self, value: u8) {
        #[cfg(test)]
        crate::testing::before_store();
        // SAFETY: the byte was inside a mapping when made, and the caller promises that the mapping still exists. The
        // guest may access it at the same time, which the volatile write allows for.
        unsafe { self.0.as_ptr().write_volatile(value) }
    }
}

/// A list of guest memory ranges, read and written as one run of bytes. It keeps them mapped.
///
/// The guest can change the bytes at any time, so no method returns a reference to them.
#[derive(Debug)]
pub struct Segments {
    memory: Arc<GuestMemory>,
    list: SmallVec<[Segment; INLINE_SEGMENTS]>,
    bytes: u64,
}

impl Segments {
    pub(crate) fn new(memory: Arc<GuestMemory>) -> Self {
        Self { memory, list: SmallVec::new(), bytes: 0 }
    }

    /// A list of one segment.
    ///
    /// # Safety
    ///
    /// The segment was found in `memory`.
    pub(crate) unsafe fn one(memory: Arc<GuestMemory>, segment: Segment) -> Self {
        let mut list = SmallVec::new();
        list.push(segment);
        Self { memory, list, bytes: segment.bytes.into() }
    }

    /// The length of all segments.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    /// Appends guest addresses `[address, address + bytes)`. Returns `false` if any of them is not mapped or the range
    /// wraps. A part may be appended then.
    pub(crate) fn push_guest_range(&mut self, address: u64, bytes: u32) -> bool {
        let (mut address, mut left) = (address, bytes);
        while left > 0 {
            let Some((start, taken)) = self.memory.locate(address, left) else { return false };
            self.list.push(Segment { start, bytes: taken });
            self.bytes += u64::from(taken);
            left -= taken;
            // In range: the end of a region is an address too.
            address += u64::from(taken);
        }
        true
    }

    pub(crate) fn last_byte(&self) -> Option<GuestByte> {
        let last = self.list.last()?;
        // SAFETY: a segment has at least one byte, and all of them are in one mapping.
        Some(GuestByte(unsafe { last.start.add(last.bytes as usize - 1) }))
    }

    /// The guest addresses of the segments.
    pub(crate) fn guest_ranges(&self) -> impl Iterator<Item = GuestRange> + '_ {
        self.list.iter().map(|segment| {
            let start = self.memory.guest_address(segment.start).expect("a segment was found in its memory map");
            GuestRange { start, bytes: segment.bytes.into() }
        })
    }

    /// The bytes `[offset, offset + bytes)` as a list of its own. `memory` is the memory map of this list.
    pub(crate) fn part(&self, memory: Arc<GuestMemory>, offset: u64, bytes: u64) -> Self {
        // Header or status are mostly in a segment of their own.
        let mut list = SmallVec::with_capacity(self.list.len().saturating_sub(1));
        list.extend(self.ranges(offset, bytes));
        Self { memory, list, bytes }
    }

    /// The memory map, for another list.
    pub(crate) fn into_memory(self) -> Arc<GuestMemory> {
        self.memory
    }

    /// The memory behind the bytes `[offset, offset + bytes)`, for vectored I/O. It is valid as long as `self` lives.
    ///
    /// # Panics
    ///
    /// If the range is not inside the segments.
    pub fn iovecs(&self, offset: u32, bytes: u32) -> impl Iterator<Item = libc::iovec> + '_ {
        self.ranges(u64::from(offset), u64::from(bytes))
            .map(|segment| libc::iovec { iov_base: segment.start.as_ptr().cast(), iov_len: segment.bytes as usize })
    }

    /// Replaces pages of these [ranges](Self::iovecs) that the kernel could not access (`EFAULT`) by private zeroes, so
    /// that the operation can be repeated. The [`Queue`](crate::Queue) reports no success from then on. Returns `false`
    /// if a range is not in this request's guest memory, or if the host has no memory for new pages.
    #[must_use]
    pub fn replace_inaccessible(&self, ranges: &[libc::iovec]) -> bool {
        let place = |range: &libc::iovec| Some((NonNull::new(range.iov_base.cast())?, range.iov_len));
        ranges
            .iter()
            .map(place)
            .collect::<Option<Vec<_>>>()
            .is_some_and(|places| self.memory.replace_inaccessible(&places))
    }

    /// Copies bytes from `offset` on out of guest memory, until `to` is full.
    ///
    /// # Panics
    ///
    /// If the range is not inside the segments.
    pub fn copy_to(&self, offset: u32, to: &mut [u8]) {
        let mut rest = to;
        for segment in self.ranges(u64::from(offset), rest.len() as u64) {
            let (now, later) = rest.split_at_mut(segment.bytes as usize);
            self.slice(&segment).copy_to(now);
            rest = later;
        }
    }

    /// Copies `from` into guest memory, from byte `offset` on.
    ///
    /// # Panics
    ///
    /// If the range is not inside the segments.
    pub fn copy_from(&self, offset: u32, from: &[u8]) {
        let mut rest = from;
        for segment in self.ranges(u64::from(offset), rest.len() as u64) {
            let (now, later) = rest.split_at(segment.bytes as usize);
            self.slice(&segment).copy_from(now);
            rest = later;
        }
    }

    #[allow(clippy::unused_self)] // `self` provides the lifetime
    fn slice(&self, segment: &Segment) -> VolatileSlice<'_> {
        // SAFETY: a segment lies in one mapping of `self.memory`, which the returned lifetime is bound to.
        unsafe { VolatileSlice::new(segment.start.as_ptr(), segment.bytes as usize) }
    }

    fn ranges(&self, offset: u64, bytes: u64) -> Ranges<'_> {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "bytes {offset}+{bytes} of a request that has {}", self.bytes);
        Ranges { segments: self.list.iter(), skip: offset, left: bytes }
    }
}

/// Cuts a range of bytes out of segments.
struct Ranges<'a> {
    segments: slice::Iter<'a, Segment>,
    /// Bytes before the range.
    skip: u64,
    /// Bytes of the range.
    left: u64,
}

impl Iterator for Ranges<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        while self.left > 0 {
            let Segment { start, bytes } = *self.segments.next()?;
            let have = u64::from(bytes);
            if self.skip >= have {
                self.skip -= have;
                continue;
            }
            // SAFETY: `skip` is less than the segment's length.
            let start = unsafe { start.add(self.skip as usize) };
            let taken = (have - self.skip).min(self.left);
            (self.skip, self.left) = (0, self.left - taken);
            // At most the segment's length.
            return Some(Segment { start, bytes: taken as u32 });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::tests::anonymous;

    fn scattered(ranges: &[(u64, u32)]) -> Segments {
        let mut segments = Segments::new(Arc::new(anonymous(&[(0, 0x1_0000), (0x1_0000, 0x1_0000)])));
        for &(address, bytes) in ranges {
            assert!(segments.push_guest_range(address, bytes));
        }
        segments
    }

    #[test]
    fn a_range_over_two_regions_is_split() {
        let segments = scattered(&[(0xfff0, 0x20)]);
        assert_eq!(segments.bytes(), 0x20);
        assert_eq!(segments.iovecs(0, 0x20).map(|iovec| iovec.iov_len).collect::<Vec<_>>(), [0x10, 0x10]);
    }

    #[test]
    fn unmapped_and_wrapping_ranges_are_refused() {
        let mut segments = scattered(&[]);
        for (address, bytes) in [(0x1_ffff, 2), (0x2_0000, 1), (u64::MAX, 1), (u64::MAX - 1, u32::MAX)] {
            assert!(!segments.push_guest_range(address, bytes), "{address:#x}+{bytes:#x}");
        }
    }

    #[test]
    #[should_panic(expected = "bytes 5+4 of a request that has 8")]
    fn reading_past_the_end_panics() {
        scattered(&[(0, 8)]).copy_to(5, &mut [0; 4]);
    }

    proptest! {
        /// In any layout the segments are one run of bytes: data written in any cut are read back in any other.
        #[test]
        fn segments_are_one_run_of_bytes(
            lengths in prop::collection::vec(1_u32..600, 1..20),
            cut in 0.0..1.0_f64,
        ) {
            let ranges: Vec<_> = lengths.iter().enumerate().map(|(i, &bytes)| (i as u64 * 0x1000 + 7, bytes)).collect();
            let segments = scattered(&ranges);
            let total = segments.bytes() as u32;
            let data: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
            #[allow(clippy::cast_sign_loss)]
            let cut = (f64::from(total) * cut) as u32;
            let (low, high) = data.split_at(cut as usize);
            segments.copy_from(cut, high);
            segments.copy_from(0, low);
            let mut back = vec![0; total as usize];
            segments.copy_to(0, &mut back);
            prop_assert_eq!(&back, &data);
            let part = segments.part(Arc::clone(&segments.memory), u64::from(cut), u64::from(total - cut));
            let mut back = vec![0; high.len()];
            part.copy_to(0, &mut back);
            prop_assert_eq!(&back, high);
            let in_iovecs: usize = segments.iovecs(cut, total - cut).map(|iovec| iovec.iov_len).sum();
            prop_assert_eq!(in_iovecs, high.len());
        }
    }
}
