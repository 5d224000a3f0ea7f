//! Test helpers of the daemon's integration tests.

mod bystanders;
mod cases;
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

pub(crate) use bystanders::{Bystanders, Periods, RequestTime};
pub(crate) use cases::at_once;
pub(crate) use daemon::{Daemon, DaemonDirectory, LASTING, inject, program, set_policy};
pub(crate) use disk::Disk;
pub(crate) use disks::{disk, sharer, socket_of, target_of};
pub(crate) use faulty_guest::{FaultyGuest, REQUESTS as FAULTY_REQUESTS};
pub(crate) use harm::{Harm, ROUNDS, SERVICE};
pub(crate) use hostile_guest::{BadDriver, HostileGuest};
pub(crate) use link::Link;
pub(crate) use patience::{PATIENCE, eventually, own_address};
pub(crate) use priority::Priority;
pub(crate) use serial::get_id;
pub(crate) use slots::Slots;
pub(crate) use socket_activation::{activated, inherit_descriptor, started_by_fifo};
pub(crate) use target::{NQN, Target, TargetProcess, refusing_address};
pub(crate) use verification::{Verification, VerificationSetup};
