//! ANA states of several namespaces, with one log, and a state and time limit for each.

use super::{OPTIMIZED, SECOND, ShortEvent, missing, namespaces_changed, short_events, wanted, with};
use crate::host::NamespaceError;
use crate::host::tests::admin::Admin;
use crate::host::tests::admin_target::{AdminTarget, What};
use crate::wire::{AnaState, AsyncEvent, LogPage};

type Told = Vec<(usize, Result<ShortEvent, NamespaceError>)>;

const CHANGE: Result<ShortEvent, NamespaceError> = Ok(ShortEvent::Ana(AnaState::Change));
const INACCESSIBLE: Result<ShortEvent, NamespaceError> = Ok(ShortEvent::Ana(AnaState::Inaccessible));

fn stuck() -> Result<ShortEvent, NamespaceError> {
    Err(NamespaceError::AnaTransition { after: SECOND * 20 })
}

/// Puts each of the namespaces 1, 2 and 3 into its own group, with these states.
fn states(target: &mut AdminTarget, [one, two, three]: [AnaState; 3]) {
    target.set_ana(&[(1, one, &[1]), (2, two, &[2]), (3, three, &[3])]);
}

fn three(at_first: [AnaState; 3]) -> Admin {
    let mut admin = Admin::with(wanted(&[1, 2, 3]), |target| {
        with(&[1, 2, 3])(target);
        for nsid in 1..=3 {
            target.namespace(nsid).data.anagrpid = nsid.into();
        }
        states(target, at_first);
    });
    let found = admin.live().namespaces.into_iter().map(|namespace| namespace.unwrap().ana);
    assert_eq!(found.collect::<Vec<_>>(), at_first);
    admin
}

/// The events after reading the log.
fn reread(admin: &mut Admin) -> Told {
    admin.host.reread_ana(admin.now);
    admin.pass(SECOND / 1000).unwrap();
    short_events(admin)
}

#[test]
fn one_log_has_the_states_of_all_namespaces() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Optimized; 3]);
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (1, OPTIMIZED), (2, OPTIMIZED)], "events include unchanged states");
    states(&mut admin.target, [Optimized, Inaccessible, Change]);
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND / 1000).unwrap();
    assert_eq!(short_events(&mut admin), [(0, OPTIMIZED), (1, INACCESSIBLE), (2, CHANGE)]);
    let known = admin.host.info().unwrap().namespaces.iter().map(|namespace| namespace.as_ref().unwrap().ana);
    assert_eq!(known.collect::<Vec<_>>(), [Optimized, Inaccessible, Change]);
    assert_eq!(admin.target.asked(What::Log(LogPage::ANA)), 3);
    // A namespace belongs to the group that lists it, even if its ANAGRPID is another.
    admin.target.set_ana(&[(1, Optimized, &[3]), (2, Inaccessible, &[2, 1])]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, INACCESSIBLE), (2, OPTIMIZED)]);
}

#[test]
fn without_a_list_anagrpid_selects_the_group() {
    use AnaState::{Inaccessible, NonOptimized, Optimized};
    let mut admin = Admin::with(wanted(&[1, 2, 3]), |target| {
        with(&[1, 2, 3])(target);
        target.identify.mnan = 1_000_000.into();
        (target.namespace(1).data.anagrpid, target.namespace(2).data.anagrpid) = (2.into(), 9.into());
        target.set_ana(&[(1, NonOptimized, &[3]), (2, Inaccessible, &[1])]);
    });
    let mut found = admin.live().namespaces;
    assert_eq!(found.remove(1), Err(NamespaceError::AnaGroupMissing { group: 9 }));
    assert_eq!(found.into_iter().map(|it| it.unwrap().ana).collect::<Vec<_>>(), [Inaccessible, NonOptimized]);
    admin.target.namespace(2).data.anagrpid = 1.into();
    let state = Ok(ShortEvent::Ana(NonOptimized));
    let there = [(0, INACCESSIBLE), (1, Ok(ShortEvent::Blocks(2000))), (1, state.clone()), (2, state)];
    assert_eq!(reread(&mut admin), there);
    admin.target.set_ana(&[(1, Optimized, &[]), (2, Inaccessible, &[])]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, OPTIMIZED), (2, OPTIMIZED)]);
}

#[test]
fn a_namespace_without_group_is_unusable() {
    let mut admin = three([AnaState::Optimized; 3]);
    admin.target.set_ana(&[(1, AnaState::Optimized, &[1]), (3, AnaState::Optimized, &[3])]);
    let lost = Err(NamespaceError::AnaGroupMissing { group: 2 });
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (1, lost), (2, OPTIMIZED)]);
    assert_eq!(admin.host.queue_config(1).unwrap().namespaces[1], None);
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (2, OPTIMIZED)], "an unchanged error leads to no event");
    states(&mut admin.target, [AnaState::Optimized, AnaState::Inaccessible, AnaState::Optimized]);
    let back = [(0, OPTIMIZED), (1, Ok(ShortEvent::Blocks(2000))), (1, INACCESSIBLE), (2, OPTIMIZED)];
    assert_eq!(reread(&mut admin), back);
    // Without any group, no namespace is usable.
    admin.target.set_ana(&[]);
    admin.host.reread_ana(admin.now);
    assert_eq!(admin.failure(), NamespaceError::AnaGroupMissing { group: 1 }.into());
}

#[test]
fn each_namespace_has_its_own_time_limit_of_the_state_change() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Change, Optimized, Optimized]);
    admin.pass(SECOND * 9).unwrap();
    states(&mut admin.target, [Change, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, CHANGE), (1, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 9).unwrap();
    // Reading the log again does not extend the limits.
    assert_eq!(reread(&mut admin).len(), 3);
    admin.pass(SECOND * 2).unwrap();
    assert_eq!(short_events(&mut admin), [(0, stuck())]);
    assert!(admin.host.info().unwrap().namespaces[0].is_err());
    assert_eq!(reread(&mut admin), [(1, CHANGE), (2, OPTIMIZED)], "the namespace stays unusable");
    admin.pass(SECOND * 9).unwrap();
    assert_eq!(short_events(&mut admin), [(1, stuck())]);
    // No time limit is left, and the association stays.
    admin.pass(SECOND * 300).unwrap();
    assert_eq!(short_events(&mut admin), []);
    states(&mut admin.target, [Inaccessible, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, Ok(ShortEvent::Blocks(1000))), (0, INACCESSIBLE), (2, OPTIMIZED)]);
    // The whole time limit applies again.
    states(&mut admin.target, [Change, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 19).unwrap();
    assert_eq!(short_events(&mut admin), []);
    admin.pass(SECOND).unwrap();
    assert_eq!(short_events(&mut admin), [(0, stuck())]);
}

#[test]
fn a_namespace_that_leaves_change_in_time_stays_usable() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 19).unwrap();
    states(&mut admin.target, [Inaccessible, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 60).unwrap();
    assert_eq!(short_events(&mut admin), [(1, stuck())]);
}

#[test]
fn the_time_limit_restarts_only_after_the_namespace_was_missing() {
    use AnaState::{Change, Optimized};
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 10).unwrap();
    namespaces_changed(&mut admin);
    admin.target.namespaces.retain(|namespace| namespace.nsid != 1);
    namespaces_changed(&mut admin);
    with(&[1, 2, 3])(&mut admin.target);
    namespaces_changed(&mut admin);
    short_events(&mut admin);
    admin.pass(SECOND * 10).unwrap();
    assert_eq!(short_events(&mut admin), [(1, stuck())]);
    namespaces_changed(&mut admin);
    let reported = [
        (0, Ok(ShortEvent::Blocks(1000))),
        (0, CHANGE),
        (1, stuck()),
        (2, Ok(ShortEvent::Blocks(3000))),
        (2, OPTIMIZED),
    ];
    assert_eq!(short_events(&mut admin), reported);
    admin.pass(SECOND * 10).unwrap();
    assert_eq!(short_events(&mut admin), [(0, stuck())]);
}

#[test]
fn the_association_ends_when_the_last_namespace_is_stuck_in_change() {
    use AnaState::{Change, Optimized};
    let stuck = || stuck().unwrap_err().into();
    let mut all = three([Change; 3]);
    assert_eq!(all.failure(), stuck());
    // The first namespaces that are stuck lead to events, and the last one ends the association.
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 5).unwrap();
    states(&mut admin.target, [Change; 3]);
    reread(&mut admin);
    admin.pass(SECOND * 16).unwrap();
    assert_eq!(short_events(&mut admin).len(), 2);
    assert_eq!(admin.failure(), stuck());
}

#[test]
fn namespaces_stuck_in_change_do_not_keep_the_association() {
    use AnaState::{Change, Optimized};
    let mut admin = three([Change, Optimized, Change]);
    admin.pass(SECOND * 21).unwrap();
    assert_eq!(short_events(&mut admin).len(), 2);
    admin.target.namespaces.retain(|namespace| namespace.nsid != 2);
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    assert_eq!(admin.failure(), missing(2, &[1, 3]).into());
    // Missing namespaces do not keep the association either.
    let mut admin = Admin::with(wanted(&[7, 1]), |target| target.ana.groups[0].state = Change);
    assert!(admin.live().namespaces[0].is_err());
    assert_eq!(admin.failure(), stuck().unwrap_err().into());
}
