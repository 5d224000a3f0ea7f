//! A host that does not run the daemon: the storage is not blamed for that.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use mpath_api::client::Client;
use mpath_api::types::{Condition, Event, EventKind, SlowRequest};
use rustix::process::{Pid, Signal, kill_process};
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const STALL: Duration = Duration::from_millis(800);

/// Stops the daemon with this process identifier.
fn stop(pid: u32, time: Duration) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    thread::sleep(time);
    kill_process(pid, Signal::CONT).unwrap();
}

fn events(daemon: &Daemon, of: EventKind) -> Vec<Event> {
    daemon.api.events(0).unwrap().events.into_iter().filter(|event| event.kind == of).collect()
}

/// An operator hears that the daemon is stopped, and not that the socket is wrong.
#[test]
fn a_stopped_daemon_is_told_from_a_wrong_socket() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let pid = Pid::from_raw(daemon.status().pid.cast_signed()).unwrap();
    let said = |socket: &Path| Client::new(socket, STALL).unwrap().status().unwrap_err().to_string();
    kill_process(pid, Signal::STOP).unwrap();
    let (stopped, disk) = (said(&daemon.place.api()), said(&daemon.socket()));
    kill_process(pid, Signal::CONT).unwrap();
    assert!(stopped.ends_with(&format!("continue it with `kill -CONT {}`", pid.as_raw_nonzero())), "{stopped}");
    assert!(disk.contains("it is the vhost-user socket of a disk"), "{disk}");
}

/// Reads that are under way whenever the host stalls the daemon.
struct Reads {
    _target: Target,
    daemon: Daemon,
    disk: Disk,
}

impl Reads {
    const COUNT: u16 = 8;

    fn start() -> Self {
        let target = Target::start(2);
        let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60");
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!(disk.read(0), 0);
        target.set(0, "delay=20ms");
        target.set(1, "delay=20ms");
        Self { _target: target, daemon, disk }
    }

    /// Stalls the daemon, which has requests all the time.
    fn beside(&mut self, stall: impl FnOnce(u32) + Send) {
        let (pid, disk) = (self.daemon.status().pid, &mut self.disk);
        thread::scope(|scope| {
            let stalling = scope.spawn(|| stall(pid));
            while !stalling.is_finished() {
                for slot in 0..Self::COUNT {
                    let read = Request { kind: Kind::Read, offset: 4096 * u64::from(slot), len: 4096 };
                    disk.submit(slot, read, &[0; 4096]);
                }
                for _ in 0..Self::COUNT {
                    assert_eq!(disk.answer(PATIENCE).map(|(_, status)| status), Some(Status::Ok));
                }
            }
        });
    }

    /// Slow requests name the host, and no path is lost for that.
    fn judge(&self) {
        let slow = self.daemon.api.slow(None).unwrap();
        let of_host = |of: &&SlowRequest| of.longest == "host" && of.stages.host.as_micros() * 2 > of.total_us;
        let stalled = slow.iter().filter(|of| of.total_us > 200_000);
        assert!(stalled.filter(of_host).count() > 0, "{slow:?}");
        let from = SystemTime::now() - Duration::from_secs(180);
        eventually("the history says so", || {
            let minutes = self.daemon.api.history("disk0", from, SystemTime::now()).unwrap();
            let stalled_ms: u64 = minutes.iter().map(|minute| minute.host_stalled_ms).sum();
            let waited: monotonic::Duration = minutes.iter().map(|minute| minute.long_requests.host).sum();
            stalled_ms >= 200 && waited >= Duration::from_millis(200).into()
        });
        eventually("an event tells", || !events(&self.daemon, EventKind::HostStalled).is_empty());
        for kind in [EventKind::PathLost, EventKind::DiskWaiting] {
            assert_eq!(events(&self.daemon, kind), []);
        }
    }

    /// Nor is any path suspect, nor anything else to blame. A machine with other load may stall the target, too.
    fn judge_strictly(&self) {
        self.judge();
        let slow = self.daemon.api.slow(None).unwrap();
        assert!(slow.iter().filter(|of| of.total_us > 200_000).all(|of| of.longest == "host"), "{slow:?}");
        for kind in [EventKind::PathSuspect, EventKind::DiskDegraded] {
            assert_eq!(events(&self.daemon, kind), []);
        }
    }
}

#[test]
fn a_daemon_that_was_stopped_blames_its_host() {
    let mut reads = Reads::start();
    for _ in 0..3 {
        reads.beside(|pid| stop(pid, STALL));
    }
    reads.judge();
    let told = &events(&reads.daemon, EventKind::HostStalled)[0];
    assert!(
        told.disk.is_none() && told.message.starts_with("this host did not run the daemon, or a thread of it, "),
        "{told:?}"
    );
    let disk = &reads.daemon.status().disks[0];
    assert_eq!(disk.health.condition, Condition::Degraded);
    assert!(disk.health.reasons[0].message.starts_with("the host is starved: "), "{:?}", disk.health);
    let stalls: u64 = disk.io_threads.iter().map(|thread| thread.stalls).sum();
    let stalled_ms: u64 = disk.io_threads.iter().map(|thread| thread.stalled_ms).sum();
    assert!(stalls >= 3 && stalled_ms > 1_500, "{:?}", disk.io_threads);
    assert!(disk.io_threads.iter().all(|thread| thread.ran_ms.is_some() && thread.processor_wait_ms.is_some()));
}

/// Runs a command with these words, and expects this exit code.
fn run(words: &str, code: i32) {
    let mut words = words.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).stdout(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(code));
}

/// A processor quota that is too small, 1 ms of each second: of a cgroup of version 1 or 2.
fn starve_by_quota(pid: u32, time: Duration) {
    let (root, quota, none) = if Path::new("/sys/fs/cgroup/cpu").exists() {
        (Path::new("/sys/fs/cgroup/cpu"), [("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "1000")], "-1")
    } else {
        (Path::new("/sys/fs/cgroup"), [("cgroup.type", "domain"), ("cpu.max", "1000 1000000")], "max")
    };
    let group = root.join(format!("mpath-stall-{pid}"));
    fs::create_dir(&group).unwrap();
    fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
    for (file, value) in quota {
        fs::write(group.join(file), value).unwrap();
    }
    thread::sleep(time);
    fs::write(group.join(quota[1].0), none).unwrap();
    fs::write(root.join("cgroup.procs"), pid.to_string()).unwrap();
    fs::remove_dir(group).unwrap();
}

/// The exit code of `timeout`.
const TIMED_OUT: i32 = 124;

/// Another process that goes first on the only processor of the daemon.
fn starve_by_neighbour(pid: u32, time: Duration) {
    let seconds = time.as_secs_f64();
    run(&format!("taskset --all-tasks --cpu-list --pid 1 {pid}"), 0);
    run(&format!("timeout {seconds} taskset --cpu-list 1 chrt --fifo 50 yes"), TIMED_OUT);
    run(&format!("taskset --all-tasks --cpu-list --pid 0-1 {pid}"), 0);
}

/// `make stall-test`.
#[test]
#[ignore = "needs root, two processors and no other load"]
fn stalls_of_every_kind_are_the_hosts() {
    type Stall = fn(u32, Duration);
    for (kind, stall) in [("stop", stop as Stall), ("quota", starve_by_quota), ("neighbour", starve_by_neighbour)] {
        for n in 0..20 {
            let time = Duration::from_millis(500 + 75 * n);
            println!("{kind}: {time:?}");
            let mut reads = Reads::start();
            reads.beside(|pid| stall(pid, time));
            reads.judge_strictly();
        }
    }
    (0..20).for_each(|n| finds_a_silent_path_beside_a_stall_of(Duration::from_millis(500 + 75 * n)));
}

/// The target ends connections of a host that is silent for the keep-alive timeout.
#[test]
fn a_connection_lost_by_a_silent_host_says_so() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 1 --reconnect-delay 1");
    stop(daemon.status().pid, Duration::from_secs(4));
    let is_told = |event: &Event| {
        event.message.contains("; just before, this host did not run the daemon for ")
            && event.message.ends_with("may have missed the keep-alive of this host (keep-alive-tmo 1s)")
    };
    eventually("an event of a path names the host", || events(&daemon, EventKind::PathLost).iter().any(is_told));
    eventually("an event of the daemon tells", || !events(&daemon, EventKind::HostStalled).is_empty());
    eventually("the paths are back", || daemon.is_live(0) && daemon.is_live(1));
}

/// A path falls silent, and the host stalls the daemon. The path is suspect.
fn finds_a_silent_path_beside_a_stall_of(time: Duration) {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60 --policy round-robin");
    let mut disk = Disk::connect(&daemon.socket());
    target.set(0, "delay=60s");
    for slot in 0..4 {
        disk.submit(slot, Request { kind: Kind::Read, offset: 0, len: 4096 }, &[0; 4096]);
    }
    eventually("the silent path has some", || daemon.paths()[0].read.in_flight > 0);
    stop(daemon.status().pid, time);
    (0..4).for_each(|_| assert_eq!(disk.answer(PATIENCE).map(|(_, status)| status), Some(Status::Ok)));
    let is_of_silent_path = |event: &Event| event.path.as_ref().is_some_and(|path| path.index == 0);
    eventually("an event tells", || events(&daemon, EventKind::PathSuspect).iter().any(is_of_silent_path));
}

#[test]
fn a_silent_path_beside_a_stalled_host_is_found() {
    finds_a_silent_path_beside_a_stall_of(STALL);
}
