//! Paths that fall silent in turn, a few answers after the other one is back.

use monotonic::Duration;
use mpath_core::PolicyKind;
use mpath_sim::policies::{Model, Sim, Workload};

const MS: Duration = Duration::from_millis(1);
/// A read leaves a silent path within this time.
const READ_MOVES_WITHIN: Duration = Duration::from_millis(500);

/// The slowest read, if the paths are silent in turn.
fn slowest_read(policy: PolicyKind, workload: Workload) -> Duration {
    let mut sim = Sim::new(policy, &[Model::disk(32, 10 * MS); 2], workload, 1);
    let mut slowest = sim.run(1000 * MS).slowest_read();
    for path in [0, 1, 0, 1] {
        sim.silence(path);
        slowest = slowest.max(sim.run(1000 * MS).slowest_read());
        sim.restore(path);
        slowest = slowest.max(sim.run(50 * MS).slowest_read());
    }
    slowest.max(sim.run(1000 * MS).slowest_read())
}

/// A path that comes back answers what was moved, too late. That must not keep reads on the path that is silent next.
#[test]
fn each_silence_costs_a_read_the_same() {
    let mut found = Vec::new();
    for policy in PolicyKind::ALL {
        for reads_percent in [50, 100] {
            let slowest = slowest_read(policy, Workload::small(32).with_reads(reads_percent));
            if slowest > READ_MOVES_WITHIN {
                found.push(format!("{policy:?}, {reads_percent} % reads: {slowest:?}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
