//! `mpathctl inject`

use clap::Subcommand;
use mpath_api::client::Client;
use mpath_api::types::{InjectedLatency, InjectedPath, Injection, PathSelector, SetInjection};

use super::DiskArg;
use crate::Failure;
use crate::output::{Column, Output, table};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Impair a path, in place of what impaired it before
    Set {
        /// An address (`tcp://127.0.0.1:4421`, or without `tcp://`), an index of `path list`, or `all`
        #[arg(allow_negative_numbers = true)]
        path: PathSelector,
        /// Time added to each I/O, 1us to 60s; such as 500us, 30ms or 1.5s
        #[arg(long, value_name = "TIME", value_parser = latency)]
        latency: InjectedLatency,
        #[command(flatten)]
        disk: DiskArg,
    },
    /// End the impairment of a path, and show what it was
    Clear {
        /// As for `inject set`
        #[arg(default_value = "all", allow_negative_numbers = true)]
        path: PathSelector,
        #[command(flatten)]
        disk: DiskArg,
    },
    /// List the impaired paths
    List(DiskArg),
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        let paths = match self {
            Self::Set { path, latency, disk: DiskArg { disk } } => client.set_injection(&SetInjection {
                path: path.clone(),
                disk: disk.clone(),
                injection: Injection { latency_us: *latency },
            })?,
            Self::Clear { path, disk: DiskArg { disk } } => client.clear_injections(path, disk.as_deref())?,
            Self::List(DiskArg { disk }) => client.injections(disk.as_deref())?,
        };
        // Cleared latencies must not look as if they were in force.
        let latency = if matches!(self, Self::Clear { .. }) { "WAS(us)" } else { "LATENCY(us)" };
        Ok(output.print(&paths, |paths| for_people(paths, latency))?)
    }
}

fn for_people(paths: &[InjectedPath], latency: &'static str) -> String {
    let columns = [Column::Text("DISK"), Column::Number("#"), Column::Text("ADDRESS"), Column::Number(latency)];
    let row = |path: &InjectedPath| {
        let latency = u64::from(path.injection.latency_us);
        [path.disk.clone(), path.index.to_string(), path.address.to_string(), latency.to_string()]
    };
    table(columns, paths.iter().map(row))
}

fn latency(text: &str) -> Result<InjectedLatency, String> {
    let latency = humantime::parse_duration(text).map_err(|error| format!("{error}; give 1us to 60s, such as 30ms"))?;
    InjectedLatency::try_from(latency).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies() {
        for (text, us) in
            [("30ms", 30_000), ("500us", 500), ("1.5s", 1_500_000), ("1s 1us", 1_000_001), ("1min", 60_000_000)]
        {
            assert_eq!(latency(text).map(u64::from), Ok(us), "{text}");
        }
        for (text, part) in [
            ("30", "unit"),
            ("", "empty"),
            ("ms", "number"),
            ("-1ms", "number"),
            ("30 parsecs", "parsecs"),
            ("0ms", "1us to 60s, not 0ns"),
            ("1ns", "1us to 60s, not 1ns"),
            ("61s", "1us to 60s, not 61s"),
            ("999999999999y", "large"),
        ] {
            let error = latency(text).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
