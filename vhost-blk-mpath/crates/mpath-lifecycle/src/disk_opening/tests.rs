use super::OpeningStep::{InheritFences, RecordNamespace, Save, Serve};
use super::*;
use crate::path::PathTrial;

const DELAY: Duration = Duration::from_secs(2);

/// The opening of a disk with two paths, and the time.
struct Disk {
    now: Instant,
    opening: DiskOpening,
    paths: [TriedPath; 2],
    logs_are_done: bool,
}

impl Disk {
    fn new() -> Self {
        let now = Instant::now();
        let paths = [TriedPath { trial: PathTrial::default(), blocks: None }; 2];
        Self { now, opening: DiskOpening::new(now, DELAY), paths, logs_are_done: true }
    }

    /// A disk that an earlier daemon has saved.
    fn restored() -> Self {
        let mut disk = Self::new();
        disk.opening.restored();
        disk
    }

    fn step(&mut self) -> Option<OpeningStep> {
        self.opening.step(self.now, self.logs_are_done, &self.paths)
    }

    /// Takes steps as far as they come.
    fn steps(&mut self) -> Vec<OpeningStep> {
        let mut steps = Vec::new();
        while let Some(step) = self.step() {
            steps.push(step);
            self.opening.done();
        }
        steps
    }

    fn tried(&mut self, path: usize) {
        self.paths[path].trial.tried_at = Some(self.now);
    }
}

#[test]
fn an_unknown_disk_is_opened_when_a_path_leads_to_its_namespace() {
    let mut disk = Disk::new();
    (0..2).for_each(|path| disk.tried(path));
    disk.now += 1000 * PATIENCE;
    assert_eq!((disk.step(), disk.opening.next_timeout()), (None, None));
    disk.opening.found();
    assert_eq!(disk.steps(), [InheritFences, RecordNamespace, Save, Serve]);
    assert!(disk.opening.is_open());
}

#[test]
fn a_saved_disk_waits_for_a_path_as_long_as_one_makes_its_first_attempt() {
    let mut disk = Disk::restored();
    disk.tried(0);
    assert_eq!((disk.step(), disk.opening.next_timeout()), (None, Some(disk.now + PATIENCE)));
    disk.tried(1);
    disk.logs_are_done = false;
    assert_eq!(disk.step(), None, "discovery may add a path");
    disk.logs_are_done = true;
    assert_eq!(disk.steps(), [InheritFences, RecordNamespace, Serve], "what is saved stays");
    assert!(disk.opening.is_open());
}

#[test]
fn a_saved_disk_waits_for_no_path_for_longer_than_a_second() {
    let mut disk = Disk::restored();
    disk.now += 99 * PATIENCE / 100;
    assert_eq!(disk.step(), None);
    disk.now += PATIENCE / 100;
    assert_eq!(disk.opening.next_timeout(), Some(disk.now), "it is due until the step is taken");
    assert_eq!(disk.steps(), [InheritFences, RecordNamespace, Serve]);
    // Then the next daemon may show more than this one.
    disk.opening.found();
    assert_eq!(disk.steps(), [Save]);
    assert_eq!(disk.step(), None);
}

fn blocks(blocks: u64) -> Size {
    Size { blocks, block_bytes: 512 }
}

/// The namespace has grown while no daemon ran.
#[test]
fn a_saved_disk_grows_with_the_first_path_before_front_ends_see_it() {
    let mut disk = Disk::restored();
    assert_eq!(disk.opening.size_when_found(1000, blocks(2000)), Ok(2000));
    assert_eq!(
        disk.opening.size_when_found(1000, blocks(999)),
        Err(Unusable::Shrunk { found: blocks(999), shown: blocks(1000) })
    );
    disk.now += PATIENCE;
    disk.steps();
    assert_eq!(disk.opening.size_when_found(1000, blocks(2000)), Ok(1000), "front-ends see it");
}

#[test]
fn a_size_is_saved_before_front_ends_see_it_whenever_a_path_comes() {
    let steps = [InheritFences, RecordNamespace, Serve];
    for (found_after, step) in steps.into_iter().enumerate() {
        let mut disk = Disk::restored();
        disk.now += PATIENCE;
        for before in &steps[..found_after] {
            assert_eq!(disk.step(), Some(*before));
            disk.opening.done();
        }
        assert_eq!(disk.step(), Some(step));
        assert_eq!(disk.opening.size_when_found(1000, blocks(2000)), Ok(2000));
        disk.opening.found();
        assert_eq!(disk.steps().split_off(2_usize.saturating_sub(found_after)), [Save, Serve], "during {step:?}");
    }
}

#[test]
fn a_step_that_fails_is_repeated_after_a_while_with_those_before_it() {
    for failing in [InheritFences, RecordNamespace, Save] {
        let mut disk = Disk::new();
        disk.opening.found();
        while disk.step() != Some(failing) {
            disk.opening.done();
        }
        disk.opening.failed(disk.now);
        assert!(!disk.opening.is_open());
        assert_eq!((disk.step(), disk.opening.next_timeout()), (None, Some(disk.now + DELAY)));
        disk.now += DELAY;
        assert_eq!(disk.steps(), [InheritFences, RecordNamespace, Save, Serve]);
    }
}

/// Guests go on with what they see, and so does the next daemon.
#[test]
fn an_open_disk_is_saved_once_though_that_fails() {
    let mut disk = Disk::restored();
    disk.now += PATIENCE;
    disk.steps();
    disk.opening.found();
    assert_eq!(disk.step(), Some(Save));
    disk.opening.failed(disk.now);
    assert!(disk.opening.is_open());
    assert_eq!((disk.step(), disk.opening.next_timeout()), (None, None));
}
