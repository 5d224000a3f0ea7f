//! Connects and controller properties.

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{
    AdminCommand, AnaState, CNTLID_ANY, Capabilities, ConnectData, ConnectField, ControllerConfiguration,
    ControllerStatus, Nqn, PropertyOffset, Sgl, ShutdownStatus, Status,
};

use super::{
    ENTRIES, admin, command, connect, connect_data, fabrics, get_property, live_controller, set_property, status_of,
    subsystem, try_connect,
};
use crate::{AdminReply, QueueIdentity};

#[test]
fn each_admin_queue_gets_its_own_controller() {
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
fn a_refused_connect_names_the_field() {
    let mut subsystem = subsystem();
    let any = connect_data(CNTLID_ANY);
    let other = |name: &str| Nqn::new(name).unwrap();
    for (qid, sqsize, data, field) in [
        (0, 15, ConnectData { subnqn: other("nqn.other"), ..any.clone() }, ConnectField::Subnqn),
        (0, 15, ConnectData { subnqn: Nqn::discovery(), ..any.clone() }, ConnectField::Subnqn),
        (0, 0, any.clone(), ConnectField::Sqsize),
        (0, 32, any.clone(), ConnectField::Sqsize),
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
    let too_long = try_connect(&mut subsystem, 1, 1, ENTRIES, &ours);
    assert_eq!(too_long, Err(ConnectField::Sqsize.invalid()));
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
fn the_first_command_must_be_a_complete_connect() {
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
fn properties_can_be_read_and_written() {
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
fn an_unsupported_configuration_is_fatal_until_a_reset() {
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
