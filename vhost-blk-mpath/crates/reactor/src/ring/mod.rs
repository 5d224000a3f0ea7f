//! What an I/O thread has the kernel do, and the operations that take time: [`Ring`], of which [`Uring`] is the one that does it.
//!
//! `unsafe` of this crate lives here. The rule that makes it sound: memory the kernel may touch belongs to a slot
//! ([`SendSlot`], [`RecvSlot`]) or is guest memory that the caller keeps mapped; a slot is reused only after its
//! completion was reaped, and one dropped before that leaks its buffers rather than free them under the kernel.

use std::io;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;

use low_water::LowWater;

mod recv;
mod send;
mod simulated;
#[cfg(test)]
mod tests;
mod uring;

pub(crate) use recv::{Received, RecvSlot};
pub(crate) use send::{SendPart, SendSlot, Sent};
pub use simulated::{SimulatedRing, SocketCall};
pub(crate) use uring::Uring;
pub use uring::{RingError, reset};

/// What was reported of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The token the operation was started with.
    pub(crate) token: u64,
    /// Bytes, poll mask or `-errno`.
    pub(crate) result: i32,
    /// The operation is still armed and reports again (multishot).
    pub(crate) more: bool,
}

/// What an I/O thread has the kernel do. Each operation has a token, by which its end is reported.
pub trait Ring {
    /// A connected socket.
    type Socket;

    /// Reports `token` each time `fd` (an eventfd) is signalled, until [`Ring::unwatch`].
    ///
    /// # Errors
    /// The ring is unusable, here as in the other operations.
    fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;

    /// Ends a watch; its last event comes with `more == false`. The removal itself reports `removal_token`.
    ///
    /// # Errors
    /// The ring is unusable.
    fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()>;

    /// Has an operation come back at once, with what it has done so far or with `ECANCELED`. The cancellation itself reports
    /// `cancel_token`.
    ///
    /// # Errors
    /// The ring is unusable.
    fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()>;

    /// Sends what the message names, and reports how much of it was taken.
    ///
    /// # Safety
    /// The message and all that it names stay valid, and are left alone, until the end of the send has been reported.
    ///
    /// # Errors
    /// The ring is unusable.
    unsafe fn send(&mut self, socket: &Self::Socket, token: u64, message: *const libc::msghdr) -> io::Result<()>;

    /// Receives into what the message names once there is something, and reports how much.
    ///
    /// # Safety
    /// As of [`Ring::send`].
    ///
    /// # Errors
    /// The ring is unusable.
    unsafe fn receive(&mut self, socket: &Self::Socket, token: u64, message: *mut libc::msghdr) -> io::Result<()>;

    /// Before a receive: so many bytes are sure to come. See [`LowWater::wait_for`].
    ///
    /// # Errors
    /// Those of [`LowWater::wait_for`].
    fn wait_for(&mut self, socket: &Self::Socket, low_water: &mut LowWater, missing_bytes: u32) -> io::Result<()>;

    /// Sends these bytes behind all that was sent if that can be done without waiting.
    fn send_at_once(&mut self, socket: &Self::Socket, bytes: &[u8]);

    /// Ends the sending side, or both: operations under way come back soon. Both end with a reset.
    fn shutdown(&mut self, socket: &Self::Socket, how: Shutdown);

    /// Ends the connection at once: what the kernel has not delivered yet never is.
    fn reset(&mut self, socket: Self::Socket);
}

fn empty_message() -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: null pointers with zero lengths.
    unsafe { std::mem::zeroed() }
}

/// What the kernel reports: bytes, or `-errno`.
fn bytes_or_error(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
