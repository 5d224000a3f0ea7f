//! Disks that are added and removed while the daemon runs.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::client::{Client, ClientError};
use mpath_api::types::{
    ActOnPaths, ErrorCode, EventKind, PathAction, PathSelector, RemovedDisk, SetLimits, SetSettings, WaitsFor,
};
use mpath_config::{DiskConfig, Hedge, PolicyKind, SchedulerKind, SharerConfig};
use mpath_target::NamespaceConfig;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::scheduler::switch;
use crate::support::{
    Daemon, DaemonDirectory, Disk, LASTING, NQN, PATIENCE, Target, Verification, VerificationSetup, eventually,
    own_address,
};

/// A disk with these paths, on a socket of its name.
pub(crate) fn config(place: &DaemonDirectory, name: &str, paths: &[SocketAddr]) -> DiskConfig {
    let socket = place.file(name).to_str().unwrap().parse().unwrap();
    let paths = paths.iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let (name, keep_alive_tmo) = (name.parse().unwrap(), LASTING.parse().unwrap());
    DiskConfig { name, keep_alive_tmo, ..DiskConfig::new(socket, NQN.parse().unwrap(), paths) }
}

/// On the second namespace.
fn second(place: &DaemonDirectory, name: &str, target: &Target) -> DiskConfig {
    DiskConfig { namespace: "2".parse().ok(), ..config(place, name, &target.addrs()) }
}

pub(crate) fn target() -> Target {
    Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)))
}

fn names(daemon: &Daemon) -> Vec<String> {
    daemon.api.disks(None).unwrap().into_iter().map(|disk| disk.name).collect()
}

/// The code and message of an error.
#[track_caller]
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (ErrorCode, String) {
    match answer {
        Err(ClientError::Refused(error)) => (error.code, error.message),
        other => panic!("{other:?}"),
    }
}

/// The answer for removed disks without anything in doubt.
fn removed(disks: &[&str]) -> Vec<RemovedDisk> {
    disks.iter().map(|&disk| RemovedDisk { disk: disk.into(), in_doubt_ms: None }).collect()
}

/// The events of a disk, by kind. Events of its paths depend on the machine's load and are left out.
pub(crate) fn events(daemon: &Daemon, disk: &str) -> Vec<EventKind> {
    let events = daemon.api.events(0).unwrap().events.into_iter().filter(|event| event.disk.as_deref() == Some(disk));
    events.filter(|event| event.path.is_none()).map(|event| event.kind).collect()
}

fn metrics(daemon: &Daemon) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.place.api()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_disk_comes_and_goes_while_another_one_is_in_use() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --policy round-robin");
    let first = Verification::start(&daemon.socket(), VerificationSetup::default());
    first.goes_on(100);
    let before = (daemon.settled_resources(), target.connections(0));
    for _ in 0..3 {
        let added = daemon.api.add_disk(&second(&daemon.place, "data", &target)).unwrap();
        assert_eq!((added.len(), &*added[0].name, added[0].path_counts.usable), (1, "data", 2));
        assert_eq!((added[0].capacity_bytes, added[0].namespace), (32 << 20, Some(2)));
        assert_eq!(names(&daemon), ["disk0", "data"]);
        assert_eq!(daemon.paths().len(), 4);
        let verification = Verification::start(&daemon.place.file("data"), VerificationSetup::default());
        verification.goes_on(200);
        let told = metrics(&daemon);
        assert!(told.contains("disk_connected{disk=\"data\"} 1"), "{told}");
        let (code, said) = refusal(daemon.api.remove_disk("data", false));
        assert!(code == ErrorCode::DiskConnected && said.contains("`data`") && said.contains("--force"), "{said}");
        verification.goes_on(200);
        verification.finish();
        eventually("the front-end has left", || !daemon.status().disks[1].connected);
        assert_eq!(daemon.api.remove_disk("data", false).unwrap(), removed(&["data"]));
        assert_eq!(names(&daemon), ["disk0"]);
        assert!(!metrics(&daemon).contains("disk=\"data\""));
        assert!(!daemon.place.file("data").exists() && !daemon.place.file("data.fence").exists());
        first.goes_on(100);
        eventually("its connections are closed", || target.connections(0) == before.1);
        daemon.comes_back_to(before.0);
    }
    let (connected, disconnected) = (EventKind::FrontEndConnected, EventKind::FrontEndDisconnected);
    let (first_path, added) = (EventKind::VolatileWriteCache, EventKind::DiskAdded);
    let life = [first_path, added, connected, disconnected, EventKind::DiskRemove, EventKind::DiskRemoved];
    assert_eq!(events(&daemon, "data"), [life; 3].concat());
    first.finish();
    assert_eq!(daemon.status().disks[0].path_counts.usable, 2);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

/// A change for all disks applies to those that exist.
#[test]
fn a_change_for_all_disks_ignores_disks_being_removed() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    let data = second(&daemon.place, "data", &target);
    thread::scope(|scope| {
        let comes_and_goes = scope.spawn(|| {
            let api = Client::new(&daemon.place.api(), PATIENCE).unwrap();
            for _ in 0..20 {
                api.add_disk(&data).unwrap();
                api.remove_disk("data", false).unwrap();
            }
        });
        let mut policies = [PolicyKind::RoundRobin, PolicyKind::Numa].into_iter().cycle();
        while !comes_and_goes.is_finished() {
            daemon.api.set(&policies.next().unwrap().into()).unwrap();
            daemon.api.set(&SetSettings { hedge: Some(Hedge::Off), ..SetSettings::default() }).unwrap();
            switch(&daemon, SchedulerKind::Fifo, &[]);
            let limits = SetLimits { burst: "2s".parse().ok(), ..SetLimits::default() };
            daemon.api.set(&SetSettings { all: true, ..limits.into() }).unwrap();
        }
    });
    let last = daemon.api.set(&PolicyKind::RoundRobin.into()).unwrap();
    assert_eq!((last.len(), last[0].policy), (1, PolicyKind::RoundRobin.into()));
    // A disk that is named and missing is an error.
    let named = SetSettings::from(PolicyKind::Numa).of("data");
    assert_eq!(refusal(daemon.api.set(&named)).0, ErrorCode::UnknownDisk);
}

#[test]
fn writes_of_a_force_removed_disk_do_not_overwrite_newer_data() {
    force_removal(false, "data");
}

/// A drain of the disk's controller does not delay the removal.
#[test]
fn a_drain_does_not_delay_a_forced_removal() {
    force_removal(true, "data");
}

/// The same writes are in doubt if the namespace moves to another socket and other paths.
#[test]
fn writes_of_a_force_removed_disk_do_not_overwrite_another_disk() {
    force_removal(false, "moved");
}

/// The disk ends as at the end of the daemon: front-ends are hung up on, and writes in doubt are recorded. The next
/// disk on this namespace waits.
fn force_removal(drain_fence: bool, next: &str) {
    let target = Target::start(2);
    target.fail_cross_resets();
    let mut daemon = Daemon::start(&target.addrs(), "--read-only");
    // The fence takes 6.1 s. A busy machine does not lose the path before.
    let keep_alive_tmo = "3".parse().unwrap();
    let config = |name: &str, paths: &[SocketAddr]| DiskConfig {
        keep_alive_tmo,
        drain_fence,
        ..self::config(&daemon.place, name, paths)
    };
    let socket = daemon.place.file("data");
    let data = config("data", &target.addrs()[1..]);
    daemon.api.add_disk(&data).unwrap();
    let mut disk = Disk::connect(&socket);
    assert_eq!(disk.write(0, 1), Status::Ok);
    let connections = target.connections(1);
    // The front-end has ten seconds, and the fence takes six. The write is executed in between.
    target.set(1, "hold=12s");
    disk.submit_write(1, 0, 2);
    eventually("it is held", || target.status()[1].held == 1);
    target.set(1, "hold=1ms");
    let begun = Instant::now();
    thread::scope(|scope| {
        let removed = scope.spawn(|| daemon.api.remove_disk("data", true).unwrap());
        // A front-end reconnects when it is hung up on, and would wait in the backlog of the closing socket.
        eventually("the socket is closed", || UnixStream::connect(&socket).is_err());
        assert!(begun.elapsed() < Duration::from_secs(8) && !removed.is_finished());
        let in_doubt_ms = removed.join().unwrap()[0].in_doubt_ms;
        assert!(in_doubt_ms.is_some_and(|in_doubt_ms| (6000..6200).contains(&in_doubt_ms)), "{in_doubt_ms:?}");
    });
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(9), "{took:?}");
    assert_eq!(names(&daemon), ["disk0"]);
    assert!(!socket.exists() && daemon.place.file("data.fence").exists());
    assert!(daemon.log().contains("writes were given up and may still be executed"), "{}", daemon.log());
    assert!(
        daemon.log().contains("disk removed; writes to its namespace may still be executed for 6.1 s"),
        "{}",
        daemon.log()
    );
    drop(disk);

    let begun = Instant::now();
    let elsewhere = next != "data";
    let again = if elsewhere { config(next, &target.addrs()[..1]) } else { data };
    let added = daemon.api.add_disk(&again).unwrap();
    assert!(added[0].held_ms.is_some_and(|held_ms| held_ms > 1000), "{added:?}");
    // A daemon killed now leaves the wait to the next.
    let record = fs::read_to_string(daemon.place.file(&format!("{next}.fence"))).unwrap();
    assert!(record.contains("\"fence_ms\": 6100"), "{record}");
    // It does not forget unflushed writes either: it has the controller flush them before it closes the path.
    let path = daemon.paths().iter().position(|path| path.disk == next).unwrap();
    let disable = ActOnPaths {
        path: PathSelector::Index(0),
        disk: Some(next.into()),
        all: false,
        action: PathAction::Disable,
        force: true,
    };
    let listener = usize::from(!elsewhere);
    target.set(listener, "black-hole=stall");
    daemon.api.act_on_paths(&disable).unwrap();
    eventually("the flush is under way", || daemon.paths()[path].waits_for == [WaitsFor::Flush]);
    target.set(listener, "black-hole=off");
    daemon.api.act_on_paths(&ActOnPaths { action: PathAction::Enable, ..disable }).unwrap();
    let mut disk = Disk::connect_patiently(&daemon.place.file(next));
    assert_eq!((disk.write(0, 3), disk.read(0)), (Status::Ok, 3));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it has waited for the fence: {:?}", begun.elapsed());
    assert!(elsewhere || target.connections(1) == connections, "of the disk before there are none");
    eventually("the old write's time has come", || target.status()[1].held == 0);
    assert_eq!(disk.read(0), 3);
    assert!(daemon.is_running());
}

#[test]
fn a_disk_is_not_added_for_the_reasons_that_prevent_a_start() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    let (place, before) = (&daemon.place, daemon.settled_resources());
    let refused = |config: &DiskConfig| refusal(daemon.api.add_disk(config));
    let data = second(place, "data", &target);

    let twice = DiskConfig { paths: [&data.paths[..], &data.paths[..]].concat(), ..data.clone() };
    let (code, said) = refused(&twice);
    assert_eq!(code, ErrorCode::BadRequest);
    assert!(said.contains("paths[2]") && said.contains("is also paths[0]"), "{said}");
    let api = place.api();
    let (directory, name) = (api.parent().unwrap().display(), api.file_name().unwrap().display());
    for spelling in [api.display().to_string(), format!("{directory}/./{name}")] {
        let (code, said) = refused(&DiskConfig { socket_path: spelling.parse().unwrap(), ..data.clone() });
        assert!(code == ErrorCode::BadRequest && said.contains("is also the API's socket"), "{said}");
    }
    let (code, said) = refused(&DiskConfig { name: "disk0".parse().unwrap(), ..data.clone() });
    assert!(code == ErrorCode::DiskExists && said.contains("`disk0`"), "{said}");
    let (code, said) =
        refused(&DiskConfig { socket_path: place.socket().to_str().unwrap().parse().unwrap(), ..data.clone() });
    assert!(code == ErrorCode::DiskExists && said.contains("is also the socket of `disk0`"), "{said}");

    let (code, said) = refused(&DiskConfig { namespace: "7".parse().ok(), ..data.clone() });
    assert_eq!(code, ErrorCode::DiskNotStarted);
    assert!(said.contains("disk data: no path leads to a namespace") && said.contains('7'), "{said}");
    let (_listener, nobody) = crate::support::refusing_address();
    let (_, said) = refused(&config(place, "data", &[nobody]));
    assert!(said.contains(&format!("tcp://{nobody}: Connection refused")), "{said}");
    let taken = UnixListener::bind(place.file("data")).unwrap();
    let (_, said) = refused(&data);
    assert!(said.contains("another process listens on this vhost-user socket"), "{said}");
    drop(taken);
    // A program that another test starts may have the socket open for a moment.
    eventually("nothing listens there", || UnixStream::connect(place.file("data")).is_err());

    assert_eq!(names(&daemon), ["disk0"]);
    let not_added = events(&daemon, "data");
    assert_eq!(not_added, [EventKind::DiskNotAdded; 3]);
    daemon.comes_back_to(before);
    // Nothing is left that could prevent it.
    daemon.api.add_disk(&data).unwrap();
    assert_eq!(names(&daemon), ["disk0", "data"]);
    let (code, said) = refusal(daemon.api.remove_disk("backup", true));
    assert!(code == ErrorCode::UnknownDisk && said.contains("`backup`"), "{said}");
}

/// Of two disks added at once, either one may win, but not both.
#[test]
fn a_disk_that_would_write_to_the_namespace_of_another_one_is_not_added() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let first = DiskConfig { namespace: "1".parse().ok(), ..config(&daemon.place, "data", &target.addrs()) };
    daemon.api.add_disk(&first).unwrap();
    let before = daemon.settled_resources();
    let second = DiskConfig { namespace: "1".parse().ok(), ..config(&daemon.place, "more", &target.addrs()[1..]) };
    let (code, said) = refusal(daemon.api.add_disk(&second));
    assert_eq!(code, ErrorCode::DiskNotStarted);
    assert!(said.contains("disk more: disk data already uses namespace 1 of"), "{said}");
    assert_eq!(names(&daemon), ["disk0", "data"]);
    assert!(!daemon.place.file("more").exists());
    daemon.comes_back_to(before);
    daemon.api.add_disk(&DiskConfig { read_only: true, ..second.clone() }).unwrap();
    for disk in ["more", "data"] {
        daemon.api.remove_disk(disk, true).unwrap();
    }
    let both = thread::scope(|scope| {
        let add = |config| {
            let api = Client::new(&daemon.place.api(), PATIENCE).unwrap();
            scope.spawn(move || api.add_disk(config))
        };
        [add(&first), add(&second)].map(|adding| adding.join().unwrap().is_ok())
    });
    assert!(both[0] != both[1], "{both:?}");
    assert_eq!(names(&daemon).len(), 2);
}

#[test]
fn a_relative_socket_path_is_refused() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    let socket_path = "data.sock".parse().unwrap();
    let (code, said) =
        refusal(daemon.api.add_disk(&DiskConfig { socket_path, ..second(&daemon.place, "data", &target) }));
    assert_eq!(code, ErrorCode::BadRequest);
    assert!(
        said.contains("disk `data`: socket-path: `data.sock` is relative") && said.contains("give an absolute path")
    );
    assert_eq!(names(&daemon), ["disk0"]);
}

/// They were added together.
#[test]
fn disks_that_share_paths_go_together() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let before = daemon.settled_resources();
    let sharer = SharerConfig::new(
        "backup".parse().unwrap(),
        daemon.place.file("backup").to_str().unwrap().parse().unwrap(),
        "2".parse().unwrap(),
    );
    let owner = DiskConfig {
        namespace: "1".parse().ok(),
        share_paths_with: vec![sharer],
        ..config(&daemon.place, "data", &target.addrs())
    };
    for force in [false, true] {
        let added = daemon.api.add_disk(&owner).unwrap();
        assert_eq!(added.iter().map(|disk| &*disk.name).collect::<Vec<_>>(), ["data", "backup"]);
        let mut backup = Disk::connect(&daemon.place.file("backup"));
        assert_eq!((backup.write(0, 5), backup.read(0)), (Status::Ok, 5));
        let (code, said) = refusal(daemon.api.remove_disk("backup", true));
        assert_eq!(code, ErrorCode::SharesPaths);
        assert!(said.ends_with("removed together; `mpathctl disk remove data` removes `data`, `backup`"), "{said}");
        let (code, said) = refusal(daemon.api.remove_disk("data", false));
        assert!(code == ErrorCode::DiskConnected && said.contains("disk `backup` has a front-end connected"), "{said}");
        // Neither of them has changed.
        assert_eq!(Disk::connect(&daemon.place.file("data")).read(0), 0);
        assert_eq!(backup.read(0), 5);
        if !force {
            drop(backup);
            eventually("both front-ends have left", || !daemon.status().disks.iter().any(|disk| disk.connected));
        }
        assert_eq!(daemon.api.remove_disk("data", force).unwrap(), removed(&["data", "backup"]));
        assert_eq!(names(&daemon), ["disk0"]);
        let left = ["data", "backup", "data.fence", "backup.fence"].map(|file| daemon.place.file(file).exists());
        assert_eq!(left, [false; 4]);
    }
    daemon.comes_back_to(before);
    let come_and_go = [EventKind::DiskAdded, EventKind::DiskRemove, EventKind::DiskRemoved];
    for disk in ["data", "backup"] {
        let events = events(&daemon, disk).into_iter().filter(|kind| come_and_go.contains(kind)).collect::<Vec<_>>();
        assert_eq!(events, [come_and_go; 2].concat(), "{disk}");
    }
}

/// Each has its own ten seconds, which no later request of theirs extends.
#[test]
fn front_ends_of_disks_that_go_together_are_hung_up_at_once() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1 --read-only");
    let socket = daemon.place.file("backup").to_str().unwrap().parse().unwrap();
    let sharer = SharerConfig::new("backup".parse().unwrap(), socket, "2".parse().unwrap());
    let owner = DiskConfig {
        namespace: "1".parse().ok(),
        share_paths_with: vec![sharer],
        ..config(&daemon.place, "data", &target.addrs())
    };
    daemon.api.add_disk(&owner).unwrap();
    let mut data = Disk::connect(&daemon.place.file("data"));
    let _backup = Disk::connect(&daemon.place.file("backup"));
    (0..2).for_each(|path| target.set(path, "hold=on"));
    data.submit_write(1, 0, 1);
    eventually("the write is held", || target.status().iter().any(|path| path.held == 1));
    thread::scope(|scope| {
        let removing = scope.spawn(|| Client::new(&daemon.place.api(), PATIENCE).unwrap().remove_disk("data", true));
        let took = eventually("the other one's front-end is hung up", || {
            daemon.status().disks.get(2).is_none_or(|backup| !backup.connected)
        });
        (0..2).for_each(|path| target.set(path, "hold=off"));
        removing.join().unwrap().unwrap();
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

/// A change under way for a client does not delay the end.
#[test]
fn the_end_of_the_daemon_ends_changes_under_way() {
    let target = target();
    let daemon = Daemon::start(&target.addrs(), "--namespace 1");
    // It accepts connections and never answers.
    let silent = TcpListener::bind(own_address()).unwrap();
    let config = config(&daemon.place, "data", &[silent.local_addr().unwrap()]);
    let (api, socket) = (daemon.place.api(), daemon.place.file("data"));
    let adding = thread::spawn(move || Client::new(&api, PATIENCE).unwrap().add_disk(&config));
    let _connected = silent.accept().unwrap();
    eventually("its socket is there", || socket.exists());
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    assert!(!socket.exists());
    assert!(adding.join().unwrap().is_err());
}

#[test]
fn many_disks_are_added_used_and_removed() {
    const DISKS: usize = 64;
    let target = Target::with(1, |config| config.namespaces = vec![NamespaceConfig::memory(1 << 20); DISKS + 1]);
    let daemon = Daemon::start(&target.addrs(), &format!("--namespace {}", DISKS + 1));
    let before = daemon.settled_resources();
    let name = |index: usize| format!("disk-{index}");
    let disk = |index: usize| DiskConfig {
        namespace: (index + 1).to_string().parse().ok(),
        ..config(&daemon.place, &name(index), &target.addrs())
    };
    // By four clients at a time.
    thread::scope(|scope| {
        for client in 0..4 {
            let (place, disk) = (&daemon.place, &disk);
            scope.spawn(move || {
                let api = Client::new(&place.api(), PATIENCE).unwrap();
                for index in (client..DISKS).step_by(4) {
                    api.add_disk(&disk(index)).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&daemon).len(), DISKS + 1);
    let mut disks: Vec<_> = (0..DISKS).map(|index| Disk::connect(&daemon.place.file(&name(index)))).collect();
    for (disk, index) in disks.iter_mut().zip(0_u8..) {
        assert_eq!(disk.write(u64::from(index) * 4096, index + 1), Status::Ok);
    }
    for (disk, index) in disks.iter_mut().zip(0_u8..) {
        assert_eq!(disk.read(u64::from(index) * 4096), index + 1);
    }
    drop(disks);
    for index in 0..DISKS {
        daemon.api.remove_disk(&name(index), true).unwrap();
    }
    assert_eq!(names(&daemon), ["disk0"]);
    daemon.comes_back_to(before);
}
