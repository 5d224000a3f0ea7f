//! Several disks over the same path.

use std::num::NonZeroU64;

use mpath_core::Limits;

use super::judgement::{Target, Worst, share};
use crate::bursts::scenario::{SERVICE, attackers, bulk, interactive, measure, of_disks, ours};
use crate::bursts::{Disk, Load};

/// Weights of two disks.
const WEIGHTS: [(u16, u16); 3] = [(1, 1), (1, 4), (1, 1000)];

pub(super) fn targets(seed: u64) -> Vec<Target> {
    vec![weights_bind(seed), idle_disks(seed), of_a_limit(seed)]
}

fn of(weight: u16, flows: Vec<Load>) -> Disk {
    Disk { weight, ..Disk::of(flows) }
}

/// The service that the first disk got, and the service that all disks got, in seconds.
fn part(disks: Vec<Disk>, seed: u64) -> (f64, f64) {
    let first = disks[0].flows.len();
    let work = measure(&of_disks(ours(), disks, seed)).work();
    (work[..first].iter().sum(), work.iter().sum())
}

/// Two disks that always have requests waiting, from busy flows or from bursts, get service in proportion to their weights.
fn weights_bind(seed: u64) -> Target {
    let mut worst = Worst::default();
    let loads = [("bulk", bulk(16)), ("4 × 32", attackers(4, 32)), ("64 × 32", attackers(64, 32))];
    for (light, heavy) in WEIGHTS {
        for (name, load) in &loads {
            for (other_name, other) in &loads {
                let (had, all) = part(vec![of(light, load.clone()), of(heavy, other.clone())], seed);
                let due = all * f64::from(light) / f64::from(light + heavy);
                let allowed = (0.03 * due).max(SERVICE.as_secs_f64());
                let text = format!(
                    "{name} with weight {light}, alongside {other_name} with weight {heavy}: {had:.2} s of service instead of {due:.2} s"
                );
                worst.add(((had - due).abs() - allowed) / allowed, text);
            }
        }
    }
    worst.target("6. disks with work waiting throughout have their weight's part within 3 % or a request")
}

fn idle_disks(seed: u64) -> Target {
    let mut worst = Worst::default();
    for count in [32, 128] {
        for disks in 1..=3 {
            for weight in [1, 100, 1000] {
                let front = (0..disks).map(|_| of(weight, attackers(1, count)));
                let all: Vec<Disk> = front.chain([Disk::of(bulk(16))]).collect();
                let work = measure(&of_disks(ours(), all, seed)).work();
                let had = work[..disks].iter().sum::<f64>() / work.iter().sum::<f64>();
                let weights = disks as f64 * f64::from(weight);
                let allowed = share().max(weights / (weights + 100.0));
                worst.add(had - allowed - 0.003, format!("{:.1} % by {disks} × {count}, weight {weight}", 100.0 * had));
            }
        }
    }
    worst.target("6. disks that idle have ≤ share together, or their fair part")
}

/// The busy flows of a disk with a limit keep their part of the service, next to bursts of the same disk. In half of the runs
/// there is another disk.
fn of_a_limit(seed: u64) -> Target {
    let mut worst = Worst::default();
    for iops in [100, 300, 1000] {
        let limits = Limits { iops: NonZeroU64::new(iops), ..Limits::default() };
        for (name, front) in [("4 × 32", vec![interactive(32); 4]), ("4 × 32, no pause", attackers(4, 32))] {
            for others in [0, 16] {
                let limited = Disk { limits, ..Disk::of([front.clone(), bulk(16)].concat()) };
                let disks = if others > 0 { vec![limited, Disk::of(bulk(others))] } else { vec![limited] };
                let work = measure(&of_disks(ours(), disks, seed)).work();
                let (bursts, all) = (work[..4].iter().sum::<f64>(), work[..20].iter().sum::<f64>());
                let kept = 1.0 - bursts / all;
                worst.add(0.247 - kept, format!("{:.1} % with {name}, {iops} IOPS", 100.0 * kept));
            }
        }
    }
    worst.target("6. bulk of a limited disk has ≥ 25 % of its limit")
}
