//! An array of values in shared memory: part of a ring or of an in-flight log. It is checked once, then read and
//! written by index. Ring pointers are followed only here.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{AtomicAccess, AtomicInteger, ByteValued};

use crate::memory::GuestMemory;

/// Why an area cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// The area does not lie in one memory region.
    #[error("ring area of {bytes} bytes at front-end address {address:#x} is not in one memory region")]
    Unmapped {
        /// Front-end address of the area.
        address: u64,
        /// Length of the area.
        bytes: u64,
    },
    /// The area is not aligned to its values, as virtio 1.2, 2.7 and 2.8 require of a ring.
    #[error("ring area at front-end address {address:#x} is misaligned")]
    Misaligned {
        /// Front-end address of the area.
        address: u64,
    },
}

/// `count` values of `T` in mapped memory, aligned for `T`. The guest or the front-end may change them at any time.
#[derive(Debug)]
pub(crate) struct Area<T> {
    start: NonNull<T>,
    count: usize,
    /// Keeps the area mapped.
    memory: Arc<GuestMemory>,
}

// SAFETY: the pointer leads into a shared mapping that `memory` keeps alive wherever the area goes, and all accesses
// are volatile or atomic. There is no Sync: one thread at a time uses a ring.
unsafe impl<T: Send> Send for Area<T> {}

impl<T: ByteValued> Area<T> {
    /// The area of `count` values at front-end address `address`.
    pub(crate) fn new(memory: &Arc<GuestMemory>, address: u64, count: usize) -> Result<Self, AreaError> {
        let bytes = (count * mem::size_of::<T>()) as u64;
        let slice = memory.user_slice(address, bytes).ok_or(AreaError::Unmapped { address, bytes })?;
        let start = NonNull::new(slice.ptr_guard_mut().as_ptr().cast::<T>());
        let start = start.filter(|start| start.is_aligned()).ok_or(AreaError::Misaligned { address })?;
        Ok(Self { start, count, memory: Arc::clone(memory) })
    }

    /// Guest address of the area.
    pub(crate) fn guest_start(&self) -> u64 {
        self.memory.guest_address(self.start.cast()).expect("an area was found in its memory map")
    }

    /// Whether part of the area may lie in a page that was replaced after a fault.
    pub(crate) fn has_lost(&self) -> bool {
        self.memory.has_lost(self.start.cast(), self.count * mem::size_of::<T>())
    }

    /// Copies value `index` out, once.
    pub(crate) fn read(&self, index: usize) -> T {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        // SAFETY: in bounds by the assertion, aligned and mapped by construction, and any bytes are a valid `T`.
        unsafe { self.start.add(index).read_volatile() }
    }

    /// Writes value `index`.
    pub(crate) fn write(&self, index: usize, value: T) {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        #[cfg(test)]
        crate::testing::before_store();
        // SAFETY: as in `read`.
        unsafe { self.start.add(index).write_volatile(value) }
    }
}

impl<T: AtomicAccess> Area<T> {
    /// Loads value `index`, in the byte order of the host, with acquire ordering.
    pub(crate) fn get(&self, index: usize) -> T {
        self.atomic(index).load(Ordering::Acquire).into()
    }

    /// Stores value `index`, in the byte order of the host, with release ordering.
    pub(crate) fn set(&self, index: usize, value: T) {
        #[cfg(test)]
        crate::testing::before_store();
        self.atomic(index).store(value.into(), Ordering::Release);
    }

    fn atomic(&self, index: usize) -> &T::A {
        assert!(index < self.count, "index {index} of a ring area of {}", self.count);
        // SAFETY: in bounds by the assertion, aligned and mapped by construction for as long as `self` lives, and an
        // atomic may be referred to in place (`AtomicInteger`). This process uses one thread, whose accesses to the
        // same bytes in another width cannot race with these. The other side is another process or CPU.
        unsafe { self.start.cast::<T::A>().add(index).as_ref() }
    }
}

impl Area<u16> {
    /// Loads the little-endian value `index`.
    pub(crate) fn load(&self, index: usize, order: Ordering) -> u16 {
        u16::from_le(self.atomic(index).load(order))
    }

    /// Stores the little-endian value `index`.
    pub(crate) fn store(&self, index: usize, value: u16, order: Ordering) {
        #[cfg(test)]
        crate::testing::before_store();
        self.atomic(index).store(value.to_le(), order);
    }
}
