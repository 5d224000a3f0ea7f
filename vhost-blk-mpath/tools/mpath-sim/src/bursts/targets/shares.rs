//! Shares of the service within a disk.

use mpath_core::{SchedulerKind, SchedulerSpec};

use super::alone::BUSY;
use super::judgement::{Target, Worst, gap_ms, share};
use super::many::{ATTACKS, MANY};
use crate::bursts::scenario::{
    USUAL, against, attackers, bulk, by_size, in_front, interactive, measure, ours, uniform,
};
use crate::bursts::{Load, Measured, Service, jain};

/// Numbers of flows whose bursts together take more than a second.
const HORDES: [usize; 3] = [32, 64, 200];
/// Sizes of the mixed busy flows.
pub const SIZES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// The shares of the service that busy flows are promised: over the whole time, and in any second.
pub(super) const KEPT: [f64; 2] = [0.25, 0.2];

pub(super) fn targets(seed: u64) -> Vec<Target> {
    let mut targets = Vec::from(busy_flows(seed));
    targets.push(attackers_together(seed));
    targets.extend(fairness(seed));
    targets.push(throughput(seed));
    targets
}

/// Loads that keep the sparse tier busy.
pub fn sustained() -> Vec<(String, Vec<Load>)> {
    let many = MANY.iter().chain(&HORDES);
    let mut loads: Vec<_> =
        many.map(|&flows| (format!("{flows} × 32, pause 50 ms"), vec![interactive(32); flows])).collect();
    loads.push(("1 × 128, pause 50 ms".into(), vec![interactive(128)]));
    loads.extend(ATTACKS.map(|count| (format!("4 × {count}, no pause"), attackers(4, count))));
    loads
}

/// Judges the service that busy flows got in the presence of other flows.
#[derive(Default)]
pub(super) struct Kept {
    all: Worst,
    second: Worst,
    gap: Worst,
}

impl Kept {
    /// Adds a measurement in which the last `busy` flows are the busy ones.
    pub(super) fn add(&mut self, service: &Service, with: &Measured, busy: usize, name: &str) {
        let flows = with.work().len();
        let is_busy = |flow: usize| flow >= flows - busy;
        let fair = busy as f64 / flows as f64;
        let one = service.slowest().as_secs_f64();
        let (all, least) = (with.share(is_busy), with.least_share(is_busy));
        // The 0.003 are what bursts have saved up before the measurement.
        self.all.add(KEPT[0].min(fair) - 0.003 - all, format!("{:.1} % under {name}", 100.0 * all));
        let [_, second] = KEPT;
        self.second.add(second.min(fair) - one - least, format!("{:.1} % in some second under {name}", 100.0 * least));
        let longest = with.longest_gap_ms(is_busy);
        let between = 4.0 * one * 1e3 / service.slots as f64;
        self.gap.add(longest - gap_ms().max(between) - one * 1e3, format!("{longest:.0} ms under {name}"));
    }

    pub(super) fn targets(self, whats: [&'static str; 3]) -> [Target; 3] {
        let [all, second, gap] = whats;
        [self.all.target(all), self.second.target(second), self.gap.target(gap)]
    }
}

fn busy_flows(seed: u64) -> [Target; 3] {
    let mut kept = Kept::default();
    for (name, front) in sustained() {
        kept.add(&USUAL, &in_front(ours(), &front, 16, seed), 16, &name);
    }
    kept.targets([
        "3. bulk has ≥ min(25 %, fair) over all",
        "3. bulk has ≥ min(20 %, fair) of any second, less a request a slot",
        "3. no gap of bulk above max(gap, 4 / C) + 1 service",
    ])
}

fn attackers_together(seed: u64) -> Target {
    let mut worst = Worst::default();
    for count in ATTACKS {
        for flows in [1, 2, 4, 16, 64] {
            let part = in_front(ours(), &attackers(flows, count), 16, seed).share(|flow| flow < flows);
            let fair = flows as f64 / (flows + 16) as f64;
            worst.add(part - share().max(fair) - 0.003, format!("{:.1} % by {flows} × {count}", 100.0 * part));
        }
    }
    worst.target("4. attackers together have ≤ share, or their fair part")
}

/// Jain's index of busy flows of one size, and of mixed sizes.
pub fn jains(scheduler: SchedulerSpec, seed: u64) -> (f64, f64) {
    let equal = measure(&uniform(scheduler, bulk(16), seed));
    let mixed = SIZES.iter().flat_map(|bytes| vec![Load::Bulk { depth: 32, bytes: *bytes }; 4]).collect();
    (jain(&equal.work()), jain(&measure(&by_size(scheduler, mixed, seed)).work()))
}

fn fairness(seed: u64) -> [Target; 2] {
    let (mut equal, mut mixed) = (Worst::default(), Worst::default());
    let jains = jains(ours(), seed);
    equal.add(0.99 - jains.0, format!("{:.4}", jains.0));
    mixed.add(0.99 - jains.1, format!("{:.4}", jains.1));
    [
        equal.target("7. Jain of equal flows ≥ 0.99"),
        mixed.target("7. Jain of the service of flows of mixed sizes ≥ 0.99"),
    ]
}

fn throughput(seed: u64) -> Target {
    let mut worst = Worst::default();
    for busy in BUSY {
        let plain = against(SchedulerKind::Fifo.into(), 32, busy, seed).iops();
        for kind in [SchedulerKind::Published, SchedulerKind::BurstCredit] {
            let ratio = against(kind.into(), 32, busy, seed).iops() / plain;
            worst.add(0.99 - ratio, format!("{ratio:.4} of fifo with {kind}, K={busy}"));
        }
    }
    worst.target("7. throughput ≥ 99 % of fifo")
}
