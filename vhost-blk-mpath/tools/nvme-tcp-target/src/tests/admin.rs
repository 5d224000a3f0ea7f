//! Admin commands and keep-alive.

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{
    ActiveList, AdminCommand, AsyncEventMask, Cns, ConnectField, FeatureId, IdentifyController, IdentifyNamespace,
    LogPage, NamespaceDescriptors, NumberOfQueues, Sgl, Status,
};

use super::{
    ENTRIES, KATO, admin, admin_data, command, connect_data, identify, live_controller, log, nqn, set_feature,
    subsystem, try_connect,
};
use crate::{AdminReply, Subsystem};

#[test]
fn identify_data_satisfy_a_linux_host() {
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
    // Bits 0–4: all states; bit 6: ANAGRPID does not change.
    assert_eq!(identify.anacap, 0b0101_1111);
    assert!(identify.crdt.iter().all(|delay| delay.get() > 0));
    let events = AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE);
    assert_eq!((identify.oaes.get(), identify.aerl), (events.0, 3));
    assert!(identify.anatt > 0 && identify.kas.get() > 0 && identify.cqt.get() > 0);
    assert_eq!(identify.sgls.get() & 3, 1);
    assert_eq!(identify.vwc & 1, 1);
    assert_eq!(identify.oncs.get(), 0b1100);
}

#[test]
fn namespaces_are_identical_on_all_ports() {
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
fn queues_are_granted_up_to_the_limit_and_only_before_use() {
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
fn host_behavior_support_enables_retry_delays() {
    let mut subsystem = subsystem();
    let now = Instant::now();
    let cntlid = live_controller(&mut subsystem, now, 1);
    let fid = FeatureId::HOST_BEHAVIOR;
    let set = |subsystem: &mut Subsystem, data: &[u8]| {
        let sqe = set_feature(fid, 0).to_sqe(1, Sgl::InCapsule { offset: 0, length: data.len() as u32 });
        match subsystem.admin(now, cntlid, command(sqe, data, 0)) {
            AdminReply::Done { status, .. } => status,
            reply => panic!("{reply:?}"),
        }
    };
    let mut data = [0; 512];
    data[0] = 1;
    assert_eq!(set(&mut subsystem, &data), Status::SUCCESS);
    assert_eq!(set(&mut subsystem, &data[..1]), Status::DATA_SGL_LENGTH_INVALID.with_dnr());
    let get = AdminCommand::GetFeatures { fid, sel: 0, nsid: 0 };
    assert_eq!(admin_data(&mut subsystem, cntlid, get, 512).unwrap(), data);
}

#[test]
fn a_controller_expires_after_kato_without_keep_alive() {
    let mut subsystem = subsystem();
    let start = Instant::now();
    let cntlid = live_controller(&mut subsystem, start, 1);
    assert_eq!(subsystem.next_timeout(cntlid), Some(start + KATO));
    assert!(!subsystem.is_expired(cntlid, start + KATO.mul_f64(0.999)));
    assert!(subsystem.is_expired(cntlid, start + KATO));
    let later = start + KATO / 2;
    assert_eq!(admin(&mut subsystem, later, cntlid, AdminCommand::KeepAlive), Ok(0));
    assert_eq!(subsystem.next_timeout(cntlid), Some(later + KATO));
    // Without TBKAS, other commands do not restart the timer.
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
