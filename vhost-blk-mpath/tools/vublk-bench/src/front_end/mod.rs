//! The real thing below [`crate::backend::Backend`]: a vhost-user connection and its virtqueues.
//!
//! The transport and the rings are those of the `virtio-driver` crate. The request layer is our own, because that of the crate
//! hides the faults that we look for: it skips completions of unknown chains and presets the status byte to OK.

mod device;
mod memory;
mod queue;

pub use device::{ConnectError, Device, DeviceInfo, QueueShape};
pub use queue::{BlkQueue, wait_for_any};
