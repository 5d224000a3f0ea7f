//! Several namespaces of one association, each with its own errors and events.

mod ana;
mod any_changes;
mod requests;

use monotonic::Duration;

use super::admin::{Admin, config};
use super::admin_target::{AdminTarget, What};
use crate::host::{ControllerConfig, ControllerEvent, HostQueue, Namespace, NamespaceError, Step};
use crate::wire::{AnaState, AsyncEvent, Cns, LogPage, Status};

const SECOND: Duration = Duration::from_secs(1);

fn wanted(nsids: &[u32]) -> ControllerConfig {
    ControllerConfig { nsids: nsids.to_vec(), ..config() }
}

/// A target with these namespaces, of different sizes, all in ANA group 1.
fn with(nsids: &[u32]) -> impl Fn(&mut AdminTarget) {
    move |target| {
        target.namespaces.clear();
        for &nsid in nsids {
            target.namespace(nsid).data.nsze = (1000 * u64::from(nsid)).into();
        }
        if let [only] = &mut target.ana.groups[..] {
            only.nsids = nsids.to_vec();
        }
    }
}

/// The next events: the position, and the blocks or the error or the ANA state.
fn short_events(admin: &mut Admin) -> Vec<(usize, Result<ShortEvent, NamespaceError>)> {
    let short = |event| match event {
        ControllerEvent::AnaChanged { namespace, state } => (namespace, Ok(ShortEvent::Ana(state))),
        ControllerEvent::NamespaceChanged { namespace, identity } => {
            (namespace, identity.map(|identity| ShortEvent::Blocks(identity.blocks)))
        }
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| admin.event()).map(short).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ShortEvent {
    Blocks(u64),
    Ana(AnaState),
}

fn namespaces_changed(admin: &mut Admin) {
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    admin.pass(SECOND / 10).unwrap();
}

fn missing(nsid: u32, available: &[u32]) -> NamespaceError {
    NamespaceError::Missing { nsid, available: available.to_vec() }
}

const OPTIMIZED: Result<ShortEvent, NamespaceError> = Ok(ShortEvent::Ana(AnaState::Optimized));

/// The namespaces in the configuration of I/O queues: NSID and blocks.
fn limits(admin: &Admin) -> Vec<Option<(u32, u64)>> {
    let queue = admin.host.queue_config(1).unwrap();
    assert!(HostQueue::new(queue.clone()).is_ok());
    let limits = queue.namespaces.into_iter();
    limits.map(|namespace| namespace.map(|limits| (limits.nsid, limits.namespace_blocks))).collect()
}

#[test]
fn all_namespaces_are_found_in_the_configured_order() {
    let mut admin = Admin::with(wanted(&[9, 2, 7]), |target| {
        with(&[2, 5, 7, 9])(target);
        let two = &mut target.namespace(2).data;
        (two.lbaf[0].lbads, two.noiob) = (9, 8.into());
        target.set_ana(&[(1, AnaState::Optimized, &[2]), (4, AnaState::NonOptimized, &[5, 7, 9])]);
    });
    let info = admin.live();
    let found: Vec<Namespace> = info.namespaces.into_iter().map(Result::unwrap).collect();
    let short = |namespace: &Namespace| (namespace.identity.nsid, namespace.identity.uuid[0], namespace.ana);
    let (optimized, other) = (AnaState::Optimized, AnaState::NonOptimized);
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), [(9, 9, other), (2, 2, optimized), (7, 7, other)]);
    assert_eq!(limits(&admin), [Some((9, 9000)), Some((2, 2000)), Some((7, 7000))]);
    let queue = admin.host.queue_config(1).unwrap();
    let blocks: Vec<_> = queue.namespaces.iter().flatten().map(|it| (it.block_bytes, it.noiob_blocks)).collect();
    assert_eq!(blocks, [(4096, 32), (512, 8), (4096, 32)]);
    assert_eq!(admin.target.identified, [9, 2, 7]);
    let asked = |what| admin.target.asked(what);
    assert_eq!((asked(What::Identify(Cns::ACTIVE_LIST)), asked(What::Identify(Cns::DESCRIPTORS))), (1, 3));
    assert_eq!(asked(What::Log(LogPage::ANA)), 1, "one log has the states of all");
}

#[test]
fn a_missing_namespace_does_not_affect_the_others() {
    let mut admin = Admin::with(wanted(&[3, 2, 8]), with(&[2, 8]));
    let info = admin.live();
    assert_eq!(info.namespaces[0], Err(missing(3, &[2, 8])));
    assert_eq!(limits(&admin), [None, Some((2, 2000)), Some((8, 8000))]);
    assert_eq!(admin.target.identified, [2, 8], "inactive namespaces are not identified");
    assert_eq!(short_events(&mut admin), []);
}

/// Information from the connect sequence may be outdated when the association becomes live.
#[test]
fn a_change_during_the_identification_is_reported() {
    let steps = [Cns::ACTIVE_LIST, Cns::NAMESPACE, Cns::DESCRIPTORS].map(What::Identify);
    for after in steps.into_iter().chain([What::Log(LogPage::ANA)]) {
        let mut admin = Admin::with(wanted(&[1, 2]), |target| {
            with(&[1, 2])(target);
            target.then = Some((after, |target| {
                target.namespace(1).data.nsze = 7.into();
                target.report(AsyncEvent::NAMESPACE_CHANGED);
            }));
        });
        admin.live();
        assert!(short_events(&mut admin).contains(&(0, Ok(ShortEvent::Blocks(7)))), "after {after:?}");
        assert_eq!(limits(&admin), [Some((1, 7)), Some((2, 2000))]);
    }
}

#[test]
fn if_all_are_missing_the_error_names_the_first() {
    let mut admin = Admin::with(wanted(&[5, 3, 4]), with(&[1, 2]));
    assert_eq!(admin.failure(), missing(5, &[1, 2]).into());
    // The first configured namespace, and not the first one whose error was found.
    let mut admin = Admin::with(wanted(&[2, 3]), |target| {
        with(&[2])(target);
        target.namespace(2).data.lbaf[0].ms = 8.into();
    });
    assert_eq!(admin.failure(), NamespaceError::Metadata(8).into());
}

#[test]
fn a_long_list_is_read_until_all_namespaces_are_found() {
    let all: Vec<u32> = (1..=2500).collect();
    for (nsids, pages) in [(&[1024, 7][..], 1), (&[2048, 3, 1025], 2), (&[2, 2500], 3), (&[2, 2501], 3)] {
        let mut admin = Admin::with(wanted(nsids), with(&all));
        let info = admin.live();
        assert_eq!(admin.target.asked(What::Identify(Cns::ACTIVE_LIST)), pages, "{nsids:?}");
        for (namespace, &nsid) in info.namespaces.iter().zip(nsids) {
            let found = namespace.as_ref().map(|namespace| namespace.identity.nsid);
            assert!(if nsid == 2501 { found.is_err() } else { found == Ok(nsid) }, "{found:?}");
        }
    }
}

type Change<'a> = &'a dyn Fn(&mut AdminTarget);

#[test]
fn an_unusable_namespace_does_not_affect_the_others() {
    let command = |step| NamespaceError::Command { step, status: Status::INTERNAL_ERROR };
    let cases: [(Change, NamespaceError); 8] = [
        (&|target| target.namespace(2).data.lbaf[0].ms = 8.into(), NamespaceError::Metadata(8)),
        (&|target| target.namespace(2).data.lbaf[0].lbads = 8, NamespaceError::BlockSize(8)),
        (&|target| target.namespace(2).descriptors.csi = Some(2), NamespaceError::CommandSet(2)),
        (
            &|target| (target.identify.mdts, target.namespace(2).data.lbaf[0].lbads) = (1, 16),
            NamespaceError::TransferSize { max_transfer_bytes: 8192, block_bytes: 65536 },
        ),
        (
            &|target| target.namespace(2).refuse = Some((Cns::NAMESPACE, Status::INTERNAL_ERROR)),
            command(Step::IdentifyNamespace),
        ),
        (
            &|target| target.namespace(2).refuse = Some((Cns::DESCRIPTORS, Status::INTERNAL_ERROR)),
            command(Step::NamespaceDescriptors),
        ),
        // The namespace vanishes after it was listed, or between its two Identify commands.
        (&|target| target.namespace(2).data.nsze = 0.into(), missing(2, &[1, 3])),
        (
            &|target| target.namespace(2).refuse = Some((Cns::DESCRIPTORS, Status::INVALID_NAMESPACE.with_dnr())),
            missing(2, &[1, 3]),
        ),
    ];
    for (change, error) in cases {
        let mut admin = Admin::with(wanted(&[1, 2, 3]), |target| {
            with(&[1, 2, 3])(target);
            change(target);
        });
        assert_eq!(admin.live().namespaces[1], Err(error.clone()));
        assert_eq!(limits(&admin), [Some((1, 1000)), None, Some((3, 3000))], "{error}");
        // Once the cause is gone, the namespace is usable.
        with(&[1, 2, 3])(&mut admin.target);
        namespaces_changed(&mut admin);
        assert_eq!(limits(&admin)[1], Some((2, 2000)));
    }
}

/// The list of descriptors is refused once. A namespace without a name would be taken for another one.
#[test]
fn a_refused_list_of_descriptors_makes_no_nameless_namespace() {
    let refuse = |target: &mut AdminTarget| {
        target.namespace(2).refuse = Some((Cns::DESCRIPTORS, Status::INVALID_FIELD.with_dnr()));
    };
    let mut admin = Admin::with(wanted(&[1, 2]), |target| {
        with(&[1, 2])(target);
        refuse(target);
    });
    let status = Status::INVALID_FIELD.with_dnr();
    let error = NamespaceError::Command { step: Step::NamespaceDescriptors, status };
    assert_eq!(admin.live().namespaces[1], Err(error));
    admin.target.namespace(2).refuse = None;
    admin.host.reread_namespaces(admin.now);
    admin.pass(SECOND / 10).unwrap();
    assert_eq!(limits(&admin)[1], Some((2, 2000)));
    // Identify Namespace has a name too.
    refuse(&mut admin.target);
    admin.target.namespace(2).data.nguid = [7; 16];
    namespaces_changed(&mut admin);
    let found = admin.host.info().unwrap().namespaces[1].clone().unwrap().identity;
    assert_eq!((found.uuid, found.nguid), ([0; 16], [7; 16]));
}

/// A namespace vanishes and returns without an event. A refused command tells.
#[test]
fn namespaces_are_identified_again_on_request() {
    let mut admin = Admin::with(wanted(&[1, 2]), with(&[1, 2]));
    admin.live();
    for (nsids, found) in [(&[1][..], None), (&[1, 2], Some((2, 2000)))] {
        with(nsids)(&mut admin.target);
        // The second request comes while the first is under way.
        for _ in 0..2 {
            admin.host.reread_namespaces(admin.now);
            admin.exchange().unwrap();
        }
        admin.pass(SECOND / 1000).unwrap();
        assert_eq!(limits(&admin), [Some((1, 1000)), found]);
    }
    assert_eq!(admin.target.asked(What::Log(LogPage::CHANGED_NAMESPACES)), 0, "a controller may not have this log");
}

#[test]
fn a_namespace_that_vanishes_and_returns_is_reported() {
    let mut admin = Admin::with(wanted(&[1, 2, 4]), with(&[1, 2, 4]));
    admin.live();
    for gone in [2, 1] {
        let position = usize::from(gone == 2);
        admin.target.namespaces.retain(|namespace| namespace.nsid != gone);
        admin.target.identified.clear();
        namespaces_changed(&mut admin);
        assert_eq!(admin.target.identified, [1, 2, 4], "all are identified again");
        let others: Vec<u32> = [1, 2, 4].into_iter().filter(|&nsid| nsid != gone).collect();
        let there =
            |position| [(position, Ok(ShortEvent::Blocks([1000, 2000, 4000][position]))), (position, OPTIMIZED)];
        let mut reported: Vec<_> = (0..3).flat_map(there).collect();
        reported.splice(2 * position..2 * position + 2, [(position, Err(missing(gone, &others)))]);
        assert_eq!(short_events(&mut admin), reported);
        assert_eq!(limits(&admin)[position], None);
        // The namespace returns with another size.
        admin.target.namespace(gone).data.nsze = 77.into();
        namespaces_changed(&mut admin);
        let reported = short_events(&mut admin);
        let of = |reported: &(usize, _)| reported.0 == position;
        let back = [(position, Ok(ShortEvent::Blocks(77))), (position, OPTIMIZED)];
        assert_eq!(reported.iter().filter(|reported| of(reported)).cloned().collect::<Vec<_>>(), back);
        assert_eq!((reported.len(), limits(&admin)[position]), (6, Some((gone, 77))));
        admin.target.namespace(gone).data.nsze = (1000 * u64::from(gone)).into();
        namespaces_changed(&mut admin);
        short_events(&mut admin);
    }
}

#[test]
fn the_association_ends_with_its_last_usable_namespace() {
    let mut admin = Admin::with(wanted(&[1, 2, 3]), with(&[2, 3]));
    admin.live();
    admin.target.namespaces.retain(|namespace| namespace.nsid != 2);
    namespaces_changed(&mut admin);
    assert_eq!(short_events(&mut admin).len(), 4);
    admin.target.namespaces.clear();
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    // The error is that of the namespace that has vanished, and not of one that never existed.
    assert_eq!(admin.failure(), missing(3, &[2]).into());
}

#[test]
fn the_association_stays_if_another_namespace_becomes_usable() {
    let mut admin = Admin::with(wanted(&[1, 2]), with(&[1]));
    assert_eq!(admin.live().namespaces[1], Err(missing(2, &[1])));
    with(&[2])(&mut admin.target);
    namespaces_changed(&mut admin);
    assert_eq!(
        short_events(&mut admin),
        [(0, Err(missing(1, &[]))), (1, Ok(ShortEvent::Blocks(2000))), (1, OPTIMIZED)]
    );
    assert_eq!(limits(&admin), [None, Some((2, 2000))]);
}

/// An association whose host has just sent the first command of an identification.
fn identifying() -> Admin {
    let mut admin = Admin::with(wanted(&[1, 2]), |target| {
        with(&[1, 2])(target);
        target.slow = 0;
    });
    admin.live();
    admin.target.identified.clear();
    admin.target.seen.clear();
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    while admin.target.identified.is_empty() {
        let answer = std::mem::take(&mut admin.target.out);
        admin.host.receive(admin.now, &answer).unwrap();
        let mut bytes = Vec::new();
        admin.host.fill_tx(&mut bytes);
        admin.target.receive(&bytes);
    }
    admin
}

#[test]
fn an_event_during_an_identification_leads_to_another_one() {
    let mut admin = identifying();
    namespaces_changed(&mut admin);
    assert_eq!(admin.target.identified, [1, 2, 1, 2]);
    assert_eq!((short_events(&mut admin).len(), admin.target.asked(What::Log(LogPage::ANA))), (8, 2));
}

#[test]
fn the_log_after_an_identification_covers_an_ana_event_during_it() {
    let mut admin = identifying();
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND).unwrap();
    assert_eq!((short_events(&mut admin).len(), admin.target.asked(What::Log(LogPage::ANA))), (4, 1));
}

#[test]
fn without_ana_all_namespaces_are_optimized() {
    let mut admin = Admin::with(wanted(&[1, 2]), |target| {
        with(&[1])(target);
        target.identify.cmic = 0;
    });
    let info = admin.live();
    assert_eq!(info.namespaces[0].as_ref().map(|namespace| namespace.ana), Ok(AnaState::Optimized));
    with(&[1, 2])(&mut admin.target);
    namespaces_changed(&mut admin);
    // There is no log to read, but a new namespace leads to an event with its state.
    assert_eq!(
        short_events(&mut admin),
        [(0, Ok(ShortEvent::Blocks(1000))), (1, Ok(ShortEvent::Blocks(2000))), (1, OPTIMIZED)]
    );
    assert_eq!(admin.target.asked(What::Log(LogPage::ANA)), 0);
}

#[test]
fn a_shutdown_ends_an_identification() {
    let mut admin = identifying();
    admin.host.shutdown(admin.now);
    admin.pass(SECOND).unwrap();
    assert_eq!((admin.event(), admin.event()), (Some(ControllerEvent::ShutdownComplete), None));
    assert_eq!(admin.target.identified, [1]);
}
