//! `mpathctl path`

use std::fmt::Write;

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{OpStats, Path};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List paths: state, share of the I/Os, counters and latencies since the daemon started
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
        Column::Text("ANA"),
        Column::Number("SHARE(%)"),
        Column::Number("IOS"),
        Column::Number("BUSY"),
        Column::Number("ERRS"),
        Column::Number("RP50(us)"),
        Column::Number("RP99"),
        Column::Number("WP50(us)"),
        Column::Number("WP99"),
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

fn row(path: &Path) -> [String; 14] {
    let p50 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p50_us));
    let p99 = |stats: &OpStats| or_dash(stats.latency.map(|latency| latency.p99_us));
    [
        path.disk.clone(),
        path.index.to_string(),
        path.address.to_string(),
        path.state.to_string(),
        or_dash(path.ana_state),
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
