//! NVMe over TCP as pure state machines.
//!
//! This crate opens no sockets, reads no clocks, starts no threads and draws no random numbers. The caller passes in received
//! bytes and the current time, and takes out bytes to send and events. [`wire`] has the formats of both sides, [`host`] the
//! initiator, and [`target`] the target.
#![forbid(unsafe_code)]

mod authentication;
pub mod host;
pub mod target;
pub mod wire;

pub use authentication::{Authenticated, Authentication, RandomSource};
