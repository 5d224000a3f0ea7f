//! A guest without a processor, for tests and the simulator: the driver's side of a virtqueue, and what a front-end
//! passes to the device.

mod dirty_log;
pub mod features;
mod front_end;
mod ring;

pub use dirty_log::DirtyLog;
pub use front_end::{GUEST_START, PAGE_BYTES, memory_file, memory_region, ring_addresses, set_vring_base};
pub use ring::{Buffer, INDIRECT, NEXT, Ring, RingLayout, Virtqueue, WRITE};
