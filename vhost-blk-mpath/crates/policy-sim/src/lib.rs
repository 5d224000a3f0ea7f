//! Path selection policies in virtual time: the shipping [`mpath_core::Group`] over modelled paths, under a closed loop of
//! requests.
//!
//! What comes out is what a policy makes of paths whose behaviour is known exactly, so that it can stand beside
//! [`bound()`], the most that any policy could. There is no network, no protocol and no processor time in it: a result here says
//! how good the *decisions* are, the benchmarks over sockets say what they are worth.
//!
//! The same scenario and seed give the same result on every machine.

mod bound;
mod measure;
mod model;
pub mod rng;
mod run;
pub mod scenario;
mod workload;

pub use bound::{bound, most_requests};
pub use measure::Measured;
pub use model::{Jitter, Model, Server};
pub use run::Sim;
pub use workload::Workload;
