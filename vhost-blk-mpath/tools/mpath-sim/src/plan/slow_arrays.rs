//! Arrays that take 0.1 to 2 s for each answer.

use monotonic::Duration;
use mpath_core::{GroupConfig, PolicyKind};

use super::faults::span;
use crate::fault::{Fault, PlannedFault};
use crate::rng::Rng;

const MS: Duration = Duration::from_millis(1);

const TIMES: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How long all nodes take for each answer during the whole run, in which nothing else fails; `None` in most runs.
pub(super) fn uniform(rng: &mut Rng, group: &GroupConfig) -> Option<Duration> {
    let time = rng.pick(&TIMES).min(group.io_timeout / 2);
    rng.percent(10).then_some(time)
}

/// No command is sent twice without need: nothing is hedged or probed.
pub(super) fn without_extra_reads(rng: &mut Rng, group: &mut GroupConfig) {
    let policies = [PolicyKind::RoundRobin, PolicyKind::QueueDepth, PolicyKind::ServiceTime, PolicyKind::Numa];
    (group.hedging, group.policy) = (None, rng.pick(&policies).into());
}

/// All nodes are slow, until `quiet`.
pub(super) fn all_slow(by: Duration, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let begins = Duration::ZERO;
    (0..paths).map(|node| PlannedFault { fault: Fault::SlowNode { node, by }, begins, lasts: quiet }).collect()
}

/// Times until `quiet` in which some nodes are slow, or all of them.
pub(super) fn slow_times(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 1, 2]) {
        let (begins, lasts) = span(rng, quiet, &[1000 * MS, 4000 * MS, 9000 * MS]);
        let (by, fewest) = (rng.pick(&TIMES), if rng.percent(50) { paths } else { 1 });
        let slow = (0..paths).filter(|node| *node < fewest || rng.percent(30));
        planned.extend(slow.map(|node| PlannedFault { fault: Fault::SlowNode { node, by }, begins, lasts }));
    }
    planned
}
