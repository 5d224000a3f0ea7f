//! `mpathctl path`

use clap::Subcommand;
use mpath_api::client::{Client, ClientError};
use mpath_api::types::{
    ActOnPaths, AddPath, AnaState, InjectionInForce, OpStats, Path, PathAction, PathSelector, PathSharer,
};
use mpath_config::PathAddress;

use super::{DiskArg, OneOrAll, path_show, the_only_disk};
use crate::output::{Code, Column, Output, Text, or_dash, table};
use crate::{Failure, Kind};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List paths: state, share of the I/Os, counters, and latencies of the last minute
    ///
    /// STATE adds the ANA state unless it is optimized, "suspect" if the path owes answers and sends nothing, and "plain TCP" if MPTCP
    /// fell back. 1S, 1M and SHARE are the path's share of the disk's I/Os in the last second, in the last minute and since the daemon
    /// started. BUSY counts I/Os in flight, ERRS failed attempts. RD50 to WR99 are the median and the 99th percentile of reads and of
    /// writes in the last minute. `path show` has the latencies of the last second, and those since the daemon started. Paths that
    /// several disks use are listed once, with the I/Os of all of them. -o json has more.
    List(DiskArg),
    /// Show all details of a path: state, controller, limits, counters, latencies, last error
    Show(PathArgs),
    /// Send no new requests to a path; the association stays
    ///
    /// Requests in flight finish. Flushes of writes that the path completed still go there. `path enable` ends draining.
    Drain(DrainArgs),
    /// Drain a path and close its association in order
    ///
    /// The path is closed once nothing is in flight and the guest has flushed the writes that the path completed. With
    /// shared-write-cache it does not wait for the flush. `path show` says what it waits for. `path enable` connects it again.
    Disable(DrainArgs),
    /// Use a drained or disabled path again, for every disk unless --disk is given
    Enable(ChangedPaths),
    /// Drop a path's association as if it was lost, and connect again at once
    ///
    /// Writes in flight wait for the fence. If the path has unflushed writes, the guest's next flush fails, unless the disk has
    /// shared-write-cache.
    Reset(ChangedPaths),
    /// Add a path to a disk
    ///
    /// The daemon connects the path, and tries again until that succeeds. `path list` shows the state. The daemon uses the path once it is
    /// live. If it leads to another namespace, its state becomes `refused`. The configuration file is not changed, so a restarted daemon
    /// does not have the path.
    Add(AddArgs),
    /// Remove a path
    ///
    /// The path is drained and closed as by `path disable`. `path show` says what it waits for. If several paths are selected, each is
    /// tried, and each refusal is printed. The configuration file is not changed, so a restarted daemon has the configured paths.
    Remove(RemoveArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Address of the path, such as `tcp://127.0.0.1:4422`
    address: PathAddress,
    /// Disk of the path [default: the only disk with paths of its own]
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    paths: ChangedPaths,
    /// Remove at once, even if no usable path is left: writes in flight wait for the fence, and unflushed writes fail the guest's next
    /// flush
    #[arg(long)]
    force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PathArgs {
    /// An address (`tcp://127.0.0.1:4421`, or without `tcp://`), an index from `path list`, or `all`
    #[arg(allow_negative_numbers = true)]
    path: PathSelector,
    #[command(flatten)]
    disk: DiskArg,
}

/// Paths of one disk, unless those of all are meant.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangedPaths {
    /// An address (`tcp://127.0.0.1:4421`, or without `tcp://`), an index from `path list`, or `all`
    #[arg(allow_negative_numbers = true)]
    path: PathSelector,
    #[command(flatten)]
    disks: OneOrAll,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    paths: ChangedPaths,
    /// Do so even if no usable path is left: I/O waits until a path is enabled
    #[arg(long)]
    force: bool,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let (paths, action, force) = match self {
            Self::List(DiskArg { disk }) => {
                let paths = client.paths(disk.as_deref())?;
                return Ok(output.print(&paths, |paths| for_people(paths))?);
            }
            Self::Show(PathArgs { path, disk: DiskArg { disk } }) => {
                let paths = client.path(path, disk.as_deref())?;
                let shown = |paths: &Vec<Path>| Text::paragraphs(paths.iter().map(path_show::for_people));
                return Ok(output.print(&paths, shown)?);
            }
            Self::Drain(DrainArgs { paths, force }) => (paths, PathAction::Drain, *force),
            Self::Disable(DrainArgs { paths, force }) => (paths, PathAction::Disable, *force),
            Self::Enable(paths) => (paths, PathAction::Enable, false),
            Self::Reset(paths) => (paths, PathAction::Reset, false),
            Self::Add(AddArgs { address, disk }) => {
                let wanted = AddPath { address: address.clone() };
                let disk = the_only_disk(client, disk.as_ref(), |disk| disk.shares_paths_of.is_none())?;
                let added = client.add_path(&disk, &wanted)?;
                return Ok(output.print(&added, |path| for_people(std::slice::from_ref(path)))?);
            }
            Self::Remove(RemoveArgs { paths: ChangedPaths { path, disks: OneOrAll { disk, all } }, force }) => {
                let selected = client.path(path, disk.as_deref())?;
                if !all && selected.iter().any(|path| path.disk != selected[0].disk) {
                    return Err(Failure::PathsOfSeveralDisks);
                }
                return remove(client, output, disk.as_deref(), &selected, *force);
            }
        };
        let ChangedPaths { path, disks: OneOrAll { disk, all } } = paths;
        let wanted = ActOnPaths { path: path.clone(), disk: disk.clone(), all: *all, action, force };
        let shown = if action == PathAction::Reset { resets } else { for_people };
        Ok(output.print(&client.act_on_paths(&wanted)?, |paths| shown(paths))?)
    }
}

/// The text about paths that are about to be reset. Leaves out their states, which are still those before the reset.
fn resets(paths: &[Path]) -> Text {
    let one = |of: &Path| format!("{} path {} ({}) is being reset\n", of.disk, of.index, of.address);
    (paths.iter().map(one).collect::<String>() + "`mpathctl path list` shows when the paths are live again\n").into()
}

/// Removes paths one after the other, of the disk with this name or of those that have them. If one is refused, the others are
/// still tried.
fn remove(
    client: &Client,
    output: &mut Output,
    named: Option<&str>,
    selected: &[Path],
    force: bool,
) -> Result<(), Failure> {
    let (mut left, mut refused) = (Vec::new(), false);
    for path in selected {
        let disk = named.unwrap_or(&path.disk);
        match client.remove_path(disk, &PathSelector::Address(path.address.clone()), force) {
            Ok(still_there) => left.extend(still_there),
            Err(ClientError::Refused(error)) if selected.len() > 1 => {
                let message = format!("{} path {} ({}): {}", path.disk, path.index, path.address, error.message);
                output.error(Code::Api(error.code), &message);
                refused = true;
            }
            Err(error) => return Err(error.into()),
        }
    }
    output.print(&left, |paths| for_people(paths))?;
    if refused { Err(Failure::Reported(Kind::Refused)) } else { Ok(()) }
}

fn for_people(paths: &[Path]) -> Text {
    let columns = [
        Column::Text("DISK"),
        Column::Number("#"),
        Column::Address("ADDRESS"),
        Column::State("STATE"),
        Column::Number("1S(%)"),
        Column::SpareNumber("1M(%)"),
        Column::SpareNumber("SHARE(%)"),
        Column::SpareNumber("IOS"),
        Column::LateNumber("BUSY"),
        Column::LateNumber("ERRS"),
        Column::SpareNumber("RD50(us)"),
        Column::LateNumber("RD99(us)"),
        Column::SpareNumber("WR50(us)"),
        Column::LateNumber("WR99(us)"),
        Column::Long("INJECTION"),
    ];
    let text = Text::from(table(columns, paths.iter().map(row)));
    let notes: String = notes(paths).chain(sharing(paths)).map(|note| note + "\n").collect();
    if notes.is_empty() { text } else { text.then("\n".to_owned() + &notes) }
}

/// What can be said of a path: why it is unusable, a fallback, and sharers that cannot use it or see it as not optimized.
fn remarks(path: &Path) -> impl Iterator<Item = String> {
    let unusable = path.unusable.as_ref().map(|reason| format!(": {reason}"));
    let has_remark =
        |of: &&PathSharer| of.unusable.is_some() || of.ana_state.is_some_and(|ana| ana != AnaState::Optimized);
    let sharers = path.sharers.iter().filter(has_remark);
    let fallback =
        (path.fallbacks() > 0).then(|| ": plain TCP, because the target or the network does not support MPTCP".into());
    unusable.into_iter().chain(fallback).chain(sharers.map(|of| format!(" for {}: {}", of.disk, for_sharer(of))))
}

/// Notes on paths. Several paths of a disk share a note.
fn notes(paths: &[Path]) -> impl Iterator<Item = String> {
    let mut notes: Vec<(&str, String, Vec<String>)> = Vec::new();
    for path in paths {
        for remark in remarks(path) {
            let named = format!("{} ({})", path.index, path.address);
            match notes.iter_mut().find(|(disk, other, _)| *disk == path.disk && *other == remark) {
                Some((.., paths)) => paths.push(named),
                None => notes.push((&path.disk, remark, vec![named])),
            }
        }
    }
    notes.into_iter().map(|(disk, remark, paths)| {
        let noun = if paths.len() == 1 { "path" } else { "paths" };
        format!("{disk} {noun} {}{remark}", paths.join(", "))
    })
}

/// Notes on disks that share paths.
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
        .map(|(owner, sharers)| format!("the paths of {owner} are shared by {}", sharers.join(", ")))
        .collect()
}

/// A path as seen by a disk that shares it.
pub(super) fn for_sharer(of: &PathSharer) -> String {
    match (of.ana_state, &of.unusable) {
        (Some(ana), Some(error)) => format!("{ana}: {error}"),
        (None, Some(error)) => error.clone(),
        (ana, None) => or_dash(ana),
    }
}

/// The state with what is wrong: the ANA state, silence, a fallback.
pub(crate) fn state(path: &Path) -> String {
    let ana = path.ana_state.filter(|ana| *ana != AnaState::Optimized);
    let state = ana.map_or(path.state.to_string(), |ana| format!("{}/{ana}", path.state));
    with_notes(state, path)
}

/// The state with silence and fallback, without the ANA state.
pub(super) fn state_without_ana(path: &Path) -> String {
    with_notes(path.state.to_string(), path)
}

fn with_notes(state: String, path: &Path) -> String {
    let state = if path.suspect { state + " (suspect)" } else { state };
    if path.fallbacks() > 0 { state + " (plain TCP)" } else { state }
}

/// The injections in force, or `-`.
pub(crate) fn injected(path: &Path) -> String {
    let one = |InjectionInForce { injection, ends_in_ms, .. }: &InjectionInForce| {
        let class = injection.class.map_or(String::new(), |class| format!("{class}: "));
        let left = ends_in_ms.map_or(String::new(), |ms| format!(" ({} s left)", ms.div_ceil(1000)));
        format!("{class}{injection}{left}")
    };
    let all: Vec<_> = path.injections.iter().map(one).collect();
    if all.is_empty() { "-".into() } else { all.join("; ") }
}

fn row(path: &Path) -> [String; 15] {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let p50 = |stats: &OpStats| or_dash(stats.latency_60s.map(|latency| latency.p50_us));
    let p99 = |stats: &OpStats| or_dash(stats.latency_60s.map(|latency| latency.p99_us));
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
