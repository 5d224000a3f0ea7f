//! The `io_uring` of one I/O thread and the operations it carries.
//!
//! `unsafe` of this crate lives here. The rule that makes it sound: memory the kernel may touch belongs to a slot
//! ([`SendSlot`], [`RecvSlot`]) or is guest memory that the caller keeps mapped; a slot is reused only after its
//! completion was reaped, and one dropped before that leaks its buffers rather than free them under the kernel.

use std::io;

mod recv;
mod ring;
mod send;
#[cfg(test)]
mod tests;

pub(crate) use recv::{Received, RecvSlot};
pub use ring::RingError;
pub(crate) use ring::{Event, Ring};
pub(crate) use send::{SendPart, SendSlot, Sent};

fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: null pointers with zero lengths.
    unsafe { std::mem::zeroed() }
}

/// What the kernel reports: bytes, or `-errno`.
fn bytes_or_error(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
