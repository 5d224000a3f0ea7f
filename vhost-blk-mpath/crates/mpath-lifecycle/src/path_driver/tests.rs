//! The order of the steps, without a controller. The simulator tests the driver with one.

use std::time::Duration;

use mpath_core::{Association, DiskId, UnflushedPaths};
use nvme_tcp::host::{ControllerInfo, HostQueue};

use super::*;
use crate::fence::Fences;
use crate::order::{DesiredState, Order};
use crate::path::tests::{being_recorded, draining_stats, live};
use crate::settings::PathSettings;
use crate::testing::{Failed, Known, namespace, settings};
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
        _: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<&'s [u8]>, Failed> {
        if self.fails { Err(Failed) } else { Ok(None) }
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

    fn unflushed(&self, _: DiskId) -> &UnflushedPaths {
        unreachable!("no namespace changes")
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
        let (log, disks, fences) = (Vec::new(), Known::new(&[namespace()]), Fences::default());
        let mut driver = PathDriver::new(path);
        driver.connected(now, 0, "admin");
        Self { now, driver, host: Written { log, disks, fences, now, fails: false } }
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
