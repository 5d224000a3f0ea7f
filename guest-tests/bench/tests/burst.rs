//! `burst` from the command line to the files: a tiny run of one table.

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

mod programs;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const DOCUMENT: &str =
    "# Title\n<!-- burst: begin (written by `make bench-burst`) -->\nold\n<!-- burst: end -->\nrest\n";

fn burst(docs: &Path, arguments: &str) -> Output {
    programs::run(env!("CARGO_BIN_EXE_burst"), docs, arguments)
}

#[test]
fn a_tiny_run_writes_one_table() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("scheduler.md"), DOCUMENT).unwrap();
    let output = burst(docs.path(), "--only n --schedulers burst-credit --rounds 1 --seconds 0.2");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("6 rows × 1 schedulers × 1 rounds"), "{progress}");
    assert_eq!(progress.matches("K=0 ").count(), 6, "{progress}");

    let json = fs::read_to_string(docs.path().join("results/burst.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let floors = json["floors"].as_array().unwrap();
    // Only what holds on a machine however busy: bounds from one side. How many times the floor a burst takes is
    // for the benchmark to say, and for `burst-sim` to test.
    let p50 = |cell: &Value| cell["p50_ms"]["median"].as_f64().unwrap();
    for (row, floor) in json["rows"].as_array().unwrap().iter().zip(floors) {
        assert_eq!(row["count"], floor["count"]);
        // 13 at a time, 10 ms each.
        let fastest = 10.0 * (row["count"].as_f64().unwrap() / 13.0).ceil();
        assert!(p50(&floor["cell"]) >= fastest, "{floor}");
        for cell in row["cells"].as_array().unwrap() {
            assert!(cell["bursts"].as_u64() > Some(0) && p50(cell) >= fastest, "{row}");
            // No more than the slots allow, up to what was under way when the clock started.
            let iops = cell["iops"]["median"].as_f64().unwrap();
            assert!(iops > 0.0 && iops < 1300.0 + 13.0 / 0.2, "{row}");
            // Busy flows there were: without them nothing was measured.
            assert!(cell["busy_iops"]["median"].as_f64().unwrap() > 0.0, "{row}");
        }
    }

    assert!(fs::read_to_string(docs.path().join("results/burst.svg")).unwrap().contains("Bursts of N"));
    let document = fs::read_to_string(docs.path().join("scheduler.md")).unwrap();
    assert!(document.contains("\nrest\n") && !document.contains("\nold\n"), "{document}");
    assert!(document.contains("| N | published | floor | limit | burst-credit |"), "{document}");
}

#[test]
fn what_cannot_be_published_is_not_measured() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("scheduler.md"), "# Title\n").unwrap();
    let output = burst(docs.path(), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("burst: begin"), "{output:?}");
}
