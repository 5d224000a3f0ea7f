//! `policies` from the command line to the files: a tiny run of one table.

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

mod programs;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;

const DOCUMENT: &str = "# Title\n\
    <!-- policies-a: begin (written by `make bench-policies`) -->\nas it was\n<!-- policies-a: end -->\n\
    <!-- policies-b: begin (written by `make bench-policies`) -->\nold\n<!-- policies-b: end -->\n";

fn policies(docs: &Path, arguments: &str) -> Output {
    programs::run(env!("CARGO_BIN_EXE_policies"), docs, arguments)
}

#[test]
fn a_tiny_run_writes_its_table_and_no_other() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("benchmarks.md"), DOCUMENT).unwrap();
    let output = policies(docs.path(), "--only b --policies numa,round-robin --rounds 1 --seconds 1");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("3 rows × 2 policies × 1 rounds"), "{progress}");
    assert_eq!(progress.matches("round 1/1: ").count(), 6, "{progress}");

    let json = fs::read_to_string(docs.path().join("results/policies-b.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let bound = row["facts"]["bound_iops"].as_f64().unwrap();
        let iops = |policy: usize| row["cells"][policy]["iops"].as_f64().unwrap();
        assert!(bound > 0.0 && iops(0) > 0.0 && iops(1) > 0.0, "{row}");
        // What was in flight when the clock started is part of it, which is much in so short a time; a wrong bound or a rate that is
        // not kept would be off by more.
        assert!(iops(0) < 2.0 * bound && iops(1) < 2.0 * bound, "{row}");
    }
    assert!(fs::read_to_string(docs.path().join("results/policies-b.svg")).unwrap().contains("randrw QD32"));
    assert!(!docs.path().join("results/policies-a.json").exists());

    let document = fs::read_to_string(docs.path().join("benchmarks.md")).unwrap();
    assert!(document.contains("\nas it was\n") && !document.contains("\nold\n"), "{document}");
    assert!(document.contains("| workload; bound in IOPS | numa | round-robin |"), "{document}");
}

#[test]
fn what_cannot_be_published_is_not_measured() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("benchmarks.md"), DOCUMENT).unwrap();
    let output = policies(docs.path(), "--only c");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("policies-c: begin"), "{output:?}");

    let output = policies(docs.path(), "--only b --policies bogus");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such policy; it has numa"), "{output:?}");
    assert_eq!(fs::read_to_string(docs.path().join("benchmarks.md")).unwrap(), DOCUMENT);
}
