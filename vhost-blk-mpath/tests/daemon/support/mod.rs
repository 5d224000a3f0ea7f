//! Test helpers of the daemon's integration tests.

mod bystanders;
mod daemon;
mod disk;
mod disks;
mod faulty_guest;
mod harm;
mod hostile_guest;
mod link;
mod priority;
mod serial;
mod slots;
mod socket_activation;
mod target;
mod verification;

use std::time::{Duration, Instant};

pub(crate) use bystanders::{Bystanders, Periods, RequestTime};
pub(crate) use daemon::{Daemon, DaemonDirectory, Refusal, inject, program, set_policy};
pub(crate) use disk::Disk;
pub(crate) use disks::{disk, sharer, socket_of, target_of};
pub(crate) use faulty_guest::{FaultyGuest, REQUESTS as FAULTY_REQUESTS};
pub(crate) use harm::{Harm, ROUNDS, SERVICE};
pub(crate) use hostile_guest::{BadDriver, HostileGuest};
pub(crate) use link::Link;
pub(crate) use priority::Priority;
pub(crate) use serial::get_id;
pub(crate) use slots::Slots;
pub(crate) use socket_activation::{activated, inherit_descriptor, started_by_fifo};
pub(crate) use target::{NQN, Target, TargetProcess, own_address, refusing_address};
pub(crate) use verification::{Verification, VerificationSetup};

/// Long enough for everything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` is true. Returns how long that took.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}
