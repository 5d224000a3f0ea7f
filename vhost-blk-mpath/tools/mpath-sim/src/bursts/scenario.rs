//! The service and the flows of the experiment.

use monotonic::Duration;
use mpath_core::{SchedulerKind, SchedulerSpec};

use super::{Disk, Load, Measured, Service, Setup, run};

/// How long the service takes for a request.
pub const SERVICE: Duration = Duration::from_millis(10);
/// The number of slots that fits the published figures: without credits, from eight busy flows on, these are within 5 % of those
/// of 13 slots. (The published floor grows by 0.795 ms with each request, which is 12.6 slots.)
pub const SLOTS: usize = 13;
/// The service of the experiment.
pub const USUAL: Service = Service { slots: SLOTS, time: SERVICE, sizes_count: false, slower: None };
/// The pause between bursts.
pub const PAUSE: Duration = Duration::from_millis(50);
/// Requests that a busy flow keeps outstanding.
pub const DEPTH: u32 = 32;
/// Bytes of a request.
pub const BYTES: u32 = 4096;
/// A measurement takes about this number of requests, within the bounds of `MEASURED`.
const MEASURED_IOS: f64 = 40_000.0;
const MEASURED: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(600)];

/// The schedulers that are compared.
pub fn schedulers() -> [SchedulerSpec; 3] {
    [SchedulerKind::Fifo, SchedulerKind::Published, SchedulerKind::BurstCredit].map(SchedulerSpec::from)
}

/// `burst-credit` with its default parameters.
pub fn ours() -> SchedulerSpec {
    SchedulerKind::BurstCredit.into()
}

/// Published p50 of a burst of 32 against `busy` busy flows, in ms, without and with credits.
pub fn published_by_k(busy: usize) -> Option<[f64; 2]> {
    match busy {
        4 => Some([81.6, 60.9]),
        8 => Some([242.0, 64.5]),
        16 => Some([433.0, 65.4]),
        32 => Some([827.0, 64.4]),
        _ => None,
    }
}

/// The published figures for a burst of `count` requests against 16 busy flows.
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
pub fn bulk(count: usize) -> Vec<Load> {
    vec![Load::Bulk { depth: DEPTH, bytes: BYTES }; count]
}

/// A flow that sends `count` requests at once and then pauses.
pub fn interactive(count: u32) -> Load {
    Load::Burst { count, bytes: BYTES, pause: PAUSE }
}

/// Flows that send `count` requests, wait for them and begin again at once.
pub fn attackers(flows: usize, count: u32) -> Vec<Load> {
    vec![Load::Burst { count, bytes: BYTES, pause: Duration::ZERO }; flows]
}

/// Disks on the service of the experiment.
pub fn of_disks(scheduler: SchedulerSpec, disks: Vec<Disk>, seed: u64) -> Setup {
    Setup { scheduler, service: USUAL, window: SLOTS as u32, disks, seed }
}

/// Flows of one disk.
pub fn uniform(scheduler: SchedulerSpec, flows: Vec<Load>, seed: u64) -> Setup {
    of_disks(scheduler, vec![Disk::of(flows)], seed)
}

/// `setup` on another service.
pub fn on(service: Service, setup: Setup) -> Setup {
    Setup { service, window: service.slots as u32, ..setup }
}

/// The service of the experiment where sizes count: 64 KiB take [`SERVICE`].
pub fn by_size(scheduler: SchedulerSpec, flows: Vec<Load>, seed: u64) -> Setup {
    on(Service { sizes_count: true, ..USUAL }, uniform(scheduler, flows, seed))
}

/// Runs a setup for as long as tables and targets need.
pub fn measure(setup: &Setup) -> Measured {
    let [least, most] = MEASURED;
    let time = Duration::from_secs_f64(MEASURED_IOS / setup.service.iops()).clamp(least, most);
    // All flows are new to the scheduler at first, so there is a warm-up.
    run(setup, time / 2, time)
}

/// One interactive flow, which is flow 0, against `busy` busy flows.
pub fn against(scheduler: SchedulerSpec, count: u32, busy: usize, seed: u64) -> Measured {
    in_front(scheduler, &[interactive(count)], busy, seed)
}

/// The flows of `front`, and then `busy` busy flows, on one disk.
pub fn in_front(scheduler: SchedulerSpec, front: &[Load], busy: usize, seed: u64) -> Measured {
    measure(&uniform(scheduler, [front, &bulk(busy)].concat(), seed))
}
