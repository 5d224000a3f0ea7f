use super::*;
use crate::disk_hold::HoldAction;
use crate::namespace_name::NamespaceName;
use crate::path::PathTrial;
use crate::record::RecordedAssociation;
use crate::testing::namespace;

const DELAY: Duration = Duration::from_secs(2);
const SAVE: DiskStep = DiskStep::Save { grow_to: None };

/// The driver of a disk with one path, and the time.
struct Disk {
    now: Instant,
    driver: DiskDriver,
    view: DiskView,
}

impl Disk {
    fn new(inherited: Option<Duration>) -> Self {
        let now = Instant::now();
        let inherited = InheritedFence::longest(now, [inherited]);
        let view = DiskView { first_logs_are_done: true, paths: Vec::new(), served: None, pending_fence: None };
        Self { now, driver: DiskDriver::new(now, inherited, false, DELAY), view }
    }

    /// The path leads to the namespace, and finds this many blocks.
    fn found(&mut self, blocks: u64) {
        let trial = PathTrial { tried_at: Some(self.now), is_live: true, is_idle: false };
        self.view.paths = vec![TriedPath { trial, blocks: Some(blocks) }];
        if self.view.served.is_none() {
            self.view.served = Some(ServedNamespace { namespace: namespace(), shown_blocks: blocks });
            self.driver.opening.found();
        }
    }

    fn step(&mut self) -> Option<DiskStep> {
        self.driver.step(self.now, &self.view)
    }

    fn done(&mut self, is_done: bool) {
        self.driver.done(self.now, is_done);
    }

    /// Takes the next step, which is to be this one.
    fn done_after(&mut self, step: &DiskStep) {
        assert_eq!(self.step().as_ref(), Some(step));
        self.done(true);
    }

    /// Takes steps as far as they come.
    fn steps(&mut self) -> Vec<DiskStep> {
        let mut steps = Vec::new();
        while let Some(step) = self.step() {
            steps.push(step);
            self.done(true);
        }
        steps
    }

    /// The fence that a removed disk has left.
    fn pending(&mut self, lasts: Duration) {
        let namespace = NamespaceName::new("nqn.example", &namespace());
        let association = RecordedAssociation { path: "path".into(), cntlid: 1, fence_ms: lasts.as_millis() };
        let fence = InheritedFence { until: self.now + lasts, of: None };
        self.view.pending_fence = Some(PendingFence { fence, namespace, association });
    }
}

#[test]
fn a_disk_is_saved_and_then_served() {
    let mut disk = Disk::new(None);
    assert_eq!(disk.step(), None);
    disk.found(100);
    assert_eq!(disk.steps(), [DiskStep::RecordNamespace, SAVE, DiskStep::Serve]);
    assert_eq!(disk.step(), None);
}

#[test]
fn a_step_under_way_stays_until_it_is_done() {
    let mut disk = Disk::new(None);
    disk.found(100);
    assert_eq!(disk.step(), disk.step());
    disk.found(200);
    disk.now += DELAY;
    assert_eq!(disk.step(), Some(DiskStep::RecordNamespace));
}

#[test]
fn the_fence_of_a_removed_disk_is_recorded_before_the_disk_waits_for_it() {
    let mut disk = Disk::new(None);
    disk.found(100);
    disk.pending(DELAY * 10);
    let pending = disk.view.pending_fence.clone().unwrap();
    for is_done in [false, true] {
        assert_eq!(disk.step(), Some(DiskStep::InheritFence(pending.clone())));
        assert_eq!(disk.driver.hold.inherited_fence(), None);
        disk.done(is_done);
        disk.now += DELAY;
    }
    assert_eq!(disk.driver.hold.inherited_fence(), Some(&pending.fence));
    disk.view.pending_fence = None;
    assert_eq!(disk.steps(), [DiskStep::RecordNamespace, SAVE, DiskStep::Serve]);
    disk.now = pending.fence.until;
    assert_eq!(disk.steps(), [DiskStep::ForgetFences]);
}

/// The I/O threads are told before the step that serves front-ends.
#[test]
fn a_disk_is_held_before_front_ends_are_served() {
    let mut disk = Disk::new(Some(DELAY));
    disk.found(100);
    for step in [DiskStep::RecordNamespace, SAVE] {
        assert_eq!((disk.step(), disk.driver.hold.poll()), (Some(step), None));
        disk.done(true);
    }
    assert_eq!(disk.step(), Some(DiskStep::Serve));
    assert_eq!(disk.driver.hold.poll(), Some(HoldAction::HoldUntil(disk.now + DELAY)));
    assert!(disk.driver.opening.is_open(), "a path does not change what front-ends see");
}

#[test]
fn a_growth_that_is_not_saved_is_tried_again_after_a_while() {
    let mut disk = Disk::new(None);
    disk.found(100);
    disk.steps();
    disk.found(200);
    let save = DiskStep::Save { grow_to: Some(200) };
    for _ in 0..2 {
        disk.done_after(&DiskStep::TellThreads);
        assert_eq!(disk.step(), Some(save.clone()));
        disk.done(false);
        assert_eq!((disk.step(), disk.driver.next_timeout()), (None, Some(disk.now + DELAY)));
        disk.now += DELAY;
    }
    disk.done_after(&DiskStep::TellThreads);
    disk.done_after(&save);
    assert_eq!(disk.step(), Some(DiskStep::Show));
    let served = disk.view.served.as_mut().unwrap();
    served.shown_blocks = disk.driver.to_show(*served, [200].into_iter()).unwrap();
    disk.done(true);
    assert_eq!(disk.steps(), [SAVE]);
    assert_eq!(disk.driver.next_timeout(), None);
}

/// The file names what guests see, and the driver does not try again without a pause.
#[test]
fn a_growth_that_cannot_be_shown_is_tried_again_after_a_while() {
    let mut disk = Disk::new(None);
    disk.found(100);
    disk.steps();
    disk.found(1 << 60);
    for _ in 0..2 {
        disk.done_after(&DiskStep::TellThreads);
        disk.done_after(&DiskStep::Save { grow_to: Some(1 << 60) });
        assert_eq!(disk.step(), Some(DiskStep::Show));
        disk.done(false);
        disk.done_after(&SAVE);
        assert_eq!((disk.step(), disk.driver.next_timeout()), (None, Some(disk.now + DELAY)));
        disk.now += DELAY;
    }
}

/// A file may take long, and a guest waits only for the hold.
#[test]
fn the_hold_goes_on_while_a_step_is_under_way() {
    let mut disk = Disk::new(Some(DELAY));
    disk.found(100);
    disk.steps();
    disk.found(200);
    disk.done_after(&DiskStep::TellThreads);
    let save = disk.step();
    assert_eq!(
        (&save, disk.driver.next_timeout()),
        (&Some(DiskStep::Save { grow_to: Some(200) }), Some(disk.now + DELAY))
    );
    disk.now += DELAY;
    while disk.driver.hold.poll().is_some() {}
    assert_eq!(disk.step(), save);
    assert_eq!(disk.driver.hold.poll(), Some(HoldAction::Released { was_held: true }));
    assert_eq!(disk.driver.next_timeout(), None);
    disk.done(true);
    disk.done_after(&DiskStep::ForgetFences);
    assert_eq!(disk.step(), Some(DiskStep::Show), "the growth goes on");
}

/// Both save the disk, with different sizes.
#[test]
fn an_opening_waits_for_a_growth() {
    let mut disk = Disk::new(None);
    disk.found(100);
    assert_eq!(disk.step(), Some(DiskStep::RecordNamespace));
    disk.done(false);
    disk.found(200);
    assert_eq!(disk.step(), Some(DiskStep::TellThreads));
    disk.now += DELAY;
    disk.done(true);
    disk.done_after(&DiskStep::Save { grow_to: Some(200) });
    disk.done_after(&DiskStep::Show);
    disk.view.served.as_mut().unwrap().shown_blocks = 200;
    assert_eq!(disk.steps(), [SAVE, DiskStep::RecordNamespace, SAVE, DiskStep::Serve]);
}
