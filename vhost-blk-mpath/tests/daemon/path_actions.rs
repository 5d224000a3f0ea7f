//! Paths drained, disabled, enabled and reset under verified load, and the events about that.

use std::time::{Duration, Instant};

use mpath_api::client::{Client, ClientError, Position};
use mpath_api::types::{
    ActOnPaths, ErrorCode, Event, EventKind, PathAction, PathSelector, PathState, SetLimits, SetScheduler, SetSettings,
};
use mpath_config::{PolicyKind, SchedulerKind};
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Target, Verification, VerificationSetup, eventually, inject, set_policy};

/// The keep-alive timeout outlasts any time that a busy machine keeps the daemon waiting.
/// A busy machine makes no path suspect, and ends no association.
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --suspect-timeout 60s --io-threads 2";

pub(crate) fn wanted(path: u16, action: PathAction) -> ActOnPaths {
    ActOnPaths { path: PathSelector::Index(path), disk: None, all: false, action, force: false }
}

impl Daemon {
    fn act(&self, path: u16, action: PathAction) -> PathState {
        let paths = self.api.act_on_paths(&wanted(path, action)).unwrap();
        assert_eq!((paths.len(), paths[0].index), (1, path));
        paths[0].state
    }

    fn is(&self, path: usize, state: PathState) -> bool {
        self.paths()[path].state == state
    }

    fn kinds(&self, path: u16) -> Vec<EventKind> {
        let events = self.api.events(0).unwrap().events.into_iter();
        let of_path = |event: &Event| event.path.as_ref().is_some_and(|of| of.index == path);
        events.filter(of_path).map(|event| event.kind).collect()
    }
}

/// No errors, miscompares or failed flushes, although each controller counts as having its own cache.
#[test]
fn each_path_in_turn_is_drained_disabled_and_enabled_under_load() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(300);
    let resources = daemon.settled_resources();
    for cycle in 0..6_u16 {
        let path = cycle % 2;
        let index = usize::from(path);
        assert_eq!(daemon.act(path, PathAction::Drain), PathState::Draining);
        eventually("reads and writes end there", || {
            let path = &daemon.paths()[index];
            path.read.in_flight + path.write.in_flight == 0
        });
        let before = daemon.paths()[index].clone();
        assert!(before.cntlid.is_some(), "it stays connected: {before:?}");
        verification.goes_on(300);
        let after = daemon.paths()[index].clone();
        assert_eq!((after.read.ios, after.write.ios), (before.read.ios, before.write.ios), "nothing new");

        assert_ne!(daemon.act(path, PathAction::Disable), PathState::Live);
        eventually("it is closed", || daemon.is(index, PathState::Disabled));
        let closed = daemon.paths()[index].clone();
        assert!(closed.cntlid.is_none() && closed.controller.is_none() && closed.last_error.is_none(), "{closed:?}");
        assert_eq!((closed.fenced, closed.errors()), (0, 0));
        verification.goes_on(300);
        assert!(daemon.is(index, PathState::Disabled), "it is not connected again");
        assert_eq!(daemon.act(path, PathAction::Drain), PathState::Disabled, "to drain it must not connect it");

        daemon.act(path, PathAction::Enable);
        eventually("it is live again", || daemon.is_live(index));
        let before = daemon.paths()[index].ios();
        eventually("it is used again", || daemon.paths()[index].ios() > before + 50);
    }
    daemon.comes_back_to(resources);
    verification.finish();
    let kinds = daemon.kinds(0);
    assert_eq!(
        kinds[..6],
        [
            EventKind::PathLive,
            EventKind::PathDrain,
            EventKind::PathDisable,
            EventKind::PathDisabled,
            EventKind::PathEnable,
            EventKind::PathLive,
        ]
    );
    assert!(!kinds.contains(&EventKind::PathLost) && !kinds.contains(&EventKind::FenceLifted), "{kinds:?}");
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
}

#[test]
fn a_reset_path_is_back_at_once_and_its_writes_wait_for_the_fence() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --reconnect-delay 60 --shared-write-cache"));
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    for path in [0, 1, 0] {
        let index = usize::from(path);
        verification.goes_on(300);
        let lives = |daemon: &Daemon| daemon.kinds(path).iter().filter(|kind| **kind == EventKind::PathLive).count();
        let (before, reset) = (lives(&daemon), Instant::now());
        daemon.act(path, PathAction::Reset);
        eventually("it is back", || daemon.is_live(index) && lives(&daemon) == before + 1);
        assert!(reset.elapsed() < Duration::from_secs(30), "the delay of 60 s is not waited for");
        verification.goes_on(300);
    }
    eventually("fences are lifted", || daemon.kinds(0).iter().filter(|k| **k == EventKind::FenceLifted).count() == 2);
    verification.finish();
    assert!(daemon.log().contains("path down: reset by the operator"), "{}", daemon.log());
}

#[test]
fn a_path_with_unflushed_writes_is_flushed_before_it_is_closed() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.flush(), Status::Ok);
    assert_eq!(disk.write(0, 1), Status::Ok);
    let used = daemon.paths().iter().position(|path| path.write.ios == 1).unwrap();
    daemon.act(used as u16, PathAction::Disable);
    eventually("it is closed", || daemon.is(used, PathState::Disabled));
    assert_eq!(disk.flush(), Status::Ok);
    assert_eq!(disk.read(0), 1);
}

#[test]
fn the_last_path_is_taken_out_only_by_force_and_its_io_waits() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(100);
    daemon.act(0, PathAction::Disable);
    for action in [PathAction::Drain, PathAction::Disable] {
        match daemon.api.act_on_paths(&wanted(1, action)).unwrap_err() {
            ClientError::Refused(info) => assert_eq!(info.code, ErrorCode::LastPath, "{}", info.message),
            error => panic!("{error}"),
        }
        assert!(!daemon.is(1, PathState::Draining) && !daemon.is(1, PathState::Disabled));
    }
    // An action on several paths changes all of them or none.
    daemon.act(0, PathAction::Enable);
    eventually("it is live again", || daemon.is_live(0));
    let all = ActOnPaths { path: PathSelector::All, ..wanted(0, PathAction::Drain) };
    daemon.api.act_on_paths(&all).unwrap_err();
    // The first path may still close for the earlier order, and connect again.
    assert!(!daemon.is(0, PathState::Draining) && !daemon.is(1, PathState::Draining));

    daemon.api.act_on_paths(&ActOnPaths { force: true, ..all }).unwrap();
    eventually("I/O waits", || daemon.status().disks[0].queued > 0);
    assert!(daemon.is(0, PathState::Draining) && daemon.is(1, PathState::Draining));
    daemon.act(1, PathAction::Enable);
    verification.goes_on(300);
    daemon.act(0, PathAction::Enable);
    verification.finish();
}

#[test]
fn a_disabled_path_does_not_reconnect() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --reconnect-delay 1"));
    target.stop_listener(0);
    eventually("it is lost", || daemon.is(0, PathState::Lost));
    daemon.act(0, PathAction::Disable);
    eventually("it is disabled", || daemon.is(0, PathState::Disabled));
    target.resume_listener(0).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(daemon.is(0, PathState::Disabled));
    let refused = daemon.api.act_on_paths(&wanted(0, PathAction::Reset)).unwrap_err().to_string();
    assert!(refused.contains("cannot reset path 0") && refused.contains("it is disabled"), "{refused}");
    daemon.act(0, PathAction::Enable);
    eventually("it is live", || daemon.is_live(0));
}

/// Otherwise a tool that repeats its settings would fill the log, and push out what has happened.
#[test]
fn an_order_that_changes_nothing_is_no_event() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 60");
    let last = || daemon.api.events(0).unwrap().last;
    let hedge = SetSettings { hedge: Some("p95".parse().unwrap()), ..SetSettings::default() };
    let limits = SetLimits { iops: Some("900000".parse().unwrap()), ..SetLimits::default() };
    let scheduler = SetScheduler { name: SchedulerKind::Fifo, params: vec![] };
    let weight = SetSettings { weight: Some("7".parse().unwrap()), ..SetSettings::default() };
    let orders: [&dyn Fn(); 8] = [
        &|| drop(daemon.api.set(&set_policy(PolicyKind::RoundRobin)).unwrap()),
        &|| drop(daemon.api.set(&hedge).unwrap()),
        &|| drop(daemon.api.set(&limits.into()).unwrap()),
        &|| drop(daemon.api.set(&scheduler.clone().into()).unwrap()),
        &|| drop(daemon.api.set(&weight).unwrap()),
        &|| assert_eq!(daemon.act(0, PathAction::Drain), PathState::Draining),
        &|| assert_eq!(daemon.act(0, PathAction::Enable), PathState::Live),
        &|| drop(daemon.api.set_injection(&inject(PathSelector::Index(0), Duration::from_millis(1))).unwrap()),
    ];
    for (index, order) in orders.iter().enumerate() {
        let before = last();
        order();
        assert_eq!(last(), before + 1, "order {index}");
        // Setting an injection again restarts its random numbers.
        if index < 7 {
            order();
            assert_eq!(last(), before + 1, "order {index} again");
        }
    }
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    let before = last();
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    assert_eq!(last(), before);
}

#[test]
fn events_come_as_they_happen() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    let last = daemon.api.events(0).unwrap().last;
    assert!(last >= 1, "the path is live");
    let mut stream = daemon.api.follow(&Position::After(last)).unwrap();
    assert_eq!(stream.read().unwrap().unwrap().events, []);
    daemon.api.set(&set_policy(mpath_config::PolicyKind::RoundRobin)).unwrap();
    let events = stream.read().unwrap().unwrap();
    assert_eq!((events.events.len(), events.events[0].kind, events.lost), (1, EventKind::PolicySet, 0));
    assert_eq!(events.events[0].message, "policy set to round-robin, was numa");
    drop(stream);
    drop(Disk::connect(&daemon.socket()));
    eventually("the front-end has left", || {
        daemon.api.events(last).unwrap().events.iter().any(|event| event.kind == EventKind::FrontEndDisconnected)
    });
    for event in daemon.api.events(0).unwrap().events {
        assert!(daemon.log().contains(&event.message), "one source: {event:?}");
    }
    // Clients that follow events do not delay the end. Their streams end.
    let client = Client::new(&daemon.place.api(), Duration::from_secs(60)).unwrap();
    let mut stream = client.follow(&Position::After(0)).unwrap();
    assert!(stream.read().unwrap().is_some());
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    while stream.read().unwrap().is_some() {}
}
