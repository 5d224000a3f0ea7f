//! Fences inherited from a killed daemon: the disk takes no requests until they have passed, and reports that.

#![allow(clippy::cast_precision_loss, clippy::float_cmp)] // what was written is read again

use std::thread;
use std::time::Duration;

use mpath_api::types::{ClearedFence, ErrorCode, Event, EventKind, PathState, Severity};
use mpath_config::DiskConfig;
use mpath_target::NamespaceConfig;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::live_disks::refusal;
use crate::metrics::Scrape;
use crate::support::{Daemon, DaemonDirectory, Disk, NQN, Target, eventually};

/// 2 × the keep-alive timeout of 60 s, the test target's quiesce time (CQT), and the time in which sockets close.
const LONG_MS: u64 = 120_600;
const LONG: &str = "--keep-alive-tmo 60";
const SHORT: &str = "--keep-alive-tmo 1 --reconnect-delay 1";

/// A daemon on the sockets of one that was killed.
fn after_a_killed_one(target: &Target, flags: &str) -> Daemon {
    let (_, place) = Daemon::start(&target.addrs(), flags).end(Signal::KILL);
    let command = place.command(&target.addrs(), flags);
    place.spawn(command).ready()
}

fn events(daemon: &Daemon) -> Vec<Event> {
    let mut events = daemon.api.events(0).unwrap().events;
    // A busy machine may lose a path, and the disk's condition changes.
    let of_disk = [
        EventKind::DiskHeld,
        EventKind::DiskResumed,
        EventKind::DiskRemoved,
        EventKind::FenceCleared,
        EventKind::FrontEndConnected,
    ];
    events.retain(|event| of_disk.contains(&event.kind));
    events
}

fn count(daemon: &Daemon, kind: EventKind) -> usize {
    events(daemon).iter().filter(|event| event.kind == kind).count()
}

fn held_ms(daemon: &Daemon) -> Option<u64> {
    daemon.status().disks[0].held_ms
}

fn held_seconds(daemon: &Daemon) -> f64 {
    Scrape::of(daemon).get("disk_held_seconds{disk=\"disk0\"}")
}

#[test]
fn a_held_disk_reports_for_how_long() {
    let target = Target::start(2);
    let daemon = after_a_killed_one(&target, LONG);
    let first = held_ms(&daemon).expect("it is held");
    assert!((1..=LONG_MS).contains(&first), "{first}");
    eventually("it gets less", || held_ms(&daemon).expect("for long") < first);
    let seconds = held_seconds(&daemon);
    assert!(0.0 < seconds && seconds * 1000.0 <= first as f64, "{seconds} s, and before that {first} ms");
    let told = &events(&daemon)[0];
    assert_eq!(
        (told.kind, told.disk.as_deref(), told.severity),
        (EventKind::DiskHeld, Some("disk0"), Severity::Warning)
    );
    let wait = told.message.strip_prefix("requests wait for ").and_then(|rest| rest.split(" s: ").next()).unwrap();
    assert!(wait.parse::<f64>().unwrap() * 1000.0 <= LONG_MS as f64, "{}", told.message);
    let said = daemon.log().lines().any(|line| line.contains("WARN") && line.contains(&told.message));
    assert!(said, "{}", daemon.log());

    // No requests are waiting, and every path is live.
    let mut disk = Disk::connect(&daemon.socket());
    disk.submit_write(0, 0, 7);
    assert_eq!(disk.answer(Duration::from_millis(200)), None);
    let shown = &daemon.status().disks[0];
    assert_eq!((shown.queued, shown.path_counts.usable, shown.connected), (0, 2, true));
    assert_eq!(count(&daemon, EventKind::DiskResumed), 0);
    // The end of this daemon does not lift the earlier fence.
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let command = place.command(&target.addrs(), LONG);
    assert!(held_ms(&place.spawn(command).ready()).is_some());
}

#[test]
fn a_disk_reports_the_end_of_its_fence() {
    let target = Target::start(2);
    let daemon = after_a_killed_one(&target, SHORT);
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!((disk.write(0, 7), disk.read(0)), (Status::Ok, 7));
    eventually("it is told", || count(&daemon, EventKind::DiskResumed) == 1);
    assert_eq!((held_ms(&daemon), held_seconds(&daemon)), (None, 0.0));
    let mut kinds: Vec<_> = events(&daemon).iter().map(|event| event.kind).collect();
    // On a busy machine the front-end may come after the fence.
    kinds.retain(|kind| *kind != EventKind::FrontEndConnected);
    assert_eq!(kinds, [EventKind::DiskHeld, EventKind::DiskResumed]);
    // A daemon that ends in order leaves no fence.
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly_but_for_a_guest(&place);
    let command = place.command(&target.addrs(), SHORT);
    let daemon = place.spawn(command).ready();
    // The event is that of the daemon before.
    assert_eq!((held_ms(&daemon), count(&daemon, EventKind::DiskHeld)), (None, 1));
}

#[test]
fn a_held_disk_that_is_removed_does_not_resume() {
    let target = Target::start(2);
    // The fence takes 6.6 s, and a busy machine removes the disk before.
    let daemon = after_a_killed_one(&target, "--keep-alive-tmo 3 --reconnect-delay 1");
    daemon.api.remove_disk("disk0", true).unwrap();
    thread::sleep(Duration::from_secs(7));
    assert_eq!(events(&daemon).last().unwrap().kind, EventKind::DiskRemoved);
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let again = DiskConfig::new(daemon.socket().to_str().unwrap().parse().unwrap(), NQN.parse().unwrap(), paths);
    daemon.api.add_disk(&again).unwrap();
    assert_eq!(Disk::connect_patiently(&daemon.socket()).write(0, 7), Status::Ok);
    assert_eq!(count(&daemon, EventKind::DiskHeld), 1 + count(&daemon, EventKind::DiskResumed));
}

/// The killed daemon may have left unflushed writes in the cache of any controller, and the first flush has to reach all
/// of them.
#[test]
fn requests_after_a_kill_wait_until_every_path_was_tried() {
    let target = Target::start(2);
    let (_, place) = Daemon::start(&target.addrs(), SHORT).end(Signal::KILL);
    target.set(1, "black-hole=stall");
    let command = place.command(&target.addrs(), SHORT);
    let daemon = place.spawn(command).answers();
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!(disk.flush(), Status::Ok);
    let tried = daemon.paths().remove(1).last_error;
    assert!(tried.as_ref().is_some_and(|error| error.contains("no answer within")), "{tried:?}");
    assert_eq!(disk.write(0, 7), Status::Ok);
}

/// A guest that comes back repeats its requests in flight on the same namespace or not at all.
#[test]
fn a_socket_serves_no_other_namespace_after_a_crash() {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    let (_, place) = Daemon::start(&target.addrs(), &format!("{SHORT} --namespace 1")).end(Signal::KILL);
    let record = place.fence_record();
    let of = |namespace| format!("namespace {namespace} of {NQN} (uuid=");
    // However often it is tried, and also after the fence.
    for black_hole in ["off", "stall", "off"] {
        target.set(1, &format!("black-hole={black_hole}"));
        let refused = place.refused(place.command(&target.addrs(), &format!("{SHORT} --namespace 2 --wait-for any")));
        let remedy = format!("remove {}", record.display());
        refused.says(2, &[&of(1), &of(2), "whose guest may come back", &remedy]);
    }
    let command = place.command(&target.addrs(), &format!("{SHORT} --namespace 1"));
    let daemon = place.spawn(command).ready();
    assert_eq!(Disk::connect_patiently(&daemon.socket()).write(0, 7), Status::Ok, "the earlier namespace is served");
    // This front-end keeps no in-flight log, which says nothing about the guest of the other.
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly_but_for_a_guest(&place);
    place
        .refused(place.command(&target.addrs(), &format!("{SHORT} --namespace 2 --wait-for any")))
        .says(2, &[&of(1), &of(2)]);
    // The operator has removed the record.
    std::fs::remove_file(&record).unwrap();
    let command = place.command(&target.addrs(), &format!("{SHORT} --namespace 2"));
    assert_eq!(held_ms(&place.spawn(command).ready()), None);
}

/// What an operator clears is cleared for the next daemon too.
#[test]
fn an_operator_clears_what_a_guest_that_is_gone_has_left() {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    target.fail_cross_resets();
    let (_, place) = Daemon::start(&target.addrs(), &format!("{SHORT} --namespace 1")).end(Signal::KILL);
    let on_other = |place: &DaemonDirectory| place.command(&target.addrs(), &format!("{SHORT} --namespace 2"));
    let command = on_other(&place);
    let daemon = place.spawn(command).answers();
    let fences = || daemon.api.fences(None).unwrap().remove(0);
    let first = fences();
    assert!(first.inherited.is_some() && !first.lost_writes && first.fences.is_empty(), "{first:?}");
    assert!(first.guest_of.is_some_and(|of| of.starts_with(&format!("namespace 1 of {NQN}"))));
    let (code, said) = refusal(daemon.api.clear_fences("disk0", false));
    assert!(code == ErrorCode::NeedsForce && said.contains("wait, or use --force"), "{said}");
    eventually("both paths are refused", || daemon.paths().iter().all(|path| path.state == PathState::Refused));
    eventually("the fence has passed", || fences().inherited.is_none());
    assert_eq!(daemon.api.clear_fences("disk0", false).unwrap().cleared, [ClearedFence::UnansweredRequests]);
    eventually("the paths are used", || daemon.paths().iter().all(|path| path.state == PathState::Live));
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!(disk.write(0, 7), Status::Ok);
    assert_eq!(refusal(daemon.api.clear_fences("disk0", true)).0, ErrorCode::DiskConnected);
    let cleared: Vec<_> = events(&daemon).into_iter().filter(|event| event.kind == EventKind::FenceCleared).collect();
    assert_eq!((cleared.len(), cleared[0].by.as_ref().unwrap().pid), (1, Some(std::process::id())), "{cleared:?}");
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!place.fence_record().exists(), "{}", ended.log);

    // With force, a fence need not pass.
    let (_, place) = Daemon::start(&target.addrs(), &format!("{LONG} --namespace 1")).end(Signal::KILL);
    let command = on_other(&place);
    let daemon = place.spawn(command).answers();
    assert_eq!(
        daemon.api.clear_fences("disk0", true).unwrap().cleared,
        [ClearedFence::UnansweredRequests, ClearedFence::InheritedFence]
    );
    assert_eq!(Disk::connect_patiently(&daemon.socket()).write(0, 7), Status::Ok);
    assert_eq!(held_ms(&daemon), None);
}

#[test]
fn a_request_that_waits_for_a_held_disk_waits_for_the_fence() {
    let target = Target::start(1);
    let daemon = after_a_killed_one(&target, "--keep-alive-tmo 3 --reconnect-delay 1");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.read(0), 0);
    let slow = daemon.api.slow(None).unwrap();
    let longest = slow.iter().max_by_key(|of| of.total_us).unwrap();
    assert!(longest.longest == "fence" && longest.stages.fence > Duration::from_millis(500).into(), "{longest:?}");
}
