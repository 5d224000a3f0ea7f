//! Disks that the operator removes and adds again.

use monotonic::Duration;

use crate::fault::{Fault, PlannedFault};
use crate::rng::Rng;

const MS: Duration = Duration::from_millis(1);

/// Replacements of all disks until `quiet`. Before most of them no commands are answered any more, so that writes are in doubt when the
/// disks are gone. Their nodes may execute these writes later.
pub(super) fn replacements(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 0, 1, 2]) {
        let begins = rng.up_to(quiet * 7 / 10);
        let mut add = |fault, begins: Duration, lasts: Duration| {
            planned.push(PlannedFault { fault, begins, lasts: lasts.min(quiet.saturating_sub(begins)) });
        };
        // Requests of disks that are removed are given up after 11 s.
        let kind = rng.below(5);
        for path in 0..paths {
            match kind {
                0 => {}
                1 => {
                    let lasts = rng.between(1000 * MS, 14_000 * MS);
                    add(Fault::BlackHole { path, at: [true, rng.percent(50)] }, begins + rng.up_to(50 * MS), lasts);
                }
                _ => {
                    let by = rng.between(11_000 * MS, 13_000 * MS);
                    add(Fault::SlowNode { node: path, by }, begins, 300 * MS);
                }
            }
        }
        let longest = rng.pick(&[MS, 2000 * MS, 12_000 * MS]);
        let fault = Fault::ReplaceDisks { to_other_socket: rng.percent(70) };
        add(fault, begins + 50 * MS + rng.up_to(200 * MS), rng.up_to(longest));
        if rng.percent(20) {
            // While the disks are removed, or gone, or just added.
            let kill = Fault::KillDaemon { resubmits: false, exit: rng.up_to(MS) };
            let begins = (begins + rng.up_to(14_000 * MS)).min(quiet * 9 / 10);
            add(kill, begins, rng.up_to(500 * MS));
        }
    }
    planned
}
