//! The eventfds of a queue.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};

/// The driver's way to wake the device.
#[derive(Debug)]
pub(crate) struct Kick(File);

impl Kick {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        // Ours is the only reading side, so the flag, which the front-end shares, hurts nobody.
        set_nonblocking(&file)?;
        Ok(Self(file))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn drain(&self) {
        // An eventfd hands out its whole count at once. Nothing there, or a front-end that passed something else: the ring
        // says what there is to do.
        let _ = (&self.0).read(&mut [0; size_of::<u64>()]);
    }
}

/// The device's ways to wake the driver and to tell the front-end that a queue is broken.
///
/// The front-end may replace the descriptors while the queue runs (QEMU does when the guest masks interrupts). The lock is
/// taken once a loop turn and contended only in that moment.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    call: Mutex<Option<File>>,
    error: Mutex<Option<File>>,
}

impl Notifier {
    /// Sets the call descriptor; without one the driver polls.
    pub(crate) fn set_call(&self, file: Option<File>) -> io::Result<()> {
        set_signal(&self.call, file)
    }

    /// Sets the error descriptor.
    pub(crate) fn set_error(&self, file: Option<File>) -> io::Result<()> {
        set_signal(&self.error, file)
    }

    pub(crate) fn signal(&self) {
        write_one(&self.call);
    }

    pub(crate) fn report_error(&self) {
        write_one(&self.error);
    }
}

fn set_nonblocking(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::NONBLOCK)?)
}

fn set_signal(signal: &Mutex<Option<File>>, file: Option<File>) -> io::Result<()> {
    // Some front-ends (User Mode Linux) pass a pipe, and one that they do not read must not hold up an I/O thread. An eventfd
    // is left alone: its counter does not fill up, and the front-end, which shares the flag, may block reading it.
    if let Some(file) = &file
        && matches!(FileType::from_raw_mode(fstat(file)?.st_mode), FileType::Fifo | FileType::Socket)
    {
        set_nonblocking(file)?;
    }
    *signal.lock().unwrap_or_else(PoisonError::into_inner) = file;
    Ok(())
}

fn write_one(file: &Mutex<Option<File>>) {
    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
    // A full counter means that the other side is awake; anything else that it is gone, which the socket will tell.
    if let Some(mut file) = file.as_ref()
        && let Err(error) = file.write_all(&1_u64.to_ne_bytes())
    {
        tracing::debug!(%error, "cannot signal the front-end");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_holds_up_nobody() {
        let (mut reader, writer) = io::pipe().unwrap();
        let notifier = Notifier::default();
        notifier.set_call(Some(File::from(std::os::fd::OwnedFd::from(writer)))).unwrap();
        for _ in 0..100_000 {
            notifier.signal();
        }
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 8);
    }
}
