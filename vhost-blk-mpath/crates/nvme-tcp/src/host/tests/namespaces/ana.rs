//! ANA states of several namespaces: one log, each its own state and time.

use super::{News, OPTIMIZED, SECOND, missing, namespaces_changed, news, wanted, with};
use crate::host::NamespaceError;
use crate::host::tests::admin::Admin;
use crate::host::tests::admin_target::{AdminTarget, What};
use crate::wire::{AnaState, AsyncEvent, LogPage};

type Told = Vec<(usize, Result<News, NamespaceError>)>;

const CHANGE: Result<News, NamespaceError> = Ok(News::Ana(AnaState::Change));
const INACCESSIBLE: Result<News, NamespaceError> = Ok(News::Ana(AnaState::Inaccessible));

fn stuck() -> Result<News, NamespaceError> {
    Err(NamespaceError::AnaTransition { after: SECOND * 20 })
}

fn blocks(blocks: u64) -> Result<News, NamespaceError> {
    Ok(News::Blocks(blocks))
}

/// Makes each of the namespaces 1, 2 and 3 a group of its own, in these states.
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

/// What is told when the log is read now.
fn reread(admin: &mut Admin) -> Told {
    admin.host.reread_ana(admin.now);
    admin.pass(SECOND / 1000).unwrap();
    news(admin)
}

#[test]
fn one_log_tells_of_each() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Optimized; 3]);
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (1, OPTIMIZED), (2, OPTIMIZED)], "also of what is as before");
    states(&mut admin.target, [Optimized, Inaccessible, Change]);
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND / 1000).unwrap();
    assert_eq!(news(&mut admin), [(0, OPTIMIZED), (1, INACCESSIBLE), (2, CHANGE)]);
    let known = admin.host.info().unwrap().namespaces.iter().map(|namespace| namespace.as_ref().unwrap().ana);
    assert_eq!(known.collect::<Vec<_>>(), [Optimized, Inaccessible, Change]);
    assert_eq!(admin.target.asked(What::Log(LogPage::ANA)), 3);
    // A namespace is in the group that lists it, whatever it said when it was identified.
    admin.target.set_ana(&[(1, Optimized, &[3]), (2, Inaccessible, &[2, 1])]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, INACCESSIBLE), (2, OPTIMIZED)]);
}

#[test]
fn without_a_list_each_is_in_the_group_it_names() {
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
    // What it names it says when it is identified.
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (2, Ok(News::Ana(NonOptimized)))]);
    namespaces_changed(&mut admin);
    assert_eq!(news(&mut admin)[2..4], [(1, blocks(2000)), (1, Ok(News::Ana(NonOptimized)))]);
    admin.target.set_ana(&[(1, Optimized, &[]), (2, Inaccessible, &[])]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, OPTIMIZED), (2, OPTIMIZED)]);
}

#[test]
fn one_in_no_group_is_unusable_until_it_is_in_one() {
    let mut admin = three([AnaState::Optimized; 3]);
    admin.target.set_ana(&[(1, AnaState::Optimized, &[1]), (3, AnaState::Optimized, &[3])]);
    let lost = Err(NamespaceError::AnaGroupMissing { group: 2 });
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (1, lost), (2, OPTIMIZED)]);
    assert_eq!(admin.host.queue_config(1).unwrap().namespaces[1], None);
    assert_eq!(reread(&mut admin), [(0, OPTIMIZED), (2, OPTIMIZED)], "that is no news");
    states(&mut admin.target, [AnaState::Optimized, AnaState::Inaccessible, AnaState::Optimized]);
    let back = [(0, OPTIMIZED), (1, blocks(2000)), (1, INACCESSIBLE), (2, OPTIMIZED)];
    assert_eq!(reread(&mut admin), back);
    // Without a single group there is no namespace left.
    admin.target.set_ana(&[]);
    admin.host.reread_ana(admin.now);
    assert_eq!(admin.failure(), NamespaceError::AnaGroupMissing { group: 1 }.into());
}

#[test]
fn one_that_is_stuck_in_change_has_its_own_time_and_leaves_the_others_alone() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Change, Optimized, Optimized]);
    admin.pass(SECOND * 9).unwrap();
    states(&mut admin.target, [Change, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, CHANGE), (1, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 9).unwrap();
    // Reading it again gives none of them more time.
    assert_eq!(reread(&mut admin).len(), 3);
    admin.pass(SECOND * 2).unwrap();
    assert_eq!(news(&mut admin), [(0, stuck())]);
    assert!(admin.host.info().unwrap().namespaces[0].is_err());
    assert_eq!(reread(&mut admin), [(1, CHANGE), (2, OPTIMIZED)], "it is as stuck as before");
    admin.pass(SECOND * 9).unwrap();
    assert_eq!(news(&mut admin), [(1, stuck())]);
    // Nothing is waited for any more, and the association lives.
    admin.pass(SECOND * 300).unwrap();
    assert_eq!(news(&mut admin), []);
    states(&mut admin.target, [Inaccessible, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, blocks(1000)), (0, INACCESSIBLE), (2, OPTIMIZED)]);
    // It has all of the time again.
    states(&mut admin.target, [Change, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 19).unwrap();
    assert_eq!(news(&mut admin), []);
    admin.pass(SECOND).unwrap();
    assert_eq!(news(&mut admin), [(0, stuck())]);
}

#[test]
fn one_that_moves_on_in_time_is_not_stuck() {
    use AnaState::{Change, Inaccessible, Optimized};
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 19).unwrap();
    states(&mut admin.target, [Inaccessible, Change, Optimized]);
    assert_eq!(reread(&mut admin), [(0, INACCESSIBLE), (1, CHANGE), (2, OPTIMIZED)]);
    admin.pass(SECOND * 60).unwrap();
    assert_eq!(news(&mut admin), [(1, stuck())]);
}

#[test]
fn being_identified_anew_gives_no_more_time_but_being_gone_does() {
    use AnaState::{Change, Optimized};
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 10).unwrap();
    namespaces_changed(&mut admin);
    admin.target.namespaces.retain(|namespace| namespace.nsid != 1);
    namespaces_changed(&mut admin);
    with(&[1, 2, 3])(&mut admin.target);
    namespaces_changed(&mut admin);
    news(&mut admin);
    admin.pass(SECOND * 10).unwrap();
    assert_eq!(news(&mut admin), [(1, stuck())]);
    namespaces_changed(&mut admin);
    let told = [(0, blocks(1000)), (0, CHANGE), (1, stuck()), (2, blocks(3000)), (2, OPTIMIZED)];
    assert_eq!(news(&mut admin), told);
    admin.pass(SECOND * 10).unwrap();
    assert_eq!(news(&mut admin), [(0, stuck())]);
}

#[test]
fn the_last_one_that_is_stuck_has_the_controller_reset() {
    use AnaState::{Change, Optimized};
    let stuck = || stuck().unwrap_err().into();
    let mut all = three([Change; 3]);
    assert_eq!(all.failure(), stuck());
    // One after the other: the first is told of, and the last ends it.
    let mut admin = three([Change, Change, Optimized]);
    admin.pass(SECOND * 5).unwrap();
    states(&mut admin.target, [Change; 3]);
    reread(&mut admin);
    admin.pass(SECOND * 16).unwrap();
    assert_eq!(news(&mut admin).len(), 2);
    assert_eq!(admin.failure(), stuck());
}

#[test]
fn stuck_ones_do_not_keep_an_association() {
    use AnaState::{Change, Optimized};
    let mut admin = three([Change, Optimized, Change]);
    admin.pass(SECOND * 21).unwrap();
    assert_eq!(news(&mut admin).len(), 2);
    admin.target.namespaces.retain(|namespace| namespace.nsid != 2);
    admin.target.report(AsyncEvent::NAMESPACE_CHANGED);
    assert_eq!(admin.failure(), missing(2, &[1, 3]).into());
    // Nor do those that are not there keep one that is stuck.
    let mut admin = Admin::with(wanted(&[7, 1]), |target| target.ana.groups[0].state = Change);
    assert!(admin.live().namespaces[0].is_err());
    assert_eq!(admin.failure(), stuck().unwrap_err().into());
}
