//! A vhost-user-blk front-end without a guest: it drives any back-end's socket with a fixed load and measures it, or
//! with a random mixture and verifies every byte. See the folder's README.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

pub mod backend;
pub mod control;
pub mod front_end;
pub mod harness;
pub mod ledger;
pub mod load;
pub mod measurement;
pub mod options;
pub mod process;
pub mod report;
pub mod request;
pub mod runner;
pub mod session;
pub mod signals;
pub mod sizes;
pub mod stack;
pub mod stalls;
pub mod stats;
pub mod units;
pub mod verify;
