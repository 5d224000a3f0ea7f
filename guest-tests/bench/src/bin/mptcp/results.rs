//! All samples with their medians and spread: the content of `mptcp.json`.

use crate::line::{Plan, Table};
use crate::links::{Link, payload_mib_s};
use crate::outage::{MeasuredOutage, Outage};
use serde::{Deserialize, Serialize};
use vublk_bench::publish::{Machine, Spread, Target};

/// What `guest-tests/mptcp/measure` gives.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    io_threads: u16,
    commands: Vec<String>,
    rows: Vec<MeasuredRow>,
    outages: Vec<MeasuredOutage>,
}

#[derive(Debug, Deserialize)]
struct MeasuredRow {
    table: Table,
    name: String,
    links: Vec<Link>,
    cells: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct MeasuredCell {
    method: String,
    connections: usize,
    subflows: usize,
    workload: Workload,
    samples: Vec<Sample>,
}

/// What the front-end does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// 128k, 32 at a time; of sockets alone: the target sends.
    Read,
    /// The same the other way.
    Write,
    /// 4k, one at a time.
    Randread,
}

/// A cell in one round. Sockets alone have throughput only.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) mib_s: f64,
    #[serde(flatten)]
    pub(crate) daemon: Option<OfDaemon>,
}

/// What there is to measure where there are requests.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OfDaemon {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Of the daemon, and what was moved in it; both with the warm-up.
    pub(crate) cpu_seconds: f64,
    pub(crate) gib: f64,
}

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    #[serde(flatten)]
    pub(crate) plan: Plan,
    pub(crate) io_threads: u16,
    pub(crate) commands: Vec<String>,
    pub(crate) targets: Vec<Target>,
    pub(crate) rows: Vec<Row>,
    pub(crate) outages: Vec<Outage>,
}

/// All methods on the same links.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) table: Table,
    pub(crate) name: String,
    pub(crate) links: Vec<Link>,
    /// What the links carry in TCP, all together, if nothing is lost.
    pub(crate) payload_mib_s: f64,
    pub(crate) cells: Vec<Cell>,
}

/// One method with one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) method: String,
    /// For I/O.
    pub(crate) connections: usize,
    /// Of each of them; checked.
    pub(crate) subflows: usize,
    pub(crate) workload: Workload,
    pub(crate) mib_s: Spread,
    #[serde(flatten)]
    pub(crate) daemon: Option<OfDaemonSpread>,
    pub(crate) samples: Vec<Sample>,
}

/// [`OfDaemon`] of all rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct OfDaemonSpread {
    pub(crate) p50_ms: Spread,
    pub(crate) p99_ms: Spread,
    /// Of all rounds together, as CPU time comes in ticks of 10 ms.
    pub(crate) cpu_seconds_per_gib: f64,
}

impl Results {
    pub(crate) fn new(machine: Machine, plan: Plan, measured: Measured) -> Self {
        let Measured { io_threads, commands, rows, outages } = measured;
        let rows = rows.into_iter().map(Row::new).collect();
        let outages = outages.into_iter().map(Outage::new).collect();
        Self { machine, plan, io_threads, commands, targets: Vec::new(), rows, outages }
    }

    /// Those of a table.
    pub(crate) fn rows(&self, table: Table) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.table == table)
    }
}

impl Row {
    fn new(measured: MeasuredRow) -> Self {
        let MeasuredRow { table, name, links, cells } = measured;
        let cells = cells.into_iter().map(Cell::new).collect();
        Self { table, name, payload_mib_s: payload_mib_s(&links), links, cells }
    }

    pub(crate) fn cell(&self, method: &str, workload: Workload) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.method == method && cell.workload == workload)
    }

    /// Each once, in their order.
    pub(crate) fn methods(&self) -> Vec<&str> {
        let mut methods: Vec<&str> = self.cells.iter().map(|cell| &*cell.method).collect();
        methods.dedup();
        methods
    }
}

impl Cell {
    fn new(measured: MeasuredCell) -> Self {
        let MeasuredCell { method, connections, subflows, workload, samples } = measured;
        let mib_s = Spread::of(samples.iter().map(|sample| sample.mib_s));
        let of_daemon: Vec<OfDaemon> = samples.iter().filter_map(|sample| sample.daemon).collect();
        let daemon = (!of_daemon.is_empty()).then(|| OfDaemonSpread::new(&of_daemon));
        Self { method, connections, subflows, workload, mib_s, daemon, samples }
    }
}

impl OfDaemonSpread {
    fn new(samples: &[OfDaemon]) -> Self {
        let sum = |of: fn(&OfDaemon) -> f64| samples.iter().map(of).sum::<f64>();
        Self {
            p50_ms: Spread::of(samples.iter().map(|sample| sample.p50_ms)),
            p99_ms: Spread::of(samples.iter().map(|sample| sample.p99_ms)),
            cpu_seconds_per_gib: sum(|sample| sample.cpu_seconds) / sum(|sample| sample.gib).max(f64::MIN_POSITIVE),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::line::tests::plan;
    use serde_json::{Value, json};
    use std::path::Path;

    /// As `measure` writes it: a cell of three rounds, 10 % around `mib_s`.
    pub(crate) fn cell(method: &str, workload: &str, mib_s: f64) -> Value {
        let raw = method.starts_with("raw");
        let sample = |factor: f64| {
            let mut sample = json!({"mib_s": mib_s * factor});
            if !raw {
                let more =
                    json!({"p50_ms": 40.0 / factor, "p99_ms": 80.0 / factor, "cpu_seconds": 0.1, "gib": 0.25 * factor});
                sample.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            }
            sample
        };
        let each = method.contains("-N");
        json!({
            "method": method,
            "connections": if each { 2 } else { 1 },
            "subflows": if method.contains("mptcp") { 2 } else { 1 },
            "workload": workload,
            "samples": [sample(0.9), sample(1.1), sample(1.0)],
        })
    }

    /// A row with reads only.
    pub(crate) fn row(table: &str, rates_mbit: &[f64], reads: &[(&str, f64)]) -> Value {
        let links: Vec<Value> =
            rates_mbit.iter().map(|rate| json!({"rate_mbit": rate, "delay_ms": 0, "loss_percent": 0})).collect();
        let cells: Vec<Value> = reads.iter().map(|(method, mib_s)| cell(method, "read", *mib_s)).collect();
        json!({"table": table, "name": format!("row of {table}"), "links": links, "cells": cells})
    }

    pub(crate) fn results(rows: &[Value], outages: &[Value]) -> Results {
        let measured = json!({"io_threads": 1, "commands": ["mpath-target --x"], "rows": rows, "outages": outages});
        let measured = serde_json::from_value(measured).unwrap();
        Results::new(Machine::look(None::<&Path>), plan(""), measured)
    }

    #[test]
    fn medians_and_spread() {
        let results = results(&[row("a", &[200.0, 200.0], &[("tcp-N bdp", 40.0), ("raw tcp-N", 44.0)])], &[]);
        let row = results.rows(Table::A).next().unwrap();
        assert!((row.payload_mib_s - 45.60).abs() < 0.01, "{}", row.payload_mib_s);
        let bdp = row.cell("tcp-N bdp", Workload::Read).unwrap();
        assert_eq!((bdp.mib_s.median, bdp.mib_s.min, bdp.mib_s.max), (40.0, 36.0, 44.0));
        let daemon = bdp.daemon.unwrap();
        assert_eq!((daemon.p50_ms.median, daemon.p99_ms.median), (40.0, 80.0));
        // 0.3 s of CPU for 0.75 GiB.
        assert!((daemon.cpu_seconds_per_gib - 0.4).abs() < 1e-9, "{daemon:?}");
        let raw = row.cell("raw tcp-N", Workload::Read).unwrap();
        assert!(raw.daemon.is_none() && raw.connections == 2);
        assert!(row.cell("tcp-N bdp", Workload::Write).is_none() && results.rows(Table::B).next().is_none());
        assert_eq!(row.methods(), ["tcp-N bdp", "raw tcp-N"]);
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let results = results(&[row("b", &[200.0, 50.0], &[("mptcp-1", 28.0), ("raw mptcp-1", 28.0)])], &[]);
        let json = serde_json::to_value(results).unwrap();
        assert_eq!(
            (&json["rounds"], &json["seconds"], &json["rows"][0]["table"]),
            (&3.into(), &2.0.into(), &"b".into())
        );
        let cells = &json["rows"][0]["cells"];
        assert_eq!(cells[0]["samples"][2]["p99_ms"], 80.0);
        assert_eq!((&cells[0]["p99_ms"]["median"], cells[1].get("p99_ms")), (&80.0.into(), None));
        assert_eq!(cells[0]["workload"], "read");
    }
}
