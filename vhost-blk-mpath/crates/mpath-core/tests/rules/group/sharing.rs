//! Two disks that share two paths: state of one namespace does not affect the other disk.

use mpath_core::{AnaStates, Tag};

use super::*;

const A: DiskId = DiskId(0);
const B: DiskId = DiskId(1);

fn numa() -> GroupConfig {
    GroupConfig { policy: PolicyKind::Numa.into(), ..config() }
}

/// The policy sends everything to the first path.
fn two_disks() -> Test {
    Test::up_with(numa(), &[SharedDisk::default(), SharedDisk::default()])
}

impl Test {
    fn submit_for(&mut self, disk: DiskId, tag: u32, op: Op) {
        self.submit_io(Io { tag: Tag(tag), op, bytes: 4096, disk, flow: FlowId(disk.0), fua: false });
    }

    /// Submits a request, and completes it at once on its path.
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
    // An event of the other disk does not end the rest.
    t.group.ana_changed(t.now, P0, A, AnaState::Optimized);
    assert_eq!(t.done_for(B, 3, Op::Read), P1);
    t.group.ana_changed(t.now, P0, B, AnaState::Optimized);
    assert_eq!(t.done_for(B, 4, Op::Read), P0);
}

#[test]
fn each_disk_uses_its_best_paths() {
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
fn only_a_disk_with_a_better_path_leaves_a_suspect_path() {
    let mut t = two_disks();
    t.group.ana_changed(t.now, P1, B, AnaState::Inaccessible);
    t.submit_for(A, 0, Op::Read);
    t.submit_for(B, 1, Op::Read);
    assert_eq!(t.actions(), [issue(P0, 0), issue(P0, 1)]);
    t.sleep();
    assert_eq!(t.actions(), [Action::Recall { path: P0, tag: Tag(0) }]);
    t.complete(P0, 0, Outcome::Recalled { abandoned: true });
    assert_eq!(t.actions(), [issue(P1, 0)]);
    // Another path is usable.
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

    // A loss concerns one disk.
    assert_eq!(t.done_for(A, 3, Op::Write), P0);
    t.group.path_lost(t.now, P0);
    t.submit_for(B, 4, Op::Flush);
    t.submit_for(A, 5, Op::Flush);
    let ended = t.actions();
    assert!(ended.len() == 2 && ended.contains(&ok(4)) && ended.contains(&failed(5, IoError::LostWrites)), "{ended:?}");
}

#[test]
fn a_flush_that_cannot_reach_its_namespace_delays_no_other_disk() {
    for (waits, goes) in [(A, B), (B, A)] {
        let mut t = two_disks();
        t.flush_presumed_of(A);
        t.flush_presumed_of(B);
        assert_eq!((t.done_for(A, 0, Op::Write), t.done_for(B, 1, Op::Write)), (P0, P0));
        t.group.ana_changed(t.now, P0, waits, AnaState::Inaccessible);
        t.submit_for(waits, 2, Op::Flush);
        t.submit_for(goes, 3, Op::Flush);
        assert_eq!(t.actions(), [issue(P0, 3)]);
        t.group.ana_changed(t.now, P0, waits, AnaState::Optimized);
        assert_eq!(t.actions(), [issue(P0, 2)]);
    }
}

#[test]
fn requests_that_an_injection_keeps_leave_an_inaccessible_namespace() {
    let mut t = two_disks();
    t.group.set_injection(t.now, P0, None, Injection::latency(50 * MS));
    t.submit_for(A, 0, Op::Read);
    t.submit_for(B, 1, Op::Read);
    assert_eq!(t.actions(), []);
    t.group.ana_changed(t.now, P0, B, AnaState::Inaccessible);
    assert_eq!(t.actions(), [issue(P1, 1)], "that of the other disk stays");
}

#[test]
fn a_probe_reads_a_disk_that_can_be_read_there() {
    let mut t = Test::up_with(
        GroupConfig { policy: PolicyKind::Bdp.into(), ..config() },
        &[SharedDisk::default(), SharedDisk::default()],
    );
    t.group.ana_changed(t.now, P1, A, AnaState::Inaccessible);
    // The path is too slow to be used.
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

/// Serves `count` requests, one at a time on one path. Returns the number of each disk.
fn served(t: &mut Test, count: usize) -> [usize; 3] {
    let mut served = [0; 3];
    for _ in 0..count {
        let [Action::Issue { path, tag }] = t.actions()[..] else { panic!("one at a time") };
        let disk = tag.0 as usize % 3;
        served[disk] += 1;
        t.complete(path, tag.0, Outcome::Success);
        // The next request arrives before the room is given to another.
        let tag = Tag(tag.0 + 300);
        let disk = DiskId(disk as u16);
        t.submit_io(Io { tag, op: Op::Read, bytes: 4096, disk, flow: FlowId(disk.0), fua: false });
        assert!(matches!(t.group.poll_action(t.now), Some(Action::Finish { .. })));
    }
    served
}

#[test]
fn a_disk_without_a_path_leaves_the_weights_of_the_others_alone() {
    let scheduler = mpath_core::SchedulerKind::Fifo.into();
    let disks = [(); 3].map(|()| SharedDisk::default());
    let mut t = Test::up_with(GroupConfig { scheduler, ..window(1, 1 << 20) }, &disks);
    t.group.path_lost(t.now, P1);
    t.group.set_weight(A, 900);
    t.group.ana_changed(t.now, P0, DiskId(2), AnaState::Inaccessible);
    // It arrives first, and would have the first turn.
    for tag in (0..30).rev() {
        let disk = DiskId((tag % 3) as u16);
        t.submit_io(Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk, flow: FlowId(disk.0), fua: false });
    }
    served(&mut t, 300);
    let [a, b, none] = served(&mut t, 1000);
    assert!((850..950).contains(&a) && a + b == 1000 && none == 0, "{a} {b} {none}");
}

#[test]
fn requests_fail_in_time_when_no_path_leads_to_their_namespace() {
    let mut t = Test::up_with(
        GroupConfig { no_path_timeout: Some(50 * MS), ..numa() },
        &[SharedDisk::default(), SharedDisk::default()],
    );
    for path in [P0, P1] {
        t.group.ana_changed(t.now, path, B, AnaState::PersistentLoss);
    }
    t.submit_for(B, 0, Op::Read);
    assert_eq!(t.actions(), []);
    assert_eq!(t.done_for(A, 1, Op::Read), P0);
    assert_eq!(t.sleep(), 50 * MS);
    assert_eq!(t.actions(), [failed(0, IoError::NoPath)]);
    assert_eq!(t.done_for(A, 2, Op::Read), P0);
    t.group.ana_changed(t.now, P0, B, AnaState::Optimized);
    assert_eq!(t.done_for(B, 3, Op::Read), P0);
}

#[test]
fn many_flushes_of_one_disk_do_not_starve_the_other() {
    let disks = [(); 2].map(|()| SharedDisk::default());
    let mut t = Test::up_with(GroupConfig { policy: PolicyKind::Numa.into(), ..window(1, 1 << 20) }, &disks);
    t.flush_presumed_of(A);
    t.flush_presumed_of(B);
    assert_eq!(t.done_for(A, 0, Op::Write), P0);
    for tag in 0..20 {
        t.submit_io(Io { tag: Tag(100 + tag), op: Op::Flush, bytes: 0, disk: A, flow: FlowId(0), fua: false });
        t.submit_io(Io { tag: Tag(200 + tag), op: Op::Read, bytes: 4096, disk: B, flow: FlowId(1), fua: false });
    }
    let mut reads = 0;
    for _ in 0..12 {
        let issued: Vec<_> = t
            .actions()
            .into_iter()
            .filter_map(|action| match action {
                Action::Issue { path, tag } => Some((path, tag)),
                _ => None,
            })
            .collect();
        for (path, tag) in issued {
            reads += u32::from(path == P0 && tag.0 >= 200);
            t.complete(path, tag.0, Outcome::Success);
        }
    }
    assert!((5..=7).contains(&reads), "{reads} of 12 on the path that owes flushes");
}
