//! Namespaces that grow while their disk is in use.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use mpath_api::types::{AnaState, EventKind, PathSelector, PathState};
use mpath_config::DiskConfig;
use mpath_target::NamespaceConfig;
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, NQN, PATIENCE, Target, Verification, VerificationSetup, eventually};

/// The keep-alive timeout outlasts any time that a busy machine keeps the daemon waiting.
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";
const MIB: u64 = 1 << 20;
const SMALL: &str = "size=1:32MiB";
const LARGE: &str = "size=1:own";
/// Behind the end of the small namespace.
const BEHIND: u64 = 40 * MIB;

/// Two paths to a namespace of 32 MiB that grows to 64 MiB.
fn small() -> (Target, Daemon) {
    let target = Target::start(2);
    (0..2).for_each(|path| target.set(path, SMALL));
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    eventually("both paths are live", || (0..2).all(|path| daemon.is_live(path)));
    (target, daemon)
}

fn capacity(daemon: &Daemon) -> u64 {
    daemon.status().disks[0].capacity_bytes
}

/// The messages of the events about the disk's size.
fn resized(daemon: &Daemon) -> Vec<String> {
    let events = daemon.api.events(0).unwrap().events;
    let resized = events.into_iter().filter(|event| event.kind == EventKind::DiskResized);
    resized.map(|event| event.message).collect()
}

/// The capacity that a front-end reads, in bytes.
fn shown(frontend: &mut Frontend) -> u64 {
    let config = frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]).unwrap().1;
    u64::from_le_bytes(config.try_into().unwrap()) * 512
}

#[test]
fn the_front_end_is_told_when_all_paths_agree() {
    let (target, daemon) = small();
    let mut frontend = Frontend::from_stream(UnixStream::connect(daemon.socket()).unwrap(), 1);
    frontend.set_owner().unwrap();
    frontend.get_features().unwrap();
    frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::BACKEND_REQ).unwrap();
    let (mut channel, theirs) = UnixStream::pair().unwrap();
    channel.set_read_timeout(Some(PATIENCE)).unwrap();
    frontend.set_backend_request_fd(&theirs.as_raw_fd()).unwrap();
    assert_eq!(shown(&mut frontend), 32 * MIB);

    target.set(0, LARGE);
    // Updates of a path arrive in order: the ANA state after the size.
    target.set(0, "ana=non-optimized");
    eventually("the first path has reported its size", || daemon.paths()[0].ana_state == Some(AnaState::NonOptimized));
    assert_eq!((shown(&mut frontend), capacity(&daemon)), (32 * MIB, 32 * MIB));
    target.set(1, LARGE);
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("a change notice");
    assert_eq!(message[..4], 2_u32.to_ne_bytes(), "CONFIG_CHANGE_MSG");
    assert_eq!((shown(&mut frontend), capacity(&daemon)), (64 * MIB, 64 * MIB));
    assert_eq!(resized(&daemon), ["disk resized from 33554432 to 67108864 bytes; the front-end was told"]);
    assert!((0..2).all(|path| daemon.is_live(path)), "and no path was lost: {}", daemon.log());
    assert!(!daemon.log().contains("path down"), "{}", daemon.log());
}

/// Otherwise the next daemon could show guests the old size. No path reports anything again.
#[test]
fn a_disk_that_cannot_be_saved_grows_once_it_can() {
    let (target, daemon) = small();
    let obstacle = format!("{}.shown.new", daemon.socket().display());
    std::fs::create_dir(&obstacle).unwrap();
    (0..2).for_each(|path| target.set(path, LARGE));
    eventually("it is not saved", || daemon.log().contains("the disk keeps its size; trying again"));
    assert_eq!(capacity(&daemon), 32 * MIB);
    std::fs::remove_dir(&obstacle).unwrap();
    eventually("it has grown", || capacity(&daemon) == 64 * MIB);
}

#[test]
fn new_blocks_are_usable_and_requests_in_flight_continue() {
    let (target, daemon) = small();
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(200);
    (0..2).for_each(|path| target.set(path, LARGE));
    eventually("the disk has grown", || capacity(&daemon) == 64 * MIB);
    verification.goes_on(200);
    verification.finish();
    let paths = daemon.paths();
    assert!(paths.iter().all(|path| path.errors() == 0 && path.ios() > 50), "{paths:?}");

    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!(disk.info().capacity_bytes, 64 * MIB);
    // Over both paths.
    for byte in 1..9 {
        assert_eq!(disk.write(BEHIND, byte), Status::Ok);
        assert_eq!(disk.read(BEHIND), byte);
    }
}

#[test]
fn a_request_behind_the_end_fails_until_the_disk_has_grown() {
    let (target, daemon) = small();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(BEHIND, 1), Status::IoError);
    // Half of the growth is not enough.
    assert_eq!(disk.run(Request { kind: Kind::Read, offset: 32 * MIB - 4096, len: 8192 }, &[0; 8192]), Status::IoError);
    (0..2).for_each(|path| target.set(path, LARGE));
    eventually("the disk has grown", || capacity(&daemon) == 64 * MIB);
    assert_eq!(disk.write(BEHIND, 1), Status::Ok, "on the same connection");
    assert_eq!(disk.read(BEHIND), 1);
    assert_eq!(disk.write(64 * MIB, 1), Status::IoError);
}

/// The disk does not wait for a path that is down. A path with the old size is not used and not given up.
#[test]
fn a_path_with_the_old_size_waits() {
    let (target, daemon) = small();
    let mut disk = Disk::connect(&daemon.socket());
    target.set(1, LARGE);
    target.stop_listener(0);
    eventually("the disk has grown without the lost path", || capacity(&daemon) == 64 * MIB);
    target.resume_listener(0).unwrap();
    eventually("the path is refused for now", || {
        let path = &daemon.paths()[0];
        path.state != PathState::Live && path.last_error.as_ref().is_some_and(|error| error.contains("has grown to"))
    });
    for byte in 1..5 {
        assert_eq!(disk.write(BEHIND, byte), Status::Ok);
    }
    target.set(0, LARGE);
    eventually("the path is back", || daemon.is_live(0));
    for _ in 0..4 {
        assert_eq!(disk.read(BEHIND), 4);
    }
}

/// No path reports anything again.
#[test]
fn a_disk_grows_when_the_path_with_the_old_size_is_removed() {
    let (target, daemon) = small();
    target.set(1, LARGE);
    // Updates of a path arrive in order: the ANA state after the size.
    target.set(1, "ana=non-optimized");
    eventually("the path has reported its size", || daemon.paths()[1].ana_state == Some(AnaState::NonOptimized));
    let disk = daemon.status().disks.remove(0);
    let growth = disk.growth.unwrap();
    let lagging: Vec<_> = growth.lagging.iter().map(|path| (path.index, path.capacity_bytes)).collect();
    assert_eq!((disk.capacity_bytes, growth.capacity_bytes, lagging), (32 * MIB, 64 * MIB, vec![(0, 32 * MIB)]));
    daemon.api.remove_path("disk0", &PathSelector::Index(0), false).unwrap();
    eventually("the disk has grown", || capacity(&daemon) == 64 * MIB);
    eventually("no path lags", || daemon.status().disks[0].growth.is_none());
}

fn last_error(daemon: &Daemon, path: usize) -> String {
    daemon.paths()[path].last_error.clone().unwrap_or_default()
}

#[test]
fn a_path_whose_namespace_shrinks_is_not_used_until_it_has_grown_again() {
    let (target, daemon) = small();
    let mut disk = Disk::connect(&daemon.socket());
    target.set(0, "size=1:16MiB");
    eventually("it is not used", || !daemon.is_live(0) && last_error(&daemon, 0).contains("namespace has shrunk"));
    let blocks = |bytes: u64| bytes / u64::from(daemon.status().disks[0].block_size_bytes);
    let (found, shown) = (blocks(16 * MIB), blocks(32 * MIB));
    let (mib16, mib32) = (16 * MIB, 32 * MIB);
    let seen = format!(
        "the namespace has shrunk to {found} blocks ({mib16} bytes), and guests still see {shown} blocks ({mib32} bytes); "
    );
    let remedy = format!(
        "; grow it back to {shown} blocks ({mib32} bytes), or detach the disk from its guest, remove it and add it again"
    );
    eventually("the reason for a new connection is the same", || last_error(&daemon, 0).starts_with(&seen));
    let lost = daemon.log().lines().any(|line| line.contains(&format!("path down: disk disk0: {seen}")));
    assert!(lost && last_error(&daemon, 0).ends_with(&remedy), "{}", daemon.log());
    assert_eq!((capacity(&daemon), disk.write(31 * MIB, 1)), (32 * MIB, Status::Ok));
    target.set(0, SMALL);
    eventually("the path is back", || daemon.is_live(0));
    assert!((0..4).all(|_| disk.read(31 * MIB) == 1));
}

/// A size that one path took back does not count when the other grows.
#[test]
fn a_path_that_takes_its_growth_back_keeps_the_disk_small() {
    let (target, daemon) = small();
    target.set(0, LARGE);
    target.set(0, "ana=non-optimized");
    eventually("the first path has reported its size", || daemon.paths()[0].ana_state == Some(AnaState::NonOptimized));
    target.set(0, SMALL);
    eventually("its association has ended", || last_error(&daemon, 0).contains("which guests have not seen"));
    eventually("it is back with the smaller size", || daemon.is_live(0));
    target.set(1, LARGE);
    target.set(1, "ana=non-optimized");
    eventually("the second path has reported its size", || daemon.paths()[1].ana_state == Some(AnaState::NonOptimized));
    assert_eq!(capacity(&daemon), 32 * MIB);
    target.set(0, LARGE);
    eventually("the disk has grown", || capacity(&daemon) == 64 * MIB);
}

/// An added disk is followed like one from the start. When it is removed, its size is forgotten.
#[test]
fn an_added_disk_grows_and_a_readded_disk_starts_with_the_current_size() {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    (0..2).for_each(|path| target.set(path, SMALL));
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --namespace 2"));
    let socket = daemon.place.file("data");
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let config = DiskConfig {
        name: "data".parse().unwrap(),
        namespace: "1".parse().ok(),
        ..DiskConfig::new(socket.to_str().unwrap().parse().unwrap(), NQN.parse().unwrap(), paths)
    };
    let capacities = || daemon.status().disks.iter().map(|disk| disk.capacity_bytes).collect::<Vec<_>>();
    for times in 1..3 {
        daemon.api.add_disk(&config).unwrap();
        assert_eq!(capacities(), [32 * MIB, 32 * MIB]);
        let mut disk = Disk::connect(&socket);
        assert_eq!(disk.write(BEHIND, 1), Status::IoError);
        (0..2).for_each(|path| target.set(path, LARGE));
        eventually("the disk has grown", || capacities() == [32 * MIB, 64 * MIB]);
        assert_eq!((disk.write(BEHIND, 1), disk.read(BEHIND)), (Status::Ok, 1));
        let events = resized(&daemon);
        let told = "; the front-end takes no notices and was not told; it reads the size when it connects again";
        assert!(events.len() == times && events[times - 1].ends_with(told), "{events:?}");
        drop(disk);
        daemon.api.remove_disk("data", true).unwrap();
        (0..2).for_each(|path| target.set(path, SMALL));
    }
    assert_eq!((capacities(), resized(&daemon).len()), (vec![32 * MIB], 2));
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
}
