//! `mpathctl slow`

use std::time::SystemTime;

use mpath_api::client::Client;
use mpath_api::types::SlowRequest;

use super::ms;
use crate::Failure;
use crate::output::{Column, Output, Table, note, or_dash, table};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Only requests of this disk [default: every disk]
    disk: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    count: usize,
    /// Only requests that ended from this time (UTC) on: `03:12`, `2026-11-25 03:12` or `2m` (ago)
    #[arg(long, value_name = "TIME", value_parser = when::point_now)]
    since: Option<SystemTime>,
    /// Only requests that ended until this time (UTC)
    #[arg(long, value_name = "TIME", value_parser = when::point_now)]
    until: Option<SystemTime>,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        when::check_order(self.since, self.until)?;
        let mut slow = client.slow(self.disk.as_deref())?;
        slow.retain(|of| when::is_within(&of.ended, self.since, self.until));
        slow.truncate(self.count);
        if slow.is_empty() {
            note(
                "none; this is for requests that ended in the last five minutes: `mpathctl history` goes back two days, and `mpathctl explain` has those without an answer",
            );
        }
        Ok(output.print(&slow, |slow| by_time(slow))?)
    }
}

pub(super) fn by_time(slow: &[SlowRequest]) -> Table {
    let columns = [
        Column::Text("ENDED"),
        Column::Text("DISK"),
        Column::Text("OP"),
        Column::SpareNumber("SECTOR"),
        Column::SpareNumber("BYTES"),
        Column::Number("TOTAL(ms)"),
        Column::Long("STAGES(ms)"),
        Column::Text("PATHS"),
        Column::Number("TRIES"),
        Column::Text("RESULT"),
    ];
    table(columns, slow.iter().map(row))
}

fn row(of: &SlowRequest) -> [String; 10] {
    let paths: Vec<_> = of.paths.iter().map(ToString::to_string).collect();
    [
        of.ended.clone(),
        of.disk.clone(),
        of.operation.to_string(),
        or_dash(of.sector),
        of.bytes.to_string(),
        ms(of.total_us),
        stages(of),
        if paths.is_empty() { "-".into() } else { paths.join(",") },
        of.attempts.to_string(),
        of.error.map_or("ok".into(), |error| error.to_string()),
    ]
}

/// The stages that took time, the longest first.
fn stages(of: &SlowRequest) -> String {
    let mut stages = of.stages.named().map(|(name, time)| (name, time.as_micros()));
    stages.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    // A stage with less than a hundredth of the time does not explain it.
    let shown = stages.iter().filter(|(_, us)| *us > 0 && us * 100 >= of.total_us);
    shown.map(|(name, us)| format!("{name} {}", ms(*us))).collect::<Vec<_>>().join(", ")
}
