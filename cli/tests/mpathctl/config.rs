//! `mpathctl config`

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};

use mpath_api::types::{Configuration, FailedChange, Reload};
use mpath_api_server::ControlError;
use mpath_config::{Change, Config, settings_in};
use serde_json::json;
use tempfile::TempDir;

use crate::daemon::{Daemon, mpathctl};
use crate::fake::Fake;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `config check` of standard input.
fn check(input: &str, more: &[&str]) -> Output {
    with_input(&[&["config", "check", "-"], more].concat(), input)
}

/// A command that needs no daemon.
fn with_input(args: &[&str], input: &str) -> Output {
    let args = [&["--api", "/nowhere"], args].concat();
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
    let said = text(&good.stdout);
    assert_eq!(good.status.code(), Some(0));
    assert!(said.starts_with("standard input: no errors\nnot checked: this host: io_uring, sockets, "), "{said}");
    let bad = check(BAD, &[]);
    let lines = "standard input:1:11: api-mode: `7` is no socket mode; give a 0 and three octal digits in quotes, such as '0660'\n\
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
fn an_import_reads_standard_input() {
    let args = ["config", "import", "-", "--subsystem", "nqn.s"];
    let good = with_input(&args, "-t tcp -a 192.0.2.1\n");
    let text_of = text(&good.stdout);
    assert!(
        text_of.starts_with("# Imported from standard input.") && text_of.contains("tcp://192.0.2.1:8009"),
        "{good:?}"
    );
    let bad = with_input(&args, "-t tcp\n");
    let said = "mpathctl: standard input:1: traddr: missing; give --traddr=ADDRESS\n";
    assert_eq!((bad.status.code(), text(&bad.stderr)), (Some(2), said.into()));
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

const FILE: &str = "\
# The host.
disks:
  - name: db   # the database
    socket-path: /run/a.sock
    subsystem: nqn.a
    paths: [tcp://192.0.2.1]
    policy: bdp   # as measured
";

/// A daemon with this file, whose configuration was changed live.
fn changed(change: impl FnOnce(&mut serde_json::Value)) -> (Daemon, TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml").to_str().unwrap().to_owned();
    fs::write(&file, FILE).unwrap();
    let mut effective = serde_json::to_value(Config::parse(FILE).unwrap()).unwrap();
    change(&mut effective["disks"][0]);
    let configuration = Configuration { file: Some(file.clone()), given: settings_in(FILE), effective };
    (Daemon::start_with(Fake { configuration, ..Fake::new() }), dir, file)
}

#[test]
fn the_configuration_is_shown_with_the_origin_of_each_value() {
    let (daemon, _dir, file) = changed(|disk| disk["weight"] = json!(7));
    let shown = daemon.run(&["config", "show"]);
    assert!(shown.starts_with(&format!("# In effect. The daemon was started with {file}.\n")), "{shown}");
    for (value, origin) in [("weight: 7", "changed live"), ("policy: bdp", "c.yaml"), ("queues: 64", "default")] {
        let line = shown.lines().find(|line| line.trim_start().starts_with(value)).unwrap();
        assert!(line.ends_with(&format!("  # {origin}")), "{shown}");
    }
    let json: Configuration = serde_json::from_str(&daemon.run(&["config", "show", "-o", "json"])).unwrap();
    assert_eq!((json.file, &json.effective["disks"][0]["weight"]), (Some(file), &7.into()));
    let (code, stderr) = daemon.fail(&["config", "show", "--disk", "dsik0"]);
    assert!(code == 1 && stderr.contains("did you mean `disk0`?"), "{stderr}");
}

#[test]
fn differences_are_shown_and_exit_with_4() {
    let (daemon, dir, file) = changed(|disk| disk["weight"] = json!(7));
    let (code, stdout, stderr) = daemon.said(&["config", "diff", &file]);
    assert_eq!((code, &*stdout, &*stderr), (4, "disk `db`: weight: 7 becomes 100\n", ""));
    let other = dir.path().join("other.yaml");
    fs::write(&other, FILE.replace("bdp", "bdp\n    weight: 7")).unwrap();
    assert_eq!(daemon.run(&["config", "diff", other.to_str().unwrap()]), "no differences\n");
    fs::write(&other, "disks: 3\nio-threads: 0\n").unwrap();
    let (code, stderr) = daemon.fail(&["config", "diff", other.to_str().unwrap()]);
    assert!(code == 2 && stderr.lines().count() == 2 && stderr.contains("other.yaml:2:13: io-threads"), "{stderr}");
    let (code, stderr) = daemon.fail(&["config", "diff"]);
    assert!(code == 1 && stderr.contains("started with flags"), "the daemon's own file: {stderr}");
}

#[test]
fn a_reload_prints_what_was_done() {
    let added = Change::DiskAdded { disk: "db".into() };
    let failed = FailedChange { change: Change::DiskRemoved { disk: "old".into() }, reason: "a front-end".into() };
    let reload = Reload { file: "/c".into(), dry_run: false, applied: vec![added], failed: vec![], not_live: vec![] };
    let daemon = Daemon::start_with(Fake { reload: Ok(reload.clone()), ..Fake::new() });
    assert_eq!(daemon.run(&["config", "reload"]), "applied: disk `db` is added\n");
    assert_eq!(daemon.run(&["config", "reload", "--dry-run"]), "would be applied: disk `db` is added\n");
    let json: Reload = serde_json::from_str(&daemon.run(&["config", "reload", "-o", "json"])).unwrap();
    assert_eq!(json, reload);
    let daemon = Daemon::start_with(Fake { reload: Ok(Reload { failed: vec![failed], ..reload }), ..Fake::new() });
    let (code, stdout, _) = daemon.said(&["config", "reload"]);
    assert_eq!((code, stdout.lines().last().unwrap()), (1, "failed: disk `old` is removed: a front-end"));
    let errors = vec!["/c:1:1: one".into(), "/c:2:1: two".into()];
    let daemon = Daemon::start_with(Fake { reload: Err(ControlError::ConfigInvalid(errors)), ..Fake::new() });
    assert_eq!(daemon.fail(&["config", "reload"]), (2, "mpathctl: /c:1:1: one\n/c:2:1: two\n".into()));
}

#[test]
fn live_changes_are_saved_and_comments_stay() {
    let (daemon, _dir, file) = changed(|disk| {
        (disk["policy"], disk["weight"]) = (json!("numa"), json!(7));
        disk["paths"] = json!(["tcp://192.0.2.1:4420", "tcp://192.0.2.2:4420"]);
    });
    let saved = daemon.run(&["config", "save"]);
    assert!(saved.contains("disk `db`: policy: bdp becomes numa\n") && saved.ends_with(&format!("{file}: saved\n")));
    let text = FILE.replace("policy: bdp", "policy: numa").replace("2.1]", "2.1, tcp://192.0.2.2:4420]");
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{text}    weight: 7\n"));
    // The daemon has not read this file.
    let (code, stderr) = daemon.fail(&["config", "save"]);
    assert!(code == 2 && stderr.contains("changed since the daemon read it"), "{stderr}");
}

#[test]
fn a_new_file_begins_as_a_copy_and_flags_make_a_file() {
    let (daemon, dir, file) = changed(|disk| disk["weight"] = json!(7));
    let new = dir.path().join("new.yaml");
    let new = new.to_str().unwrap();
    daemon.run(&["config", "save", new]);
    assert_eq!(fs::read_to_string(new).unwrap(), format!("{FILE}    weight: 7\n"));
    assert_eq!(fs::read_to_string(file).unwrap(), FILE);
    assert_eq!(daemon.run(&["config", "save", new]), format!("{new}: no changes to save\n"));
    assert_eq!(daemon.run(&["config", "save", "-"]), format!("{FILE}    weight: 7\n"), "the text alone");
    let effective = serde_json::to_value(Config::parse(FILE).unwrap()).unwrap();
    let configuration = Configuration { file: None, given: json!({}), effective };
    let daemon = Daemon::start_with(Fake { configuration, ..Fake::new() });
    let (code, stderr) = daemon.fail(&["config", "save"]);
    assert!(code == 2 && stderr.contains("name the file to save to"), "{stderr}");
    let of_flags = dir.path().join("flags.yaml");
    daemon.run(&["config", "save", of_flags.to_str().unwrap()]);
    let text = fs::read_to_string(of_flags).unwrap();
    assert_eq!(Config::parse(&text).unwrap(), Config::parse(FILE).unwrap());
    assert!(!text.contains("weight"), "defaults are left out: {text}");
}
