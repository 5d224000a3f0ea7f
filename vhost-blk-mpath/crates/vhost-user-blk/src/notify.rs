//! The eventfds of a queue.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The driver's way to wake the device.
#[derive(Debug)]
pub(crate) struct Kick(File);

impl Kick {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        // Ours is the only reading side, so the flag, which the front-end shares, hurts nobody.
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
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
    /// Sets the call eventfd; without one the driver polls.
    pub(crate) fn set_call(&self, file: Option<File>) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Sets the error eventfd.
    pub(crate) fn set_error(&self, file: Option<File>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    pub(crate) fn signal(&self) {
        write_one(&self.call);
    }

    pub(crate) fn report_error(&self) {
        write_one(&self.error);
    }
}

fn write_one(file: &Mutex<Option<File>>) {
    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut file) = file.as_ref() {
        if let Err(error) = file.write_all(&1_u64.to_ne_bytes()) {
            // A full counter means the driver is awake; anything else means it is gone, which the socket will tell.
            tracing::debug!(%error, "cannot signal the driver");
        }
    }
}
