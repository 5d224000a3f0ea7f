//! A vhost-user-blk front-end without a guest: it drives any back-end's socket with a fixed load and measures it, or
//! with a random mixture and verifies every byte. See the folder's README.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]
// Only the programs of this package and the daemon's tests use the library. Where names and messages say it all, there is no comment.
#![allow(missing_docs, clippy::must_use_candidate, clippy::return_self_not_must_use)]

pub mod backend;
pub mod control;
pub mod front_end;
pub mod harness;
pub mod ledger;
mod load;
pub mod options;
pub mod process;
pub mod report;
pub mod request;
pub mod runner;
pub mod session;
pub mod sizes;
pub mod stack;
mod stats;
pub mod units;
pub mod verify;
