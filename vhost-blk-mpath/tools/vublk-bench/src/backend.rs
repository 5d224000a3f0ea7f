//! The interface between the load and the rings. Behind it is a real virtqueue, or in tests a faulty model.

use crate::request::{Request, Status};
use std::io;
use std::time::Duration;

/// Names a request in the ring: the index of its first descriptor. It is free for reuse once the chain is used.
pub type Head = u16;

/// A used chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The head that [`Backend::submit`] returned. A faulty back-end may name any other head.
    pub head: Head,
    pub status: Status,
}

/// One queue of a disk with a data buffer for each of its slots.
///
/// The buffers are shared with the other side, so their bytes only ever move by copy.
pub trait Backend {
    /// Copies `data` to the start of the slot's buffer.
    fn fill(&mut self, slot: u16, data: &[u8]);
    /// Copies the start of the slot's buffer to `data`.
    fn fetch(&mut self, slot: u16, data: &mut [u8]);
    /// Queues a request whose data is in the slot's buffer.
    fn submit(&mut self, slot: u16, request: &Request) -> io::Result<Head>;
    /// Tells the other side about the queued requests, if it wants to be told.
    fn kick(&mut self) -> io::Result<()>;
    /// The next used chain, if there is one.
    fn next_used(&mut self) -> Option<Used>;
    /// Sleeps until something is used or `timeout` has passed.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}
