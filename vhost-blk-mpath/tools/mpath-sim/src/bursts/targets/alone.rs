//! One burst at a time, together with busy flows. `burst-credit` stays near the floor, and `published` has the published curve.

use mpath_core::{SchedulerKind, SchedulerSpec};

use super::judgement::{Target, Worst, floor, grace_ms};
use crate::bursts::scenario::{USUAL, against, ours};

/// K, the busy flows.
pub const BUSY: [usize; 5] = [4, 8, 16, 32, 64];
/// N, the requests of a burst.
pub const COUNTS: [u32; 6] = [1, 8, 32, 64, 96, 128];

pub(super) fn targets(seed: u64) -> Vec<Target> {
    let mut targets = Vec::from(shape_of_the_published_rule(seed));
    let mut worst = Worst::default();
    for count in COUNTS {
        let floor = floor(count, seed);
        for busy in BUSY {
            let with = against(ours(), count, busy, seed);
            let [p50, p99] = [0.5, 0.99].map(|quantile| with.burst_ms([0], quantile));
            let text = format!("N={count}, K={busy}: {p50:.1} / {p99:.1} ms over {floor:.1}");
            worst.add(p99 - (floor + grace_ms(&USUAL)), text);
        }
    }
    targets.push(worst.target("1. one burst: p50 and p99 ≤ floor + 1.1 services for N ≤ 128, K ≤ 64"));
    targets
}

fn shape_of_the_published_rule(seed: u64) -> [Target; 3] {
    let [plain, published] = [SchedulerKind::Fifo, SchedulerKind::Published].map(SchedulerSpec::from);
    let (mut held, mut knee, mut gain) = (Worst::default(), Worst::default(), Worst::default());
    for count in COUNTS {
        let (floor, with) = (floor(count, seed), against(published, count, 16, seed).burst_ms([0], 0.5));
        let text = format!("N={count}: {with:.1} ms over a floor of {floor:.1}");
        if count <= 64 {
            held.add(with - (floor + grace_ms(&USUAL)), text);
        } else {
            knee.add(2.0 * floor - with, text);
        }
    }
    let [plain, with] = [plain, published].map(|scheduler| against(scheduler, 32, 32, seed).burst_ms([0], 0.5));
    gain.add(12.0 - plain / with, format!("{plain:.0} / {with:.1} ms = {:.1}x", plain / with));
    [
        held.target("published: p50 ≤ floor + 1.1 services for N ≤ 64 (K = 16)"),
        knee.target("published: the knee, p50 > 2 × floor for N ≥ 96 (K = 16)"),
        gain.target("published: 12 × better than fifo at K = 32, N = 32"),
    ]
}
