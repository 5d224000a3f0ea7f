//! The real daemon over real sockets: a target in this process below it, front-ends without a guest above it.

#![allow(clippy::unwrap_used)] // a panic is the right end here

mod ana;
mod bad_input;
mod change;
mod crash;
mod cross_reset;
mod ctrl_loss;
mod discovery;
mod disks;
mod drain;
mod end;
mod failover;
mod fence;
mod forced_out;
mod front_ends;
mod grey;
#[allow(dead_code)] // the rest of it is for the crate that it is from
#[path = "../../crates/vhost-user-blk/tests/sockets/guest.rs"]
mod guest;
mod handed_over;
mod hedge;
mod held;
mod hostile;
mod injection;
mod live_disks;
mod lost_commands;
mod membership;
mod memory;
mod metrics;
mod policies;
mod resize;
mod scheduler;
mod sharing;
mod start;
mod steering;
mod support;
mod transport;
mod unharmed;
mod window;
mod wrong;
