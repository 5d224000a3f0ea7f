//! Orders, losses and the end of a path, without a controller. The simulator tests them with one.

use monotonic::Duration;
use mpath_core::{Group, GroupConfig, PathConfig, SharedDisk};
use nvme_tcp::host::{ControllerInfo, HostController};

use super::*;
use crate::namespaces::Namespaces;
use crate::testing::{Failed, Known, RECONNECT_DELAY, controller, namespace, settings};

const ID: PathId = PathId(3);
const MS: Duration = Duration::from_millis(1);

struct Rig {
    now: Instant,
    path: Path<Failed>,
    disks: Known,
}

/// A live path in its eighth association, with a queue pair in each I/O thread.
pub(crate) fn live(now: Instant, settings: PathSettings, disks: &mut Known) -> Path<Failed> {
    let admin = HostController::new(settings.controller.clone(), now).unwrap();
    live_with(now, settings, disks, (admin, controller(&[namespace()])))
}

/// A live path with this controller, as it was at the beginning.
pub(crate) fn live_with(
    now: Instant,
    settings: PathSettings,
    disks: &mut Known,
    (admin, info): (HostController, ControllerInfo),
) -> Path<Failed> {
    let threads = usize::from(settings.controller.io_queues);
    let namespaces = Namespaces::new(&info, disks.admit(&info)).unwrap();
    let mut path = Path::new(now, ID, Epoch(8), Order::default(), settings);
    path.phase = PathPhase::Live(Box::new(Live::new(admin, info, namespaces, threads)));
    path
}

/// A path whose association is being recorded.
pub(crate) fn being_recorded(now: Instant, settings: PathSettings) -> Path<Failed> {
    let mut path = Path::new(now, ID, Epoch(7), Order::default(), settings);
    path.phase = PathPhase::Connecting(Box::new(Connecting::being_recorded(now)));
    path
}

/// The statistics of a draining path that is idle, or not.
pub(crate) fn draining_stats(now: Instant, is_idle: bool) -> PathStats {
    let mut group = Group::new(now, GroupConfig::default(), &[SharedDisk::default()]);
    group.add_path(ID, PathConfig::default());
    group.set_draining(now, ID, true);
    PathStats { flushes_open: u64::from(!is_idle), ..group.stats(now).path(ID).unwrap().clone() }
}

impl Rig {
    fn new(settings: PathSettings) -> Self {
        let (now, disks) = (Instant::now(), Known::new(&[namespace()]));
        Self { now, path: Path::new(now, ID, Epoch(7), Order::default(), settings), disks }
    }

    fn live(settings: PathSettings) -> Self {
        let mut rig = Self::new(settings);
        rig.path = live(rig.now, rig.path.settings, &mut rig.disks);
        rig
    }

    /// The pending actions as text.
    fn poll(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(action) = self.path.poll(self.now, &mut self.disks) {
            words.push(match action {
                Action::News(news) => format!("{news:?}"),
                Action::Ended(left) => format!("Ended clean {} half-closed {}", left.is_clean, left.is_half_closed),
                action => format!("{action:?}"),
            });
        }
        words
    }

    fn after(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.poll()
    }

    fn order(&mut self, wanted: DesiredState) -> Vec<String> {
        let order = Order { wanted, ..self.path.order };
        self.path.order(order);
        self.poll()
    }

    /// The I/O threads answer that the draining path is idle, or not.
    fn idle(&mut self, is_idle: bool) -> Vec<String> {
        self.path.threads_answered(self.now, Some(&draining_stats(self.now, is_idle)));
        self.poll()
    }

    fn removal_step_done(&mut self) -> Vec<String> {
        self.path.removal_step_done();
        self.poll()
    }

    fn report(&mut self, report: Report<Failed, ()>) -> Vec<String> {
        self.path.reported(self.now, Epoch(8), report);
        self.poll()
    }

    fn closed(&mut self, is_half_closed: bool, in_doubt: bool) -> Vec<String> {
        self.report(Report::Closed { half_closed: is_half_closed.then_some(()), in_doubt })
    }
}

#[test]
fn an_attempt_that_fails_is_followed_by_another_after_the_delay_or_an_order() {
    let mut rig = Rig::new(settings(1));
    assert_eq!(rig.poll(), ["Connect { qid: 0 }"]);
    assert_eq!(rig.path.latest().epoch, Epoch(8));
    rig.path.failed(rig.now, 0, Failed);
    assert_eq!(rig.poll(), ["Close", "Failed(Socket(Failed))"]);
    assert_eq!(rig.path.next_timeout(), Some(rig.now + RECONNECT_DELAY));
    assert_eq!(rig.after(99 * RECONNECT_DELAY / 100), [""; 0]);
    assert_eq!(rig.after(RECONNECT_DELAY / 100), ["Connect { qid: 0 }"]);
    // The attempt times out.
    assert_eq!(rig.after(crate::CONNECT_MAX), ["Close", "Failed(ConnectTimeout)"]);
    let resets = Order { resets: 1, ..Order::default() };
    rig.path.order(resets);
    assert_eq!(rig.poll(), ["Connect { qid: 0 }"]);
    assert_eq!(rig.path.latest().epoch, Epoch(10));
}

#[test]
fn a_path_without_a_connection_for_ctrl_loss_tmo_is_given_up_until_an_order() {
    let mut rig = Rig::new(PathSettings { ctrl_loss_tmo: Some(3 * RECONNECT_DELAY / 2), ..settings(1) });
    rig.poll();
    rig.path.failed(rig.now, 0, Failed);
    rig.poll();
    rig.after(RECONNECT_DELAY);
    rig.path.failed(rig.now, 0, Failed);
    rig.poll();
    assert_eq!(rig.path.next_timeout(), Some(rig.now + RECONNECT_DELAY / 2), "no later than that");
    rig.after(RECONNECT_DELAY / 2);
    rig.path.failed(rig.now, 0, Failed);
    assert_eq!(rig.poll(), ["Close", "Failed(Socket(Failed))", "GaveUp { after: 3s }"]);
    assert!(rig.after(1000 * RECONNECT_DELAY).is_empty() && rig.path.next_timeout().is_none());
    assert_eq!(rig.order(DesiredState::Enabled), ["Connecting", "Connect { qid: 0 }"]);
    rig.path.failed(rig.now, 0, Failed);
    assert_eq!(rig.poll(), ["Close", "Failed(Socket(Failed))"], "ctrl-loss-tmo starts again");
}

#[test]
fn a_path_was_tried_when_its_attempt_is_over() {
    let mut rig = Rig::new(settings(1));
    let began = rig.now;
    rig.poll();
    rig.now += MS;
    assert_eq!(rig.path.trial(), PathTrial::default());
    rig.path.failed(rig.now, 0, Failed);
    rig.poll();
    let tried = PathTrial { tried_at: Some(began), ..PathTrial::default() };
    assert_eq!(rig.path.trial(), tried);
    rig.after(RECONNECT_DELAY);
    assert_eq!(rig.path.trial(), tried, "the second attempt is under way");
    assert!(tried.had_a_chance(began) && !tried.had_a_chance(began + MS));
    rig.path.failed(rig.now, 0, Failed);
    rig.order(DesiredState::Disabled);
    let idle = PathTrial { tried_at: Some(rig.now), is_live: false, is_idle: true };
    assert_eq!(rig.path.trial(), idle);
    assert!(idle.had_a_chance(rig.now + MS));
}

#[test]
fn a_path_that_is_removed_while_it_is_connected_gets_no_association() {
    let mut rig = Rig::new(settings(1));
    rig.poll();
    assert_eq!(rig.order(DesiredState::Removed { at_once: false }), ["Close", "RemovalBegun", "AwaitFences"]);
    assert!(rig.order(DesiredState::Enabled).is_empty(), "for good");
    assert_eq!(rig.removal_step_done(), ["AskThreads"]);
    assert!(rig.idle(false).is_empty(), "a flush has to learn of a loss");
    assert_eq!(rig.after(49 * MS), [""; 0]);
    assert_eq!(rig.after(MS), ["AskThreads"]);
    assert!(rig.after(1000 * MS).is_empty(), "asked once");
    assert_eq!(rig.idle(true), ["RemoveFromThreads"]);
    assert_eq!(rig.removal_step_done(), ["RemovalDone"]);
    assert!(rig.removal_step_done().is_empty());
}

#[test]
fn a_disabled_path_is_closed_when_nothing_is_outstanding() {
    let mut rig = Rig::live(settings(2));
    assert!(rig.poll().is_empty() && rig.order(DesiredState::Drained).is_empty());
    rig.disks.is_unflushed = true;
    // The guest may not flush for a long time.
    assert_eq!(rig.order(DesiredState::Disabled), ["DaemonFlush"]);
    assert!(rig.after(49 * MS).is_empty());
    assert_eq!(rig.after(MS), ["DaemonFlush"], "the flush has failed, or did not cover all writes");
    rig.disks.is_unflushed = false;
    assert!(rig.after(49 * MS).is_empty());
    assert_eq!(rig.after(MS), ["AskThreads"]);
    assert!(rig.idle(false).is_empty());
    assert!(rig.after(49 * MS).is_empty());
    assert_eq!(rig.after(MS), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"], "a flush may have come in between");
    assert_eq!(rig.idle(true), ["CloseQueues { epoch: Epoch(8), half_close: false }"]);
    assert!(rig.closed(false, false).is_empty());
    assert_eq!(rig.closed(false, false), ["Ended clean true half-closed false", "Disabled"]);
    assert!(rig.after(1000 * RECONNECT_DELAY).is_empty());
    assert_eq!(rig.order(DesiredState::Enabled), ["Connecting", "Connect { qid: 0 }"]);
}

/// A write completes and stays unflushed, and the I/O threads answer after that.
#[test]
fn a_path_with_a_write_that_completed_during_the_check_is_not_closed() {
    let mut rig = Rig::live(settings(1));
    assert_eq!(rig.order(DesiredState::Disabled), ["AskThreads"]);
    rig.disks.is_unflushed = true;
    assert_eq!(rig.idle(true), ["DaemonFlush"]);
    assert_eq!(rig.after(50 * MS), ["DaemonFlush"]);
    rig.disks.is_unflushed = false;
    assert_eq!(rig.after(50 * MS), ["AskThreads"]);
    // A flush is under way since the first answer.
    assert_eq!(rig.idle(true), ["AskThreads"]);
    assert!(rig.idle(false).is_empty());
    assert_eq!(rig.after(50 * MS), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"], "the check starts again");
}

#[test]
fn with_a_shared_cache_a_path_is_closed_with_unflushed_writes() {
    let mut rig = Rig::live(PathSettings { shared_write_cache: true, ..settings(1) });
    rig.disks.is_unflushed = true;
    assert_eq!(rig.order(DesiredState::Disabled), ["AskThreads"]);
}

#[test]
fn a_path_enabled_at_the_last_moment_is_not_closed() {
    let mut rig = Rig::live(settings(2));
    assert_eq!(rig.order(DesiredState::Disabled), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"]);
    rig.path.order(Order::default());
    assert!(rig.idle(true).is_empty() && rig.path.is_live());
    // A check older than the order does not close it either.
    assert_eq!(rig.order(DesiredState::Disabled), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"]);
    rig.path.order(Order { wanted: DesiredState::Removed { at_once: false }, resets: 0 });
    assert_eq!(rig.idle(true), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["CloseQueues { epoch: Epoch(8), half_close: false }"]);
    // One I/O thread had given the path a request after all.
    assert!(rig.closed(false, true).is_empty());
    assert_eq!(rig.closed(false, false), ["Ended clean false half-closed false", "RemovalBegun", "AwaitFences"]);
}

#[test]
fn a_removal_can_be_taken_back_until_the_path_has_no_association() {
    let mut rig = Rig::live(settings(1));
    rig.disks.is_unflushed = true;
    assert_eq!(rig.order(DesiredState::Removed { at_once: false }), ["DaemonFlush"]);
    assert!(rig.order(DesiredState::RemovalHeld).is_empty() && rig.after(1000 * MS).is_empty() && rig.path.is_live());
    rig.disks.is_unflushed = false;
    assert_eq!(rig.order(DesiredState::Removed { at_once: false }), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["AskThreads"]);
    assert_eq!(rig.idle(true), ["CloseQueues { epoch: Epoch(8), half_close: false }"]);
    assert!(rig.order(DesiredState::Enabled).is_empty());
    assert_eq!(rig.closed(false, false), ["Ended clean true half-closed false", "Connecting", "Connect { qid: 0 }"]);
}

#[test]
fn a_path_removed_at_once_is_dropped_with_outstanding_requests() {
    let mut rig = Rig::live(PathSettings { drain_fence: true, ..settings(2) });
    rig.disks.is_unflushed = true;
    assert_eq!(rig.order(DesiredState::Removed { at_once: true }), ["AskThreads"]);
    assert_eq!(rig.idle(false), ["CloseQueues { epoch: Epoch(8), half_close: true }"]);
    assert!(rig.closed(true, true).is_empty());
    assert_eq!(rig.closed(true, false), ["Ended clean false half-closed true", "RemovalBegun", "AwaitFences"]);
}

#[test]
fn a_lost_path_reconnects_when_all_threads_have_closed_it() {
    let mut rig = Rig::live(PathSettings { drain_fence: true, ..settings(2) });
    assert_eq!(rig.report(Report::Lost(Failed)), ["CloseQueues { epoch: Epoch(8), half_close: true }"]);
    assert!(rig.closed(false, true).is_empty());
    rig.path.reported(rig.now, Epoch(7), Report::Closed { half_closed: Some(()), in_doubt: false });
    assert!(rig.after(1000 * RECONNECT_DELAY).is_empty(), "an older association's says nothing");
    assert_eq!(rig.disks.downs, 0, "an I/O thread may still use it");
    assert_eq!(rig.closed(true, false), ["Ended clean false half-closed false", "Failed(Lost(Failed))"]);
    assert_eq!(rig.disks.downs, 1);
    assert_eq!(rig.path.next_timeout(), Some(rig.now + RECONNECT_DELAY));
    assert_eq!(rig.after(RECONNECT_DELAY), ["Connect { qid: 0 }"]);
}

#[test]
fn without_the_admin_queue_nothing_drains() {
    let mut rig = Rig::live(PathSettings { drain_fence: true, ..settings(1) });
    rig.path.failed(rig.now, 0, Failed);
    assert_eq!(rig.poll(), ["CloseQueues { epoch: Epoch(8), half_close: false }"]);
    assert_eq!(rig.closed(false, false), ["Ended clean false half-closed false", "Failed(Socket(Failed))"]);
}

#[test]
fn a_reset_drops_the_association_once_and_connects_at_once() {
    let mut rig = Rig::live(settings(1));
    rig.path.max_transfer_bytes = Some(65536);
    rig.path.order(Order { resets: 2, ..Order::default() });
    assert_eq!(rig.poll(), ["CloseQueues { epoch: Epoch(8), half_close: false }"]);
    assert_eq!(
        rig.closed(false, false),
        ["Ended clean false half-closed false", "Failed(Reset)", "Connect { qid: 0 }"]
    );
    assert_eq!(rig.path.max_transfer_bytes, None, "larger ones are tried again");
}

#[test]
fn each_association_that_ends_in_ana_change_doubles_the_time_of_the_next() {
    let after = |secs| {
        let stuck = NamespaceError::AnaTransition { after: Duration::from_secs(secs) };
        change_limit_after::<Failed>(&PathError::Controller(stuck.into())).map(Duration::as_secs)
    };
    assert_eq!([20, 40, 1280, 2560, 3600].map(after), [40, 80, 2560, 3600, 3600].map(Some));
    assert_eq!(
        change_limit_after::<Failed>(&PathError::Reset),
        None,
        "the state was left, or the operator wants to know"
    );
}

#[test]
fn reports_of_several_threads_are_passed_on_once() {
    let mut rig = Rig::live(settings(2));
    assert_eq!(rig.report(Report::Suspect), ["Suspect"]);
    assert!(rig.report(Report::Suspect).is_empty() && rig.report(Report::Recovered).is_empty());
    assert_eq!(rig.report(Report::Recovered), ["Recovered"]);
    assert_eq!(rig.report(Report::SmallerTransfer { bytes: 65536 }), ["SmallerTransfer { bytes: 65536 }"]);
    assert!(rig.report(Report::SmallerTransfer { bytes: 131_072 }).is_empty());
}

#[test]
fn an_association_that_cannot_be_recorded_is_not_used() {
    let mut rig = Rig::new(settings(1));
    rig.path = being_recorded(rig.now, settings(1));
    // An association that is being recorded is not abandoned halfway.
    assert!(rig.order(DesiredState::Removed { at_once: true }).is_empty());
    rig.path.recorded(rig.now, Err(Failed));
    let words = rig.poll();
    assert_eq!(
        words,
        ["Close", "RemoveRecord { epoch: Epoch(7) }", "Failed(Record(Failed))", "RemovalBegun", "AwaitFences"]
    );
}

#[test]
fn a_refused_path_reconnects_only_after_an_order() {
    let mut rig = Rig::new(settings(1));
    rig.poll();
    let mismatch = crate::Unusable::Mismatch(nvme_tcp::host::IdentityMismatch::Identifier);
    rig.path.attempt_failed(rig.now, PathError::Admit(mismatch.into()));
    let words = rig.poll();
    assert!(words.len() == 2 && words[1].starts_with("Refused("), "{words:?}");
    assert!(rig.after(1000 * RECONNECT_DELAY).is_empty() && rig.path.next_timeout().is_none());
    assert_eq!(rig.order(DesiredState::Drained), ["Connecting", "Connect { qid: 0 }"]);
}

#[test]
fn a_path_that_reports_no_identity_is_tried_again() {
    use nvme_tcp::host::IdentityMismatch::{Unidentified, Unverified};
    for mismatch in [Unverified, Unidentified] {
        let mut rig = Rig::new(settings(1));
        rig.poll();
        rig.path.attempt_failed(rig.now, PathError::Admit(crate::Unusable::Mismatch(mismatch).into()));
        let words = rig.poll();
        assert!(words.len() == 2 && words[1].starts_with("Failed("), "{words:?}");
        assert_eq!(rig.after(RECONNECT_DELAY), ["Connect { qid: 0 }"]);
    }
}

/// Disks share the path, and one of them does not find its namespace. No event may tell that the namespace is there again.
#[test]
fn a_live_path_looks_again_for_a_namespace_that_it_does_not_find() {
    let other = nvme_tcp::host::NamespaceIdentity { nsid: 2, uuid: [2; 16], ..namespace() };
    let mut rig = Rig::live(settings(1));
    rig.disks = Known::new(&[namespace(), other]);
    let mut info = controller(&[namespace(), other]);
    info.namespaces[1] = Err(nvme_tcp::host::NamespaceError::Missing { nsid: 2, available: vec![1] });
    let namespaces = Namespaces::new(&info, rig.disks.admit(&info)).unwrap();
    let admin = HostController::new(rig.path.settings.controller.clone(), rig.now).unwrap();
    rig.path.phase = PathPhase::Live(Box::new(Live::new(admin, info, namespaces, 1)));
    for _ in 0..2 {
        assert!(rig.poll().is_empty());
        assert_eq!(rig.path.next_timeout(), Some(rig.now + RECONNECT_DELAY));
        rig.now += RECONNECT_DELAY;
    }
}

/// A held write would be executed after the fence, if the reset of its connection was lost too.
#[test]
fn a_controller_that_may_execute_writes_is_not_shut_down() {
    for in_doubt in [false, true] {
        let mut rig = Rig::live(settings(2));
        assert_eq!((rig.closed(false, false), rig.closed(false, in_doubt)), (vec![], vec![]));
        assert_eq!(rig.path.end(rig.now).is_none(), in_doubt);
    }
}
