//! What the schedulers are to reach, judged.
//!
//! `C` are the requests that are served in a second, `N` those of a burst, `n` the other flows that burst, `m` all flows that burst.
//! The *floor* is what the flow takes alone. A *service* is the time of one request; nothing that was sent can be called back.

mod alone;
mod disks;
mod many;
mod services;
mod shares;

use std::time::Duration;

use super::scenario::{BYTES, PAUSE, USUAL, measure, on, ours, uniform};
use super::{Load, Service};

pub use alone::{BUSY, COUNTS};
pub use many::{ATTACKS, MANY, attacked};
pub use shares::{SIZES, jains, sustained};

/// One promise, and what came of it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The promise.
    pub what: &'static str,
    /// The worst that was measured, and where.
    pub measured: String,
    /// Whether it was kept.
    pub met: bool,
}

/// The worst of what was measured: the largest number of how much it is worse than allowed.
#[derive(Default)]
struct Worst(Option<(f64, String)>);

impl Worst {
    fn add(&mut self, excess: f64, what: String) {
        if self.0.as_ref().is_none_or(|(worst, _)| excess > *worst) {
            self.0 = Some((excess, what));
        }
    }

    fn target(self, what: &'static str) -> Target {
        let (excess, measured) = self.0.unwrap_or((f64::INFINITY, "nothing".into()));
        Target { what, measured, met: excess <= 0.0 }
    }
}

/// All of them, for one seed.
#[must_use]
pub fn all(seed: u64) -> Vec<Target> {
    let parts = [alone::targets(seed), many::targets(seed), shares::targets(seed), disks::targets(seed)];
    parts.into_iter().flatten().chain(services::targets(seed)).collect()
}

/// The default of a numeric parameter of our scheduler.
fn param(name: &str) -> f64 {
    let text = ours().params().find(|(param, _)| param.name() == name).expect("a parameter of it").1;
    let digits = text.trim_end_matches(|at: char| at.is_alphabetic());
    digits.parse().expect("a number")
}

/// The most of the service that bursts get.
fn share() -> f64 {
    param("share")
}

/// The longest time for which bursts hold bulk back, in ms.
fn gap_ms() -> f64 {
    param("gap")
}

/// Cost of a request of 4 KiB.
fn cost(bytes: u32) -> f64 {
    param("io-cost") + f64::from(bytes)
}

/// Requests of 4 KiB in a turn of a flow that bursts.
fn turn() -> f64 {
    param("burst") / 32.0 / cost(BYTES)
}

/// 1.1 services.
fn grace_ms(service: &Service) -> f64 {
    1.1 * service.takes(BYTES, Duration::ZERO).as_secs_f64() * 1e3
}

fn floor(count: u32, seed: u64) -> f64 {
    floor_on(USUAL, count, seed)
}

fn floor_on(service: Service, count: u32, seed: u64) -> f64 {
    measure(&on(service, uniform(ours(), vec![burst(count, PAUSE)], seed))).burst_ms([0], 0.5)
}

/// A burst, with another pause.
fn burst(count: u32, pause: Duration) -> Load {
    Load::Burst { count, bytes: BYTES, pause }
}
