//! `GET /v1/slow` over real sockets: each delay is attributed to the stage that it was made in.

use std::time::Duration;

use mpath_api::types::{
    ActOnPaths, Direction, GuestOperation, Injection, OpClass, PathAction, PathSelector, SetInjection, SetLimits,
    SlowRequest,
};
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

/// The delayed reads of each kind. No more are kept of the same 10 s.
const ROUNDS: u64 = 15;
/// How often a read is delayed until its delay is attributed to its stage.
const TRIALS: u64 = 8;
/// The shortest delay.
const DELAY: Duration = Duration::from_millis(50);

/// A kind of delay.
struct Delay {
    stage: &'static str,
    /// Reads block `n`, delayed by at least `time`. Each read is delayed for longer than those before.
    read: fn(&mut Rig, n: u64, time: Duration),
}

struct Rig {
    target: Target,
    daemon: Daemon,
    disk: Disk,
}

impl Rig {
    /// All requests go to the first of two paths, one after the other.
    fn start() -> Self {
        let target = Target::start(2);
        let flags = "--policy numa --window-ios 1 --limit-burst 0ms --suspect-timeout 60s --keep-alive-tmo 60";
        let daemon = Daemon::start(&target.addrs(), flags);
        let mut disk = Disk::connect(&daemon.socket());
        for block in 1000..1100 {
            assert_eq!(disk.read(4096 * block), 0);
        }
        Self { target, daemon, disk }
    }

    fn submit(&mut self, slot: u16, kind: Kind, block: u64) {
        self.disk.submit(slot, Request { kind, offset: 4096 * block, len: 4096 }, &[0; 4096]);
    }

    fn answers(&mut self, count: usize) {
        (0..count).for_each(|_| assert_eq!(self.disk.answer(PATIENCE).map(|(_, status)| status), Some(Status::Ok)));
    }

    fn read(&mut self, n: u64) {
        self.submit(0, Kind::Read, n);
        self.answers(1);
    }

    fn inject(&self, latency: Duration, class: Option<OpClass>, direction: Direction) {
        let injection = Injection { class, direction, ..Injection::latency(latency.try_into().unwrap()) };
        let wanted = SetInjection { path: PathSelector::All, disk: None, injection, for_ms: None };
        self.daemon.api.set_injection(&wanted).unwrap();
    }

    fn limit(&self, iops: &str) {
        let limits = SetLimits { iops: Some(iops.parse().unwrap()), ..SetLimits::default() };
        self.daemon.api.set(&limits.into()).unwrap();
    }

    fn act(&self, action: PathAction) {
        self.daemon
            .api
            .act_on_paths(&ActOnPaths { path: PathSelector::All, disk: None, all: false, action, force: true })
            .unwrap();
    }
}

const DELAYS: [Delay; 7] = [
    Delay {
        stage: "injection",
        read: |rig, n, time| {
            rig.inject(time, None, Direction::Request);
            rig.read(n);
        },
    },
    Delay {
        stage: "injection",
        read: |rig, n, time| {
            rig.inject(time, None, Direction::Response);
            rig.read(n);
        },
    },
    Delay {
        stage: "path",
        read: |rig, n, time| {
            rig.target.set(0, &format!("delay={}ms", time.as_millis()));
            rig.read(n);
        },
    },
    Delay {
        stage: "queue",
        read: |rig, n, time| {
            // The write fills the window. The read has no injection.
            rig.inject(time, Some(OpClass::Write), Direction::Request);
            rig.submit(1, Kind::Write, 1000);
            rig.submit(2, Kind::Read, n);
            rig.answers(2);
        },
    },
    Delay {
        stage: "limit",
        read: |rig, n, _| {
            // The limit lets one request go, and one more in excess.
            rig.limit("20");
            (1..3).for_each(|slot| rig.submit(slot, Kind::Read, 1000));
            rig.submit(3, Kind::Read, n);
            rig.answers(3);
            rig.limit("off");
        },
    },
    Delay {
        stage: "retry",
        read: |rig, n, _| {
            // The controller asks for 100 ms.
            rig.target.set(0, "fail=1:0/0x21/crd1");
            rig.read(n);
        },
    },
    Delay {
        stage: "no-path",
        read: |rig, n, time| {
            rig.act(PathAction::Drain);
            rig.submit(1, Kind::Read, n);
            eventually("the read waits", || rig.daemon.status().disks[0].queued == 1);
            std::thread::sleep(time);
            rig.act(PathAction::Enable);
            rig.answers(1);
        },
    },
];

#[test]
fn each_delay_is_attributed_to_its_stage() {
    let mut wrong = Vec::new();
    for delay in DELAYS {
        let mut rig = Rig::start();
        for n in 0..ROUNDS {
            // The request as it was found, unless its delay is attributed to the stage.
            let mut wrong_at = |n| {
                (delay.read)(&mut rig, n, DELAY + Duration::from_millis(2 * n));
                let slow = rig.daemon.api.slow(None).unwrap();
                let is_meant = |of: &SlowRequest| of.operation == GuestOperation::Read && of.sector == Some(8 * n);
                let found = slow.into_iter().find(is_meant);
                let in_stage = |of: &SlowRequest| {
                    let stages = serde_json::to_value(of.stages).unwrap();
                    stages[format!("{}-us", delay.stage)].as_u64() >= Some(DELAY.as_micros() as u64 * 9 / 10)
                };
                let is_right = found.as_ref().is_some_and(|of| of.longest == delay.stage && in_stage(of));
                (!is_right).then_some(found)
            };
            // A busy machine may delay a request for longer elsewhere, but not each time.
            let trials: Vec<_> = (0..TRIALS).map_while(|trial| wrong_at(n + trial * ROUNDS)).collect();
            if trials.len() as u64 == TRIALS {
                wrong.push((delay.stage, n, trials));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_write_in_doubt_was_in_its_fence() {
    let target = Target::start(2);
    target.fail_cross_resets();
    let daemon = Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 3 --reconnect-delay 1");
    let mut disk = Disk::connect(&daemon.socket());
    target.set(0, "hold=on");
    disk.submit_write(0, 0, 1);
    eventually("the target has it", || target.status()[0].held == 1);
    target.set(0, "listen=off reset=all");
    assert_eq!(disk.answer(PATIENCE), Some((0, Status::Ok)));
    let slow = daemon.api.slow(None).unwrap();
    let write = slow.iter().find(|of| of.attempts == 2).unwrap();
    assert_eq!((&*write.longest, &write.paths[..], write.index), ("fence", &[0, 1][..], Some(1)), "{write:?}");
    assert!(write.stages.fence >= Duration::from_secs(2).into(), "{write:?}");
}
