//! Decides: a receive goes to guest memory at once, and waits for more bytes.
//!
//! The receive of a socket, one at a time. It fills guest memory first, if a payload is expected, then the read-ahead
//! buffer.

use std::io;

use low_water::LowWater;

use super::{Ring, bytes_or_error, empty_message};

/// Size of the read-ahead buffer. It lets one receive take many small PDUs.
const READ_AHEAD_BYTES: usize = 64 * 1024;
/// Most segments of guest memory in a receive. The kernel's own limit is 1024.
const IOVECS_MAX: usize = 256;

/// Where the bytes of a receive went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes in the memory named at the start.
    pub(crate) direct: usize,
    /// Bytes in the read-ahead buffer.
    pub(crate) buffered: usize,
}

pub(crate) struct RecvSlot {
    buffer: Box<[u8]>,
    iovecs: Vec<libc::iovec>,
    message: Box<libc::msghdr>,
    /// Bytes of guest memory in the receive in flight.
    direct: usize,
    low_water: LowWater,
    in_flight: bool,
    cancelled: bool,
}

impl RecvSlot {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; READ_AHEAD_BYTES].into_boxed_slice();
        Self {
            buffer,
            iovecs: Vec::new(),
            message: Box::new(empty_message()),
            direct: 0,
            low_water: LowWater::new(),
            in_flight: false,
            cancelled: false,
        }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// Ends the receive in flight at once, with the bytes that it has, or with none. `token` is its own, `cancel_token`
    /// that of the cancellation.
    pub(crate) fn cancel(&mut self, ring: &mut impl Ring, token: u64, cancel_token: u64) -> io::Result<()> {
        assert!(self.in_flight, "nothing to cancel");
        self.cancelled = true;
        ring.cancel(token, cancel_token)
    }

    /// The first `bytes` of the read-ahead buffer.
    pub(crate) fn buffered(&self, bytes: usize) -> &[u8] {
        assert!(!self.in_flight, "the buffer is the kernel's while a receive is in flight");
        &self.buffer[..bytes]
    }

    /// Starts a receive. It fills `direct` first, then the read-ahead buffer. All bytes of `direct` must be certain to
    /// arrive.
    ///
    /// # Safety
    ///
    /// Memory named by `direct` must stay mapped, and be the receive's alone, until its completion was reaped.
    pub(crate) unsafe fn start<R: Ring>(
        &mut self,
        ring: &mut R,
        socket: &R::Socket,
        token: u64,
        direct: impl Iterator<Item = libc::iovec>,
    ) -> io::Result<()> {
        assert!(!self.in_flight, "one receive at a time");
        self.iovecs.clear();
        self.iovecs.extend(direct.take(IOVECS_MAX));
        self.direct = self.iovecs.iter().map(|iovec| iovec.iov_len).sum();
        ring.wait_for(socket, &mut self.low_water, u32::try_from(self.direct).unwrap_or(u32::MAX))?;
        self.iovecs.push(libc::iovec { iov_base: self.buffer.as_mut_ptr().cast(), iov_len: self.buffer.len() });
        self.message.msg_iov = self.iovecs.as_mut_ptr();
        self.message.msg_iovlen = self.iovecs.len() as _;
        // SAFETY: buffer, segments and message belong to this slot and are left alone while `in_flight`. The caller
        // vouches for the direct memory.
        unsafe { ring.receive(socket, token, &raw mut *self.message)? };
        self.in_flight = true;
        Ok(())
    }

    /// Handles the completion of the receive. The end of the stream is [`io::ErrorKind::UnexpectedEof`].
    pub(crate) fn finished(&mut self, result: i32) -> io::Result<Received> {
        assert!(self.in_flight, "a completion without a receive");
        self.in_flight = false;
        if std::mem::take(&mut self.cancelled) && matches!(-result, libc::ECANCELED | libc::EINTR) {
            return Ok(Received { direct: 0, buffered: 0 });
        }
        match bytes_or_error(result)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the controller closed the connection")),
            bytes => {
                self.low_water.received(bytes);
                let direct = bytes.min(self.direct);
                Ok(Received { direct, buffered: bytes - direct })
            }
        }
    }
}

impl Drop for RecvSlot {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still write them: a leak is sound, a free is not.
            std::mem::forget(std::mem::take(&mut self.buffer));
            std::mem::forget(std::mem::take(&mut self.iovecs));
            std::mem::forget(std::mem::replace(&mut self.message, Box::new(empty_message())));
        }
    }
}
