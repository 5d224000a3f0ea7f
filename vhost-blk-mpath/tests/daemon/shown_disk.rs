//! A daemon answers front-ends as the daemon before did, before any path works.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::{Condition, DiskState, EventKind, PathAction, PathState};
use mpath_target::NamespaceConfig;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::live_disks::config;
use crate::path_actions::wanted;
use crate::support::{Daemon, DaemonDirectory, Disk, PATIENCE, Target, eventually};

const FLAGS: &str = "--reconnect-delay 1 --keep-alive-tmo 1 --policy round-robin";
const OTHER: &str = "uuid=1:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
const MIB: u64 = 1 << 20;

fn shown_disk(place: &DaemonDirectory) -> PathBuf {
    place.file("disk.sock.shown")
}

/// A daemon has served a front-end, which has written 7, and has ended in order. The target is away.
fn earlier_run() -> (Target, DaemonDirectory) {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --namespace 1"));
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!((disk.write(0, 7), disk.flush()), (Status::Ok, Status::Ok));
    drop(disk);
    eventually("the front-end has left", || !daemon.status().disks[0].connected);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!place.fence_record().exists() && shown_disk(&place).exists());
    away(&target);
    (target, place)
}

fn away(target: &Target) {
    (0..2).for_each(|listener| target.stop_listener(listener));
}

fn back(target: &Target) {
    (0..2).for_each(|listener| target.resume_listener(listener).unwrap());
}

fn next(target: &Target, place: DaemonDirectory) -> Daemon {
    let command = place.command(&target.addrs(), &format!("{FLAGS} --namespace 1"));
    place.spawn(command).answers()
}

/// A front-end of a disk whose target is away. It is served, and its requests wait.
fn waits(daemon: &Daemon) -> Disk {
    let mut disk = Disk::connect_patiently(&daemon.socket());
    disk.submit_write(0, 0, 8);
    assert_eq!(disk.answer(Duration::from_millis(300)), None);
    disk
}

#[track_caller]
fn goes_on(mut disk: Disk) {
    assert_eq!(disk.answer(PATIENCE), Some((0, Status::Ok)));
    assert_eq!(disk.read(0), 8);
}

fn refused(daemon: &Daemon, words: &[&str]) {
    let is_refused = || daemon.paths().iter().all(|path| path.state == PathState::Refused);
    eventually("the paths are refused", is_refused);
    let error = daemon.paths()[0].last_error.clone().unwrap();
    let file = shown_disk(&daemon.place);
    let remedy = format!("{} while no daemon serves the socket", file.display());
    for word in words.iter().chain([&&*remedy]) {
        assert!(error.contains(word), "{word:?} is not in {error:?}");
    }
    let events = daemon.api.events(0).unwrap().events;
    assert!(events.iter().any(|event| event.kind == EventKind::DiskRefused && event.message.contains(&error)));
}

/// No front-end gets an answer before a path works.
fn is_never_seen(daemon: &Daemon) {
    eventually("the path is tried", || daemon.paths()[0].last_error.is_some());
    assert_eq!(daemon.status().disks[0].state, DiskState::Starting);
}

/// The file with one text replaced.
fn rewrite(place: &DaemonDirectory, from: &str, to: &str) {
    let text = fs::read_to_string(shown_disk(place)).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}: {text}");
    fs::write(shown_disk(place), text.replace(from, to)).unwrap();
}

#[test]
fn a_front_end_is_answered_while_all_targets_are_away() {
    let (target, place) = earlier_run();
    let daemon = next(&target, place);
    let disk = waits(&daemon);
    let shown = daemon.status().disks.remove(0);
    assert_eq!((shown.state, shown.connected, shown.path_counts.usable), (DiskState::Served, true, 0));
    assert_eq!((shown.capacity_bytes, shown.namespace), (64 * MIB, Some(1)));
    assert_eq!(disk.info().capacity_bytes, 64 * MIB);
    let (discard, write_zeroes) = (disk.info().discard, disk.info().write_zeroes);
    back(&target);
    goes_on(disk);
    // Without the file it is the same disk.
    let disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!((disk.info().discard, disk.info().write_zeroes), (discard, write_zeroes));
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(shown_disk(&place).exists());
}

#[test]
fn the_fence_of_a_killed_daemon_is_waited_for() {
    let (target, place) = earlier_run();
    back(&target);
    let command = place.command(&target.addrs(), &format!("{FLAGS} --namespace 1"));
    let (_, place) = place.spawn(command).ready().end(Signal::KILL);
    away(&target);
    let start = Instant::now();
    let daemon = next(&target, place);
    let disk = waits(&daemon);
    assert!(daemon.status().disks[0].held_ms.is_some());
    back(&target);
    eventually("a path works", || daemon.is_live(0));
    goes_on(disk);
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn a_path_to_another_namespace_is_refused_and_requests_wait() {
    let (target, place) = earlier_run();
    let daemon = next(&target, place);
    let disk = waits(&daemon);
    (0..2).for_each(|listener| target.set(listener, OTHER));
    back(&target);
    refused(&daemon, &["cannot serve namespace 1 of", "the front-ends of this socket were shown namespace 1 of"]);
    assert!(daemon.paths().iter().all(|path| path.ios() == 0));
    // The right namespace is back.
    target.set(1, "uuid=1:own");
    daemon.api.act_on_paths(&wanted(1, PathAction::Reset)).unwrap();
    goes_on(disk);
    assert_eq!(daemon.paths()[0].state, PathState::Refused);
}

#[test]
fn a_namespace_that_lacks_something_is_refused() {
    for (from, to, words) in [
        ("\"max_discard_sectors\": 2097152", "\"max_discard_sectors\": 4194304", "the controller has no discard"),
        ("\"max_write_zeroes_sectors\": 2097152", "\"max_write_zeroes_sectors\": 4194304", "has no write zeroes"),
        ("\"block_size\": 512", "\"block_size\": 4096", "its blocks have 512 bytes now, and had 4096 before"),
    ] {
        let (target, place) = earlier_run();
        rewrite(&place, from, to);
        let daemon = next(&target, place);
        eventually("front-ends are served", || daemon.status().disks[0].state == DiskState::Served);
        back(&target);
        refused(&daemon, &["as the front-ends of this socket were shown it", words]);
        assert_eq!(daemon.status().disks[0].path_counts.usable, 0);
    }
}

#[test]
fn a_namespace_that_has_grown_has_the_disk_grow() {
    let target = Target::start(2);
    (0..2).for_each(|path| target.set(path, "size=1:32MiB"));
    let (_, place) = Daemon::start(&target.addrs(), FLAGS).end(Signal::TERM);
    away(&target);
    let daemon = |place: DaemonDirectory| {
        let command = place.command(&target.addrs(), FLAGS);
        place.spawn(command).answers()
    };
    let first = daemon(place);
    let disk = waits(&first);
    assert_eq!(disk.info().capacity_bytes, 32 * MIB);
    (0..2).for_each(|path| target.set(path, "size=1:own"));
    back(&target);
    let capacity = |daemon: &Daemon| daemon.status().disks[0].capacity_bytes;
    eventually("the disk grows", || capacity(&first) == 64 * MIB);
    goes_on(disk);
    // The next daemon shows the size that the guest has seen. A namespace that has shrunk is not used.
    let (_, place) = first.end(Signal::TERM);
    away(&target);
    let second = daemon(place);
    let disk = waits(&second);
    assert_eq!(capacity(&second), 64 * MIB);
    (0..2).for_each(|path| target.set(path, "size=1:32MiB"));
    back(&target);
    let says_why = |error: String| error.contains("has shrunk to");
    eventually("the paths are not used", || second.paths()[0].last_error.clone().is_some_and(says_why));
    assert_eq!(capacity(&second), 64 * MIB);
    (0..2).for_each(|path| target.set(path, "size=1:own"));
    goes_on(disk);
}

/// A front-end that comes after a path sees what the path has shown.
#[test]
fn a_front_end_does_not_see_the_earlier_size_if_a_path_works() {
    let target = Target::start(2);
    (0..2).for_each(|path| target.set(path, "size=1:32MiB"));
    let (_, place) = Daemon::start(&target.addrs(), FLAGS).end(Signal::TERM);
    (0..2).for_each(|path| target.set(path, "size=1:own"));
    let command = place.command(&target.addrs(), FLAGS);
    let daemon = place.spawn(command).answers();
    eventually("a path works", || daemon.is_live(0));
    assert_eq!(Disk::connect_patiently(&daemon.socket()).info().capacity_bytes, 64 * MIB);
}

#[test]
fn a_socket_with_another_namespace_begins_anew() {
    let (target, mut place) = earlier_run();
    for flags in ["--namespace 2", "--namespace 1 --read-only", "--namespace 1 --queues 3"] {
        let command = place.command(&target.addrs(), &format!("{FLAGS} {flags}"));
        let daemon = place.spawn(command).answers();
        is_never_seen(&daemon);
        place = daemon.end(Signal::TERM).1;
    }
    back(&target);
    let command = place.command(&target.addrs(), &format!("{FLAGS} --namespace 2"));
    let daemon = place.spawn(command).ready();
    assert_eq!(Disk::connect_patiently(&daemon.socket()).info().capacity_bytes, 32 * MIB);
}

#[test]
fn a_file_that_cannot_be_used_is_a_warning() {
    let (target, mut place) = earlier_run();
    let text = fs::read_to_string(shown_disk(&place)).unwrap();
    let warning = "cannot use the description of the disk";
    for damaged in [text[..text.len() / 2].into(), text.replace("\"version\": 1", "\"version\": 2"), String::new()] {
        fs::write(shown_disk(&place), damaged).unwrap();
        let daemon = next(&target, place);
        is_never_seen(&daemon);
        assert_eq!(daemon.log().matches(warning).count(), 1, "{}", daemon.log());
        place = daemon.end(Signal::TERM).1;
    }
    // The disk is served once a path works, and the file is there again.
    let daemon = next(&target, place);
    let early = thread::spawn({
        let socket = daemon.socket();
        move || Disk::connect(&socket).read(0)
    });
    back(&target);
    assert_eq!(early.join().unwrap(), 7);
    assert_eq!(fs::read_to_string(shown_disk(&daemon.place)).unwrap(), text);
}

#[test]
fn a_removed_disk_is_forgotten() {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --namespace 1"));
    assert!(shown_disk(&daemon.place).exists());
    daemon.api.remove_disk("disk0", false).unwrap();
    assert!(!shown_disk(&daemon.place).exists());
    // Its namespace may become another one.
    (0..2).for_each(|listener| target.set(listener, OTHER));
    let mut again = config(&daemon.place, "disk.sock", &target.addrs());
    again.namespace = "1".parse().ok();
    daemon.api.add_disk(&again).unwrap();
    assert!(shown_disk(&daemon.place).exists());
}

#[test]
fn a_daemon_sleeps_while_its_targets_are_away() {
    let (target, place) = earlier_run();
    for (place, state) in [(place, "restored"), (DaemonDirectory::new(), "never seen")] {
        let daemon = next(&target, place);
        thread::sleep(Duration::from_secs(2));
        let before = daemon.processor_ticks();
        thread::sleep(Duration::from_secs(3));
        let ticks = daemon.processor_ticks() - before;
        assert!(ticks < 30, "{state}: {ticks} ticks of 10 ms in 3 s");
    }
}

/// Until every path was tried, any controller may have unflushed writes of the killed daemon.
#[test]
fn an_end_without_a_path_does_not_forget_a_kill() {
    let (target, place) = earlier_run();
    back(&target);
    let command = place.command(&target.addrs(), &format!("{FLAGS} --namespace 1"));
    let first = place.spawn(command).ready();
    let mut disk = Disk::connect_patiently(&first.socket());
    assert_eq!((disk.write(0, 9), disk.write(4096, 9)), (Status::Ok, Status::Ok));
    let (_, place) = first.end(Signal::KILL);
    drop(disk);

    away(&target);
    let second = next(&target, place);
    eventually("the fence has passed", || second.status().disks[0].held_ms.is_none());
    let health = second.status().disks.remove(0).health;
    assert_eq!(health.condition, Condition::Held, "{health:?}");
    assert!(health.reasons[0].message.contains("until every path was tried"), "{health:?}");
    let resumed =
        |daemon: &Daemon| daemon.api.events(0).unwrap().events.iter().any(|event| event.kind == EventKind::DiskResumed);
    assert!(!resumed(&second));
    let (ended, place) = second.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);

    back(&target);
    target.set(1, "black-hole=stall");
    let third = next(&target, place);
    let mut disk = Disk::connect_patiently(&third.socket());
    assert_eq!(disk.flush(), Status::Ok);
    assert!(third.paths()[1].last_error.is_some(), "the first flush after the kill did not wait for path 1");
    eventually("an event tells", || resumed(&third));
}
