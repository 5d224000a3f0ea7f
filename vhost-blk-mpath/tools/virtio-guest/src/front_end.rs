//! What a front-end passes: the memory of its guest, and the place of each virtqueue in it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::Frontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};

use crate::ring::RingLayout;

/// The address of the memory for the guest.
pub const GUEST_START: u64 = 0x4000_0000;
/// The address of the memory for the front-end.
const USER_START: u64 = 0x7f00_0000_0000;
/// The smallest size of a page, and the memory that one bit of a dirty log stands for.
pub const PAGE_BYTES: u64 = 4096;

/// A file of `bytes` in memory, all zero.
///
/// # Panics
///
/// If there is not enough memory.
#[must_use]
pub fn memory_file(bytes: u64) -> File {
    let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory for a small guest"));
    file.set_len(bytes).expect("memory for a small guest");
    file
}

/// The memory of a guest that has `bytes` in a file.
#[must_use]
pub fn memory_region(file: &File, bytes: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST_START,
        memory_size: bytes,
        userspace_addr: USER_START,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

/// The addresses of a ring. `is_logged`: the device marks its used ring in the dirty log.
#[must_use]
pub fn ring_addresses(ring: &RingLayout, is_logged: bool) -> VringConfigData {
    let user = |address: u64| USER_START + (address - GUEST_START);
    VringConfigData {
        queue_max_size: ring.size,
        queue_size: ring.size,
        flags: is_logged.into(),
        desc_table_addr: user(ring.descriptors),
        used_ring_addr: user(ring.used),
        avail_ring_addr: user(ring.available),
        log_addr: is_logged.then_some(ring.used),
    }
}

/// Sets the position of a virtqueue. The `vhost` crate sends only 16 bits of a position. A longer one needs a back-end
/// that replies.
///
/// # Errors
///
/// If the back-end refuses the position, or is gone.
pub fn set_vring_base(frontend: &Frontend, index: usize, position: u32) -> Result<(), vhost::Error> {
    if let Ok(base) = u16::try_from(position) {
        return frontend.set_vring_base(index, base);
    }
    // SAFETY: the descriptor is borrowed for this call only, while `frontend` lives.
    let socket = unsafe { BorrowedFd::borrow_raw(frontend.as_raw_fd()) };
    // SET_VRING_BASE, version 1 with a reply wanted, 8 bytes.
    let message: Vec<u8> = [10, 9, 8, index as u32, position].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut reply = [0xff; 20];
    let exchange = |mut socket: UnixStream| socket.write_all(&message).and_then(|()| socket.read_exact(&mut reply));
    socket.try_clone_to_owned().map(UnixStream::from).and_then(exchange).map_err(vhost::Error::IOError)?;
    if reply[12..] == [0; 8] { Ok(()) } else { Err(vhost::Error::IOError(io::ErrorKind::InvalidInput.into())) }
}
