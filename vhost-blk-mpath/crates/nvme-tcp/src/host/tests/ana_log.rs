//! ANA logs that are longer than a transfer, or than the host wants to read, and namespaces that the log does not list.

use monotonic::Duration;

use super::admin::{Admin, ana_changed, config};
use super::admin_target::{AdminTarget, LogPart, What};
use crate::host::{AdminError, Step, Unsupported};
use crate::wire::{AnaGroup, AnaState, AsyncEvent, IdentifyController, LogPage, Status};

const SECOND: Duration = Duration::from_secs(1);
/// MDTS 1: two pages.
const TRANSFER: u64 = 8192;

/// A thousand groups, each with some namespaces. Namespace 1 is in the last one. Transfers have at most 8 KiB.
fn many_groups(target: &mut AdminTarget) {
    target.identify.mdts = 1;
    target.identify.lpa = IdentifyController::LPA_EXTENDED;
    (target.identify.nanagrpid, target.identify.mnan) = (1000.into(), 5000.into());
    let group =
        |id| AnaGroup { id, change_count: 0, state: AnaState::Inaccessible, nsids: (id * 5..id * 5 + 5).collect() };
    target.ana.groups = (1..1000).map(group).collect();
    let last = AnaGroup { id: 1000, change_count: 0, state: AnaState::NonOptimized, nsids: vec![7000, 1] };
    target.ana.groups.push(last);
}

/// The parts of the last reading, which are checked to follow one another.
fn parts_of_reading(parts: &[LogPart]) -> Vec<LogPart> {
    let (header, parts) = parts.split_last().unwrap();
    assert_eq!(*header, LogPart { offset: 0, bytes: 16, rae: true });
    let first = parts.iter().rposition(|part| part.offset == 0).unwrap();
    let parts = &parts[first..];
    // The first part clears the event, so a change of the others has an event of its own.
    assert!(parts.iter().all(|part| part.rae == (part.offset > 0) && part.bytes <= TRANSFER), "{parts:?}");
    for pair in parts.windows(2) {
        let parsed = pair[1].offset - pair[0].offset;
        assert!((pair[0].bytes - 31..=pair[0].bytes).contains(&parsed), "{pair:?}");
    }
    parts.to_vec()
}

#[test]
fn a_log_longer_than_a_transfer_is_read_in_parts() {
    let mut admin = Admin::with(config(), many_groups);
    admin.live();
    assert_eq!(admin.only().ana, AnaState::NonOptimized);
    assert_eq!(parts_of_reading(&admin.target.parts).len(), 7, "{:?}", admin.target.parts);
    assert_eq!(admin.target.identified.len(), 1, "the log lists the namespace");
}

#[test]
fn a_log_that_changes_while_it_is_read_is_read_again() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        target.then = Some((What::Log(LogPage::ANA), |target| {
            // The namespace moves to a group that was read before.
            target.ana.change_count += 1;
            target.ana.groups[999].nsids[1] = 7001;
            target.ana.groups[0].nsids[0] = 1;
            target.ana.groups[0].state = AnaState::Optimized;
        }));
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::Optimized);
    assert_eq!(admin.target.parts.iter().filter(|part| part.bytes == 16).count(), 2);
    parts_of_reading(&admin.target.parts);
}

/// A loss of namespace 1 that is over while its log is read. The namespace lost its caches, although the log that is read in the end
/// shows it as before. `begin` starts the loss.
fn is_reported(begin: fn(&mut AdminTarget)) {
    let mut admin = Admin::with(config(), many_groups);
    admin.live();
    begin(&mut admin.target);
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND).unwrap();
    for state in [AnaState::PersistentLoss, AnaState::NonOptimized] {
        assert_eq!(admin.event(), Some(ana_changed(state)));
    }
    assert_eq!(admin.event(), None);
    // It counts once.
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND).unwrap();
    assert_eq!((admin.event(), admin.event()), (Some(ana_changed(AnaState::NonOptimized)), None));
}

/// Moves namespace 1 to the first group, which is in the first part.
fn move_to_first(target: &mut AdminTarget, state: AnaState) {
    target.ana.groups[999].nsids[1] = 7001;
    target.ana.groups[0].nsids[0] = 1;
    target.ana.groups[0].state = state;
}

fn count_and_restore(target: &mut AdminTarget) {
    target.ana.change_count += 1;
    target.ana.groups[0].state = AnaState::NonOptimized;
}

#[test]
fn a_loss_in_a_log_that_changes_while_it_is_read_is_reported() {
    is_reported(|target| {
        move_to_first(target, AnaState::PersistentLoss);
        target.then = Some((What::Log(LogPage::ANA), count_and_restore));
    });
}

/// The namespace is listed in its old group, in a part that was read before.
#[test]
fn a_loss_is_reported_that_a_second_list_of_the_log_shows() {
    fn after_a_part(target: &mut AdminTarget) {
        let part = target.parts.last().unwrap();
        if part.offset == 0 {
            target.ana.change_count += 1;
            (target.ana.groups[0].nsids[0], target.ana.groups[999].nsids[1]) = (5, 1);
            target.ana.groups[999].state = AnaState::PersistentLoss;
        }
        if part.offset + part.bytes >= target.ana.emit().len() as u64 {
            target.ana.groups[999].state = AnaState::NonOptimized;
        } else {
            target.then = Some((What::Log(LogPage::ANA), after_a_part));
        }
    }
    is_reported(|target| {
        move_to_first(target, AnaState::NonOptimized);
        target.then = Some((What::Log(LogPage::ANA), after_a_part));
    });
}

#[test]
fn a_loss_is_reported_though_the_parts_of_its_log_do_not_fit_together() {
    is_reported(|target| {
        move_to_first(target, AnaState::PersistentLoss);
        target.then = Some((What::Log(LogPage::ANA), |target| {
            target.ana.groups[0].state = AnaState::NonOptimized;
            target.ana.groups[1].nsids.clear();
        }));
    });
}

#[test]
fn a_loss_is_reported_though_its_log_is_read_again_without_lists() {
    is_reported(|target| {
        move_to_first(target, AnaState::PersistentLoss);
        target.ana.groups[5].nsids = (2..200_000).collect();
        target.namespaces[0].data.anagrpid = 1.into();
        target.then = Some((What::Log(LogPage::ANA), |target| target.ana.groups[0].state = AnaState::NonOptimized));
    });
}

#[test]
fn a_loss_is_reported_of_a_group_without_a_list() {
    is_reported(|target| {
        target.ana.groups.iter_mut().for_each(|group| group.nsids.clear());
        target.ana.groups[0].state = AnaState::PersistentLoss;
        target.namespaces[0].data.anagrpid = 1.into();
        target.then = Some((What::Log(LogPage::ANA), count_and_restore));
    });
}

/// The log lists no namespaces. The namespace is in another group when it is asked for its group.
#[test]
fn a_namespace_that_leaves_a_lost_group_was_lost() {
    is_reported(|target| {
        target.set_ana(&[(1, AnaState::PersistentLoss, &[]), (2, AnaState::NonOptimized, &[])]);
        target.then = Some((What::Log(LogPage::ANA), |target| target.namespaces[0].data.anagrpid = 2.into()));
    });
}

/// The controller announces room for more groups than a command can read.
#[test]
fn a_log_that_one_command_reads_whole_needs_no_second_look_at_its_header() {
    let mut admin = Admin::with(config(), |target| {
        target.identify.lpa = IdentifyController::LPA_EXTENDED;
        target.identify.nanagrpid = 100_000.into();
    });
    admin.live();
    assert_eq!(admin.target.parts.len(), 1);
}

#[test]
fn a_log_whose_parts_do_not_fit_together_is_read_again() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        target.then = Some((What::Log(LogPage::ANA), |target| {
            target.ana.groups[0].nsids.clear();
        }));
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::NonOptimized);
    parts_of_reading(&admin.target.parts);
}

/// Some targets count no changes, and refuse a part behind the end of the log.
#[test]
fn a_log_that_shrinks_while_it_is_read_is_read_again() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        target.refuse.push((What::BehindLog, Status::INVALID_FIELD.with_dnr(), 0));
        target.then = Some((What::Log(LogPage::ANA), |target| {
            target.set_ana(&[(1, AnaState::Optimized, &[1])]);
        }));
    });
    admin.live();
    assert_eq!(admin.only().ana, AnaState::Optimized);
    assert_eq!(admin.target.asked(What::BehindLog), 1);
}

#[test]
fn a_part_that_is_always_refused_is_an_error() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        target.refuse.push((What::BehindLog, Status::INVALID_FIELD.with_dnr(), 0));
        target.log_offset_max = 0;
    });
    let status = Status::INVALID_FIELD.with_dnr();
    assert_eq!(admin.failure(), AdminError::Command { step: Step::AnaLog, status }.into());
    assert_eq!(admin.target.asked(What::BehindLog), 10);
}

/// A target that counts changes all the time must not keep a path from being used. Its event has the log read again.
#[test]
fn a_log_that_never_stands_still_is_used_and_read_again() {
    fn change(target: &mut AdminTarget) {
        target.ana.change_count += 1;
        target.then = Some((What::Log(LogPage::ANA), change));
    }
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        change(target);
    });
    while admin.event().is_none() {
        let mut bytes = Vec::new();
        admin.host.fill_tx(&mut bytes);
        admin.target.receive(&bytes);
        admin.host.receive(admin.now, &std::mem::take(&mut admin.target.out)).unwrap();
        admin.now += Duration::from_millis(20);
        admin.host.handle_timeout(admin.now).unwrap();
    }
    assert_eq!(admin.only().ana, AnaState::NonOptimized);
    assert_eq!(admin.target.parts.iter().filter(|part| part.bytes == 16).count(), 10);
    admin.target.then = None;
    admin.pass(SECOND).unwrap();
    assert_eq!(admin.event(), None);
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(AnaState::NonOptimized)));
}

#[test]
fn a_log_with_long_lists_is_read_without_them() {
    for announced in [1_000_000_u32, 8] {
        let mut admin = Admin::with(config(), |target| {
            many_groups(target);
            target.identify.mnan = announced.into();
            target.ana.groups[5].nsids = (2..200_000).collect();
            target.namespaces[0].data.anagrpid = 1000.into();
        });
        admin.live();
        assert_eq!(admin.only().ana, AnaState::NonOptimized);
        assert_eq!(parts_of_reading(&admin.target.parts).len(), 4, "no lists");
        assert_eq!(admin.target.identified.len(), 2, "the namespace is asked for its group");
    }
}

#[test]
fn a_namespace_that_the_log_does_not_list_is_asked_for_its_group() {
    use AnaState::{Inaccessible, NonOptimized, Optimized};
    let mut admin = Admin::with(config(), |target| target.set_ana(&[(1, Optimized, &[]), (2, Inaccessible, &[])]));
    admin.live();
    assert_eq!(admin.only().ana, Optimized);
    // The namespace moves, and the controller reports a change of the log alone.
    admin.target.namespaces[0].data.anagrpid = 2.into();
    admin.target.report(AsyncEvent::ANA_CHANGED);
    admin.pass(SECOND / 1000).unwrap();
    assert_eq!((admin.event(), admin.only().identity.anagrpid), (Some(ana_changed(Inaccessible)), 2));
    // A status of I/O is the only sign.
    admin.target.set_ana(&[(1, Inaccessible, &[]), (2, Inaccessible, &[]), (3, NonOptimized, &[])]);
    admin.target.namespaces[0].data.anagrpid = 3.into();
    admin.host.reread_ana(admin.now);
    admin.pass(SECOND / 1000).unwrap();
    assert_eq!(admin.event(), Some(ana_changed(NonOptimized)));
}

#[test]
fn a_long_log_without_offsets_is_an_error() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        target.identify.lpa = 0;
    });
    assert_eq!(admin.failure(), Unsupported::AnaLog(TRANSFER).into());
    // The announced number of groups is no obstacle, if there are few.
    let mut admin = Admin::with(config(), |target| target.identify.nanagrpid = u32::MAX.into());
    assert_eq!(admin.live().anatt, SECOND * 10);
}

#[test]
fn a_log_without_end_is_an_error() {
    let mut admin = Admin::with(config(), |target| {
        many_groups(target);
        // The controller lists namespaces whatever the host asks for.
        target.ignores_groups_only = true;
        target.ana.groups[5].nsids = (2..2_000_000).collect();
    });
    assert_eq!(admin.failure(), Unsupported::AnaLog(4 << 20).into());
}
