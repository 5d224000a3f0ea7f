//! The targets of the schedulers, and whether they are reached.
//!
//! `C` is the number of requests served in a second, and `N` that of a burst. `m` flows send bursts: one flow and `n` others.
//! The *floor* is the time that a burst takes when its flow is alone. A *service* is the time of one request. A burst may wait
//! that long, because a request that was sent cannot be taken back.

mod alone;
mod disks;
mod judgement;
mod many;
mod services;
mod shares;

pub use alone::{BUSY, COUNTS};
pub use judgement::{Target, gap_ms, share};
pub use many::{ATTACKS, MANY, at_once_ms, attacked, turns_ms};
pub use shares::{SIZES, jains, sustained};

/// Measures and judges all targets, for one seed.
pub fn all(seed: u64) -> Vec<Target> {
    let parts = [alone::targets(seed), many::targets(seed), shares::targets(seed), disks::targets(seed)];
    parts.into_iter().flatten().chain(services::targets(seed)).collect()
}
