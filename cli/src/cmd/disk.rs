//! `mpathctl disk`

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{Disk, FenceWaits, Growth, LaggingPath, MovedRequests, PathCounts, RemovedDisk};
use mpath_config::{DiskConfig, DiskList, Flags, KeyFileError, LoadError, SocketPath, ValueError};

use super::{DiskArg, ms, status};
use crate::Failure;
use crate::output::{Column, Output, Table, note, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List disks
    List(DiskArg),
    /// Show all details of a disk
    Show {
        /// Name of the disk
        disk: String,
    },
    /// Add a disk while the daemon runs
    ///
    /// The command returns when the disk is served. The daemon checks the disk as at its start: a path must lead to the namespace. The
    /// configuration file is not changed, so a restarted daemon does not have the disk.
    Add(Box<AddArgs>),
    /// Remove a disk and the disks that share its paths
    ///
    /// The command returns when the disks are gone. It fails while a front-end is connected, unless --force is given. Sockets are
    /// removed and paths closed in order. Other disks are not affected. The output lists the removed disks. IN DOUBT is how much longer
    /// the controllers may execute writes in doubt, which --force can leave. The configuration file is not changed, so a restarted
    /// daemon has the configured disks.
    Remove {
        /// Name of the disk
        disk: String,
        /// Remove even if front-ends are connected: disconnect them, and give their requests in flight ten seconds to complete
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "mpathctl disk add --socket-path <PATH> --subsystem <NQN> {--path <URL>|--discovery <URL>}... [OPTIONS]\n       \
    mpathctl disk add --config <FILE>"
)]
pub(crate) struct AddArgs {
    /// YAML file with `disks:` as in the daemon's configuration, instead of flags; `-` is standard input. The disks are added one after
    /// the other
    #[arg(long, value_name = "FILE", conflicts_with = "DiskConfig")]
    config: Option<PathBuf>,

    #[command(flatten)]
    flags: Flags<DiskConfig>,
}

impl AddArgs {
    fn disks(&self) -> Result<Vec<DiskConfig>, Failure> {
        let Some(file) = &self.config else {
            let mut disk = self.flags.disk(None)?;
            make_absolute(&mut disk)?;
            return Ok(vec![disk]);
        };
        let mut list = if file == Path::new("-") {
            DiskList::read("standard input".as_ref(), io::stdin().lock())?
        } else {
            let opened = File::open(file).map_err(|source| LoadError::Read { path: file.clone(), source })?;
            DiskList::read(file, opened)?
        };
        list.disks.iter_mut().try_for_each(make_absolute)?;
        Ok(list.disks)
    }
}

/// Why a relative path cannot be made absolute.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelativePathError {
    /// The current directory is unknown.
    #[error("{setting}: `{path}` is relative, and the current directory is unknown: {source}; give an absolute path")]
    NoDirectory { setting: &'static str, path: String, source: io::Error },
    /// The absolute path is no socket path.
    #[error("socket-path: {0}")]
    Socket(#[from] ValueError),
    /// The absolute path is no path of a key file.
    #[error("{setting}: {source}")]
    KeyFile { setting: &'static str, source: KeyFileError },
}

/// Makes the paths of a disk absolute, relative to the current directory: the daemon has a working directory of its own.
fn make_absolute(disk: &mut DiskConfig) -> Result<(), RelativePathError> {
    let sharers = disk.share_paths_with.iter_mut().map(|sharer| &mut sharer.socket_path);
    for socket in sharers.chain([&mut disk.socket_path]) {
        if let Some(path) = absolute("socket-path", socket.as_path())? {
            let not_utf8 = || SocketPath::refused(&path.display().to_string());
            *socket = path.to_str().ok_or_else(not_utf8)?.parse()?;
        }
    }
    for (setting, file) in disk.key_files_mut() {
        if let Some(path) = absolute(setting, file.as_path())? {
            let parsed = path.to_str().ok_or(KeyFileError::Path).and_then(str::parse);
            *file = parsed.map_err(|source| RelativePathError::KeyFile { setting, source })?;
        }
    }
    Ok(())
}

/// The absolute path of a relative one.
fn absolute(setting: &'static str, path: &Path) -> Result<Option<PathBuf>, RelativePathError> {
    let no_directory = |source| RelativePathError::NoDirectory { setting, path: path.display().to_string(), source };
    path.is_relative().then(|| std::path::absolute(path).map_err(no_directory)).transpose()
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::List(DiskArg { disk }) => {
                Ok(output.print(&client.disks(disk.as_deref())?, |disks| status::table_of(disks))?)
            }
            Self::Show { disk } => Ok(output.print(&client.disks(Some(disk))?, |disks| details(disks))?),
            Self::Add(args) => {
                let mut added = Vec::new();
                let result = args.disks()?.iter().try_for_each(|disk| {
                    added.extend(client.add_disk(disk)?);
                    Ok(())
                });
                // The disks before a refused one have been added.
                if !added.is_empty() || result.is_ok() {
                    output.print(&added, |disks| status::table_of(disks))?;
                }
                result
            }
            Self::Remove { disk, force } => {
                let removed = client.remove_disk(disk, *force)?;
                output.print(&removed, |removed| table_of_removed(removed))?;
                removed.iter().for_each(warn_of_writes_in_doubt);
                Ok(())
            }
        }
    }
}

fn table_of_removed(removed: &[RemovedDisk]) -> Table {
    let columns = [Column::Text("REMOVED"), Column::Number("IN DOUBT(ms)")];
    table(columns, removed.iter().map(|removed| [removed.disk.clone(), or_dash(removed.in_doubt_ms)]))
}

fn warn_of_writes_in_doubt(RemovedDisk { disk, in_doubt_ms }: &RemovedDisk) {
    if let Some(in_doubt_ms) = in_doubt_ms {
        note(format_args!(
            "{disk}: the controllers may execute writes in doubt for another {in_doubt_ms} ms; give the namespace to another daemon only after that; a disk that is added to this daemon with the same socket or namespace waits by itself (held)"
        ));
    }
}

fn details(disks: &[Disk]) -> String {
    disks.iter().map(detail).collect::<Vec<_>>().join("\n")
}

fn front_end(disk: &Disk) -> String {
    let connected = if disk.connected { "connected" } else { "-" };
    disk.front_end.as_ref().map_or(connected.into(), |process| format!("connected, {process}"))
}

fn growth(disk: &Disk) -> String {
    let Some(Growth { capacity_bytes, lagging }) = &disk.growth else { return String::new() };
    let lag = |path: &LaggingPath| format!("path {} ({}) reports {}", path.index, path.address, path.capacity_bytes);
    let lagging: Vec<_> = lagging.iter().map(lag).collect();
    format!("; grows to {capacity_bytes} bytes once all paths report that size: {}", lagging.join(", "))
}

fn detail(disk: &Disk) -> String {
    let mut lines = vec![
        ("disk", disk.name.clone()),
        ("condition", format!("{} since {}", disk.health.condition, disk.health.condition_since)),
        ("state", disk.state.to_string()),
        ("socket-path", disk.socket_path.clone()),
        ("front-end", front_end(disk)),
        ("subsystem", disk.subsystem.clone()),
        ("namespace", or_dash(disk.namespace)),
        ("size", format!("{} bytes, in blocks of {}{}", disk.capacity_bytes, disk.block_size_bytes, growth(disk))),
        ("mode", if disk.read_only { "read-only" } else { "read-write" }.into()),
        ("virtqueues", format!("{} at most", disk.queues)),
        ("mpath-window", if disk.mpath_window { "yes" } else { "no" }.into()),
        ("paths of", disk.shares_paths_of.clone().unwrap_or_else(|| disk.name.clone())),
        ("paths", {
            let PathCounts { total, expected, usable, missing } = disk.path_counts;
            let missing = if missing > 0 { format!(", {missing} missing (min-paths)") } else { String::new() };
            format!("{total}, {expected} of them expected to be usable, {usable} usable{missing}")
        }),
        ("policy", disk.policy.to_string()),
        ("hedge", format!("{}, budget {}", disk.hedge.hedge, disk.hedge.hedge_budget)),
        ("weight", disk.weight.to_string()),
        ("queued", disk.queued.to_string()),
        ("outstanding", disk.health.outstanding.to_string()),
    ];
    if let Some(age_ms) = disk.guest.oldest_request_ms {
        lines.push(("oldest", format!("a request without an answer for {age_ms} ms")));
    }
    for of in disk.guest.guest_io.iter().filter(|of| of.ios > 0) {
        let recent = of.latency_60s.map_or("none in the last minute".into(), |of| {
            let [p50, p99, max] = [of.p50_us, of.p99_us, of.max_us].map(ms);
            format!("in the last minute {p50} ms at the median, {p99} ms at p99, {max} ms at most")
        });
        lines.push(("guest", format!("{}: {}, {recent}", of.operation, of.ios)));
    }
    if let MovedRequests { ios, time: Some(time), .. } = disk.first_moved {
        let times = format!("after {} ms at the median, {} ms at most", ms(time.p50_us), ms(time.max_us));
        lines.push(("failovers", format!("first requests that moved, by failure and I/O thread: {ios}, {times}")));
    }
    if disk.fence_waits.ios > 0 {
        let FenceWaits { ios, total_ms } = disk.fence_waits;
        let seconds = Duration::from_millis(total_ms).as_secs_f64();
        lines.push(("fences", format!("requests that waited: {ios}, {seconds:.1} s in total")));
    }
    if !disk.io_threads.is_empty() {
        let numbers: Vec<_> = disk.io_threads.iter().map(|of| of.thread.to_string()).collect();
        lines.push(("I/O threads", numbers.join(", ")));
    }
    let polled_ms: u64 = disk.io_threads.iter().map(|of| of.polled_ms).sum();
    if polled_ms > 0 {
        let seconds = Duration::from_millis(polled_ms).as_secs_f64();
        lines.push(("polling", format!("{seconds:.1} s of the I/O threads in total")));
    }
    lines.extend(disk.io_threads.iter().filter(|thread| thread.stalls > 0).map(|of| {
        let seconds = Duration::from_millis(of.stalled_ms).as_secs_f64();
        ("host", format!("did not run I/O thread {} for {seconds:.1} s in total, {} times", of.thread, of.stalls))
    }));
    lines.extend(disk.health.guest_errors.iter().map(|of| {
        ("guest errors", format!("{} of {}, reason {}, the last at {}", of.count, of.operation, of.reason, of.last_at))
    }));
    lines.splice(2..2, status::reasons(disk).map(|reason| ("because", reason)));
    if let Some(removing) = status::removing(disk) {
        lines.insert(1, ("REMOVING", removing));
    }
    let lines: Vec<_> = lines.iter().map(|(name, value)| format!("{name:<14}{value}\n")).collect();
    lines.concat()
}
