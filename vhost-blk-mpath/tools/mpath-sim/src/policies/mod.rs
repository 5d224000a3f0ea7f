//! Path selection policies in virtual time: the shipping [`mpath_core::Group`] over modelled paths, under a closed loop of
//! requests.
//!
//! A result shows how a policy uses paths whose behaviour is known exactly. It can be compared with [`bound()`], the most that
//! any policy could reach. There is no network, no protocol and no processor time in the simulation. A result here says how good
//! the *decisions* are. The benchmarks over sockets say what the decisions are worth.
//!
//! The same scenario and seed give the same result on every machine.

mod bound;
mod measure;
mod model;
mod run;
pub mod scenario;
mod workload;

pub use bound::{bound, most_requests};
pub use measure::Measured;
pub use model::{Jitter, Model, Server};
pub use run::Sim;
pub use workload::Workload;
