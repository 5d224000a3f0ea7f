//! The device side of vhost-user-blk: a virtio disk for a front-end such as QEMU, without the disk.
//!
//! [`serve_connection`] speaks vhost-user on one socket. It hands each virtqueue, once the front-end has set it up, to a
//! [`QueueSink`]: the caller's I/O threads. A [`Queue`] moves there by value; it gives out checked block [`Request`]s and
//! takes their completions, without a lock or, in steady state, an allocation. When the front-end stops it, or hangs up, the
//! sink gives it back drained.
//!
//! ```text
//!  front-end socket ──► serve_connection ── start(Queue) ──► I/O thread: pop, complete, publish
//!   (control thread)         │           ◄── stop(index) ──      │ kick, call eventfds
//!                         Disk, memory map                    rings and buffers in guest memory
//! ```
//!
//! Whatever a guest writes into its rings, and whatever a front-end sends, ends in an error for that queue or that
//! connection: [`ring`](Queue) says what exactly.

mod area;
mod buffer;
mod channel;
mod config_space;
mod connection;
#[cfg(test)]
mod crash;
mod descriptor;
mod dirty;
mod disk;
mod error;
mod inflight;
mod mem_table;
mod memory;
mod memory_faults;
mod message;
mod notify;
mod request;
mod ring;
mod server;
mod sink;
mod vring;
mod window;

pub use area::AreaError;
pub use buffer::Segments;
pub use dirty::DirtyLogError;
pub use disk::{Disk, DiskGeometry, GeometryError, SECTOR_BYTES};
pub use error::{RequestError, ServeError};
pub use inflight::{InflightError, InflightMemoryError};
pub use memory::{FaultReason, MemoryError, MemoryFault, SharedMemory};
pub use request::{BlkStatus, Op};
pub use ring::{ChainToken, Queue, QueueError, Request, RingError};
pub use server::serve_connection;
pub use sink::QueueSink;
pub use window::{PolicyRefused, Window};
