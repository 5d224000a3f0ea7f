//! The device side of vhost-user-blk: a virtio disk for a front-end such as QEMU, without the storage behind it.
//!
//! [`FrontEndConnection`] speaks vhost-user on one socket while there is something to read, and [`serve_connection`]
//! until the front-end leaves. Once the front-end has set up a virtqueue, it goes to a [`QueueRunner`]: the caller's I/O
//! threads. A [`Queue`] moves there by value. It yields checked block [`Request`]s and takes their completions. This
//! needs no lock and, in steady state, no allocation. When the front-end stops the queue or hangs up, the runner gives
//! the queue back drained.
//!
//! ```text
//!  front-end socket ──► FrontEndConnection ── start(Queue) ──► I/O thread: pop, complete, publish
//!                            │             ◄── stop(index) ──      │ kick, call eventfds
//!                      VirtioDisk, memory map                rings and buffers in guest memory
//! ```
//!
//! A broken driver ends in an error for its queue, a broken front-end in an error for its connection. The module
//! documentation of `ring` lists the cases.

mod area;
mod buffer;
mod config_space;
mod connection;
mod descriptor;
mod dirty_log;
mod disk;
mod error;
mod frontend_channel;
mod inflight;
mod mem_table;
mod memory;
mod memory_faults;
mod notify;
mod queue_runner;
mod raw_message;
mod request;
mod ring;
mod server;
#[cfg(test)]
mod testing;
mod vendor_window;
mod vring;

pub use area::AreaError;
pub use buffer::Segments;
pub use dirty_log::DirtyLogError;
pub use disk::{DiskGeometry, GeometryError, SECTOR_BYTES, VirtioDisk};
pub use error::{RequestError, ServeError};
pub use inflight::{InflightError, InflightMemoryError};
pub use memory::{FaultReason, MemoryError, MemoryFault, SharedMemory};
pub use memory_faults::any_fault as any_memory_fault;
pub use queue_runner::QueueRunner;
pub use request::{BlkStatus, Op};
pub use ring::{ChainDefect, Queue, QueueError, RefusedRequests, Request, RingError};
pub use server::{FrontEndConnection, serve_connection};
pub use vendor_window::{SetPolicyError, VendorWindow};
