//! Decides: the vendor window has this content.
//!
//! The content of the vendor windows: policy and paths, for front-ends that know the window (docs/qemu.md).

use mpath_api::types::Condition;
use mpath_config::{ClassPolicies, PolicyKind};
use mpath_core::{AnaState, DiskId};
use vhost_user_blk::VendorWindow;

use crate::subsystem::Subsystem;
use crate::subsystem::path_status::{PathStatus, State};

/// The number of a policy in the vendor window. A number is never used for another policy, and 0 for none.
const fn id(kind: PolicyKind) -> u16 {
    match kind {
        PolicyKind::Numa => 1,
        PolicyKind::RoundRobin => 2,
        PolicyKind::QueueDepth => 3,
        PolicyKind::Adaptive => 4,
        PolicyKind::Pid => 5,
        PolicyKind::Latency => 6,
        PolicyKind::LatencyRr => 7,
        PolicyKind::ServiceTime => 8,
        PolicyKind::Bdp => 9,
    }
}

/// The policy with that number.
pub(crate) fn policy(wanted: u16) -> Option<PolicyKind> {
    PolicyKind::ALL.into_iter().find(|kind| id(*kind) == wanted)
}

/// The number of a condition in the vendor window. A number is never used for another condition, and 0 for none.
pub(crate) const fn condition_id(condition: Condition) -> u16 {
    match condition {
        Condition::Ok => 1,
        Condition::Degraded => 2,
        Condition::NoFrontEnd => 3,
        Condition::Waiting => 4,
        Condition::Held => 5,
        Condition::Failing => 6,
    }
}

/// The number of the policy for all requests, whatever its parameters; 0 if reads and writes have different policies.
fn id_in_force(policies: &ClassPolicies) -> u16 {
    let (read, write) = (policies.read.kind(), policies.write.kind());
    if read == write { id(read) } else { 0 }
}

/// The content of one disk's vendor window.
fn of_disk(state: &State, disk: DiskId) -> VendorWindow {
    let is_optimized =
        |path: &PathStatus| path.namespace(disk).is_some_and(|namespace| namespace.ana == AnaState::Optimized);
    let live = || state.paths().filter(|path| path.is_usable(disk));
    VendorWindow {
        policy: id_in_force(&state.live(DiskId(0)).policy),
        paths_total: state.paths().count() as u16,
        paths_live: live().count() as u16,
        paths_optimized: live().filter(|path| is_optimized(path)).count() as u16,
    }
}

impl Subsystem {
    /// Updates the vendor windows of all disks. To be called with the state still locked when policy or paths have
    /// changed, so that front-ends see changes in order.
    pub(crate) fn update_vendor_windows(&self, state: &State) {
        for (disk, backing) in self.disks.iter().filter_map(|disk| Some((disk, disk.backing()?))) {
            backing.frontend.set_vendor_window(of_disk(state, disk.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use mpath_api::types::{Origin, PathState};
    use mpath_config::{PolicyChange, PolicyClass};
    use mpath_core::{Epoch, PathId};

    use mpath_lifecycle::{DesiredState, NamespaceUpdate};

    use super::*;
    use crate::disk::geometry;

    #[test]
    fn policy_numbers_match_the_documentation() {
        let documented = include_str!("../../../docs/qemu.md");
        for kind in PolicyKind::ALL {
            assert!(documented.contains(&format!("| {} | `{kind}` |\n", id(kind))), "{kind}");
            assert_eq!(policy(id(kind)), Some(kind));
        }
        let names =
            ["numa", "round-robin", "queue-depth", "adaptive", "pid", "latency", "latency-rr", "service-time", "bdp"];
        for (number, name) in (1..).zip(names) {
            assert_eq!(policy(number).map(PolicyKind::name), Some(name), "front-ends rely on it");
        }
        assert_eq!([0, names.len() as u16 + 1, u16::MAX].map(policy), [None; 3]);
    }

    #[test]
    fn condition_numbers_match_the_documentation() {
        let documented = include_str!("../../../docs/qemu.md");
        for (condition, number) in Condition::ALL.into_iter().zip(1..) {
            assert_eq!(condition_id(condition), number, "front-ends rely on it");
            assert!(documented.contains(&format!("| {number} | `{condition}` |\n")), "{condition}");
        }
    }

    #[test]
    fn a_policy_for_reads_alone_has_no_number() {
        let mut policies = ClassPolicies::from(PolicyKind::Pid);
        let mut change = |kind, class, params: &[(&str, &str)]| {
            policies.change(&PolicyChange::new(kind, class, params.iter().copied()).unwrap());
            id_in_force(&policies)
        };
        assert_eq!(change(PolicyKind::LatencyRr, Some(PolicyClass::Read), &[]), 0);
        assert_eq!(change(PolicyKind::LatencyRr, Some(PolicyClass::Write), &[("threshold", "2")]), 7);
        assert_eq!(change(PolicyKind::Bdp, None, &[]), 9);
    }

    /// Two disks, and the state of both paths for each of them.
    #[test]
    fn paths_count_for_the_disks_that_can_use_them() {
        let mut state = State::new(&geometry::tests::config());
        let namespace = |disk, state, unusable: bool| {
            let unusable = unusable.then(|| "gone".into());
            NamespaceUpdate { disk: DiskId(disk), state, unusable, blocks: 1, added: None, changed: true }
        };
        let counts = |state: &State| {
            [0, 1].map(|disk| {
                let VendorWindow { paths_total, paths_live, paths_optimized, .. } = of_disk(state, DiskId(disk));
                [paths_total, paths_live, paths_optimized]
            })
        };
        assert_eq!(counts(&state), [[0; 3]; 2]);
        for port in 1..3 {
            state.insert(format!("tcp://127.0.0.1:{port}").parse().unwrap(), Origin::Operator).unwrap();
        }
        assert_eq!(counts(&state), [[2, 0, 0]; 2]);
        let [optimized, other, none] = [AnaState::Optimized, AnaState::NonOptimized, AnaState::Inaccessible];
        let lost = AnaState::PersistentLoss;
        for (path, ana) in [(0, [(optimized, false), (none, false)]), (1, [(other, false), (lost, true)])] {
            let path = state.path_mut(PathId(path)).unwrap();
            let all = (0..).zip(ana).map(|(disk, (ana, unusable))| namespace(disk, ana, unusable));
            path.namespaces.begin(all.collect(), |_| None).unwrap();
        }
        assert_eq!(counts(&state), [[2, 0, 0]; 2], "not connected yet");
        state.paths_mut().for_each(|path| path.set_state(PathState::Live));
        assert_eq!(counts(&state), [[2, 2, 1], [2, 0, 0]]);
        state.path_mut(PathId(1)).unwrap().namespaces.update(namespace(1, optimized, false));
        assert_eq!(counts(&state), [[2, 2, 1], [2, 1, 1]]);
        state.path_mut(PathId(0)).unwrap().order(|order| order.wanted = DesiredState::Drained);
        assert_eq!(counts(&state), [[2, 1, 0], [2, 1, 1]]);
        state.remove(PathId(0), Epoch(0));
        assert_eq!(counts(&state), [[1, 1, 0], [1, 1, 1]]);
    }
}
