//! One part of a ring in guest memory, checked once and then read and written by index.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use vm_memory::ByteValued;

use super::RingError;
use crate::memory::GuestMemory;

/// `count` values of `T` in mapped guest memory, aligned for `T`. The guest may change them at any time.
#[derive(Debug)]
pub(super) struct Area<T> {
    start: NonNull<T>,
    count: usize,
    /// Keeps the area mapped.
    _memory: Arc<GuestMemory>,
}

// SAFETY: the pointer leads into a shared mapping that `_memory` keeps alive wherever the area goes, and all accesses are
// volatile or atomic. There is no Sync: one thread at a time walks a ring.
unsafe impl<T: Send> Send for Area<T> {}

impl<T: ByteValued> Area<T> {
    /// The area of `count` values at front-end address `address`.
    pub(super) fn new(memory: &Arc<GuestMemory>, address: u64, count: usize) -> Result<Self, RingError> {
        let bytes = (count * mem::size_of::<T>()) as u64;
        let slice = memory.user_slice(address, bytes).ok_or(RingError::Unmapped { address, bytes })?;
        let start = NonNull::new(slice.ptr_guard_mut().as_ptr().cast::<T>());
        let start = start.filter(|start| start.is_aligned()).ok_or(RingError::Misaligned { address })?;
        Ok(Self { start, count, _memory: Arc::clone(memory) })
    }

    /// Copies value `index` out, once.
    pub(super) fn read(&self, index: usize) -> T {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        // SAFETY: in bounds by the assertion, aligned and mapped by construction, and any bytes are a valid `T`.
        unsafe { self.start.add(index).read_volatile() }
    }

    /// Writes value `index`.
    pub(super) fn write(&self, index: usize, value: T) {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        // SAFETY: as in `read`.
        unsafe { self.start.add(index).write_volatile(value) }
    }
}

impl Area<u16> {
    /// Loads the little-endian value `index`.
    pub(super) fn load(&self, index: usize, order: Ordering) -> u16 {
        u16::from_le(self.atomic(index).load(order))
    }

    /// Stores the little-endian value `index`.
    pub(super) fn store(&self, index: usize, value: u16, order: Ordering) {
        self.atomic(index).store(value.to_le(), order);
    }

    fn atomic(&self, index: usize) -> &AtomicU16 {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        // SAFETY: in bounds by the assertion, aligned and mapped by construction for as long as `self` lives. Our side
        // accesses these words by this function alone; the guest's side is another process or CPU that does 16-bit accesses.
        unsafe { AtomicU16::from_ptr(self.start.add(index).as_ptr()) }
    }
}
