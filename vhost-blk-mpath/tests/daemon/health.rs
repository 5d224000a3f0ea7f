//! The condition of a disk, its events and its metrics under every kind of fault: the table of docs/operating/conditions.md.
//!
//! `make fault-table` prints it.

#![allow(clippy::float_cmp)] // counts

use std::time::{Duration, Instant};

use mpath_api::types::{
    Condition, Disk as DiskStatus, EventKind, GuestErrorReason, GuestOperation, InjectedStatus, Injection, PathAction,
    PathSelector, SetInjection, Severity, SteerPaths,
};
use mpath_target::{AnaState, NamespaceConfig};
use rustix::process::Signal;
use vublk_bench::request::{Kind, Request, Status};

use crate::metrics::Scrape;
use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const READ: Request = Request { kind: Kind::Read, offset: 0, len: 4096 };

/// The longest from the moment at which the daemon has noticed until condition, event and metric tell of it.
const NOTICE: Duration = Duration::from_secs(1);

/// One row of the table.
struct Case {
    /// The fault, in the words of the documentation.
    fault: &'static str,
    condition: Condition,
    /// The event that tells of it.
    event: EventKind,
    /// A sample that is 1 or more then, and absent or 0 before.
    metric: &'static str,
    /// Stages the fault, and returns once the daemon has noticed.
    stage: fn(&mut Stage),
}

/// Two paths to one target, and a guest.
struct Stage {
    target: Target,
    daemon: Daemon,
    guest: Option<Disk>,
}

impl Stage {
    fn start() -> Self {
        let target = Target::with(2, |config| {
            config.namespaces.push(NamespaceConfig::memory(32 << 20));
            config.anatt_seconds = 1;
        });
        let flags = "--policy numa --namespace 1 --hdr-digest --keep-alive-tmo 1 --reconnect-delay 1 --fast-io-fail-tmo 1 --io-timeout 60s";
        let daemon = Daemon::start(&target.addrs(), flags);
        let mut guest = Disk::connect(&daemon.socket());
        assert_eq!((guest.write(0, 7), guest.flush()), (Status::Ok, Status::Ok));
        let stage = Self { target, daemon, guest: Some(guest) };
        eventually("the disk is ok", || stage.disk().health.condition == Condition::Ok);
        stage
    }

    fn disk(&self) -> DiskStatus {
        self.daemon.status().disks.remove(0)
    }

    fn guest(&mut self) -> &mut Disk {
        self.guest.as_mut().expect("it is connected")
    }

    fn set_ana(&self, state: AnaState, shown: &str) {
        for listener in 0..2 {
            self.target.set_ana(listener, state);
        }
        let all = || self.daemon.paths().iter().all(|path| path.ana_state.is_some_and(|ana| ana.to_string() == shown));
        eventually("the daemon knows", all);
    }

    fn inject(&self, path: PathSelector, injection: Injection) {
        let wanted = SetInjection { path, disk: None, injection: injection.checked().unwrap(), for_ms: None };
        assert!(!self.daemon.api.set_injection(&wanted).unwrap().is_empty());
    }

    fn inject_errors(&self, status: InjectedStatus) {
        let share = 1_000_000.try_into().unwrap();
        let injection = Injection { error_rate_ppm: Some(share), status: Some(status), ..Injection::default() };
        self.inject(PathSelector::All, injection);
    }

    /// The first path has this fault, which ends its association. It does not come back.
    fn lose_path_by(&mut self, fault: &str) {
        self.target.set(0, "listen=off");
        self.target.set(0, fault);
        self.guest().submit(1, READ, &[0; 4096]);
        eventually("it is lost", || !self.daemon.is_live(0));
    }

    fn lose_all_paths(&self) {
        (0..2).for_each(|listener| self.target.stop_listener(listener));
        eventually("both paths are lost", || !self.daemon.is_live(0) && !self.daemon.is_live(1));
    }

    fn events(&self, kind: EventKind) -> usize {
        let events = self.daemon.api.events(0, 0).unwrap().events;
        events.iter().filter(|event| event.kind == kind && event.severity == kind.severity()).count()
    }
}

fn steer(action: PathAction, force: bool) -> SteerPaths {
    SteerPaths { path: PathSelector::All, disk: None, action, force }
}

const CASES: [Case; 16] = [
    Case {
        fault: "a path is lost, another one is left",
        condition: Condition::Degraded,
        event: EventKind::DiskDegraded,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| {
            stage.target.stop_listener(0);
            eventually("it is lost", || !stage.daemon.is_live(0));
        },
    },
    Case {
        fault: "a path is silent",
        condition: Condition::Degraded,
        event: EventKind::PathSuspect,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| {
            stage.inject(PathSelector::Index(0), Injection { stall: true, ..Injection::default() });
            stage.guest().submit_write(1, 0, 1);
            eventually("it is suspect", || stage.daemon.paths()[0].suspect);
        },
    },
    Case {
        fault: "a controller breaks the protocol",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| stage.lose_path_by("answer-twice=1:read"),
    },
    Case {
        fault: "a header digest is wrong",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| stage.lose_path_by("header-digests=1"),
    },
    Case {
        fault: "an ANA state stays `change` for too long",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| stage.lose_path_by("ana=change"),
    },
    Case {
        fault: "a path leads to another namespace",
        condition: Condition::Degraded,
        event: EventKind::PathRefused,
        metric: "disk_condition{disk=\"disk0\",condition=\"degraded\"}",
        stage: |stage| {
            let stranger = Target::start(1);
            let added =
                mpath_api::types::AddPath { address: format!("tcp://{}", stranger.addrs()[0]).parse().unwrap() };
            stage.daemon.api.add_path("disk0", &added).unwrap();
            eventually("it is refused", || stage.daemon.paths()[2].state.to_string() == "refused");
        },
    },
    Case {
        fault: "every path is inaccessible (ANA)",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: "disk_condition{disk=\"disk0\",condition=\"waiting\"}",
        stage: |stage| stage.set_ana(AnaState::Inaccessible, "inaccessible"),
    },
    Case {
        fault: "every path is lost, no request is under way",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: "disk_condition{disk=\"disk0\",condition=\"waiting\"}",
        stage: |stage| stage.lose_all_paths(),
    },
    Case {
        fault: "every path is drained by force",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: "disk_condition{disk=\"disk0\",condition=\"waiting\"}",
        stage: |stage| drop(stage.daemon.api.steer(&steer(PathAction::Drain, true)).unwrap()),
    },
    Case {
        fault: "the guest gets errors: no path in time",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"read\",reason=\"no-path\"}",
        stage: |stage| {
            stage.lose_all_paths();
            assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: the controller fails commands",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"write\",reason=\"controller\"}",
        stage: |stage| {
            stage.inject_errors(InjectedStatus::InternalErrorDnr);
            assert_eq!(stage.guest().write(0, 1), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: every attempt fails",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"write\",reason=\"attempts\"}",
        stage: |stage| {
            stage.inject_errors(InjectedStatus::InternalError);
            assert_eq!(stage.guest().write(0, 1), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: a flush reports lost writes",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"flush\",reason=\"lost-writes\"}",
        stage: |stage| {
            assert_eq!(stage.guest().write(0, 1), Status::Ok);
            stage.target.stop_listener(0);
            eventually("the path is lost", || !stage.daemon.is_live(0));
            assert_eq!(stage.guest().flush(), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: its requests are malformed",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"other\",reason=\"malformed\"}",
        stage: |stage| {
            let beyond = Request { kind: Kind::Read, offset: 1 << 40, len: 4096 };
            assert_eq!(stage.guest().run(beyond, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: the medium reports them",
        condition: Condition::Ok,
        event: EventKind::MediumError,
        metric: "disk_guest_errors_total{disk=\"disk0\",operation=\"read\",reason=\"medium\"}",
        stage: |stage| {
            stage.inject_errors(InjectedStatus::MediaError);
            assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "the front-end has gone",
        condition: Condition::NoFrontEnd,
        event: EventKind::FrontEndDisconnected,
        metric: "disk_condition{disk=\"disk0\",condition=\"no-front-end\"}",
        stage: |stage| {
            stage.guest = None;
            eventually("it has gone", || !stage.disk().connected);
        },
    },
];

/// Events may be half a second late. Without them nothing else may ask the daemon meanwhile.
fn event_comes(stage: &Stage, case: &Case, before: usize, noticed: Instant) -> Duration {
    while stage.events(case.event) <= before {
        assert!(noticed.elapsed() < PATIENCE, "{}: no {} event; {}", case.fault, case.event, stage.daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    noticed.elapsed()
}

#[test]
fn every_fault_has_its_condition_event_and_metric() {
    println!("{:<55} {:<13} {:<24} {:>9}  metric", "fault", "condition", "event", "within");
    for case in CASES {
        let mut stage = Stage::start();
        let scraped = |stage: &Stage| Scrape::of(&stage.daemon).find(case.metric).unwrap_or(0.0);
        assert_eq!(scraped(&stage), 0.0, "{}", case.fault);
        let before = stage.events(case.event);
        (case.stage)(&mut stage);
        let noticed = Instant::now();
        let within = event_comes(&stage, &case, before, noticed);
        let disk = stage.disk();
        assert_eq!(disk.health.condition, case.condition, "{}: {:?}", case.fault, disk.health);
        assert_eq!(disk.health.reasons.is_empty(), case.condition == Condition::Ok, "{:?}", disk.health);
        assert!(scraped(&stage) >= 1.0, "{}", case.fault);
        println!(
            "{:<55} {:<13} {:<24} {:>6} ms  {}",
            case.fault,
            case.condition,
            case.event,
            within.as_millis(),
            case.metric.replace("disk=\"disk0\",", "")
        );
        // A busy machine may be late. The time is that of a timer, which no load makes ten times as long.
        assert!(within < 10 * NOTICE, "{}: {within:?}", case.fault);
    }
}

#[test]
fn a_disk_that_is_held_says_until_when() {
    let mut stage = Stage::start();
    stage.guest().submit_write(1, 0, 1);
    let flags = "--policy numa --namespace 1 --keep-alive-tmo 1 --reconnect-delay 1";
    let (_, place) = stage.daemon.end(Signal::KILL);
    let command = place.command(&stage.target.addrs(), flags);
    let daemon = place.spawn(command).ready();
    let health = daemon.status().disks.remove(0).health;
    assert_eq!(health.condition, Condition::Held, "{health:?}");
    assert!(health.reasons[0].message.contains("did not end in order"), "{health:?}");
    eventually("it goes on", || daemon.status().disks[0].health.condition != Condition::Held);
}

#[test]
fn a_path_that_came_back_keeps_its_losses_and_its_last_error() {
    let stage = Stage::start();
    for times in 1..=2 {
        stage.target.stop_listener(0);
        eventually("the path is lost", || !stage.daemon.is_live(0));
        let path = &stage.daemon.paths()[0];
        assert!(path.unusable.as_ref().is_some_and(|reason| reason.starts_with("lost: ")), "{path:?}");
        eventually("an event tells", || stage.events(EventKind::DiskDegraded) == times);
        stage.target.resume_listener(0).unwrap();
        eventually("the path is back", || stage.daemon.is_live(0));
        eventually("an event tells", || stage.events(EventKind::DiskOk) == times);
        let path = &stage.daemon.paths()[0];
        let times = times as u64;
        assert_eq!((path.losses, path.losses_1h, path.reconnects), (times, times, times));
        assert!(path.last_error.is_some() && path.last_error_at.is_some() && path.unusable.is_none(), "{path:?}");
    }
}

#[test]
fn the_event_of_an_error_has_its_first_request_and_the_answer_of_the_path() {
    let mut stage = Stage::start();
    stage.target.set(0, "fail=2:0/0x06/dnr");
    assert_eq!((stage.guest().write(8192, 1), stage.guest().write(4096, 1)), (Status::IoError, Status::IoError));
    stage.target.set(0, "fail=1:2/0x81");
    assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
    for (kind, message) in [
        (
            EventKind::DiskFailing,
            "the guest got an error: a write failed: the controller failed the command (sector 16, 4096 bytes, path 0 \
             answered `Internal Error, Do Not Retry`)",
        ),
        (
            EventKind::MediumError,
            "the guest got an error: a read failed: the medium reported an error (sector 0, 4096 bytes, path 0 answered \
             `Unrecovered Read Error`)",
        ),
    ] {
        let events = || stage.daemon.api.events(0, 0).unwrap().events;
        eventually("an event tells", || events().iter().any(|event| event.kind == kind && event.message == message));
    }
}

#[test]
fn errors_of_a_flood_are_counted_and_told_once() {
    let mut stage = Stage::start();
    stage.lose_all_paths();
    for _ in 0..500 {
        assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
    }
    eventually("an event tells", || stage.events(EventKind::DiskFailing) == 1);
    let health = stage.disk().health;
    let [errors] = &health.guest_errors[..] else { panic!("{health:?}") };
    assert_eq!((errors.operation, errors.reason), (GuestOperation::Read, GuestErrorReason::NoPath));
    assert_eq!((errors.count, stage.events(EventKind::DiskFailing)), (500, 1));
    assert_eq!(EventKind::DiskFailing.severity(), Severity::Error);
    let log = stage.daemon.log();
    assert_eq!(log.lines().filter(|line| line.contains("ERROR") && line.contains("a read failed")).count(), 1, "{log}");
}

#[test]
fn requests_of_a_front_end_that_has_gone_are_no_errors_of_its_guest() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--reconnect-delay 1 --keep-alive-tmo 1");
    let mut guest = Disk::connect(&daemon.socket());
    assert_eq!(guest.write(0, 7), Status::Ok);
    target.stop_listener(0);
    eventually("the path is lost", || !daemon.is_live(0));
    guest.submit_write(0, 0, 8);
    eventually("the request waits", || daemon.status().disks[0].queued > 0);
    drop(guest);
    eventually("it has gone", || !daemon.status().disks[0].connected);
    let health = daemon.status().disks.remove(0).health;
    assert!(health.guest_errors.is_empty() && health.condition == Condition::Waiting, "{health:?}");
}
