//! The loop of an I/O thread: it waits for the kernel, and passes events and the time to [`IoThread`].

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::IoThreadMessage;
use crate::io_thread::IoThread;
use crate::ring::{Event, Ring, Uring};
use crate::ring_token::RingToken;
use crate::wake_channel::WakeReceiver;

/// Runs until [`IoThreadMessage::End`] has been carried out. Returns whether writes that were given up may still
/// be executed.
pub(crate) fn run(mut thread: IoThread<Uring>, inbox: &WakeReceiver<IoThreadMessage>) -> bool {
    let mut events = Vec::with_capacity(256);
    while !thread.is_over() {
        if let Err(error) = turn(&mut thread, inbox, &mut events) {
            // No single operation fails like this, so the ring itself is unusable. Without it, the thread's guests
            // would wait for ever.
            panic!("io_uring failed under load: {error}");
        }
    }
    thread.has_writes_in_doubt()
}

/// Makes the ring report messages in the inbox.
pub(crate) fn watch(ring: &mut Uring, inbox: &WakeReceiver<IoThreadMessage>) -> io::Result<()> {
    ring.watch(inbox.as_fd(), RingToken::Inbox.encode())
}

fn turn(
    thread: &mut IoThread<Uring>,
    inbox: &WakeReceiver<IoThreadMessage>,
    events: &mut Vec<Event>,
) -> io::Result<()> {
    let timeout = thread.next_timeout().map(|at| at.saturating_duration_since(Instant::now()));
    thread.ring().turn(timeout, events)?;
    let now = Instant::now();
    for event in events.drain(..) {
        if RingToken::decode(event.token) != RingToken::Inbox {
            thread.on_event(now, event)?;
            continue;
        }
        if !event.more {
            watch(thread.ring(), inbox)?;
        }
        inbox.drain();
        while let Some(message) = inbox.try_recv() {
            thread.handle(now, message)?;
        }
    }
    thread.finish_turn(now)
}
