//! Decides: the daemon keeps this of each minute.
//!
//! The history of all disks, minute by minute.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use mpath_api::types::{HistoryMinute, PathMinute, SlowRequest, Stages};
use mpath_core::{DiskId, DiskMinute, MinuteStats};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::disk::Disk;
use crate::disk_files::history_file::{HistoryFile, MINUTE, since_minute};
use crate::events::utc;
use crate::service::disks::Disks;
use crate::subsystem::Subsystem;

/// How long after the end of a minute it is asked for: the I/O threads count minutes by another clock.
const LATER: Duration = Duration::from_millis(500);
/// The most bytes of one disk.
const DISK_BYTES_MAX: u64 = 8 << 20;

/// What was counted until the last minute that was kept.
#[derive(Default)]
struct Counted {
    /// By disk.
    stages: HashMap<String, Stages>,
    /// By subsystem.
    stalled: HashMap<String, Duration>,
}

/// The history of all disks: files, and the minute that has begun.
pub(crate) struct History {
    disks: Arc<Disks>,
    /// The bound of all files.
    bytes_max: u64,
    counted: Mutex<Counted>,
    /// The files that could not be written, so that the log says so once.
    failing: Mutex<HashSet<PathBuf>>,
}

impl History {
    /// The history in files that have this size in all.
    pub(crate) fn new(disks: Arc<Disks>, bytes_max: u64) -> Self {
        Self { disks, bytes_max, counted: Mutex::default(), failing: Mutex::default() }
    }

    /// Keeps each minute of all disks until `ends` resolves. Then keeps the minute that has begun.
    pub(crate) async fn run(self: Arc<Self>, ends: impl Future<Output = ()>) {
        let mut ends = std::pin::pin!(ends);
        loop {
            let now = SystemTime::now();
            let began = now - since_minute(now);
            tokio::select! {
                () = sleep(MINUTE.saturating_sub(since_minute(now)) + LATER) => self.keep(began, 1).await,
                () = &mut ends => {
                    let now = SystemTime::now();
                    return self.keep(now - since_minute(now), 0).await;
                }
            }
        }
    }

    /// The minute of a disk that has begun. `None` if nothing has happened in it.
    pub(crate) async fn present(&self, subsystem: &Subsystem, disk: DiskId) -> Option<HistoryMinute> {
        let now = SystemTime::now();
        let stats = minute(subsystem, 0).await?;
        let minutes = self.counted().describe(subsystem, now - since_minute(now), &stats);
        minutes.into_iter().find(|(of, _)| *of == disk).map(|(_, minute)| minute)
    }

    /// Keeps the minute of `minutes_ago`, which began at this time.
    async fn keep(&self, began: SystemTime, minutes_ago: u64) {
        let services = self.disks.services();
        let disks: usize = services.iter().map(|service| service.subsystem.disks.len()).sum();
        let largest_bytes = (self.bytes_max / disks.max(1) as u64).min(DISK_BYTES_MAX);
        for service in services {
            let subsystem = &service.subsystem;
            let Some(stats) = minute(subsystem, minutes_ago).await else { continue };
            let minutes = {
                let mut counted = self.counted();
                let minutes = counted.describe(subsystem, began, &stats);
                counted.note(subsystem, &stats);
                minutes
            };
            for (disk, minute) in minutes {
                let file = Arc::clone(subsystem.records.history(usize::from(disk.0)));
                self.write(file, minute, largest_bytes).await;
            }
        }
    }

    async fn write(&self, file: Arc<HistoryFile>, minute: HistoryMinute, largest_bytes: u64) {
        let writing = Arc::clone(&file);
        let written = spawn_blocking(move || writing.add(&minute, largest_bytes)).await;
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match written.ok().and_then(Result::err) {
            Some(error) if failing.insert(file.path().into()) => {
                tracing::warn!(file = %file.path().display(), %error, "cannot keep the history of a disk; the next minute is tried again");
            }
            Some(_) => {}
            None => {
                failing.remove(file.path());
            }
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// The minute of each disk with requests or stalls.
    fn describe(&self, subsystem: &Subsystem, began: SystemTime, stats: &MinuteStats) -> Vec<(DiskId, HistoryMinute)> {
        let before = self.stalled.get(subsystem.name()).copied().unwrap_or_default();
        let host_stalled_ms = stats.stalled.saturating_sub(before).as_millis() as u64;
        let paths: Vec<_> = {
            let state = subsystem.state();
            let of_path = |minute: &mpath_core::PathMinute| {
                let address = state.path(minute.path)?.address.to_string();
                Some(PathMinute { index: minute.path.0, address, io: (&minute.latencies).into() })
            };
            stats.paths.iter().filter_map(of_path).collect()
        };
        let minute = |(disk, of): (&Disk, &DiskMinute)| {
            let before = self.stages.get(disk.name()).copied().unwrap_or_default();
            let slowest = of.slowest.as_ref().map(|slow| {
                let ended = utc(SystemTime::now() - slow.ended_at.elapsed());
                SlowRequest::new(disk.name().into(), ended, slow.io.flow.0 - disk.first_flow.0, slow)
            });
            let minute = HistoryMinute {
                began: utc(began),
                guest: (&of.latencies).into(),
                long_requests: of.long_stages.since(before),
                host_stalled_ms,
                slowest,
                paths: paths.clone(),
            };
            (!minute.guest.is_empty() || host_stalled_ms > 0).then_some((disk.id, minute))
        };
        subsystem.disks.iter().zip(&stats.disks).filter_map(minute).collect()
    }

    /// Notes that this is kept.
    fn note(&mut self, subsystem: &Subsystem, stats: &MinuteStats) {
        self.stalled.insert(subsystem.name().into(), stats.stalled);
        let stages = subsystem.disks.iter().zip(&stats.disks).map(|(disk, of)| (disk.name().into(), of.long_stages));
        self.stages.extend(stages);
    }
}

/// The minute of a subsystem, summed over its I/O threads. `None` without threads, and if they end.
async fn minute(subsystem: &Subsystem, minutes_ago: u64) -> Option<MinuteStats> {
    let mut waits = Vec::new();
    for thread in subsystem.threads() {
        let (reply, wait) = oneshot::channel();
        thread.minute(minutes_ago, Box::new(move |minute| drop(reply.send(minute))));
        waits.push(wait);
    }
    let mut total: Option<MinuteStats> = None;
    for wait in waits {
        let minute = wait.await.ok()?;
        match &mut total {
            Some(total) => total.merge(&minute),
            None => total = Some(minute),
        }
    }
    total
}
