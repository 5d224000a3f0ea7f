//! Waits of tasks for descriptors that other threads read.

use std::io;
use std::os::fd::BorrowedFd;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// Waits until a descriptor is as asked for: [`Ready::is_readable`], or [`Ready::is_read_closed`].
///
/// # Errors
/// The kernel does not watch the descriptor: it has no memory, or a limit is reached.
#[expect(unsafe_code, reason = "a task can wait for an eventfd, or for a socket in blocking mode, in no other way")]
pub(crate) async fn becomes(fd: BorrowedFd<'_>, asked_for: fn(Ready) -> bool) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed, so it stays open and the same for longer than its registration.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    loop {
        let mut guard = watched.readable().await?;
        if asked_for(guard.ready()) {
            return Ok(());
        }
        guard.clear_ready();
    }
}
