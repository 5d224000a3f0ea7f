//! The connect sequence: the facts it finds, and the errors that end it.

use monotonic::{Duration, Instant};
use proptest::prelude::*;

use super::admin::{Admin, KATO, TIMEOUT, config};
use super::admin_target::{self, AdminTarget, What};
use crate::host::{
    AdminError, ConfigError, ConnectError, ControllerConfig, ControllerError, ControllerEvent, HostController,
    HostQueue, Namespace, NamespaceError, NamespaceLimits, QueueError, Step, Unsupported,
};
use crate::wire::{
    AnaState, AsyncEventMask, Cns, ConnectField, ControllerInstance, FeatureId, IdentifyNvmController, LogPage,
    PropertyOffset, Status,
};

fn failure(change: impl FnOnce(&mut AdminTarget)) -> ControllerError {
    Admin::with(config(), change).failure()
}

#[test]
fn the_connect_sequence_finds_all_facts() {
    let mut admin = Admin::with(config(), |_| {});
    let info = admin.live();
    let get = |offset| What::Get(offset);
    assert_eq!(
        admin.target.seen,
        [
            What::IcReq,
            What::Connect,
            get(PropertyOffset::CAP),
            get(PropertyOffset::VS),
            What::Set(PropertyOffset::CC),
            get(PropertyOffset::CSTS),
            get(PropertyOffset::CSTS),
            get(PropertyOffset::CSTS),
            What::Identify(Cns::CONTROLLER),
            What::Identify(Cns::CSI_CONTROLLER),
            What::SetFeature(FeatureId::NUMBER_OF_QUEUES),
            What::SetFeature(FeatureId::ASYNC_EVENT_CONFIGURATION),
            What::Event,
            What::Identify(Cns::ACTIVE_LIST),
            What::Identify(Cns::NAMESPACE),
            What::Identify(Cns::DESCRIPTORS),
            What::Log(LogPage::ANA),
        ]
    );
    assert_eq!((info.serial.as_str(), info.model.as_str(), info.firmware.as_str()), ("SN0001", "Test Model", "1.0"));
    let instance = ControllerInstance { cntlid: 5, ciu: 3, cirn: 0x0102_0304_0506_0708 };
    assert_eq!((info.instance(), info.cross_resets), (Some(instance), 1));
    assert_eq!((info.cqt, info.kato, info.tbkas), (Duration::from_millis(250), KATO, false));
    assert_eq!(info.retry_delays.map(Duration::as_millis), [100, 2000, 30_000]);
    assert_eq!((info.max_transfer_bytes, info.in_capsule_bytes), (1 << 20, 8192));
    // The controller grants 4 of 8 queues. MAXCMD allows 64 commands, so a queue has 65 entries.
    assert_eq!((info.io_queues, info.queue_entries), (4, 65));
    assert!(info.volatile_write_cache && info.write_zeroes && info.dataset_management);
    let (namespace, ana) = (admin.only().identity, admin.only().ana);
    assert_eq!((ana, info.anatt), (AnaState::Optimized, Duration::from_secs(10)));
    assert_eq!((namespace.nsid, namespace.blocks, namespace.block_bytes), (1, 4096, 4096));
    assert_eq!((namespace.uuid, namespace.noiob_blocks, namespace.anagrpid), ([1; 16], 32, 1));
    assert!(namespace.shared && namespace.check_multipath().is_ok());
    assert_eq!(admin.target.events, AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE));
    let queue = admin.host.queue_config(2).unwrap();
    assert_eq!((queue.qid, queue.cntlid, queue.entries), (2, 5, 65));
    assert_eq!((queue.max_transfer_bytes, queue.in_capsule_bytes), (1 << 20, 8192));
    let limits = NamespaceLimits { nsid: 1, block_bytes: 4096, namespace_blocks: 4096, noiob_blocks: 32 };
    assert_eq!(queue.namespaces, [Some(limits)]);
    assert!(HostQueue::new(queue).is_ok());
}

#[test]
fn a_controller_without_optional_features_becomes_live() {
    let mut admin = Admin::with(config(), |target| {
        target.identify.cmic = 0;
        target.identify.oaes = 0.into();
        target.identify.mdts = 0;
        target.identify.maxcmd = 0.into();
        target.refuse.push((What::Identify(Cns::DESCRIPTORS), Status::INVALID_FIELD.with_dnr(), 0));
        target.namespaces[0].data.nguid = [4; 16];
    });
    let info = admin.live();
    let Namespace { identity, ana } = admin.only();
    assert_eq!((ana, info.max_transfer_bytes, info.queue_entries), (AnaState::Optimized, 1 << 20, 128));
    assert!(!info.reports_max_transfer);
    assert_eq!((identity.uuid, identity.nguid), ([0; 16], [4; 16]));
    assert_eq!((admin.target.asked(What::Event), admin.target.asked(What::Log(LogPage::ANA))), (0, 0));
    admin.host.reread_ana(admin.now);
    admin.pass(KATO).unwrap();
    assert_eq!((admin.event(), admin.target.asked(What::Log(LogPage::ANA))), (None, 0));
}

#[test]
fn the_transfer_size_is_the_configured_one_within_mdts() {
    for (mdts, set, most) in
        [(0, None, 1 << 20), (0, Some(4 << 20), 4 << 20), (8, Some(4 << 20), 1 << 20), (8, Some(65_536), 65_536)]
    {
        let config = ControllerConfig { max_transfer_bytes: set, ..config() };
        let info = Admin::with(config, |target| target.identify.mdts = mdts).live();
        assert_eq!((info.max_transfer_bytes, info.reports_max_transfer), (most, mdts > 0));
    }
}

#[test]
fn command_limits_are_read_if_the_controller_reports_them() {
    let limits = |change: &dyn Fn(&mut AdminTarget)| {
        let mut admin = Admin::with(config(), |target| {
            target.limits.wzsl = 3;
            target.limits.dmrsl = 700.into();
            target.limits.dmsl = 800.into();
            change(target);
        });
        let limits = admin.live().command_limits;
        assert_eq!(admin.host.queue_config(1).unwrap().command_limits, limits);
        (
            limits.max_write_zeroes_bytes,
            limits.max_deallocate_blocks,
            admin.target.asked(What::Identify(Cns::CSI_CONTROLLER)),
        )
    };
    assert_eq!(limits(&|_| {}), (32_768, 700, 1));
    assert_eq!(limits(&|target| target.limits.dmrsl = 0.into()), (32_768, 800, 1));
    assert_eq!(limits(&|target| target.limits = IdentifyNvmController::blank()), (u64::MAX, u32::MAX, 1));
    let refuse = (What::Identify(Cns::CSI_CONTROLLER), Status::INVALID_FIELD.with_dnr(), 0);
    assert_eq!(limits(&|target| target.refuse.push(refuse)), (u64::MAX, u32::MAX, 1));
    assert_eq!(limits(&|target| target.identify.oncs = 0.into()), (u64::MAX, u32::MAX, 0));
}

#[test]
fn every_step_has_a_time_limit() {
    let steps = [
        (What::IcReq, Step::Connect),
        (What::Connect, Step::Connect),
        (What::Get(PropertyOffset::CAP), Step::Capabilities),
        (What::Get(PropertyOffset::VS), Step::Version),
        (What::Set(PropertyOffset::CC), Step::Enable),
        (What::Get(PropertyOffset::CSTS), Step::Ready),
        (What::Identify(Cns::CONTROLLER), Step::IdentifyController),
        (What::Identify(Cns::CSI_CONTROLLER), Step::CommandLimits),
        (What::SetFeature(FeatureId::NUMBER_OF_QUEUES), Step::NumberOfQueues),
        (What::Identify(Cns::ACTIVE_LIST), Step::ActiveNamespaces),
        (What::Identify(Cns::NAMESPACE), Step::IdentifyNamespace),
        (What::Identify(Cns::DESCRIPTORS), Step::NamespaceDescriptors),
        (What::SetFeature(FeatureId::ASYNC_EVENT_CONFIGURATION), Step::AsyncEventConfiguration),
        (What::Log(LogPage::ANA), Step::AnaLog),
    ];
    for (what, step) in steps {
        let error = failure(|target| target.mute.push(what));
        assert_eq!(error, AdminError::Timeout { step, after: TIMEOUT }.into());
        // Some steps may fail.
        if !matches!(step, Step::Connect | Step::CommandLimits | Step::AsyncEventConfiguration) {
            let error = failure(|target| target.refuse.push((what, Status::INTERNAL_ERROR, 0)));
            let status = Status::INTERNAL_ERROR;
            let expected = match step {
                Step::IdentifyNamespace | Step::NamespaceDescriptors => NamespaceError::Command { step, status }.into(),
                _ => AdminError::Command { step, status }.into(),
            };
            assert_eq!(error, expected);
            assert_eq!(error.to_string(), format!("{step} failed: {status}"));
        }
    }
    let never = failure(|target| target.slow = u32::MAX);
    assert_eq!(never, AdminError::Timeout { step: Step::Ready, after: TIMEOUT }.into());
    assert_eq!(never.to_string(), "no answer within 6s: waiting for CSTS.RDY");
    assert_eq!(failure(|target| target.fatal = true), AdminError::FatalStatus.into());
}

#[test]
fn the_error_of_a_wrong_nqn_names_the_field() {
    let (status, result) = ConnectField::Subnqn.invalid();
    let error = failure(|target| target.refuse.push((What::Connect, status, result)));
    let expected = ConnectError::InvalidParameters { field: ConnectField::Subnqn };
    assert_eq!(error, AdminError::Queue(QueueError::Connect(expected)).into());
    assert_eq!(
        error.to_string(),
        "Connect rejected: Connect Invalid Parameters (SUBNQN): the target has no subsystem of this NQN"
    );
}

#[test]
fn without_configured_namespace_there_must_be_exactly_one() {
    let several = |target: &mut AdminTarget| target.namespaces = [2, 7, 9].map(admin_target::Namespace::new).into();
    let error = failure(several);
    assert_eq!(error, ControllerError::NamespaceChoice { available: vec![2, 7, 9] });
    assert_eq!(error.to_string(), "several namespaces are active; set `namespace` to one of: 2, 7, 9");
    let error = failure(|target| target.namespaces.clear());
    assert_eq!(error.to_string(), "the subsystem has no active namespace for this host");
    let only = |nsid, change: &dyn Fn(&mut AdminTarget)| {
        let mut admin = Admin::with(ControllerConfig { nsids: vec![nsid], ..config() }, change);
        admin.live();
        admin.only().identity
    };
    assert_eq!(only(7, &several).uuid, [7; 16]);
    let three = ControllerConfig { nsids: vec![3], ..config() };
    let error = Admin::with(three.clone(), several).failure();
    assert_eq!(error, NamespaceError::Missing { nsid: 3, available: vec![2, 7, 9] }.into());
    assert_eq!(
        error.to_string(),
        "`namespace` 3 is not active on the controller; active: 2, 7, 9; enable or attach it on the target, or correct `namespace`"
    );
    // A list that fills more than one page.
    let many = |target: &mut AdminTarget| target.namespaces = (1..=1500).map(admin_target::Namespace::new).collect();
    assert_eq!(only(1400, &many).nsid, 1400);
    let mut never = Admin::with(ControllerConfig { nsids: vec![1501], ..config() }, many);
    let error = never.failure();
    assert_eq!(never.target.asked(What::Identify(Cns::ACTIVE_LIST)), 2);
    let first: Vec<_> = (1..=16).map(|nsid| nsid.to_string()).collect();
    let message = format!("`namespace` 1501 is not active on the controller; active: {}, …; ", first.join(", "));
    assert!(error.to_string().starts_with(&message), "{error}");
}

#[test]
fn unsupported_controllers_and_namespaces_are_refused() {
    let unsupported = |change: &dyn Fn(&mut AdminTarget), expected| {
        assert_eq!(failure(change), ControllerError::Unsupported(expected));
    };
    unsupported(&|target| target.identify.sgls = 0.into(), Unsupported::Sgls);
    unsupported(&|target| target.identify.kas = 0.into(), Unsupported::KeepAlive);
    unsupported(&|target| target.identify.icdoff = 1.into(), Unsupported::InCapsuleOffset(1));
    unsupported(&|target| target.identify.ioccsz = 3.into(), Unsupported::CapsuleSize(3));
    unsupported(&|target| target.cap.0 &= !0xffff, Unsupported::QueueEntries(1));
    let unusable = |change: &dyn Fn(&mut AdminTarget), expected| {
        assert_eq!(failure(change), ControllerError::Namespace(expected));
    };
    unusable(&|target| target.namespaces[0].data.lbaf[0].ms = 8.into(), NamespaceError::Metadata(8));
    unusable(&|target| target.namespaces[0].data.lbaf[0].lbads = 0, NamespaceError::BlockSize(0));
    unusable(&|target| target.namespaces[0].descriptors.csi = Some(2), NamespaceError::CommandSet(2));
    let transfer = NamespaceError::TransferSize { max_transfer_bytes: 8192, block_bytes: 65536 };
    let small = |target: &mut AdminTarget| {
        (target.identify.mdts, target.namespaces[0].data.lbaf[0].lbads) = (1, 16);
    };
    unusable(&small, transfer);
    let got = "nqn.other".to_owned();
    let other = failure(|target| target.identify.subnqn[..10].copy_from_slice(b"nqn.other\0"));
    assert_eq!(other, AdminError::WrongSubsystem { got }.into());
    let wrong = ConnectError::WrongController { wanted: 5, got: 6 };
    assert_eq!(failure(|target| target.identify.cntlid = 6.into()), AdminError::Queue(wrong.into()).into());
}

#[test]
fn invalid_configurations_are_refused() {
    let check = |config| HostController::new(config, Instant::now()).err();
    assert_eq!(check(ControllerConfig { keep_alive_tmo: Duration::ZERO, ..config() }), Some(ConfigError::KeepAlive));
    assert_eq!(check(ControllerConfig { keep_alive_tmo: Duration::MAX, ..config() }), Some(ConfigError::KeepAlive));
    assert_eq!(check(ControllerConfig { io_queues: 0, ..config() }), Some(ConfigError::NoIoQueue));
    assert_eq!(check(ControllerConfig { queue_entries: 1, ..config() }), Some(ConfigError::Entries(1)));
    let nsids = |nsids: &[u32]| ControllerConfig { nsids: nsids.to_vec(), ..config() };
    assert_eq!((check(nsids(&[2, 1, 3])), check(nsids(&[]))), (None, None));
    assert_eq!(check(nsids(&[7, 2, 9, 7])), Some(ConfigError::NamespaceTwice(7)));
}

proptest! {
    /// With any answers, the association becomes live or ends with an error.
    #[test]
    fn any_answers_lead_to_live_or_an_error(
        controller in proptest::collection::vec((0usize..2048, any::<u8>()), 0..40),
        namespace in proptest::collection::vec((0usize..384, any::<u8>()), 0..40),
        granted: u32,
        cap: u64,
    ) {
        use zerocopy::IntoBytes;
        let mut admin = Admin::with(config(), |target| {
            for (at, byte) in controller {
                // A wrong SUBNQN or CNTLID would only end the sequence early.
                if !(768..1024).contains(&at) && !(78..80).contains(&at) {
                    target.identify.as_mut_bytes()[at] = byte;
                }
            }
            for (at, byte) in namespace {
                target.namespaces[0].data.as_mut_bytes()[at] = byte;
            }
            target.granted = crate::wire::NumberOfQueues::from_value(granted);
            target.cap.0 = cap;
        });
        if admin.pass(Duration::from_secs(1)).is_ok()
            && let Some(ControllerEvent::Live(info)) = admin.event()
        {
            prop_assert!((1..=8).contains(&info.io_queues));
            prop_assert!(HostQueue::new(admin.host.queue_config(1).unwrap()).is_ok(), "{:?}", info);
        }
    }

    /// Damaged answers lead to an error or to other facts, and never to a panic.
    #[test]
    fn damaged_answers_are_survived(at in 0usize..30_000, bit in 0u8..8) {
        let mut admin = Admin::with(config(), |_| {});
        let mut received = 0;
        for _ in 0..40 {
            let mut bytes = Vec::new();
            admin.host.fill_tx(&mut bytes);
            admin.target.receive(&bytes);
            let mut answer = std::mem::take(&mut admin.target.out);
            if let Some(byte) = at.checked_sub(received).and_then(|index| answer.get_mut(index)) {
                *byte ^= 1 << bit;
            }
            received += answer.len();
            if admin.host.receive(admin.now, &answer).is_err() {
                break;
            }
            admin.now += Duration::from_millis(20);
            if admin.host.handle_timeout(admin.now).is_err() {
                break;
            }
        }
    }
}
