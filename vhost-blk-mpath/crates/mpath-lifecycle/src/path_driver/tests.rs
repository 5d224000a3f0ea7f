//! The order of the steps, without a controller. The simulator tests the driver with one.

use std::sync::Arc;

use monotonic::Duration;
use mpath_core::{
    AnaState, Association, DiskId, FlowId, Group, GroupConfig, Io, IoError, Op, Outcome, PathConfig, SharedDisk, Tag,
    UnflushedPaths,
};
use nvme_tcp::host::{ControllerInfo, HostQueue};
use nvme_tcp::wire;

use super::*;
use crate::fence::Fences;
use crate::order::{DesiredState, Order};
use crate::path::tests::{being_recorded, draining_stats, live, live_with};
use crate::settings::PathSettings;
use crate::testing::{AdminTarget, Failed, Known, namespace, settings};
use crate::thread_message::IoThreads;

/// How long the close of a socket takes.
const CLOSE: Duration = Duration::from_millis(300);

/// Surroundings that write down what they are asked for. Sockets have names.
struct Written {
    log: Vec<String>,
    disks: Known,
    fences: Fences,
    now: Instant,
    /// The sockets fail.
    fails: bool,
    /// The controller behind the admin socket.
    target: Option<AdminTarget>,
    /// Its answers, which have not arrived.
    answers: Vec<u8>,
    /// The network keeps its answers.
    is_slow: bool,
    unflushed: Arc<UnflushedPaths>,
}

impl IoThreads for Written {
    fn count(&self) -> usize {
        1
    }

    fn post(&mut self, _: usize, message: ThreadMessage) {
        self.log.push(format!("{message:?}"));
    }
}

impl PathSurroundings<Failed, &'static str, &'static str> for Written {
    fn poll(&mut self, now: Instant, path: &mut Path<Failed>) -> Option<Action<Failed>> {
        path.poll(now, &mut self.disks)
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn before(&mut self, _: &Action<Failed>) {}

    fn news(&mut self, news: PathNews<Failed>) {
        self.log.push(format!("{news:?}"));
    }

    fn connect(&mut self, qid: u16) {
        self.log.push(format!("connect {qid}"));
    }

    fn give_up(&mut self) {
        self.log.push("give up".into());
    }

    fn exchange<'s>(
        &mut self,
        _: &'s mut &'static str,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<&'s [u8]>, Failed> {
        if self.fails {
            return Err(Failed);
        }
        if let Some(target) = &mut self.target {
            let mut bytes = Vec::new();
            fill(&mut bytes);
            self.answers.extend(target.exchange(self.now, &bytes));
        }
        let has_arrived = !self.is_slow && !self.answers.is_empty();
        Ok(has_arrived.then(|| &*std::mem::take(&mut self.answers).leak()))
    }

    fn send_term_req(&mut self, _: &mut &'static str, _: &[u8]) {}

    fn close(&mut self, socket: &'static str) {
        self.now += CLOSE;
        self.log.push(format!("close {socket}"));
    }

    fn read_to_end(&mut self, _: &mut &'static str) -> Option<bool> {
        None
    }

    fn close_half_closed(&mut self, socket: &'static str) {
        self.now += CLOSE;
        self.log.push(format!("close {socket}"));
    }

    fn record(&mut self, epoch: Epoch, _: u16, _: Duration, _: Vec<&'static str>) {
        self.log.push(format!("record {epoch:?}"));
    }

    fn remove_record(&mut self, epoch: Epoch) -> bool {
        self.log.push(format!("remove the record of {epoch:?}"));
        false
    }

    fn path_up(&mut self, thread: usize, _: Association, _: HostQueue, _: &ControllerInfo) {
        self.log.push(format!("path up in thread {thread}"));
    }

    fn unflushed(&self, disk: DiskId) -> &UnflushedPaths {
        assert_eq!(disk, DiskId(0), "there is one disk");
        &self.unflushed
    }

    fn of_fences(&self, is: impl FnOnce(&Fences) -> bool) -> bool {
        is(&self.fences)
    }

    fn change_fences(&mut self, change: impl FnOnce(&mut Fences)) {
        let before = self.fences.held().count();
        change(&mut self.fences);
        if self.fences.held().count() > before {
            self.log.push("fence".into());
        }
    }

    fn ask_threads(&mut self) {
        self.log.push("ask".into());
    }

    fn await_removal(&mut self) {
        self.log.push("await removal".into());
    }
}

struct Rig {
    now: Instant,
    driver: PathDriver<Failed, &'static str, &'static str>,
    host: Written,
}

impl Rig {
    fn new(now: Instant, path: Path<Failed>) -> Self {
        let (disks, unflushed) = (Known::new(&[namespace()]), Arc::default());
        let mut driver = PathDriver::new(path);
        driver.connected(now, 0, "admin");
        let (log, fences, answers) = (Vec::new(), Fences::default(), Vec::new());
        let host = Written { log, disks, fences, now, fails: false, target: None, answers, is_slow: false, unflushed };
        Self { now, driver, host }
    }

    fn live(settings: PathSettings) -> Self {
        let now = Instant::now();
        Self::new(now, live(now, settings, &mut Known::new(&[namespace()])))
    }

    /// What is done until nothing is left to do.
    fn turn(&mut self) -> Vec<String> {
        while self.driver.exchange(self.now, &mut self.host) || self.driver.act(self.now, &mut self.host) {}
        std::mem::take(&mut self.host.log)
    }

    fn report(&mut self, report: Report<Failed, &'static str>) -> Vec<String> {
        self.driver.reported(self.now, Epoch(8), report);
        self.turn()
    }
}

const DOWN: &str = "PathDown { path: PathId(3), epoch: Epoch(8), half_close: ";

#[test]
fn sockets_are_closed_before_the_fence_begins() {
    let mut rig = Rig::live(PathSettings { drain_fence: true, ..settings(2) });
    assert_eq!(rig.report(Report::Lost(Failed)), [format!("{DOWN}true }}")]);
    assert!(rig.report(Report::Closed { half_closed: Some("first"), in_doubt: true }).is_empty());
    // The controller has closed the other connection first, so nothing is half-closed.
    let words = rig.report(Report::Closed { half_closed: None, in_doubt: true });
    assert_eq!(words, ["close first", "close admin", "fence", "Failed(Lost(Failed))"]);
    assert_eq!(rig.host.fences.held().next().unwrap().begun, rig.now + 2 * CLOSE, "it counts from their end");
}

#[test]
fn half_closed_sockets_stay_open_until_the_fence_lifts() {
    let mut rig = Rig::live(PathSettings { drain_fence: true, ..settings(1) });
    rig.report(Report::Lost(Failed));
    let words = rig.report(Report::Closed { half_closed: Some("first"), in_doubt: true });
    assert_eq!(words, ["fence", "Failed(Lost(Failed))"]);
    rig.host.fences.sockets_closed(rig.now, rig.driver.path().latest(), true);
    assert_eq!(rig.turn(), ["close first", "close admin"]);
}

#[test]
fn a_controller_is_shut_down_before_the_next_action() {
    let mut rig = Rig::live(settings(1));
    rig.driver.path_mut().order(Order { wanted: DesiredState::Removed { at_once: true }, resets: 0 });
    assert_eq!(rig.turn(), ["ask"]);
    rig.driver.path_mut().threads_answered(rig.now, Some(&draining_stats(rig.now, true)));
    assert_eq!(rig.turn(), [format!("{DOWN}false }}")]);
    rig.driver.reported(rig.now, Epoch(8), Report::Closed { half_closed: None, in_doubt: false });
    while rig.driver.act(rig.now, &mut rig.host) {}
    assert!(rig.host.log.is_empty(), "{:?}", rig.host.log);
    assert!(rig.driver.next_timeout().is_some_and(|at| at > rig.now), "it waits for the controller");
    assert_eq!(rig.turn(), ["close admin", "RemovalBegun"]);
    // The fence has lifted at once, and nobody was told yet.
    assert!(rig.host.fences.poll_lifted().is_some());
    assert_eq!(rig.turn(), ["ask"]);
}

/// Whoever drives the path waits for sockets if it is not.
#[test]
fn the_end_of_a_controller_is_something_new() {
    let mut rig = Rig::live(settings(1));
    rig.driver.end(rig.now, &mut rig.host);
    assert!(!rig.driver.has_ended(), "the controller is shut down");
    rig.host.fails = true;
    assert!(rig.driver.exchange(rig.now, &mut rig.host));
    assert!(rig.driver.has_ended());
}

#[test]
fn no_attempt_follows_while_a_record_is_being_removed() {
    let now = Instant::now();
    let mut rig = Rig::new(now, being_recorded(now, settings(1)));
    rig.driver.path_mut().recorded(now, Err(Failed));
    assert_eq!(rig.turn(), ["close admin", "give up", "remove the record of Epoch(7)"]);
    assert_eq!(rig.driver.next_timeout(), None);
    rig.driver.record_removed();
    assert_eq!(rig.turn(), ["Failed(Record(Failed))"]);
}

/// A path with a controller that reports ANA, and the group of an I/O thread with an unflushed write there.
struct AnaRig {
    rig: Rig,
    group: Group,
}

impl AnaRig {
    fn new() -> Self {
        let (now, settings) = (Instant::now(), settings(1));
        let (target, mut admin) = AdminTarget::live(now, settings.controller.clone());
        while admin.poll_event().is_some() {}
        let info = admin.info().expect("it is live").clone();
        let mut disks = Known::new(&[info.namespaces[0].as_ref().unwrap().identity]);
        let mut rig = Rig::new(now, live_with(now, settings, &mut disks, (admin, info)));
        (rig.host.disks, rig.host.target) = (disks, Some(target));
        let disk = SharedDisk::default();
        rig.host.unflushed = Arc::clone(&disk.unflushed);
        let (path, epoch) = (rig.driver.id, rig.driver.path().latest().epoch);
        let mut group = Group::new(now, GroupConfig::default(), &[disk]);
        group.add_path(path, PathConfig::default());
        let ana = AnaState::Optimized.into();
        group.path_up(now, path, Association { epoch, ana, volatile_write_cache: true, queue_depth: 8 });
        let mut rig = Self { rig, group };
        rig.submit(Op::Write);
        assert_eq!(rig.answered(), Some(Ok(())));
        rig
    }

    fn set_ana(&mut self, state: wire::AnaState) {
        self.rig.host.target.as_mut().unwrap().subsystem.set_ana(1, state);
    }

    /// Submits a request of the guest. It is issued on the path.
    fn submit(&mut self, op: Op) {
        let io = Io { tag: Tag(0), op, bytes: 512, disk: DiskId(0), flow: FlowId(0), fua: false };
        self.group.submit(self.rig.now, io);
        assert_eq!(self.act(), None);
    }

    /// Lets the group act. Returns the result of the request.
    fn act(&mut self) -> Option<Result<(), IoError>> {
        match self.group.poll_action(self.rig.now) {
            Some(mpath_core::Action::Finish { result, .. }) => Some(result),
            action => {
                assert!(matches!(action, None | Some(mpath_core::Action::Issue { .. })), "{action:?}");
                None
            }
        }
    }

    /// The controller answers the request with success. Returns its result.
    fn answered(&mut self) -> Option<Result<(), IoError>> {
        self.group.complete(self.rig.now, self.rig.driver.id, Tag(0), Outcome::Success);
        self.act()
    }

    /// Waits until the group has something to do.
    fn sleep(&mut self) -> Option<Result<(), IoError>> {
        self.rig.now = self.group.next_timeout().unwrap();
        self.act()
    }
}

/// The controller may leave the state of persistent loss once it has answered the reading.
#[test]
fn no_flush_succeeds_between_the_request_of_an_ana_log_and_its_losses() {
    for is_lost in [true, false] {
        let mut rig = AnaRig::new();
        rig.submit(Op::Flush);
        if is_lost {
            rig.set_ana(wire::AnaState::PersistentLoss);
        }
        rig.rig.host.is_slow = true;
        assert!(rig.rig.report(Report::AnaError).is_empty());
        rig.set_ana(wire::AnaState::Optimized);
        assert_eq!(rig.answered(), None, "the log is on its way");
        rig.rig.host.is_slow = false;
        let words = rig.rig.turn();
        assert_eq!(words.iter().any(|word| word.contains("PersistentLoss")), is_lost, "{words:?}");
        if is_lost {
            assert_eq!(rig.sleep(), Some(Err(IoError::LostWrites)));
        } else {
            assert_eq!((rig.sleep(), rig.answered()), (None, Some(Ok(()))));
        }
    }
}

/// The I/O threads learn later that the association has ended.
#[test]
fn no_flush_succeeds_after_a_reading_of_the_ana_log_that_the_end_of_the_association_has_cut() {
    let mut rig = AnaRig::new();
    rig.submit(Op::Flush);
    rig.rig.host.is_slow = true;
    rig.rig.report(Report::AnaError);
    assert_eq!(rig.rig.report(Report::Lost(Failed)).len(), 1);
    assert_eq!(rig.answered(), None);
    rig.group.path_lost(rig.rig.now, rig.rig.driver.id);
    assert_eq!(rig.act(), Some(Err(IoError::LostWrites)));
}
