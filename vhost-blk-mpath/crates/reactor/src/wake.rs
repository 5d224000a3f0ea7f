//! A channel whose receiver sleeps in an `io_uring`: sending signals an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

/// Clones send to the same receiver.
pub(crate) struct WakeSender<T> {
    channel: mpsc::Sender<T>,
    signal: Arc<OwnedFd>,
}

impl<T> Clone for WakeSender<T> {
    fn clone(&self) -> Self {
        Self { channel: self.channel.clone(), signal: Arc::clone(&self.signal) }
    }
}

pub(crate) struct WakeReceiver<T> {
    channel: mpsc::Receiver<T>,
    signal: Arc<OwnedFd>,
}

pub(crate) fn channel<T>() -> io::Result<(WakeSender<T>, WakeReceiver<T>)> {
    let signal = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((WakeSender { channel: sender, signal: Arc::clone(&signal) }, WakeReceiver { channel: receiver, signal }))
}

impl<T> WakeSender<T> {
    /// Gives the message back if the receiver has ended.
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        self.channel.send(message).map_err(|mpsc::SendError(message)| message)?;
        // The only failure is a counter at its limit, and then the receiver is signalled already.
        let _ = rustix::io::write(&*self.signal, &1u64.to_ne_bytes());
        Ok(())
    }
}

impl<T> WakeReceiver<T> {
    /// Resets the signal; messages are to be taken after it, or one sent in between would wait for the next signal.
    pub(crate) fn drain(&self) {
        // An empty counter means another drain took the signal.
        let _ = rustix::io::read(&*self.signal, &mut [0; 8]);
    }

    pub(crate) fn try_recv(&self) -> Option<T> {
        self.channel.try_recv().ok()
    }
}

impl<T> AsFd for WakeReceiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}
