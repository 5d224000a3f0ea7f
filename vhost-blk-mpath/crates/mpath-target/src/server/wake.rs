//! Wakes a thread out of its poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

/// A flag to stop and an eventfd to poll, shared between a thread and those who want something of it.
pub(super) struct Wake {
    event: OwnedFd,
    stop: AtomicBool,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { event, stop: AtomicBool::new(false) })
    }

    /// Lets the thread's current or next poll return.
    pub(super) fn notify(&self) {
        // The only failure is a counter at its maximum, and then the poll returns anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.notify();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Takes all notifications so far. What they announce must be looked at afterwards, not before.
    pub(super) fn drain(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Waits for `events` of a socket or a wake-up: what the socket has, and whether there was a wake-up.
pub(super) fn poll(
    socket: &impl AsFd,
    events: PollFlags,
    wake: &Wake,
    timeout: Option<Duration>,
) -> io::Result<(PollFlags, bool)> {
    let mut fds = [PollFd::new(socket, events), PollFd::new(wake, PollFlags::IN)];
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
