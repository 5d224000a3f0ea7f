//! Decides: the limit of open files suffices.
//!
//! The limit of open files (`RLIMIT_NOFILE`) and what the daemon needs under it.
//!
//! The daemon raises its soft limit to the hard limit when it starts, and refuses to start if its disks may need more. A
//! daemon without a free descriptor could neither reconnect a path nor accept a front-end. The raised limit leaves room
//! for disks and paths that are added later. Those are refused if they may need more.

use std::io;

use mpath_config::{Config, DiskConfig, MAX_PATHS, QueueCount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The daemon itself: stdio, the runtime, the API with 64 clients, MPTCP's netlink sockets, files that are open for a
/// moment, and the originals of activation sockets. About 40 are a reserve.
const DAEMON: u64 = 128;
/// The API socket that only reads: twice, and 64 clients.
const READ_ONLY_API: u64 = 66;
/// The listener of `metrics-address`, and 16 clients.
const METRICS: u64 = 17;
/// A disk without its virtqueues: its socket twice, and its lock. Its front-end adds a connection four
/// times, alarm, channel, and both logs. 16 are for guest memory: eight regions, which may be replaced by eight others.
const DISK: u64 = 26;
/// A virtqueue: the kick, call and error descriptors.
const VIRTQUEUE: u64 = 3;
/// An I/O thread: its ring, its wake-up, its processor time, and the count of runnable threads.
const IO_THREAD: u64 = 4;
/// A connection of a path, and an earlier one that still closes, which is open twice while it drains. A path has one to each I/O
/// thread and one for the admin queue.
const CONNECTION: u64 = 3;

/// The limit of open files is too low.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenFilesError {
    #[error(
        "the disks may need {needed} open files, and the hard limit of open files is {limit}; raise it (in the systemd unit: LimitNOFILE={needed}, in \
         a shell: ulimit -n {needed}), or lower `queues` or `io-threads`"
    )]
    TooLow { needed: u64, limit: u64 },
    #[error(
        "the limit of open files cannot be raised to {limit}: {source}; raise it before the daemon starts (ulimit -n {limit})"
    )]
    NotRaised { limit: u64, source: io::Error },
}

/// The number of open files that the daemon may need with these parts: [`of_listeners`], [`of_io_threads`], and [`of_disks`] for each
/// set of paths.
pub(crate) fn needed(parts: impl Iterator<Item = u64>) -> u64 {
    DAEMON + parts.sum::<u64>()
}

/// The number of open files that the optional listeners of the daemon may need.
pub(crate) fn of_listeners(config: &Config) -> u64 {
    let read_only = config.api_read_only.as_ref().map_or(0, |_| READ_ONLY_API);
    read_only + config.metrics_address.map_or(0, |_| METRICS)
}

/// The number of open files that the disks over one set of paths may need.
pub(crate) fn of_disks(config: &DiskConfig, paths: usize, io_threads: u16) -> u64 {
    let disk = |queues: QueueCount| DISK + VIRTQUEUE * u64::from(queues.get());
    let disks = disk(config.queues) + config.share_paths_with.iter().map(|sharer| disk(sharer.queues)).sum::<u64>();
    // Discovery may add paths at any time.
    let paths = if config.discovery.is_empty() { paths } else { MAX_PATHS } as u64;
    let discovery = CONNECTION * config.discovery.len() as u64;
    disks + paths * of_path(io_threads) + discovery
}

/// The number of open files that the I/O threads of the daemon may need.
pub(crate) fn of_io_threads(count: u16) -> u64 {
    IO_THREAD * u64::from(count)
}

/// The number of open files that one path may need.
pub(crate) fn of_path(io_threads: u16) -> u64 {
    CONNECTION * (u64::from(io_threads) + 1)
}

/// Raises the soft limit to the hard limit. Fails if that is less than `needed`.
pub(crate) fn raise_limit(needed: u64) -> Result<(), OpenFilesError> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Some(limit) = maximum.filter(|limit| *limit < needed) {
        return Err(OpenFilesError::TooLow { needed, limit });
    }
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
            .map_err(|errno| OpenFilesError::NotRaised { limit: maximum.unwrap_or(u64::MAX), source: errno.into() })?;
    }
    Ok(())
}

/// Checks that the limit allows `needed` open files.
pub(crate) fn check(needed: u64) -> Result<(), OpenFilesError> {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(OpenFilesError::TooLow { needed, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry;

    #[test]
    fn every_disk_path_thread_and_listener_counts() {
        let mut config = geometry::tests::config();
        let least = of_disks(&config, 1, 1);
        assert_eq!(least, 26 + 3 * 64 + 6);
        assert_eq!(of_disks(&config, 2, 1), least + of_path(1));
        assert_eq!(of_disks(&config, 1, 2), least + 3);
        assert_eq!(of_io_threads(3), 3 * 4);
        assert_eq!(needed([least, least].into_iter()), 128 + 2 * least);
        config.discovery = vec!["tcp://127.0.0.1".parse().unwrap()];
        assert_eq!(of_disks(&config, 1, 1), least + 63 * 6 + 3);
        let mut daemon = Config::new(Vec::new());
        assert_eq!(of_listeners(&daemon), 0);
        daemon.api_read_only = Some("/run/r".parse().unwrap());
        daemon.metrics_address = Some("127.0.0.1:9464".parse().unwrap());
        assert_eq!(of_listeners(&daemon), 66 + 17);
    }
}
