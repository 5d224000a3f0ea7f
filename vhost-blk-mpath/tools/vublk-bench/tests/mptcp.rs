//! `mptcp` from the command line to the files, with a script in place of `guest-tests/mptcp/measure`.

// Helpers of tests fail a test by panicking, too.
#![allow(clippy::unwrap_used)]

mod script;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const DOCUMENT: &str =
    "# Title\n<!-- mptcp: begin (written by `make bench-mptcp`) -->\nold\n<!-- mptcp: end -->\nrest\n";

const MEASURE: &str = r#"#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
told = dict(zip(words[::2], words[1::2]))
print("told", told["--only"], told["--rounds"], told["--seconds"])
def cell(method, connections, subflows, mib_s):
    sample = {"connections": connections, "subflows": subflows, "mib_s": mib_s}
    if not method.startswith("raw"):
        sample |= {"p50_ms": 80, "p99_ms": 90, "cpu_seconds": 0.1, "gib": 0.1}
    return {"contender": method, "samples": [sample]}
cells = [cell("mptcp-1", 1, 2, 44.1), cell("raw mptcp-1", 1, 2, 44.8)]
facts = {"links": 2, "payload_mib_s": 45.6}
row = {"table": "a", "name": "2 links: read", "facts": facts, "cells": cells}
times = [step / 10 for step in range(101)]
counted = [round(min(time, 2) * 40e6 + max(time - 2, 0) * 20e6) for time in times]
outage = {
    "lists": {"times_s": times, "bytes": counted}, "lost_at_s": 2, "restored_at_s": 5,
    "errors": 0, "miscompares": 0, "read_back": 1, "ok": 1,
}
lost = {"contender": "mptcp-1 followed", "samples": [outage]}
print(json.dumps({
    "settings": {"io_threads": 1}, "commands": ["mpath-target"],
    "rows": [row, {"table": "d", "name": "cable pulled", "facts": {"links": 2}, "cells": [lost]}],
}))
"#;

fn mptcp(docs: &Path, arguments: &str) -> Output {
    let measure = docs.join("measure");
    script::write(&measure, MEASURE);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mptcp"));
    command.args(arguments.split_whitespace()).arg("--docs").arg(docs).arg("--measure").arg(measure);
    command.output().unwrap()
}

/// The throughput of the first contender of the first row, and its part of what the links carry.
fn of_the_first_row(document: &str) -> [&str; 2] {
    ["MiB/s", "Part of what the links carry"].map(|figure| {
        let table = document.split(&format!("{figure}:\n\n")).nth(1).expect(figure);
        let row = table.lines().find(|line| line.starts_with("| 2 links: read; ")).expect(figure);
        row.split(" | ").nth(1).expect(figure)
    })
}

#[test]
fn what_is_measured_is_judged_and_written() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("mptcp.md"), DOCUMENT).unwrap();
    let output = mptcp(docs.path(), "--only a,d --rounds 1 --seconds 0.5");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("told a,d 1 0.5"), "{output:?}");

    let data = docs.path().join("results/mptcp.json");
    let json = fs::read_to_string(&data).unwrap();
    assert!(json.contains(r#"{"contender":"mptcp-1 followed","all_after_s":null"#), "{json}");
    assert!(fs::read_to_string(docs.path().join("results/mptcp.svg")).unwrap().contains("2 links: read"));
    let document = fs::read_to_string(docs.path().join("mptcp.md")).unwrap();
    assert_eq!(of_the_first_row(&document), ["44.1", "97 %"]);
    // The throughput of the rest at once, that of both never again.
    let (met, missed) = (document.matches("\n* Met in").count(), document.matches("\n* **Missed** in").count());
    assert_eq!((met, missed, document.matches("\n* Not measured").count()), (3, 1, 6), "{document}");
    assert!(document.contains("\nrest\n") && !document.contains("\nold\n"), "{document}");

    // The documents are written again from the stored data, without measuring.
    fs::write(&data, json.replace("44.1", "43.5")).unwrap();
    let output = mptcp(docs.path(), "--render");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let document = fs::read_to_string(docs.path().join("mptcp.md")).unwrap();
    assert_eq!(of_the_first_row(&document), ["43.5", "95 %"]);
}

#[test]
fn what_cannot_be_published_is_not_measured() {
    let docs = tempfile::tempdir().unwrap();
    fs::write(docs.path().join("mptcp.md"), "# Title\n").unwrap();
    let output = mptcp(docs.path(), "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mptcp: begin") && !said.contains("told"), "{said}");
}
