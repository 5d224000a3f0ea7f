//! What the tests stand on.

mod daemon;
mod disk;
mod disks;
mod faulty;
mod handed_over;
mod harm;
mod hostile;
mod link;
mod others;
mod priority;
mod serial;
mod slots;
mod target;
mod verification;

use std::time::{Duration, Instant};

pub(crate) use daemon::{Daemon, Place, Refusal, inject, program, set_policy};
pub(crate) use disk::Disk;
pub(crate) use disks::{disk, sharer, socket_of, target_of};
pub(crate) use faulty::{Faulty, REQUESTS as FAULTY_REQUESTS};
pub(crate) use handed_over::{activated, hand_over, held_back};
pub(crate) use harm::{Harm, ROUNDS, SERVICE};
pub(crate) use hostile::Hostile;
pub(crate) use link::Link;
pub(crate) use others::{Others, Took, Windows};
pub(crate) use priority::Priority;
pub(crate) use serial::get_id;
pub(crate) use slots::Slots;
pub(crate) use target::{NQN, Target, TargetProcess, own_address, refusing_address};
pub(crate) use verification::{Shape, Verification};

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` holds; how long that took.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}
