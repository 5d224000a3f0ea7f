//! SIGTERM and SIGINT end the daemon soon and in order, whatever it is doing.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use mpath_api::types::PathSelector;
use rustix::process::{Pid, Signal, kill_process};
use vublk_bench::request::Status;

use crate::support::{
    Daemon, DaemonDirectory, Disk, Link, Target, Verification, VerificationSetup, eventually, inject,
};

const REQUESTS: u16 = 8;

/// A front-end with writes in flight.
fn with_writes(daemon: &Daemon) -> Disk {
    let mut disk = Disk::connect(&daemon.socket());
    for slot in 0..REQUESTS {
        disk.submit_write(slot, u64::from(slot) * 4096, 7);
    }
    disk
}

#[test]
fn ends_under_load() {
    for signal in [Signal::TERM, Signal::INT] {
        let target = Target::start(2);
        let daemon = Daemon::start(&target.addrs(), "--policy round-robin --io-threads 2");
        let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
        verification.goes_on(500);
        let (ended, place) = daemon.end(signal);
        drop(verification);
        ended.cleanly(&place);
        // The requests were answered: nothing is lost, and nothing took too long.
        assert!(!ended.log.contains("in time") && !ended.log.contains("front-end lost"), "{}", ended.log);
        eventually("the target is left", || target.connections(0) + target.connections(1) == 0);
    }
}

#[test]
fn ends_while_starting() {
    for signal in [Signal::TERM, Signal::INT] {
        // A controller that accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = DaemonDirectory::new();
        let command = place.command(&[silent.local_addr().unwrap()], "");
        let daemon = place.spawn(command);
        // The last log line before the paths are tried.
        eventually("the daemon starts", || daemon.socket().exists());
        let _admin = silent.accept().unwrap();
        let (ended, place) = daemon.end(signal);
        ended.cleanly(&place);
        assert!(ended.took < Duration::from_secs(4), "{ended:?}");
    }
}

#[test]
fn ends_while_idle() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let target = Target::start(2);
        let daemon = Daemon::start(&target.addrs(), "");
        let (ended, place) = daemon.end(signal);
        ended.cleanly(&place);
        assert!(ended.log.contains(&format!("ending: {name}")), "{}", ended.log);
        assert!(ended.took < Duration::from_secs(4), "{ended:?}");
    }
}

#[test]
fn stray_signals_do_not_end_it() {
    const STRAY: [Signal; 10] = [
        Signal::HUP,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
        Signal::STKFLT,
        Signal::XFSZ,
    ];
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut disk = Disk::connect(&daemon.socket());
    for signal in STRAY {
        daemon.signal(signal);
        assert_eq!((disk.write(0, 1), disk.read(0)), (Status::Ok, 1), "after {signal:?}");
    }
    let line = "configuration not reloaded by SIGHUP: the daemon was started with flags";
    eventually("the log tells of SIGHUP", || daemon.log().contains(line));
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    assert_eq!(ended.log.matches(line).count(), 1, "{}", ended.log);
    assert!(ended.log.contains("ending: SIGTERM"), "{}", ended.log);
}

#[test]
fn ends_with_silent_api_clients() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let _client = UnixStream::connect(daemon.place.api()).unwrap();
    let _front_end = UnixStream::connect(daemon.socket()).unwrap();
    eventually("the front-end is accepted", || daemon.status().disks[0].connected);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

#[test]
fn ends_with_requests_held_by_an_injection() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "");
    daemon.api.set_injection(&inject(PathSelector::All, Duration::from_secs(20))).unwrap();
    let disk = with_writes(&daemon);
    eventually("they are bound", || daemon.paths().iter().map(|path| path.write.in_flight).sum::<u64>() == 8);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    drop(disk);
}

#[test]
fn ends_with_unanswered_requests() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "");
    (0..2).for_each(|listener| target.set_delay(listener, Duration::from_secs(20)));
    let disk = with_writes(&daemon);
    eventually("they are sent", || daemon.paths().iter().map(|path| path.write.in_flight).sum::<u64>() == 8);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    let told = "virtqueue did not drain in time (stopped because its disk ends, 1.0 s ago); its requests are given up without an answer";
    assert!(ended.log.contains(told), "{}", ended.log);
    drop(disk);
}

#[test]
fn ends_with_requests_that_wait_for_a_path() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "");
    (0..2).for_each(|listener| target.stop_listener(listener));
    eventually("the paths are lost", || daemon.status().disks[0].path_counts.usable == 0);
    let disk = with_writes(&daemon);
    eventually("they wait", || daemon.status().disks[0].queued == u64::from(REQUESTS));
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    drop(disk);
}

#[test]
fn ends_with_writes_in_doubt() {
    let target = Target::start(2);
    target.fail_cross_resets();
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 5");
    (0..2).for_each(|listener| target.set_delay(listener, Duration::from_secs(20)));
    let disk = with_writes(&daemon);
    eventually("they are sent", || daemon.paths().iter().map(|path| path.write.in_flight).sum::<u64>() == 8);
    (0..2).for_each(|listener| target.stop_listener(listener));
    eventually("they are held", || daemon.paths().iter().map(|path| path.fenced).sum::<u64>() == 8);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    drop(disk);
}

#[test]
fn controllers_are_shut_down() {
    let target = Target::start(2);
    let links = target.addrs().into_iter().map(Link::to).collect::<Vec<_>>();
    let addresses: Vec<SocketAddr> = links.iter().map(Link::address).collect();
    let daemon = Daemon::start(&addresses, "");
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(100);
    let (ended, place) = daemon.end(Signal::TERM);
    drop(verification);
    ended.cleanly(&place);
    for link in links {
        // The admin connection is the first of a path.
        assert!(asks_for_shutdown(&link.sent()[0]));
    }
}

/// Whether the host wrote CC with SHN 01b on this connection: a normal shutdown (NVMe Base 2.1, figure "Controller
/// Configuration", bits 15:14).
fn asks_for_shutdown(sent: &[u8]) -> bool {
    const CAPSULE_COMMAND: u8 = 4;
    const FABRICS: u8 = 0x7f;
    const PROPERTY_SET: u8 = 0;
    const CC: u32 = 0x14;
    let u32_at = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut rest = sent;
    while !rest.is_empty() {
        let (pdu, next) = rest.split_at(u32_at(rest, 4) as usize);
        rest = next;
        if pdu[0] != CAPSULE_COMMAND {
            continue;
        }
        let sqe = &pdu[8..72];
        let sets_cc = sqe[0] == FABRICS && sqe[4] == PROPERTY_SET && u32_at(sqe, 44) == CC;
        if sets_cc && u32_at(sqe, 48) >> 14 & 3 == 1 {
            return true;
        }
    }
    false
}

/// A full file system, or a reader that is gone.
#[test]
fn an_unreadable_log_does_not_end_the_daemon() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let mut command = place.command(&target.addrs(), "");
    let mut daemon = command.stderr(File::options().write(true).open("/dev/full").unwrap()).spawn().unwrap();
    let mut disk = Disk::connect_patiently(&place.socket());
    assert_eq!((disk.write(0, 1), disk.read(0)), (Status::Ok, 1));
    target.set(0, "reset=all");
    assert_eq!(disk.read(0), 1);
    kill_process(Pid::from_raw(daemon.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
}
