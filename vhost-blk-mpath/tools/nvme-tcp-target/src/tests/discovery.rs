//! The discovery subsystem.

use monotonic::Instant;
use nvme_tcp::wire::{
    AddressFamily, AdminCommand, AsyncEvent, AsyncEventMask, CNTLID_ANY as DYNAMIC, Cns, ConnectField,
    ControllerConfiguration, DISCOVERY_ENTRY_BYTES, DiscoveryEntry, DiscoveryHeader, FeatureId, IdentifyController,
    LogPage, Nqn, PropertyOffset, SecurityType, Sgl, Status, SubsystemType, TransportType,
};

use super::{
    CNTLID_ANY, KATO, admin, admin_data, command, connect, connect_data, fabrics, identify, log, set_feature,
    set_property,
};
use crate::{QueueLimits, Subsystem};

pub(super) fn entry(port_id: u16) -> DiscoveryEntry {
    DiscoveryEntry {
        transport: TransportType::TCP,
        family: AddressFamily::IPV4,
        subsystem: SubsystemType::NVM,
        treq: DiscoveryEntry::TREQ_NOT_REQUIRED,
        port_id,
        cntlid: DYNAMIC,
        admin_queue_entries: 32,
        eflags: 0,
        trsvcid: "4420".into(),
        subnqn: super::nqn(),
        traddr: "192.0.2.1".into(),
        security: SecurityType::NONE,
    }
}

/// A discovery subsystem with a live controller.
fn discovery() -> (Subsystem, u16) {
    let mut subsystem = Subsystem::discovery("0123456789".into(), QueueLimits::default(), 1);
    let mut data = connect_data(CNTLID_ANY);
    data.subnqn = Nqn::discovery();
    let now = Instant::now();
    let sqe = connect(0, 31).to_sqe(0, Sgl::NONE);
    let cntlid = subsystem.connect(now, 1, &command(sqe, &data.emit(), 0)).unwrap().cntlid;
    let enable = set_property(PropertyOffset::CC, ControllerConfiguration::ENABLED.0);
    fabrics(&mut subsystem, now, cntlid, enable).unwrap();
    (subsystem, cntlid)
}

#[test]
fn a_discovery_controller_has_only_discovery_features() {
    let (mut subsystem, cntlid) = discovery();
    let data = admin_data(&mut subsystem, cntlid, identify(Cns::CONTROLLER, 0), 4096).unwrap();
    let controller = IdentifyController::parse(&data).unwrap();
    assert_eq!((controller.cntrltype, controller.cmic, controller.nn.get(), controller.anacap), (2, 0, 0, 0));
    assert_eq!(controller.subnqn(), Ok(Nqn::discovery()));
    assert_eq!(controller.oaes.get(), AsyncEventMask::DISCOVERY_CHANGE.0);
    assert_eq!(controller.lpa, IdentifyController::LPA_EXTENDED);
    assert!(controller.kas.get() > 0 && subsystem.next_timeout(cntlid).is_some());
    for cns in [Cns::NAMESPACE, Cns::ACTIVE_LIST, Cns::DESCRIPTORS, Cns::CSI_CONTROLLER] {
        let refused = admin_data(&mut subsystem, cntlid, identify(cns, 1), 4096);
        assert_eq!(refused, Err(Status::INVALID_FIELD.with_dnr()));
    }
    for lid in [LogPage::ANA, LogPage::SMART, LogPage::CHANGED_NAMESPACES] {
        assert_eq!(admin_data(&mut subsystem, cntlid, log(lid, 64, 0), 64), Err(Status::INVALID_LOG_PAGE.with_dnr()));
    }
    for feature in [FeatureId::NUMBER_OF_QUEUES, FeatureId::VOLATILE_WRITE_CACHE, FeatureId::HOST_BEHAVIOR] {
        let refused = admin(&mut subsystem, Instant::now(), cntlid, set_feature(feature, 1));
        assert_eq!(refused, Err(Status::INVALID_FIELD.with_dnr()));
    }
    let mut data = connect_data(cntlid);
    data.subnqn = Nqn::discovery();
    let sqe = connect(1, 15).to_sqe(0, Sgl::NONE);
    let io = subsystem.connect(Instant::now(), 1, &command(sqe, &data.emit(), 0));
    assert_eq!(io, Err(ConnectField::Qid.invalid()));
    // The controller expires without keep-alives.
    assert_eq!(admin(&mut subsystem, Instant::now() + KATO, cntlid, AdminCommand::KeepAlive), Ok(0));
}

#[test]
fn a_changed_list_increases_the_generation_and_notifies_hosts() {
    let (mut subsystem, cntlid) = discovery();
    let now = Instant::now();
    let mask = AsyncEventMask::DISCOVERY_CHANGE.0;
    admin(&mut subsystem, now, cntlid, set_feature(FeatureId::ASYNC_EVENT_CONFIGURATION, mask)).unwrap();
    admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest).unwrap();
    assert_eq!(subsystem.discovery_generation(), Some(0));
    let entries = vec![entry(1), entry(2)];
    subsystem.set_discovery_entries(entries.clone());
    subsystem.set_discovery_entries(entries.clone());
    assert_eq!(subsystem.discovery_generation(), Some(1));
    let (_, _, event) = subsystem.poll_event(cntlid).unwrap();
    assert_eq!(event, AsyncEvent::DISCOVERY_CHANGED.to_dw0().into());

    let data = admin_data(&mut subsystem, cntlid, log(LogPage::DISCOVERY, 1024, 0), 1024).unwrap();
    assert_eq!(DiscoveryHeader::parse(&data), Ok(DiscoveryHeader { generation: 1, records: 2 }));
    let data = admin_data(&mut subsystem, cntlid, log(LogPage::DISCOVERY, 2048, 1024), 2048).unwrap();
    let (records, _) = data.as_chunks::<DISCOVERY_ENTRY_BYTES>();
    assert_eq!(records.iter().map(DiscoveryEntry::parse).collect::<Result<Vec<_>, _>>().unwrap(), entries);

    admin(&mut subsystem, now, cntlid, AdminCommand::AsyncEventRequest).unwrap();
    assert!(subsystem.poll_event(cntlid).is_none());
    subsystem.set_discovery_entries(entries[..1].to_vec());
    assert!(subsystem.poll_event(cntlid).is_some());
    assert_eq!(subsystem.discovery_generation(), Some(2));
}

#[test]
fn other_subsystems_have_no_discovery_log() {
    let mut subsystem = super::subsystem();
    subsystem.set_discovery_entries(vec![entry(1)]);
    assert_eq!(subsystem.discovery_generation(), None);
}
