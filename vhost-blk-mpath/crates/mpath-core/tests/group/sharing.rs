//! Two disks that share two paths: what is about one's namespace is nothing to the other.

use mpath_core::{AnaStates, Tag};

use super::*;

const A: DiskId = DiskId(0);
const B: DiskId = DiskId(1);

fn numa() -> GroupConfig {
    GroupConfig { policy: PolicyKind::Numa.into(), ..config() }
}

/// Everything goes to the first path, by policy.
fn two_disks() -> Test {
    Test::up_with(numa(), &[SharedDisk::default(), SharedDisk::default()])
}

impl Test {
    fn submit_for(&mut self, disk: DiskId, tag: u32, op: Op) {
        self.submit_io(Io { tag: Tag(tag), op, bytes: 4096, disk, flow: FlowId(disk.0), fua: false });
    }

    /// On the path where it was issued.
    fn done_for(&mut self, disk: DiskId, tag: u32, op: Op) -> PathId {
        self.submit_for(disk, tag, op);
        let [Action::Issue { path, .. }] = self.actions()[..] else { panic!("one issue") };
        self.complete(path, tag, Outcome::Success);
        assert_eq!(self.actions(), [ok(tag)]);
        path
    }

    fn flush_presumed_of(&mut self, disk: DiskId) {
        self.submit_for(disk, 99, Op::Flush);
        assert_eq!(self.actions(), [issue(P0, 99), issue(P1, 99)]);
        for path in [P0, P1] {
            self.complete(path, 99, Outcome::Success);
        }
        assert_eq!(self.actions(), [ok(99)]);
    }
}

#[test]
fn a_path_error_rests_the_path_for_its_disk() {
    let mut t = two_disks();
    t.submit_for(B, 0, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0)]);
    t.complete(P0, 0, Outcome::PathError);
    assert_eq!(t.actions(), [issue(P1, 0)]);
    t.complete(P1, 0, Outcome::Success);
    assert_eq!(t.actions(), [ok(0)]);
    assert_eq!((t.done_for(A, 1, Op::Read), t.done_for(B, 2, Op::Read)), (P0, P1));
    // News of the other disk are none.
    t.group.ana_changed(t.now, P0, A, AnaState::Optimized);
    assert_eq!(t.done_for(B, 3, Op::Read), P1);
    t.group.ana_changed(t.now, P0, B, AnaState::Optimized);
    assert_eq!(t.done_for(B, 4, Op::Read), P0);
}

#[test]
fn each_disk_uses_what_is_best_for_it() {
    let mut t = two_disks();
    t.group.path_lost(t.now, P0);
    let mut ana = AnaStates::from(AnaState::NonOptimized);
    ana.set(B, AnaState::Inaccessible);
    t.group.path_up(t.now, P0, Association { epoch: Epoch(2), ana, volatile_write_cache: true, queue_depth: 16 });
    assert_eq!((t.done_for(A, 0, Op::Read), t.done_for(B, 1, Op::Read)), (P1, P1));
    t.group.path_lost(t.now, P1);
    t.submit_for(B, 2, Op::Read);
    assert_eq!((t.done_for(A, 3, Op::Read), t.actions()), (P0, vec![]), "B has no path, and holds A up in nothing");
    t.group.ana_changed(t.now, P0, B, AnaState::Optimized);
    assert_eq!(t.actions(), [issue(P0, 2)]);
}

#[test]
fn only_the_disk_that_has_a_better_path_leaves_a_silent_one() {
    let mut t = two_disks();
    t.group.ana_changed(t.now, P1, B, AnaState::Inaccessible);
    t.submit_for(A, 0, Op::Read);
    t.submit_for(B, 1, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.sleep();
    assert_eq!(t.actions(), [Action::Recall { path: P0, tag: Tag(0) }]);
    t.complete(P0, 0, Outcome::Recalled { abandoned: true });
    assert_eq!(t.actions(), [issue(P1, 0)]);
    // Now there is somewhere to go.
    t.group.ana_changed(t.now, P1, B, AnaState::Optimized);
    assert_eq!(t.actions(), [Action::Recall { path: P0, tag: Tag(1) }]);
}

#[test]
fn a_flush_covers_the_writes_of_its_disk() {
    let mut t = two_disks();
    t.flush_presumed_of(A);
    t.flush_presumed_of(B);
    assert_eq!(t.done_for(A, 0, Op::Write), P0);
    t.submit_for(B, 1, Op::Flush);
    assert_eq!(t.actions(), [ok(1)], "nothing of its own is dirty");
    t.submit_for(A, 2, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 2)]);
    t.complete(P0, 2, Outcome::Success);
    assert_eq!(t.actions(), [ok(2)]);

    // What is lost is lost to one.
    assert_eq!(t.done_for(A, 3, Op::Write), P0);
    t.group.path_lost(t.now, P0);
    t.submit_for(B, 4, Op::Flush);
    t.submit_for(A, 5, Op::Flush);
    assert_eq!(t.actions(), [ok(4), failed(5)]);
}

#[test]
fn a_flush_that_cannot_reach_its_namespace_holds_up_no_other_disk() {
    let mut t = two_disks();
    t.flush_presumed_of(A);
    t.flush_presumed_of(B);
    assert_eq!((t.done_for(A, 0, Op::Write), t.done_for(B, 1, Op::Write)), (P0, P0));
    t.group.ana_changed(t.now, P0, B, AnaState::Inaccessible);
    t.submit_for(B, 2, Op::Flush);
    t.submit_for(A, 3, Op::Flush);
    assert_eq!(t.actions(), [issue(P0, 3)]);
    t.group.ana_changed(t.now, P0, B, AnaState::Optimized);
    assert_eq!(t.actions(), [issue(P0, 2)]);
}

#[test]
fn a_probe_reads_a_disk_that_can_be_read_there() {
    let mut t = Test::up_with(
        GroupConfig { policy: PolicyKind::Bdp.into(), ..config() },
        &[SharedDisk::default(), SharedDisk::default()],
    );
    t.group.ana_changed(t.now, P1, A, AnaState::Inaccessible);
    // Too slow to be used.
    t.group.set_injection(t.now, P1, None, Injection::latency(50 * MS));
    let (mut probed, mut issued) = (Vec::new(), Vec::new());
    t.submit_for(A, 0, Op::Read);
    t.submit_for(B, 1, Op::Read);
    for _ in 0..2000 {
        t.now += MS;
        for (path, tag) in std::mem::take(&mut issued) {
            t.complete(path, tag, Outcome::Success);
        }
        for action in t.actions() {
            match action {
                Action::Probe { path, disk, .. } => {
                    probed.push((path, disk));
                    t.group.probed(t.now, path, true);
                }
                Action::Issue { path, tag } => issued.push((path, tag.0)),
                Action::Finish { tag, .. } => t.submit_for(DiskId(tag.0 as u16), tag.0, Op::Read),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(probed.contains(&(P1, B)) && !probed.contains(&(P1, A)), "{probed:?}");
}
