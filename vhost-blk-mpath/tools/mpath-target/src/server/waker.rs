//! Waking a thread from its poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use monotonic::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

/// An eventfd and a stop flag. A thread polls them, and other threads set them.
pub(super) struct Waker {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Waker {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event, stop: AtomicBool::new(false) })
    }

    /// Makes the thread's current or next poll return.
    pub(super) fn notify(&self) {
        // This fails only if the counter is at its maximum. Then the poll returns anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.notify();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Clears all notifications. Call this before checking for work, so that no later notification is lost.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Waits for `events` of a socket or for a wake-up. Returns the events of the socket, and whether there was a wake-up.
pub(super) fn poll(
    socket: &impl AsFd,
    events: PollFlags,
    waker: &Waker,
    timeout: Option<Duration>,
) -> io::Result<(PollFlags, bool)> {
    let mut fds = [PollFd::new(socket, events), PollFd::new(waker, PollFlags::IN)];
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok((fds[0].revents(), !fds[1].revents().is_empty()))
}
