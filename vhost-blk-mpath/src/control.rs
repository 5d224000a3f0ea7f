//! The API's view of the daemon: answers from what is known here, statistics from the I/O threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_api::config::{Hedge, HedgeBudget, HedgeSetting, Weight};
use mpath_api::server::{Control, ControlError, PathRef};
use mpath_api::types::{
    self, EventKind, Events, HedgeStatus, Moved, OpStats, Origin, PathAction, PathCounts, PathState, PathWindow,
    SchedulerDetail, SetLimits, Status, WaitsFor,
};
use mpath_api::{PathAddress, PolicyChange, SchedulerChange};
use mpath_core::{GroupStats, HedgeCounts, OpClass, PathId, PathStats};
use reactor::IoThreadHandle;
use tokio::sync::oneshot;

use crate::discovery::Shown;
use crate::disk::Disk;
use crate::events::{EventLog, utc};
use crate::path_status::PathStatus;
use crate::{injection, steering};

pub(crate) struct Daemon {
    pub(crate) disks: Vec<Arc<Disk>>,
    pub(crate) started: Instant,
    pub(crate) events: Arc<EventLog>,
    /// What discovery controllers each disk has.
    pub(crate) discovery: Vec<Arc<Shown>>,
}

impl Daemon {
    fn disk(&self, name: &str) -> Result<&Arc<Disk>, ControlError> {
        let found = self.disks.iter().find(|disk| disk.config.name.as_str() == name);
        found.ok_or_else(|| ControlError::UnknownDisk { disk: name.into() })
    }
}

impl Control for Daemon {
    async fn status(&self) -> Result<Status, ControlError> {
        let mut disks = Vec::with_capacity(self.disks.len());
        for disk in &self.disks {
            let stats = statistics(disk.threads()).await?;
            disks.push(describe(disk, stats.as_ref()));
        }
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            disks,
            discovery: self.discovery.iter().flat_map(|shown| shown.get()).collect(),
        })
    }

    async fn paths(&self) -> Result<Vec<types::Path>, ControlError> {
        let mut paths = Vec::new();
        for disk in &self.disks {
            let stats = statistics(disk.threads()).await?;
            let state = disk.state();
            for status in state.paths() {
                let stats = stats.as_ref().and_then(|stats| stats.path(status.id));
                let class = |class| stats.map_or_else(OpStats::default, |stats| OpStats::of(stats, class));
                paths.push(types::Path {
                    disk: disk.config.name.to_string(),
                    index: status.id.0,
                    address: status.address.clone(),
                    transport: status.address.transport(),
                    origin: status.origin,
                    state: status.shown(),
                    since: utc(status.since),
                    waits_for: waits_for(disk, status, stats),
                    last_error: status.last_error.as_ref().map(|(error, _)| error.clone()),
                    last_error_at: status.last_error.as_ref().map(|(_, at)| utc(*at)),
                    ana_state: status.ana.map(types::AnaState::from),
                    sharers: Vec::new(),
                    cntlid: status.cntlid,
                    controller: status.controller.clone(),
                    window: PathWindow {
                        ios: disk.config.window.ios.get(),
                        bytes: disk.config.window.bytes.get().into(),
                    },
                    resting: stats.is_some_and(|stats| stats.resting),
                    suspect: stats.is_some_and(|stats| stats.suspect),
                    suspicions: stats.map_or(0, |stats| stats.suspicions),
                    recalled: stats.map_or(0, |stats| stats.recalled),
                    probes: stats.map_or(0, |stats| stats.probes),
                    hedges: stats.map_or(0, |stats| stats.hedges),
                    hedges_won: stats.map_or(0, |stats| stats.hedges_won),
                    fenced: stats.map_or(0, |stats| stats.fenced),
                    io_share: 0.0,
                    io_share_1s: 0.0,
                    io_share_60s: 0.0,
                    read: class(OpClass::Read),
                    write: class(OpClass::Write),
                    other: class(OpClass::Other),
                    injections: status.injections.clone(),
                });
            }
        }
        Ok(paths)
    }

    async fn set_policy(&self, disks: &[String], change: &PolicyChange) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for name in disks {
            let disk = self.disk(name)?;
            let mut state = disk.state();
            state.policy.change(change);
            disk.event(None, EventKind::PolicySet, format!("policy set to {}", state.policy));
            for thread in disk.threads() {
                thread.set_policy(state.policy);
                waits.push(barrier(thread));
            }
        }
        settled(waits).await
    }

    async fn set_hedge(
        &self,
        disks: &[String],
        hedge: Option<Hedge>,
        budget: Option<HedgeBudget>,
    ) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for name in disks {
            let disk = self.disk(name)?;
            let mut state = disk.state();
            let HedgeSetting { hedge: before, budget: of } = state.hedge;
            state.hedge = HedgeSetting { hedge: hedge.unwrap_or(before), budget: budget.unwrap_or(of) };
            let HedgeSetting { hedge, budget } = state.hedge;
            disk.event(None, EventKind::HedgeSet, format!("hedge set to {hedge}; budget {budget}"));
            for thread in disk.threads() {
                thread.set_hedging(state.hedge.hedging());
                waits.push(barrier(thread));
            }
        }
        settled(waits).await
    }

    async fn scheduling(&self) -> Result<Vec<SchedulerDetail>, ControlError> {
        let mut details = Vec::with_capacity(self.disks.len());
        for disk in &self.disks {
            let stats = statistics(disk.threads()).await?;
            let stats = stats.as_ref().map(|stats| &stats.scheduler);
            let state = disk.state();
            let name = disk.config.name.to_string();
            details.push(SchedulerDetail::new(name, state.scheduler, state.weight, state.limits, stats));
        }
        Ok(details)
    }

    async fn set_scheduler(&self, disks: &[String], change: &SchedulerChange) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for name in disks {
            let disk = self.disk(name)?;
            let mut state = disk.state();
            state.scheduler.change(change);
            disk.event(None, EventKind::SchedulerSet, format!("scheduler set to {}", state.scheduler));
            for thread in disk.threads() {
                thread.set_scheduler(state.scheduler);
                waits.push(barrier(thread));
            }
        }
        settled(waits).await
    }

    async fn set_limits(&self, disks: &[String], change: &SetLimits) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for name in disks {
            let disk = self.disk(name)?;
            let mut state = disk.state();
            state.limits = change.applied_to(state.limits);
            disk.event(None, EventKind::LimitsSet, format!("limits set to {}", state.limits));
            disk.limits.set(Instant::now(), state.limits.limits());
            // A thread that waits because of the earlier ones looks again when it is woken.
            waits.extend(disk.threads().iter().map(barrier));
        }
        settled(waits).await
    }

    async fn set_weight(&self, disk: &str, weight: Weight) -> Result<(), ControlError> {
        let disk = self.disk(disk)?;
        disk.state().weight = weight;
        disk.event(None, EventKind::WeightSet, format!("weight set to {weight}"));
        Ok(())
    }

    async fn set_injection(&self, paths: &[PathRef], injection: Option<types::Injection>) -> Result<(), ControlError> {
        let mut waits = Vec::new();
        for PathRef { disk: name, index } in paths {
            let disk = self.disk(name)?;
            let mut state = disk.state();
            let unknown = || ControlError::UnknownPath { disk: name.clone(), index: *index };
            let status = state.path_mut(PathId(*index)).ok_or_else(unknown)?;
            // What a path that leaves still holds may have to be let go.
            if injection.is_some() && status.is_removing() {
                return Err(ControlError::Removing { disk: name.clone(), index: *index });
            }
            let (kind, message) = if let Some(injection) = injection {
                injection.put(&mut status.injections);
                let class = injection.class.map_or("all".into(), |class| class.to_string());
                let (direction, seed) = (injection.direction, injection.seed);
                let message = format!("injection set: {injection}; class {class}, direction {direction}, seed {seed}");
                (EventKind::InjectionSet, message)
            } else {
                status.injections.clear();
                (EventKind::InjectionCleared, "injection cleared".into())
            };
            disk.event(Some(status.named()), kind, message);
            if let Some(injection) = &injection {
                injection::set(disk.threads(), PathId(*index), injection);
            }
            for thread in disk.threads() {
                if injection.is_none() {
                    thread.clear_injection(PathId(*index));
                }
                waits.push(barrier(thread));
            }
        }
        settled(waits).await
    }

    async fn steer(&self, paths: &[PathRef], action: PathAction, force: bool) -> Result<(), ControlError> {
        let waits = steering::steer(&self.disks, paths, action, force)?;
        settled(waits).await
    }

    async fn add_path(&self, disk: &str, address: PathAddress) -> Result<PathRef, ControlError> {
        let index = self.disk(disk)?.add_path(address, Origin::Operator)?.0;
        Ok(PathRef { disk: disk.into(), index })
    }

    async fn remove_path(&self, path: &PathRef, force: bool) -> Result<(), ControlError> {
        Ok(self.disk(&path.disk)?.remove_path(PathId(path.index), force).await?)
    }

    async fn events(&self, after: u64, wait: Duration) -> Result<Events, ControlError> {
        self.events.after(after, wait).await
    }
}

/// What a path that drains, or is removed, still waits for.
fn waits_for(disk: &Disk, status: &PathStatus, stats: Option<&PathStats>) -> Vec<WaitsFor> {
    if !matches!(status.shown(), PathState::Draining | PathState::Removing) {
        return Vec::new();
    }
    let in_flight = stats.is_some_and(|stats| stats.classes.iter().any(|class| class.in_flight > 0));
    let flush = disk.may_be_dirty(status.id);
    // One that is connected is not lost, and one that was is gone when its fence is lifted.
    let fence = status.is_removing() && status.cntlid.is_none();
    let reasons = [(in_flight, WaitsFor::InFlight), (flush, WaitsFor::Flush), (fence, WaitsFor::Fence)];
    reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
}

/// Resolves when a thread has carried out all it was told before.
pub(crate) fn barrier(thread: &IoThreadHandle) -> oneshot::Receiver<()> {
    let (reply, wait) = oneshot::channel();
    // Nobody waits any more if the client gave up.
    thread.barrier(Box::new(move || {
        let _ = reply.send(());
    }));
    wait
}

async fn settled(waits: Vec<oneshot::Receiver<()>>) -> Result<(), ControlError> {
    for wait in waits {
        wait.await.map_err(|_| ControlError::Ending)?;
    }
    Ok(())
}

/// The statistics of a disk over all its threads; `None` while it has none.
pub(crate) async fn statistics(threads: &[IoThreadHandle]) -> Result<Option<GroupStats>, ControlError> {
    let mut waits = Vec::with_capacity(threads.len());
    for thread in threads {
        let (reply, wait) = oneshot::channel();
        thread.stats(Box::new(move |stats| drop(reply.send(stats))));
        waits.push(wait);
    }
    let mut total: Option<GroupStats> = None;
    for wait in waits {
        let stats = wait.await.map_err(|_| ControlError::Ending)?;
        match &mut total {
            Some(total) => total.merge(&stats),
            None => total = Some(stats),
        }
    }
    Ok(total)
}

fn describe(disk: &Disk, stats: Option<&GroupStats>) -> types::Disk {
    let state = disk.state();
    let namespace = disk.namespace();
    let moved = |class| stats.map_or_else(Moved::default, |stats| Moved::of(&stats.moves, class));
    let live = state.paths().filter(|path| path.shown() == PathState::Live).count();
    let hedging = stats.map_or_else(HedgeCounts::default, |stats| stats.hedging);
    types::Disk {
        name: disk.config.name.to_string(),
        socket: disk.config.socket_path.to_string(),
        subsystem: disk.config.subsystem.to_string(),
        shares_paths_of: None,
        nsid: namespace.map(|namespace| namespace.nsid),
        connected: disk.is_connected(),
        policy: state.policy,
        capacity_bytes: namespace.map_or(0, |namespace| namespace.blocks * u64::from(namespace.block_bytes)),
        block_size_bytes: namespace.map_or(0, |namespace| namespace.block_bytes),
        read_only: disk.config.read_only,
        queues: disk.config.queues.get(),
        weight: state.weight.get(),
        queued: stats.map_or(0, |stats| stats.queued),
        moved_reads: moved(OpClass::Read),
        moved_writes: moved(OpClass::Write),
        hedge: HedgeStatus {
            hedge: state.hedge.hedge,
            budget: state.hedge.budget,
            reads: hedging.reads,
            sent: hedging.sent,
            won: hedging.won,
        },
        paths: PathCounts { total: state.paths().count() as u32, live: live as u32 },
    }
}
