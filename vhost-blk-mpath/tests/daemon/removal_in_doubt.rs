//! Disks removed with writes in doubt: what happens to their sockets and namespaces.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::client::Client;
use mpath_api::types::{DiskState, ErrorCode, EventKind};
use mpath_config::DiskConfig;
use vublk_bench::request::Status;

use crate::live_disks::{config, events, refusal, target};
use crate::support::{Daemon, Disk, NQN, PATIENCE, Target, eventually, refusing_address};

/// A disk on one of the target's two namespaces.
fn on(daemon: &Daemon, target: &Target, name: &str, namespace: u32) -> DiskConfig {
    DiskConfig {
        namespace: namespace.to_string().parse().ok(),
        keep_alive_tmo: "1".parse().unwrap(),
        ..config(&daemon.place, name, &target.addrs())
    }
}

/// A front-end of the disk, with a write in flight that the target holds.
fn with_a_held_write(daemon: &Daemon, target: &Target, disk: &str) -> Disk {
    let mut front_end = Disk::connect(&daemon.place.file(disk));
    assert_eq!(front_end.write(0, 1), Status::Ok);
    (0..2).for_each(|path| target.set(path, "hold=on"));
    front_end.submit_write(1, 0, 2);
    eventually("the write is held", || target.status().iter().any(|path| path.held == 1));
    front_end
}

/// After the fence has passed, the disk's record has none, and does not mention a refused namespace.
#[test]
fn a_fence_that_has_passed_delays_no_disk() {
    let target = target();
    target.fail_cross_resets();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let data = on(&daemon, &target, "data", 1);
    daemon.api.add_disk(&data).unwrap();
    let front_end = with_a_held_write(&daemon, &target, "data");
    daemon.api.remove_disk("data", true).unwrap();
    let removed = Instant::now();
    let given_up = "its requests are given up without an answer disk=\"data\" queue=0 requests=1";
    assert!(daemon.log().contains(given_up), "by a name that somebody knows: {}", daemon.log());
    drop(front_end);
    (0..2).for_each(|path| target.set(path, "hold=off"));

    let elsewhere = on(&daemon, &target, "more", 2);
    let (code, said) =
        refusal(daemon.api.add_disk(&DiskConfig { socket_path: data.socket_path.clone(), ..elsewhere.clone() }));
    assert!(code == ErrorCode::DiskNotStarted && said.contains("this socket last served namespace 1 of"), "{said}");
    let added = daemon.api.add_disk(&elsewhere).unwrap();
    assert_eq!(added[0].held_ms, None, "nobody has written to that namespace: {}", daemon.log());

    // The fence takes 2.1 s.
    thread::sleep(Duration::from_secs(3).saturating_sub(removed.elapsed()));
    eventually("the next daemon has no fence to wait for", || {
        let record = fs::read_to_string(daemon.place.file("data.fence")).unwrap();
        record.contains("\"fence_ms\": 0") && record.contains(NQN)
    });
    // The record still names the namespace, also after a failed attempt.
    let (_listener, nobody) = refusing_address();
    let path = format!("tcp://{nobody}").parse().unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&DiskConfig { paths: vec![path], ..data.clone() }));
    assert!(said.contains("Connection refused"), "{said}");
    // Also after an attempt that was refused for another reason.
    daemon.api.add_disk(&on(&daemon, &target, "writer", 1)).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&data));
    assert!(said.contains("disk writer already uses namespace"), "{said}");
    for disk in ["writer", "more"] {
        daemon.api.remove_disk(disk, false).unwrap();
    }
    let (_, said) =
        refusal(daemon.api.add_disk(&DiskConfig { socket_path: data.socket_path.clone(), ..elsewhere.clone() }));
    assert!(said.contains("this socket last served namespace 1 of"), "{said}");
    let held = || events(&daemon, "data").iter().filter(|kind| **kind == EventKind::DiskHeld).count();
    let added = daemon.api.add_disk(&data).unwrap();
    assert_eq!((added[0].held_ms, held()), (None, 0), "{}", daemon.log());
    let mut front_end = Disk::connect(&daemon.place.file("data"));
    assert_eq!((front_end.write(0, 3), front_end.read(0)), (Status::Ok, 3));
    drop(front_end);
    // This front-end keeps no in-flight log, which says nothing about the guest of the other.
    eventually("the front-end has left", || daemon.status().disks.iter().all(|disk| !disk.connected));
    daemon.api.remove_disk("data", false).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&DiskConfig { socket_path: data.socket_path, ..elsewhere }));
    assert!(said.contains("this socket last served namespace 1 of"), "{said}");
}

/// The disk that wrote the record wrote to no other namespace.
#[test]
fn a_fence_applies_to_the_namespace_in_its_record() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    fs::copy(daemon.place.fence_record(), daemon.place.file("data.fence")).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&on(&daemon, &target, "data", 2)));
    assert!(said.contains("this socket last served namespace 1 of"), "{said}");
    let added = daemon.api.add_disk(&on(&daemon, &target, "more", 2)).unwrap();
    assert_eq!(added[0].held_ms, None, "{}", daemon.log());
    let reader = DiskConfig { read_only: true, ..on(&daemon, &target, "reader", 1) };
    let added = daemon.api.add_disk(&reader).unwrap();
    assert!(added[0].held_ms.is_some_and(|held_ms| held_ms > 1000), "{added:?}");
    let told = daemon.api.events(0).unwrap().events;
    let told: Vec<_> = told.into_iter().filter(|event| event.kind == EventKind::DiskHeld).collect();
    let whose = "the previous daemon, or the disk that was on this socket, was killed or left writes in doubt";
    assert!(
        told.len() == 1 && told[0].disk.as_deref() == Some("reader") && told[0].message.contains(whose),
        "{told:?}"
    );
}

/// A refused disk has written nothing. A disk that waits for the fence found on its socket is not told that it has.
#[test]
fn a_refused_disk_is_not_blamed_for_earlier_writes() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    fs::copy(daemon.place.fence_record(), daemon.place.file("data.fence")).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&on(&daemon, &target, "data", 1)));
    assert!(said.contains("disk disk0 already uses namespace"), "{said}");
    let reader = DiskConfig { read_only: true, ..on(&daemon, &target, "reader", 1) };
    assert!(daemon.api.add_disk(&reader).unwrap()[0].held_ms.is_some_and(|held_ms| held_ms > 1000));
    let mut told = daemon.api.events(0).unwrap().events;
    told.retain(|event| event.kind == EventKind::DiskHeld);
    let whose = "the previous daemon, or the disk that was on this socket, was killed or left writes in doubt";
    assert!(
        told.len() == 1 && told[0].disk.as_deref() == Some("reader") && told[0].message.contains(whose),
        "{told:?}"
    );
}

/// Calls `meanwhile` while a disk with a write in flight is being removed. Removal takes ten seconds unless the
/// target answers.
fn while_it_is_removed(daemon: &Daemon, target: &Target, disk: &str, meanwhile: impl FnOnce()) {
    let _front_end = with_a_held_write(daemon, target, disk);
    thread::scope(|scope| {
        let api = Client::new(&daemon.place.api(), PATIENCE).unwrap();
        let removing = scope.spawn(move || api.remove_disk(disk, true));
        eventually("the socket is closed", || UnixStream::connect(daemon.place.file(disk)).is_err());
        meanwhile();
        assert!(!removing.is_finished());
        (0..2).for_each(|path| target.set(path, "hold=off"));
        removing.join().unwrap().unwrap();
    });
}

/// The second disk must not wait for the lock that this very daemon holds.
#[test]
fn a_socket_in_use_is_recognised_under_any_spelling() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    daemon.api.add_disk(&on(&daemon, &target, "data", 1)).unwrap();
    let file = |name: &str| daemon.place.file(name).to_str().unwrap().to_owned();
    let directory = file("data").strip_suffix("/data").unwrap().to_owned();
    symlink(&directory, file("link")).unwrap();
    let refused = |spelling: &str, part: &str| {
        let config = DiskConfig { socket_path: spelling.parse().unwrap(), ..on(&daemon, &target, "more", 2) };
        let (code, said) = refusal(daemon.api.add_disk(&config));
        assert!(said.contains(&format!("`{spelling}` is {part} the socket of `data`")), "{code:?}: {said}");
        code
    };
    let spellings = [format!("{directory}/./data"), format!("{directory}//data"), file("link/data")];
    for spelling in &spellings {
        assert_eq!(refused(spelling, "also"), ErrorCode::DiskExists);
    }
    while_it_is_removed(&daemon, &target, "data", || {
        for spelling in &spellings {
            assert_eq!(refused(spelling, "still"), ErrorCode::DiskLeaving);
        }
    });
    daemon
        .api
        .add_disk(&DiskConfig { socket_path: spellings[2].parse().unwrap(), ..on(&daemon, &target, "data", 1) })
        .unwrap();
}

/// Only the later addition is refused.
#[test]
fn of_two_disks_added_at_once_one_gets_the_socket() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    for _ in 0..10 {
        let added = thread::scope(|scope| {
            let adding = [("data", "socket", 1), ("more", "./socket", 2)].map(|(name, socket, namespace)| {
                let socket = daemon.place.file(socket).to_str().unwrap().parse().unwrap();
                let config = DiskConfig { socket_path: socket, ..on(&daemon, &target, name, namespace) };
                let api = Client::new(&daemon.place.api(), PATIENCE).unwrap();
                scope.spawn(move || api.add_disk(&config).map(|added| added[0].name.clone()))
            });
            adding.map(|adding| adding.join().unwrap())
        });
        let (name, refused) = match added {
            [Ok(name), refused] | [refused, Ok(name)] => (name, refused),
            refused => panic!("{refused:?}"),
        };
        let (code, said) = refusal(refused);
        assert!(code == ErrorCode::DiskExists && said.contains(&format!("is also the socket of `{name}`")), "{said}");
        daemon.api.remove_disk(&name, false).unwrap();
    }
}

/// Locations of sockets are determined once: a hanging file system must not prevent other disks from being added.
#[test]
fn a_socket_in_use_is_recognised_after_its_directory_moved() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let [before, after] = ["before", "after"].map(|name| daemon.place.file(name));
    fs::create_dir(&before).unwrap();
    let at = |name: &str, namespace, socket: &Path| DiskConfig {
        socket_path: socket.to_str().unwrap().parse().unwrap(),
        ..on(&daemon, &target, name, namespace)
    };
    daemon.api.add_disk(&at("data", 1, &before.join("socket"))).unwrap();
    fs::rename(&before, &after).unwrap();
    let (code, said) = refusal(daemon.api.add_disk(&at("more", 2, &after.join("socket"))));
    assert!(code == ErrorCode::DiskExists && said.contains("is also the socket of `data`"), "{said}");
}

#[test]
fn a_disk_being_removed_is_reported_as_such() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let data = on(&daemon, &target, "data", 1);
    daemon.api.add_disk(&data).unwrap();
    let states = || daemon.status().disks.iter().map(|disk| disk.state).collect::<Vec<_>>();
    assert_eq!(states(), [DiskState::Served; 2]);
    while_it_is_removed(&daemon, &target, "data", || {
        assert_eq!(states(), [DiskState::Served, DiskState::Removing]);
        let remedy = "wait up to 15 s until `mpathctl disk list` does not show that disk, and try again";
        let elsewhere =
            DiskConfig { socket_path: daemon.place.file("x").to_str().unwrap().parse().unwrap(), ..data.clone() };
        let said = refusal(daemon.api.add_disk(&elsewhere));
        let by_name = format!("cannot add disk `data`: another disk of this name is being removed; {remedy}");
        assert_eq!(said, (ErrorCode::DiskLeaving, by_name));
        let said = refusal(daemon.api.add_disk(&DiskConfig { name: "more".parse().unwrap(), ..data.clone() }));
        let socket = &data.socket_path;
        let by_socket = format!(
            "cannot add disk `more`: `{socket}` is still the socket of `data`, which is being removed; {remedy}"
        );
        assert_eq!(said, (ErrorCode::DiskLeaving, by_socket));
        let said = refusal(daemon.api.remove_disk("data", true));
        assert_eq!(said.0, ErrorCode::DiskLeaving);
    });
    daemon.api.add_disk(&data).unwrap();
    assert_eq!(states(), [DiskState::Served; 2]);
}
