//! Every kind of injection, over real sockets.

use std::time::{Duration, Instant};

use mpath_api::types::{Direction, InjectedStatus, Injection, OpClass, PathSelector, SetInjection};
use mpath_core::PolicyKind;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, Verification, VerificationSetup, eventually, set_policy};

/// `numa` sends everything to path 0 as long as that is usable.
fn start() -> (Target, Daemon) {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 60");
    (target, daemon)
}

fn set(daemon: &Daemon, path: PathSelector, injection: Injection) {
    let wanted = SetInjection { path, disk: None, injection: injection.checked().unwrap(), for_ms: None };
    assert!(!daemon.api.set_injection(&wanted).unwrap().is_empty());
}

fn clear(daemon: &Daemon) {
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    assert_eq!(daemon.api.injections(None).unwrap(), []);
}

fn errors(status: InjectedStatus) -> Injection {
    let share = 1_000_000.try_into().unwrap();
    Injection { error_rate_ppm: Some(share), status: Some(status), ..Injection::default() }
}

const FIRST: PathSelector = PathSelector::Index(0);

#[test]
fn a_stalled_path_is_suspect_and_only_its_reads_move() {
    for direction in [Direction::Request, Direction::Response] {
        let (_target, daemon) = start();
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!(disk.write(0, 7), Status::Ok);
        set(&daemon, FIRST, Injection { stall: true, direction, ..Injection::default() });
        disk.submit_write(1, 4096, 8);
        assert_eq!(disk.read_by(0, 0), 7, "the read is answered by the other path");
        eventually("the path is suspect", || daemon.paths()[0].suspect);
        assert_eq!(disk.answer(Duration::from_millis(200)), None, "the write stays");
        clear(&daemon);
        assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
        assert_eq!(disk.read(4096), 8);
        let first = &daemon.paths()[0];
        assert!(!first.suspect && first.in_flight() == 0 && first.recalled == 1, "{first:?}");
        assert!(!daemon.log().contains("path down"), "{}", daemon.log());
    }
}

#[test]
fn an_injection_ends_by_itself_and_only_that_one() {
    let (_target, daemon) = start();
    let mut disk = Disk::connect(&daemon.socket());
    let stall = |class| Injection { stall: true, class: Some(class), ..Injection::default() }.checked().unwrap();
    for (class, for_ms) in [(OpClass::Write, 500), (OpClass::Other, 60_000)] {
        let for_ms = Some(for_ms.try_into().unwrap());
        let wanted = SetInjection { path: PathSelector::All, disk: None, injection: stall(class), for_ms };
        daemon.api.set_injection(&wanted).unwrap();
    }
    // A replaced injection takes its timer with it.
    let wanted = SetInjection {
        path: FIRST,
        disk: None,
        injection: stall(OpClass::Other),
        for_ms: Some(500.try_into().unwrap()),
    };
    daemon.api.set_injection(&wanted).unwrap();
    let wanted = SetInjection { for_ms: None, ..wanted };
    daemon.api.set_injection(&wanted).unwrap();
    disk.submit_write(1, 4096, 8);
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)), "the write goes on when its injection ends");
    eventually("both are told", || {
        daemon.log().matches("injection ended after 500ms: stall; class write").count() == 2
    });
    let left: Vec<_> = daemon.paths().iter().map(|path| path.injections.clone()).collect();
    assert_eq!((left[0].len(), left[0][0].ends_in_ms, left[1].len()), (1, None, 1));
    assert!(left[1][0].ends_in_ms.is_some_and(|ms| ms < 60_000), "{left:?}");
}

#[test]
fn path_errors_are_repeated_on_the_other_path_and_the_guest_sees_nothing() {
    for direction in [Direction::Request, Direction::Response] {
        let (_target, daemon) = start();
        set(&daemon, FIRST, Injection { direction, ..errors(InjectedStatus::PathError) });
        let verification =
            Verification::start(&daemon.socket(), VerificationSetup { flush: false, ..VerificationSetup::default() });
        verification.goes_on(2000);
        let paths = daemon.paths();
        assert!(paths[0].errors() > 0 && paths[0].ios() == 0 && paths[1].ios() > 0, "{paths:?}");
        clear(&daemon);
        eventually("it is used again", || daemon.paths()[0].ios() > 0);
        verification.finish();
    }
}

#[test]
fn a_media_error_is_reported_to_the_guest() {
    let (_target, daemon) = start();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 7), Status::Ok);
    let media = Injection { class: Some(OpClass::Read), ..errors(InjectedStatus::MediaError) };
    set(&daemon, PathSelector::All, media);
    let read = Request { kind: Kind::Read, offset: 0, len: 4096 };
    assert_eq!(disk.run(read, &[0; 4096]), Status::IoError);
    assert_eq!(disk.write(0, 9), Status::Ok, "only reads fail");
    // A flush that failed has flushed nothing.
    let other = Injection { class: Some(OpClass::Other), ..errors(InjectedStatus::MediaError) };
    for direction in [Direction::Request, Direction::Response] {
        set(&daemon, PathSelector::All, Injection { direction, ..other });
        assert_eq!(disk.write(0, 9), Status::Ok);
        assert_eq!(disk.flush(), Status::IoError);
    }
    clear(&daemon);
    // After a medium error the cache may have lost the data. So flushes fail until one has come in after that.
    eventually("the loss is reported", || disk.flush() == Status::Ok);
    assert_eq!(disk.read(0), 9);
}

/// The rate is not exceeded, and reached within a tolerance for busy machines.
#[test]
fn an_injected_rate_is_kept() {
    const RATE: u64 = 4 << 20;
    for direction in [Direction::Request, Direction::Response] {
        let (_target, daemon) = start();
        let mut disk = Disk::connect(&daemon.socket());
        set(&daemon, FIRST, Injection { rate: Some(RATE.try_into().unwrap()), direction, ..Injection::default() });
        let data = vec![1; 128 << 10];
        let write = Request { kind: Kind::Write, offset: 0, len: data.len() as u32 };
        let began = Instant::now();
        for slot in 0..8 {
            disk.submit(slot, write, &data);
        }
        for _ in 0..8 {
            assert_eq!(disk.answer(PATIENCE).expect("an answer").1, Status::Ok);
        }
        // 1 MiB at 4 MiB/s takes 250 ms by the clock of the I/O thread, which may have had to wait for a processor
        // since.
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(150), "{direction}: {took:?}");
        assert!(took < Duration::from_secs(5), "{direction}: {took:?}");
    }
}

#[test]
fn all_injections_at_once_under_verification() {
    let (_target, daemon) = start();
    daemon.api.set(&set_policy(PolicyKind::RoundRobin)).unwrap();
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    for seed in 0..12 {
        for (text, path) in [
            (r#"{"latency-us":2000,"jitter-us":1000,"distribution":"normal","seed":SEED}"#, 0),
            (r#"{"jitter-us":500,"distribution":"pareto","direction":"response","class":"read","seed":SEED}"#, 1),
            (r#"{"error-rate-ppm":200000,"direction":"response","class":"write","seed":SEED}"#, 0),
            (r#"{"stall":true,"class":"other"}"#, 1),
            (r#"{"stall":true,"direction":"response"}"#, 1),
            (r#"{"rate":20971520}"#, 0),
            // After an internal error of a flush, the cache may have lost data, and flushes fail.
            (r#"{"error-rate-ppm":20000,"status":"internal-error","class":"read","seed":SEED}"#, 0),
        ] {
            let injection = serde_json::from_str(&text.replace("SEED", &seed.to_string())).unwrap();
            set(&daemon, PathSelector::Index(path), injection);
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon.api.clear_injections(&PathSelector::Index(seed % 2), None).unwrap();
    }
    clear(&daemon);
    verification.goes_on(500);
    verification.finish();
    assert!(daemon.paths().iter().all(|path| path.in_flight() == 0 && path.injections.is_empty()));
}
