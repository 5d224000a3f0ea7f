//! `GET /v1/disks/{disk}/explain` over real sockets: a situation for each cause that can be staged there.
//!
//! Rules that need exact times are tested in `crates/mpath-core/tests/rules/explanation`.

use std::fmt::Write;
use std::time::{Duration, Instant};

use mpath_api::types::{
    ActOnPaths, AddPath, Decision, ExplainedPath, Explanation, Injection, NextRequest, PathAction, PathReason,
    PathSelector, SetInjection, ThreadExplanation, Waiting,
};
use mpath_config::{DiskConfig, WindowConfig};
use mpath_core::PolicyKind;
use mpath_target::AnaState;
use rustix::process::Signal;
use serde::Serialize;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{
    Daemon, DaemonDirectory, Disk, PATIENCE, Target, at_once, disk, eventually, sharer, socket_of, target_of,
};

const READ: Request = Request { kind: Kind::Read, offset: 0, len: 4096 };
const FIRST: PathSelector = PathSelector::Index(0);
/// No path is suspect, and no association ends by itself.
const PATIENT: &str = "--policy numa --suspect-timeout 60s";

/// One row of the table.
struct Situation {
    name: &'static str,
    flags: &'static str,
    stage: fn(&mut Stage),
    /// The beginnings of lines that the explanation must have, see [`lines`].
    says: &'static [&'static str],
}

/// Two paths to one target, and a guest that has written.
struct Stage {
    target: Target,
    daemon: Daemon,
    guest: Disk,
    /// A guest of another disk over the same paths.
    other_guest: Option<Disk>,
}

impl Stage {
    fn start(flags: &str) -> Self {
        let target = Target::start(2);
        target.fail_cross_resets();
        // A busy machine makes no path suspect.
        let suspect = if flags.contains("--suspect-timeout") { "" } else { "--suspect-timeout 60s" };
        let flags = format!("--keep-alive-tmo 60 --io-timeout 600s --reconnect-delay 1 {suspect} {flags}");
        let daemon = Daemon::start(&target.addrs(), &flags);
        let mut guest = Disk::connect(&daemon.socket());
        assert_eq!((guest.write(0, 7), guest.flush()), (Status::Ok, Status::Ok));
        Self { target, daemon, guest, other_guest: None }
    }

    fn explanation(&self) -> Explanation {
        self.daemon.api.explain(&self.daemon.status().disks.last().unwrap().name).unwrap()
    }

    fn inject(&self, path: PathSelector, injection: Injection) {
        let wanted = SetInjection { path, disk: None, injection: injection.checked().unwrap(), for_ms: None };
        assert!(!self.daemon.api.set_injection(&wanted).unwrap().is_empty());
    }

    fn inject_latency(&self, path: PathSelector, latency: Duration) {
        self.inject(path, Injection::latency(latency.try_into().unwrap()));
    }

    /// Requests stay with the injection of this path.
    fn stall(&self, path: PathSelector) {
        self.inject(path, Injection { stall: true, ..Injection::default() });
    }

    fn act(&self, path: PathSelector, action: PathAction) {
        self.daemon.api.act_on_paths(&ActOnPaths { path, disk: None, all: false, action, force: true }).unwrap();
    }

    fn lose(&self, path: usize) {
        self.target.stop_listener(path);
        eventually("the path is lost", || !self.daemon.is_live(path));
    }

    fn set_ana(&self, state: AnaState) {
        self.target.set_ana(0, state);
    }

    fn read(&mut self, times: usize) {
        (0..times).for_each(|_| assert_eq!(self.guest.read(0), 7));
    }
}

const SITUATIONS: [Situation; 30] = [
    Situation {
        name: "both paths are equally near (numa)",
        flags: "--policy numa",
        stage: |_| {},
        says: &["read takes path 0", "read not over path 1: not-preferred, numa-distance", "no request waits"],
    },
    Situation {
        name: "it is the turn of the other path (round-robin)",
        flags: "--policy round-robin",
        stage: |stage| stage.read(1),
        says: &["read takes path 0", "read not over path 1: not-preferred, turn"],
    },
    Situation {
        name: "the path has more requests in flight (queue-depth)",
        flags: "--policy queue-depth --suspect-timeout 60s",
        stage: |stage| {
            stage.stall(PathSelector::All);
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["read takes path 1", "read not over path 0: not-preferred, in-flight"],
    },
    Situation {
        name: "a latency is injected",
        flags: "--policy latency",
        stage: |stage| {
            stage.inject_latency(FIRST, Duration::from_millis(30));
            stage.read(20);
        },
        says: &["read takes path 1", "read not over path 0: not-preferred, latency, injection latency 30ms"],
    },
    Situation {
        name: "a rate is injected",
        flags: "--policy latency",
        stage: |stage| {
            stage.inject(FIRST, Injection { rate: Some((256 << 10).try_into().unwrap()), ..Injection::default() });
            stage.read(20);
        },
        says: &["read takes path 1", "read not over path 0: not-preferred, latency, injection rate 262144 B/s"],
    },
    Situation {
        name: "a path would add too little (bdp)",
        flags: "--policy bdp",
        stage: |stage| {
            stage.inject_latency(FIRST, Duration::from_millis(30));
            // An explanation of writes may say so earlier.
            eventually("reads leave the path out", || {
                stage.read(20);
                let left_out = "read not over path 0: not-preferred, not-admitted";
                lines(&stage.explanation()).iter().any(|line| line.starts_with(left_out))
            });
        },
        says: &["read takes path 1", "read not over path 0: not-preferred, not-admitted, injection latency 30ms"],
    },
    Situation {
        name: "the policy waits for the nearer path, which is full (numa)",
        flags: "--policy numa --suspect-timeout 60s --window-ios 1",
        stage: |stage| {
            stage.stall(FIRST);
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["read waits: policy-waits", "read not over path 0: window-full", "read not over path 1: not-preferred"],
    },
    Situation {
        name: "the operator has drained the path",
        flags: "--policy numa",
        stage: |stage| stage.act(FIRST, PathAction::Drain),
        says: &["read takes path 1", "read not over path 0: draining"],
    },
    Situation {
        name: "the operator has disabled the path",
        flags: "--policy numa",
        stage: |stage| stage.act(FIRST, PathAction::Disable),
        says: &["read takes path 1", "read not over path 0: down, disabled"],
    },
    Situation {
        name: "the path is lost",
        flags: "--policy numa",
        stage: |stage| stage.lose(0),
        says: &["read takes path 1", "read not over path 0: down, lost: "],
    },
    Situation {
        name: "the path was given up",
        flags: "--policy numa --ctrl-loss-tmo 1",
        stage: |stage| stage.lose(0),
        says: &["read takes path 1", "read not over path 0: down, gave-up: "],
    },
    Situation {
        name: "the path leads to another namespace",
        flags: "--policy numa",
        stage: |stage| {
            let stranger = Target::start(1);
            let address = format!("tcp://{}", stranger.addrs()[0]).parse().unwrap();
            stage.daemon.api.add_path("disk0", &AddPath { address }).unwrap();
            eventually("it is refused", || stage.daemon.paths()[2].state.to_string() == "refused");
        },
        says: &["read takes path 0", "read not over path 2: down, refused: "],
    },
    Situation {
        name: "the namespace is inaccessible on the path",
        flags: "--policy numa",
        stage: |stage| stage.set_ana(AnaState::Inaccessible),
        says: &["read takes path 1", "read not over path 0: ana-state inaccessible"],
    },
    Situation {
        name: "the namespace is not optimized on the path",
        flags: "--policy numa",
        stage: |stage| stage.set_ana(AnaState::NonOptimized),
        says: &["read takes path 1", "read not over path 0: non-optimized"],
    },
    Situation {
        name: "the path is silent",
        flags: "--policy numa --suspect-timeout 300ms",
        stage: |stage| {
            stage.target.set(0, "black-hole=stall");
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["read takes path 1", "read not over path 0: suspect", "waits for answer, path 0, requests 1"],
    },
    Situation {
        name: "the path rests after path errors",
        flags: "--policy numa",
        stage: |stage| {
            stage.target.set(0, "fail=100:3/0x70");
            eventually("it rests for long", || {
                stage.read(1);
                stage.explanation().threads[0].read.paths[0].left_us > Some(1_000_000)
            });
        },
        says: &["read takes path 1", "read not over path 0: resting, for a time"],
    },
    Situation {
        name: "the controller has asked for a delay of a request",
        flags: "--policy numa",
        stage: |stage| {
            stage.target.set(0, "fail=1:0/0x21/crd3");
            stage.guest.submit(1, READ, &[0; 4096]);
        },
        says: &["waits for retry, path 0, requests 1, for a time"],
    },
    Situation {
        name: "the window of a path is full",
        flags: "--policy round-robin --suspect-timeout 60s --window-ios 1",
        stage: |stage| {
            stage.stall(FIRST);
            (1..3).for_each(|slot| stage.guest.submit_write(slot, 0, 7));
        },
        says: &["read takes path 1", "read not over path 0: window-full"],
    },
    Situation {
        name: "the windows of all paths are full",
        flags: "--policy round-robin --suspect-timeout 60s --window-ios 1",
        stage: |stage| {
            stage.stall(PathSelector::All);
            (1..4).for_each(|slot| stage.guest.submit_write(slot, 0, 7));
        },
        says: &[
            "write waits: no-room",
            "write not over path 0: window-full",
            "write not over path 1: window-full",
            "waits for room, requests 1",
        ],
    },
    Situation {
        name: "a larger request goes first",
        flags: "--policy numa --suspect-timeout 60s --window-bytes 65536",
        stage: |stage| {
            stage.act(PathSelector::Index(1), PathAction::Drain);
            stage.stall(FIRST);
            stage.guest.submit_write(1, 0, 7);
            stage.guest.submit(2, Request { kind: Kind::Write, offset: 0, len: 64 << 10 }, &[7; 64 << 10]);
        },
        says: &["read waits: no-room", "read not over path 0: room-reserved", "write not over path 0: window-full"],
    },
    Situation {
        name: "a request of another disk goes first",
        flags: PATIENT,
        stage: |stage| {
            *stage = two_disks();
            stage.stall(PathSelector::All);
            (1..4).for_each(|slot| stage.guest.submit_write(slot, 0, 7));
            eventually("one waits", || stage.daemon.status().disks[1].queued == 1);
            // The other disk has sent nothing, so its request goes first.
            stage.other_guest.as_mut().unwrap().submit_write(1, 0, 7);
        },
        says: &["write waits: no-room", "waits for room, requests 1, behind 1"],
    },
    Situation {
        name: "the disk is at its limit",
        flags: "--policy numa --limit-iops 1",
        stage: |stage| (1..5).for_each(|slot| stage.guest.submit_write(slot, 0, 7)),
        says: &["write takes path 0, limited", "waits for limit, requests"],
    },
    Situation {
        name: "an injection keeps a request",
        flags: PATIENT,
        stage: |stage| {
            stage.stall(FIRST);
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["waits for injection, path 0, requests 1"],
    },
    Situation {
        name: "the target has not answered",
        flags: PATIENT,
        stage: |stage| {
            stage.target.set(0, "hold=on");
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["waits for answer, path 0, requests 1"],
    },
    Situation {
        name: "a read was sent twice (hedge)",
        // A lower quantile would use up the budget before the read that matters.
        flags: "--policy numa --suspect-timeout 60s --hedge p99",
        stage: |stage| {
            let hedges = |daemon: &Daemon| daemon.api.disks(None).unwrap()[0].hedge.hedges;
            // Their times are learned after a while.
            eventually("reads are hedged", || {
                stage.read(20);
                hedges(&stage.daemon) > 0
            });
            stage.target.set(0, "delay=600s");
            stage.target.set(1, "delay=600s");
            stage.guest.submit(1, READ, &[0; 4096]);
        },
        says: &["waits for hedge, path 0, requests 1"],
    },
    Situation {
        name: "a write is in doubt, and waits for the fence",
        flags: PATIENT,
        stage: |stage| {
            stage.target.set(0, "hold=on");
            stage.guest.submit_write(1, 0, 7);
            eventually("the target has it", || stage.target.status()[0].held == 1);
            stage.target.set(0, "listen=off reset=all");
        },
        says: &["read takes path 1", "read not over path 0: down, lost: ", "waits for fence, path 0, requests 1"],
    },
    Situation {
        name: "no path is left",
        flags: "--policy numa --fast-io-fail-tmo 600",
        stage: |stage| {
            (0..2).for_each(|path| stage.lose(path));
            stage.guest.submit_write(1, 0, 7);
        },
        says: &["write waits: no-path, for a time", "waits for no-path, requests 1, for a time"],
    },
    Situation {
        name: "a flush must reach the controller of a write, and reports what was lost with it",
        flags: "--policy numa",
        stage: |stage| {
            assert_eq!(stage.guest.write(0, 7), Status::Ok);
            assert_eq!(flush_lines(&stage.explanation()), ["flush to path 0"]);
            stage.lose(0);
        },
        says: &["flush to path 0, lost writes, not reachable"],
    },
    Situation {
        name: "a flush waits for room on its path",
        flags: "--policy numa --suspect-timeout 60s --window-ios 1",
        stage: |stage| {
            assert_eq!(stage.guest.write(0, 7), Status::Ok);
            stage.stall(FIRST);
            stage.guest.submit_write(1, 0, 7);
            stage.guest.submit(2, Request::FLUSH, &[]);
        },
        says: &["flush to path 0", "waits for flush-turn, path 0, requests 1"],
    },
    Situation {
        name: "an earlier daemon was killed",
        flags: "--policy numa",
        stage: |stage| *stage = after_a_kill(),
        says: &["requests are held"],
    },
];

/// Two disks over two paths, on which one request each has room. The second disk is explained.
fn two_disks() -> Stage {
    let (place, target) = (DaemonDirectory::new(), target_of(2, 2, 1 << 20));
    let window = WindowConfig { ios: "1".parse().unwrap(), ..WindowConfig::default() };
    let share_paths_with = vec![sharer(&place, 1)];
    let (policy, suspect_timeout) = (PolicyKind::RoundRobin.into(), "60s".parse().unwrap());
    let config = DiskConfig { share_paths_with, window, policy, suspect_timeout, ..disk(&place, &target, 0) };
    let command = place.configured(vec![config]);
    let daemon = place.spawn(command).ready();
    let [other, guest] = [0, 1].map(|number| Disk::connect(&socket_of(&daemon.place, number)));
    Stage { target, daemon, guest, other_guest: Some(other) }
}

fn after_a_kill() -> Stage {
    let Stage { target, daemon, .. } = Stage::start("--policy numa");
    let (_, place) = daemon.end(Signal::KILL);
    let command = place.command(&target.addrs(), "--policy numa --keep-alive-tmo 60");
    let daemon = place.spawn(command).ready();
    let guest = Disk::connect(&daemon.socket());
    Stage { target, daemon, guest, other_guest: None }
}

/// The word of a value in JSON.
fn word(of: impl Serialize) -> String {
    serde_json::to_value(of).unwrap().as_str().unwrap().to_owned()
}

/// An explanation by one I/O thread, without numbers that vary.
fn lines(of: &Explanation) -> Vec<String> {
    let [thread] = &of.threads[..] else { panic!("one thread serves the disk's virtqueue: {of:?}") };
    let ThreadExplanation { held_ms, read, write, waiting, .. } = thread;
    let mut lines = vec![];
    lines.extend(held_ms.map(|_| "requests are held".into()));
    for (class, next) in [("read", read), ("write", write)] {
        lines.push(decision(class, next));
        lines.extend(next.paths.iter().filter_map(|path| Some(not_over(class, path, path.reason?))));
    }
    lines.extend(flush_lines(of));
    lines.extend(waiting.iter().map(wait));
    lines.extend(waiting.is_empty().then(|| "no request waits".into()));
    lines
}

fn decision(class: &str, next: &NextRequest) -> String {
    let mut line = match (next.decision, next.index) {
        (Decision::Path, Some(index)) => format!("{class} takes path {index}"),
        (decision, _) => format!("{class} waits: {}", word(decision)),
    };
    line += next.left_us.map_or("", |_| ", for a time");
    line + next.limit_left_us.map_or("", |_| ", limited")
}

fn not_over(class: &str, path: &ExplainedPath, reason: PathReason) -> String {
    let mut line = format!("{class} not over path {}: {}", path.index, word(reason));
    if let Some(ana) = path.ana_state {
        write!(line, " {ana}").unwrap();
    }
    line += path.left_us.map_or("", |_| ", for a time");
    let says = path.opinion.map(|opinion| serde_json::to_value(opinion).unwrap()["says"].as_str().unwrap().to_owned());
    let detail = path.detail.clone().filter(|_| reason == PathReason::Down);
    let injections = path.injections.iter().map(|of| format!("injection {}", of.injection));
    for more in says.into_iter().chain(detail).chain(injections) {
        write!(line, ", {more}").unwrap();
    }
    line
}

fn flush_lines(of: &Explanation) -> Vec<String> {
    let targets = of.threads[0].flush.iter().flatten();
    let line = targets.map(|target| {
        let lost = if target.has_lost_writes { ", lost writes" } else { "" };
        let unreachable = if target.is_reachable { "" } else { ", not reachable" };
        format!("flush to path {}{lost}{unreachable}", target.path)
    });
    line.collect()
}

fn wait(of: &Waiting) -> String {
    let mut line = format!("waits for {}", word(of.cause));
    if let Some(path) = of.path {
        write!(line, ", path {path}").unwrap();
    }
    write!(line, ", requests {}", of.requests).unwrap();
    line += of.ends_in.map_or("", |_| ", for a time");
    if of.behind > 0 {
        write!(line, ", behind {}", of.behind).unwrap();
    }
    line
}

#[test]
fn every_staged_cause_is_named() {
    at_once(SITUATIONS, |situation| {
        let mut stage = Stage::start(situation.flags);
        (situation.stage)(&mut stage);
        let staged = Instant::now();
        let is_missing = |lines: &[String], said: &str| !lines.iter().any(|line| line.starts_with(said));
        loop {
            let lines = lines(&stage.explanation());
            let missing: Vec<_> = situation.says.iter().filter(|said| is_missing(&lines, said)).collect();
            if missing.is_empty() {
                break;
            }
            assert!(staged.elapsed() < PATIENCE, "{}: {missing:#?} is not in {lines:#?}", situation.name);
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{:<80} {}", situation.name, situation.says.join("; "));
    });
}
