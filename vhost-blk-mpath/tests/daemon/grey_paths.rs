//! Grey paths: their targets are stopped, while their kernels still acknowledge data.

use std::fmt;
use std::time::{Duration, Instant};

use mpath_api::types::{ActOnPaths, EventKind, PathAction, PathSelector, PathState};
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, TargetProcess, Verification, VerificationSetup, eventually};

/// The association outlives every stop here.
const FLAGS: &str = "--keep-alive-tmo 60";
const TRIALS: usize = 2;
/// Slots that read, each its own range, and slots that write.
const READERS: u16 = 8;
const WRITERS: u16 = 4;
const BYTES: u32 = 128 << 10;
/// Far above the normal time (see docs/operating/silent-paths.md), for busy machines.
const BOUND: Duration = Duration::from_secs(3);

struct Rig {
    // Before the targets, so that it is dropped first.
    daemon: Daemon,
    targets: [TargetProcess; 2],
    _folder: tempfile::TempDir,
}

impl Rig {
    fn start(flags: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let targets = ["target0", "target1"].map(|name| TargetProcess::start(folder.path(), name));
        let addresses = targets.each_ref().map(|target| target.address);
        let daemon = Daemon::start(&addresses, &format!("{FLAGS} {flags}"));
        Self { daemon, targets, _folder: folder }
    }

    /// All paths are live and were never lost.
    fn assert_nothing_was_lost(&self) {
        for path in self.daemon.paths() {
            assert!(path.state == PathState::Live && path.fenced == 0 && path.last_error.is_none(), "{path:?}");
        }
        assert!(!self.daemon.log().contains("path down"), "{}", self.daemon.log());
    }

    /// How long the API takes to answer.
    fn api_time(&self) -> Duration {
        let asked = Instant::now();
        self.daemon.paths();
        asked.elapsed()
    }
}

/// Times by rank.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn max(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times = self.0.clone();
        times.sort();
        let rank = |percent: usize| times.get((times.len() * percent / 100).min(times.len() - 1)).unwrap();
        write!(f, "n {} p50 {:?} p99 {:?} max {:?}", times.len(), rank(50), rank(99), self.max())
    }
}

/// Reads and writes without a pause, from separate slots.
struct Load {
    disk: Disk,
    since: Vec<Instant>,
    /// The content of each slot's range, by the latest write that was answered or is under way.
    content: Vec<u8>,
}

impl Load {
    fn start(daemon: &Daemon) -> Self {
        let disk = Disk::connect(&daemon.socket());
        let slots = READERS + WRITERS;
        let mut load =
            Self { disk, since: vec![Instant::now(); slots.into()], content: (1..).take(slots.into()).collect() };
        for slot in 0..slots {
            load.submit(slot, Kind::Write);
        }
        for _ in 0..slots {
            let (slot, status) = load.disk.answer(PATIENCE).unwrap();
            assert_eq!(status, Status::Ok);
            load.again(slot);
        }
        load
    }

    fn submit(&mut self, slot: u16, kind: Kind) {
        let fill = if kind == Kind::Read { 0xee } else { self.content[usize::from(slot)] };
        self.since[usize::from(slot)] = Instant::now();
        let request = Request { kind, offset: u64::from(slot) * u64::from(BYTES), len: BYTES };
        self.disk.submit(slot, request, &vec![fill; BYTES as usize]);
    }

    fn again(&mut self, slot: u16) {
        if slot < READERS {
            self.submit(slot, Kind::Read);
        } else {
            let content = &mut self.content[usize::from(slot)];
            *content = content.wrapping_add(1);
            self.submit(slot, Kind::Write);
        }
    }

    /// Takes the next answer within `time`: its slot and how long it took. No new request follows.
    fn answer(&mut self, time: Duration) -> Option<(u16, Duration)> {
        let (slot, status) = self.disk.answer(time)?;
        assert_eq!(status, Status::Ok, "slot {slot}");
        let took = self.since[usize::from(slot)].elapsed();
        if slot < READERS {
            self.check(slot);
        }
        Some((slot, took))
    }

    fn check(&mut self, slot: u16) {
        let mut data = vec![0; BYTES as usize];
        self.disk.fetch(slot, &mut data);
        let wanted = self.content[usize::from(slot)];
        assert!(data.iter().all(|&byte| byte == wanted), "slot {slot} reads something else than {wanted}");
    }

    /// Runs for some time. Returns the times of all reads that ended in it.
    fn run(&mut self, time: Duration) -> Times {
        let end = Instant::now() + time;
        let mut times = Times::default();
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            if let Some((slot, took)) = self.answer(left) {
                if slot < READERS {
                    times.0.push(took);
                }
                self.again(slot);
            }
        }
        times
    }

    /// Runs until each slot of the readers, or of all, has been answered again. Returns the longest time.
    fn all_answer(&mut self, slots: std::ops::Range<u16>) -> Duration {
        let mut left: Vec<u16> = slots.collect();
        let mut longest = Duration::ZERO;
        while !left.is_empty() {
            let (slot, took) = self.answer(PATIENCE).expect("an answer");
            if left.contains(&slot) {
                longest = longest.max(took);
            }
            left.retain(|&other| other != slot);
            self.again(slot);
        }
        longest
    }

    /// Takes all answers and reads everything back.
    fn finish(mut self) {
        let slots = READERS + WRITERS;
        for _ in 0..slots {
            self.answer(PATIENCE).expect("an answer");
        }
        for slot in 0..slots {
            self.submit(slot, Kind::Read);
        }
        for _ in 0..slots {
            let (slot, status) = self.disk.answer(PATIENCE).unwrap();
            assert_eq!(status, Status::Ok);
            self.check(slot);
        }
    }
}

#[test]
fn reads_leave_a_grey_path_and_its_writes_wait_for_it() {
    for policy in ["round-robin", "latency-rr", "queue-depth"] {
        let rig = Rig::start(&format!("--policy {policy}"));
        let mut load = Load::start(&rig.daemon);
        let (mut reads, mut api) = (Times::default(), Times::default());
        for trial in 0..TRIALS {
            let grey = trial % 2;
            load.run(Duration::from_millis(100));
            let before = rig.daemon.paths()[grey].clone();
            rig.targets[grey].stop();
            let stopped_at = Instant::now();
            let mut longest = Duration::ZERO;
            let now = loop {
                longest = longest.max(load.run(Duration::from_millis(20)).max());
                let now = rig.daemon.paths()[grey].clone();
                if now.suspect || now.in_flight() == 0 {
                    break now;
                }
                assert!(stopped_at.elapsed() < PATIENCE, "{now:?}");
            };
            assert!(!now.suspect || now.suspicions > before.suspicions, "{now:?}");
            // Requests in flight complete without the stopped target.
            longest = longest.max(load.all_answer(0..READERS));
            reads.0.push(longest);
            // No new requests go there, not even writes. The API answers throughout.
            let ios = now.ios();
            for _ in 0..5 {
                load.run(Duration::from_millis(50));
                api.0.push(rig.api_time());
            }
            let stopped = rig.daemon.paths()[grey].clone();
            assert_eq!((stopped.ios(), stopped.state), (ios, PathState::Live));
            rig.targets[grey].go_on();
            // The writes that waited are answered by their path.
            load.all_answer(0..READERS + WRITERS);
            // A path is first measured again by single requests.
            let start = Instant::now();
            while rig.daemon.paths()[grey].ios() < stopped.ios() + 20 {
                assert!(start.elapsed() < PATIENCE, "{:?}", rig.daemon.paths());
                load.run(Duration::from_millis(20));
            }
        }
        println!("{policy}: longest read of each stop: {reads}");
        println!("{policy}: API: {api}");
        let moved = rig.daemon.status().disks[0].moved_reads;
        println!("{policy}: reads moved, at the daemon: {moved:?}");
        assert!(reads.max() < BOUND && api.max() < BOUND);
        assert!(moved.ios > 0 && rig.daemon.paths().iter().map(|path| path.recalled).sum::<u64>() > 0);
        load.finish();
        rig.assert_nothing_was_lost();
    }
}

#[test]
fn data_are_verified_while_paths_turn_grey_in_turn() {
    let rig = Rig::start("--policy round-robin --io-threads 2");
    let verification =
        Verification::start(&rig.daemon.socket(), VerificationSetup { bs: 256 << 10, ..VerificationSetup::default() });
    for trial in 0..6 {
        verification.goes_on(200);
        let grey = &rig.targets[trial % 2];
        grey.stop();
        eventually("it is suspect", || rig.daemon.paths()[trial % 2].suspect);
        std::thread::sleep(Duration::from_millis(200));
        grey.go_on();
        eventually("it is not", || !rig.daemon.paths()[trial % 2].suspect);
    }
    verification.goes_on(200);
    verification.finish();
    rig.assert_nothing_was_lost();
}

#[test]
fn a_grey_path_can_be_disabled_and_events_report_it() {
    let rig = Rig::start("--policy round-robin");
    let verification = Verification::start(&rig.daemon.socket(), VerificationSetup::default());
    verification.goes_on(200);
    rig.targets[0].stop();
    let kinds = || {
        let events = rig.daemon.api.events(0).unwrap().events.into_iter();
        let of_grey = events.filter(|event| event.path.as_ref().is_some_and(|path| path.index == 0));
        of_grey.map(|event| event.kind).collect::<Vec<_>>()
    };
    let recoveries = || kinds().iter().filter(|kind| **kind == EventKind::PathRecovered).count();
    eventually("it is suspect", || rig.daemon.paths()[0].suspect);
    // On a busy machine it may have been suspect before, and recovered.
    let before = recoveries();
    assert!(kinds().contains(&EventKind::PathSuspect));
    let disable =
        ActOnPaths { path: PathSelector::Index(0), disk: None, all: false, action: PathAction::Disable, force: false };
    let asked = Instant::now();
    let state = rig.daemon.api.act_on_paths(&disable).unwrap()[0].state;
    println!("disabling a grey path was answered after {:?}", asked.elapsed());
    assert_eq!(state, PathState::Draining);
    assert_eq!(recoveries(), before);
    rig.targets[0].go_on();
    eventually("it is closed", || rig.daemon.paths()[0].state == PathState::Disabled);
    assert!(recoveries() > before, "{:?}", kinds());
    rig.daemon.api.act_on_paths(&ActOnPaths { action: PathAction::Enable, ..disable }).unwrap();
    eventually("it is live", || rig.daemon.is_live(0));
    verification.finish();
    assert!(!kinds().contains(&EventKind::PathLost), "{:?}", kinds());
}

#[test]
fn requests_use_a_grey_path_if_there_is_no_other() {
    let rig = Rig::start("--policy round-robin");
    let mut load = Load::start(&rig.daemon);
    load.run(Duration::from_millis(100));
    rig.targets.iter().for_each(TargetProcess::stop);
    eventually("both hold requests, and neither answers", || {
        // Requests in flight may have been answered before the stop.
        load.run(Duration::from_millis(500));
        rig.daemon.paths().iter().all(|path| path.in_flight() > 0)
    });
    assert!(!rig.daemon.paths().iter().all(|path| path.suspect), "no path is worse than all others");
    assert_ne!(rig.daemon.status().disks[0].path_counts.usable, 0);
    assert!(rig.api_time() < BOUND);
    rig.targets[1].go_on();
    // One path answers, and the other's reads go there.
    load.all_answer(0..READERS);
    rig.targets[0].go_on();
    load.all_answer(0..READERS + WRITERS);
    load.finish();
    rig.assert_nothing_was_lost();
}

#[test]
fn writes_of_a_lost_grey_path_wait_for_the_fence() {
    let folder = tempfile::tempdir().unwrap();
    let targets = ["target0", "target1"].map(|name| TargetProcess::start(folder.path(), name));
    let addresses = targets.each_ref().map(|target| target.address);
    let daemon = Daemon::start(&addresses, "--policy round-robin --keep-alive-tmo 1 --reconnect-delay 1");
    let mut load = Load::start(&daemon);
    load.run(Duration::from_millis(100));
    targets[0].stop();
    load.all_answer(0..READERS);
    eventually("the path is lost", || !daemon.is_live(0));
    // The writes complete when the fence is lifted, at the latest.
    load.all_answer(0..READERS + WRITERS);
    targets[0].go_on();
    eventually("the path is back", || daemon.is_live(0));
    load.all_answer(0..READERS + WRITERS);
    load.finish();
}
