//! Several flows that burst, together with each other and 16 busy flows.

use monotonic::Duration;

use super::judgement::{Target, Worst, burst, floor, grace_ms, share, turn};
use crate::bursts::scenario::{PAUSE, USUAL, attackers, in_front, interactive, ours};
use crate::bursts::{Load, Measured};
use mpath_core::SchedulerSpec;

/// m: the number of flows that send bursts at the same time.
pub const MANY: [usize; 7] = [1, 2, 3, 4, 6, 8, 16];
/// Attackers send bursts of these sizes.
pub const ATTACKS: [u32; 4] = [8, 32, 64, 128];
/// Numbers of attackers.
const ATTACKERS: [usize; 2] = [4, 16];
/// Bursts of at most one turn, and the pause after each in ms. With this pause, the flow asks for less than its share, even next
/// to 16 attackers and 16 busy flows.
const WITHIN: [(u32, u64); 4] = [(1, 50), (2, 60), (3, 80), (8, 250)];

pub(super) fn targets(seed: u64) -> Vec<Target> {
    let mut targets = Vec::from(at_once(seed));
    targets.extend(with_attackers(seed));
    targets
}

/// The largest mean, in ms, that bursts of several flows may have where `iops` requests are served in a second. A flow begins again
/// when its burst is answered, so the mean does not depend on the order of service.
pub fn at_once_ms(flows: usize, count: u32, pause: Duration, iops: f64) -> f64 {
    let all = flows as f64 * f64::from(count);
    (all / (share() * iops) - pause.as_secs_f64()).max(all / iops) * 1e3
}

/// The time of a turn of each flow that bursts, in ms. For the tail, each flow may be the last one in its turn.
pub fn turns_ms(flows: usize, iops: f64) -> f64 {
    flows as f64 * turn() / (share() * iops) * 1e3
}

fn at_once(seed: u64) -> [Target; 2] {
    let (mut mean, mut tail) = (Worst::default(), Worst::default());
    let (iops, grace) = (USUAL.iops(), grace_ms(&USUAL));
    for count in [8, 32, 128] {
        for flows in MANY {
            let with = in_front(ours(), &vec![interactive(count); flows], 16, seed);
            let turns = turns_ms(flows, iops);
            // Pauses vary by a tenth.
            let [bound, longest] = [1.0, 0.9].map(|times| at_once_ms(flows, count, PAUSE.mul_f64(times), iops) + grace);
            let (measured, p99) = (with.mean_burst_ms(0..flows), with.burst_ms(0..flows, 0.99));
            mean.add(measured / bound - 1.0, format!("{flows} × {count}: {measured:.1} ms of {bound:.1}"));
            tail.add(
                p99 / (longest + turns) - 1.0,
                format!("{flows} × {count}: {p99:.1} ms of {:.1}", longest + turns),
            );
        }
    }
    [
        mean.target("2. m bursts: mean ≤ max(m·N / (share·C) − think, m·N / C) + 1.1 services, m ≤ 16"),
        tail.target("2. m bursts: p99 ≤ the same after the shortest pause, and a turn of each"),
    ]
}

/// A flow together with attackers and 16 busy flows.
pub fn attacked(scheduler: SchedulerSpec, flow: Load, others: usize, count: u32, seed: u64) -> Measured {
    in_front(scheduler, &[vec![flow], attackers(others, count)].concat(), 16, seed)
}

fn with_attackers(seed: u64) -> [Target; 2] {
    let (mut within, mut any) = (Worst::default(), Worst::default());
    for others in ATTACKERS {
        for attack in ATTACKS {
            for (count, pause_ms) in WITHIN {
                let flow = burst(count, Duration::from_millis(pause_ms));
                let (p99, floor) =
                    (attacked(ours(), flow, others, attack, seed).burst_ms([0], 0.99), floor(count, seed));
                let text = format!("{count} with {others} × {attack}: {p99:.1} ms over {floor:.1}");
                within.add(p99 - (floor + grace_ms(&USUAL)), text);
            }
            for count in [8, 32, 128] {
                let p99 = attacked(ours(), interactive(count), others, attack, seed).burst_ms([0], 0.99);
                let n = others as f64;
                let requests = (n + 1.0) * f64::from(count) + n * turn();
                let bound = requests / (share() * USUAL.iops()) * 1e3 + grace_ms(&USUAL);
                any.add(p99 / bound - 1.0, format!("{count} with {others} × {attack}: {p99:.1} ms of {bound:.1}"));
            }
        }
    }
    [
        within.target("5. a flow within a turn and its part: p99 ≤ floor + 1.1 services with 4 and 16 attackers"),
        any.target("5. any burst with n others: p99 ≤ ((n + 1)·N + n·turn) / (share·C) + 1.1 services"),
    ]
}
