//! Asynchronous events: which hosts get them, and how often.

use monotonic::Instant;
use nvme_tcp::wire::{
    ActiveList, AdminCommand, AnaLog, AnaState, AsyncEvent, AsyncEventMask, Cns, FeatureId, IdentifyNamespace, LogPage,
    NamespaceDescriptors, PropertyOffset, Status,
};

use super::{
    admin, admin_data, connect_data, fabrics, identify, live_controller, log, set_feature, set_property, subsystem,
    try_connect,
};
use crate::{Namespace, Subsystem};

#[test]
fn an_ana_event_is_reported_once_until_the_log_is_read() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 2);
    let mask = AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE);
    admin(&mut subsystem, now, cntlid, set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, mask.0)).unwrap();
    for _ in 0..2 {
        assert_eq!(admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest), Ok(u64::MAX));
    }
    assert!(subsystem.poll_event(cntlid).is_none());
    subsystem.set_ana(2, AnaState::NonOptimized);
    subsystem.set_ana(1, AnaState::Inaccessible);
    assert!(subsystem.poll_event(cntlid).is_none(), "nothing has changed on port 2");
    subsystem.set_ana(2, AnaState::Inaccessible);
    let event = AsyncEvent::ANA_CHANGED.to_dw0().into();
    let (_, status, result) = subsystem.poll_event(cntlid).unwrap();
    assert_eq!((status, result), (Status::SUCCESS, event));
    subsystem.set_ana(2, AnaState::Optimized);
    assert!(subsystem.poll_event(cntlid).is_none(), "masked");
    let data = admin_data(&mut subsystem, cntlid, log(LogPage::ANA, 4096, 0), 4096).unwrap();
    let log = AnaLog::parse(&data).unwrap();
    assert_eq!(log.change_count, 2);
    assert_eq!(log.groups.len(), 2);
    assert_eq!((log.state_of(1), log.state_of(2)), (Some(AnaState::Optimized), Some(AnaState::Optimized)));
    assert_eq!(log.groups[1].nsids, [2]);
    subsystem.set_ana(2, AnaState::Change);
    assert!(subsystem.poll_event(cntlid).is_some());
}

#[test]
fn a_reset_aborts_event_requests_and_resets_features() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    for _ in 0..4 {
        admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest).unwrap();
    }
    let fifth = admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest);
    assert_eq!(fifth, Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
    admin(&mut subsystem, now, cntlid, set_feature(FeatureId::VOLATILE_WRITE_CACHE, 0)).unwrap();
    assert!(!subsystem.io_view(cntlid).unwrap().write_cache);
    try_connect(&mut subsystem, 1, 1, 15, &connect_data(cntlid)).unwrap();
    fabrics(&mut subsystem, now, cntlid, set_property(PropertyOffset::CC, 0)).unwrap();
    let view = subsystem.io_view(cntlid).unwrap();
    assert!(!view.enabled && view.write_cache);
    let aborted = std::iter::from_fn(|| subsystem.poll_event(cntlid)).map(|(_, status, _)| status);
    assert_eq!(aborted.collect::<Vec<_>>(), [Status::ABORT_REQUESTED; 4]);
    fabrics(&mut subsystem, now, cntlid, set_property(PropertyOffset::CC, 0x0046_0001)).unwrap();
    assert!(try_connect(&mut subsystem, 1, 1, 15, &connect_data(cntlid)).is_ok());
}

/// A controller of `port` with all events enabled and one outstanding request.
fn listening(subsystem: &mut Subsystem, port: u16) -> u16 {
    let now = Instant::now();
    let cntlid = live_controller(subsystem, now, port);
    let mask = AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE);
    admin(subsystem, now, cntlid, set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, mask.0)).unwrap();
    admin(subsystem, now, cntlid, AdminCommand::AsyncEventRequest).unwrap();
    cntlid
}

fn reported_event(subsystem: &mut Subsystem, cntlid: u16) -> Option<AsyncEvent> {
    let (_, status, result) = subsystem.poll_event(cntlid)?;
    assert_eq!(status, Status::SUCCESS);
    Some(AsyncEvent::from_dw0(result as u32))
}

#[test]
fn ana_groups_change_independently() {
    let mut subsystem = subsystem();
    let [first, second] = [1, 2].map(|port| listening(&mut subsystem, port));
    subsystem.set_ana_group(1, 2, AnaState::Inaccessible);
    assert_eq!(reported_event(&mut subsystem, first), Some(AsyncEvent::ANA_CHANGED));
    assert_eq!(reported_event(&mut subsystem, second), None);
    let data = admin_data(&mut subsystem, first, log(LogPage::ANA, 88, 0), 88).unwrap();
    let log = AnaLog::parse(&data).unwrap();
    assert_eq!((log.state_of(1), log.state_of(2)), (Some(AnaState::Optimized), Some(AnaState::Inaccessible)));
    assert_eq!((log.change_count, log.groups[0].change_count, log.groups[1].change_count), (1, 0, 1));
    assert_eq!(subsystem.io_view(first).unwrap().ana, [AnaState::Optimized, AnaState::Inaccessible]);
    for group in [0, 3, u32::MAX] {
        subsystem.set_ana_group(1, group, AnaState::Change);
    }
    subsystem.set_ana_group(9, 1, AnaState::Change);
    assert_eq!(subsystem.io_view(first).unwrap().ana, [AnaState::Optimized, AnaState::Inaccessible]);
}

#[test]
fn disabled_events_are_not_reported() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest).unwrap();
    subsystem.set_ana(1, AnaState::Inaccessible);
    let namespace = subsystem.config().namespaces[0];
    subsystem.override_namespace(1, 1, Some(Namespace { blocks: 1, ..namespace }));
    assert_eq!(reported_event(&mut subsystem, cntlid), None);
    // Enabling events later does not report earlier changes.
    let all = AsyncEventMask(u32::MAX);
    admin(&mut subsystem, now, cntlid, set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, all.0)).unwrap();
    assert_eq!(reported_event(&mut subsystem, cntlid), None);
}

#[test]
fn an_event_waits_for_a_request() {
    let mut subsystem = subsystem();
    let cntlid = listening(&mut subsystem, 1);
    let namespace = subsystem.config().namespaces[0];
    subsystem.set_ana(1, AnaState::Inaccessible);
    subsystem.override_namespace(1, 1, Some(Namespace { blocks: 1, ..namespace }));
    assert_eq!(reported_event(&mut subsystem, cntlid), Some(AsyncEvent::NAMESPACE_CHANGED));
    assert_eq!(reported_event(&mut subsystem, cntlid), None);
    admin(&mut subsystem, Instant::now(), cntlid, AdminCommand::AsyncEventRequest).unwrap();
    assert_eq!(reported_event(&mut subsystem, cntlid), Some(AsyncEvent::ANA_CHANGED));
}

#[test]
fn a_port_can_report_other_namespace_properties() {
    let mut subsystem = subsystem();
    let [first, second] = [1, 2].map(|port| listening(&mut subsystem, port));
    let real = subsystem.config().namespaces[1];
    let wrong = Namespace { blocks: 77, uuid: [8; 16], nguid: [9; 16], ..real };
    subsystem.override_namespace(1, 2, Some(wrong));
    assert_eq!(reported_event(&mut subsystem, first), Some(AsyncEvent::NAMESPACE_CHANGED));
    assert_eq!(reported_event(&mut subsystem, second), None);
    let mut seen = |cntlid| {
        let data = admin_data(&mut subsystem, cntlid, identify(Cns::NAMESPACE, 2), 4096).unwrap();
        let namespace = IdentifyNamespace::parse(&data).unwrap();
        let list = admin_data(&mut subsystem, cntlid, identify(Cns::DESCRIPTORS, 2), 4096).unwrap();
        let list = NamespaceDescriptors::parse(&list).unwrap();
        assert_eq!(list.nguid, Some(namespace.nguid));
        (namespace.nsze.get(), list.uuid.unwrap(), namespace.nguid)
    };
    assert_eq!(seen(first), (77, [8; 16], [9; 16]));
    assert_eq!(seen(second), (real.blocks, real.uuid, real.nguid));

    let mut changed = |rae| {
        let command = AdminCommand::GetLogPage {
            lid: LogPage::CHANGED_NAMESPACES,
            nsid: u32::MAX,
            lsp: 0,
            rae,
            bytes: 4096,
            offset: 0,
        };
        ActiveList::parse(&admin_data(&mut subsystem, first, command, 4096).unwrap()).0
    };
    assert_eq!(changed(true), [2]);
    assert_eq!(changed(false), [2]);
    assert_eq!(changed(false), []);
    admin(&mut subsystem, Instant::now(), first, AdminCommand::AsyncEventRequest).unwrap();
    subsystem.override_namespace(1, 2, Some(wrong));
    assert_eq!(reported_event(&mut subsystem, first), None, "nothing has changed");
    subsystem.override_namespace(1, 2, None);
    assert_eq!(reported_event(&mut subsystem, first), Some(AsyncEvent::NAMESPACE_CHANGED));
    for (port, nsid) in [(0, 1), (3, 1), (1, 0), (1, 3)] {
        subsystem.override_namespace(port, nsid, Some(wrong));
    }
    let data = admin_data(&mut subsystem, first, identify(Cns::NAMESPACE, 2), 4096).unwrap();
    assert_eq!(IdentifyNamespace::parse(&data).unwrap().nsze.get(), real.blocks);
}
