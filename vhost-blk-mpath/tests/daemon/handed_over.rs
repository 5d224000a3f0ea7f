//! Sockets that the daemon does not make: those that it is handed over, and that another daemon may have after it.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{Disk, NQN, Place, Target, program};

/// Lets the program have a descriptor under the number that it has here.
fn hand_over(command: &mut Command, fd: &impl AsRawFd) {
    let fd = fd.as_raw_fd();
    // SAFETY: runs in the child between fork and exec: one system call, about a descriptor that the parent keeps open until it has
    // spawned the child.
    unsafe {
        command.pre_exec(move || Ok(fcntl_setfd(BorrowedFd::borrow_raw(fd), FdFlags::empty())?));
    }
}

/// The program, with that descriptor as systemd hands it over.
fn activated(command: &Command, fd: &impl AsRawFd) -> Command {
    let mut shell = Command::new("bash");
    let script = format!("export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\" 3<&{}", fd.as_raw_fd());
    shell.args(["-c", &script]).arg(command.get_program()).args(command.get_args());
    hand_over(&mut shell, fd);
    shell
}

/// The daemon with the socket of `--fd`.
fn by_flag(place: &Place, target: &Target, fd: &impl AsRawFd) -> Command {
    let mut command = program();
    command.arg("--api").arg(place.api()).args(["--subsystem", NQN]).arg(format!("--fd={}", fd.as_raw_fd()));
    command.args(target.addrs().iter().map(|path| format!("--path=tcp://{path}")));
    hand_over(&mut command, fd);
    command
}

fn inode(place: &Place) -> u64 {
    fs::metadata(place.socket()).unwrap().ino()
}

#[test]
fn a_front_end_that_comes_between_two_daemons_waits_for_the_second() {
    let (target, place) = (Target::start(2), Place::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let made = inode(&place);
    let command = activated(&place.command(&target.addrs(), ""), &listener);
    let daemon = place.spawn(command).ready();
    assert_eq!(daemon.status().disks[0].socket, daemon.socket().to_str().unwrap());
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!((disk.write(0, 7), disk.flush()), (Status::Ok, Status::Ok));
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(!place.api().exists() && !place.fence_record().exists());
    assert_eq!(inode(&place), made, "the socket stays");
    drop(disk);

    let socket = place.socket();
    let waiting = thread::spawn(move || {
        let mut disk = Disk::connect(&socket);
        disk.read(0)
    });
    let command = activated(&place.command(&target.addrs(), ""), &listener);
    let daemon = place.spawn(command).ready();
    assert_eq!(waiting.join().unwrap(), 7);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert_eq!(inode(&place), made);
}

#[test]
fn a_listening_socket_by_flag_serves_one_front_end_after_the_other() {
    let (target, place) = (Target::start(1), Place::new());
    let listener = UnixListener::bind(place.socket()).unwrap();
    let command = by_flag(&place, &target, &listener);
    let mut daemon = place.spawn(command).ready();
    for byte in 1..3 {
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!((disk.write(0, byte), disk.read(0)), (Status::Ok, byte));
    }
    assert!(daemon.is_running());
    // Its record is where the next daemon looks for it.
    let (_, place) = daemon.end(Signal::KILL);
    assert!(place.fence_record().exists() && place.socket().exists());
}

#[test]
fn a_connected_front_end_by_flag_is_the_only_one_and_the_daemon_ends_with_it() {
    let (target, place) = (Target::start(1), Place::new());
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
fn a_socket_that_is_nobodys_is_told_of_and_one_that_is_none_is_refused() {
    let (target, place) = (Target::start(1), Place::new());
    let listener = UnixListener::bind(place.file("other.sock")).unwrap();
    let command = activated(&place.command(&target.addrs(), ""), &listener);
    let daemon = place.spawn(command).ready();
    assert!(daemon.log().contains("neither a disk's nor the API's") && daemon.log().contains("other.sock"));
    assert_eq!(Disk::connect(&daemon.socket()).read(0), 0);
    drop(daemon);

    let file = tempfile::tempfile().unwrap();
    let place = Place::new();
    place.refused(by_flag(&place, &target, &file)).says(2, &["is no Unix stream socket"]);
    let place = Place::new();
    let refusal = place.refused(activated(&place.command(&target.addrs(), ""), &file));
    refusal.says(2, &["file descriptor 3 is no Unix stream socket"]);
    let place = Place::new();
    let mut command = program();
    command.args(["--fd=977", "--subsystem", NQN, "--path=tcp://127.0.0.1"]).arg("--api").arg(place.api());
    place.refused(command).says(2, &["file descriptor 977 cannot be used"]);
}
