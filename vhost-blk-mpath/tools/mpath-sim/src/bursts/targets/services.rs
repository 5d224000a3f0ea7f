//! The promises that also hold on other services: with other slots and other times of a request.

use monotonic::Duration;
use mpath_core::{SchedulerKind, SchedulerSpec};

use super::judgement::{Target, Worst, burst, floor_on, gap_ms, grace_ms, share};
use super::shares::Kept;
use crate::bursts::scenario::{PAUSE, bulk, measure, on, ours, uniform};
use crate::bursts::{Load, Measured, Service, jain};

const SLOTS: [usize; 3] = [1, 13, 64];
const TIMES_US: [u64; 3] = [100, 10_000, 100_000];
const BUSY: usize = 16;

fn services() -> Vec<(String, Service)> {
    let plain =
        |slots, time_us| Service { slots, time: Duration::from_micros(time_us), sizes_count: false, slower: None };
    let mut all: Vec<_> = SLOTS
        .into_iter()
        .flat_map(|slots| TIMES_US.map(|time_us| (format!("{slots} × {time_us} µs"), plain(slots, time_us))))
        .collect();
    let slower = Service { slower: Some((Duration::from_secs(1), 100)), ..plain(13, 1000) };
    all.push(("13 × 1000 µs, then 100 times that".into(), slower));
    all
}

fn run(service: Service, scheduler: SchedulerSpec, flows: Vec<Load>, seed: u64) -> Measured {
    measure(&on(service, uniform(scheduler, flows, seed)))
}

pub(super) fn targets(seed: u64) -> Vec<Target> {
    let (mut kept, mut attack, mut floors) = (Kept::default(), Worst::default(), Worst::default());
    let (mut jains, mut throughput) = (Worst::default(), Worst::default());
    for (name, service) in services() {
        for (count, flows, pause) in [(32, 4, PAUSE), (32, 16, PAUSE), (8, 4, Duration::ZERO), (128, 4, Duration::ZERO)]
        {
            let front = vec![burst(count, pause); flows];
            let with = run(service, ours(), [front, bulk(BUSY)].concat(), seed);
            let what = format!("{flows} × {count}, {name}");
            kept.add(&service, &with, BUSY, &what);
            let had = with.share(|flow| flow < flows);
            let allowed = share().max(flows as f64 / (flows + BUSY) as f64);
            attack.add(had - allowed - 0.01, format!("{:.1} % by {what}", 100.0 * had));
        }
        let one = service.slowest();
        let alone = one.as_secs_f64() * 1e3 * (32.0 / service.slots as f64).ceil();
        if service.slower.is_none() && alone <= gap_ms() && one.as_secs_f64() * 4e3 <= gap_ms() {
            let with = run(service, ours(), [vec![burst(32, PAUSE)], bulk(BUSY)].concat(), seed).burst_ms([0], 0.99);
            let floor = floor_on(service, 32, seed);
            floors.add((with - floor) / grace_ms(&service) - 1.0, format!("{with:.2} ms over {floor:.2}, {name}"));
        }
        let equal = jain(&run(service, ours(), bulk(BUSY), seed).work());
        jains.add(0.99 - equal, format!("{equal:.4}, {name}"));
        let front = [vec![burst(32, PAUSE)], bulk(BUSY)].concat();
        let [plain, with] =
            [SchedulerKind::Fifo.into(), ours()].map(|spec| run(service, spec, front.clone(), seed).iops());
        throughput.add(0.99 - with / plain, format!("{:.4} of fifo, {name}", with / plain));
    }
    let mut targets = vec![floors.target("other services: 1. p99 ≤ floor + 1.1 services where a burst takes ≤ gap")];
    targets.extend(kept.targets([
        "other services: 3. bulk over all",
        "other services: 3. bulk of any second",
        "other services: 3. gaps of bulk",
    ]));
    targets.push(attack.target("other services: 4. attackers together"));
    targets.push(jains.target("other services: 7. Jain of equal flows ≥ 0.99"));
    targets.push(throughput.target("other services: 7. throughput ≥ 99 % of fifo"));
    targets
}
