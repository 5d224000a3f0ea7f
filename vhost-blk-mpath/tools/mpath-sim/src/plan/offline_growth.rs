//! Namespaces that grow while no daemon runs.

use monotonic::Duration;

use crate::fault::{Fault, PlannedFault};
use crate::rng::Rng;

const MS: Duration = Duration::from_millis(1);

/// Kills around the growths of namespaces: the next daemon finds a namespace larger than it was saved. A second kill comes while that
/// daemon opens the disk or soon after it. Often no path can be connected then, so the third daemon shows what the second has saved.
pub(super) fn offline_growth(
    rng: &mut Rng,
    growth: &[PlannedFault],
    paths: usize,
    quiet: Duration,
) -> Vec<PlannedFault> {
    let (Some(first), Some(last)) =
        (growth.iter().map(|growth| growth.begins).min(), growth.iter().map(|growth| growth.begins).max())
    else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if rng.percent(50) {
        return faults;
    }
    let mut add = |fault, begins: Duration, lasts: Duration| {
        faults.push(PlannedFault { fault, begins, lasts: lasts.min(quiet.saturating_sub(begins)) });
    };
    let kill = |rng: &mut Rng| Fault::KillDaemon { resubmits: rng.percent(50), exit: rng.up_to(MS) };
    let (begins, fault) = (first.saturating_sub(10 * MS), kill(rng));
    let ends = last + 10 * MS;
    add(fault, begins, ends.saturating_sub(begins));
    let longest = rng.pick(&[100 * MS, 1500 * MS]);
    let (again, fault) = (ends + rng.up_to(longest), kill(rng));
    add(fault, again, rng.up_to(300 * MS));
    if rng.percent(50) {
        (0..paths).for_each(|path| add(Fault::PortDown { path }, again, 2000 * MS));
    }
    faults
}
