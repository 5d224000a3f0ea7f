//! The send of a socket, one at a time: staged bytes and guest memory, in order, until the socket has taken all of it.

use std::io;

use super::{Ring, bytes_or_error, empty_message};

/// Most staged bytes of a send. The rest waits for the next send.
const STAGING_BYTES: usize = 256 * 1024;
/// Most segments of one call (`UIO_MAXIOV`).
const IOVECS_MAX: usize = 1024;

/// One piece of a send.
pub(crate) enum SendPart {
    /// Bytes of the staging buffer.
    Staged { start: usize, len: usize },
    /// Memory outside the slot.
    Outside(libc::iovec),
}

/// The state of a send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    /// The socket has taken all of it.
    All,
    /// The ring reports when the socket has taken more.
    UnderWay,
    /// The kernel cannot read this segment, the next to be sent. Call [`SendSlot::try_again`] when it can.
    Unreadable(libc::iovec),
}

pub(crate) struct SendSlot {
    /// Its capacity bounds the bytes that a queue pair stages. Encrypted bytes replace the buffer between two sends.
    staging: Vec<u8>,
    iovecs: Vec<libc::iovec>,
    /// The first segment that is not sent completely.
    next: usize,
    /// Send one segment at a time: one of them cannot be read, and the kernel does not say which.
    one_by_one: bool,
    message: Box<libc::msghdr>,
    in_flight: bool,
}

impl SendSlot {
    pub(crate) fn new() -> Self {
        Self {
            staging: Vec::with_capacity(STAGING_BYTES),
            iovecs: Vec::new(),
            next: 0,
            one_by_one: false,
            message: Box::new(empty_message()),
            in_flight: false,
        }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The emptied staging buffer, to be filled up to its capacity.
    pub(crate) fn staging(&mut self) -> &mut Vec<u8> {
        assert!(!self.in_flight, "staging is the kernel's while a send is in flight");
        self.staging.clear();
        &mut self.staging
    }

    /// Starts sending `parts` in order.
    ///
    /// # Safety
    ///
    /// Memory named by [`SendPart::Outside`] must stay mapped until the send is over: until [`Sent::All`], an error,
    /// or [`SendSlot::ignore_result`].
    pub(crate) unsafe fn start<R: Ring>(
        &mut self,
        ring: &mut R,
        socket: &R::Socket,
        token: u64,
        parts: impl Iterator<Item = SendPart>,
    ) -> io::Result<Sent> {
        assert!(!self.in_flight, "one send at a time");
        self.iovecs.clear();
        self.next = 0;
        self.one_by_one = false;
        let staging = &mut self.staging;
        self.iovecs.extend(parts.map(|part| match part {
            SendPart::Staged { start, len } => {
                let bytes = &mut staging[start..start + len];
                libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
            }
            SendPart::Outside(iovec) => iovec,
        }));
        self.push(ring, socket, token)
    }

    /// Sends the rest.
    fn push<R: Ring>(&mut self, ring: &mut R, socket: &R::Socket, token: u64) -> io::Result<Sent> {
        loop {
            let rest = &mut self.iovecs[self.next..];
            self.message.msg_iovlen = rest.len().min(if self.one_by_one { 1 } else { IOVECS_MAX }) as _;
            self.message.msg_iov = rest.as_mut_ptr();
            // SAFETY: message, segments and staging belong to this slot and are left alone while `in_flight`. The caller
            // of `start` vouches for the outside memory.
            let Some(result) = (unsafe { ring.send(socket, token, &raw const *self.message)? }) else {
                self.in_flight = true;
                return Ok(Sent::UnderWay);
            };
            if let Some(sent) = self.advance(result)? {
                return Ok(sent);
            }
        }
    }

    /// Takes note of the result of a call. If the kernel cannot read memory, it sends nothing of that call. The segments
    /// are then sent one by one, up to the one that cannot be read. `None` if there is a rest to send.
    fn advance(&mut self, result: i32) -> io::Result<Option<Sent>> {
        if result == -libc::EFAULT {
            let is_found = std::mem::replace(&mut self.one_by_one, true);
            return Ok(is_found.then(|| Sent::Unreadable(self.iovecs[self.next])));
        }
        let mut sent = bytes_or_error(result)?;
        while let Some(iovec) = self.iovecs.get_mut(self.next) {
            if sent < iovec.iov_len {
                // SAFETY: `sent` is inside the segment.
                iovec.iov_base = unsafe { iovec.iov_base.cast::<u8>().add(sent).cast() };
                iovec.iov_len -= sent;
                return Ok(None);
            }
            sent -= iovec.iov_len;
            self.next += 1;
        }
        Ok(Some(Sent::All))
    }

    /// Handles the reported result of the send under way.
    pub(crate) fn finished<R: Ring>(
        &mut self,
        ring: &mut R,
        socket: &R::Socket,
        token: u64,
        result: i32,
    ) -> io::Result<Sent> {
        assert!(self.in_flight, "a completion without a send");
        self.in_flight = false;
        match self.advance(result)? {
            Some(sent) => Ok(sent),
            None => self.push(ring, socket, token),
        }
    }

    /// Puts readable memory in place of a segment that could not be read, as replaced pages would.
    #[cfg(test)]
    pub(super) fn replace_unreadable(&mut self, segment: libc::iovec) {
        self.iovecs[self.next] = segment;
    }

    /// Continues a send whose next segment could not be read.
    pub(crate) fn try_again<R: Ring>(&mut self, ring: &mut R, socket: &R::Socket, token: u64) -> io::Result<Sent> {
        assert!(!self.in_flight, "one send at a time");
        self.push(ring, socket, token)
    }

    /// Ends the send in flight at once. `token` is its own, `cancel_token` that of the cancellation.
    pub(crate) fn cancel(&self, ring: &mut impl Ring, token: u64, cancel_token: u64) -> io::Result<()> {
        assert!(self.in_flight, "nothing to cancel");
        ring.cancel(token, cancel_token)
    }

    /// Handles the completion of a send whose connection closes. Its result does not matter.
    pub(crate) fn ignore_result(&mut self) {
        assert!(self.in_flight, "a completion without a send");
        self.in_flight = false;
    }
}

impl Drop for SendSlot {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still read them: a leak is sound, a free is not.
            std::mem::forget(std::mem::take(&mut self.staging));
            std::mem::forget(std::mem::take(&mut self.iovecs));
            std::mem::forget(std::mem::replace(&mut self.message, Box::new(empty_message())));
        }
    }
}
