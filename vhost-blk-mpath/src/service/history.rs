//! Decides: the daemon keeps this of each minute.
//!
//! The history of all disks, minute by minute.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpath_api::HISTORY_MINUTES_MAX;
use mpath_api::types::{ClassFigures, HistoryMinute, PathMinute, SlowRequest};
use mpath_core::{DiskId, DiskMinute, MinuteStats, OLD_REQUEST};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::disk::Disk;
use crate::disk_files::history_file::HistoryFileError;
use crate::events::utc;
use crate::service::Service;
use crate::service::disks::Disks;
use crate::subsystem::Subsystem;

/// The length of a minute. Minutes begin with those of the host's clock.
const MINUTE: Duration = Duration::from_secs(60);
/// How long a client, or the end of the daemon, waits for I/O threads and files.
const PATIENCE: Duration = Duration::from_secs(5);
/// How far a minute may be from that of the host's clock.
const EARLY: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(1);
/// The most bytes of one disk.
const DISK_BYTES_MAX: u64 = 8 << 20;

/// The history of all disks: files, and the minute that has begun.
pub(crate) struct History {
    disks: Arc<Disks>,
    /// The bound of all files.
    bytes_max: u64,
}

impl History {
    /// The history in files that have this size in all.
    pub(crate) fn new(disks: Arc<Disks>, bytes_max: u64) -> Self {
        Self { disks, bytes_max }
    }

    /// Keeps what happens at each full minute of the host's clock, and when `ends` resolves.
    pub(crate) async fn run(self: Arc<Self>, ends: impl Future<Output = ()>) {
        let mut ends = std::pin::pin!(ends);
        loop {
            let has_ended = tokio::select! {
                () = sleep(until_minute(SystemTime::now())) => false,
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
        let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "an I/O thread or the file system does not answer");
        let keeping = Arc::clone(&subsystem.keeping);
        let kept = timeout(PATIENCE, keeping.lock_owned()).await.map_err(silent)?;
        let present = timeout(PATIENCE, minute(subsystem, false)).await.map_err(silent)?;
        let present = present.map(|stats| describe(subsystem, &stats, began(&stats))).unwrap_or_default();
        let (from, until) = (utc(from), utc(until));
        let of_disk = present.into_iter().filter(|(of, _)| *of == disk).map(|(_, minute)| minute);
        let present: Vec<_> = of_disk.filter(|minute| from <= minute.began && minute.began <= until).collect();
        let file = Arc::clone(subsystem.records.history(usize::from(disk.0)));
        let read = spawn_blocking(move || {
            // A read that never ends holds up later ones, which then take no thread.
            let _kept = kept;
            file.read(&from, &until, HISTORY_MINUTES_MAX - present.len()).map(|mut minutes| {
                minutes.extend(present);
                minutes
            })
        });
        timeout(PATIENCE, read).await.map_err(silent)?.unwrap_or_else(|failed| Err(io::Error::other(failed).into()))
    }

    /// Writes what has happened in all subsystems into the files of their disks. Waits for that for a while; what takes longer is
    /// written later.
    async fn keep(&self) {
        let services = self.disks.services();
        let disks: usize = services.iter().map(|service| service.subsystem.disks.len()).sum();
        let largest_bytes = (self.bytes_max / disks.max(1) as u64).min(DISK_BYTES_MAX);
        let all: Vec<_> = services.into_iter().map(|service| tokio::spawn(keep_of(service, largest_bytes))).collect();
        let written = async {
            for one in all {
                // A task that panicked has ended as well.
                let _ = one.await;
            }
        };
        let _ = timeout(PATIENCE, written).await;
    }
}

/// Writes what has happened in a subsystem. An I/O thread that stands still, or a file system that does not answer, delays this and
/// no other subsystem. The next minute of the subsystem is longer then.
async fn keep_of(service: Arc<Service>, largest_bytes: u64) {
    let subsystem = &service.subsystem;
    let Ok(_kept) = timeout(PATIENCE, subsystem.keeping.lock()).await else { return };
    let Some(stats) = minute(subsystem, true).await else { return };
    for (disk, minute) in describe(subsystem, &stats, round(began(&stats))) {
        let file = Arc::clone(subsystem.records.history(usize::from(disk.0)));
        // A panic was reported already.
        let _ = spawn_blocking(move || file.keep(&minute, largest_bytes)).await;
    }
}

/// The minute of each disk in which something happened.
fn describe(subsystem: &Subsystem, stats: &MinuteStats, began: SystemTime) -> Vec<(DiskId, HistoryMinute)> {
    let now = SystemTime::now();
    let host_stalled_ms = stats.stalled.as_millis();
    let us = |slow: &mpath_core::SlowRequest| slow.total.as_micros();
    let slowest_us = stats.disks.iter().filter_map(|of| of.slowest.as_ref().map(us)).max().unwrap_or(u64::MAX);
    // A flush ends after the answer of its last path, maybe in the next minute.
    let bounded = |io: ClassFigures| ClassFigures { other: io.other, ..io.at_most(slowest_us) };
    let paths: Vec<_> = {
        let state = subsystem.state();
        let of_path = |minute: &mpath_core::PathMinute| {
            let address = state.path(minute.path)?.address.to_string();
            Some(PathMinute { index: minute.path.0, address, io: bounded((&minute.latencies).into()) })
        };
        stats.paths.iter().filter_map(of_path).collect()
    };
    let minute = |(disk, of): (&Disk, &DiskMinute)| {
        let slowest = of.slowest.as_ref().map(|slow| {
            let ended = utc(now.checked_sub(slow.ended_at.elapsed().into()).unwrap_or(now));
            SlowRequest::new(disk.name().into(), ended, slow.io.flow.0 - disk.first_flow.0, slow)
        });
        let guest = ClassFigures::from(&of.latencies).at_most(of.slowest.as_ref().map_or(u64::MAX, us));
        let oldest = of.oldest.filter(|age| *age >= OLD_REQUEST);
        let minute = HistoryMinute {
            began: utc(began),
            // A minute may be a little longer or shorter.
            seconds: ((stats.covered.as_millis() + 500) / 1000) as u32,
            guest,
            long_requests: of.long_stages,
            host_stalled_ms,
            oldest_request_ms: oldest.map(monotonic::Duration::as_millis),
            slowest,
            paths: paths.clone(),
        };
        (!guest.is_empty() || host_stalled_ms > 0 || oldest.is_some()).then_some((disk.id, minute))
    };
    subsystem.disks.iter().zip(&stats.disks).filter_map(minute).collect()
}

/// When a minute that ends now has begun.
fn began(stats: &MinuteStats) -> SystemTime {
    SystemTime::now().checked_sub(stats.covered.into()).unwrap_or(UNIX_EPOCH)
}

/// The time since the last full minute of the host's clock.
fn since_minute(time: SystemTime) -> Duration {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos((since_epoch.as_nanos() % MINUTE.as_nanos()) as u64)
}

/// The time until the next full minute. The clock may be a little slow when a timer fires: then the next but one is meant.
fn until_minute(now: SystemTime) -> Duration {
    let left = MINUTE.saturating_sub(since_minute(now));
    if left < LATE { left + MINUTE } else { left }
}

/// The full minute, if the time is about that: timers are a little late.
fn round(time: SystemTime) -> SystemTime {
    let later = time + EARLY;
    let over = since_minute(later);
    if over < LATE + EARLY { later - over } else { time }
}

/// The minute of a subsystem that has begun, summed over its I/O threads. `None` without threads, and if they end.
async fn minute(subsystem: &Subsystem, is_taken: bool) -> Option<MinuteStats> {
    let mut waits = Vec::new();
    for thread in subsystem.threads() {
        let (reply, wait) = oneshot::channel();
        thread.minute(is_taken, Box::new(move |minute| drop(reply.send(minute))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_a_little_slow_makes_no_short_minute() {
        let left = |ms| until_minute(UNIX_EPOCH + Duration::from_millis(ms)).as_millis();
        assert_eq!([0, 1, 30_000, 59_000, 59_970].map(left), [60_000, 59_999, 30_000, 1_000, 60_030]);
    }

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
