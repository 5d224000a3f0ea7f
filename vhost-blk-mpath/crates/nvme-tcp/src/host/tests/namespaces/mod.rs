//! Several namespaces of one association: each is found, lost and told of by itself.

mod ana;
mod any_changes;
mod requests;

use std::time::Duration;

use super::admin::{Admin, config};
use super::admin_target::{AdminTarget, What};
use crate::host::{ControllerConfig, ControllerEvent, HostQueue, Namespace, NamespaceError, Step};
use crate::wire::{AnaState, AsyncEvent, Cns, LogPage, Status};

const SECOND: Duration = Duration::from_secs(1);

fn wanted(nsids: &[u32]) -> ControllerConfig {
    ControllerConfig { nsids: nsids.to_vec(), ..config() }
}

/// A target that has these namespaces, which differ in size, all of them in ANA group 1.
fn with(nsids: &[u32]) -> impl Fn(&mut AdminTarget) {
    move |target| {
        target.namespaces.clear();
        for &nsid in nsids {
            target.namespace(nsid).data.nsze = (1000 * u64::from(nsid)).into();
        }
    }
}

/// The next events in short: position, and the blocks or why there is none, or the ANA state.
fn news(admin: &mut Admin) -> Vec<(usize, Result<News, NamespaceError>)> {
    let short = |event| match event {
        ControllerEvent::AnaChanged { namespace, state } => (namespace, Ok(News::Ana(state))),
        ControllerEvent::NamespaceChanged { namespace, identity } => {
            (namespace, identity.map(|identity| News::Blocks(identity.blocks)))
        }
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| admin.event()).map(short).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum News {
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

const OPTIMIZED: Result<News, NamespaceError> = Ok(News::Ana(AnaState::Optimized));

/// What the I/O queues are told: NSID and blocks of each.
fn limits(admin: &Admin) -> Vec<Option<(u32, u64)>> {
    let queue = admin.host.queue_config(1).unwrap();
    assert!(HostQueue::new(queue.clone()).is_ok());
    let limits = queue.namespaces.into_iter();
    limits.map(|namespace| namespace.map(|limits| (limits.nsid, limits.namespace_blocks))).collect()
}

#[test]
fn all_are_found_in_the_order_they_were_asked_for() {
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
    assert_eq!(asked(What::Log(LogPage::ANA)), 1, "one log says it of all");
}

#[test]
fn one_that_is_missing_leaves_the_others_alone() {
    let mut admin = Admin::with(wanted(&[3, 2, 8]), with(&[2, 8]));
    let info = admin.live();
    assert_eq!(info.namespaces[0], Err(missing(3, &[2, 8])));
    assert_eq!(limits(&admin), [None, Some((2, 2000)), Some((8, 8000))]);
    assert_eq!(admin.target.identified, [2, 8], "what is not active is not asked for");
    assert_eq!(news(&mut admin), []);
}

/// Whatever was read before may not be true any more when the association is live.
#[test]
fn a_change_while_they_are_identified_is_told_of() {
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
        assert!(news(&mut admin).contains(&(0, Ok(News::Blocks(7)))), "after {after:?}");
        assert_eq!(limits(&admin), [Some((1, 7)), Some((2, 2000))]);
    }
}

#[test]
fn if_none_is_there_it_is_the_first_one_that_is_missed() {
    let mut admin = Admin::with(wanted(&[5, 3, 4]), with(&[1, 2]));
    assert_eq!(admin.failure(), missing(5, &[1, 2]).into());
    // The first one asked for, not the first one found out of use.
    let mut admin = Admin::with(wanted(&[2, 3]), |target| {
        with(&[2])(target);
        target.namespace(2).data.lbaf[0].ms = 8.into();
    });
    assert_eq!(admin.failure(), NamespaceError::Metadata(8).into());
}

#[test]
fn a_long_list_is_read_as_far_as_needed() {
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
fn whatever_is_wrong_with_one_is_wrong_with_that_one_only() {
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
        // It has gone since it was listed, and between the two commands about it.
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
        // And once it is as it should be, it is there.
        with(&[1, 2, 3])(&mut admin.target);
        namespaces_changed(&mut admin);
        assert_eq!(limits(&admin)[1], Some((2, 2000)));
    }
}

#[test]
fn one_that_vanishes_and_comes_back_is_told_of() {
    let mut admin = Admin::with(wanted(&[1, 2, 4]), with(&[1, 2, 4]));
    admin.live();
    for gone in [2, 1] {
        let position = usize::from(gone == 2);
        admin.target.namespaces.retain(|namespace| namespace.nsid != gone);
        admin.target.identified.clear();
        namespaces_changed(&mut admin);
        assert_eq!(admin.target.identified, [1, 2, 4], "all are identified anew");
        let others: Vec<u32> = [1, 2, 4].into_iter().filter(|&nsid| nsid != gone).collect();
        let there = |position| [(position, Ok(News::Blocks([1000, 2000, 4000][position]))), (position, OPTIMIZED)];
        let mut told: Vec<_> = (0..3).flat_map(there).collect();
        told.splice(2 * position..2 * position + 2, [(position, Err(missing(gone, &others)))]);
        assert_eq!(news(&mut admin), told);
        assert_eq!(limits(&admin)[position], None);
        // It comes back with another size.
        admin.target.namespace(gone).data.nsze = 77.into();
        namespaces_changed(&mut admin);
        let told = news(&mut admin);
        let of = |told: &(usize, _)| told.0 == position;
        let back = [(position, Ok(News::Blocks(77))), (position, OPTIMIZED)];
        assert_eq!(told.iter().filter(|told| of(told)).cloned().collect::<Vec<_>>(), back);
        assert_eq!((told.len(), limits(&admin)[position]), (6, Some((gone, 77))));
        admin.target.namespace(gone).data.nsze = (1000 * u64::from(gone)).into();
        namespaces_changed(&mut admin);
        news(&mut admin);
    }
}

#[test]
fn the_last_one_takes_the_association_with_it() {
    let mut admin = Admin::with(wanted(&[1, 2, 3]), with(&[2, 3]));
    admin.live();
    admin.target.namespaces.retain(|namespace| namespace.nsid != 2);
    namespaces_changed(&mut admin);
    assert_eq!(news(&mut admin).len(), 4);
    admin.target.namespaces.clear();
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    // It is the one that has gone now that ends it, and not one that was never there.
    assert_eq!(admin.failure(), missing(3, &[2]).into());
}

#[test]
fn one_may_come_as_the_last_one_goes() {
    let mut admin = Admin::with(wanted(&[1, 2]), with(&[1]));
    assert_eq!(admin.live().namespaces[1], Err(missing(2, &[1])));
    with(&[2])(&mut admin.target);
    namespaces_changed(&mut admin);
    assert_eq!(news(&mut admin), [(0, Err(missing(1, &[]))), (1, Ok(News::Blocks(2000))), (1, OPTIMIZED)]);
    assert_eq!(limits(&admin), [None, Some((2, 2000))]);
}

/// An association whose host has just sent the first command of a round.
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
fn a_notice_in_the_middle_of_a_round_has_another_one_follow() {
    let mut admin = identifying();
    namespaces_changed(&mut admin);
    assert_eq!(admin.target.identified, [1, 2, 1, 2]);
    assert_eq!((news(&mut admin).len(), admin.target.asked(What::Log(LogPage::ANA))), (8, 2));
}

#[test]
fn an_ana_notice_in_the_middle_of_a_round_is_served_by_the_log_at_its_end() {
    let mut admin = identifying();
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND).unwrap();
    assert_eq!((news(&mut admin).len(), admin.target.asked(What::Log(LogPage::ANA))), (4, 1));
}

#[test]
fn without_ana_all_are_optimized() {
    let mut admin = Admin::with(wanted(&[1, 2]), |target| {
        with(&[1])(target);
        target.identify.cmic = 0;
    });
    let info = admin.live();
    assert_eq!(info.namespaces[0].as_ref().map(|namespace| namespace.ana), Ok(AnaState::Optimized));
    with(&[1, 2])(&mut admin.target);
    namespaces_changed(&mut admin);
    // There is no log to wait for, but the state is told all the same where it is news.
    assert_eq!(news(&mut admin), [(0, Ok(News::Blocks(1000))), (1, Ok(News::Blocks(2000))), (1, OPTIMIZED)]);
    assert_eq!(admin.target.asked(What::Log(LogPage::ANA)), 0);
}

#[test]
fn shutdown_breaks_off_a_round() {
    let mut admin = identifying();
    admin.host.shutdown(admin.now);
    admin.pass(SECOND).unwrap();
    assert_eq!((admin.event(), admin.event()), (Some(ControllerEvent::ShutdownComplete), None));
    assert_eq!(admin.target.identified, [1]);
}
