//! Decides: no connection closes before all I/O threads of a disk have flushed.
//!
//! The end of I/O threads that share associations.
//!
//! A controller may end a whole association when one of its connections ends. So no thread closes its connections
//! before all have flushed. A path that does not answer within a second is the exception: all threads close it.

use std::convert::Infallible;
use std::sync::mpsc::{self, TryRecvError};

use crate::IoThreadMessage;

/// The end of I/O threads that share associations: all flush, and then all close their connections.
pub struct ThreadsShutdown {
    threads: usize,
    /// Disconnected once each thread has called back or has ended.
    under_way: mpsc::Receiver<Infallible>,
}

impl ThreadsShutdown {
    /// Has each thread drain its virtqueues for a short time, and then flush what no flush has covered.
    pub fn begin<S>(threads: usize, mut post: impl FnMut(usize, IoThreadMessage<S>)) -> Self {
        let (of_thread, under_way) = mpsc::channel::<Infallible>();
        for thread in 0..threads {
            let of_thread = of_thread.clone();
            post(thread, IoThreadMessage::Shutdown);
            // A thread that has ended drops the callback.
            post(thread, IoThreadMessage::WhenFlushed(Box::new(move || drop(of_thread))));
        }
        Self { threads, under_way }
    }

    /// Whether all threads have flushed or ended.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.under_way.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits until all threads have flushed or ended, and has them close their connections and end.
    pub fn end<S>(self, mut post: impl FnMut(usize, IoThreadMessage<S>)) {
        // Nothing is ever sent, so this fails once the last sender is gone.
        let _ = self.under_way.recv();
        (0..self.threads).for_each(|thread| post(thread, IoThreadMessage::End));
    }
}
