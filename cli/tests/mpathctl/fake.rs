//! Test helpers: a daemon without I/O, which answers from memory.

mod data;
mod diagnostics;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use monotonic::Duration;
use mpath_api::types::{
    AnaState, Caller, ClearedFence, ClearedFences, Condition, Configuration, Disk, DiskFences, DiskHealth, DiskState,
    Event, EventKind, EventPath, Events, FenceWaits, GuestErrorCount, GuestErrorReason, GuestFigures, GuestOperation,
    HedgeStatus, HistoryMinute, Injection, InjectionInForce, MovedRequests, Origin, Path, PathAction, PathCounts,
    PathSharer, PathState, Reload, RemovedDisk, SchedulerDetail, SlowRequest, Status, ThreadExplanation, Upgrade,
    WaitsFor,
};
use mpath_api_server::{AddPathError, Control, ControlError, DiskRef, PathRef, RemovePathError};
use mpath_config::{
    ClassPolicies, DiskConfig, HedgeSetting, LimitsConfig, LiveSettings, MinPaths, PathAddress, PolicyKind,
    SchedulerKind,
};

use self::data::{discovery, health, path, scheduling, stats, weight};

/// `disk0` with a live and a lost path, `disk1` with one path that is not optimized.
pub(crate) struct Fake {
    pub(crate) policies: Mutex<Vec<(String, ClassPolicies)>>,
    /// By disk.
    pub(crate) hedges: Mutex<[HedgeStatus; 2]>,
    pub(crate) scheduling: Mutex<Vec<SchedulerDetail>>,
    pub(crate) paths: Mutex<Vec<Path>>,
    /// Disks that take no requests.
    pub(crate) held: &'static [&'static str],
    /// The state of `disk0`.
    pub(crate) state: DiskState,
    pub(crate) boot_id: &'static str,
    /// A client has waited for the event after number 2.
    pub(crate) has_more: AtomicBool,
    pub(crate) version: &'static str,
    pub(crate) fences: Mutex<Vec<DiskFences>>,
    pub(crate) configuration: Configuration,
    pub(crate) reload: Result<Reload, ControlError>,
    /// The errors of the medium that the guest of `disk1` got.
    pub(crate) medium_errors: u64,
}

/// The name of a disk over the paths of `disk0`.
const SHARER: &str = "backup";

impl Fake {
    /// A daemon with a disk over the paths of `disk0`. One path does not lead to the namespace of that disk.
    pub(crate) fn sharing() -> Self {
        let fake = Self::new();
        fake.policies.lock().unwrap().push((SHARER.into(), PolicyKind::RoundRobin.into()));
        {
            let mut scheduling = fake.scheduling.lock().unwrap();
            let disk0 = scheduling[0].scheduler;
            let (owner, limits) = (Some("disk0".into()), LimitsConfig::default());
            scheduling.push(SchedulerDetail::new(SHARER.into(), owner, disk0, weight(25), limits, None));
            let mut paths = fake.paths.lock().unwrap();
            let sharer = |ana_state, unusable: Option<&str>| {
                vec![PathSharer { disk: SHARER.into(), ana_state, unusable: unusable.map(Into::into) }]
            };
            paths[0].sharers = sharer(Some(AnaState::NonOptimized), None);
            paths[1].sharers = sharer(None, Some("there is no namespace 2"));
        }
        fake
    }

    /// The boot id of a fake daemon, unless a test sets another.
    pub(crate) const FIRST_BOOT: &'static str = "4b6cbcf1-1f6c-4a6f-9f6a-0a3c5d1e2f30";

    pub(crate) fn new() -> Self {
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
        paths[1].unusable = Some("lost: Connection refused (os error 111)".into());
        (paths[1].losses, paths[1].losses_1h, paths[1].reconnects) = (3, 2, 2);
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
            state: DiskState::Served,
            boot_id: Self::FIRST_BOOT,
            has_more: AtomicBool::new(false),
            version: env!("VHOST_BLK_MPATH_VERSION"),
            fences: Mutex::new(data::fences()),
            configuration: Configuration { file: None, given: serde_json::json!({}), effective: serde_json::json!({}) },
            reload: Err(ControlError::NoConfigFile),
            medium_errors: 0,
        }
    }
}

impl Control for Fake {
    fn version(&self) -> &'static str {
        self.version
    }

    fn disks(&self) -> Vec<DiskRef> {
        let scheduling = self.scheduling.lock().unwrap().clone();
        let shares = |name: &str| scheduling.iter().find(|of| of.disk == name).unwrap().shares_paths_of.clone();
        let disk = |(name, _): &(String, _)| DiskRef { disk: name.clone(), shares_paths_of: shares(name) };
        self.policies.lock().unwrap().iter().map(disk).collect()
    }

    async fn status(&self) -> Result<Status, ControlError> {
        let (paths, hedges) = (self.paths.lock().unwrap(), *self.hedges.lock().unwrap());
        let scheduling = self.scheduling.lock().unwrap().clone();
        let of = |name: &str| scheduling.iter().find(|of| of.disk == name).unwrap();
        let shares = |name: &str| of(name).shares_paths_of.clone();
        let owner = |name: &String| shares(name).unwrap_or_else(|| name.clone());
        let disk = |(name, policy): &(String, ClassPolicies)| Disk {
            shares_paths_of: shares(name),
            state: if name == "disk0" { self.state } else { DiskState::Served },
            connected: name == "disk0",
            front_end: (name == "disk0").then(data::front_end),
            growth: (name == "disk0").then(data::growth),
            held_ms: self.held.contains(&name.as_str()).then_some(12_001),
            policy: *policy,
            read_only: name == "disk1",
            mpath_window: name == "disk0",
            scheduler: Some(of(name).scheduler),
            limits: Some(of(name).limits),
            weight: of(name).weight,
            first_moved: if name == "disk0" { data::first_moved() } else { MovedRequests::default() },
            fence_waits: if name == "disk0" { FenceWaits { ios: 40, total_ms: 84_060 } } else { FenceWaits::default() },
            io_threads: if name == "disk0" { data::io_threads() } else { vec![] },
            guest: if name == "disk0" { data::guest() } else { GuestFigures::default() },
            hedge: hedges[usize::from(name == "disk1")],
            min_paths: MinPaths::Auto,
            path_counts: PathCounts {
                total: paths.iter().filter(|path| path.disk == owner(name)).count() as u32,
                expected: paths.iter().filter(|path| path.disk == owner(name)).count() as u32,
                usable: paths.iter().filter(|path| path.disk == owner(name) && path.unusable.is_none()).count() as u32,
                missing: 0,
            },
            health: match name.as_str() {
                _ if self.held.contains(&name.as_str()) => {
                    health(Condition::Held, "requests wait for 12.0 s: the previous daemon did not end in order")
                }
                "disk0" => health(Condition::Degraded, "1 of 2 expected paths are usable: path 1: lost"),
                "disk1" if self.medium_errors > 0 => DiskHealth {
                    guest_errors: vec![GuestErrorCount {
                        operation: GuestOperation::Read,
                        reason: GuestErrorReason::Medium,
                        count: self.medium_errors,
                        last_at: "2026-11-21T07:00:01.000Z".into(),
                    }],
                    ..health(Condition::Ok, "")
                },
                _ => health(Condition::Ok, ""),
            },
            ..data::disk(name)
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

    async fn set(
        &self,
        disks: &[String],
        change: impl Fn(&mut LiveSettings) + Send + Sync,
    ) -> Result<(), ControlError> {
        let (mut policies, mut hedges) = (self.policies.lock().unwrap(), self.hedges.lock().unwrap());
        for of in self.scheduling.lock().unwrap().iter_mut().filter(|of| disks.contains(&of.disk)) {
            let policy = &mut policies.iter_mut().find(|(name, _)| *name == of.disk).unwrap().1;
            let status = &mut hedges[usize::from(of.disk == "disk1")];
            let mut live = LiveSettings {
                min_paths: MinPaths::Auto,
                policy: *policy,
                scheduler: of.scheduler,
                limits: of.limits.limits,
                weight: weight(of.weight),
                hedge: HedgeSetting { hedge: status.hedge, budget: status.hedge_budget },
            };
            change(&mut live);
            (*policy, of.scheduler, of.limits.limits) = (live.policy, live.scheduler, live.limits);
            of.weight = live.weight.get();
            (status.hedge, status.hedge_budget) = (live.hedge.hedge, live.hedge.budget);
        }
        Ok(())
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        Ok(self.scheduling.lock().unwrap().clone())
    }

    async fn set_injection(
        &self,
        wanted: &[PathRef],
        injection: Injection,
        time: Option<Duration>,
    ) -> Result<(), ControlError> {
        for path in self.paths.lock().unwrap().iter_mut() {
            if wanted.contains(&PathRef { disk: path.disk.clone(), index: path.index }) {
                path.injections.retain(|other| !injection.replaces(&other.injection));
                // A moment has passed.
                let ends_in_ms = time.map(|time| time.as_millis() - 200);
                path.injections.push(InjectionInForce { injection, ends_in_ms, changed: None });
            }
        }
        Ok(())
    }

    async fn clear_injections(&self, wanted: &[PathRef]) -> Result<(), ControlError> {
        for path in self.paths.lock().unwrap().iter_mut() {
            if wanted.contains(&PathRef { disk: path.disk.clone(), index: path.index }) {
                path.injections.clear();
            }
        }
        Ok(())
    }

    async fn act_on_paths(&self, wanted: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        if action == PathAction::Reset {
            // Path 1 counts as disabled.
            return match wanted.iter().find(|path| path.index == 1).cloned() {
                Some(path) => Err(ControlError::NotResettable(path, PathState::Disabled)),
                None => Ok(()),
            };
        }
        // `disk1` has but one path.
        if let Some(last) = wanted.iter().find(|path| path.disk == "disk1" && action != PathAction::Enable && !force) {
            return Err(ControlError::LastPath(last.disk.clone()));
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
        if added.connections.is_empty() {
            added.connections = data::tcp();
        }
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
            return Err(RemovePathError::LastPath(disk).into());
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
            return Err(ControlError::NameTaken(config.name.to_string()));
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
            return Err(ControlError::DiskConnected(disk.into()));
        }
        self.policies.lock().unwrap().retain(|(name, _)| name != disk);
        Ok(vec![RemovedDisk { disk: disk.into(), in_doubt_ms: (disk == "disk0").then_some(2100) }])
    }

    async fn upgrade(&self, force: bool) -> Result<Upgrade, ControlError> {
        if !force {
            return Err(ControlError::UpgradeFailed("disk vda: no path".into()));
        }
        Ok(Upgrade { from_version: "1.2.3".into(), version: "1.2.4".into(), pid: 4711 })
    }

    async fn configuration(&self) -> Result<Configuration, ControlError> {
        Ok(self.configuration.clone())
    }

    async fn reload(&self, dry_run: bool, _force: bool) -> Result<Reload, ControlError> {
        let reload = self.reload.clone()?;
        Ok(Reload { dry_run, ..reload })
    }

    async fn fences(&self) -> Result<Vec<DiskFences>, ControlError> {
        Ok(self.fences.lock().unwrap().clone())
    }

    async fn clear_fences(&self, disk: &str, force: bool) -> Result<ClearedFences, ControlError> {
        let mut fences = self.fences.lock().unwrap();
        let of = fences.iter_mut().find(|of| of.disk == disk).unwrap();
        if let Some(inherited) = of.inherited.as_ref().filter(|_| !force) {
            let left_s = inherited.ends_in_ms.div_ceil(1000);
            return Err(ControlError::FenceNotPassed { disk: disk.into(), left_s });
        }
        let parts = [
            (of.guest_of.take().is_some(), ClearedFence::UnansweredRequests),
            (of.inherited.take().is_some(), ClearedFence::InheritedFence),
            (std::mem::take(&mut of.lost_writes), ClearedFence::LostWrites),
        ];
        let cleared = parts.into_iter().filter_map(|(is, part)| is.then_some(part)).collect();
        Ok(ClearedFences { disk: disk.into(), cleared })
    }

    async fn explain(&self, disk: &str) -> Result<Vec<ThreadExplanation>, ControlError> {
        Ok(if disk == "disk0" { diagnostics::explained(&self.paths.lock().unwrap()) } else { vec![] })
    }

    async fn history(&self, _: &str, from: SystemTime, until: SystemTime) -> Result<Vec<HistoryMinute>, ControlError> {
        let is_within = |minute: &HistoryMinute| {
            let began = humantime::parse_rfc3339(&minute.began).unwrap();
            from <= began && began <= until
        };
        Ok(diagnostics::history().into_iter().filter(is_within).collect())
    }

    async fn slow(&self) -> Result<Vec<SlowRequest>, ControlError> {
        Ok(diagnostics::slow())
    }

    fn events(&self, after: u64) -> Events {
        let path = EventPath { index: 1, address: "tcp://127.0.0.1:4421".parse().unwrap() };
        let event = |seq, kind, path, message: &str| {
            let (time, disk) = (format!("2026-11-21T07:00:0{seq}.000Z"), Some("disk0".into()));
            let by = (kind == EventKind::PolicySet).then_some(Caller::new(1000, Some(4711)));
            let repeated = if kind == EventKind::FrontEndConnected { 12 } else { 0 };
            Event { seq, time, kind, severity: kind.severity(), disk, path, message: message.into(), by, repeated }
        };
        let boot_id = self.boot_id.into();
        // Numbers 3 and 4 are lost. A client that follows events gets there.
        if after == 2 && self.has_more.load(Ordering::Relaxed) {
            let events = vec![event(5, EventKind::PolicySet, None, "policy set to numa")];
            return Events { boot_id, events, lost: 2, last: 5 };
        }
        let mut events = vec![
            event(1, EventKind::PathLive, Some(path), "path live: controller 2, optimized"),
            event(2, EventKind::FrontEndConnected, None, "front-end connected"),
        ];
        events.retain(|event| event.seq > after);
        let last = if after == 5 { 5 } else { 2 };
        Events { boot_id, events, lost: 0, last }
    }

    async fn more_events(&self, after: u64) -> bool {
        if after == 2 && self.boot_id == Self::FIRST_BOOT {
            self.has_more.store(true, Ordering::Relaxed);
            return true;
        }
        // The first daemon ends the stream.
        if after != 5 {
            std::future::pending::<()>().await;
        }
        false
    }

    fn readiness(&self) -> Result<(), ControlError> {
        Ok(())
    }
}
