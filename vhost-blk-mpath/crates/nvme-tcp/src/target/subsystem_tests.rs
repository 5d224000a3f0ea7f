use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::testing::{
    ENTRIES, KATO, admin, admin_data, command, connect, connect_data, fabrics, get_property, live_controller, nqn,
    set_property, subsystem,
};
use super::{AdminReply, QueueIdentity, Subsystem};
use crate::wire::{
    ActiveList, AdminCommand, AnaLog, AnaState, AsyncEvent, AsyncEventMask, CNTLID_ANY, Capabilities, Cns, ConnectData,
    ConnectField, ControllerConfiguration, ControllerStatus, FabricsCommand, FeatureId, IdentifyController,
    IdentifyNamespace, LogPage, NamespaceDescriptors, Nqn, NumberOfQueues, PropertyOffset, Sgl, ShutdownStatus, Sqe,
    Status,
};

fn try_connect(
    subsystem: &mut Subsystem,
    port: u16,
    qid: u16,
    sqsize: u16,
    data: &ConnectData,
) -> Result<QueueIdentity, (Status, u64)> {
    let sqe = connect(qid, sqsize).to_sqe(0, Sgl::NONE);
    subsystem.connect(Instant::now(), port, &command(sqe, &data.emit(), 0))
}

fn identify(cns: Cns, nsid: u32) -> AdminCommand {
    AdminCommand::Identify { cns, nsid, cntid: 0, csi: 0 }
}

fn set_feature(fid: FeatureId, value: u32) -> AdminCommand {
    AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }
}

fn log(lid: LogPage, bytes: u32, offset: u64) -> AdminCommand {
    AdminCommand::GetLogPage { lid, nsid: 0, lsp: 0, rae: false, bytes: bytes.into(), offset }
}

fn status_of(subsystem: &mut Subsystem, cntlid: u16) -> ControllerStatus {
    let value = fabrics(subsystem, Instant::now(), cntlid, get_property(PropertyOffset::CSTS));
    ControllerStatus(value.unwrap() as u32)
}

#[test]
fn each_admin_queue_gets_a_controller_of_its_own() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let first = live_controller(&mut subsystem, now, 1);
    let second = live_controller(&mut subsystem, now, 2);
    assert_ne!(first, second);
    assert_eq!(subsystem.io_view(first).unwrap().ana, [AnaState::Optimized; 2]);
    assert_eq!(subsystem.io_view(second).unwrap().ana, [AnaState::NonOptimized; 2]);
    let admin_queue = QueueIdentity { cntlid: first, qid: 0, entries: ENTRIES, flow_control: true };
    subsystem.disconnected(admin_queue);
    assert_eq!(subsystem.io_view(first), None);
    assert_ne!(live_controller(&mut subsystem, now, 1), first);
}

#[test]
fn connects_are_refused_by_field() {
    let mut subsystem = subsystem();
    let any = connect_data(CNTLID_ANY);
    let other = |name: &str| Nqn::new(name).unwrap();
    for (qid, sqsize, data, field) in [
        (0, 15, ConnectData { subnqn: other("nqn.other"), ..any.clone() }, ConnectField::Subnqn),
        (0, 15, ConnectData { subnqn: Nqn::discovery(), ..any.clone() }, ConnectField::Subnqn),
        (0, 0, any.clone(), ConnectField::Sqsize),
        (0, ENTRIES, any.clone(), ConnectField::Sqsize),
        (0, u16::MAX, any.clone(), ConnectField::Sqsize),
        (0, 15, connect_data(1), ConnectField::Cntlid),
        (1, 15, connect_data(1), ConnectField::Cntlid),
    ] {
        assert_eq!(try_connect(&mut subsystem, 1, qid, sqsize, &data), Err(field.invalid()), "{field}");
    }
    let cntlid = live_controller(&mut subsystem, Instant::now(), 1);
    let ours = connect_data(cntlid);
    assert_eq!(try_connect(&mut subsystem, 2, 1, 15, &ours), Err(ConnectField::Cntlid.invalid()));
    assert_eq!(try_connect(&mut subsystem, 1, 5, 15, &ours), Err(ConnectField::Qid.invalid()));
    let stranger = ConnectData { hostnqn: other("nqn.stranger"), ..ours.clone() };
    let refused = Err((Status::CONNECT_INVALID_HOST.with_dnr(), 0));
    assert_eq!(try_connect(&mut subsystem, 1, 1, 15, &stranger), refused);
    let identity = try_connect(&mut subsystem, 1, 1, 15, &ours).unwrap();
    assert_eq!(identity, QueueIdentity { cntlid, qid: 1, entries: 16, flow_control: true });
    let twice = Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
    assert_eq!(try_connect(&mut subsystem, 1, 1, 15, &ours), twice);
    subsystem.disconnected(identity);
    assert!(try_connect(&mut subsystem, 1, 1, 15, &ours).is_ok());
}

#[test]
fn the_first_command_must_be_a_whole_connect() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let sequence = Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
    for sqe in [AdminCommand::KeepAlive.to_sqe(0, Sgl::NONE), get_property(PropertyOffset::CAP).to_sqe(0, Sgl::NONE)] {
        assert_eq!(subsystem.connect(now, 1, &command(sqe, &[], 0)), sequence);
    }
    let short = command(connect(0, 15).to_sqe(0, Sgl::NONE), &[0; 512], 0);
    assert_eq!(subsystem.connect(now, 1, &short), Err((Status::DATA_SGL_LENGTH_INVALID.with_dnr(), 0)));
}

#[test]
fn an_io_queue_needs_an_enabled_controller() {
    let mut subsystem = subsystem();
    let cntlid = try_connect(&mut subsystem, 1, 0, 15, &connect_data(CNTLID_ANY)).unwrap().cntlid;
    assert!(!subsystem.io_view(cntlid).unwrap().enabled);
    let early = Err((Status::COMMAND_SEQUENCE_ERROR.with_dnr(), 0));
    assert_eq!(try_connect(&mut subsystem, 1, 1, 15, &connect_data(cntlid)), early);
    let not_ready = admin(&mut subsystem, Instant::now(), cntlid, AdminCommand::KeepAlive);
    assert_eq!(not_ready, Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
}

#[test]
fn properties() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    let mut get = |offset| fabrics(&mut subsystem, now, cntlid, get_property(offset));
    let capabilities = Capabilities(get(PropertyOffset::CAP).unwrap());
    assert_eq!(capabilities.mqes(), ENTRIES - 1);
    assert!(capabilities.timeout() >= Duration::from_secs(1));
    assert_eq!(get(PropertyOffset::VS), Ok(0x0001_0400));
    assert_eq!(get(PropertyOffset::CC), Ok(0x0046_0001));
    assert_eq!(get(PropertyOffset(0x20)), Err(Status::INVALID_FIELD.with_dnr()));
    let write_csts = set_property(PropertyOffset::CSTS, 0);
    assert_eq!(fabrics(&mut subsystem, now, cntlid, write_csts), Err(Status::INVALID_FIELD.with_dnr()));
}

#[test]
fn a_configuration_that_is_not_supported_is_fatal_until_reset() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    let mut write = |value| {
        fabrics(&mut subsystem, now, cntlid, set_property(PropertyOffset::CC, value)).unwrap();
        status_of(&mut subsystem, cntlid)
    };
    assert_eq!(write(0), ControllerStatus::new(false, false, ShutdownStatus::None));
    // IOSQES 7.
    assert_eq!(write(0x0047_0001), ControllerStatus::new(false, true, ShutdownStatus::None));
    assert_eq!(write(0x0046_0000), ControllerStatus::new(false, false, ShutdownStatus::None));
    assert_eq!(write(0x0046_0001), ControllerStatus::new(true, false, ShutdownStatus::None));
}

#[test]
fn a_shutdown_flushes_and_is_then_complete() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    let shutdown = set_property(PropertyOffset::CC, ControllerConfiguration::SHUTDOWN.0);
    let reply = subsystem.admin(now, cntlid, command(shutdown.to_sqe(1, Sgl::NONE), &[], 0));
    assert!(matches!(reply, AdminReply::Shutdown { .. }), "{reply:?}");
    assert_eq!(status_of(&mut subsystem, cntlid), ControllerStatus::new(true, false, ShutdownStatus::Complete));
    assert_eq!(subsystem.next_timeout(cntlid), None);
}

#[test]
fn a_controller_tells_a_linux_host_what_it_asks_for() {
    let mut subsystem = subsystem();
    let cntlid = live_controller(&mut subsystem, Instant::now(), 1);
    let data = admin_data(&mut subsystem, cntlid, identify(Cns::CONTROLLER, 0), 4096).unwrap();
    let identify = IdentifyController::parse(&data).unwrap();
    assert_eq!(identify.cntlid.get(), cntlid);
    assert_eq!(identify.subnqn(), Ok(nqn()));
    assert_eq!(IdentifyController::text(&identify.sn), "0123456789");
    assert_eq!(identify.in_capsule_bytes(), 8192);
    assert_eq!(identify.max_transfer_bytes(0), Some(1 << 20));
    assert_eq!((identify.sqes, identify.cqes), (0x66, 0x44));
    assert_eq!((identify.cntrltype, identify.icdoff.get(), identify.iorcsz.get()), (1, 0, 1));
    assert_eq!((identify.nn.get(), identify.mnan.get()), (2, 2));
    assert_eq!(identify.maxcmd.get(), ENTRIES);
    assert_eq!(identify.cmic & 0b1011, 0b1011);
    assert_eq!((identify.anagrpmax.get(), identify.nanagrpid.get()), (2, 2));
    assert!(identify.anatt > 0 && identify.kas.get() > 0 && identify.cqt.get() > 0);
    assert_eq!(identify.sgls.get() & 3, 1);
    assert_eq!(identify.vwc & 1, 1);
    assert_eq!(identify.oncs.get(), 0b1100);
}

#[test]
fn namespaces_are_the_same_on_every_path() {
    let mut subsystem = subsystem();
    let paths = [1, 2].map(|port| live_controller(&mut subsystem, Instant::now(), port));
    for cns in [Cns::NAMESPACE, Cns::DESCRIPTORS] {
        for nsid in [1, 2] {
            let [a, b] = paths.map(|cntlid| admin_data(&mut subsystem, cntlid, identify(cns, nsid), 4096).unwrap());
            assert_eq!(a, b);
        }
    }
    let mut get = |cns, nsid| admin_data(&mut subsystem, paths[0], identify(cns, nsid), 4096);
    let data = get(Cns::NAMESPACE, 2).unwrap();
    let namespace = IdentifyNamespace::parse(&data).unwrap();
    assert_eq!((namespace.nsze.get(), namespace.format().block_bytes()), (1 << 12, Some(4096)));
    assert_eq!((namespace.nmic, namespace.anagrpid.get(), namespace.nguid), (1, 2, [2; 16]));
    let descriptors = NamespaceDescriptors::parse(&get(Cns::DESCRIPTORS, 1).unwrap()).unwrap();
    assert_eq!((descriptors.uuid, descriptors.nguid, descriptors.csi), (Some([1; 16]), Some([1; 16]), Some(0)));
    assert_eq!(ActiveList::parse(&get(Cns::ACTIVE_LIST, 0).unwrap()).0, [1, 2]);
    assert_eq!(ActiveList::parse(&get(Cns::ACTIVE_LIST, 1).unwrap()).0, [2]);
    let unknown = Err(Status::INVALID_NAMESPACE.with_dnr());
    for nsid in [0, 3, u32::MAX] {
        assert_eq!(get(Cns::NAMESPACE, nsid), unknown);
        assert_eq!(get(Cns::DESCRIPTORS, nsid), unknown);
    }
    assert_eq!(get(Cns(0x7f), 0), Err(Status::INVALID_FIELD.with_dnr()));
    let short = admin_data(&mut subsystem, paths[0], identify(Cns::CONTROLLER, 0), 2048);
    assert_eq!(short, Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
}

#[test]
fn queues_are_granted_up_to_the_limit_and_before_use() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    let ask = |count: u16| NumberOfQueues { submission: count - 1, completion: count - 1 }.to_value();
    let mut set = |count| {
        let value = set_feature(FeatureId::NUMBER_OF_QUEUES, ask(count));
        admin(&mut subsystem, now, cntlid, value)
    };
    assert_eq!(set(100), Ok(ask(4).into()));
    assert_eq!(set(2), Ok(ask(2).into()));
    let data = connect_data(cntlid);
    assert_eq!(try_connect(&mut subsystem, 1, 3, 15, &data), Err(ConnectField::Qid.invalid()));
    assert!(try_connect(&mut subsystem, 1, 2, 15, &data).is_ok());
    let late = admin(&mut subsystem, now, cntlid, set_feature(FeatureId::NUMBER_OF_QUEUES, ask(4)));
    assert_eq!(late, Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
}

#[test]
fn a_host_that_is_silent_for_kato_is_gone() {
    let mut subsystem = subsystem();
    let start = Instant::now();
    let cntlid = live_controller(&mut subsystem, start, 1);
    assert_eq!(subsystem.next_timeout(cntlid), Some(start + KATO));
    assert!(!subsystem.is_expired(cntlid, start + KATO - Duration::from_millis(1)));
    assert!(subsystem.is_expired(cntlid, start + KATO));
    let later = start + KATO / 2;
    assert_eq!(admin(&mut subsystem, later, cntlid, AdminCommand::KeepAlive), Ok(0));
    assert_eq!(subsystem.next_timeout(cntlid), Some(later + KATO));
    // Other commands do not count without TBKAS.
    let get = AdminCommand::GetFeatures { fid: FeatureId::KEEP_ALIVE_TIMER, sel: 0, nsid: 0 };
    assert_eq!(admin(&mut subsystem, later + KATO / 2, cntlid, get), Ok(5000));
    assert_eq!(subsystem.next_timeout(cntlid), Some(later + KATO));
    let round_up = set_feature(FeatureId::KEEP_ALIVE_TIMER, 1001);
    assert_eq!(admin(&mut subsystem, later, cntlid, round_up), Ok(0));
    assert_eq!(subsystem.next_timeout(cntlid), Some(later + Duration::from_millis(1100)));
    assert_eq!(admin(&mut subsystem, later, cntlid, set_feature(FeatureId::KEEP_ALIVE_TIMER, 0)), Ok(0));
    assert_eq!(subsystem.next_timeout(cntlid), None);
    let longest = set_feature(FeatureId::KEEP_ALIVE_TIMER, u32::MAX);
    assert_eq!(admin(&mut subsystem, later, cntlid, longest), Ok(0));
}

#[test]
fn an_ana_change_is_told_once_until_its_log_is_read() {
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
fn a_reset_gives_event_requests_back_and_forgets_settings() {
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

#[test]
fn logs_may_be_read_in_parts() {
    let mut subsystem = subsystem();
    let cntlid = live_controller(&mut subsystem, Instant::now(), 1);
    let whole = admin_data(&mut subsystem, cntlid, log(LogPage::ANA, 128, 0), 128).unwrap();
    let tail = admin_data(&mut subsystem, cntlid, log(LogPage::ANA, 64, 16), 64).unwrap();
    assert_eq!(tail, whole[16..80]);
    let invalid = Err(Status::INVALID_FIELD.with_dnr());
    for offset in [2, 1 << 20, u64::MAX] {
        assert_eq!(admin_data(&mut subsystem, cntlid, log(LogPage::ANA, 64, offset), 64), invalid);
    }
    let lengths = admin_data(&mut subsystem, cntlid, log(LogPage::ANA, 64, 0), 128);
    assert_eq!(lengths, Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
    for (lid, bytes) in [
        (LogPage::ERROR, 64),
        (LogPage::SMART, 512),
        (LogPage::FIRMWARE_SLOT, 512),
        (LogPage::CHANGED_NAMESPACES, 4096),
        (LogPage::COMMAND_EFFECTS, 4096),
    ] {
        let data = admin_data(&mut subsystem, cntlid, log(lid, bytes, 0), bytes);
        assert_eq!(data.map(|data| data.len()), Ok(bytes as usize));
    }
    let discovery = admin_data(&mut subsystem, cntlid, log(LogPage::DISCOVERY, 1024, 0), 1024);
    assert_eq!(discovery, Err(Status::INVALID_LOG_PAGE.with_dnr()));
}

proptest! {
    #[test]
    fn any_admin_command_is_answered_as_long_as_expected(
        sqe: [u8; 64], opcode in prop_oneof![0u8..0x20, Just(0x7f), any::<u8>()], low in 0u8..0x20, expects_bytes in 0u32..9000,
    ) {
        let mut subsystem = subsystem();
        let now = Instant::now();
        let cntlid = live_controller(&mut subsystem, now, 1);
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.opcode = opcode;
        sqe.nsid = u32::from(low % 8).into();
        sqe.cdw[0] = (sqe.cdw[0].get() & !0xff | u32::from(low)).into();
        let expects_bytes = expects_bytes & !3;
        if let AdminReply::Data { data, .. } = subsystem.admin(now, cntlid, command(sqe, &[], expects_bytes)) {
            prop_assert_eq!(data.len(), expects_bytes as usize);
        }
    }

    #[test]
    fn any_connect_is_answered(sqe: [u8; 64], data in proptest::collection::vec(any::<u8>(), 1020..1028)) {
        let mut sqe: Sqe = zerocopy::transmute!(sqe);
        sqe.opcode = 0x7f;
        sqe.nsid = 1.into();
        let _ = FabricsCommand::parse(&sqe);
        prop_assert!(subsystem().connect(Instant::now(), 1, &command(sqe, &data, 0)).is_err());
    }
}
