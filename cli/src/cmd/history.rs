//! `mpathctl history`

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use mpath_api::client::Client;
use mpath_api::types::{ClassFigures, HistoryMinute, MinuteFigures, PathMinute, Stages};

use super::history_picture::picture;
use super::{ms, slow};
use crate::Failure;
use crate::output::{Column, Output, Table, Text, or_dash, table};
use crate::when;

/// What is shown without a time.
const DEFAULT: Duration = Duration::from_secs(3600);
/// Seconds of a minute.
const MINUTE_S: u64 = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// The disk
    disk: String,
    /// One minute in full: that of this time (UTC): `03:12`, `2026-11-25 03:12` or `2h` (ago)
    #[arg(long, value_name = "TIME", value_parser = when::point_now, conflicts_with_all = ["since", "until", "svg"])]
    at: Option<SystemTime>,
    /// Minutes from this time (UTC) on [default: 1h, an hour ago]
    #[arg(long, visible_alias = "from", value_name = "TIME", value_parser = when::point_now)]
    since: Option<SystemTime>,
    /// Minutes until this time (UTC) [default: now]
    #[arg(long, visible_alias = "to", value_name = "TIME", value_parser = when::point_now)]
    until: Option<SystemTime>,
    /// Also write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        if let Some(at) = self.at {
            let from = at.checked_sub(Duration::from_secs(MINUTE_S - 1)).unwrap_or(at);
            let minutes = client.history(&self.disk, from, at)?;
            return Ok(output.print(&minutes, |minutes| in_full(&self.disk, minutes))?);
        }
        let until = self.until.unwrap_or_else(SystemTime::now);
        let from = self.since.unwrap_or_else(|| until.checked_sub(DEFAULT).unwrap_or(until));
        when::check_order(Some(from), Some(until))?;
        let minutes = client.history(&self.disk, from, until)?;
        if let Some(file) = &self.svg {
            fs::write(file, picture(&self.disk, from, until, &minutes))
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        }
        Ok(output.print(&minutes, |minutes| by_minute(&self.disk, minutes))?)
    }
}

fn nothing(disk: &str) -> Text {
    Text::from(&*format!("nothing is known of {disk} in this time: no request ended or waited, or no daemon ran\n"))
}

/// A row for each minute.
fn by_minute(disk: &str, minutes: &[HistoryMinute]) -> Text {
    if minutes.is_empty() {
        return nothing(disk);
    }
    let columns = [
        Column::Text("MINUTE(UTC)"),
        Column::Number("IOPS r/w"),
        Column::Number("P50(ms) r/w"),
        Column::Number("P99(ms) r/w"),
        Column::Number("MAX(ms) r/w"),
        Column::Long("LONG REQUESTS"),
        Column::Number("HOST(ms)"),
        Column::Number("OLDEST(s)"),
        Column::Long("P99(ms) BY PATH"),
    ];
    table(columns, minutes.iter().map(row)).into()
}

fn row(of: &HistoryMinute) -> [String; 9] {
    let both = |value: &dyn Fn(&MinuteFigures) -> String| {
        [of.guest.read, of.guest.write].map(|figures| or_dash(figures.as_ref().map(value))).join("/")
    };
    [
        minute(of),
        both(&|figures| per_second(figures.ios, of.seconds)),
        both(&|of| ms(of.p50_us)),
        both(&|of| ms(of.p99_us)),
        both(&|of| ms(of.max_us)),
        stages_of_all(&of.long_requests),
        of.host_stalled_ms.to_string(),
        or_dash(of.oldest_request_ms.map(|ms| ms / 1000)),
        of.paths.iter().map(|path| format!("{}: {}", path.index, p99(path))).collect::<Vec<_>>().join(", "),
    ]
}

/// Few requests with a decimal.
fn per_second(ios: u64, seconds: u32) -> String {
    let tenths = ios * 10 / u64::from(seconds.max(1));
    if tenths < 100 { format!("{}.{}", tenths / 10, tenths % 10) } else { (tenths / 10).to_string() }
}

/// `2026-11-25 03:12`
fn minute(of: &HistoryMinute) -> String {
    of.began.get(..16).unwrap_or(&of.began).replace('T', " ")
}

/// That of the slower class.
fn p99(path: &PathMinute) -> String {
    or_dash([path.io.read, path.io.write].into_iter().flatten().map(|of| of.p99_us).max().map(ms))
}

/// The share of each stage, the largest first.
fn stages(of: &Stages) -> String {
    let total = of.total().as_micros();
    let mut stages = of.named();
    stages.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    // A stage with less than a hundredth of the time does not explain it.
    let shown = stages.iter().filter(|(_, time)| !time.is_zero() && time.as_micros() * 100 >= total);
    let shown: Vec<_> =
        shown.map(|(name, time)| format!("{name} {} %", (time.as_micros() * 100 + total / 2) / total)).collect();
    if shown.is_empty() { "-".into() } else { shown.join(", ") }
}

/// The same, after the time of all requests.
fn stages_of_all(of: &Stages) -> String {
    let seconds = of.total().as_secs_f64();
    if seconds > 0.0 { format!("{seconds:.1} s: {}", stages(of)) } else { "-".into() }
}

/// Everything that is known of each minute.
fn in_full(disk: &str, minutes: &[HistoryMinute]) -> Text {
    if minutes.is_empty() {
        return nothing(disk);
    }
    Text::paragraphs(minutes.iter().map(|of| {
        let seconds = of.long_requests.total().as_secs_f64();
        let heading = format!("{disk}, {} s from {} UTC\n", of.seconds, minute(of));
        let long = format!("long requests (10 ms and more): {seconds:.1} s in all: {}\n", stages(&of.long_requests));
        let host = format!("the host did not run the I/O threads for {} ms\n", of.host_stalled_ms);
        let oldest = of.oldest_request_ms.map_or(String::new(), |age_ms| {
            format!("at its end a request had had no answer for {:.1} s\n", Duration::from_millis(age_ms).as_secs_f64())
        });
        let text = Text::from(&*heading).then(figures(of)).then(&*(long + &host + &oldest));
        match &of.slowest {
            Some(slowest) => text.then("the slowest request:\n").then(slow::by_time(std::slice::from_ref(slowest))),
            None => text,
        }
    }))
}

fn figures(of: &HistoryMinute) -> Table {
    let columns = [
        Column::Text("WHERE"),
        Column::Text("CLASS"),
        Column::Number("IOS"),
        Column::Number("P50(ms)"),
        Column::Number("P99(ms)"),
        Column::Number("MAX(ms)"),
    ];
    let guest = [("guest".to_owned(), &of.guest)].into_iter();
    let paths = of.paths.iter().map(|path| (format!("path {} {}", path.index, path.address), &path.io));
    let rows = guest.chain(paths).flat_map(|(place, io)| classes(io).map(move |of| (place.clone(), of)));
    let rows = rows.filter_map(|(place, (class, of))| {
        let of = of?;
        Some([place, class.into(), of.ios.to_string(), ms(of.p50_us), ms(of.p99_us), ms(of.max_us)])
    });
    table(columns, rows)
}

fn classes(io: &ClassFigures) -> [(&'static str, Option<MinuteFigures>); 3] {
    [("read", io.read), ("write", io.write), ("other", io.other)]
}
