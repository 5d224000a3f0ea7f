//! `mpathctl path`

use std::fmt::Write;

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{AnaState, OpStats, Path};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List paths: state, share of the I/Os, counters and latencies since the daemon started
    ///
    /// STATE adds the ANA state where it is not optimized, and "suspect" where the path owes answers
    /// and has gone silent; SHARE is of the disk's I/Os; BUSY counts
    /// I/Os in flight, ERRS failed attempts; RD50 to WR99 are the median and the 99th percentile of
    /// reads and of writes; INJ is the latency injected. More is in -o json.
    List(DiskArg),
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let Self::List(DiskArg { disk }) = self;
        let paths = client.paths(disk.as_deref())?;
        Ok(output.print(&paths, |paths| for_people(paths))?)
    }
}

fn for_people(paths: &[Path]) -> String {
    let columns = [
        Column::Text("DISK"),
        Column::Number("#"),
        Column::Text("ADDRESS"),
        Column::Text("STATE"),
        Column::Number("SHARE(%)"),
        Column::Number("IOS"),
        Column::Number("BUSY"),
        Column::Number("ERRS"),
        Column::Number("RD50(us)"),
        Column::Number("RD99(us)"),
        Column::Number("WR50(us)"),
        Column::Number("WR99(us)"),
        Column::Number("INJ(us)"),
    ];
    let mut text = table(columns, paths.iter().map(row));
    for path in paths {
        if let Some(error) = &path.last_error {
            // A failing write to a string is not possible.
            let _ = write!(text, "\n{} path {} ({}): {error}", path.disk, path.index, path.address);
        }
    }
    if text.ends_with('\n') { text } else { text + "\n" }
}

fn state(path: &Path) -> String {
    let state = match path.ana_state {
        None | Some(AnaState::Optimized) => path.state.to_string(),
        Some(ana) => format!("{}/{ana}", path.state),
    };
    if path.suspect { state + " (suspect)" } else { state }
}

fn row(path: &Path) -> [String; 13] {
    let p50 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p50_us));
    let p99 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p99_us));
    [
        path.disk.clone(),
        path.index.to_string(),
        path.address.to_string(),
        state(path),
        format!("{:.1}", path.io_share * 100.0),
        path.ios().to_string(),
        path.in_flight().to_string(),
        path.errors().to_string(),
        p50(&path.read),
        p99(&path.read),
        p50(&path.write),
        p99(&path.write),
        or_dash(path.injection.map(|injection| u64::from(injection.latency_us))),
    ]
}
