//! The service and the flows of the experiment.

use std::time::Duration;

use mpath_core::{SchedulerKind, SchedulerSpec};

use crate::{Load, Measured, Setup, run};

/// Time of the service for a request.
pub const SERVICE: Duration = Duration::from_millis(10);
/// What the published figures fit: without credits they are those of 13 slots within 5 % from eight busy flows on. (The floor grows by
/// 0.795 ms a request, which is 12.6.)
pub const SLOTS: usize = 13;
/// The pause between bursts.
pub const PAUSE: Duration = Duration::from_millis(50);
/// Requests that a busy flow keeps outstanding.
pub const DEPTH: u32 = 32;
/// Of a request.
pub const BYTES: u32 = 4096;
/// Before anything is measured, and while it is.
const WARM_UP: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(30);

/// The schedulers that are compared; the last one at `rho` 0.
#[must_use]
pub fn schedulers() -> [SchedulerSpec; 4] {
    [SchedulerKind::Fifo.into(), SchedulerKind::BurstCredit.into(), drr(), drr_without_rho()]
}

/// Ours, with its defaults.
#[must_use]
pub fn drr() -> SchedulerSpec {
    SchedulerKind::BurstCreditDrr.into()
}

/// Ours, with no burst credit beyond the fair share.
#[must_use]
pub fn drr_without_rho() -> SchedulerSpec {
    SchedulerSpec::new(SchedulerKind::BurstCreditDrr, [("rho", "0")]).expect("a parameter of it")
}

/// What was published for a burst of 32 against so many busy flows: p50 in ms without and with credits.
#[must_use]
pub fn published_by_k(busy: usize) -> Option<[f64; 2]> {
    match busy {
        4 => Some([81.6, 60.9]),
        8 => Some([242.0, 64.5]),
        16 => Some([433.0, 65.4]),
        32 => Some([827.0, 64.4]),
        _ => None,
    }
}

/// The same for a burst of so many against 16 busy flows.
#[must_use]
pub fn published_by_n(count: u32) -> Option<[f64; 2]> {
    match count {
        1 => Some([28.6, 16.7]),
        8 => Some([122.0, 36.0]),
        32 => Some([434.0, 65.1]),
        64 => Some([862.0, 124.5]),
        96 => Some([1273.0, 546.0]),
        128 => Some([1696.0, 962.0]),
        _ => None,
    }
}

/// Flows that keep a deep queue.
#[must_use]
pub fn bulk(count: usize) -> Vec<Load> {
    vec![Load::Bulk { depth: DEPTH, bytes: BYTES }; count]
}

/// A flow that sends so many requests at once and then pauses.
#[must_use]
pub fn interactive(count: u32) -> Load {
    Load::Burst { count, bytes: BYTES, pause: PAUSE }
}

/// Flows that send so many requests, wait for them and begin again at once.
#[must_use]
pub fn attackers(flows: usize, count: u32) -> Vec<Load> {
    vec![Load::Burst { count, bytes: BYTES, pause: Duration::ZERO }; flows]
}

/// One size: every request takes the same time.
#[must_use]
pub fn uniform(scheduler: SchedulerSpec, flows: Vec<Load>, seed: u64) -> Setup {
    Setup { scheduler, slots: SLOTS, window: SLOTS as u32, service: |_| SERVICE, flows, seed }
}

/// Mixed sizes: what a request takes grows with its bytes and has a constant part, here of 16 KiB; 64 KiB take [`SERVICE`].
#[must_use]
pub fn by_size(scheduler: SchedulerSpec, flows: Vec<Load>, seed: u64) -> Setup {
    let service = |bytes: u32| SERVICE.mul_f64((16384.0 + f64::from(bytes)) / (80.0 * 1024.0));
    Setup { service, ..uniform(scheduler, flows, seed) }
}

/// Runs it for as long as tables and targets need.
#[must_use]
pub fn measure(setup: &Setup) -> Measured {
    run(setup, WARM_UP, MEASURED)
}

/// One interactive flow, flow 0, against so many busy ones.
#[must_use]
pub fn against(scheduler: SchedulerSpec, count: u32, busy: usize, seed: u64) -> Measured {
    let flows = [vec![interactive(count)], bulk(busy)].concat();
    measure(&uniform(scheduler, flows, seed))
}
