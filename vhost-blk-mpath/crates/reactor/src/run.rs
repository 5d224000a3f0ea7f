//! The loop of an I/O thread: it waits for the kernel, and tells [`IoThread`] what has happened and when.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use crate::io_thread::IoThread;
use crate::message::Message;
use crate::ring::{Event, Ring, Uring};
use crate::token::Token;
use crate::wake::WakeReceiver;

/// Runs until [`Message::Shutdown`] has been carried out: whether the thread gave up writes that may still be executed.
pub(crate) fn run(mut thread: IoThread<Uring>, inbox: &WakeReceiver<Message>) -> bool {
    let mut events = Vec::with_capacity(256);
    while !thread.is_over() {
        if let Err(error) = turn(&mut thread, inbox, &mut events) {
            // No operation of ours can fail so: the ring itself is unusable, and a thread without it must not leave its
            // guests waiting for ever.
            panic!("io_uring failed under load: {error}");
        }
    }
    thread.leaves_doubt()
}

/// Has the ring tell when there are messages.
pub(crate) fn watch(ring: &mut Uring, inbox: &WakeReceiver<Message>) -> io::Result<()> {
    ring.watch(inbox.as_fd(), Token::Inbox.encode())
}

fn turn(thread: &mut IoThread<Uring>, inbox: &WakeReceiver<Message>, events: &mut Vec<Event>) -> io::Result<()> {
    let timeout = thread.next_timeout().map(|at| at.saturating_duration_since(Instant::now()));
    thread.ring().turn(timeout, events)?;
    let now = Instant::now();
    for event in events.drain(..) {
        if Token::decode(event.token) != Token::Inbox {
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
