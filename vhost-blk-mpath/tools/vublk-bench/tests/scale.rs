//! `scale` from the command line to the files: a tiny run of one sweep.

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

mod programs;

use serde_json::Value;
use std::fs;
use std::process::Command;

const DOCUMENT: &str = "# Title\n<!-- scale: begin (written by `make bench-scale`) -->\nold\n<!-- scale: end -->\n";

#[test]
fn a_tiny_run_writes_its_sweep() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("benchmarks.md"), DOCUMENT).unwrap();
    let output = programs::run(env!("CARGO_BIN_EXE_scale"), docs.path(), "--only disks --rounds 1 --time 0.3s");
    assert_eq!(output.status.code(), Some(0), "{output:?}");

    let json: Value = serde_json::from_slice(&fs::read(docs.path().join("results/scale.json")).unwrap()).unwrap();
    let figure = |row: usize, cell: usize, name: &str| json["rows"][row]["cells"][cell][name].as_f64().unwrap();
    // One disk and 64, with their own paths and with shared ones.
    for cell in [0, 1] {
        assert!(figure(0, cell, "iops") > 0.0 && figure(3, cell, "cpu_daemon_us") > 0.0, "{json}");
        let more = figure(3, cell, "threads") - figure(0, cell, "threads");
        // A thread for each front-end, some that open files, and no I/O thread: the daemon has the same for any number of disks.
        assert!((60.0..110.0).contains(&more), "{more}: {json}");
    }
    let document = fs::read_to_string(docs.path().join("benchmarks.md")).unwrap();
    assert!(document.contains("| 64 | own paths |") && !document.contains("\nold\n"), "{document}");
    assert_eq!(document.matches("\n* Not measured").count(), 3, "{document}");
}

#[test]
fn what_cannot_be_measured_or_published_is_said_before() {
    let docs = tempfile::tempdir().unwrap();
    let document = docs.path().join("benchmarks.md");
    let refused = || {
        let script = "ulimit -n 4000 && exec \"$0\" --docs \"$1\" --only idle --rounds 1";
        let mut command = Command::new("sh");
        let output = command.args(["-c", script, env!("CARGO_BIN_EXE_scale")]).arg(docs.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("round 1"), "{said}");
        (output.status.code(), said)
    };
    fs::write(&document, "# Title\n").unwrap();
    let (code, said) = refused();
    assert!(code == Some(1) && said.contains("scale: begin"), "{said}");
    fs::write(&document, DOCUMENT).unwrap();
    let (code, said) = refused();
    assert!(code == Some(3) && said.contains("and the hard limit is 4000; raise it (ulimit -Hn "), "{said}");
}
