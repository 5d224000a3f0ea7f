//! Test helpers: a fake daemon with the server of the API on a Unix socket.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpath_api::address::Transport;
use mpath_api::config::{DiskConfig, Hedge, HedgeBudget, LimitsConfig, SocketPath, Weight};
use mpath_api::server::{
    AddDiskError, AddPathError, Control, ControlError, PathRef, RemoveDiskError, RemovePathError, Server,
};
use mpath_api::types::{
    AnaState, Controller, DiscoveryController, DiscoveryState, Disk, DiskState, Event, EventKind, EventPath, Events,
    HedgeStatus, Injection, Latency, MovedRequests, Mptcp, MptcpConnection, OpStats, Origin, Path, PathAction,
    PathCounts, PathEstimate, PathSharer, PathState, PathWindow, QueueTurns, RemovedDisk, SchedulerDetail, SetLimits,
    Status, Subflow, SubflowState, Tier, WaitsFor,
};
use mpath_api::{ClassPolicies, PathAddress, PolicyChange, PolicyKind, SchedulerChange, SchedulerKind, SchedulerSpec};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// `disk0` with a live and a lost path, `disk1` with one path that is not optimized.
struct Fake {
    policies: Mutex<Vec<(String, ClassPolicies)>>,
    /// By disk.
    hedges: Mutex<[HedgeStatus; 2]>,
    scheduling: Mutex<Vec<SchedulerDetail>>,
    paths: Mutex<Vec<Path>>,
    /// Disks that take no requests.
    held: &'static [&'static str],
    /// Disks on their way out.
    removing: &'static [&'static str],
}

fn stats(ios: u64, p50_us: u64) -> OpStats {
    OpStats {
        ios,
        ios_1s: ios / 1000,
        ios_60s: ios / 100,
        bytes: ios * 4096,
        in_flight: 2,
        errors: 1,
        retries: 1,
        latency: Some(Latency {
            p50_us,
            p99_us: p50_us * 3,
            p999_us: p50_us * 7,
            max_us: p50_us * 20,
            sum_us: p50_us * ios,
        }),
        estimate: PathEstimate {
            latency_us: Some(f64::from(p50_us as u32)),
            age: Some(3),
            ignored: Some(ios / 2),
            checkpoints: Some(1),
            checkpoint_ios: Some(100),
            checkpoint_avg_us: Some(f64::from(p50_us as u32) + 0.5),
            ..PathEstimate::default()
        },
    }
}

fn path(disk: &str, index: u16, address: &str) -> Path {
    let address: mpath_api::PathAddress = address.parse().unwrap();
    let mptcp = (address.transport() == Transport::Mptcp).then(mptcp);
    Path {
        disk: disk.into(),
        index,
        transport: address.transport(),
        origin: Origin::Configured,
        address,
        state: PathState::Live,
        since: "2026-11-21T07:00:00.123Z".into(),
        waits_for: vec![],
        last_error: None,
        last_error_at: None,
        ana_state: Some(AnaState::Optimized),
        sharers: vec![],
        resting: false,
        suspect: false,
        suspicions: 0,
        recalled: 0,
        probes: 0,
        hedges: 0,
        hedges_won: 0,
        fenced: 0,
        cntlid: Some(1),
        mptcp,
        controller: Some(Controller {
            model: "Made-up Controller".into(),
            serial: "0042".into(),
            firmware: "7.1".into(),
            keep_alive_tmo_ms: 5000,
            max_transfer_bytes: 1 << 20,
            queue_depth: 127,
            volatile_write_cache: true,
            fence_ms: 11_000,
        }),
        window: PathWindow { ios: 64, bytes: 4 << 20 },
        io_share: 0.0,
        io_share_1s: 0.0,
        io_share_60s: 0.0,
        read: OpStats::default(),
        write: OpStats::default(),
        other: OpStats::default(),
        injections: Vec::new(),
    }
}

/// Two subflows of the admin connection, one of them a backup that closes, and an I/O connection that is plain TCP.
fn mptcp() -> Mptcp {
    let subflow = |card, state| Subflow {
        local: ([10, 77, card, 1], 40_000).into(),
        remote: ([10, 77, card, 2], 4420).into(),
        state,
        backup: Some(card == 1),
        rtt_us: 250,
        rtt_var_us: 20,
        cwnd_segments: 12,
        mss_bytes: 1448,
        bytes_sent: 1000,
        bytes_received: 2000,
        bytes_retransmitted: 3,
        lost_segments: 4,
    };
    let both = vec![subflow(0, SubflowState::Established), subflow(1, SubflowState::Closing)];
    let admin = MptcpConnection { queue: 0, fallback: false, subflows_max: 8, subflows: both };
    let subflows = vec![subflow(0, SubflowState::Established)];
    let io = MptcpConnection { queue: 1, fallback: true, subflows_max: 8, subflows };
    Mptcp { connections: vec![admin, io], error: None }
}

fn discovery() -> Vec<DiscoveryController> {
    let first = DiscoveryController {
        disk: "disk0".into(),
        address: "tcp://192.0.2.1:8009".parse().unwrap(),
        subnqn: "nqn.2014-08.org.nvmexpress.discovery".into(),
        referred_by: None,
        state: DiscoveryState::Connected,
        since: "2026-11-21T07:00:00.123Z".into(),
        generation: Some(7),
        records: Some(3),
        read_at: Some("2026-11-21T07:00:00.123Z".into()),
        last_error: None,
        last_error_at: None,
    };
    let second = DiscoveryController {
        address: "tcp://[2001:db8::1]:8009".parse().unwrap(),
        referred_by: Some(first.address.clone()),
        state: DiscoveryState::Connecting,
        generation: None,
        records: None,
        read_at: None,
        last_error: Some("Connection refused (os error 111)".into()),
        last_error_at: Some("2026-11-21T07:00:01.000Z".into()),
        ..first.clone()
    };
    vec![first, second]
}

/// `disk0` with a busy virtqueue and one that was idle, and a limit; `disk1`, which nobody has used.
fn scheduling() -> Vec<SchedulerDetail> {
    let spec = SchedulerSpec::new(SchedulerKind::BurstCredit, [("gap", "50ms")]).unwrap();
    let limits = LimitsConfig { bandwidth: "100MiB".parse().unwrap(), ..LimitsConfig::default() };
    let mut disk0 = SchedulerDetail::new("disk0".into(), None, spec, weight(100), limits, None);
    disk0.tier = Some(Tier::Bulk);
    (disk0.limits.balance_bytes, disk0.limits.throttled_ms) = (Some(-65_536), 1234);
    let latency = |us| Latency { p50_us: us, p99_us: us * 3, p999_us: us * 7, max_us: us * 20, sum_us: us * 1000 };
    let queue = |queue, tier, credit, queued, waited| QueueTurns {
        queue,
        tier,
        credit: Some(credit),
        queued,
        in_flight: 13,
        served: 1000,
        served_bytes: 4 << 20,
        waited,
    };
    disk0.queues = vec![queue(0, Tier::Bulk, 0, 32, Some(latency(250))), queue(3, Tier::Sparse, 17, 0, None)];
    let fifo = SchedulerKind::Fifo.into();
    let disk1 = SchedulerDetail::new("disk1".into(), None, fifo, weight(100), LimitsConfig::default(), None);
    vec![disk0, disk1]
}

fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

/// The name of a disk over the paths of `disk0`.
const SHARER: &str = "backup";

impl Fake {
    /// With a disk over the paths of `disk0`, which one of them does not lead to the namespace of.
    fn sharing() -> Self {
        let fake = Self::new();
        fake.policies.lock().unwrap().push((SHARER.into(), PolicyKind::RoundRobin.into()));
        {
            let mut scheduling = fake.scheduling.lock().unwrap();
            let disk0 = scheduling[0].scheduler;
            let (owner, limits) = (Some("disk0".into()), LimitsConfig::default());
            scheduling.push(SchedulerDetail::new(SHARER.into(), owner, disk0, weight(25), limits, None));
            let mut paths = fake.paths.lock().unwrap();
            let sharer = |ana_state, error: Option<&str>| {
                let (disk, error) = (SHARER.into(), error.map(Into::into));
                vec![PathSharer { disk, ana_state, error }]
            };
            paths[0].sharers = sharer(Some(AnaState::NonOptimized), None);
            paths[1].sharers = sharer(None, Some("there is no namespace 2"));
        }
        fake
    }

    fn new() -> Self {
        let mut paths = vec![
            path("disk0", 0, "tcp://127.0.0.1:4420"),
            path("disk0", 1, "tcp://127.0.0.1:4421"),
            path("disk1", 0, "tcp://[::1]:4420"),
        ];
        paths[0].read = stats(900_000, 210);
        paths[0].write = stats(0, 95);
        paths[1].read = stats(100_000, 30_417);
        (paths[1].read.ios_1s, paths[1].read.ios_60s) = (0, 3000);
        paths[1].state = PathState::Lost;
        (paths[1].cntlid, paths[1].controller) = (None, None);
        paths[1].last_error_at = Some("2026-11-21T07:00:01.000Z".into());
        paths[1].last_error = Some("Connection refused (os error 111)".into());
        paths[2].ana_state = Some(AnaState::NonOptimized);
        (paths[2].suspect, paths[2].suspicions, paths[2].recalled) = (true, 1, 7);
        let policies =
            vec![("disk0".into(), PolicyKind::RoundRobin.into()), ("disk1".into(), PolicyKind::LatencyRr.into())];
        let hedges = [
            HedgeStatus { hedgeable_reads: 9000, hedges: 70, hedges_won: 41, ..HedgeStatus::default() },
            HedgeStatus::default(),
        ];
        Self {
            policies: Mutex::new(policies),
            hedges: Mutex::new(hedges),
            scheduling: Mutex::new(scheduling()),
            paths: Mutex::new(paths),
            held: &[],
            removing: &[],
        }
    }
}

impl Control for Fake {
    async fn status(&self) -> Result<Status, ControlError> {
        let (paths, hedges) = (self.paths.lock().unwrap(), *self.hedges.lock().unwrap());
        let scheduling = self.scheduling.lock().unwrap().clone();
        let shares = |name: &str| scheduling.iter().find(|of| of.disk == name).unwrap().shares_paths_of.clone();
        let weight = |name: &str| scheduling.iter().find(|of| of.disk == name).unwrap().weight;
        let owner = |name: &String| shares(name).unwrap_or_else(|| name.clone());
        let disk = |(name, policy): &(String, ClassPolicies)| Disk {
            name: name.clone(),
            socket_path: format!("/run/vhost-blk-mpath/{name}.sock"),
            subsystem: "nqn.2014-08.org.example:disks".into(),
            shares_paths_of: shares(name),
            namespace: Some(1),
            state: if self.removing.contains(&name.as_str()) { DiskState::Removing } else { DiskState::Served },
            connected: name == "disk0",
            held_ms: self.held.contains(&name.as_str()).then_some(12_001),
            policy: *policy,
            capacity_bytes: 1 << 30,
            block_size_bytes: 512,
            read_only: name == "disk1",
            queues: 64,
            mpath_window: name == "disk0",
            weight: weight(name),
            queued: 0,
            moved_reads: MovedRequests::default(),
            moved_writes: MovedRequests::default(),
            hedge: hedges[usize::from(name == "disk1")],
            path_counts: PathCounts {
                total: paths.iter().filter(|path| path.disk == owner(name)).count() as u32,
                live: paths.iter().filter(|path| path.disk == owner(name) && path.state == PathState::Live).count()
                    as u32,
            },
        };
        Ok(Status {
            version: "0.1.0".into(),
            pid: 4711,
            uptime_s: 3725,
            disks: self.policies.lock().unwrap().iter().map(disk).collect(),
            discovery: discovery(),
        })
    }

    async fn paths(&self) -> Result<Vec<Path>, ControlError> {
        Ok(self.paths.lock().unwrap().clone())
    }

    async fn set_policy(&self, disks: &[String], change: &PolicyChange) -> Result<(), ControlError> {
        for (name, current) in self.policies.lock().unwrap().iter_mut() {
            if disks.contains(name) {
                current.change(change);
            }
        }
        Ok(())
    }

    async fn set_hedge(
        &self,
        disks: &[String],
        hedge: Option<Hedge>,
        budget: Option<HedgeBudget>,
    ) -> Result<(), ControlError> {
        for disk in disks {
            let status = &mut self.hedges.lock().unwrap()[usize::from(disk == "disk1")];
            status.hedge = hedge.unwrap_or(status.hedge);
            status.hedge_budget = budget.unwrap_or(status.hedge_budget);
        }
        Ok(())
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        Ok(self.scheduling.lock().unwrap().clone())
    }

    async fn set_scheduler(&self, disks: &[String], change: &SchedulerChange) -> Result<(), ControlError> {
        for of in self.scheduling.lock().unwrap().iter_mut().filter(|of| disks.contains(&of.disk)) {
            of.scheduler.change(change);
        }
        Ok(())
    }

    async fn set_limits(&self, disks: &[String], change: &SetLimits) -> Result<(), ControlError> {
        for of in self.scheduling.lock().unwrap().iter_mut().filter(|of| disks.contains(&of.disk)) {
            of.limits.limits = change.applied_to(of.limits.limits);
        }
        Ok(())
    }

    async fn set_weight(&self, disk: &str, weight: Weight) -> Result<(), ControlError> {
        for of in self.scheduling.lock().unwrap().iter_mut().filter(|of| of.disk == disk) {
            of.weight = weight.get();
        }
        Ok(())
    }

    async fn set_injection(&self, wanted: &[PathRef], injection: Option<Injection>) -> Result<(), ControlError> {
        for path in self.paths.lock().unwrap().iter_mut() {
            if wanted.contains(&PathRef { disk: path.disk.clone(), index: path.index }) {
                match injection {
                    Some(injection) => injection.put(&mut path.injections),
                    None => path.injections.clear(),
                }
            }
        }
        Ok(())
    }

    async fn steer(&self, wanted: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        if action == PathAction::Reset {
            let PathRef { disk, index } = wanted[0].clone();
            return Err(ControlError::NotResettable { disk, index, state: PathState::Disabled });
        }
        // `disk1` has but one path.
        if let Some(last) = wanted.iter().find(|path| path.disk == "disk1" && action != PathAction::Enable && !force) {
            return Err(ControlError::LastPath { disk: last.disk.clone() });
        }
        for path in self.paths.lock().unwrap().iter_mut() {
            if wanted.contains(&PathRef { disk: path.disk.clone(), index: path.index }) {
                let live = action == PathAction::Enable;
                path.state = if live { PathState::Live } else { PathState::Draining };
                path.waits_for = if live { vec![] } else { vec![WaitsFor::InFlight, WaitsFor::Flush] };
            }
        }
        Ok(())
    }

    async fn add_path(&self, disk: &str, address: PathAddress) -> Result<PathRef, ControlError> {
        let mut paths = self.paths.lock().unwrap();
        if let Some(there) = paths.iter().find(|path| path.disk == disk && path.address == address) {
            let (disk, index, state) = (disk.into(), there.index, there.state);
            return Err(AddPathError::Exists { disk, index, address, state }.into());
        }
        let index = paths.iter().filter(|path| path.disk == disk).count() as u16;
        let mut added = path(disk, index, &address.to_string());
        (added.origin, added.state) = (Origin::Operator, PathState::Connecting);
        paths.push(added);
        Ok(PathRef { disk: disk.into(), index })
    }

    async fn remove_path(&self, wanted: &PathRef, force: bool) -> Result<(), ControlError> {
        let disk = wanted.disk.clone();
        let mut paths = self.paths.lock().unwrap();
        let found = paths.iter().position(|path| path.disk == disk && path.index == wanted.index).unwrap();
        let others_live =
            |other: &Path| other.disk == disk && other.index != wanted.index && other.state == PathState::Live;
        if !force && paths[found].state == PathState::Live && !paths.iter().any(others_live) {
            return Err(RemovePathError::LastPath { disk }.into());
        }
        if force {
            paths.remove(found);
        } else {
            (paths[found].state, paths[found].waits_for) = (PathState::Removing, vec![WaitsFor::Fence]);
        }
        Ok(())
    }

    async fn add_disk(&self, config: DiskConfig) -> Result<(), ControlError> {
        let mut policies = self.policies.lock().unwrap();
        if policies.iter().any(|(name, _)| *name == config.name.to_string()) {
            return Err(AddDiskError::NameTaken { disk: config.name.to_string() }.into());
        }
        let name = config.name.to_string();
        let (spec, limits) = (SchedulerKind::Fifo.into(), config.limits);
        self.scheduling.lock().unwrap().push(SchedulerDetail::new(
            name.clone(),
            None,
            spec,
            config.weight,
            limits,
            None,
        ));
        policies.push((name, config.policy));
        Ok(())
    }

    async fn remove_disk(&self, disk: &str, force: bool) -> Result<Vec<RemovedDisk>, ControlError> {
        if disk == "disk0" && !force {
            return Err(RemoveDiskError::Connected { disk: disk.into() }.into());
        }
        self.policies.lock().unwrap().retain(|(name, _)| name != disk);
        Ok(vec![RemovedDisk { disk: disk.into(), in_doubt_ms: (disk == "disk0").then_some(2100) }])
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Events, ControlError> {
        let path = EventPath { index: 1, address: "tcp://127.0.0.1:4421".parse().unwrap() };
        let event = |seq, kind, path, message: &str| {
            let (time, disk) = (format!("2026-11-21T07:00:0{seq}.000Z"), "disk0".into());
            Event { seq, time, kind, disk, path, message: message.into() }
        };
        let mut events = vec![
            event(1, EventKind::PathLive, Some(path), "path live: controller 2, optimized"),
            event(2, EventKind::FrontEndConnected, None, "front-end connected"),
        ];
        if !wait.is_zero() && after == 2 {
            events.push(event(5, EventKind::PolicySet, None, "policy set to numa"));
            return Ok(Events { events: events.split_off(2), lost: 2, last: 5 });
        }
        // Who follows is told in the end that this daemon ends.
        if after == 5 {
            return Err(ControlError::Ending);
        }
        events.retain(|event| event.seq > after);
        Ok(Events { events, lost: 0, last: 2 })
    }
}

/// The daemon in its own thread; dropped, it ends.
pub(crate) struct Daemon {
    dir: TempDir,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::start_with(Fake::new())
    }

    /// One whose `disk1` takes no requests.
    pub(crate) fn start_held() -> Self {
        Self::start_with(Fake { held: &["disk1"], ..Fake::new() })
    }

    /// One whose `disk0` is being removed.
    pub(crate) fn start_removing() -> Self {
        Self::start_with(Fake { removing: &["disk0"], ..Fake::new() })
    }

    /// One with a disk `backup` over the paths of `disk0`.
    pub(crate) fn start_sharing() -> Self {
        Self::start_with(Fake::sharing())
    }

    /// One with `disk0` and `backup` only.
    pub(crate) fn start_sharing_alone() -> Self {
        let fake = Fake::sharing();
        fake.policies.lock().unwrap().retain(|(disk, _)| disk != "disk1");
        fake.scheduling.lock().unwrap().retain(|of| of.disk != "disk1");
        fake.paths.lock().unwrap().retain(|path| path.disk != "disk1");
        Self::start_with(fake)
    }

    fn start_with(control: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket: SocketPath = dir.path().join("api.sock").to_str().unwrap().parse().unwrap();
        let server = Server::bind(&socket).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server.serve(Arc::new(control), async { drop(ended.await) })).unwrap();
        });
        Self { dir, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    /// `mpathctl` for this daemon.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = mpathctl(args);
        command.env("MPATH_API", self.socket());
        command
    }

    /// Runs `mpathctl`, which must succeed without a word on stderr.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.said(args);
        assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
        stdout
    }

    /// Runs `mpathctl`; its exit code, and what it said on stdout and on stderr.
    pub(crate) fn said(&self, args: &[&str]) -> (i32, String, String) {
        finish(&mut self.command(args))
    }

    /// Runs `mpathctl`, which must fail without a word on stdout.
    pub(crate) fn fail(&self, args: &[&str]) -> (i32, String) {
        let (code, stdout, stderr) = finish(&mut self.command(args));
        assert_eq!(stdout, "", "{args:?}");
        (code, stderr)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// `mpathctl` for no daemon in particular.
pub(crate) fn mpathctl(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpathctl"));
    command.args(args).env_remove("MPATH_API");
    command
}

/// Exit code, stdout, stderr.
pub(crate) fn finish(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}
