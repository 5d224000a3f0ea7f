//! What the schedulers are to reach, judged.
//!
//! `C` are the requests that are served in a second, `N` those of a burst, `n` the other flows that burst, `m` all flows that burst.
//! The *floor* is what the flow takes alone. A *service* is the time of one request; nothing that was sent can be called back.

mod alone;
mod disks;
mod judgement;
mod many;
mod services;
mod shares;

pub use alone::{BUSY, COUNTS};
pub use judgement::Target;
pub use many::{ATTACKS, MANY, attacked};
pub use shares::{SIZES, jains, sustained};

/// All of them, for one seed.
pub fn all(seed: u64) -> Vec<Target> {
    let parts = [alone::targets(seed), many::targets(seed), shares::targets(seed), disks::targets(seed)];
    parts.into_iter().flatten().chain(services::targets(seed)).collect()
}
