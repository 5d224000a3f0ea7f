use super::HoldAction::{Held, HoldUntil, Released, Resume, Suspend, TellWhenSettled};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The hold of a disk with two paths, and the time.
struct Disk {
    start: Instant,
    now: Instant,
    hold: DiskHold,
    paths: [TriedPath; 2],
    logs_are_done: bool,
}

impl Disk {
    fn new(inherited_seconds: Option<u32>, is_cache_shared: bool) -> Self {
        let start = Instant::now();
        let fence = inherited_seconds.map(|seconds| InheritedFence { until: start + seconds * SECOND, of: None });
        let paths = [TriedPath { trial: PathTrial::default(), blocks: None }; 2];
        Self { start, now: start, hold: DiskHold::new(fence, is_cache_shared), paths, logs_are_done: true }
    }

    fn actions(&mut self) -> Vec<HoldAction> {
        std::iter::from_fn(|| self.hold.poll()).collect()
    }

    fn open(&mut self) -> Vec<HoldAction> {
        self.hold.open(self.now, self.logs_are_done, &self.paths);
        self.actions()
    }

    fn at(&mut self, seconds: u32) -> Vec<HoldAction> {
        self.now = self.start + seconds * SECOND;
        self.hold.update(self.now, self.logs_are_done, &self.paths);
        self.actions()
    }

    /// An attempt that began at this time has ended.
    fn tried(&mut self, path: usize, began_seconds: u32, is_live: bool) {
        let tried_at = Some(self.start + began_seconds * SECOND);
        self.paths[path] =
            TriedPath { trial: PathTrial { tried_at, is_live, is_idle: false }, blocks: is_live.then_some(1000) };
    }
}

#[test]
fn a_disk_without_predecessor_is_not_held() {
    let mut disk = Disk::new(None, false);
    assert_eq!((disk.open(), disk.at(0)), (vec![], vec![]));
    assert!(disk.hold.is_over() && disk.hold.next_timeout().is_none());
}

#[test]
fn the_longest_inherited_fence_is_waited_for() {
    let mut disk = Disk::new(Some(5), true);
    let until = |seconds| disk.start + seconds * SECOND;
    let (of_other, longest) = (Some("other".to_owned()), until(7));
    let shared = SharedDisk::default();
    disk.hold.inherit(InheritedFence { until: longest, of: of_other.clone() }, &shared);
    disk.hold.inherit(InheritedFence { until: until(6), of: None }, &shared);
    let reason = HoldReason::InheritedFence(InheritedFence { until: longest, of: of_other });
    assert_eq!(disk.open(), [HoldUntil(longest), Held(reason)]);
    assert_eq!(disk.hold.next_timeout(), Some(longest));
    assert_eq!(disk.at(6), []);
    assert!(!disk.hold.is_over());
    assert_eq!(disk.at(7), [Released { was_held: true }]);
    assert!(disk.hold.is_over() && disk.hold.next_timeout().is_none());
}

/// The removed disk may have left unflushed writes in any controller.
#[test]
fn a_disk_that_inherits_a_fence_presumes_unflushed_writes_on_every_path() {
    let (mut disk, shared) = (Disk::new(None, false), SharedDisk::default());
    disk.hold.inherit(InheritedFence { until: disk.start + SECOND, of: None }, &shared);
    assert_eq!(format!("{:?}", shared.unflushed), format!("{:?}", SharedDisk::after_crash().unflushed));
}

#[test]
fn the_operator_ends_a_fence_and_not_the_wait_for_paths() {
    let mut disk = Disk::new(Some(5), false);
    assert!(disk.open().contains(&Suspend));
    disk.hold.end_fence(disk.now);
    assert_eq!(disk.actions(), [HoldUntil(disk.now)]);
    assert_eq!(disk.at(0), []);
    assert_eq!(disk.hold.reason(disk.now), Some(HoldReason::UntriedPaths));
    disk.hold.end_fence(disk.now);
    assert_eq!(disk.actions(), []);
    disk.tried(0, 1, true);
    disk.tried(1, 1, true);
    assert_eq!(disk.at(1), [Resume, Released { was_held: true }]);
}

#[test]
fn the_record_keeps_the_fence_until_every_path_was_tried() {
    let mut disk = Disk::new(Some(0), false);
    assert_eq!(disk.open(), [Suspend, Held(HoldReason::UntriedPaths)]);
    disk.tried(0, 1, true);
    assert_eq!(disk.at(1), []);
    assert!(disk.hold.awaits_paths && !disk.hold.is_over());
    disk.tried(1, 1, false);
    assert_eq!(disk.at(2), [Resume, Released { was_held: true }]);
}

#[test]
fn paths_that_were_tried_before_the_fence_has_passed_do_not_release_the_disk() {
    let mut disk = Disk::new(Some(5), false);
    assert!(disk.open().contains(&Suspend));
    disk.tried(0, 1, true);
    disk.tried(1, 1, true);
    assert_eq!(disk.at(2), [Resume]);
    assert_eq!(disk.at(5), [Released { was_held: true }]);
}

/// Until a path works, the target may be down, and no attempt says anything.
#[test]
fn attempts_before_the_first_path_worked_do_not_count() {
    let mut disk = Disk::new(Some(0), false);
    disk.tried(0, 1, false);
    disk.tried(1, 1, false);
    assert_eq!(disk.open(), [Suspend, Held(HoldReason::UntriedPaths)]);
    disk.tried(0, 5, true);
    assert_eq!(disk.at(6), []);
    // The attempts of both paths were concurrent.
    disk.tried(1, 4, false);
    assert_eq!(disk.at(6), [Resume, Released { was_held: true }]);
}

#[test]
fn a_path_to_another_namespace_does_not_begin_the_wait() {
    let mut disk = Disk::new(Some(0), false);
    disk.tried(0, 1, true);
    disk.tried(1, 1, true);
    disk.paths.iter_mut().for_each(|path| path.blocks = None);
    assert!(disk.open().contains(&Suspend));
    disk.paths[1].blocks = Some(1000);
    assert_eq!(disk.at(2), [Resume, Released { was_held: true }]);
}

#[test]
fn a_path_that_makes_no_attempts_is_not_waited_for() {
    let mut disk = Disk::new(Some(0), false);
    disk.tried(0, 1, true);
    disk.paths[1].trial.is_idle = true;
    assert_eq!(disk.open(), []);
    assert_eq!(disk.at(2), [Released { was_held: false }]);
}

#[test]
fn the_first_logs_of_discovery_are_waited_for() {
    let mut disk = Disk::new(Some(0), false);
    disk.tried(0, 1, true);
    disk.tried(1, 1, true);
    disk.logs_are_done = false;
    assert!(disk.open().contains(&Suspend));
    disk.logs_are_done = true;
    assert_eq!(disk.at(2), [Resume, Released { was_held: true }]);
}

#[test]
fn a_disk_leaves_the_rest_of_its_fence_and_its_untried_paths() {
    let mut disk = Disk::new(Some(5), false);
    disk.open();
    let (kept, lost) = (UnflushedPaths::new(), UnflushedPaths::new());
    lost.set_lost(disk.start);
    let left = disk.hold.at_shutdown(disk.start + SECOND, false, false, &lost);
    assert_eq!((left.inherited_left, left.unanswered, left.lost_writes), (4 * SECOND, true, true));
    disk.tried(0, 1, true);
    disk.tried(1, 1, true);
    disk.at(6);
    let left = disk.hold.at_shutdown(disk.now, false, false, &kept);
    assert_eq!((left.inherited_left, left.unanswered, left.lost_writes), (Duration::ZERO, false, false));
    let shared = |unflushed| Disk::new(None, true).hold.at_shutdown(disk.now, true, true, unflushed);
    assert!(shared(&kept).in_doubt && shared(&kept).unanswered && !shared(&kept).lost_writes);
    assert!(shared(&lost).lost_writes, "a flush of the cache has failed");
}

#[test]
fn a_shared_cache_needs_no_path_to_be_tried() {
    let mut disk = Disk::new(Some(0), true);
    assert_eq!(disk.open(), []);
    assert_eq!(disk.hold.next_timeout(), Some(disk.start));
    assert_eq!(disk.at(0), [Released { was_held: false }]);
}

#[test]
fn a_disk_is_suspended_once_until_all_threads_have_settled() {
    let mut disk = Disk::new(None, false);
    disk.open();
    for _ in 0..2 {
        disk.hold.front_end_connected(2);
        assert_eq!(disk.actions(), [Suspend, TellWhenSettled]);
        disk.hold.front_end_connected(2);
        disk.hold.thread_settled();
        disk.hold.front_end_connected(2);
        assert_eq!(disk.actions(), []);
        disk.hold.thread_settled();
        assert_eq!(disk.actions(), [Resume]);
    }
}

#[test]
fn a_disk_resumes_when_neither_paths_nor_threads_are_waited_for() {
    for is_tried_first in [true, false] {
        let mut disk = Disk::new(Some(0), false);
        assert!(disk.open().contains(&Suspend));
        disk.hold.front_end_connected(1);
        assert_eq!(disk.actions(), [TellWhenSettled]);
        disk.tried(0, 1, true);
        disk.tried(1, 1, false);
        if is_tried_first {
            assert_eq!(disk.at(1), [Released { was_held: true }]);
            disk.hold.thread_settled();
            assert_eq!(disk.actions(), [Resume]);
        } else {
            disk.hold.thread_settled();
            assert_eq!(disk.actions(), []);
            assert_eq!(disk.at(1), [Resume, Released { was_held: true }]);
        }
    }
}

#[test]
fn disks_that_share_paths_wait_for_the_longest_fence() {
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let longest = |fences: &[Option<Duration>]| InheritedFence::longest(now, fences.iter().copied());
    assert_eq!(longest(&[None, None]), None);
    // An earlier daemon that has left nothing to wait for was killed all the same.
    let passed = InheritedFence { until: now, of: None };
    assert_eq!(longest(&[None, Some(Duration::ZERO)]), Some(passed));
    let found = longest(&[Some(second), None, Some(3 * second), Some(2 * second)]);
    assert_eq!(found, Some(InheritedFence { until: now + 3 * second, of: None }));
}
