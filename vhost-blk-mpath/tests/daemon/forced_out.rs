//! Disks that are removed with writes in doubt, and what becomes of their sockets and namespaces.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::client::Client;
use mpath_api::config::DiskConfig;
use mpath_api::types::{DiskState, ErrorCode, EventKind};
use vublk_bench::request::Status;

use crate::live_disks::{config, events, refusal, target};
use crate::support::{Daemon, Disk, NQN, PATIENCE, Target, eventually, refusing_address};

/// A disk on a namespace of a target of two.
fn on(daemon: &Daemon, target: &Target, name: &str, namespace: u32) -> DiskConfig {
    DiskConfig {
        namespace: namespace.to_string().parse().ok(),
        keep_alive_tmo: "1".parse().unwrap(),
        ..config(&daemon.place, name, &target.addrs())
    }
}

/// A front-end of the disk with a write in flight that is not answered before its target lets go.
fn with_a_held_write(daemon: &Daemon, target: &Target, disk: &str) -> Disk {
    let mut front_end = Disk::connect(&daemon.place.file(disk));
    assert_eq!(front_end.write(0, 1), Status::Ok);
    (0..2).for_each(|path| target.set(path, "hold=on"));
    front_end.submit_write(1, 0, 2);
    eventually("the write is held", || target.status().iter().any(|path| path.held == 1));
    front_end
}

/// What its own record says this daemon has seen pass; and it says nothing of a namespace that was refused.
#[test]
fn a_fence_that_has_passed_holds_nobody() {
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
    assert!(code == ErrorCode::DiskNotStarted && said.contains("on its socket was namespace 1 of"), "{said}");
    let added = daemon.api.add_disk(&elsewhere).unwrap();
    assert_eq!(added[0].held_ms, None, "nobody has written to that namespace: {}", daemon.log());

    // It takes 2.1 s.
    thread::sleep(Duration::from_secs(3).saturating_sub(removed.elapsed()));
    eventually("no other daemon waits for it either", || {
        let record = fs::read_to_string(daemon.place.file("data.fence")).unwrap();
        record.contains("\"fence_ms\": 0") && record.contains(NQN)
    });
    // Whose socket it was is known all the same, and after an attempt that failed, too.
    let (_listener, nobody) = refusing_address();
    let path = format!("tcp://{nobody}").parse().unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&DiskConfig { paths: vec![path], ..data.clone() }));
    assert!(said.contains("Connection refused"), "{said}");
    // Or after one that was refused for another reason.
    daemon.api.add_disk(&on(&daemon, &target, "writer", 1)).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&data));
    assert!(said.contains("is also that of disk writer"), "{said}");
    for disk in ["writer", "more"] {
        daemon.api.remove_disk(disk, false).unwrap();
    }
    let (_, said) =
        refusal(daemon.api.add_disk(&DiskConfig { socket_path: data.socket_path.clone(), ..elsewhere.clone() }));
    assert!(said.contains("on its socket was namespace 1 of"), "{said}");
    let held = || events(&daemon, "data").iter().filter(|kind| **kind == EventKind::DiskHeld).count();
    let added = daemon.api.add_disk(&data).unwrap();
    assert_eq!((added[0].held_ms, held()), (None, 0), "{}", daemon.log());
    let mut front_end = Disk::connect(&daemon.place.file("data"));
    assert_eq!((front_end.write(0, 3), front_end.read(0)), (Status::Ok, 3));
    drop(front_end);
    // That one keeps no in-flight log, and says nothing of a guest that does.
    eventually("the front-end has left", || daemon.status().disks.iter().all(|disk| !disk.connected));
    daemon.api.remove_disk("data", false).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&DiskConfig { socket_path: data.socket_path, ..elsewhere }));
    assert!(said.contains("on its socket was namespace 1 of"), "{said}");
}

/// As whoever wrote it did not write to anything else.
#[test]
fn a_fence_counts_for_the_namespace_that_its_record_names() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    fs::copy(daemon.place.fence_record(), daemon.place.file("data.fence")).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&on(&daemon, &target, "data", 2)));
    assert!(said.contains("on its socket was namespace 1 of"), "{said}");
    let added = daemon.api.add_disk(&on(&daemon, &target, "more", 2)).unwrap();
    assert_eq!(added[0].held_ms, None, "{}", daemon.log());
    let reader = DiskConfig { read_only: true, ..on(&daemon, &target, "reader", 1) };
    let added = daemon.api.add_disk(&reader).unwrap();
    assert!(added[0].held_ms.is_some_and(|held_ms| held_ms > 1000), "{added:?}");
    let told = daemon.api.events(0, 0).unwrap().events;
    let told: Vec<_> = told.into_iter().filter(|event| event.kind == EventKind::DiskHeld).collect();
    let whose = "who served the disk before did not end in order";
    assert!(told.len() == 1 && told[0].disk == "reader" && told[0].message.contains(whose), "{told:?}");
}

/// A disk that was refused has written nothing: who waits for what was found on its socket is not told that it has.
#[test]
fn a_refused_disk_is_not_named_for_the_writes_of_others() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    fs::copy(daemon.place.fence_record(), daemon.place.file("data.fence")).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&on(&daemon, &target, "data", 1)));
    assert!(said.contains("is also that of disk disk0"), "{said}");
    let reader = DiskConfig { read_only: true, ..on(&daemon, &target, "reader", 1) };
    assert!(daemon.api.add_disk(&reader).unwrap()[0].held_ms.is_some_and(|held_ms| held_ms > 1000));
    let mut told = daemon.api.events(0, 0).unwrap().events;
    told.retain(|event| event.kind == EventKind::DiskHeld);
    let whose = "who served the disk before did not end in order";
    assert!(told.len() == 1 && told[0].disk == "reader" && told[0].message.contains(whose), "{told:?}");
}

/// Calls `meanwhile` while a disk with a write in flight is being removed, which takes ten seconds unless the target lets go.
fn while_it_is_removed(daemon: &Daemon, target: &Target, disk: &str, meanwhile: impl FnOnce()) {
    let _front_end = with_a_held_write(daemon, target, disk);
    thread::scope(|scope| {
        let api = Client::new(&daemon.place.api(), PATIENCE).unwrap();
        let removing = scope.spawn(move || api.remove_disk(disk, true));
        eventually("nobody listens", || UnixStream::connect(daemon.place.file(disk)).is_err());
        let begun = Instant::now();
        meanwhile();
        assert!(begun.elapsed() < Duration::from_secs(5) && !removing.is_finished(), "{:?}", begun.elapsed());
        (0..2).for_each(|path| target.set(path, "hold=off"));
        removing.join().unwrap().unwrap();
    });
}

/// Nobody waits for the lock beside it, which this very daemon has.
#[test]
fn a_socket_is_taken_by_any_spelling() {
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

/// The one that has it is the culprit for the other, and not the other way round as well.
#[test]
fn of_two_that_want_one_socket_at_once_one_gets_it() {
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

/// Where the sockets of others are is not asked again: a file system that does not answer any more keeps no disk from being added.
#[test]
fn a_socket_is_taken_wherever_its_directory_has_gone() {
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
fn a_disk_that_is_being_removed_is_said_to_be() {
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
