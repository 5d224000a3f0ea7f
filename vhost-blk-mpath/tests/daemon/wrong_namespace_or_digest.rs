//! Paths that lead to another namespace, and data that arrive with a wrong digest.

use mpath_api::types::{EventKind, PathAction, PathState};

use crate::path_actions::wanted;
use crate::support::{Daemon, Target, Verification, VerificationSetup, eventually};

/// The keep-alive timeout outlasts any time that a busy machine keeps the daemon waiting.
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";
const OURS: &str = "uuid=1:own";
const OTHER: &str = "uuid=1:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";

fn unflushed() -> VerificationSetup {
    VerificationSetup { bs: 16 << 10, flush: false, ..VerificationSetup::default() }
}

fn kinds(daemon: &Daemon, kind: EventKind) -> usize {
    daemon.api.events(0).unwrap().events.iter().filter(|event| event.kind == kind).count()
}

/// The first path is refused, and says why. The other one serves.
fn refused(daemon: &Daemon, why: &str) {
    eventually("the path is refused", || daemon.paths()[0].state == PathState::Refused);
    let error = daemon.paths()[0].last_error.clone().unwrap();
    assert!(error.contains("leads to another namespace") && error.contains(why), "{error}");
    assert!(daemon.log().contains(&error), "loudly: {}", daemon.log());
    assert!(daemon.is_live(1));
}

#[test]
fn another_namespace_on_reconnect_is_refused() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), unflushed());
    verification.goes_on(200);
    target.stop_listener(0);
    eventually("the loss is noticed", || !daemon.is_live(0));
    target.set(0, OTHER);
    target.resume_listener(0).unwrap();
    refused(&daemon, "UUID");
    let before = daemon.paths()[0].ios();
    verification.goes_on(200);
    assert_eq!(daemon.paths()[0].ios(), before);
    // It is retried only when the operator says so. The first retry fails.
    for (action, uuid) in [(PathAction::Reset, OTHER), (PathAction::Enable, OTHER), (PathAction::Reset, OURS)] {
        let refused = kinds(&daemon, EventKind::PathRefused);
        target.set(0, uuid);
        daemon.api.act_on_paths(&wanted(0, action)).unwrap();
        if uuid == OTHER {
            eventually("it is refused again", || kinds(&daemon, EventKind::PathRefused) == refused + 1);
        }
    }
    eventually("the path is back", || daemon.is_live(0));
    verification.goes_on(200);
    assert!(daemon.paths()[0].ios() > before);
    verification.finish();
}

#[test]
fn another_namespace_at_the_start_is_refused() {
    let target = Target::start(2);
    // The first path decides the namespace, so let that be the other one.
    let daemon = {
        target.stop_listener(0);
        let daemon = Daemon::start(&target.addrs(), FLAGS);
        target.set(0, OTHER);
        target.resume_listener(0).unwrap();
        daemon
    };
    refused(&daemon, "UUID");
}

#[test]
fn another_namespace_on_a_live_path_is_refused() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), unflushed());
    verification.goes_on(200);
    target.set(0, OTHER);
    refused(&daemon, "UUID");
    verification.goes_on(200);
    verification.finish();
}

#[test]
fn a_wrong_header_digest_ends_the_association() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --hdr-digest"));
    let verification = Verification::start(&daemon.socket(), unflushed());
    for lost in [0, 1] {
        verification.goes_on(200);
        target.set(lost, "header-digests=1");
        eventually("the path is lost", || daemon.log().matches("header digest").count() > lost);
        verification.goes_on(200);
        eventually("it comes back", || daemon.is_live(lost));
    }
    verification.finish();
}

#[test]
fn a_wrong_data_digest_repeats_only_its_command() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --data-digest"));
    let verification = Verification::start(&daemon.socket(), unflushed());
    for _ in 0..3 {
        // At most one command is repeated, because each may meet the same fault.
        (0..2).for_each(|listener| target.set(listener, "data-digests=2"));
        let wrong_left = || target.status().iter().map(|listener| listener.data_digests).sum::<u32>();
        eventually("they are all sent", || wrong_left() == 0);
        verification.goes_on(200);
    }
    verification.finish();
    for path in daemon.paths() {
        assert!(path.state == PathState::Live && path.losses == 0, "{path:?}");
    }
    assert!(!daemon.log().contains("path down"), "{}", daemon.log());
}
