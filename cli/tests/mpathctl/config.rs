//! `mpathctl config`

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use crate::daemon::mpathctl;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `config check` of standard input. It needs no daemon.
fn check(input: &str, more: &[&str]) -> Output {
    let args = [&["--api", "/nowhere", "config", "check", "-"], more].concat();
    let mut command = mpathctl(&args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

const GOOD: &str = "disks: [{socket-path: /run/a.sock, subsystem: nqn.a, paths: ['tcp://127.0.0.1']}]\n";
const BAD: &str = "api-mode: 7\nwait-for: both\ndisks: []\n";

#[test]
fn a_check_prints_every_error_with_its_place() {
    let good = check(GOOD, &[]);
    assert_eq!((good.status.code(), text(&good.stdout)), (Some(0), "standard input: no errors\n".into()));
    let bad = check(BAD, &[]);
    let lines = "standard input:1:11: api-mode: `7` is no socket mode; give a 0 and three octal digits, such as 0660\n\
                 standard input:2:11: wait-for: `both` is not none, any or all\n\
                 standard input:3:8: disks: 0 given; give 1 to 256\n";
    assert_eq!((bad.status.code(), text(&bad.stdout), text(&bad.stderr)), (Some(2), lines.into(), String::new()));
    let json = check(BAD, &["-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json.status.code(), &report["file"]), (Some(2), &"standard input".into()));
    assert_eq!((&report["errors"][1]["line"], &report["errors"][1]["column"]), (&2.into(), &11.into()));
    assert_eq!(report["errors"][1]["message"], "wait-for: `both` is not none, any or all");
}

#[test]
fn a_check_of_a_file_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let name = file.to_str().unwrap();
    fs::write(&file, BAD).unwrap();
    let output = mpathctl(&["config", "check", name]).output().unwrap();
    assert!(text(&output.stdout).starts_with(&format!("{name}:1:11: api-mode: ")), "{output:?}");
    let output = mpathctl(&["config", "check", "/nonexistent"]).output().unwrap();
    let said = "mpathctl: /nonexistent: No such file or directory (os error 2)\n";
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), said.into()));
}
