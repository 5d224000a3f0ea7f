//! The judgement of one target, and the parameters of the scheduler on which targets depend.

use monotonic::Duration;

use crate::bursts::scenario::{BYTES, PAUSE, USUAL, measure, on, ours, uniform};
use crate::bursts::{Load, Service};

/// One promise of the scheduler, and whether it was kept.
#[derive(Clone, Debug)]
pub struct Target {
    pub what: &'static str,
    /// The worst that was measured, and where.
    pub measured: String,
    pub met: bool,
}

/// The worst of the measured cases: the one that exceeds its limit by most.
#[derive(Default)]
pub(super) struct Worst(Option<(f64, String)>);

impl Worst {
    pub(super) fn add(&mut self, excess: f64, what: String) {
        if self.0.as_ref().is_none_or(|(worst, _)| excess > *worst) {
            self.0 = Some((excess, what));
        }
    }

    pub(super) fn target(self, what: &'static str) -> Target {
        let (excess, measured) = self.0.unwrap_or((f64::INFINITY, "nothing".into()));
        Target { what, measured, met: excess <= 0.0 }
    }
}

/// The default of a numeric parameter of our scheduler.
fn param(name: &str) -> f64 {
    let text = ours().params().find(|(param, _)| param.name() == name).expect("a parameter of it").1;
    let digits = text.trim_end_matches(|at: char| at.is_alphabetic());
    digits.parse().expect("a number")
}

/// The largest share of the service that bursts get.
pub fn share() -> f64 {
    param("share")
}

/// The longest time for which bursts hold bulk back, in ms.
pub fn gap_ms() -> f64 {
    param("gap")
}

/// The cost of a request of this size.
fn cost(bytes: u32) -> f64 {
    param("io-cost") + f64::from(bytes)
}

/// Requests of 4 KiB in a turn of a flow that bursts.
pub(super) fn turn() -> f64 {
    param("burst") / 32.0 / cost(BYTES)
}

/// The time of 1.1 requests on this service, in ms: what a burst may take beyond its floor.
pub(super) fn grace_ms(service: &Service) -> f64 {
    1.1 * service.takes(BYTES, Duration::ZERO).as_secs_f64() * 1e3
}

pub(super) fn floor(count: u32, seed: u64) -> f64 {
    floor_on(USUAL, count, seed)
}

pub(super) fn floor_on(service: Service, count: u32, seed: u64) -> f64 {
    measure(&on(service, uniform(ours(), vec![burst(count, PAUSE)], seed))).burst_ms([0], 0.5)
}

/// A burst, with another pause.
pub(super) fn burst(count: u32, pause: Duration) -> Load {
    Load::Burst { count, bytes: BYTES, pause }
}
