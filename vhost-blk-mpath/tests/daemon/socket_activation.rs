//! Socket activation: sockets that the daemon does not create, and that another daemon may use after it.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mpath_config::DiskConfig;
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};
use virtio_guest::features::PROTOCOL_FEATURES;
use vublk_bench::request::Status;

use crate::guest::Guest;
use crate::support::{DaemonDirectory, Disk, NQN, Target, activated, inherit_descriptor, program};

/// The features of a [`Guest`].
const QUEUES: &str = "--queues 4";

/// The daemon with the socket of `--fd`.
fn by_flag(place: &DaemonDirectory, target: &Target, fd: &impl AsRawFd) -> Command {
    let mut command = program();
    command.arg("--api").arg(place.api()).args(["--subsystem", NQN]).arg(format!("--fd={}", fd.as_raw_fd()));
    command.args(QUEUES.split_whitespace());
    command.args(target.addrs().iter().map(|path| format!("--path=tcp://{path}")));
    inherit_descriptor(&mut command, fd);
    command
}

/// The first byte of the disk, as a connected front-end reads it.
fn first_byte(stream: UnixStream) -> u8 {
    let mut guest = Guest::over(stream, PROTOCOL_FEATURES);
    guest.share_memory();
    let mut ring = guest.start(0);
    ring.submit(0, 0, 0, &[0xee; 512]);
    assert_eq!((ring.finish(), ring.status(0)), (vec![0], 0));
    ring.data::<1>(0)[0]
}

/// The disk that the daemon started with, to be added again.
fn again(place: &DaemonDirectory, target: &Target) -> DiskConfig {
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}").parse().unwrap()).collect();
    let socket = place.socket().to_str().unwrap().parse().unwrap();
    DiskConfig { queues: "4".parse().unwrap(), ..DiskConfig::new(socket, NQN.parse().unwrap(), paths) }
}

fn inode(place: &DaemonDirectory) -> u64 {
    fs::metadata(place.socket()).unwrap().ino()
}

#[test]
fn a_front_end_that_comes_between_two_daemons_waits_for_the_second() {
    let (target, place) = (Target::start(2), DaemonDirectory::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let made = inode(&place);
    let command = activated(&place.command(&target.addrs(), QUEUES), &[&listener]);
    let daemon = place.spawn(command).ready();
    assert_eq!(daemon.status().disks[0].socket_path, daemon.socket().to_str().unwrap());
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!((disk.write(0, 7), disk.flush()), (Status::Ok, Status::Ok));
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!place.api().exists() && !place.fence_record().exists());
    assert_eq!(inode(&place), made, "the socket stays");
    drop(disk);

    let waiting = UnixStream::connect(place.socket()).unwrap();
    let command = activated(&place.command(&target.addrs(), QUEUES), &[&listener]);
    let daemon = place.spawn(command).ready();
    assert_eq!(first_byte(waiting), 7);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert_eq!(inode(&place), made);
}

/// However often the disk is removed and added, the socket stays.
#[test]
fn an_added_disk_gets_the_socket_of_a_removed_one() {
    let starts: [fn(&DaemonDirectory, &Target, &UnixListener) -> Command; 2] =
        [|place, target, listener| activated(&place.command(&target.addrs(), QUEUES), &[listener]), by_flag];
    for start in starts {
        let (target, place) = (Target::start(2), DaemonDirectory::new());
        let listener = UnixListener::bind(place.socket()).unwrap();
        let made = inode(&place);
        let command = start(&place, &target, &listener);
        let daemon = place.spawn(command).ready();
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!((disk.write(0, 7), disk.flush()), (Status::Ok, Status::Ok));
        drop(disk);
        let again = again(&daemon.place, &target);
        let mut before = None;
        for _ in 0..3 {
            daemon.api.remove_disk("disk0", true).unwrap();
            let before = *before.get_or_insert_with(|| daemon.settled_resources());
            daemon.comes_back_to(before);
            // The front-end is neither refused nor served.
            let waiting = UnixStream::connect(daemon.socket()).unwrap();
            let elsewhere = DiskConfig { namespace: "7".parse().ok(), ..again.clone() };
            assert!(daemon.api.add_disk(&elsewhere).unwrap_err().to_string().contains("no path leads"));
            assert!(daemon.api.add_disk(&again).unwrap()[0].held_ms.is_none());
            assert_eq!(first_byte(waiting), 7);
            assert_eq!(inode(&daemon.place), made);
        }
        let (ended, place) = daemon.end(Signal::TERM);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        assert_eq!(inode(&place), made);
    }
}

#[test]
fn a_socket_with_a_non_utf8_path_is_refused() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let path = place.file("disk").with_file_name(OsStr::from_bytes(b"disk-\xff.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    place
        .refused(by_flag(&place, &target, &listener))
        .says(2, &["--fd ", "is not UTF-8", "bind the socket to another path"]);
    // Nor is a socket created under a similar name.
    let sockets = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let sockets: Vec<_> = sockets.filter(|path| path.extension() == Some(OsStr::new("sock"))).collect();
    assert_eq!(sockets, [path]);
}

#[test]
fn a_listening_socket_by_flag_serves_one_front_end_after_the_other() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let command = by_flag(&place, &target, &listener);
    let mut daemon = place.spawn(command).ready();
    for byte in 1..3 {
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!((disk.write(0, byte), disk.read(0)), (Status::Ok, byte));
    }
    assert!(daemon.is_running());
    // The record is where the next daemon looks for it.
    let (_, place) = daemon.end(Signal::KILL);
    assert!(place.fence_record().exists() && place.socket().exists());
}

#[test]
fn a_connected_front_end_by_flag_is_the_only_one_and_the_daemon_ends_with_it() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let socket = place.socket();
    let front_end = thread::spawn(move || {
        let mut disk = Disk::connect(&socket);
        assert_eq!((disk.write(0, 9), disk.read(0)), (Status::Ok, 9));
        disk
    });
    let (stream, _) = listener.accept().unwrap();
    let command = by_flag(&place, &target, &stream);
    let mut daemon = place.spawn(command).ready();
    drop(stream);
    let disk = front_end.join().unwrap();
    assert!(daemon.is_running());
    drop(disk);
    let (ended, place) = daemon.ends();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!place.api().exists() && !place.fence_record().exists());
    assert!(place.socket().exists(), "the file is not the daemon's");
}

#[test]
fn an_unused_socket_is_a_warning_and_a_non_socket_is_refused() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let listener = UnixListener::bind(place.file("other.sock")).unwrap();
    let command = activated(&place.command(&target.addrs(), ""), &[&listener]);
    let daemon = place.spawn(command).ready();
    assert!(daemon.log().contains("unused activation socket") && daemon.log().contains("other.sock"));
    assert_eq!(Disk::connect(&daemon.socket()).read(0), 0);
    drop(daemon);

    let file = tempfile::tempfile().unwrap();
    let place = DaemonDirectory::new();
    place
        .refused(by_flag(&place, &target, &file))
        .says(2, &["--fd ", "is not a Unix stream socket", "pass a listening socket"]);
    let place = DaemonDirectory::new();
    let refusal = place.refused(activated(&place.command(&target.addrs(), ""), &[&file]));
    refusal.says(2, &["LISTEN_FDS: file descriptor 3 is not a Unix stream socket", "pass a listening socket"]);
    let place = DaemonDirectory::new();
    let mut command = program();
    command.args(["--fd=977", "--subsystem", NQN, "--path=tcp://127.0.0.1"]).arg("--api").arg(place.api());
    place.refused(command).says(2, &["--fd 977 cannot be used", "start the daemon with this descriptor open"]);
}

#[test]
fn an_idle_socket_is_refused() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let idle = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let said = "is neither listening nor connected";
    place.refused(by_flag(&place, &target, &idle)).says(2, &[&format!("--fd {} {said}", idle.as_raw_fd())]);
    assert!(!place.api().exists());
}

#[test]
fn sockets_for_another_process_cause_a_warning() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let mut command = place.command(&target.addrs(), "");
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "2");
    let daemon = place.spawn(command).ready();
    let log = daemon.log();
    let told: Vec<_> = log.lines().filter(|line| line.contains("LISTEN_FDS")).collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("WARN") && told[0].contains("LISTEN_PID is `1`, and this is process"), "{log}");
    let (_, place) = daemon.end(Signal::TERM);
    let command = place.command(&target.addrs(), "");
    assert!(!place.spawn(command).ready().log().contains("LISTEN"));
}

/// The socket still listens, but no front-end can find it.
#[test]
fn a_socket_without_its_file_causes_a_warning() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let command = activated(&place.command(&target.addrs(), ""), &[&listener]);
    let there = place.spawn(command).ready();
    assert!(!there.log().contains("is missing"), "{}", there.log());
    let (_, place) = there.end(Signal::TERM);
    fs::remove_file(place.socket()).unwrap();
    let command = activated(&place.command(&target.addrs(), ""), &[&listener]);
    let told = format!("LISTEN_FDS: file descriptor 3: the socket file {} is missing", place.socket().display());
    let log = place.spawn(command).ready().log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(&told)), "{log}");
}

/// A service manager may have passed the socket to both.
#[test]
fn a_second_daemon_on_a_socket_reports_the_first() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let command = by_flag(&place, &target, &listener);
    let daemon = place.spawn(command).ready();
    let pid = daemon.status().pid;
    let second = DaemonDirectory::new();
    let command = by_flag(&second, &target, &listener);
    let begun = Instant::now();
    let refused = second.refused(command);
    let lock = daemon.place.file("disk.sock.fence.lock");
    refused.says(
        4,
        &[&format!("cannot lock {}: another daemon (pid {pid}) serves this disk", lock.display()), "stop it first"],
    );
    assert!(begun.elapsed() >= Duration::from_secs(10), "it has waited: {:?}", begun.elapsed());
    let waits = refused.log.lines().find(|line| line.contains("WARN")).unwrap();
    assert!(waits.contains(&format!("another daemon (pid {pid})")) && waits.contains("waiting at most 10s"), "{waits}");
}

/// The front-end of `--fd` ends its daemon and does not come back. The next front-end is another one.
#[test]
fn a_front_end_by_descriptor_is_not_remembered() {
    let (target, place) = (Target::start(1), DaemonDirectory::new());
    let serve = |place: DaemonDirectory| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let command = by_flag(&place, &target, &theirs);
        let daemon = place.spawn(command);
        drop(theirs);
        assert_eq!(first_byte(ours), 0);
        let (ended, place) = daemon.ends();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        place
    };
    let place = serve(place);
    target.set(0, "uuid=1:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21");
    serve(place);
}
