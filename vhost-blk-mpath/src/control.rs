//! The daemon's side of the API: state from the control thread, statistics from the I/O threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{
    self, ClearedFences, DiskFences, DiskState, EventKind, Events, FenceWaits, GuestFigures, HedgeStatus,
    HistoryMinute, LimitStatus, MovedRequests, OpStats, Origin, PathAction, PathSharer, PathState, PathWindow, Reload,
    RemovedDisk, SchedulerDetail, SlowRequest, Status, TimeHistogram, Upgrade, WaitsFor,
};
use mpath_api_server::{AddPathError, Control, ControlError, DiskRef, PathRef};
use mpath_config::{DiskConfig, LiveSettings, PathAddress, WaitFor, similar_name};
use mpath_core::{DiskId, GroupStats, HedgeCounts, HostStats, OpClass, PathId, PathStats};
use mpath_lifecycle::NamespaceStatus;
use reactor::{IoThreadControl, IoThreadHandle};
use tokio::sync::oneshot;

use crate::configuration::Configuration;
use crate::configuration::reload::{ReloadBy, ReloadOptions, reload};
use crate::diagnostics;
use crate::disk::{Backing, Disk};
use crate::events::utc;
use crate::io_threads::{host_stats, statistics};
use crate::open_files;
use crate::path::actions;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::service::history::History;
use crate::subsystem::path_injection::PathInjection;
use crate::subsystem::path_status::PathStatus;
use crate::subsystem::{PolicySetBy, Subsystem};
use crate::transport::connections::Connections;
use crate::upgrade::predecessor::Upgrader;

/// The version of the daemon, with the commit.
pub(crate) const VERSION: &str = env!("VHOST_BLK_MPATH_VERSION");

/// The daemon as the API sees it.
pub(crate) struct Daemon {
    pub(crate) disks: Arc<Disks>,
    pub(crate) started: Instant,
    pub(crate) upgrader: Arc<Upgrader>,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) wait_for: WaitFor,
    pub(crate) history: Arc<History>,
    /// The daemon has reported that it is ready.
    pub(crate) is_ready: AtomicBool,
}

impl Daemon {
    /// The disk of this name, and its subsystem.
    fn disk(&self, name: &str) -> Result<(Arc<Subsystem>, DiskId), ControlError> {
        self.disks.find(name).ok_or_else(|| {
            let similar = similar_name(name, self.disks().iter().map(|disk| &*disk.disk));
            ControlError::UnknownDisk { disk: name.into(), similar }
        })
    }

    /// The subsystem of a disk that has paths of its own.
    fn subsystem(&self, name: &str) -> Result<Arc<Subsystem>, ControlError> {
        let (subsystem, disk) = self.disk(name)?;
        if disk != DiskId(0) {
            return Err(ControlError::SharesPaths { disk: name.into(), owner: subsystem.name().into() });
        }
        Ok(subsystem)
    }

    /// The statistics of a subsystem. `None` if it has no I/O threads, or if its disks are being removed and the threads have ended.
    async fn statistics(&self, subsystem: &Subsystem) -> Result<Option<GroupStats>, ControlError> {
        match statistics(subsystem.threads()).await {
            Err(ControlError::Ending) if self.disks.is_leaving(subsystem) => Ok(None),
            stats => stats,
        }
    }

    /// Waits until the I/O threads have carried out the changes. An error of a disk that was removed meanwhile, or is being removed,
    /// counts only if no other disk was changed.
    async fn finish(&self, changes: Vec<Result<PendingChange, ControlError>>) -> Result<(), ControlError> {
        let (mut any_changed, mut removed) = (false, Ok(()));
        for change in changes {
            match change {
                Ok((subsystem, waits)) => match wait_for_threads(waits).await {
                    Ok(()) => any_changed = true,
                    Err(error) if self.disks.is_leaving(&subsystem) => removed = Err(error),
                    Err(error) => return Err(error),
                },
                Err(error) => removed = Err(error),
            }
        }
        if any_changed { Ok(()) } else { removed }
    }
}

/// A change under way: the subsystem, and one receiver for each I/O thread.
type PendingChange = (Arc<Subsystem>, Vec<oneshot::Receiver<()>>);

impl Daemon {
    /// Has refused paths connect again. They may lead to a namespace that their disk may use now.
    async fn retry_refused(&self, subsystem: &Arc<Subsystem>) -> Result<(), ControlError> {
        let refused = |path: &PathStatus| path.api_state() == PathState::Refused;
        let reference = |path: &PathStatus| PathRef { disk: subsystem.name().into(), index: path.id.0 };
        let paths: Vec<_> = subsystem.state().paths().filter(|path| refused(path)).map(reference).collect();
        wait_for_threads(actions::apply(&[Arc::clone(subsystem)], &paths, PathAction::Enable, false)?).await
    }
}

impl Daemon {
    /// Reads the configuration file again and applies the differences.
    pub(crate) async fn reload_configuration(&self, options: ReloadOptions) -> Result<Reload, ControlError> {
        reload(&self.configuration, &self.disks, &self.upgrader, options).await
    }
}

impl Control for Daemon {
    fn version(&self) -> &'static str {
        VERSION
    }

    fn disks(&self) -> Vec<DiskRef> {
        let of = |subsystem: &Arc<Subsystem>| -> Vec<_> {
            let disk = |disk: &Disk| DiskRef { disk: disk.name().into(), shares_paths_of: owner(subsystem, disk) };
            subsystem.disks.iter().map(disk).collect()
        };
        self.disks.subsystems().iter().flat_map(of).collect()
    }

    async fn status(&self) -> Result<Status, ControlError> {
        let mut disks = Vec::new();
        let services = self.disks.services();
        let hosts = host_stats(&self.disks.common.threads).await?;
        for service in &services {
            let subsystem = &service.subsystem;
            let stats = self.statistics(subsystem).await?;
            let is_leaving = self.disks.is_leaving(subsystem);
            let state = |disk: &Disk| match disk.is_served() {
                _ if is_leaving => DiskState::Removing,
                true => DiskState::Served,
                false => DiskState::Starting,
            };
            disks.extend(
                subsystem.disks.iter().map(|disk| describe(service, disk, state(disk), stats.as_ref(), &hosts)),
            );
        }
        Ok(Status {
            version: self.version().into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            disks,
            discovery: services
                .iter()
                .filter_map(|service| service.discovery.as_ref())
                .flat_map(|discovery| discovery.get())
                .collect(),
        })
    }

    async fn paths(&self) -> Result<Vec<types::Path>, ControlError> {
        let mut paths = Vec::new();
        for subsystem in self.disks.subsystems() {
            let stats = self.statistics(&subsystem).await?;
            let state = subsystem.state();
            for status in state.paths() {
                let stats = stats.as_ref().and_then(|stats| stats.path(status.id));
                let class = |class| stats.map_or_else(OpStats::default, |stats| OpStats::of(stats, class));
                let first = status.namespace(DiskId(0));
                let usable = &subsystem.disk(DiskId(0)).shared.usable;
                paths.push(types::Path {
                    disk: subsystem.name().into(),
                    index: status.id.0,
                    address: status.address.clone(),
                    transport: status.address.transport(),
                    origin: status.origin,
                    state: status.api_state(),
                    since: utc(status.since),
                    waits_for: waits_for(&subsystem, status, stats),
                    unusable: status.unusable(DiskId(0), usable),
                    losses: status.losses.total,
                    losses_1h: status.losses.in_last_hour(Instant::now()),
                    reconnects: status.losses.reconnects,
                    last_error: status.last_error.as_ref().map(|(error, _)| error.clone()),
                    last_error_at: status.last_error.as_ref().map(|(_, at)| utc(*at)),
                    ana_state: first.and_then(NamespaceStatus::reported_ana),
                    sharers: sharers(&subsystem, status),
                    cntlid: status.cntlid,
                    controller: status.controller.clone(),
                    tls_suite: status.suite.map(|suite| suite.name().to_owned()),
                    authentication: status.authentication.clone(),
                    connections: status.connections.as_ref().map_or_else(Vec::new, Connections::for_api),
                    connections_error: status.connections.as_ref().and_then(Connections::error),
                    window: PathWindow {
                        ios: subsystem.config.window.ios.get(),
                        bytes: subsystem.config.window.bytes.get().into(),
                    },
                    resting: stats.is_some_and(|stats| stats.resting),
                    suspect: stats.is_some_and(|stats| stats.suspect),
                    suspicions: stats.map_or(0, |stats| stats.suspicions),
                    recalled: stats.map_or(0, |stats| stats.recalled),
                    probes: stats.map_or(0, |stats| stats.probes),
                    hedges: stats.map_or(0, |stats| stats.hedges),
                    hedges_won: stats.map_or(0, |stats| stats.hedges_won),
                    fenced: stats.map_or(0, |stats| stats.fenced),
                    fence_left_ms: subsystem.fence_left(status.id).map(|left| left.as_millis() + 1),
                    unflushed: subsystem.may_be_unflushed(status.id),
                    io_share: 0.0,
                    io_share_1s: 0.0,
                    io_share_60s: 0.0,
                    read: class(OpClass::Read),
                    write: class(OpClass::Write),
                    other: class(OpClass::Other),
                    injections: status.injections.iter().map(PathInjection::for_api).collect(),
                });
            }
        }
        Ok(paths)
    }

    async fn set(
        &self,
        disks: &[String],
        change: impl Fn(&mut LiveSettings) + Send + Sync,
    ) -> Result<(), ControlError> {
        let begin = |name: &String| {
            let (subsystem, disk) = self.disk(name)?;
            let waits = subsystem.change(disk, &change, PolicySetBy::Operator);
            Ok((subsystem, waits))
        };
        self.finish(disks.iter().map(begin).collect()).await
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        let mut details = Vec::new();
        for subsystem in self.disks.subsystems() {
            let stats = self.statistics(&subsystem).await?;
            for disk in &subsystem.disks {
                let LiveSettings { scheduler, limits, weight, .. } = *subsystem.state().live(disk.id);
                let stats = stats.as_ref().map(|stats| (&stats.scheduler, disk.id, disk.first_flow));
                let owner = owner(&subsystem, disk);
                details.push(SchedulerDetail::new(disk.name().into(), owner, scheduler, weight, limits, stats));
            }
        }
        Ok(details)
    }

    async fn set_injection(
        &self,
        paths: &[PathRef],
        injection: types::Injection,
        time: Option<Duration>,
    ) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for PathRef { disk, index } in paths {
            waits.extend(self.subsystem(disk)?.set_injection(PathId(*index), injection, time)?);
        }
        wait_for_threads(waits).await
    }

    async fn clear_injections(&self, paths: &[PathRef]) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for PathRef { disk, index } in paths {
            waits.extend(self.subsystem(disk)?.clear_injections(PathId(*index))?);
        }
        wait_for_threads(waits).await
    }

    async fn act_on_paths(&self, paths: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        for path in paths {
            self.subsystem(&path.disk)?;
        }
        let waits = actions::apply(&self.disks.subsystems(), paths, action, force)?;
        wait_for_threads(waits).await
    }

    async fn add_path(&self, disk: &str, address: PathAddress) -> Result<PathRef, ControlError> {
        let subsystem = self.subsystem(disk)?;
        self.disks
            .check_open_files(open_files::of_path(self.disks.common.io_threads))
            .map_err(|error| AddPathError::OpenFiles { disk: disk.into(), reason: error.to_string() })?;
        let index = subsystem.add_path(address, Origin::Operator)?.0;
        Ok(PathRef { disk: disk.into(), index })
    }

    async fn remove_path(&self, path: &PathRef, force: bool) -> Result<(), ControlError> {
        Ok(self.subsystem(&path.disk)?.remove_path(PathId(path.index), force, Origin::Operator).await?)
    }

    async fn add_disk(&self, config: DiskConfig) -> Result<(), ControlError> {
        self.disks.add(config).await
    }

    async fn remove_disk(&self, disk: &str, force: bool) -> Result<Vec<RemovedDisk>, ControlError> {
        self.disks.remove(disk, force).await
    }

    async fn upgrade(&self, force: bool) -> Result<Upgrade, ControlError> {
        let under_way = self.upgrader.begin()?;
        let (events, version) = (&self.disks.common.events, self.version());
        events.record_of_daemon(EventKind::UpgradeBegun, format!("upgrade begun, from version {version}"));
        let subsystems = self.disks.subsystems();
        let check = move || {
            let mut subsystems = subsystems.iter();
            if force { Ok(()) } else { subsystems.try_for_each(|subsystem| actions::check_upgrade(subsystem)) }
        };
        let upgraded = match (check(), self.disks.sockets()) {
            (Err(error), _) => Err(error),
            (Ok(()), Some((_unchanged, sockets))) => {
                self.upgrader.upgrade(under_way, version, sockets, force, check).await
            }
            (Ok(()), None) => Err(ControlError::UpgradeBusy),
        };
        let (kind, message) = match &upgraded {
            Ok(Upgrade { version, pid, .. }) => {
                (EventKind::Upgraded, format!("process {pid} with version {version} takes over"))
            }
            Err(error) => (EventKind::UpgradeFailed, format!("no upgrade: {error}")),
        };
        events.record_of_daemon(kind, message);
        upgraded
    }

    async fn configuration(&self) -> Result<types::Configuration, ControlError> {
        Ok(self.configuration.for_api(&self.disks))
    }

    async fn reload(&self, dry_run: bool, force: bool) -> Result<Reload, ControlError> {
        self.reload_configuration(ReloadOptions { dry_run, force, by: ReloadBy::Client }).await
    }

    async fn fences(&self) -> Result<Vec<DiskFences>, ControlError> {
        let of = |subsystem: &Arc<Subsystem>| subsystem.disks.iter().map(|disk| subsystem.fences_of(disk)).collect();
        Ok(self.disks.subsystems().iter().flat_map(|subsystem| -> Vec<_> { of(subsystem) }).collect())
    }

    async fn clear_fences(&self, name: &str, force: bool) -> Result<ClearedFences, ControlError> {
        let (subsystem, disk) = self.disk(name)?;
        let cleared = subsystem.clear_fences(disk, force).await?;
        self.retry_refused(&subsystem).await?;
        Ok(ClearedFences { disk: name.into(), cleared })
    }

    async fn explain(&self, disk: &str) -> Result<Vec<types::ThreadExplanation>, ControlError> {
        let (subsystem, disk) = self.disk(disk)?;
        diagnostics::explain(&subsystem, disk).await
    }

    async fn history(
        &self,
        disk: &str,
        from: SystemTime,
        until: SystemTime,
    ) -> Result<Vec<HistoryMinute>, ControlError> {
        let (subsystem, id) = self.disk(disk)?;
        self.history.read(&subsystem, id, from, until).await.map_err(|error| {
            let file = subsystem.records.history(usize::from(id.0)).path().display().to_string();
            ControlError::HistoryUnreadable { disk: disk.into(), file, reason: error.to_string() }
        })
    }

    async fn slow(&self) -> Result<Vec<SlowRequest>, ControlError> {
        let mut slow = Vec::new();
        for subsystem in self.disks.subsystems() {
            match diagnostics::slow(&subsystem).await {
                Err(ControlError::Ending) if self.disks.is_leaving(&subsystem) => {}
                of_subsystem => slow.extend(of_subsystem?),
            }
        }
        Ok(slow)
    }

    fn events(&self, after: u64) -> Events {
        self.disks.common.events.after(after)
    }

    async fn more_events(&self, after: u64) -> bool {
        self.disks.common.events.more(after).await
    }

    fn readiness(&self) -> Result<(), ControlError> {
        match self.is_ready.load(Ordering::Relaxed) {
            _ if self.disks.is_ending() => Err(ControlError::Ending),
            true => Ok(()),
            false => Err(ControlError::Starting(self.wait_for)),
        }
    }
}

/// What a draining or removed path waits for.
fn waits_for(subsystem: &Subsystem, status: &PathStatus, stats: Option<&PathStats>) -> Vec<WaitsFor> {
    if status.is_removing() && !status.is_draining() {
        return vec![WaitsFor::AnotherPath];
    }
    if !matches!(status.api_state(), PathState::Draining | PathState::Removing) {
        return Vec::new();
    }
    let in_flight = stats.is_some_and(|stats| stats.classes.iter().any(|class| class.in_flight > 0));
    let flush = subsystem.may_be_unflushed(status.id);
    // A removed path without a controller was lost. It exists until its fence has passed.
    let fence = status.is_removing() && status.cntlid.is_none();
    let reasons = [(in_flight, WaitsFor::InFlight), (flush, WaitsFor::Flush), (fence, WaitsFor::Fence)];
    reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
}

/// Waits for every I/O thread.
async fn wait_for_threads(waits: Vec<oneshot::Receiver<()>>) -> Result<(), ControlError> {
    for wait in waits {
        wait.await.map_err(|_| ControlError::Ending)?;
    }
    Ok(())
}

/// The disk that has the paths, unless it is this one.
fn owner(subsystem: &Subsystem, disk: &Disk) -> Option<String> {
    (disk.id != DiskId(0)).then(|| subsystem.name().into())
}

/// A path as seen by the disks that share it.
fn sharers(subsystem: &Subsystem, status: &PathStatus) -> Vec<PathSharer> {
    let sharer = |disk: &Disk| {
        let namespace = status.namespace(disk.id);
        PathSharer {
            disk: disk.name().into(),
            ana_state: namespace.and_then(NamespaceStatus::reported_ana),
            unusable: status.unusable(disk.id, &disk.shared.usable),
        }
    };
    subsystem.disks.iter().skip(1).map(sharer).collect()
}

/// An I/O thread as the API shows it.
fn describe_thread(thread: &IoThreadControl, host: &HostStats) -> types::IoThread {
    let times = thread.processor_times();
    let ms = |time: Duration| time.as_millis();
    types::IoThread {
        thread: thread.number(),
        polled_ms: ms(thread.polled()),
        ran_ms: times.map(|times| ms(times.ran)),
        processor_wait_ms: times.map(|times| ms(times.waited)),
        stalls: host.stalls,
        stalled_ms: ms(host.stalled),
        lateness: TimeHistogram::from(&host.lateness),
    }
}

/// A disk as the API shows it.
fn describe(
    service: &Service,
    disk: &Disk,
    disk_state: DiskState,
    stats: Option<&GroupStats>,
    hosts: &[HostStats],
) -> types::Disk {
    let subsystem = &service.subsystem;
    let owner = owner(subsystem, disk);
    let flows = || stats.into_iter().flat_map(|stats| stats.scheduler.flows_of(disk.id));
    let outstanding = flows().map(|flow| flow.queued + flow.outstanding).sum();
    let (health, path_counts) = service.check_health(disk, outstanding, disk_state == DiskState::Removing);
    let (live, changed) = {
        let state = subsystem.state();
        (*state.live(disk.id), state.changed(disk.id).clone())
    };
    let backing = disk.backing();
    // The disk that has the paths shows the counts of all disks over them.
    let counted = stats.filter(|_| owner.is_none());
    let moved =
        |class| counted.map_or_else(MovedRequests::default, |stats| MovedRequests::of(&stats.failover_times, class));
    let parts = if owner.is_none() { subsystem.threads() } else { &[] };
    let threads = parts.iter().map(IoThreadHandle::thread);
    let io_threads = threads.map(|thread| describe_thread(thread, &hosts[usize::from(thread.number())]));
    let hedging = counted.map_or_else(HedgeCounts::default, |stats| stats.hedging);
    types::Disk {
        name: disk.name().into(),
        socket_path: disk.settings.socket_path.to_string(),
        subsystem: subsystem.config.subsystem.to_string(),
        shares_paths_of: owner,
        namespace: backing.map(|backing| backing.name.nsid),
        state: disk_state,
        health,
        connected: disk.is_connected(),
        front_end: disk.front_end_process(),
        held_ms: disk.inherited_fence().and_then(|fence| {
            let left = fence.until.saturating_duration_since(Instant::now());
            // Rounded up, so that 0 is never shown while requests are held.
            (!left.is_zero()).then(|| left.as_millis() + 1)
        }),
        policy: live.policy,
        scheduler: Some(live.scheduler),
        limits: Some(LimitStatus::new(live.limits, stats.and_then(|stats| stats.scheduler.disk(disk.id)))),
        capacity_bytes: backing.map_or(0, Backing::bytes),
        block_size_bytes: backing.map_or(0, Backing::block_bytes),
        growth: subsystem.growth(disk),
        read_only: disk.settings.read_only,
        queues: disk.settings.queues.get(),
        mpath_window: disk.settings.mpath_window,
        weight: live.weight.get(),
        queued: flows().map(|flow| flow.queued).sum(),
        moved_reads: moved(OpClass::Read),
        moved_writes: moved(OpClass::Write),
        first_moved: counted.map_or_else(MovedRequests::default, |stats| MovedRequests::first(&stats.failover_times)),
        fence_waits: stats
            .and_then(|stats| stats.fence_waits.get(usize::from(disk.id.0)).copied())
            .map_or_else(FenceWaits::default, FenceWaits::from),
        io_threads: io_threads.collect(),
        guest: stats
            .and_then(|stats| stats.guests.get(usize::from(disk.id.0)))
            .map_or_else(GuestFigures::default, GuestFigures::from),
        hedge: HedgeStatus {
            hedge: live.hedge.hedge,
            hedge_budget: live.hedge.budget,
            hedgeable_reads: hedging.reads,
            hedges: hedging.sent,
            hedges_won: hedging.won,
        },
        min_paths: live.min_paths,
        changed,
        path_counts,
    }
}
