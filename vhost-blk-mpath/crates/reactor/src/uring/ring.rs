//! The ring itself: set-up, submission, one turn of waiting and reaping.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// Submission entries: two a path and two a virtqueue, doubled. A burst beyond it is submitted early, never lost.
const ENTRIES: u32 = 256;

/// What the kernel reported for one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The token the operation was started with.
    pub(crate) token: u64,
    /// Bytes, poll mask or `-errno`.
    pub(crate) result: i32,
    /// The operation is still armed and reports again (multishot).
    pub(crate) more: bool,
}

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// `io_uring_setup` failed; `io_uring` may be disabled, or a limit on locked memory or file descriptors reached.
    #[error(
        "io_uring cannot be set up: {0}; it needs Linux 6.1 or newer, kernel.io_uring_disabled = 0, and room under RLIMIT_MEMLOCK and RLIMIT_NOFILE"
    )]
    Setup(#[source] io::Error),
}

pub(crate) struct Ring {
    io: IoUring,
}

impl Ring {
    pub(crate) fn new() -> Result<Self, RingError> {
        // One thread submits and reaps, and wants completion work done when it waits, not by interrupting it.
        let io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(4 * ENTRIES)
            .build(ENTRIES)
            .map_err(RingError::Setup)?;
        Ok(Self { io })
    }

    /// Reports `token` each time `fd` (an eventfd) is signalled, until [`Ring::unwatch`].
    pub(crate) fn watch(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let entry =
            opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build().user_data(token);
        // SAFETY: a poll names no memory; the kernel takes its own reference on the file.
        unsafe { self.push(&entry) }
    }

    /// Ends a watch; its last event comes with `more == false`. The removal itself reports `removal_token`.
    pub(crate) fn unwatch(&mut self, token: u64, removal_token: u64) -> io::Result<()> {
        let entry = opcode::PollRemove::new(token).build().user_data(removal_token);
        // SAFETY: names no memory.
        unsafe { self.push(&entry) }
    }

    /// Has an operation come back at once, with what it has done so far or with `ECANCELED`. The cancellation itself reports
    /// `cancel_token`.
    pub(super) fn cancel(&mut self, token: u64, cancel_token: u64) -> io::Result<()> {
        let entry = opcode::AsyncCancel::new(token).build().user_data(cancel_token);
        // SAFETY: names no memory.
        unsafe { self.push(&entry) }
    }

    /// Queues an operation, submitting what is queued first if there is no room.
    ///
    /// # Safety
    /// Every address in `entry` must stay valid until its completion has been reaped.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: forwarded from the caller.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.io.submit() {
                Ok(_) => {}
                // They pass: a signal, and a moment without memory.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Submits what is queued, waits for an event (at most `timeout`; `None` waits for ever, zero not at all) and
    /// appends all events to `events`.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let submitted = match timeout {
            None => self.io.submit_and_wait(1),
            // With deferred task work even a look costs an enter with the "get events" flag; a zero wait is that.
            Some(timeout) => {
                let timespec = types::Timespec::from(timeout);
                self.io.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec))
            }
        };
        match submitted {
            Ok(_) => {}
            // ETIME: the wait ended. EBUSY: completions must be reaped first, which is what follows. EINTR: a signal.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EBUSY | libc::EINTR | libc::EAGAIN)) => {}
            Err(error) => return Err(error),
        }
        events.extend(self.io.completion().map(|entry| Event {
            token: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
        Ok(())
    }
}
