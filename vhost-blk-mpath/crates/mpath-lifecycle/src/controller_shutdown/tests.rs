use super::*;
use crate::testing::{AdminTarget, settings};

/// The end of a live controller.
struct Rig {
    now: Instant,
    target: AdminTarget,
    ending: ControllerShutdown,
}

impl Rig {
    fn new(half_closed: usize) -> Self {
        let now = Instant::now();
        let (target, admin) = AdminTarget::live(now, settings(2).controller);
        Self { now, target, ending: ControllerShutdown::new(now, admin, half_closed) }
    }

    /// Moves bytes in both directions until none are left.
    fn exchange(&mut self) -> Option<bool> {
        loop {
            let mut bytes = Vec::new();
            self.ending.fill_tx(&mut bytes);
            let answer = self.target.exchange(self.now, &bytes);
            if bytes.is_empty() && answer.is_empty() {
                return self.ending.poll_confirmed();
            }
            self.ending.receive(self.now, &answer).unwrap();
        }
    }

    /// Passes time, with a controller that answers or is silent. Returns the outcome.
    fn pass(&mut self, time: Duration, answers: bool) -> Option<bool> {
        let end = self.now + time;
        while self.ending.next_timeout() <= end && self.ending.poll_confirmed().is_none() {
            self.now = self.now.max(self.ending.next_timeout());
            let _ = self.ending.handle_timeout(self.now);
            if answers {
                self.exchange();
            }
        }
        self.now = end;
        self.ending.poll_confirmed()
    }

    fn queue_ended(&mut self, in_order: bool) {
        self.ending.queue_ended(self.now, in_order);
    }
}

#[test]
fn a_controller_that_answers_after_it_has_closed_every_queue_is_confirmed() {
    let mut rig = Rig::new(2);
    assert_eq!(rig.exchange(), None);
    rig.queue_ended(true);
    assert_eq!(rig.exchange(), None, "the other may hold commands");
    // Keep-alives go on.
    assert_eq!(rig.pass(HALF_CLOSED_MAX * 99 / 100, true), None);
    rig.queue_ended(true);
    assert_eq!(rig.exchange(), Some(true));
}

#[test]
fn without_half_closed_queues_the_shutdown_begins_at_once() {
    assert_eq!(Rig::new(0).exchange(), Some(true));
    let mut silent = Rig::new(0);
    assert_eq!(silent.pass(SHUTDOWN_MAX * 99 / 100, false), None);
    assert_eq!(silent.pass(SHUTDOWN_MAX / 100, false), Some(false));
}

#[test]
fn a_controller_that_does_not_answer_after_it_has_closed_its_queues_is_not_confirmed() {
    let mut silent = Rig::new(1);
    silent.queue_ended(true);
    assert_eq!(silent.pass(SHUTDOWN_MAX, false), Some(false));
    let mut gone = Rig::new(1);
    gone.queue_ended(true);
    gone.ending.admin_ended();
    assert_eq!(gone.exchange(), Some(false), "too late");
    let mut broken = Rig::new(1);
    broken.ending.receive(broken.now, &[0xff; 64]).unwrap_err();
    broken.queue_ended(true);
    assert_eq!(broken.ending.poll_confirmed(), Some(false));
}

#[test]
fn a_queue_that_fails_or_takes_too_long_confirms_nothing() {
    let mut failed = Rig::new(2);
    failed.queue_ended(false);
    failed.queue_ended(true);
    assert_eq!(failed.exchange(), Some(false));
    let mut late = Rig::new(2);
    late.queue_ended(true);
    assert_eq!(late.pass(HALF_CLOSED_MAX * 99 / 100, true), None);
    assert_eq!(late.pass(HALF_CLOSED_MAX / 100, true), Some(false));
    late.queue_ended(true);
    assert_eq!(late.exchange(), Some(false), "too late");
}
