//! The condition of a disk, its event and its metric under every kind of fault: the table of docs/operating/conditions.md, which
//! `make fault-table` prints.

#![allow(clippy::float_cmp)] // counts

use std::time::{Duration, Instant};

use mpath_api::types::{
    ActOnPaths, AddPath, Condition, Disk as DiskStatus, EventKind, GuestErrorReason, InjectedStatus, Injection, Path,
    PathAction, PathSelector, SetInjection,
};
use mpath_target::{AnaState, NamespaceConfig};
use rustix::process::Signal;
use vublk_bench::request::{Kind, Request, Status};

use crate::metrics::Scrape;
use crate::support::{Daemon, Disk, HostileGuest, PATIENCE, Target, at_once, eventually};
use crate::transport::has_mptcp;

pub(crate) const READ: Request = Request { kind: Kind::Read, offset: 0, len: 4096 };

/// The longest time from the moment at which the daemon has noticed a fault until condition, event and metric tell of
/// it.
const NOTICE: Duration = Duration::from_secs(1);

/// One row of the table.
struct Case {
    /// The fault, in the words of the documentation.
    fault: &'static str,
    condition: Condition,
    /// The event that tells of it.
    event: EventKind,
    /// A metric, and some of its labels. The sum of the samples with these labels is 0 before the fault, and 1 or more
    /// after.
    metric: (&'static str, &'static str),
    /// Stages the fault, and returns once the daemon has noticed.
    stage: fn(&mut Stage),
}

/// The flags of the daemon on a [`Stage`]. The keep-alive timeout outlasts most times that a busy machine keeps the daemon waiting.
const FLAGS: &str = "--policy numa --namespace 1 --hdr-digest --data-digest --keep-alive-tmo 5 --reconnect-delay 1 \
                     --fast-io-fail-tmo 1 --io-timeout 60s";

/// A target with three listeners, paths to the first two, and a guest.
pub(crate) struct Stage {
    pub(crate) target: Target,
    daemon: Option<Daemon>,
    guest: Option<Disk>,
}

impl Stage {
    pub(crate) fn start() -> Self {
        let target = Target::with(3, |config| {
            config.namespaces.push(NamespaceConfig::memory(32 << 20));
            config.anatt_seconds = 1;
        });
        let daemon = Daemon::start(&target.addrs()[..2], FLAGS);
        let mut guest = Disk::connect(&daemon.socket());
        assert_eq!((guest.write(0, 7), guest.flush()), (Status::Ok, Status::Ok));
        let stage = Self { target, daemon: Some(daemon), guest: Some(guest) };
        eventually("the disk is ok", || stage.disk().health.condition == Condition::Ok);
        stage
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// Kills the daemon and starts the next one.
    pub(crate) fn replace_killed_daemon(&mut self) {
        let (_, place) = self.daemon.take().expect("it runs").end(Signal::KILL);
        let command = place.command(&self.target.addrs()[..2], FLAGS);
        self.daemon = Some(place.spawn(command).ready());
    }

    pub(crate) fn disk(&self) -> DiskStatus {
        self.daemon().status().disks.remove(0)
    }

    pub(crate) fn guest(&mut self) -> &mut Disk {
        self.guest.as_mut().expect("it is connected")
    }

    fn set_ana(&self, state: AnaState, shown: &str) {
        for listener in 0..2 {
            self.target.set_ana(listener, state);
        }
        let all =
            || self.daemon().paths().iter().all(|path| path.ana_state.is_some_and(|ana| ana.to_string() == shown));
        eventually("the daemon knows", all);
    }

    /// Adds a path to the third listener.
    fn add_path(&self, transport: &str) {
        let address = format!("{transport}://{}", self.target.addrs()[2]).parse().unwrap();
        self.daemon().api.add_path("disk0", &AddPath { address }).unwrap();
    }

    fn has_guest_errors(&self, reason: GuestErrorReason) -> bool {
        self.disk().health.guest_errors.iter().any(|of| of.reason == reason)
    }

    fn inject(&self, path: PathSelector, injection: Injection) {
        let wanted = SetInjection { path, disk: None, injection: injection.checked().unwrap(), for_ms: None };
        assert!(!self.daemon().api.set_injection(&wanted).unwrap().is_empty());
    }

    fn inject_errors(&self, status: InjectedStatus) {
        let share = 1_000_000.try_into().unwrap();
        let injection = Injection { error_rate_ppm: Some(share), status: Some(status), ..Injection::default() };
        self.inject(PathSelector::All, injection);
    }

    /// Gives the first path a fault that ends its association. The path does not come back.
    fn lose_path_by(&mut self, fault: &str) {
        self.target.set(0, "listen=off");
        self.target.set(0, fault);
        self.guest().submit(1, READ, &[0; 4096]);
        eventually("it is lost", || !self.daemon().is_live(0));
    }

    pub(crate) fn lose_all_paths(&self) {
        (0..2).for_each(|listener| self.target.stop_listener(listener));
        eventually("both paths are lost", || !self.daemon().is_live(0) && !self.daemon().is_live(1));
    }

    pub(crate) fn events(&self, kind: EventKind) -> usize {
        let events = self.daemon().api.events(0).unwrap().events;
        events.iter().filter(|event| event.kind == kind && event.severity == kind.severity()).count()
    }
}

fn act(action: PathAction, force: bool) -> ActOnPaths {
    ActOnPaths { path: PathSelector::All, disk: None, all: false, action, force }
}

const FALLBACK: &str = "MPTCP falls back to plain TCP";

const CASES: [Case; 23] = [
    Case {
        fault: "a path is lost, another one is left",
        condition: Condition::Degraded,
        event: EventKind::DiskDegraded,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| {
            stage.target.stop_listener(0);
            eventually("it is lost", || !stage.daemon().is_live(0));
        },
    },
    Case {
        fault: "a path is silent",
        condition: Condition::Degraded,
        event: EventKind::PathSuspect,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| {
            stage.inject(PathSelector::Index(0), Injection { stall: true, ..Injection::default() });
            stage.guest().submit_write(1, 0, 1);
            eventually("it is suspect", || stage.daemon().paths()[0].suspect);
        },
    },
    Case {
        fault: "a controller breaks the protocol",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| stage.lose_path_by("answer-twice=1:read"),
    },
    Case {
        fault: "a controller sends less data than a read asked for",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| stage.lose_path_by("short-read=1:read"),
    },
    Case {
        fault: "a header digest is wrong",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| stage.lose_path_by("header-digests=1"),
    },
    Case {
        fault: "data arrive with a wrong data digest",
        condition: Condition::Ok,
        event: EventKind::DigestError,
        metric: ("path_errors_total", "class=\"read\""),
        stage: |stage| {
            stage.target.set(0, "data-digests=1");
            stage.guest().submit(1, READ, &[0; 4096]);
            assert_eq!(stage.guest().answer(PATIENCE), Some((1, Status::Ok)));
        },
    },
    Case {
        fault: "a path answers errors, and the commands are repeated",
        condition: Condition::Ok,
        event: EventKind::CommandError,
        metric: ("path_errors_total", "class=\"read\""),
        stage: |stage| {
            // Internal Error, without DNR.
            stage.target.set(0, "fail=1:0/0x06");
            assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::Ok);
            let is_told = |path: &Path| path.last_error.as_ref().is_some_and(|error| error.contains("Internal Error"));
            eventually("the path has the error", || is_told(&stage.daemon().paths()[0]));
        },
    },
    Case {
        fault: "a path is inaccessible (ANA)",
        condition: Condition::Degraded,
        event: EventKind::AnaChanged,
        metric: ("path_ana_state", "state=\"inaccessible\""),
        stage: |stage| {
            stage.target.set_ana(0, AnaState::Inaccessible);
            eventually("the daemon knows", || stage.daemon().paths()[0].unusable.is_some());
        },
    },
    Case {
        fault: "an ANA state stays `change` for too long",
        condition: Condition::Degraded,
        event: EventKind::PathLost,
        metric: ("path_losses_total", ""),
        stage: |stage| stage.lose_path_by("ana=change"),
    },
    Case {
        fault: FALLBACK,
        condition: Condition::Ok,
        event: EventKind::MptcpFallback,
        metric: ("path_fallback_connections", ""),
        stage: |stage| {
            stage.add_path("mptcp");
            eventually("the kernel was asked", || stage.daemon().paths()[2].fallbacks() > 0);
        },
    },
    Case {
        fault: "a path leads to another namespace",
        condition: Condition::Degraded,
        event: EventKind::PathRefused,
        metric: ("disk_condition", "condition=\"degraded\""),
        stage: |stage| {
            stage.target.set(2, "uuid=1:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21");
            stage.add_path("tcp");
            eventually("it is refused", || stage.daemon().paths()[2].state.to_string() == "refused");
        },
    },
    Case {
        fault: "every path is inaccessible (ANA)",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: ("disk_condition", "condition=\"waiting\""),
        stage: |stage| stage.set_ana(AnaState::Inaccessible, "inaccessible"),
    },
    Case {
        fault: "every path is lost, no request is under way",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: ("disk_condition", "condition=\"waiting\""),
        stage: |stage| stage.lose_all_paths(),
    },
    Case {
        fault: "every path is drained by force",
        condition: Condition::Waiting,
        event: EventKind::DiskWaiting,
        metric: ("disk_condition", "condition=\"waiting\""),
        stage: |stage| drop(stage.daemon().api.act_on_paths(&act(PathAction::Drain, true)).unwrap()),
    },
    Case {
        fault: "the guest gets errors: no path in time",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"read\",reason=\"no-path\""),
        stage: |stage| {
            stage.lose_all_paths();
            assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: the controller fails commands",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"write\",reason=\"controller\""),
        stage: |stage| {
            stage.inject_errors(InjectedStatus::InternalErrorDnr);
            assert_eq!(stage.guest().write(0, 1), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: every attempt fails",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"write\",reason=\"attempts\""),
        stage: |stage| {
            stage.inject_errors(InjectedStatus::InternalError);
            assert_eq!(stage.guest().write(0, 1), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: a flush reports lost writes",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"flush\",reason=\"lost-writes\""),
        stage: |stage| {
            assert_eq!(stage.guest().write(0, 1), Status::Ok);
            stage.target.stop_listener(0);
            eventually("the path is lost", || !stage.daemon().is_live(0));
            assert_eq!(stage.guest().flush(), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: its requests are malformed",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"other\",reason=\"malformed\""),
        stage: |stage| {
            let beyond = Request { kind: Kind::Read, offset: 1 << 40, len: 4096 };
            assert_eq!(stage.guest().run(beyond, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "the guest gets errors: the medium reports them",
        condition: Condition::Ok,
        event: EventKind::MediumError,
        metric: ("disk_guest_errors_total", "operation=\"read\",reason=\"medium\""),
        stage: |stage| {
            stage.inject_errors(InjectedStatus::MediaError);
            assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
        },
    },
    Case {
        fault: "a guest breaks the rules of virtqueues",
        condition: Condition::Failing,
        event: EventKind::DiskFailing,
        metric: ("disk_guest_errors_total", "operation=\"other\",reason=\"malformed\""),
        stage: |stage| {
            stage.guest = None;
            let hostile = HostileGuest::start(stage.daemon().socket(), 1);
            eventually("the daemon refuses requests", || stage.has_guest_errors(GuestErrorReason::Malformed));
            hostile.end();
        },
    },
    Case {
        fault: "the front-end has gone",
        condition: Condition::NoFrontEnd,
        event: EventKind::FrontEndDisconnected,
        metric: ("disk_condition", "condition=\"no-front-end\""),
        stage: |stage| {
            stage.guest = None;
            eventually("it has gone", || !stage.disk().connected);
        },
    },
    Case {
        fault: "the last daemon was killed",
        condition: Condition::Held,
        event: EventKind::DiskHeld,
        metric: ("disk_condition", "condition=\"held\""),
        stage: |stage| stage.replace_killed_daemon(),
    },
];

/// Waits for the event, and returns the time since `noticed`. An event may be half a second late. Most other requests to
/// the API would make it come at once, so there must be none meanwhile.
fn event_comes(stage: &Stage, case: &Case, before: usize, noticed: Instant) -> Duration {
    while stage.events(case.event) <= before {
        assert!(noticed.elapsed() < PATIENCE, "{}: no {} event; {}", case.fault, case.event, stage.daemon().log());
        std::thread::sleep(Duration::from_millis(10));
    }
    noticed.elapsed()
}

#[test]
fn every_fault_has_its_condition_event_and_metric() {
    println!("{:<55} {:<13} {:<24} {:>9}  metric", "fault", "condition", "event", "within");
    let cases = CASES.into_iter().filter(|case| case.fault != FALLBACK || has_mptcp());
    for row in at_once(cases, |case| row(&case)) {
        println!("{row}");
    }
}

/// Stages a fault. Returns its row of the table.
fn row(case: &Case) -> String {
    let mut stage = Stage::start();
    let (metric, labels) = case.metric;
    let scraped = |stage: &Stage| Scrape::of(stage.daemon()).sum(metric, labels);
    assert_eq!(scraped(&stage), 0.0, "{}", case.fault);
    let before = stage.events(case.event);
    (case.stage)(&mut stage);
    let noticed = Instant::now();
    let within = event_comes(&stage, case, before, noticed);
    let disk = stage.disk();
    assert_eq!(disk.health.condition, case.condition, "{}: {:?}", case.fault, disk.health);
    assert_eq!(disk.health.reasons.is_empty(), case.condition == Condition::Ok, "{:?}", disk.health);
    assert!(scraped(&stage) >= 1.0, "{}", case.fault);
    // A busy machine may be late. The time is that of a timer, which no load makes ten times as long.
    assert!(within < 10 * NOTICE, "{}: {within:?}", case.fault);
    format!(
        "{:<55} {:<13} {:<24} {:>6} ms  {metric}{{{labels}}}",
        case.fault,
        case.condition,
        case.event,
        within.as_millis(),
    )
}
