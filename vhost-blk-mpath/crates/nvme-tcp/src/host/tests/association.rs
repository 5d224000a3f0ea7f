//! Keep-alives, events and the end of an association.

use monotonic::Duration;

use super::admin::{Admin, KATO, TIMEOUT, ana_changed, config};
use super::admin_target::What;
use crate::host::{AdminError, ControllerConfig, ControllerEvent, NamespaceError, Step};
use crate::wire::{AnaGroup, AnaState, AsyncEvent, Cns, LogPage, PropertyOffset, Status};

#[test]
fn keep_alives_go_every_half_kato_or_quarter() {
    for (ctratt, interval) in [(0, KATO / 2), (1 << 6, KATO / 4)] {
        let mut admin = Admin::with(config(), |target| target.identify.ctratt = ctratt.into());
        assert_eq!(admin.live().tbkas, ctratt != 0);
        admin.pass(Duration::from_secs(100)).unwrap();
        let expected = (Duration::from_secs(100).as_millis() / interval.as_millis()) as usize;
        let sent = admin.target.asked(What::KeepAlive);
        assert!(sent.abs_diff(expected) <= 1, "{sent} of {expected}");
    }
}

#[test]
fn a_keep_alive_without_answer_ends_the_association() {
    let mut admin = Admin::with(config(), |target| target.mute.push(What::KeepAlive));
    admin.live();
    // Half of KATO until the keep-alive, and half of KATO for its answer.
    assert_eq!(admin.failure(), AdminError::Timeout { step: Step::KeepAlive, after: KATO / 2 }.into());
    let mut admin = Admin::with(config(), |target| {
        target.refuse.push((What::KeepAlive, Status::KEEP_ALIVE_EXPIRED, 0));
    });
    admin.live();
    let status = Status::KEEP_ALIVE_EXPIRED;
    assert_eq!(admin.failure(), AdminError::Command { step: Step::KeepAlive, status }.into());
}

/// A host that gives other commands less time must not lose a controller that the keep-alive tolerates.
#[test]
fn a_live_controller_has_half_of_kato_for_any_answer() {
    let command_timeout = KATO / 20;
    for (muted, step) in [(What::KeepAlive, Step::KeepAlive), (What::Log(LogPage::ANA), Step::AnaLog)] {
        let mut admin = Admin::with(ControllerConfig { command_timeout, ..config() }, |_| {});
        admin.live();
        admin.target.mute.push(muted);
        if step == Step::AnaLog {
            admin.target.report(AsyncEvent::ANA_CHANGED);
        }
        assert_eq!(admin.failure(), AdminError::Timeout { step, after: KATO / 2 }.into());
    }
    // While it connects, it has the time of a command.
    let mut admin = Admin::with(ControllerConfig { command_timeout, ..config() }, |target| {
        target.mute.push(What::Identify(Cns::CONTROLLER));
    });
    assert_eq!(admin.failure(), AdminError::Timeout { step: Step::IdentifyController, after: command_timeout }.into());
}

#[test]
fn an_ana_change_event_leads_to_reading_the_log() {
    let mut admin = Admin::with(config(), |target| {
        // Without MNAN, NN limits the length of the log.
        target.identify.mnan = 0.into();
        target.ana.groups[0].state = AnaState::NonOptimized;
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::NonOptimized);
    for state in [AnaState::Inaccessible, AnaState::Change, AnaState::Optimized] {
        admin.target.ana.groups[0].state = state;
        admin.target.report(AsyncEvent::ANA_CHANGED);
        admin.pass(Duration::from_millis(1)).unwrap();
        assert_eq!(admin.event(), Some(ana_changed(state)));
        assert_eq!(admin.only().ana, state);
    }
    // The state changed in time, so there is no reset.
    admin.pass(Duration::from_secs(60)).unwrap();
    // The namespace moves to another group.
    admin.target.ana.groups[0].nsids.clear();
    admin.target.ana.groups.push(AnaGroup { id: 2, change_count: 1, state: AnaState::PersistentLoss, nsids: vec![1] });
    admin.host.reread_ana(admin.now);
    admin.pass(Duration::from_millis(1)).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::PersistentLoss)));
    admin.target.ana.groups.clear();
    admin.host.reread_ana(admin.now);
    assert_eq!(admin.failure(), NamespaceError::AnaGroupMissing { group: 1 }.into());
}

#[test]
fn the_ana_state_change_is_limited_to_twice_anatt() {
    let mut admin = Admin::with(config(), |target| {
        target.ana.groups[0].state = AnaState::Change;
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::Change);
    admin.pass(Duration::from_secs(15)).unwrap();
    // The time limit runs from the first log.
    admin.host.reread_ana(admin.now);
    admin.pass(Duration::from_secs(3)).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::Change)));
    assert_eq!(admin.failure(), NamespaceError::AnaTransition { after: Duration::from_secs(20) }.into());
}

/// An association before has ended for the same state.
#[test]
fn an_association_may_begin_with_a_longer_limit_of_the_ana_state_change() {
    let mut admin = Admin::with(config(), |target| target.ana.groups[0].state = AnaState::Change);
    admin.host.limit_first_change(Duration::from_secs(40));
    admin.live();
    admin.pass(Duration::from_secs(38)).unwrap();
    assert_eq!((admin.event(), admin.event()), (Some(ana_changed(AnaState::Change)), None), "read again after 20 s");
    assert_eq!(admin.failure(), NamespaceError::AnaTransition { after: Duration::from_secs(40) }.into());
    // A controller may not tell of the end of the state.
    let mut admin = Admin::with(config(), |target| target.ana.groups[0].state = AnaState::Change);
    admin.host.limit_first_change(Duration::from_secs(1000));
    admin.live();
    admin.pass(Duration::from_secs(30)).unwrap();
    admin.target.ana.groups[0].state = AnaState::Optimized;
    admin.pass(Duration::from_secs(20)).unwrap();
    let events: Vec<_> = std::iter::from_fn(|| admin.event()).collect();
    assert_eq!(events.last(), Some(&ana_changed(AnaState::Optimized)), "the log is read every 20 s");
    // A change that begins later is another one.
    let mut admin = Admin::with(config(), |_| {});
    admin.host.limit_first_change(Duration::from_secs(40));
    admin.live();
    admin.target.ana.groups[0].state = AnaState::Change;
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::Change)));
    assert_eq!(admin.failure(), NamespaceError::AnaTransition { after: Duration::from_secs(20) }.into());
}

#[test]
fn the_ana_state_change_is_limited_without_anatt_too() {
    let mut admin = Admin::with(config(), |target| {
        target.identify.anatt = 0;
        target.ana.groups[0].state = AnaState::Change;
    });
    assert_eq!(admin.live().anatt, Duration::from_secs(10));
    assert_eq!(admin.failure(), NamespaceError::AnaTransition { after: Duration::from_secs(20) }.into());
}

#[test]
fn a_large_ana_log_is_read_without_namespaces() {
    let mut admin = Admin::with(config(), |target| {
        target.identify.mnan = 1_000_000.into();
        target.ana.groups[0].state = AnaState::NonOptimized;
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::NonOptimized);
}

#[test]
fn a_namespace_event_leads_to_identifying_it_again() {
    let mut admin = Admin::with(config(), |_| {});
    admin.live();
    let before = admin.only().identity;
    admin.target.namespaces[0].data.nsze = 8192.into();
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    admin.pass(Duration::from_millis(1)).unwrap();
    let Some(ControllerEvent::NamespaceChanged { namespace: 0, identity }) = admin.event() else { panic!() };
    let after = identity.unwrap();
    assert_eq!((after.blocks, before.blocks), (8192, 4096));
    assert!(before.check_same(&after).is_ok() && after.check_same(&before).is_err());
    // Its ANA group may have changed too, so the log is read.
    assert_eq!(admin.event(), Some(ana_changed(AnaState::Optimized)));
    assert_eq!(admin.target.asked(What::Log(LogPage::CHANGED_NAMESPACES)), 1);
    assert_eq!(admin.host.queue_config(1).unwrap().namespaces[0].map(|limits| limits.namespace_blocks), Some(8192));
    admin.target.namespaces.clear();
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    assert_eq!(admin.failure(), NamespaceError::Missing { nsid: 1, available: vec![] }.into());
}

#[test]
fn other_events_are_ignored() {
    let mut admin = Admin::with(config(), |_| {});
    admin.live();
    admin.target.report(AsyncEvent { kind: 1, information: 1, log_page: LogPage::SMART });
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!((admin.event(), admin.target.asked(What::Event)), (None, 2));
    // The host sends no further request to a controller that has refused one.
    admin.target.refuse.push((What::Event, Status::ASYNC_EVENT_LIMIT_EXCEEDED, 0));
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::Optimized)));
    assert_eq!(admin.target.asked(What::Event), 3);
}

#[test]
fn shutdown_is_orderly() {
    let mut admin = Admin::with(config(), |_| {});
    admin.live();
    admin.target.slow = 3;
    admin.host.shutdown(admin.now);
    admin.pass(Duration::from_secs(1)).unwrap();
    assert_eq!(admin.event(), Some(ControllerEvent::ShutdownComplete));
    assert_eq!(admin.target.asked(What::Set(PropertyOffset::CC)), 2);
    let keep_alives = admin.target.asked(What::KeepAlive);
    admin.host.shutdown(admin.now);
    admin.pass(KATO * 3).unwrap();
    assert_eq!((admin.event(), admin.target.asked(What::KeepAlive)), (None, keep_alives));
    // Three shutdowns: one that never ends, one during the connect sequence, and one before Connect.
    let mut stuck = Admin::with(config(), |_| {});
    stuck.live();
    stuck.target.slow = u32::MAX;
    stuck.host.shutdown(stuck.now);
    assert_eq!(stuck.failure(), AdminError::Timeout { step: Step::ShutdownStatus, after: TIMEOUT }.into());
    let mut connecting = Admin::with(config(), |target| target.slow = 20);
    connecting.pass(Duration::from_millis(100)).unwrap();
    connecting.host.shutdown(connecting.now);
    connecting.pass(Duration::from_secs(2)).unwrap();
    assert_eq!(connecting.event(), Some(ControllerEvent::ShutdownComplete));
    let mut fresh = Admin::with(config(), |_| {});
    fresh.host.shutdown(fresh.now);
    assert_eq!(fresh.event(), Some(ControllerEvent::ShutdownComplete));
    assert_eq!(fresh.host.next_timeout(), None);
}
