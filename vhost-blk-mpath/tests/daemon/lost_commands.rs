//! Single commands that a target loses, or answers early, twice, late or short, while it answers all others. The path
//! never falls silent.
//!
//! Limits on the guest's wait hold in virtual time (`crates/mpath-core/tests/rules/suspicion/lost_commands.rs`). Here they are
//! judged only with priority over other load.

use std::fs;
use std::time::{Duration, Instant};

use mpath_api::types::{EventKind, Path};
use mpath_config::DiskConfig;
use serde_json::{Value, json};
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{
    Bystanders, Daemon, DaemonDirectory, Disk, PATIENCE, Priority, Target, Verification, VerificationSetup, disk,
    eventually, sharer, socket_of, target_of,
};

const PATHS: usize = 2;
/// Disks that keep the paths from falling silent.
const BYSTANDERS: usize = 3;
const SEED: u64 = 20_816;
/// More than a capsule carries, so the controller has to request the data.
const LARGE: u32 = 64 << 10;

/// A read that another path answers takes less, at default settings. It is ten times the limit of docs/failure-model.md.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// The target's service time for a request.
const SERVICE: Duration = Duration::from_millis(1);
/// A delay that does not count as harm to another disk.
const OTHERS_LIMIT: Duration = Duration::from_secs(2);
const IO_TIMEOUT: Duration = Duration::from_secs(1);
/// 2 × the keep-alive timeout of 1 s, and the test target's quiesce time (CQT).
const FENCE: Duration = Duration::from_millis(2100);

/// The first disk's requests meet faults, those of the other disks do not.
struct Rig {
    disk: Disk,
    others: Bystanders,
    daemon: Daemon,
    target: Target,
    /// The path with the most requests, where the faults are.
    path: usize,
}

/// The result of the request that met a fault.
struct Met<T> {
    result: T,
    begun: Instant,
    took: Duration,
}

impl Rig {
    fn start(settings: &[(&str, Value)]) -> Self {
        let target = target_of(1 + BYSTANDERS, PATHS, 64 << 20);
        let daemon = start(&target, settings);
        let disk = Disk::connect(&socket_of(&daemon.place, 0));
        // The others must not need all that the machine has.
        (0..PATHS).for_each(|path| target.set_delay(path, SERVICE));
        let others = Bystanders::start((1..=BYSTANDERS).map(|number| socket_of(&daemon.place, number)), SEED);
        let ios = || daemon.paths().iter().map(Path::ios).collect::<Vec<_>>();
        let before = ios();
        eventually("the others have used the paths", || ios().iter().sum::<u64>() > before.iter().sum::<u64>() + 100);
        let path = (0..PATHS).max_by_key(|&path| ios()[path] - before[path]).unwrap();
        Self { disk, others, daemon, target, path }
    }

    /// Sends requests of the first disk, one after the other, until one of them has met the fault.
    fn meet<T>(&mut self, fault: &str, mut request: impl FnMut(&mut Disk) -> T) -> Met<T> {
        self.target.set(self.path, fault);
        let start = Instant::now();
        loop {
            let begun = Instant::now();
            let result = request(&mut self.disk);
            let took = begun.elapsed();
            if self.target.status()[self.path].answers.is_empty() {
                return Met { result, begun, took };
            }
            assert!(start.elapsed() < PATIENCE, "no request meets {fault}");
        }
    }

    /// How often the path was lost.
    fn losses(&self) -> usize {
        let events = self.daemon.api.events(0).unwrap().events.into_iter();
        let is_loss = |kind| kind == EventKind::PathLost;
        events.filter(|event| is_loss(event.kind) && event.path.as_ref().unwrap().index as usize == self.path).count()
    }

    fn is_live(&self) -> bool {
        self.daemon.is_live(self.path)
    }

    /// The path was lost because of that command, and comes back.
    fn comes_back(&self) {
        // A busy machine may lose the path for other reasons, too.
        eventually("the path is lost", || self.losses() > 0);
        eventually("the path comes back", || self.is_live());
    }

    /// Ends the other disks, which read all their data back. Returns the longest time of those of their requests that
    /// ended after `since`.
    fn check_bystanders(self, since: Instant) -> Duration {
        assert!(!self.daemon.log().contains("panicked"), "{}", self.daemon.log());
        let requests = self.others.finish();
        let longest = requests.iter().filter(|took| took.ended >= since).map(|took| took.ended - took.begun).max();
        longest.expect("the others were at work")
    }
}

/// A daemon with a disk that owns the paths, and others that share them.
fn start(target: &Target, settings: &[(&str, Value)]) -> Daemon {
    let place = DaemonDirectory::new();
    let share_paths_with = (1..=BYSTANDERS).map(|number| sharer(&place, number)).collect();
    let command = place.configured(vec![DiskConfig { share_paths_with, ..disk(&place, target, 0) }]);
    let file = place.file("config.yaml");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (name, value) in settings {
        config["disks"][0][name] = value.clone();
    }
    fs::write(file, config.to_string()).unwrap();
    place.spawn(command).ready()
}

/// The smallest timeouts that are allowed.
fn impatient() -> Vec<(&'static str, Value)> {
    vec![
        ("io-timeout", json!(format!("{}s", IO_TIMEOUT.as_secs()))),
        ("keep-alive-tmo", json!(1)),
        ("reconnect-delay", json!(1)),
    ]
}

/// Fills the first 64 KiB.
fn write_large(disk: &mut Disk, byte: u8) -> Status {
    disk.run(Request { kind: Kind::Write, offset: 0, len: LARGE }, &vec![byte; LARGE as usize])
}

/// The value of all bytes there.
fn read_large(disk: &mut Disk) -> u8 {
    let mut bytes = (0..u64::from(LARGE)).step_by(4096).map(|offset| disk.read(offset)).collect::<Vec<_>>();
    bytes.dedup();
    assert_eq!(bytes.len(), 1, "torn");
    bytes[0]
}

#[test]
fn a_swallowed_read_is_read_elsewhere_within_a_second_and_no_other_disk_waits() {
    let priority = Priority::take();
    let mut rig = Rig::start(&[]);
    assert_eq!(rig.disk.write(0, 7), Status::Ok);
    let met = rig.meet("swallow=1:read:1", |disk| disk.read(0));
    assert_eq!(met.result, 7);
    assert!(!priority.is_permitted() || met.took < READ_LIMIT, "answered after {:?}", met.took);
    assert_eq!((rig.disk.write(0, 8), rig.disk.read(0)), (Status::Ok, 8));
    assert_eq!((rig.losses(), rig.is_live()), (0, true), "nothing is old enough for that");
    let waited = rig.check_bystanders(met.begun);
    assert!(!priority.is_permitted() || waited < OTHERS_LIMIT, "another disk waited {waited:?}");
}

#[test]
fn a_read_that_was_recalled_ends_its_association_at_the_io_timeout() {
    let mut rig = Rig::start(&impatient());
    assert_eq!(rig.disk.write(0, 7), Status::Ok);
    let met = rig.meet("swallow=1:read:1", |disk| disk.read(0));
    assert_eq!(met.result, 7);
    rig.comes_back();
    rig.check_bystanders(met.begun);
}

/// Checks that a write that meets the fault is repeated after its fence.
fn is_repeated(fault: &str) {
    let mut rig = Rig::start(&impatient());
    rig.target.fail_cross_resets();
    let mut byte = 0_u8;
    let met = rig.meet(fault, |disk| {
        // The policy may send many to the other path first.
        byte = byte.wrapping_add(1);
        disk.write(0, byte)
    });
    assert_eq!(met.result, Status::Ok);
    assert!(met.took >= FENCE, "{fault}: answered after {:?}", met.took);
    assert_eq!(rig.disk.read(0), byte);
    assert_eq!((rig.disk.write(0, 0), rig.disk.read(0)), (Status::Ok, 0));
    rig.comes_back();
    assert_eq!(rig.disk.read(0), 0);
    rig.check_bystanders(met.begun);
}

/// It was neither executed nor answered.
#[test]
fn a_swallowed_write_is_repeated_after_the_io_timeout_and_its_fence() {
    is_repeated("swallow=1:write:1");
}

/// It was executed and not answered.
#[test]
fn a_write_whose_answer_is_lost_is_repeated_after_the_io_timeout_and_its_fence() {
    is_repeated("lose-answer=1:write:1");
}

/// Writes of that association that were acknowledged and not flushed may be lost.
#[test]
fn a_swallowed_flush_fails_after_the_io_timeout_and_the_next_succeeds() {
    let mut rig = Rig::start(&impatient());
    // The first flush also goes to paths without writes, where a loss would lose nothing.
    assert_eq!(rig.disk.flush(), Status::Ok);
    let met = rig.meet("swallow=1:flush:1", |disk| {
        assert_eq!(disk.write(0, 7), Status::Ok);
        disk.flush()
    });
    assert_eq!(met.result, Status::IoError);
    rig.comes_back();
    // A flush within 100 ms of the failed one fails too.
    eventually("a flush succeeds", || rig.disk.write(0, 8) == Status::Ok && rig.disk.flush() == Status::Ok);
    assert_eq!(rig.disk.read(0), 8);
    rig.check_bystanders(met.begun);
}

/// A read changes nothing, so it waits for no fence.
#[test]
fn a_swallowed_flush_that_any_path_can_do_is_done_elsewhere_after_the_io_timeout() {
    let mut settings = impatient();
    settings.extend([("shared-write-cache", json!(true)), ("keep-alive-tmo", json!(5))]);
    let mut rig = Rig::start(&settings);
    rig.target.fail_cross_resets();
    let met = rig.meet("swallow=1:flush:1", |disk| {
        assert_eq!(disk.write(0, 7), Status::Ok);
        disk.flush()
    });
    assert_eq!(met.result, Status::Ok);
    // The fence takes ten seconds. A busy machine may lose the path before the I/O timeout.
    assert!(met.took < Duration::from_secs(10), "answered after {:?}", met.took);
    rig.check_bystanders(met.begun);
}

#[test]
fn a_write_answered_before_its_data_ends_the_association_and_no_other_disk_waits() {
    let priority = Priority::take();
    let mut rig = Rig::start(&[("reconnect-delay", json!(1))]);
    let mut byte = 0_u8;
    let met = rig.meet("answer-early=1:write:1", |disk| {
        byte = byte.wrapping_add(1);
        write_large(disk, byte)
    });
    assert_eq!((met.result, read_large(&mut rig.disk)), (Status::Ok, byte));
    rig.comes_back();
    assert_eq!(read_large(&mut rig.disk), byte);
    assert_eq!((write_large(&mut rig.disk, 0), read_large(&mut rig.disk)), (Status::Ok, 0));
    let waited = rig.check_bystanders(met.begun);
    assert!(!priority.is_permitted() || waited < OTHERS_LIMIT, "another disk waited {waited:?}");
}

/// Small and large writes with data digests. Some are still being sent, and slots are used again.
#[test]
fn early_answers_to_many_writes_end_no_daemon_and_spoil_no_data() {
    let target = target_of(1 + BYSTANDERS, PATHS, 64 << 20);
    let settings = [("data-digest", json!(true)), ("reconnect-delay", json!(1))];
    let daemon = start(&target, &settings);
    let shape = VerificationSetup { flush: false, ..VerificationSetup::default() };
    let verification = Verification::start(&socket_of(&daemon.place, 0), shape);
    for path in [0, 1] {
        verification.goes_on(500);
        target.set(path, "answer-early=20:write");
        eventually("all are answered early", || target.status()[path].answers.is_empty());
        verification.goes_on(500);
        eventually("the path comes back", || daemon.is_live(path));
    }
    verification.finish();
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

#[test]
fn a_late_answer_to_a_recalled_read_changes_nothing() {
    let mut rig = Rig::start(&[]);
    assert_eq!(rig.disk.write(0, 7), Status::Ok);
    let start = Instant::now();
    let met = loop {
        let met = rig.meet("answer-late=1:1500ms:read:1", |disk| disk.read(0));
        assert_eq!(met.result, 7);
        // A probe of the path may meet the fault, too.
        if rig.daemon.status().disks[0].moved_reads.ios > 0 {
            break met;
        }
        assert!(start.elapsed() < PATIENCE, "no read moves to the other path");
    };
    // New content where the late data would go. The slot is in use when they arrive.
    while met.begun.elapsed() < Duration::from_secs(2) {
        assert_eq!((rig.disk.write(0, 8), rig.disk.read(0)), (Status::Ok, 8));
    }
    assert_eq!((rig.losses(), rig.is_live()), (0, true));
    rig.check_bystanders(met.begun);
}

#[test]
fn duplicate_or_short_answers_end_the_association_and_spoil_no_data() {
    for fault in ["answer-twice=1:read:1", "answer-twice=1:write:1", "short-read=1:read:1"] {
        let mut rig = Rig::start(&[("reconnect-delay", json!(1))]);
        let mut byte = 0_u8;
        let met = rig.meet(fault, |disk| {
            // The policy may send many to the other path first.
            byte = byte.wrapping_add(1);
            (disk.write(0, byte), disk.read(0))
        });
        assert_eq!(met.result, (Status::Ok, byte), "{fault}");
        rig.comes_back();
        assert_eq!(rig.disk.read(0), byte);
        assert_eq!((rig.disk.write(0, 0), rig.disk.read(0)), (Status::Ok, 0));
        rig.check_bystanders(met.begun);
    }
}
