//! The kernel operations of an I/O thread: [`Ring`] is the interface, [`Uring`] implements it with `io_uring`.
//!
//! `unsafe` of this crate lives here. The rule that makes it sound: memory the kernel may touch belongs to a slot
//! ([`SendSlot`], [`RecvSlot`]), or is guest memory that the caller keeps mapped. A slot is reused only after
//! the end of its operation. A slot that is dropped earlier leaks its buffers rather than free them under the kernel.

use std::io;
use std::os::fd::BorrowedFd;

use low_water::LowWater;

mod recv;
mod send;
mod shared;
mod simulated;
#[cfg(test)]
mod tests;
mod uring;

pub(crate) use recv::{Received, RecvSlot};
pub(crate) use send::{SendPart, SendSlot, Sent};
pub(crate) use shared::SharedRing;
pub use simulated::{SimulatedRing, SocketCall};
pub(crate) use uring::Uring;
pub use uring::{RingError, reset};

/// A completion of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The operation's token.
    pub(crate) token: u64,
    /// Bytes, poll mask or `-errno`.
    pub(crate) result: i32,
    /// Whether the operation is still armed and reports again (multishot).
    pub(crate) more: bool,
}

/// The kernel operations of an I/O thread. Each operation has a token, which its completion names.
pub trait Ring {
    /// A connected socket.
    type Socket;

    /// Reports `token` each time `fd` (an eventfd) is signalled, until [`Ring::unwatch`].
    ///
    /// # Errors
    ///
    /// The ring is unusable. This holds for the other operations too.
    fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;

    /// Ends a watch. Its last event has `more == false`. The removal itself reports `removal_token`.
    ///
    /// # Errors
    /// The ring is unusable.
    fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()>;

    /// Ends an operation at once, with the bytes so far or with `ECANCELED`. The cancellation itself reports
    /// `cancel_token`.
    ///
    /// # Errors
    /// The ring is unusable.
    fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()>;

    /// Sends the message. Returns the result, bytes or `-errno`, if the socket can tell at once. Otherwise the send is under
    /// way, and its result is reported.
    ///
    /// # Safety
    ///
    /// The message and its list of segments stay valid and unchanged until the result is there. So does the memory that they
    /// name, but its content may change.
    ///
    /// # Errors
    /// The ring is unusable.
    unsafe fn send(
        &mut self,
        socket: &Self::Socket,
        token: u64,
        message: *const libc::msghdr,
    ) -> io::Result<Option<i32>>;

    /// Receives into the memory of the message when data arrive, and reports the number of bytes.
    ///
    /// # Safety
    ///
    /// The message and its list of segments stay valid and unchanged until the end of the receive has been reported. So does
    /// the memory that they name, but its content may change.
    ///
    /// # Errors
    /// The ring is unusable.
    unsafe fn receive(&mut self, socket: &Self::Socket, token: u64, message: *mut libc::msghdr) -> io::Result<()>;

    /// Prepares a receive of `missing_bytes` that are certain to arrive. See [`LowWater::wait_for`].
    ///
    /// # Errors
    /// Those of [`LowWater::wait_for`].
    fn wait_for(&mut self, socket: &Self::Socket, low_water: &mut LowWater, missing_bytes: u32) -> io::Result<()>;

    /// Sends the bytes behind all sent data, if the socket takes them without waiting.
    fn send_at_once(&mut self, socket: &Self::Socket, bytes: &[u8]);

    /// Shuts down both sides, so that operations under way come back soon. [`Ring::reset`] follows.
    fn shutdown(&mut self, socket: &Self::Socket);

    /// Ends the stream to the peer behind all sent data. Returns `false`, and ends nothing, if the peer has ended its own
    /// stream, if the connection was reset, reported or not, or if the kernel does not tell. A peer that ends its stream
    /// just before this one ends is not recognised.
    fn end_sending(&mut self, socket: &Self::Socket) -> bool;

    /// Resets the connection: the kernel discards undelivered data.
    fn reset(&mut self, socket: Self::Socket);
}

fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: null pointers with zero lengths.
    unsafe { std::mem::zeroed() }
}

/// Decodes a result of the kernel: bytes, or `-errno`.
fn bytes_or_error(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
