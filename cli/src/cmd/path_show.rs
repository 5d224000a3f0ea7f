//! The output of `mpathctl path show` for one path.

use mpath_api::types::{Connection, Controller, Latency, OpStats, Path, Subflow};
use mpath_config::address::Transport;

use super::path::{for_sharer, injected};
use super::policy_show;
use crate::output::{Column, Text, or_dash, table};

/// Two columns of facts, then tables of counters, latencies, estimates and subflows.
pub(super) fn for_people(path: &Path) -> Text {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.into(), value]);
    row("disk", path.disk.clone());
    row("index", path.index.to_string());
    row("address", path.address.to_string());
    row("origin", path.origin.to_string());
    row("state", path.state.to_string());
    row("since", path.since.clone());
    if !path.waits_for.is_empty() {
        let reasons: Vec<_> = path.waits_for.iter().map(ToString::to_string).collect();
        row("waits for", reasons.join(", "));
    }
    row("ANA state", or_dash(path.ana_state));
    for of in &path.sharers {
        row(&format!("ANA state for {}", of.disk), for_sharer(of));
    }
    row("controller (cntlid)", or_dash(path.cntlid));
    let controller = path.controller.as_ref();
    let of = |value: fn(&Controller) -> String| or_dash(controller.map(value));
    if !path.connections.is_empty() {
        row("connections", path.connections.len().to_string());
        if path.transport == Transport::Mptcp {
            row("fallbacks to TCP", path.fallbacks().to_string());
            row("subflows", or_dash(path.established()));
        }
    }
    if let Some(error) = &path.connections_error {
        row("connections unknown", error.clone());
    }
    row("TLS suite", tls_suite(path));
    row("authentication", or_dash(path.authentication.as_ref()));
    row("model", of(|controller| controller.model.clone()));
    row("serial", of(|controller| controller.serial.clone()));
    row("firmware", of(|controller| controller.firmware.clone()));
    row("keep-alive-tmo (ms)", of(|controller| controller.keep_alive_tmo_ms.to_string()));
    row("max transfer (B)", of(|controller| controller.max_transfer_bytes.to_string()));
    row("volatile write cache", of(|controller| if controller.volatile_write_cache { "yes" } else { "no" }.into()));
    row("queue depth", of(|controller| controller.queue_depth.to_string()));
    row("fence (ms)", of(|controller| controller.fence_ms.to_string()));
    row("window (I/Os)", path.window.ios.to_string());
    row("window (B)", path.window.bytes.to_string());
    row("injected", injected(path));
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    row("share, 1 s (%)", percent(path.io_share_1s));
    row("share, 1 min (%)", percent(path.io_share_60s));
    row("share, all (%)", percent(path.io_share));
    row("resting", yes(path.resting));
    row("suspect", yes(path.suspect));
    row("suspicions", path.suspicions.to_string());
    row("recalled", path.recalled.to_string());
    row("probes", path.probes.to_string());
    row("hedges", path.hedges.to_string());
    row("hedges won", path.hedges_won.to_string());
    row("fenced", path.fenced.to_string());
    row("fence left (s)", or_dash(path.fence_left_ms.map(|ms| ms.div_ceil(1000))));
    row("unflushed", yes(path.unflushed));
    row("usable", path.unusable.as_ref().map_or_else(|| "yes".into(), |reason| format!("no: {reason}")));
    row("losses", path.losses.to_string());
    row("losses, 1 h", path.losses_1h.to_string());
    row("reconnects", path.reconnects.to_string());
    row("last error", or_dash(path.last_error.as_ref()));
    row("last error at", or_dash(path.last_error_at.as_ref()));
    let facts = table([Column::Text(""), Column::Text("")], rows).without_headers();
    let classes = path.classes();
    let counters = table(COLUMNS, classes.map(|(name, stats)| class(name, stats)));
    let latencies = table(LATENCIES, classes.iter().flat_map(|(name, stats)| latencies(name, stats)));
    let estimates = table(ESTIMATES, classes.map(|(name, stats)| estimates(name, stats)));
    let mut tables = vec![facts, counters, latencies, estimates];
    if path.subflows().next().is_some() {
        tables.push(table(SUBFLOWS, path.subflows().map(|(connection, of)| subflow(connection, of))));
    }
    Text::paragraphs(tables.into_iter().map(Text::from))
}

/// The suite of a path with an association, or `off` if the association is in clear text.
fn tls_suite(path: &Path) -> String {
    match &path.tls_suite {
        Some(suite) => suite.clone(),
        None => or_dash(path.cntlid.map(|_| "off")),
    }
}

const SUBFLOWS: [Column; 12] = [
    Column::Number("QUEUE"),
    Column::Text("LOCAL"),
    Column::Text("REMOTE"),
    Column::Text("STATE"),
    Column::Number("RTT(us)"),
    Column::Number("CWND"),
    Column::SpareNumber("MSS(B)"),
    Column::SpareNumber("SENT(B)"),
    Column::SpareNumber("RECEIVED(B)"),
    Column::SpareNumber("AGAIN(B)"),
    Column::SpareNumber("AGAIN(SEGS)"),
    Column::Number("LOST"),
];

fn subflow(connection: &Connection, of: &Subflow) -> [String; 12] {
    let mut state = of.state.to_string();
    if connection.fallback {
        state.push_str(" (plain TCP)");
    }
    if of.backup == Some(true) {
        state.push_str(" (backup)");
    }
    [
        connection.queue.to_string(),
        of.local.to_string(),
        of.remote.to_string(),
        state,
        or_dash(of.rtt_us),
        or_dash(of.cwnd_segments),
        or_dash(of.mss_bytes),
        or_dash(of.bytes_sent),
        or_dash(of.bytes_received),
        or_dash(of.bytes_retransmitted),
        or_dash(of.retransmitted_segments),
        or_dash(of.lost_segments),
    ]
}

const COLUMNS: [Column; 6] = [
    Column::Text("CLASS"),
    Column::Number("IOS"),
    Column::Number("BYTES"),
    Column::Number("BUSY"),
    Column::Number("ERRS"),
    Column::Number("RETRIES"),
];

fn class(name: &str, stats: &OpStats) -> [String; 6] {
    let counts = [stats.ios, stats.bytes, stats.in_flight, stats.errors, stats.retries].map(|count| count.to_string());
    let [ios, bytes, busy, errors, retries] = counts;
    [name.into(), ios, bytes, busy, errors, retries]
}

const LATENCIES: [Column; 6] = [
    Column::Text("CLASS"),
    Column::Text("PERIOD"),
    Column::Number("P50(us)"),
    Column::Number("P99(us)"),
    Column::Number("P99.9(us)"),
    Column::Number("MAX(us)"),
];

/// The latencies of the last second, of the last minute and since the start.
fn latencies(name: &str, stats: &OpStats) -> [[String; 6]; 3] {
    let periods = [("1 s", stats.latency_1s), ("1 min", stats.latency_60s), ("all", stats.latency)];
    periods.map(|(period, latency)| {
        let of = |pick: fn(Latency) -> u64| or_dash(latency.map(pick));
        let [p50, p99] = [of(|latency| latency.p50_us), of(|latency| latency.p99_us)];
        [name.into(), period.into(), p50, p99, of(|latency| latency.p999_us), of(|latency| latency.max_us)]
    })
}

const ESTIMATES: [Column; 9] = [
    Column::Text("CLASS"),
    Column::Number("WEIGHT"),
    Column::Number("EST(ms)"),
    Column::Number("WINDOW(KiB)"),
    Column::Number("AGE"),
    Column::Number("IGNORED"),
    Column::Number("CKPTS"),
    Column::Number("CKPT-IOS"),
    Column::Number("CKPT-AVG(ms)"),
];

fn estimates(name: &str, stats: &OpStats) -> [String; 9] {
    let [weight, estimate, window, age, ignored, checkpoints, ios, average] = policy_show::estimate(&stats.estimate);
    [name.into(), weight, estimate, window, age, ignored, checkpoints, ios, average]
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.into()
}
