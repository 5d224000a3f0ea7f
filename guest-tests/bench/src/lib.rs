//! A vhost-user-blk front-end without a guest: it drives any back-end's socket with a fixed load and measures it, or
//! with a random mixture and verifies every byte. See the folder's README.

pub mod backend;
pub mod ledger;
pub mod load;
pub mod request;
pub mod rng;
pub mod runner;
pub mod stats;
pub mod units;
pub mod verify;
