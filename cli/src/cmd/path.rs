//! `mpathctl path`

use clap::Subcommand;
use mpath_api::PathAddress;
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{AddPath, AnaState, Injection, OpStats, Path, PathAction, PathSelector, PathSharer, SteerPaths};

use super::{DiskArg, path_show, the_only_disk};
use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List paths: state, share of the I/Os, counters and latencies since the daemon started
    ///
    /// STATE adds the ANA state where it is not optimized, "suspect" where the path owes answers
    /// and has gone silent, and "plain TCP" where MPTCP was wanted and is not had; 1S, 1M and SHARE are its part of the disk's I/Os in the last second, in the last
    /// minute and since the daemon started; BUSY counts
    /// I/Os in flight, ERRS failed attempts; RD50 to WR99 are the median and the 99th percentile of
    /// reads and of writes; INJECTION is what is injected. Paths that several disks
    /// use are listed once, with what all of them do there. More is in -o json.
    List(DiskArg),
    /// Show everything known of a path: state, controller, limits, counters, latencies, last error
    Show(PathArgs),
    /// Give a path no new I/O; what is in flight ends, its association stays
    ///
    /// Flushes it owes still go there. `path enable` ends that.
    Drain(TakeOutArgs),
    /// Drain a path, close its association in order and leave it closed
    ///
    /// It is closed when nothing is in flight and, unless the disk has shared-write-cache, the guest has flushed what the path
    /// completed; `path show` says what it waits for. It is not connected again before `path enable`.
    Disable(TakeOutArgs),
    /// Use a path again that was drained or disabled
    Enable(PathArgs),
    /// Drop a path's association as if it had been lost, and connect again at once
    ///
    /// Writes in flight wait for the fence. If the path completed writes that are not flushed yet, the guest's next flush
    /// fails, unless the disk has shared-write-cache.
    Reset(PathArgs),
    /// Add a path to a disk, also while I/O runs
    ///
    /// It is connected at once, and again until that succeeds; `path list` shows how that goes. It is used if it leads to the
    /// disk's namespace, and refused otherwise. The configuration is not changed: a restarted daemon does not know the path.
    Add(AddArgs),
    /// Remove a path for good, also while I/O runs
    ///
    /// It is drained and closed as by `path disable`; what it is waiting for until it is gone, `path show` says. Of several
    /// each is tried, and each that may not go is told. The configuration is not changed: a restarted daemon has the paths
    /// that are configured.
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Where it leads, such as `tcp://127.0.0.1:4422`
    address: PathAddress,
    /// Its disk; may be left out if there is only one, or only one that has paths of its own
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    path: PathArgs,
    /// At once, and even if no usable path is left: writes in flight wait for the fence, unflushed ones fail the guest's next
    /// flush
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// An address (`tcp://127.0.0.1:4421`, or without `tcp://`), an index of `path list`, or `all`
    #[arg(allow_negative_numbers = true)]
    path: PathSelector,
    #[command(flatten)]
    disk: DiskArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TakeOutArgs {
    #[command(flatten)]
    path: PathArgs,
    /// Even if no usable path is left: I/O then waits until one is enabled
    #[arg(long)]
    force: bool,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let (PathArgs { path, disk }, action, force) = match self {
            Self::List(DiskArg { disk }) => {
                let paths = client.paths(disk.as_deref())?;
                return Ok(output.print(&paths, |paths| for_people(paths))?);
            }
            Self::Show(PathArgs { path, disk: DiskArg { disk } }) => {
                let paths = client.path(path, disk.as_deref())?;
                let shown = |paths: &Vec<Path>| paths.iter().map(path_show::for_people).collect::<Vec<_>>().join("\n");
                return Ok(output.print(&paths, shown)?);
            }
            Self::Drain(TakeOutArgs { path, force }) => (path, PathAction::Drain, *force),
            Self::Disable(TakeOutArgs { path, force }) => (path, PathAction::Disable, *force),
            Self::Enable(path) => (path, PathAction::Enable, false),
            Self::Reset(path) => (path, PathAction::Reset, false),
            Self::Add(AddArgs { address, disk }) => {
                let wanted = AddPath { address: address.clone() };
                let disk = the_only_disk(client, disk.as_ref(), |disk| disk.shares_paths_of.is_none())?;
                let added = client.add_path(&disk, &wanted)?;
                return Ok(output.print(&added, |path| for_people(std::slice::from_ref(path)))?);
            }
            Self::Remove(RemoveArgs { path: PathArgs { path, disk }, force }) => {
                return remove(client, output, &client.path(path, disk.disk.as_deref())?, *force);
            }
        };
        let wanted = SteerPaths { path: path.clone(), disk: disk.disk.clone(), action, force };
        Ok(output.print(&client.steer(&wanted)?, |paths| for_people(paths))?)
    }
}

/// Removes paths one after the other; one that may not go keeps no other from it.
fn remove(client: &Client, output: &mut Output, meant: &[Path], force: bool) -> Result<(), Failure> {
    let (mut left, mut refused) = (Vec::new(), false);
    for path in meant {
        match client.remove_path(&path.disk, &PathSelector::Address(path.address.clone()), force) {
            Ok(still_there) => left.extend(still_there),
            Err(ClientError::Refused(error)) if meant.len() > 1 => {
                eprintln!("mpathctl: {} path {} ({}): {}", path.disk, path.index, path.address, error.message);
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    output.print(&left, |paths| for_people(paths))?;
    if refused { Err(Failure::Told) } else { Ok(()) }
}

fn for_people(paths: &[Path]) -> String {
    let columns = [
        Column::Text("DISK"),
        Column::Number("#"),
        Column::Text("ADDRESS"),
        Column::Text("STATE"),
        Column::Number("1S(%)"),
        Column::Number("1M(%)"),
        Column::Number("SHARE(%)"),
        Column::Number("IOS"),
        Column::Number("BUSY"),
        Column::Number("ERRS"),
        Column::Number("RD50(us)"),
        Column::Number("RD99(us)"),
        Column::Number("WR50(us)"),
        Column::Number("WR99(us)"),
        Column::Text("INJECTION"),
    ];
    let text = table(columns, paths.iter().map(row));
    let notes: String = paths.iter().flat_map(notes).chain(sharing(paths)).map(|note| note + "\n").collect();
    if notes.is_empty() { text } else { text + "\n" + &notes }
}

/// What went wrong on a path, and what it is to the disks that share it where it is not the best there is.
fn notes(path: &Path) -> impl Iterator<Item = String> {
    let named = format!("{} path {} ({})", path.disk, path.index, path.address);
    let error = path.last_error.as_ref().map(|error| format!("{named}: {error}"));
    let worth_a_note =
        |of: &&PathSharer| of.error.is_some() || of.ana_state.is_some_and(|ana| ana != AnaState::Optimized);
    let sharers = path.sharers.iter().filter(worth_a_note);
    let fallback = (path.fallbacks() > 0)
        .then(|| format!("{named}: plain TCP, as the target or something on the way to it has no MPTCP"));
    error
        .into_iter()
        .chain(fallback)
        .chain(sharers.map(move |of| format!("{named} for {}: {}", of.disk, for_sharer(of))))
}

/// Which disks use the paths besides those that have them.
fn sharing(paths: &[Path]) -> Vec<String> {
    let mut owners: Vec<(&str, Vec<&str>)> = Vec::new();
    for path in paths {
        let sharers = path.sharers.iter().map(|of| &*of.disk).collect::<Vec<_>>();
        if !sharers.is_empty() && owners.last() != Some(&(&path.disk, sharers.clone())) {
            owners.push((&path.disk, sharers));
        }
    }
    owners
        .into_iter()
        .map(|(owner, sharers)| format!("the paths of {owner} are also those of {}", sharers.join(", ")))
        .collect()
}

/// What a path is to a disk that shares it.
pub(super) fn for_sharer(of: &PathSharer) -> String {
    match (of.ana_state, &of.error) {
        (Some(ana), Some(error)) => format!("{ana}: {error}"),
        (None, Some(error)) => error.clone(),
        (ana, None) => or_dash(ana),
    }
}

fn state(path: &Path) -> String {
    let state = match path.ana_state {
        None | Some(AnaState::Optimized) => path.state.to_string(),
        Some(ana) => format!("{}/{ana}", path.state),
    };
    let state = if path.suspect { state + " (suspect)" } else { state };
    if path.fallbacks() > 0 { state + " (plain TCP)" } else { state }
}

/// The injections in force, or a dash.
pub(super) fn injected(path: &Path) -> String {
    let one = |injection: &Injection| {
        let class = injection.class.map_or(String::new(), |class| format!("{class}: "));
        format!("{class}{injection}")
    };
    let all: Vec<_> = path.injections.iter().map(one).collect();
    if all.is_empty() { "-".into() } else { all.join("; ") }
}

fn row(path: &Path) -> [String; 15] {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let p50 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p50_us));
    let p99 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p99_us));
    [
        path.disk.clone(),
        path.index.to_string(),
        path.address.to_string(),
        state(path),
        percent(path.io_share_1s),
        percent(path.io_share_60s),
        percent(path.io_share),
        path.ios().to_string(),
        path.in_flight().to_string(),
        path.errors().to_string(),
        p50(&path.read),
        p99(&path.read),
        p50(&path.write),
        p99(&path.write),
        injected(path),
    ]
}
