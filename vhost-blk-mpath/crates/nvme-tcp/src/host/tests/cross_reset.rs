//! Cross-Controller Reset, seen by the host that requests it.

use monotonic::Duration;

use super::admin::{Admin, KATO, ana_changed, config};
use super::admin_target::What;
use crate::host::{ControllerEvent, CrossResetOutcome, CrossResetRefusal};
use crate::wire::{AnaState, AsyncEvent, ControllerInstance, Status};

const LOST: ControllerInstance = ControllerInstance { cntlid: 9, ciu: 4, cirn: 0x1122_3344_5566_7788 };

/// The outcome with a target that answers like this.
fn outcome(answer: Option<(Status, u64)>) -> CrossResetOutcome {
    let mut admin = Admin::with(config(), |target| {
        target.refuse.extend(answer.map(|(status, result)| (What::ResetOther(LOST), status, result)));
    });
    admin.live();
    assert_eq!(admin.host.cross_controller_reset(LOST), Ok(()));
    admin.exchange().unwrap();
    let Some(ControllerEvent::CrossControllerReset(outcome)) = admin.event() else { panic!() };
    assert_eq!((admin.event(), admin.target.asked(What::ResetOther(LOST))), (None, 1));
    // After any outcome, another reset is possible.
    assert_eq!(admin.host.cross_controller_reset(LOST), Ok(()));
    outcome
}

#[test]
fn only_bit_0_of_a_success_says_that_it_is_done() {
    assert_eq!(outcome(None), CrossResetOutcome::Done);
    assert_eq!(outcome(Some((Status::SUCCESS, u64::MAX))), CrossResetOutcome::Done);
    assert_eq!(outcome(Some((Status::SUCCESS, !1))), CrossResetOutcome::Begun);
    let refused = Status::INVALID_FIELD.with_dnr();
    assert_eq!(outcome(Some((refused, 1))), CrossResetOutcome::Failed(refused));
}

#[test]
fn an_unanswered_reset_does_not_disturb_the_association() {
    let mut admin = Admin::with(config(), |target| target.mute.push(What::ResetOther(LOST)));
    admin.live();
    assert_eq!(admin.host.cross_controller_reset(LOST), Ok(()));
    admin.pass(KATO * 10).unwrap();
    let keep_alives = admin.target.asked(What::KeepAlive);
    assert!(keep_alives.abs_diff(20) <= 1, "{keep_alives}");
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::Optimized)));
    assert_eq!(admin.host.cross_controller_reset(LOST), Err(CrossResetRefusal::Busy));
    assert_eq!(admin.target.asked(What::ResetOther(LOST)), 1);
    admin.host.shutdown(admin.now);
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(admin.event(), Some(ControllerEvent::ShutdownComplete));
}

#[test]
fn impossible_resets_are_not_sent() {
    let mut admin = Admin::with(config(), |_| {});
    assert_eq!(admin.host.cross_controller_reset(LOST), Err(CrossResetRefusal::NotLive));
    admin.live();
    let itself = ControllerInstance { cntlid: 5, ..LOST };
    assert_eq!(admin.host.cross_controller_reset(itself), Err(CrossResetRefusal::Itself { cntlid: 5 }));
    admin.host.shutdown(admin.now);
    assert_eq!(admin.host.cross_controller_reset(LOST), Err(CrossResetRefusal::NotLive));

    let mut without = Admin::with(config(), |target| {
        (target.identify.ccrl, target.identify.ciu) = (0, 0);
    });
    assert_eq!(without.live().instance(), None);
    assert_eq!(without.host.cross_controller_reset(LOST), Err(CrossResetRefusal::Unsupported));
    without.exchange().unwrap();
    assert_eq!(without.target.asked(What::ResetOther(LOST)), 0);
}
