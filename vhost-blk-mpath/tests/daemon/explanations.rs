//! `GET /v1/disks/{disk}/explain` over real sockets.

use std::time::Duration;

use mpath_api::types::{
    AnaState, Decision, ExplainedPath, Explanation, Injection, NextRequest, PathAction, PathReason, PathSelector,
    PathState, PolicyOpinion, SetInjection, SetLimits, SteerPaths, ThreadExplanation, WaitReason,
};
use mpath_core::PolicyKind;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Link, PATIENCE, Target, eventually, inject, set_policy};

const FIRST: PathSelector = PathSelector::Index(0);

/// `numa` sends everything to path 0 as long as that is usable.
fn start() -> (Target, Daemon, Disk) {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 60");
    let disk = Disk::connect(&daemon.socket());
    (target, daemon, disk)
}

fn explain(daemon: &Daemon) -> Explanation {
    let name = &daemon.status().disks[0].name;
    daemon.api.explain(name).unwrap()
}

fn thread(daemon: &Daemon) -> ThreadExplanation {
    let mut threads = explain(daemon).threads;
    assert_eq!(threads.len(), 1, "one thread serves the disk's virtqueue");
    threads.remove(0)
}

fn first(daemon: &Daemon) -> (NextRequest, ExplainedPath) {
    let read = thread(daemon).read;
    let path = read.paths[0].clone();
    (read, path)
}

fn waits(daemon: &Daemon) -> Vec<(WaitReason, Option<u16>, u64)> {
    thread(daemon).waiting.iter().map(|of| (of.cause, of.index, of.requests)).collect()
}

fn steer(daemon: &Daemon, action: PathAction) {
    daemon.api.steer(&SteerPaths { path: FIRST, disk: None, action, force: false }).unwrap();
}

#[test]
fn the_path_of_the_next_request_and_why_not_another() {
    let (target, daemon, mut disk) = start();
    assert_eq!(disk.read(0), 0);
    let read = thread(&daemon).read;
    assert_eq!((read.decision, read.index, read.exists), (Decision::Path, Some(0), false));
    let reasons: Vec<_> = read.paths.iter().map(|path| (path.reason, path.opinion)).collect();
    let distance = Some(PolicyOpinion::NumaDistance { distance: 10 });
    assert_eq!(reasons, [(None, distance), (Some(PathReason::NotPreferred), distance)]);

    steer(&daemon, PathAction::Drain);
    let (read, path) = first(&daemon);
    assert_eq!((read.index, path.reason, path.state), (Some(1), Some(PathReason::Draining), PathState::Draining));
    steer(&daemon, PathAction::Disable);
    eventually("the path is disabled", || {
        let (_, path) = first(&daemon);
        (path.reason, path.state) == (Some(PathReason::Down), PathState::Disabled)
    });
    steer(&daemon, PathAction::Enable);
    eventually("the path is used again", || first(&daemon).0.index == Some(0));

    target.set_ana(0, mpath_target::AnaState::Inaccessible);
    eventually("the ANA state is the reason", || {
        let (read, path) = first(&daemon);
        (read.index, path.reason, path.ana_state) == (Some(1), Some(PathReason::AnaState), Some(AnaState::Inaccessible))
    });
    assert!(first(&daemon).1.detail.is_some());
}

#[test]
fn an_injected_latency_is_a_worse_estimate_and_a_note() {
    let (_target, daemon, mut disk) = start();
    daemon.api.set_policy(&set_policy(PolicyKind::Latency)).unwrap();
    daemon.api.set_injection(&inject(FIRST, Duration::from_millis(30))).unwrap();
    for _ in 0..20 {
        assert_eq!(disk.read(0), 0);
    }
    let (read, path) = first(&daemon);
    assert_eq!((read.index, path.reason), (Some(1), Some(PathReason::NotPreferred)));
    assert!(matches!(path.opinion, Some(PolicyOpinion::Latency { latency_us: Some(30_000..) })), "{:?}", path.opinion);
    assert_eq!(path.injections.len(), 1);
}

#[test]
fn what_waits_and_for_what() {
    let (_target, daemon, mut disk) = start();
    assert_eq!((disk.write(0, 1), waits(&daemon)), (Status::Ok, vec![]));
    let flush: Vec<_> = thread(&daemon).flush.unwrap().iter().map(|of| (of.index, of.reachable)).collect();
    assert!(flush.contains(&(0, true)), "{flush:?}");

    let stall = Injection { stall: true, ..Injection::default() };
    daemon.api.set_injection(&SetInjection { path: FIRST, disk: None, injection: stall, for_ms: None }).unwrap();
    disk.submit_write(1, 0, 2);
    eventually("the injection keeps the write", || waits(&daemon) == [(WaitReason::Injection, Some(0), 1)]);
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));

    let limits = SetLimits { iops: Some("1".parse().unwrap()), ..SetLimits::default() };
    daemon.api.set_limits(&limits).unwrap();
    // The burst of the limit is one request, and one more may go in excess.
    (1..4).for_each(|slot| disk.submit_write(slot, 0, 3));
    eventually("the limit keeps a write", || {
        let thread = thread(&daemon);
        let is_limited = |of: &mpath_api::types::Waiting| of.cause == WaitReason::Limit && of.left_us.is_some();
        thread.waiting.iter().any(is_limited) && thread.write.limit_left_us.is_some() && thread.write.exists
    });
    let off = SetLimits { iops: Some("off".parse().unwrap()), ..SetLimits::default() };
    daemon.api.set_limits(&off).unwrap();
    assert!((0..3).all(|_| disk.answer(PATIENCE).is_some()));
}

#[test]
fn a_write_in_doubt_waits_for_its_fence() {
    let target = Target::start(2);
    target.fail_cross_resets();
    let link = Link::to(target.addrs()[0]);
    let flags = "--policy numa --keep-alive-tmo 1 --reconnect-delay 600";
    let daemon = Daemon::start(&[link.address(), target.addrs()[1]], flags);
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 0), Status::Ok);
    link.hold();
    disk.submit_write(1, 0, 1);
    eventually("the write is under way", || link.held_bytes() > 4096);
    link.cut();
    eventually("the fence holds the write", || waits(&daemon) == [(WaitReason::Fence, Some(0), 1)]);
    let (read, path) = first(&daemon);
    assert_eq!((read.index, path.reason), (Some(1), Some(PathReason::Down)));
    assert!(path.detail.is_some_and(|detail| detail.starts_with("lost")));
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
    let slow = daemon.api.slow(None).unwrap();
    let write = slow.iter().find(|of| of.attempts == 2).unwrap();
    assert_eq!((&*write.longest, &write.paths[..], write.index), ("fence", &[0, 1][..], Some(1)), "{write:?}");
}
