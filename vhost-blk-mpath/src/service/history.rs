//! Decides: the daemon keeps this of each minute.
//!
//! The history of all disks, minute by minute.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpath_api::HISTORY_MINUTES_MAX;
use mpath_api::types::{ClassFigures, HistoryMinute, PathMinute, SlowRequest};
use mpath_core::{DiskId, DiskMinute, MinuteStats};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::disk::Disk;
use crate::disk_files::history_file::{HistoryFileError, MINUTE, since_minute};
use crate::events::utc;
use crate::service::disks::Disks;
use crate::subsystem::Subsystem;

/// How long I/O threads and files may take. A longer wait is given up until the next minute.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far a minute may be from that of the host's clock.
const EARLY: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(1);
/// A request without an answer for this time is something that has happened.
const OLD: Duration = Duration::from_secs(1);
/// The most bytes of one disk.
const DISK_BYTES_MAX: u64 = 8 << 20;

/// The history of all disks: files, and the minute that has begun.
pub(crate) struct History {
    disks: Arc<Disks>,
    /// The bound of all files.
    bytes_max: u64,
    /// Held while a minute goes from the I/O threads to the files, so that no client misses it.
    keeping: AsyncMutex<()>,
}

impl History {
    /// The history in files that have this size in all.
    pub(crate) fn new(disks: Arc<Disks>, bytes_max: u64) -> Self {
        Self { disks, bytes_max, keeping: AsyncMutex::default() }
    }

    /// Keeps what happens at each full minute of the host's clock, and when `ends` resolves.
    pub(crate) async fn run(self: Arc<Self>, ends: impl Future<Output = ()>) {
        let mut ends = std::pin::pin!(ends);
        loop {
            let has_ended = tokio::select! {
                () = sleep(MINUTE.saturating_sub(since_minute(SystemTime::now()))) => false,
                () = &mut ends => true,
            };
            self.keep().await;
            if has_ended {
                return;
            }
        }
    }

    /// The minutes of a disk that began in this time, the oldest first, that which has begun included.
    pub(crate) async fn read(
        &self,
        subsystem: &Subsystem,
        disk: DiskId,
        from: SystemTime,
        until: SystemTime,
    ) -> Result<Vec<HistoryMinute>, HistoryFileError> {
        let _kept = self.keeping.lock().await;
        let (from, until) = (utc(from), utc(until));
        let reading = Arc::clone(subsystem.records.history(usize::from(disk.0)));
        let read = {
            let (from, until) = (from.clone(), until.clone());
            spawn_blocking(move || reading.read(&from, &until, HISTORY_MINUTES_MAX))
        };
        let mut minutes = read.await.unwrap_or_else(|failed| Err(io::Error::other(failed).into()))?;
        let present = minute(subsystem, false).await;
        let present = present.map(|stats| describe(subsystem, &stats, began(&stats))).unwrap_or_default();
        let of_disk = present.into_iter().filter(|(of, _)| *of == disk).map(|(_, minute)| minute);
        minutes.extend(of_disk.filter(|minute| from <= minute.began && minute.began <= until));
        minutes.drain(..minutes.len().saturating_sub(HISTORY_MINUTES_MAX));
        Ok(minutes)
    }

    /// Writes what has happened in all subsystems into the files of their disks.
    async fn keep(&self) {
        let _keeping = self.keeping.lock().await;
        let services = self.disks.services();
        let disks: usize = services.iter().map(|service| service.subsystem.disks.len()).sum();
        let largest_bytes = (self.bytes_max / disks.max(1) as u64).min(DISK_BYTES_MAX);
        for service in services {
            let subsystem = &service.subsystem;
            let Some(stats) = minute(subsystem, true).await else { continue };
            for (disk, minute) in describe(subsystem, &stats, round(began(&stats))) {
                let file = Arc::clone(subsystem.records.history(usize::from(disk.0)));
                // A file system that does not answer keeps a thread, and the file's next minutes fail.
                let _ = timeout(PATIENCE, spawn_blocking(move || file.keep(&minute, largest_bytes))).await;
            }
        }
    }
}

/// The minute of each disk in which something happened.
fn describe(subsystem: &Subsystem, stats: &MinuteStats, began: SystemTime) -> Vec<(DiskId, HistoryMinute)> {
    let now = SystemTime::now();
    let host_stalled_ms = stats.stalled.as_millis() as u64;
    let paths: Vec<_> = {
        let state = subsystem.state();
        let of_path = |minute: &mpath_core::PathMinute| {
            let address = state.path(minute.path)?.address.to_string();
            Some(PathMinute { index: minute.path.0, address, io: (&minute.latencies).into() })
        };
        stats.paths.iter().filter_map(of_path).collect()
    };
    let minute = |(disk, of): (&Disk, &DiskMinute)| {
        let slowest = of.slowest.as_ref().map(|slow| {
            let ended = utc(now.checked_sub(slow.ended_at.elapsed()).unwrap_or(now));
            SlowRequest::new(disk.name().into(), ended, slow.io.flow.0 - disk.first_flow.0, slow)
        });
        let guest = ClassFigures::from(&of.latencies);
        let oldest = of.oldest.filter(|age| *age >= OLD);
        let minute = HistoryMinute {
            began: utc(began),
            // A minute may be a little longer or shorter.
            seconds: ((stats.covered.as_millis() + 500) / 1000) as u32,
            guest,
            long_requests: of.long_stages,
            host_stalled_ms,
            oldest_request_ms: oldest.map(|age| age.as_millis() as u64),
            slowest,
            paths: paths.clone(),
        };
        (!guest.is_empty() || host_stalled_ms > 0 || oldest.is_some()).then_some((disk.id, minute))
    };
    subsystem.disks.iter().zip(&stats.disks).filter_map(minute).collect()
}

/// When a minute that ends now has begun.
fn began(stats: &MinuteStats) -> SystemTime {
    SystemTime::now().checked_sub(stats.covered).unwrap_or(UNIX_EPOCH)
}

/// The full minute, if the time is about that: timers are a little late.
fn round(time: SystemTime) -> SystemTime {
    let later = time + EARLY;
    let over = since_minute(later);
    if over < LATE + EARLY { later - over } else { time }
}

/// The minute of a subsystem that has begun, summed over its I/O threads. `None` without threads, and if they end or do not
/// answer.
async fn minute(subsystem: &Subsystem, is_taken: bool) -> Option<MinuteStats> {
    let mut waits = Vec::new();
    for thread in subsystem.threads() {
        let (reply, wait) = oneshot::channel();
        thread.minute(is_taken, Box::new(move |minute| drop(reply.send(minute))));
        waits.push(wait);
    }
    let answers = async {
        let mut total: Option<MinuteStats> = None;
        for wait in waits {
            let minute = wait.await.ok()?;
            match &mut total {
                Some(total) => total.merge(&minute),
                None => total = Some(minute),
            }
        }
        total
    };
    timeout(PATIENCE, answers).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_that_is_about_a_full_one_is_one() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        for (time, rounded) in
            [(120_000, 120_000), (120_900, 120_000), (119_990, 120_000), (119_900, 119_900), (121_500, 121_500)]
        {
            assert_eq!(round(at(time)), at(rounded), "{time}");
        }
    }
}
