//! Cross-Controller Reset.

use monotonic::Instant;
use nvme_tcp::wire::{AdminCommand, Cns, ControllerInstance, IdentifyController, Nqn, PropertyOffset, Sgl, Status};

use super::{
    CNTLID_ANY, admin_data, command, connect, connect_data, fabrics, identify, live_controller, set_property, subsystem,
};
use crate::{AdminReply, Subsystem};

fn reset(subsystem: &mut Subsystem, by: u16, instance: ControllerInstance) -> Result<ControllerInstance, Status> {
    let sqe = AdminCommand::CrossControllerReset(instance).to_sqe(1, Sgl::NONE);
    match subsystem.admin(Instant::now(), by, command(sqe, &[], 0)) {
        AdminReply::ResetController { instance, .. } => Ok(instance),
        AdminReply::Done { status, .. } => Err(status),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn identify_reports_the_instance() {
    let mut subsystem = subsystem();
    let cntlid = live_controller(&mut subsystem, Instant::now(), 1);
    let told = |subsystem: &mut Subsystem| {
        let data = admin_data(subsystem, cntlid, identify(Cns::CONTROLLER, 0), 4096).unwrap();
        let identify = IdentifyController::parse(&data).unwrap();
        assert!(identify.ccrl > 0);
        ControllerInstance { cntlid, ciu: identify.ciu, cirn: u64::from_le_bytes(identify.cirn) }
    };
    let first = told(&mut subsystem);
    assert_ne!(first.ciu, 0);
    assert_eq!(subsystem.instance(cntlid), Some(first));
    for enable in [0, 0x0046_0001] {
        fabrics(&mut subsystem, Instant::now(), cntlid, set_property(PropertyOffset::CC, enable)).unwrap();
    }
    let second = told(&mut subsystem);
    assert!(first.ciu != second.ciu && first.cirn != second.cirn, "a reset begins another life");
}

#[test]
fn another_controller_of_the_host_is_reset() {
    let mut subsystem = subsystem();
    let [by, other] = [1, 2].map(|port| live_controller(&mut subsystem, Instant::now(), port));
    let instance = subsystem.instance(other).unwrap();
    assert_eq!(reset(&mut subsystem, by, instance), Ok(instance));
    assert!(subsystem.io_view(other).is_none());
    // Its commands may still be in flight.
    assert_eq!(reset(&mut subsystem, by, instance), Ok(instance));
}

#[test]
fn resetting_an_earlier_instance_does_not_affect_the_current_one() {
    let mut subsystem = subsystem();
    let [by, other] = [1, 2].map(|port| live_controller(&mut subsystem, Instant::now(), port));
    let former = subsystem.instance(other).unwrap();
    for enable in [0, 0x0046_0001] {
        fabrics(&mut subsystem, Instant::now(), other, set_property(PropertyOffset::CC, enable)).unwrap();
    }
    assert_eq!(reset(&mut subsystem, by, former), Ok(former));
    assert!(subsystem.io_view(other).is_some());
}

#[test]
fn unknown_instances_are_refused() {
    let mut subsystem = subsystem();
    let [by, other] = [1, 2].map(|port| live_controller(&mut subsystem, Instant::now(), port));
    let instance = subsystem.instance(other).unwrap();
    for wrong in [
        ControllerInstance { ciu: instance.ciu ^ 1, ..instance },
        ControllerInstance { cirn: instance.cirn ^ 1, ..instance },
        ControllerInstance { cntlid: 999, ..instance },
    ] {
        assert_eq!(reset(&mut subsystem, by, wrong), Err(Status::INVALID_FIELD.with_dnr()));
    }
    assert!(subsystem.io_view(other).is_some());
}

#[test]
fn resetting_itself_or_a_controller_of_another_host_is_refused() {
    let mut subsystem = subsystem();
    let by = live_controller(&mut subsystem, Instant::now(), 1);
    let own = subsystem.instance(by).unwrap();
    let refused = Err(Status::INVALID_FIELD.with_dnr());
    assert_eq!(reset(&mut subsystem, by, own), refused);
    let mut data = connect_data(CNTLID_ANY);
    data.hostnqn = Nqn::new("nqn.2024-01.com.example:other").unwrap();
    let sqe = connect(0, 15).to_sqe(0, Sgl::NONE);
    let stranger = subsystem.connect(Instant::now(), 1, &command(sqe, &data.emit(), 0)).unwrap();
    let instance = subsystem.instance(stranger.cntlid).unwrap();
    assert_eq!(reset(&mut subsystem, by, instance), refused);
    assert!(subsystem.io_view(stranger.cntlid).is_some());
}
