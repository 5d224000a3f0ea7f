//! Schedulers in virtual time: the shipping [`mpath_core::Group`] over one path to a service with a number of slots, under
//! flows that send bursts and flows that keep a deep queue.
//!
//! The experiment is the one with which the burst-credit rule was published. [`targets`] also has cases that the publication
//! leaves open. There is no network, no protocol and no processor time. The same setup and seed give the same result on every
//! machine.

// Counts of things are below 2^52.
#![allow(clippy::cast_precision_loss)]
// Where names say it all, there is no comment.
#![allow(missing_docs, clippy::must_use_candidate, clippy::return_self_not_must_use)]

mod measure;
mod run;
pub mod scenario;
pub mod targets;

pub use measure::{Measured, jain, quantile_ms};
pub use run::{Disk, Load, Service, Setup, run};
