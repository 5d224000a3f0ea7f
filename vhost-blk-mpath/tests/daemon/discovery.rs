//! Discovered paths, and their changes as the logs change.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mpath_api::types::{DiscoveryController, DiscoveryState, EventKind, Origin, Path, PathSelector};
use rustix::process::Signal;

use crate::support::{
    Daemon, DaemonDirectory, Target, Verification, VerificationSetup, eventually, own_address, refusing_address,
};
use crate::upgrade::NextDaemon;

const FLAGS: &str = "--policy round-robin --reconnect-delay 1 --shared-write-cache";

/// An address for a discovery service, known before the service listens.
fn service() -> SocketAddr {
    SocketAddr::new(own_address().ip(), 8009)
}

/// A target with this many ports and a discovery service that refers to others.
fn target(ports: usize, at: SocketAddr, referrals: &[SocketAddr]) -> Target {
    Target::with(ports, |config| {
        config.discovery = Some(at);
        config.referrals = referrals.to_vec();
    })
}

/// A discovery service that does not list the disk itself.
fn stranger(at: SocketAddr, referrals: &[SocketAddr]) -> Target {
    Target::with(1, |config| {
        config.nqn = "nqn.2014-08.org.example:another".into();
        config.discovery = Some(at);
        config.referrals = referrals.to_vec();
    })
}

fn by_discovery(services: &[SocketAddr], more: &str) -> Daemon {
    let flags: Vec<_> = services.iter().map(|at| format!("--discovery tcp://{at}")).collect();
    Daemon::start(&[], &format!("{FLAGS} {} {more}", flags.join(" ")))
}

/// The paths by the index of their listener, in order. `live` demands that all are live.
fn listeners(daemon: &Daemon, target: &Target) -> Vec<usize> {
    let addrs = target.addrs();
    let index = |path: &Path| addrs.iter().position(|addr| path.address.to_string() == format!("tcp://{addr}"));
    let mut found: Vec<_> = daemon.paths().iter().map(|path| index(path).unwrap()).collect();
    found.sort_unstable();
    found
}

fn all_live(daemon: &Daemon) -> bool {
    let paths = daemon.status().disks[0].path_counts;
    paths.total == paths.usable
}

fn becomes(daemon: &Daemon, target: &Target, expected: &[usize]) {
    eventually(&format!("the paths are those of listeners {expected:?}, and live"), || {
        listeners(daemon, target) == expected && all_live(daemon)
    });
}

fn controllers(daemon: &Daemon) -> Vec<DiscoveryController> {
    daemon.status().discovery
}

fn happened(daemon: &Daemon, kind: EventKind) -> usize {
    daemon.api.events(0).unwrap().events.iter().filter(|event| event.kind == kind).count()
}

#[test]
fn a_disk_with_discovered_paths_only() {
    let target = target(2, service(), &[]);
    let at = target.discovery_addr().unwrap();
    let daemon = by_discovery(&[at], "--keep-alive-tmo 2");
    becomes(&daemon, &target, &[0, 1]);
    let [controller] = &controllers(&daemon)[..] else { panic!("{:?}", controllers(&daemon)) };
    assert_eq!((controller.disk.as_str(), controller.address.to_string()), ("disk0", format!("tcp://{at}")));
    assert_eq!((controller.state, controller.records), (DiscoveryState::Connected, Some(3)));
    assert_eq!(controller.generation, Some(target.discovery_status().unwrap().generation));
    assert_eq!(controller.last_error, None);
    assert!(happened(&daemon, EventKind::DiscoveryConnected) > 0);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(200);
    verification.finish();
    // The target ends a session without keep-alives after two seconds. A busy machine may be late with some.
    let (mut losses, mut since) = (0, Instant::now());
    eventually("a session outlasts that", || {
        let lost = happened(&daemon, EventKind::DiscoveryLost);
        if lost != losses || controllers(&daemon)[0].state != DiscoveryState::Connected {
            (losses, since) = (lost, Instant::now());
        }
        since.elapsed() > Duration::from_secs(3)
    });
}

#[test]
fn paths_come_and_go_with_the_log_under_load() {
    let target = target(3, service(), &[]);
    target.set(2, "listen=off");
    let daemon = by_discovery(&[target.discovery_addr().unwrap()], "--io-threads 2");
    becomes(&daemon, &target, &[0, 1]);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    for (off, on, expected) in [(0, 2, [1, 2]), (1, 0, [0, 2]), (2, 1, [0, 1])] {
        verification.goes_on(200);
        target.set(on, "listen=on");
        becomes(&daemon, &target, &[0, 1, 2]);
        let added =
            daemon.paths().into_iter().find(|path| path.address.to_string() == format!("tcp://{}", target.addrs()[on]));
        let index = added.unwrap().index;
        let ios = || daemon.paths().iter().find(|path| path.index == index).map_or(0, Path::ios);
        eventually("the new path is used", || ios() > 20);
        // The paths stay connected. Only the log says that one must not be used any more.
        target.set(off, "listen=off");
        becomes(&daemon, &target, &expected);
        eventually("it has left in order", || target.connections(off) == 0);
    }
    assert!(happened(&daemon, EventKind::DiscoveryChanged) >= 6);
    assert_eq!(happened(&daemon, EventKind::PathLost), 0, "{}", daemon.log());
    verification.finish();
}

#[test]
fn the_last_usable_path_stays_until_there_is_another() {
    let target = target(2, service(), &[]);
    target.set(1, "listen=off");
    let daemon = by_discovery(&[target.discovery_addr().unwrap()], "");
    becomes(&daemon, &target, &[0]);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    target.set(0, "listen=off");
    eventually("the warning is logged", || daemon.log().contains("it stays until the disk has another usable path"));
    verification.goes_on(200);
    assert_eq!(listeners(&daemon, &target), [0]);
    target.set(1, "listen=on");
    becomes(&daemon, &target, &[1]);
    verification.goes_on(200);
    verification.finish();
    assert_eq!(happened(&daemon, EventKind::PathLost), 0, "{}", daemon.log());
}

#[test]
fn a_path_removed_by_the_operator_returns_only_when_listed_again() {
    let target = target(2, service(), &[]);
    let daemon = by_discovery(&[target.discovery_addr().unwrap()], "");
    becomes(&daemon, &target, &[0, 1]);
    let address = format!("tcp://{}", target.addrs()[1]);
    let removed = daemon.paths().into_iter().find(|path| path.address.to_string() == address).unwrap();
    daemon.api.remove_path("disk0", &PathSelector::Index(removed.index), false).unwrap();
    becomes(&daemon, &target, &[0]);
    // Another log still lists the path, and discovery compares after it.
    let generation = || controllers(&daemon)[0].generation;
    let before = generation();
    target.set(0, "listen=off");
    eventually("the log is read", || generation() > before);
    target.set(0, "listen=on");
    eventually("the log is read", || generation() > before.map(|generation| generation + 1));
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(listeners(&daemon, &target), [0]);
    target.set(1, "listen=off");
    eventually("the log is read", || generation() > before.map(|generation| generation + 2));
    target.set(1, "listen=on");
    becomes(&daemon, &target, &[0, 1]);
}

#[test]
fn configured_paths_are_left_alone() {
    let target = target(2, service(), &[]);
    let flags = format!("{FLAGS} --discovery tcp://{}", target.discovery_addr().unwrap());
    let daemon = Daemon::start(&target.addrs()[..1], &flags);
    becomes(&daemon, &target, &[0, 1]);
    let changed = || controllers(&daemon)[0].generation == Some(target.discovery_status().unwrap().generation);
    target.set(0, "listen=off");
    target.set(1, "listen=off");
    eventually("the log is read", changed);
    becomes(&daemon, &target, &[0]);
}

#[test]
fn referrals_are_followed_and_cycles_end() {
    let [first, second, third] = [service(), service(), service()];
    // The first service refers to the second, the second to the third and back, the third to itself and to the first.
    let (_first, second_target) = (stranger(first, &[second]), stranger(second, &[third, first]));
    let target = target(2, third, &[third, first]);
    let daemon = by_discovery(&[first], "");
    becomes(&daemon, &target, &[0, 1]);
    let found: Vec<_> = controllers(&daemon).iter().map(|controller| controller.address.to_string()).collect();
    assert_eq!(found, [first, second, third].map(|at| format!("tcp://{at}")));
    assert!(controllers(&daemon).iter().all(|controller| controller.state == DiscoveryState::Connected));
    // The daemon learns of changes at the far end, and of changes beyond a service that is gone for a while.
    second_target.apply_to_discovery(&["listen=off".parse().unwrap(), "reset=all".parse().unwrap()]).unwrap();
    eventually("the loss is noticed", || controllers(&daemon)[1].state == DiscoveryState::Lost);
    target.set(1, "listen=off");
    becomes(&daemon, &target, &[0]);
    second_target.apply_to_discovery(&["listen=on".parse().unwrap()]).unwrap();
    eventually("it is back", || controllers(&daemon)[1].state == DiscoveryState::Connected);
    assert_eq!(listeners(&daemon, &target), [0]);
}

const SERVICE_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// A name of as many bytes.
const OWN_NQN: &str = "nqn.2014-08.org.example:discovery-01";

/// Copies PDUs, with another name in place of one. Counts those that had the name.
fn rename(mut from: TcpStream, mut to: TcpStream, name: &str, other: &str, renamed: &AtomicUsize) {
    let mut header = [0; 8];
    while from.read_exact(&mut header).is_ok() {
        // PLEN.
        let mut pdu = vec![0; u32::from_le_bytes(header[4..].try_into().unwrap()) as usize];
        pdu[..8].copy_from_slice(&header);
        if from.read_exact(&mut pdu[8..]).is_err() {
            break;
        }
        let places = pdu.windows(name.len()).enumerate().filter(|(_, bytes)| *bytes == name.as_bytes());
        let places: Vec<_> = places.map(|(at, _)| at).collect();
        renamed.fetch_add(usize::from(!places.is_empty()), Ordering::SeqCst);
        for at in places {
            pdu[at..at + other.len()].copy_from_slice(other.as_bytes());
        }
        if to.write_all(&pdu).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// A relay of a discovery service of `mpath-target`, which knows only the name of the service: for hosts, each discovery subsystem
/// there has a name of its own. Returns the address, and how often hosts used that name.
fn with_own_name(service: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, asked) = (TcpListener::bind(own_address()).unwrap(), Arc::new(AtomicUsize::new(0)));
    let (address, counted) = (listener.local_addr().unwrap(), Arc::clone(&asked));
    std::thread::spawn(move || {
        for host in listener.incoming().flatten() {
            let controller = TcpStream::connect(service).unwrap();
            let (to_host, from_host) = (host.try_clone().unwrap(), host);
            let (to_controller, from_controller) = (controller.try_clone().unwrap(), controller);
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || rename(from_host, to_controller, OWN_NQN, SERVICE_NQN, &counted));
            std::thread::spawn(move || rename(from_controller, to_host, SERVICE_NQN, OWN_NQN, &AtomicUsize::new(0)));
        }
    });
    (address, asked)
}

/// The first service is asked by the name of the service, and refers to the second by the second's own name.
#[test]
fn a_referral_to_a_discovery_subsystem_with_a_name_of_its_own_is_followed() {
    let [first, second] = [service(), service()];
    let target = target(2, second, &[]);
    let (second, asked_second) = with_own_name(second);
    let _first = stranger(first, &[second]);
    let (first, asked_first) = with_own_name(first);
    let daemon = by_discovery(&[first], "");
    becomes(&daemon, &target, &[0, 1]);
    let found = controllers(&daemon);
    let shown: Vec<_> = found.iter().map(|of| (of.address.to_string(), of.subnqn.as_str(), of.state)).collect();
    let expected = [(first, SERVICE_NQN), (second, OWN_NQN)];
    assert_eq!(shown, expected.map(|(at, nqn)| (format!("tcp://{at}"), nqn, DiscoveryState::Connected)));
    let used = |count: &AtomicUsize| count.load(Ordering::SeqCst) > 0;
    assert_eq!((used(&asked_first), used(&asked_second)), (false, true));
    assert_eq!(found[1].referred_by.as_ref().map(ToString::to_string), Some(format!("tcp://{first}")));
}

#[test]
fn a_lost_discovery_controller_removes_no_paths() {
    let target = target(2, service(), &[]);
    target.set(1, "listen=off");
    let daemon = by_discovery(&[target.discovery_addr().unwrap()], "");
    becomes(&daemon, &target, &[0]);
    let [lost_before, connected_before] =
        [EventKind::DiscoveryLost, EventKind::DiscoveryConnected].map(|kind| happened(&daemon, kind));
    target.apply_to_discovery(&["listen=off".parse().unwrap(), "reset=all".parse().unwrap()]).unwrap();
    eventually("the loss is noticed", || controllers(&daemon)[0].state == DiscoveryState::Lost);
    target.set(1, "listen=on");
    std::thread::sleep(Duration::from_millis(2500));
    let controller = &controllers(&daemon)[0];
    assert!(controller.last_error.as_ref().is_some_and(|error| error.contains("refused")), "{controller:?}");
    assert!(controller.records.is_some() && controller.generation.is_some());
    assert_eq!(listeners(&daemon, &target), [0]);
    // At most the loss and the failed reconnection are logged, not each attempt.
    let losses = happened(&daemon, EventKind::DiscoveryLost) - lost_before;
    assert!((1..=2).contains(&losses), "{}", daemon.log());
    target.apply_to_discovery(&["listen=on".parse().unwrap()]).unwrap();
    becomes(&daemon, &target, &[0, 1]);
    assert_eq!(happened(&daemon, EventKind::DiscoveryConnected) - connected_before, 1);
    assert_eq!(controllers(&daemon)[0].last_error, None);
}

fn discovery_flags(target: &Target) -> String {
    format!("{FLAGS} --discovery tcp://{}", target.discovery_addr().unwrap())
}

fn is_remembered(daemon: &Daemon, target: &Target) -> bool {
    let mut file = daemon.socket().into_os_string();
    file.push(".state");
    let text = fs::read_to_string(file).unwrap_or_default();
    target.addrs().iter().all(|addr| text.contains(&format!("tcp://{addr}")))
}

fn set_discovery(target: &Target, setting: &str) {
    target.apply_to_discovery(&[format!("listen={setting}").parse().unwrap(), "reset=all".parse().unwrap()]).unwrap();
}

#[test]
fn discovered_paths_outlive_a_kill_while_the_discovery_controller_is_down() {
    let target = target(2, service(), &[]);
    let flags = discovery_flags(&target);
    let daemon = Daemon::start(&[], &flags);
    becomes(&daemon, &target, &[0, 1]);
    eventually("the paths are remembered", || is_remembered(&daemon, &target));
    set_discovery(&target, "off");
    let (_, place) = daemon.end(Signal::KILL);
    let command = place.command(&[], &flags);
    let daemon = place.spawn(command).answers();
    becomes(&daemon, &target, &[0, 1]);
    assert_eq!((controllers(&daemon)[0].state, controllers(&daemon)[0].records), (DiscoveryState::Connecting, None));
    assert!(daemon.paths().iter().all(|path| path.origin == Origin::Discovery));
    // The first log that can be read decides.
    target.set(1, "listen=off");
    set_discovery(&target, "on");
    becomes(&daemon, &target, &[0]);
}

#[test]
fn an_upgrade_while_the_discovery_controller_is_down_keeps_the_discovered_paths() {
    let target = target(2, service(), &[]);
    let daemon = Daemon::start(&[], &discovery_flags(&target));
    becomes(&daemon, &target, &[0, 1]);
    eventually("the paths are remembered", || is_remembered(&daemon, &target));
    set_discovery(&target, "off");
    let next = NextDaemon::of(&daemon);
    becomes(&daemon, &target, &[0, 1]);
    next.end();
}

/// The paths answer the running daemon, and no new process.
#[test]
fn an_upgrade_is_refused_if_no_discovered_path_can_be_reached() {
    let target = target(1, service(), &[]);
    let daemon = Daemon::start(&[], &discovery_flags(&target));
    becomes(&daemon, &target, &[0]);
    eventually("the paths are remembered", || is_remembered(&daemon, &target));
    set_discovery(&target, "off");
    eventually("the loss is noticed", || controllers(&daemon)[0].state == DiscoveryState::Lost);
    target.set(0, "listen=off");
    let error = daemon.api.upgrade(false).unwrap_err().to_string();
    let address = target.addrs()[0];
    assert!(error.contains(&format!("no path leads to its namespace: tcp://{address}")), "{error}");
    assert!(all_live(&daemon));
}

#[test]
fn configured_paths_suffice_without_a_discovery_controller() {
    let (target, (_held, nowhere)) = (target(1, service(), &[]), refusing_address());
    let flags = format!("{FLAGS} --discovery tcp://{nowhere}");
    let daemon = Daemon::start(&target.addrs(), &flags);
    becomes(&daemon, &target, &[0]);
    assert_eq!(controllers(&daemon)[0].state, DiscoveryState::Connecting);
    assert!(daemon.log().contains(&format!("discovery controller tcp://{nowhere} down: Connection refused")));

    let place = DaemonDirectory::new();
    let refusal = place.refused(place.command(&[], &format!("{flags} --wait-for any")));
    refusal.says(3, &["disk0", "configured or discovered", &format!("tcp://{nowhere}: Connection refused")]);
}

#[test]
fn a_disk_without_paths_names_its_discovery_controllers_and_their_errors() {
    let (service, (_held, nowhere)) = (service(), refusing_address());
    let _target = stranger(service, &[]);
    let place = DaemonDirectory::new();
    let command = place.command(&[], &format!("{FLAGS} --discovery tcp://{nowhere} --discovery tcp://{service}"));
    let daemon = place.spawn(command).answers();
    let why = format!(
        ": there is no path; discovery controller tcp://{nowhere}: Connection refused (os error 111); discovery controller \
         tcp://{service}: no path of its log is used (2 records); see `mpathctl discovery list`"
    );
    let is_named = |message: &str| message.starts_with("no path is usable since ") && message.ends_with(&why);
    let health = || daemon.status().disks.remove(0).health;
    eventually("the status says why", || health().reasons.iter().any(|reason| is_named(&reason.message)));
    assert!(daemon.api.explain("disk0").unwrap().reasons.iter().any(|reason| is_named(&reason.message)));
    // The only event of the condition has the reason too: there is none before the outcome of the first logs.
    let events = || daemon.api.events(0).unwrap().events.into_iter().filter(|of| of.kind == EventKind::DiskWaiting);
    eventually("an event tells", || events().next().is_some());
    let events: Vec<_> = events().map(|event| event.message).collect();
    assert!(matches!(&events[..], [message] if is_named(message)), "{events:?}");
}

#[test]
fn a_discovery_controller_without_paths_to_the_subsystem_is_named() {
    let service = service();
    let _target = stranger(service, &[]);
    let place = DaemonDirectory::new();
    let refusal = place.refused(place.command(&[], &format!("{FLAGS} --discovery tcp://{service} --wait-for any")));
    refusal.says(3, &[&format!("tcp://{service}: its log lists no path to the subsystem (2 records)")]);
}

#[test]
fn a_silent_discovery_controller_does_not_delay_the_start() {
    let target = target(1, service(), &[]);
    target.apply_to_discovery(&["black-hole=stall".parse().unwrap()]).unwrap();
    let flags = format!("{FLAGS} --discovery tcp://{}", target.discovery_addr().unwrap());
    let daemon = Daemon::start(&target.addrs(), &flags);
    assert!(controllers(&daemon)[0].last_error.is_none(), "its time is not over");
    let error = || controllers(&daemon)[0].last_error.clone();
    let is_silent = |error: String| error.contains("no answer within 5s: Connect");
    eventually("the controller does not answer", || error().is_some_and(is_silent));
    target.apply_to_discovery(&["black-hole=off".parse().unwrap()]).unwrap();
    eventually("the last log is read", || controllers(&daemon)[0].state == DiscoveryState::Connected);
    becomes(&daemon, &target, &[0]);
}

#[test]
fn discovery_ends_in_order_and_leaks_nothing() {
    let target = target(2, service(), &[]);
    let daemon = by_discovery(&[target.discovery_addr().unwrap()], "");
    becomes(&daemon, &target, &[0, 1]);
    let resources = daemon.settled_resources();
    for _ in 0..5 {
        target.set(1, "listen=off");
        becomes(&daemon, &target, &[0]);
        target.set(1, "listen=on");
        becomes(&daemon, &target, &[0, 1]);
    }
    daemon.comes_back_to(resources);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}
