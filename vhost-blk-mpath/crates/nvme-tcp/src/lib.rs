//! NVMe over TCP as pure state machines.
//!
//! This crate opens no sockets, reads no clocks, starts no threads and draws no random numbers. The caller passes in received
//! bytes and the current time, and takes out bytes to send and events. [`wire`] has the formats of both sides, and [`host`]
//! the initiator. The target is not part of the daemon; crate `nvme-tcp-target` has it.
#![forbid(unsafe_code)]

mod authentication;
pub mod host;
pub mod wire;

pub use authentication::{Authenticated, Authentication, RandomSource};
