//! All samples with their medians and spread: the content of `native.json`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vublk_bench::publish::{Machine, Spread};

/// What `guest-tests/native/measure` gives.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    guest: BTreeMap<String, serde_json::Value>,
    delay_ms: u32,
    tables: Vec<MeasuredTable>,
}

#[derive(Debug, Deserialize)]
struct MeasuredTable {
    name: TableName,
    commands: Vec<String>,
    rows: Vec<MeasuredRow>,
}

#[derive(Debug, Deserialize)]
struct MeasuredRow {
    workload: String,
    place: Place,
    cells: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct MeasuredCell {
    initiator: String,
    policy: String,
    samples: Vec<Sample>,
}

/// A cell in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) iops: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    #[serde(rename = "p99.9_us")]
    pub(crate) p99_9_us: f64,
    /// Of the requests, warm-up included.
    pub(crate) slow_path_percent: f64,
}

/// What makes the slow path slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TableName {
    /// The target; the daemon is on the host.
    TargetDelay,
    /// netem in the guest; the daemon is there too.
    Netem,
}

/// Where the slow path stands, in the order in which the paths were connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    #[serde(rename = "slow first")]
    First,
    #[serde(rename = "slow second")]
    Second,
}

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// What the guest says of itself.
    pub(crate) guest: BTreeMap<String, serde_json::Value>,
    pub(crate) delay_ms: u32,
    pub(crate) rounds: u16,
    pub(crate) seconds: f64,
    pub(crate) warmup_seconds: f64,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: TableName,
    pub(crate) commands: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) place: Place,
    pub(crate) cells: Vec<Cell>,
}

/// A row under a policy of one of the initiators.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) initiator: String,
    pub(crate) policy: String,
    pub(crate) iops: Spread,
    /// The median's part of what the same initiator does with the fast path alone: `numa`, the slow path second.
    pub(crate) percent_of_fast_alone: Option<f64>,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    #[serde(rename = "p99.9_us")]
    pub(crate) p99_9_us: Spread,
    pub(crate) slow_path_percent: Spread,
    pub(crate) samples: Vec<Sample>,
}

impl Results {
    pub(crate) fn new(machine: Machine, rounds: u16, seconds: f64, warmup_seconds: f64, measured: Measured) -> Self {
        let Measured { guest, delay_ms, tables } = measured;
        let tables = tables.into_iter().map(Table::new).collect();
        Self { machine, guest, delay_ms, rounds, seconds, warmup_seconds, tables }
    }

    /// A word of what the guest says of itself.
    pub(crate) fn guest(&self, name: &str) -> &str {
        self.guest.get(name).and_then(|value| value.as_str()).unwrap_or("unknown")
    }
}

impl Table {
    fn new(measured: MeasuredTable) -> Self {
        let MeasuredTable { name, commands, rows } = measured;
        let row = |MeasuredRow { workload, place, cells }| {
            let cells = cells.into_iter().map(Cell::new).collect();
            Row { workload, place, cells }
        };
        let mut table = Self { name, commands, rows: rows.into_iter().map(row).collect() };
        table.compare();
        table
    }

    fn compare(&mut self) {
        let rows = self.rows.iter().filter(|row| row.place == Place::Second);
        let alone = rows.flat_map(|row| {
            let cells = row.cells.iter().filter(|cell| cell.policy == "numa" && cell.iops.median > 0.0);
            cells.map(|cell| ((row.workload.clone(), cell.initiator.clone()), cell.iops.median))
        });
        let alone: BTreeMap<_, _> = alone.collect();
        for row in &mut self.rows {
            for cell in &mut row.cells {
                let alone = alone.get(&(row.workload.clone(), cell.initiator.clone()));
                cell.percent_of_fast_alone = alone.map(|alone| cell.iops.median / alone * 100.0);
            }
        }
    }
}

impl Row {
    /// Both words, for people.
    pub(crate) fn name(&self) -> String {
        let place = match self.place {
            Place::First => "slow first",
            Place::Second => "slow second",
        };
        format!("{}, {place}", self.workload)
    }
}

impl Cell {
    fn new(measured: MeasuredCell) -> Self {
        let MeasuredCell { initiator, policy, samples } = measured;
        let spread = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of));
        Self {
            initiator,
            policy,
            iops: spread(|sample| sample.iops),
            percent_of_fast_alone: None,
            p50_us: spread(|sample| sample.p50_us),
            p99_us: spread(|sample| sample.p99_us),
            p99_9_us: spread(|sample| sample.p99_9_us),
            slow_path_percent: spread(|sample| sample.slow_path_percent),
            samples,
        }
    }

    /// Both words, for people.
    pub(crate) fn contender(&self) -> String {
        format!("{} {}", self.initiator, self.policy)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    /// As `measure` writes it: two rows, two contenders, three rounds. With the slow path second all is four times as fast.
    pub(crate) fn results() -> Results {
        let sample = |iops: f64| {
            format!(
                r#"{{"iops": {iops}, "p50_us": 500.5, "p99_us": 900, "p99.9_us": 1000.0, "slow_path_percent": 50.0}}"#
            )
        };
        let cell = |initiator: &str, policy: &str, scale: f64| {
            let samples = [900.0, 1100.0, 1000.0].map(|iops| sample(iops * scale)).join(", ");
            format!(r#"{{"initiator": "{initiator}", "policy": "{policy}", "samples": [{samples}]}}"#)
        };
        let row = |place: &str, scale: f64| {
            let cells = [cell("Linux", "numa", scale), cell("vhost-blk-mpath", "bdp", 3.0 * scale)].join(", ");
            format!(r#"{{"workload": "4k randread QD1", "place": "{place}", "cells": [{cells}]}}"#)
        };
        let rows = [row("slow first", 1.0), row("slow second", 4.0)].join(", ");
        let table = |name: &str| format!(r#"{{"name": "{name}", "commands": ["fio --name=cell"], "rows": [{rows}]}}"#);
        let guest = r#"{"kernel": "6.1.0", "accel": "tcg", "fio": "fio-3.33", "cpus": "2", "boot_seconds": 5.4}"#;
        let tables = [table("target-delay"), table("netem")].join(", ");
        let measured = format!(r#"{{"guest": {guest}, "delay_ms": 30, "tables": [{tables}]}}"#);
        let measured = serde_json::from_str(&measured).unwrap();
        Results::new(Machine::look(None::<&Path>), 3, 0.6, 0.2, measured)
    }

    #[test]
    fn medians_and_spread() {
        let results = results();
        assert_eq!(
            results.tables.iter().map(|table| table.name).collect::<Vec<_>>(),
            [TableName::TargetDelay, TableName::Netem]
        );
        let cell = &results.tables[1].rows[0].cells[1];
        assert_eq!(cell.contender(), "vhost-blk-mpath bdp");
        assert_eq!((cell.iops.median, cell.iops.min, cell.iops.max), (3000.0, 2700.0, 3300.0));
        assert_eq!(cell.slow_path_percent, Spread { median: 50.0, min: 50.0, max: 50.0 });
        assert_eq!(results.tables[1].rows[0].name(), "4k randread QD1, slow first");
        assert_eq!((results.guest("kernel"), results.guest("colour")), ("6.1.0", "unknown"));
    }

    #[test]
    fn the_fast_path_alone_is_the_initiators_own() {
        let results = results();
        let part = |row: usize, cell: usize| results.tables[0].rows[row].cells[cell].percent_of_fast_alone;
        assert_eq!((part(0, 0), part(1, 0)), (Some(25.0), Some(100.0)));
        // It has no cell with numa here.
        assert_eq!((part(0, 1), part(1, 1)), (None, None));
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let json = serde_json::to_value(results()).unwrap();
        let cell = &json["tables"][0]["rows"][0]["cells"][0];
        assert_eq!((&cell["initiator"], &cell["policy"]), (&"Linux".into(), &"numa".into()));
        assert_eq!(cell["samples"].as_array().map(Vec::len), Some(3));
        assert_eq!((&json["tables"][0]["name"], &json["guest"]["accel"]), (&"target-delay".into(), &"tcg".into()));
        assert_eq!(cell["p99.9_us"]["median"], 1000.0);
    }
}
