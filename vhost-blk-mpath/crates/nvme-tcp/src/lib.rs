//! NVMe over TCP as pure state machines.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number: bytes and `now` go in, bytes and
//! events come out. [`wire`] holds the formats both sides share, [`host`] the initiator, [`target`] the other side.
#![forbid(unsafe_code)]

pub mod host;
pub mod target;
pub mod wire;
