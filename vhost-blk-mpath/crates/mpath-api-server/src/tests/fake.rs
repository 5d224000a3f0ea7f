//! Disks that are made up.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::*;

/// Two disks of two paths, which remember what is set, and perhaps one over the paths of the first.
pub(crate) struct Fake {
    disks: &'static [&'static str],
    live: Mutex<[LiveSettings; 3]>,
    injections: Mutex<[[Vec<InjectionInForce>; 2]; 2]>,
    states: Mutex<[[PathState; 2]; 2]>,
    removed: Mutex<Vec<String>>,
    pub(super) stuck: AtomicBool,
    pub(super) is_starting: AtomicBool,
    /// The last client that asked for events.
    pub(super) caller: Mutex<Option<Caller>>,
    fences: Mutex<Vec<DiskFences>>,
    pub(super) happened: watch::Sender<Happened>,
}

/// The events so far.
#[derive(Default)]
pub(super) struct Happened {
    /// The number of the last one.
    pub(super) last: u64,
    /// The daemon ends.
    pub(super) ends: bool,
}

/// A disk with everything that a fence record can keep.
fn fences_of(disk: &str) -> DiskFences {
    let path = EventPath { index: 0, address: "tcp://127.0.0.1:4420".parse().unwrap() };
    DiskFences {
        disk: disk.into(),
        record: format!("/run/{disk}.sock.fence"),
        fences: vec![PathFence {
            path: Some(path),
            since: "2026-11-21T07:00:00.000Z".into(),
            ends_in_ms: Some(2001),
            lifts_by: vec![FenceLift::Time, FenceLift::CrossReset],
        }],
        inherited: Some(InheritedFence { ends_in_ms: 9001, removed_disk: None }),
        guest_of: Some("namespace 1 of nqn.example".into()),
        lost_writes: true,
    }
}

impl Fake {
    pub(crate) fn new() -> Self {
        let live = LiveSettings {
            min_paths: MinPaths::Auto,
            policy: PolicyKind::LatencyRr.into(),
            scheduler: SchedulerKind::Fifo.into(),
            limits: LimitsConfig::default(),
            weight: weight(100),
            hedge: HedgeSetting::default(),
        };
        Self {
            disks: &["a", "b"],
            live: Mutex::new([live; 3]),
            injections: Mutex::default(),
            states: Mutex::new([[PathState::Live; 2]; 2]),
            removed: Mutex::default(),
            stuck: AtomicBool::new(false),
            is_starting: AtomicBool::new(false),
            caller: Mutex::default(),
            fences: Mutex::new(vec![fences_of("a"), fences_of("b")]),
            happened: watch::Sender::default(),
        }
    }

    /// With a disk over the paths of the first one.
    pub(crate) fn sharing() -> Self {
        Self::with(&["a", "b", SHARER])
    }

    /// With only these of its disks.
    pub(super) fn with(disks: &'static [&'static str]) -> Self {
        Self { disks, ..Self::new() }
    }

    async fn answer(&self) -> Result<(), ControlError> {
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// A disk without trouble.
pub(crate) fn healthy() -> DiskHealth {
    DiskHealth {
        condition: Condition::Ok,
        condition_since: String::new(),
        reasons: vec![],
        outstanding: 0,
        guest_errors: vec![],
    }
}

pub(super) const SHARER: &str = "shares-a";

fn disk_index(name: &str) -> Result<usize, ControlError> {
    ["a", "b", SHARER]
        .iter()
        .position(|&known| known == name)
        .ok_or_else(|| ControlError::UnknownDisk { disk: name.into(), similar: None })
}

/// The disk that has the paths.
fn owner_index(disk: usize) -> usize {
    if disk == 2 { 0 } else { disk }
}

fn shares_paths_of(disk: &str) -> Option<String> {
    (disk == SHARER).then(|| "a".into())
}

pub(super) fn weight(weight: u32) -> Weight {
    Weight::new(weight).unwrap()
}

impl Control for Fake {
    fn version(&self) -> &'static str {
        "9.8.7 (fake)"
    }

    fn disks(&self) -> Vec<DiskRef> {
        let removed = self.removed.lock().unwrap();
        let is_there = |name: &&&str| !removed.iter().any(|removed| removed == **name);
        let disk = |name: &&str| DiskRef { disk: (*name).into(), shares_paths_of: shares_paths_of(name) };
        self.disks.iter().filter(is_there).map(disk).collect()
    }

    async fn status(&self) -> Result<Status, ControlError> {
        self.answer().await?;
        let live = *self.live.lock().unwrap();
        let removed = self.removed.lock().unwrap();
        let is_there = |(_, name): &(usize, &&str)| !removed.iter().any(|removed| removed == **name);
        let disk = |(index, &name): (usize, &&str)| Disk {
            name: name.into(),
            shares_paths_of: shares_paths_of(name),
            weight: live[index].weight.get(),
            socket_path: format!("/run/{name}.sock"),
            subsystem: "nqn.x".into(),
            namespace: Some(1),
            state: DiskState::Served,
            connected: true,
            held_ms: None,
            policy: live[owner_index(index)].policy,
            scheduler: Some(live[owner_index(index)].scheduler),
            limits: Some(LimitStatus::new(live[index].limits, None)),
            capacity_bytes: 1 << 30,
            block_size_bytes: 512,
            read_only: false,
            queues: 4,
            mpath_window: false,
            queued: 0,
            moved_reads: MovedRequests::default(),
            moved_writes: MovedRequests::default(),
            first_moved: MovedRequests::default(),
            fence_waits: FenceWaits::default(),
            front_end: None,
            growth: None,
            io_threads: vec![],
            guest: GuestFigures::default(),
            hedge: HedgeStatus {
                hedge: live[owner_index(index)].hedge.hedge,
                hedge_budget: live[owner_index(index)].hedge.budget,
                ..HedgeStatus::default()
            },
            min_paths: MinPaths::Auto,
            changed: BTreeMap::new(),
            path_counts: PathCounts { total: 2, expected: 2, usable: 2, missing: 0 },
            health: healthy(),
        };
        Ok(Status {
            version: "1".into(),
            pid: 7,
            uptime_s: 5,
            disks: self.disks.iter().enumerate().filter(is_there).map(disk).collect(),
            discovery: Vec::new(),
        })
    }

    async fn paths(&self) -> Result<Vec<Path>, ControlError> {
        self.answer().await?;
        let injections = self.injections.lock().unwrap().clone();
        let path = |disk: usize, index: usize| Path {
            tls_suite: None,
            authentication: None,
            disk: ["a", "b"][disk].into(),
            index: index as u16,
            address: format!("tcp://127.0.0.1:442{index}").parse().unwrap(),
            transport: mpath_config::address::Transport::Tcp,
            origin: mpath_api::types::Origin::Configured,
            state: self.states.lock().unwrap()[disk][index],
            since: String::new(),
            waits_for: vec![],
            unusable: None,
            losses: 0,
            losses_1h: 0,
            reconnects: 0,
            last_error: None,
            last_error_at: None,
            ana_state: None,
            sharers: vec![],
            resting: false,
            suspect: false,
            suspicions: 0,
            recalled: 0,
            probes: 0,
            hedges: 0,
            hedges_won: 0,
            fenced: 0,
            fence_left_ms: None,
            unflushed: false,
            cntlid: None,
            controller: None,
            connections: vec![],
            connections_error: None,
            window: PathWindow { ios: 1, bytes: 1 },
            io_share: f64::NAN,
            io_share_1s: f64::NAN,
            io_share_60s: f64::NAN,
            read: OpStats { ios: disk as u64 * (1 + 2 * index as u64), ..OpStats::default() },
            write: OpStats::default(),
            other: OpStats::default(),
            injections: injections[disk][index].clone(),
        };
        Ok(vec![path(0, 0), path(0, 1), path(1, 0), path(1, 1)])
    }

    async fn set(
        &self,
        disks: &[String],
        change: impl Fn(&mut LiveSettings) + Send + Sync,
    ) -> Result<(), ControlError> {
        self.answer().await?;
        for disk in disks {
            change(&mut self.live.lock().unwrap()[disk_index(disk)?]);
        }
        *self.caller.lock().unwrap() = caller();
        Ok(())
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        let all = *self.live.lock().unwrap();
        let detail = |(index, &disk): (usize, &&str)| {
            let (scheduler, LiveSettings { weight, limits, .. }) = (all[owner_index(index)].scheduler, all[index]);
            SchedulerDetail::new(disk.into(), shares_paths_of(disk), scheduler, weight, limits, None)
        };
        Ok(self.disks.iter().enumerate().map(detail).collect())
    }

    async fn set_injection(
        &self,
        paths: &[PathRef],
        injection: Injection,
        time: Option<monotonic::Duration>,
    ) -> Result<(), ControlError> {
        for path in paths {
            let mut all = self.injections.lock().unwrap();
            let of_path = &mut all[disk_index(&path.disk)?][usize::from(path.index)];
            of_path.retain(|other| !injection.replaces(&other.injection));
            let ends_in_ms = time.map(monotonic::Duration::as_millis);
            of_path.push(InjectionInForce { injection, ends_in_ms, changed: None });
        }
        Ok(())
    }

    async fn clear_injections(&self, paths: &[PathRef]) -> Result<(), ControlError> {
        for path in paths {
            self.injections.lock().unwrap()[disk_index(&path.disk)?][usize::from(path.index)].clear();
        }
        Ok(())
    }

    async fn act_on_paths(&self, paths: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        if paths.len() > 1 && !force {
            return Err(ControlError::LastPath(paths[0].disk.clone()));
        }
        for path in paths {
            let state = if action == PathAction::Enable { PathState::Live } else { PathState::Draining };
            self.states.lock().unwrap()[disk_index(&path.disk)?][usize::from(path.index)] = state;
        }
        Ok(())
    }

    async fn add_path(&self, disk: &str, address: PathAddress) -> Result<PathRef, ControlError> {
        disk_index(disk)?;
        assert_ne!(disk, SHARER, "it has no paths");
        let disk = disk.to_owned();
        match address.port() {
            // The port chooses the outcome.
            4420 => Ok(PathRef { disk, index: 0 }),
            4421 => Err(AddPathError::Exists { disk, index: 1, address, state: PathState::Live }.into()),
            4422 => Err(AddPathError::TooMany(disk).into()),
            _ => Err(AddPathError::NotMultipath { disk, reason: "it is not shared".into() }.into()),
        }
    }

    async fn remove_path(&self, path: &PathRef, force: bool) -> Result<(), ControlError> {
        if !force && (&*path.disk, path.index) == ("b", 0) {
            return Err(RemovePathError::LastPath(path.disk.clone()).into());
        }
        self.states.lock().unwrap()[disk_index(&path.disk)?][usize::from(path.index)] = PathState::Removing;
        Ok(())
    }

    async fn add_disk(&self, config: DiskConfig) -> Result<(), ControlError> {
        self.answer().await?;
        let disk = config.name.to_string();
        if disk_index(&disk).is_ok() {
            return Err(ControlError::NameTaken(disk));
        }
        Err(ControlError::DiskNotStarted("no path".into()))
    }

    async fn remove_disk(&self, disk: &str, force: bool) -> Result<Vec<RemovedDisk>, ControlError> {
        self.answer().await?;
        let disk = disk.to_owned();
        match disk_index(&disk)? {
            0 => {
                let (owner, all) = ("x".into(), vec!["x".into(), "a".into()]);
                Err(ControlError::RemovedTogether { disk, owner, all })
            }
            1 if force => {
                self.removed.lock().unwrap().push(disk.clone());
                Ok(vec![RemovedDisk { disk, in_doubt_ms: Some(2100) }])
            }
            1 => Err(ControlError::DiskConnected(disk)),
            _ => Err(ControlError::InRemoval(disk)),
        }
    }

    async fn upgrade(&self, force: bool) -> Result<Upgrade, ControlError> {
        if !force {
            return Err(ControlError::UpgradeFailed("disk vda: no path".into()));
        }
        Ok(Upgrade { from_version: "1.2.3".into(), version: "1.2.4".into(), pid: 4 })
    }

    async fn configuration(&self) -> Result<Configuration, ControlError> {
        let (given, effective) = (serde_json::json!({}), serde_json::json!({"io-threads": 1}));
        Ok(Configuration { file: Some("/etc/c.yaml".into()), given, effective })
    }

    async fn reload(&self, dry_run: bool, force: bool) -> Result<Reload, ControlError> {
        if force {
            return Err(ControlError::ConfigInvalid(vec!["c.yaml:1:1: a".into(), "c.yaml:2:1: b".into()]));
        }
        let added = Change::DiskAdded { disk: "a".into() };
        let failed = vec![FailedChange { change: added.clone(), reason: "no path".into() }];
        Ok(Reload { file: "/etc/c.yaml".into(), dry_run, applied: vec![added], failed, not_live: vec![] })
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
        disk_index(disk)?;
        Ok(vec![])
    }

    async fn history(&self, _: &str, from: SystemTime, until: SystemTime) -> Result<Vec<HistoryMinute>, ControlError> {
        let began = |minute: u64| UNIX_EPOCH + Duration::from_secs(60 * minute);
        let minute = |minute: u64| HistoryMinute {
            began: minute.to_string(),
            seconds: 60,
            guest: ClassFigures::default(),
            long_requests: Stages::default(),
            host_stalled_ms: minute,
            oldest_request_ms: None,
            slowest: None,
            paths: Vec::new(),
        };
        Ok((0..10).filter(|at| (from..=until).contains(&began(*at))).map(minute).collect())
    }

    async fn slow(&self) -> Result<Vec<SlowRequest>, ControlError> {
        let slow = |disk: &str, total_us| SlowRequest {
            disk: disk.into(),
            ended: "2026-11-21T07:00:01.000Z".into(),
            operation: GuestOperation::Read,
            queue: 0,
            sector: Some(8),
            bytes: 4096,
            total_us,
            stages: Stages { path: monotonic::Duration::from_micros(total_us), ..Stages::default() },
            longest: "path".into(),
            index: Some(0),
            paths: vec![0],
            attempts: 1,
            error: None,
        };
        Ok(vec![slow("a", 100), slow("b", 300), slow("a", 200)])
    }

    fn events(&self, after: u64) -> Events {
        *self.caller.lock().unwrap() = caller();
        let last = self.happened.borrow().last;
        let event = |seq| Event {
            seq,
            time: "2026-11-21T07:00:00.000Z".into(),
            kind: EventKind::PathLost,
            severity: Severity::Warning,
            disk: Some("a".into()),
            path: Some(EventPath { index: 0, address: "tcp://127.0.0.1:4420".parse().unwrap() }),
            message: "path down".into(),
            by: Some(Caller::new(1, None)),
            repeated: 0,
        };
        Events { boot_id: "boot".into(), events: (after.min(last) + 1..=last).map(event).collect(), lost: 0, last }
    }

    async fn more_events(&self, after: u64) -> bool {
        let mut happened = self.happened.subscribe();
        let happened = happened.wait_for(|happened| happened.last != after || happened.ends).await.unwrap();
        !happened.ends
    }

    fn readiness(&self) -> Result<(), ControlError> {
        if self.is_starting.load(Ordering::Relaxed) {
            return Err(ControlError::Starting(WaitFor::Any));
        }
        Ok(())
    }
}
