//! Path selection policies in virtual time: the shipping [`mpath_core::Group`] over modelled paths, under a closed loop of
//! requests.
//!
//! A result shows how a policy uses paths whose behaviour is known exactly. It can be compared with [`bound()`], the most that
//! any policy could reach. There is no network, no protocol and no processor time in the simulation. A result here says how good
//! the *decisions* are. The benchmarks over sockets say what the decisions are worth.
//!
//! The same scenario and seed give the same result on every machine.

// Where names say it all, there is no comment.
#![allow(missing_docs, clippy::missing_panics_doc, clippy::must_use_candidate, clippy::return_self_not_must_use)]

mod bound;
mod measure;
mod model;
mod run;
pub mod scenario;
mod workload;

pub use bound::{bound, most_requests};
pub use measure::Measured;
pub use model::{Model, Server};
pub use run::Sim;
pub use workload::Workload;
