//! `burst` from the command line to the files: a tiny run of one table, and the results of a script in place of guests.

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

mod programs;
mod script;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;

const DOCUMENT: &str =
    "# Title\n<!-- burst: begin (written by `make bench-burst`) -->\nold\n<!-- burst: end -->\nrest\n";

fn burst(docs: &Path, arguments: &str) -> Output {
    programs::run(env!("CARGO_BIN_EXE_burst"), docs, arguments)
}

/// The rows of a stored file.
fn rows(docs: &Path, name: &str) -> Vec<Value> {
    let json = fs::read_to_string(docs.join(format!("results/{name}.json"))).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    json["rows"].as_array().unwrap().clone()
}

#[test]
fn a_tiny_run_writes_one_table() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("scheduler-results.md"), DOCUMENT).unwrap();
    let output = burst(docs.path(), "--only n --schedulers burst-credit --rounds 1 --seconds 0.2");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("12 rows, 1 rounds"), "{progress}");
    // Once, or twice where the machine stood still.
    let floors: BTreeSet<&str> =
        progress.lines().filter_map(|line| line.split_once(", K=0 ")).map(|(row, _)| row).collect();
    assert_eq!(floors.len(), 6, "{progress}");

    let rows = rows(docs.path(), "burst");
    assert_eq!(rows.len(), 12);
    // Only bounds from one side are tested, because these hold on a busy machine too. The benchmark measures how many times
    // its floor a burst takes, and `mpath-sim bursts` tests that.
    for row in &rows {
        let count: f64 = row["name"].as_str().unwrap()[2..].split(',').next().unwrap().parse().unwrap();
        let cell = &row["cells"][0];
        // 13 at a time, 9 ms each at least. Where the machine stood still in the time of all bursts there is no p50.
        let fastest = 9.0 * (count / 13.0).ceil();
        assert!(cell["bursts"].as_f64().unwrap() + cell["set_aside"].as_f64().unwrap() > 0.0, "{row}");
        assert!(cell["p50_ms"].is_null() || cell["p50_ms"].as_f64() >= Some(fastest), "{row}");
        // No more than the slots allow, up to what was under way when the clock started.
        let iops = cell["iops"].as_f64().unwrap();
        assert!(iops > 0.0 && iops < 1300.0 / 0.9 + 13.0 / 0.2, "{row}");
        let is_floor = row["name"].as_str().unwrap().ends_with("K=0");
        assert!(is_floor == cell["busy_iops"].is_null(), "{row}");
    }

    assert!(fs::read_to_string(docs.path().join("results/burst.svg")).unwrap().contains("Bursts of N"));
    let document = fs::read_to_string(docs.path().join("scheduler-results.md")).unwrap();
    assert!(document.contains("\nrest\n") && !document.contains("\nold\n"), "{document}");
    assert!(
        document.contains("| flows | scheduler | p50 ms | p99 ms | bursts | published | IOPS | busy |"),
        "{document}"
    );
    assert!(document.contains("watched (how "), "{document}");
}

#[test]
fn a_tiny_run_has_attackers_and_two_io_threads() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("scheduler-results.md"), DOCUMENT).unwrap();
    let output = burst(docs.path(), "--only a,t --schedulers fifo --rounds 1 --seconds 0.2");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let rows = rows(docs.path(), "burst");
    let find = |table: &str, name: &str| {
        rows.iter().find(|row| row["table"] == table && row["name"] == name).map(|row| &row["cells"][0]).unwrap()
    };
    let attackers = find("rows", "attackers 4 × 32 without a pause, K=16");
    assert!(attackers["attackers_percent"].as_f64() > Some(0.0) && attackers["bursts"].is_null(), "{attackers}");
    // 4 s are measured, and some second of them is the worst one.
    let worst = attackers["worst_second_percent"].as_f64().unwrap();
    assert!(worst > 0.0 && worst < 100.0, "{attackers}");
    let victim = find("rows", "N=2, attackers 4 × 64 without a pause, K=16");
    assert!(victim["bursts"].as_f64().unwrap() + victim["set_aside"].as_f64().unwrap() > 0.0, "{victim}");
    for table in ["1 I/O thread of 12 slots", "2 I/O threads of 6 slots"] {
        // In 400 ms, what was saved up in 100 ms on top. Without the limit it is twice as much.
        let iops = find(table, "K=16, 500 IOPS")["iops"].as_f64().unwrap();
        assert!(iops > 0.0 && iops < 500.0 * 1.25 + 50.0, "{iops}");
    }
    let document = fs::read_to_string(docs.path().join("scheduler-results.md")).unwrap();
    for text in ["attackers 4 × 32 without a pause, K=16:", "2 I/O threads of 6 slots:"] {
        assert!(document.contains(text), "{document}");
    }
    let data = fs::read_to_string(docs.path().join("results/burst.json")).unwrap();
    assert!(data.contains("--window-ios 12"), "{data}");
}

const GUESTS: &str = "<!-- burst-guests: begin (written by `make bench-burst`) -->\nold\n<!-- burst-guests: end -->\n";

/// Stands for `guest-tests/burst/measure`: one round, in which a burst of 32 reads begins after 3.5 s.
const MEASURE: &str = r#"#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
told = dict(zip(words[::2], words[1::2]))
print("told", told["--schedulers"], told["--rounds"], told["--bulk-weights"])
def sample(took, bulk):
    count = int(told["--count"])
    lists = {"ends_ms": [3500 + took] * count, "took_ns": [took * 1000000 - read for read in range(count)]}
    return {"lists": lists, "bulk_iops": bulk}
def cell(name, *sampled):
    return {"contender": name, "samples": [sample(*sampled)]}
cells = [cell("fifo", 230, 1200), cell("burst-credit", 34, 900)]
rows = [("alone", [cell("alone", 30, 1300)]), ("weight 100", cells), ("weight 800", cells)]
print(json.dumps({
    "settings": {"bulk_cpus": "8"}, "commands": ["mpath-target"],
    "rows": [{"name": name, "cells": of_row} for name, of_row in rows],
}))
"#;

#[test]
fn what_guests_measure_is_judged_and_written_beside_the_rest() {
    let docs = tempfile::tempdir().unwrap();
    let measure = docs.path().join("measure");
    script::write(&measure, MEASURE);
    fs::write(docs.path().join("scheduler-results.md"), DOCUMENT.to_owned() + GUESTS).unwrap();
    let options = "--only guests --rounds 1 --schedulers fifo,burst-credit";
    let output = burst(docs.path(), &format!("{options} --measure {}", measure.display()));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("told fifo,burst-credit 1 100,800"), "{output:?}");

    assert_eq!(rows(docs.path(), "burst-guests")[2]["cells"][1]["all_p99_ms"], 34.0);
    assert!(docs.path().join("results/burst-guests.svg").exists());
    let document = fs::read_to_string(docs.path().join("scheduler-results.md")).unwrap();
    assert!(document.contains("|  | burst-credit | 1 | 34.0 (34.0–34.0) | 34.0 (34.0–34.0) |"), "{document}");
    assert_eq!(document.matches("\n* Met in").count(), 3, "{document}");
    // The other section is another part's.
    assert_eq!(document.matches("\nold\n").count(), 1, "{document}");
}

#[test]
fn what_cannot_be_published_is_not_measured() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("scheduler-results.md"), "# Title\n").unwrap();
    let output = burst(docs.path(), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("burst: begin"), "{output:?}");

    // Not after the tables either.
    fs::write(docs.path().join("scheduler-results.md"), DOCUMENT).unwrap();
    let output = burst(docs.path(), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("burst-guests: begin"), "{output:?}");
}
