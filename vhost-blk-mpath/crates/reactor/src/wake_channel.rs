//! A channel whose receiver sleeps in an `io_uring`. Sending signals an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, eventfd};

/// The sending side. Clones send to the same receiver.
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

pub(crate) fn wake_channel<T>() -> io::Result<(WakeSender<T>, WakeReceiver<T>)> {
    let signal = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((WakeSender { channel: sender, signal: Arc::clone(&signal) }, WakeReceiver { channel: receiver, signal }))
}

impl<T> WakeSender<T> {
    /// Sends a message. Returns it if the receiver has ended.
    pub(crate) fn send(&self, message: T) -> Result<(), T> {
        self.channel.send(message).map_err(|mpsc::SendError(message)| message)?;
        // This fails only if the counter is full, and then the receiver is signalled already.
        let _ = rustix::io::write(&*self.signal, &1u64.to_ne_bytes());
        Ok(())
    }
}

impl<T> WakeReceiver<T> {
    /// Resets the signal. Take messages afterwards: a message sent between taking and resetting would wait for the next
    /// signal.
    pub(crate) fn clear(&self) {
        // An empty counter means that another call has reset the signal.
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

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_signalled(receiver: &WakeReceiver<u32>) -> bool {
        poll(&mut [PollFd::new(receiver, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_message_signals_and_a_drain_resets_it() {
        let (sender, receiver) = wake_channel().unwrap();
        assert!(!is_signalled(&receiver));
        receiver.clear();
        sender.send(1).unwrap();
        sender.clone().send(2).unwrap();
        assert!(is_signalled(&receiver));
        receiver.clear();
        assert!(!is_signalled(&receiver));
        assert_eq!([receiver.try_recv(), receiver.try_recv(), receiver.try_recv()], [Some(1), Some(2), None]);
    }

    #[test]
    fn no_message_is_left_without_a_signal() {
        const MESSAGES: u32 = 100_000;
        let (sender, receiver) = wake_channel().unwrap();
        let sending = thread::spawn(move || (0..MESSAGES).for_each(|message| sender.send(message).unwrap()));
        let mut next = 0;
        while next < MESSAGES {
            // Sleeps for ever if a message came without a signal.
            poll(&mut [PollFd::new(&receiver, PollFlags::IN)], None).unwrap();
            receiver.clear();
            while let Some(message) = receiver.try_recv() {
                assert_eq!(message, next);
                next += 1;
            }
        }
        sending.join().unwrap();
    }

    #[test]
    fn without_a_receiver_messages_come_back() {
        let (sender, receiver) = wake_channel().unwrap();
        drop(receiver);
        assert_eq!(sender.send(5), Err(5));
    }
}
