//! Starting while something is missing.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::{ActOnPaths, DiskState, EventKind, PathAction, PathSelector, PathState, Severity};
use mpath_config::{Config, DiskConfig, NamespaceId};
use mpath_target::{ListenerConfig, NamespaceConfig};
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{
    Daemon, DaemonDirectory, Disk, NQN, Target, Verification, VerificationSetup, disk, eventually, own_address,
    program, refusing_address, sharer, socket_of, target_of,
};

const FLAGS: &str = "--reconnect-delay 1";

/// Accepts connections and never answers.
fn mute() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(own_address()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// An address on which a target can listen later.
fn later() -> SocketAddr {
    let (held, address) = refusing_address();
    drop(held);
    address
}

fn target_at(address: SocketAddr) -> Target {
    Target::with(1, |config| config.listeners = vec![ListenerConfig::new(address)])
}

fn state(daemon: &Daemon, disk: usize) -> DiskState {
    daemon.status().disks[disk].state
}

/// A front-end that connects now, and returns once it is served.
fn front_end(socket: PathBuf) -> thread::JoinHandle<Disk> {
    thread::spawn(move || Disk::connect(&socket))
}

#[test]
fn the_api_answers_while_the_only_target_is_mute() {
    let (_mute, address) = mute();
    let place = DaemonDirectory::new();
    let command = place.command(&[address], FLAGS);
    let daemon = place.spawn(command).answers();
    let disk = daemon.status().disks.remove(0);
    assert!(daemon.paths()[0].last_error.is_none(), "its time is not over");
    assert_eq!((disk.state, disk.path_counts.total, disk.path_counts.usable), (DiskState::Starting, 1, 0));
    eventually("it is ready", || daemon.log().lines().any(|line| line.ends_with(" ready")));
    eventually("the path has failed", || daemon.paths()[0].last_error.is_some());
    assert!(daemon.paths()[0].last_error.as_ref().unwrap().contains("no answer within"), "{:?}", daemon.paths());
}

#[test]
fn a_disk_is_served_at_once_while_another_waits_for_its_target() {
    let (target, address) = (target_of(1, 1, 1 << 20), later());
    let (_mute, muted) = mute();
    let place = DaemonDirectory::new();
    let elsewhere = |index, address| {
        let paths = vec![format!("tcp://{address}").parse().unwrap()];
        let delay = "1".parse().unwrap();
        DiskConfig { paths, namespace: NamespaceId::new(1), reconnect_delay: delay, ..disk(&place, &target, index) }
    };
    let disks = vec![elsewhere(1, muted), disk(&place, &target, 0), elsewhere(2, address)];
    let command = place.configured(disks);
    let daemon = place.spawn(command);
    let away = front_end({
        eventually("the socket is there", || socket_of(&daemon.place, 2).exists());
        socket_of(&daemon.place, 2)
    });
    let mut served = Disk::connect_patiently(&socket_of(&daemon.place, 0));
    assert_eq!(served.write(0, 7), Status::Ok);
    let daemon = daemon.answers();
    assert!(daemon.paths()[0].last_error.is_none(), "the time of the mute path is not over");
    assert_eq!(
        [0, 1, 2].map(|disk| state(&daemon, disk)),
        [DiskState::Starting, DiskState::Served, DiskState::Starting]
    );
    assert!(!away.is_finished());
    let _target = target_at(address);
    let mut came = away.join().unwrap();
    assert_eq!((came.write(0, 8), came.read(0), served.read(0)), (Status::Ok, 8, 7));
    assert_eq!(state(&daemon, 2), DiskState::Served);
}

#[test]
fn a_front_end_that_came_before_the_target_is_served() {
    let address = later();
    let place = DaemonDirectory::new();
    let command = place.command(&[address], FLAGS);
    let daemon = place.spawn(command).answers();
    let early = front_end(daemon.socket());
    eventually("the path is tried", || daemon.paths()[0].last_error.is_some());
    assert_eq!((state(&daemon, 0), early.is_finished()), (DiskState::Starting, false));
    let _target = target_at(address);
    let mut disk = early.join().unwrap();
    assert_eq!((disk.write(0, 3), disk.read(0)), (Status::Ok, 3));
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

/// Disks that share paths are independent too: one of them has no namespace.
#[test]
fn a_disk_is_served_although_a_disk_that_shares_its_paths_has_no_namespace() {
    let target = target_of(1, 1, 1 << 20);
    let place = DaemonDirectory::new();
    let mut config = disk(&place, &target, 0);
    config.share_paths_with = vec![sharer(&place, 1)];
    let command = place.configured(vec![config]);
    let daemon = place.spawn(command).answers();
    assert_eq!(Disk::connect(&socket_of(&daemon.place, 0)).write(0, 7), Status::Ok);
    assert_eq!([0, 1].map(|disk| state(&daemon, disk)), [DiskState::Served, DiskState::Starting]);
    let path = daemon.paths().remove(0);
    assert!(path.sharers[0].unusable.as_ref().is_some_and(|error| error.contains("`namespace` 2")), "{path:?}");
}

/// The disk whose namespace another disk already has is not served, and says why.
#[test]
fn a_second_writer_is_refused_and_the_first_is_served() {
    let target = target_of(1, 1, 1 << 20);
    let place = DaemonDirectory::new();
    let second = DiskConfig { namespace: NamespaceId::new(1), ..disk(&place, &target, 1) };
    let command = place.configured(vec![disk(&place, &target, 0), second]);
    let daemon = place.spawn(command).answers();
    eventually("one path is refused", || daemon.paths().iter().any(|path| path.state == PathState::Refused));
    let refused = daemon.paths().iter().position(|path| path.state == PathState::Refused).unwrap();
    let said = format!("disk disk-{refused}: disk disk-{} already uses namespace 1", 1 - refused);
    assert!(daemon.paths()[refused].last_error.as_ref().unwrap().contains(&said), "{:?}", daemon.paths());
    let events = daemon.api.events(0).unwrap().events;
    let event = events.iter().find(|event| event.kind == EventKind::DiskRefused).unwrap();
    assert!(event.message.contains(&said) && event.disk == Some(format!("disk-{refused}")), "{event:?}");
    let waits = front_end(socket_of(&daemon.place, refused));
    assert_eq!(Disk::connect_patiently(&socket_of(&daemon.place, 1 - refused)).write(0, 7), Status::Ok);
    assert_eq!((state(&daemon, refused), waits.is_finished()), (DiskState::Starting, false));
    // Once the namespace is free, the operator can have the path tried again.
    daemon.api.remove_disk(&format!("disk-{}", 1 - refused), true).unwrap();
    let reset =
        ActOnPaths { path: PathSelector::Index(0), disk: None, all: false, action: PathAction::Reset, force: false };
    daemon.api.act_on_paths(&reset).unwrap();
    assert_eq!(waits.join().unwrap().read(0), 7);
}

/// A killed daemon's disk has the namespace, even if its path comes later than another disk's.
#[test]
fn a_disk_whose_guest_may_come_back_keeps_its_namespace() {
    let (target, address) =
        (Target::with(2, |config| config.namespaces = vec![NamespaceConfig::memory(1 << 20)]), later());
    let place = DaemonDirectory::new();
    let mut first =
        DiskConfig { namespace: NamespaceId::new(1), keep_alive_tmo: "1".parse().unwrap(), ..disk(&place, &target, 0) };
    let command = place.configured(vec![first.clone()]);
    let (_, place) = place.spawn(command).ready().end(Signal::KILL);
    let second = DiskConfig { namespace: NamespaceId::new(1), ..disk(&place, &target, 1) };
    first.paths = vec![format!("tcp://{address}").parse().unwrap()];
    let command = place.configured(vec![second, first]);
    let daemon = place.spawn(command).answers();
    eventually("it is refused", || daemon.paths()[0].state == PathState::Refused);
    assert!(
        daemon.paths()[0].last_error.as_ref().unwrap().contains("disk disk-0 already uses"),
        "{:?}",
        daemon.paths()
    );
}

#[test]
fn a_socket_of_another_guest_is_refused_and_other_disks_are_served() {
    let target = target_of(2, 1, 1 << 20);
    let place = DaemonDirectory::new();
    let short = |index| DiskConfig { keep_alive_tmo: "1".parse().unwrap(), ..disk(&place, &target, index) };
    let (first, second) = (short(0), short(1));
    let other = DiskConfig { namespace: second.namespace, ..first.clone() };
    let third = DiskConfig { namespace: first.namespace, ..second };
    let command = place.configured(vec![first]);
    let (_, place) = place.spawn(command).ready().end(Signal::KILL);
    let command = place.configured(vec![other, third]);
    let daemon = place.spawn(command).answers();
    eventually("it is refused", || daemon.paths()[0].state == PathState::Refused);
    let error = daemon.paths()[0].last_error.clone().unwrap();
    assert!(
        error.contains("this socket last served namespace 1 of") && error.contains("whose guest may come back"),
        "{error}"
    );
    // Nor may the other disk write to the namespace of that guest.
    eventually("nor is the other", || daemon.paths()[1].state == PathState::Refused);
    assert_eq!([0, 1].map(|disk| state(&daemon, disk)), [DiskState::Starting; 2]);
}

#[test]
fn wait_for_any_needs_one_path_of_each_disk() {
    let (target, (_held, nowhere)) = (Target::start(1), refusing_address());
    let place = DaemonDirectory::new();
    let refusal = place.refused(place.command(&[nowhere], "--wait-for any"));
    refusal.says(3, &["disk0", "no path leads to a namespace", &format!("tcp://{nowhere}: Connection refused")]);
    assert!(!place.socket().exists() && !place.api().exists());
    // One live path suffices, and a mute path does not delay the report.
    let (_mute, muted) = mute();
    let command = place.command(&[muted, target.addrs()[0], nowhere], "--wait-for any");
    let daemon = place.spawn(command).answers();
    eventually("it is ready", || daemon.log().lines().any(|line| line.ends_with(" ready")));
    assert!(daemon.paths()[0].last_error.is_none(), "the time of the mute path is not over");
}

#[test]
fn wait_for_all_needs_every_configured_path() {
    let (target, (_held, nowhere)) = (Target::start(2), refusing_address());
    let place = DaemonDirectory::new();
    let refusal = place.refused(place.command(&[target.addrs()[0], nowhere], "--wait-for all"));
    refusal.says(3, &["disk0", "`wait-for` is `all`", &format!("tcp://{nowhere}: Connection refused")]);
    let refusal = place.refused(place.command(&[nowhere], "--wait-for all"));
    refusal.says(3, &["no path leads to a namespace"]);
    // The setting works in a configuration file too.
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let disk = DiskConfig::new(place.socket().to_str().unwrap().parse().unwrap(), NQN.parse().unwrap(), paths);
    let mut config = Config::new(vec![disk]);
    (config.api, config.wait_for) = (place.api().to_str().unwrap().parse().unwrap(), "all".parse().unwrap());
    std::fs::write(place.file("config.yaml"), serde_json::to_string(&config).unwrap()).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    let daemon = place.spawn(command).answers();
    eventually("it is ready", || daemon.log().lines().any(|line| line.ends_with(" ready")));
    assert_eq!(daemon.status().disks[0].path_counts.usable, 2);
}

#[test]
fn sigterm_ends_a_start_without_paths_at_once() {
    let (_mute, address) = mute();
    for flags in ["", "--wait-for any"] {
        let place = DaemonDirectory::new();
        let command = place.command(&[address], flags);
        let daemon = place.spawn(command).answers();
        let waits = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
        let (ended, place) = daemon.end(Signal::TERM);
        ended.cleanly(&place);
        assert!(ended.took < Duration::from_secs(4), "{:?}", ended.took);
        drop(waits);
    }
}

#[test]
fn a_path_that_is_down_at_the_start_is_a_warning_and_comes_up_later() {
    let target = Target::start(2);
    target.stop_listener(1);
    let daemon = Daemon::start(&target.addrs(), "--reconnect-delay 1 --policy round-robin");
    assert!(daemon.is_live(0) && !daemon.is_live(1));
    let warned = format!("tcp://{}", target.addrs()[1]);
    let warning = daemon.log().lines().find(|line| line.contains("WARN") && line.contains(&warned)).map(str::to_owned);
    assert!(warning.is_some_and(|line| line.contains("Connection refused")), "{}", daemon.log());
    assert_eq!(daemon.paths()[1].last_error.as_deref(), Some("Connection refused (os error 111)"));

    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    assert_eq!(daemon.paths()[1].ios(), 0);
    target.resume_listener(1).unwrap();
    eventually("the second path comes up", || daemon.is_live(1));
    assert_eq!(daemon.paths()[1].unusable, None);
    eventually("it is used", || daemon.paths()[1].ios() > 100);
    verification.finish();
}

#[test]
fn connecting_waits_for_no_timer() {
    let (target, start) = (Target::start(2), Instant::now());
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60 --reconnect-delay 60");
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    assert_eq!(daemon.status().disks[0].path_counts.usable, 2);
}

#[test]
fn a_path_to_another_namespace_stays_unused() {
    let (target, stranger) = (Target::start(1), Target::start(1));
    let daemon = Daemon::start(&[target.addrs()[0], stranger.addrs()[0]], "--policy round-robin");
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    verification.finish();
    let used: Vec<_> = daemon.paths().iter().map(|path| (path.state.to_string(), path.ios() > 0)).collect();
    // The first path decides the namespace.
    assert!(
        used == [("live".into(), true), ("refused".into(), false)]
            || used == [("refused".into(), false), ("live".into(), true)],
        "{used:?}"
    );
}

#[test]
fn two_daemons_do_not_share_sockets() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let command = daemon.place.command(&target.addrs(), "");
    let second = DaemonDirectory::new();
    second.refused(command).says(4, &["API socket", daemon.place.api().to_str().unwrap()]);
    assert_eq!(daemon.status().disks[0].path_counts.usable, 1);
    // A second daemon started by mistake must not count as a front-end.
    let again = DaemonDirectory::new();
    let mut command = program();
    command.arg("--api").arg(again.api()).arg("--socket-path").arg(daemon.socket()).args(["--subsystem", NQN]);
    command.arg(format!("--path=tcp://{}", target.addrs()[0]));
    let socket = daemon.socket();
    again.refused(command).says(4, &[socket.to_str().unwrap(), "another process listens on this vhost-user socket"]);
    std::thread::sleep(Duration::from_millis(300));
    let events = daemon.api.events(0).unwrap().events;
    assert!(events.iter().all(|event| event.kind != EventKind::FrontEndConnected), "{events:?}");
}

#[test]
fn a_removed_disk_does_not_end_a_daemon_that_waits_for_paths() {
    let slow = target_of(1, 1, 1 << 20);
    slow.set(0, "black-hole=stall");
    let (_held, nowhere) = refusing_address();
    let place = DaemonDirectory::new();
    let first = disk(&place, &slow, 0);
    let paths = vec![format!("tcp://{nowhere}").parse().unwrap()];
    let second = DiskConfig { paths, ..disk(&place, &slow, 1) };
    let mut config = Config::new(vec![first, second]);
    (config.api, config.wait_for) = (place.api().to_str().unwrap().parse().unwrap(), "any".parse().unwrap());
    std::fs::write(place.file("config.yaml"), serde_json::to_string(&config).unwrap()).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    let mut daemon = place.spawn(command).answers();
    eventually("the path is tried", || daemon.paths()[1].last_error.is_some());
    daemon.api.remove_disk("disk-1", false).unwrap();
    slow.set(0, "black-hole=off");
    // The disk that is gone must not end a daemon that is not ready yet.
    eventually("it is ready", || !daemon.is_running() || daemon.log().contains(" ready"));
    assert!(daemon.is_running(), "{}", daemon.log());
}

#[test]
fn a_disk_that_is_removed_raises_no_alarm() {
    let target = target_of(2, 2, 1 << 20);
    let place = DaemonDirectory::new();
    let command = place.configured(vec![disk(&place, &target, 0), disk(&place, &target, 1)]);
    let daemon = place.spawn(command).ready();
    for _ in 0..5 {
        thread::scope(|scope| {
            let removing = scope.spawn(|| daemon.api.remove_disk("disk-1", true).unwrap());
            while !removing.is_finished() {
                daemon.status();
            }
        });
        daemon.api.add_disk(&disk(&daemon.place, &target, 1)).unwrap();
    }
    let events = daemon.api.events(0).unwrap().events;
    let alarms: Vec<_> = events.iter().filter(|event| event.severity == Severity::Error).collect();
    assert!(alarms.is_empty(), "{alarms:?}");
}
