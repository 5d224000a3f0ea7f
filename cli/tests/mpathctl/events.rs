//! Events, and following them over a restart of the daemon.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use patience::PATIENCE;

use crate::daemon::{Daemon, finish, mpathctl};
use crate::fake::Fake;

#[test]
fn events() {
    let daemon = Daemon::start();
    let table = "\
SEQ  TIME(UTC)                 DISK   PATH                  EVENT                BY  WHAT
  1  2026-11-21T07:00:01.000Z  disk0  tcp://127.0.0.1:4421  path-live            -   path live: controller 2, optimized
  2  2026-11-21T07:00:02.000Z  disk0  -                     front-end-connected  -   front-end connected (and 12 earlier ones)
";
    assert_eq!(daemon.run(&["events"]), table);
    assert_eq!(daemon.run(&["events", "--since", "1"]).lines().count(), 2);
    assert_eq!(daemon.run(&["events", "--disk", "disk1"]).lines().count(), 1);
    assert!(daemon.run(&["events", "-o", "json"]).starts_with("[\n  {\n    \"seq\": 1,"));
    assert_eq!(daemon.fail(&["events", "--disk", "disk9"]).0, 1);
}

/// A running `events --follow`. Dropped, it ends.
struct Follower {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Follower {
    fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let mut command = daemon.command(&[&["events", "--follow"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, errors) = (read_lines(child.stdout.take().unwrap()), read_lines(child.stderr.take().unwrap()));
        Self { child, lines, errors }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn error(&self) -> String {
        self.errors.recv_timeout(PATIENCE).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (lines, received) = mpsc::channel();
    thread::spawn(move || BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
    received
}

#[test]
fn events_are_followed_over_a_restart_of_the_daemon() {
    let daemon = Daemon::start();
    let follower = Follower::start(&daemon, &["-o", "json"]);
    let seq = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap()["seq"].as_u64().unwrap();
    assert_eq!([follower.line(), follower.line(), follower.line()].map(seq), [1, 2, 5]);
    assert_eq!(follower.error(), "mpathctl: the daemon has dropped 2 older events");
    // The next daemon has given fewer numbers than the first. All of its events are new.
    let second = Fake { boot_id: "second", ..Fake::new() };
    let daemon = daemon.restart(Duration::from_millis(300), second);
    let error = follower.error();
    assert!(error.ends_with("; waiting for the daemon"), "{error}");
    assert_eq!(follower.error(), "mpathctl: the daemon has started again; all events that it keeps follow");
    assert_eq!([follower.line(), follower.line()].map(seq), [1, 2]);
    // A daemon that was out of reach for a moment repeats nothing.
    let second = Fake { boot_id: "second", ..Fake::new() };
    let _daemon = daemon.restart(Duration::from_millis(300), second);
    let error = follower.error();
    assert!(error.ends_with("; waiting for the daemon"), "{error}");
    assert_eq!(follower.error(), "mpathctl: the daemon answers again");
    assert!(follower.lines.recv_timeout(Duration::from_millis(300)).is_err(), "nothing is repeated");
}

#[test]
fn a_daemon_that_does_not_run_is_not_followed() {
    let (code, stdout, stderr) = finish(&mut mpathctl(&["--api", "/nowhere", "events", "--follow"]));
    assert_eq!((code, &*stdout), (3, ""));
    assert!(stderr.starts_with("mpathctl: no daemon listens on /nowhere"), "{stderr}");
}

#[test]
fn followed_events_begin_after_a_number() {
    let daemon = Daemon::start();
    let follower = Follower::start(&daemon, &["--since", "2"]);
    assert_eq!(
        follower.line(),
        "5  2026-11-21T07:00:05.000Z  disk0  -  policy-set  uid 1000, pid 4711  policy set to numa"
    );
}

#[test]
fn versions_that_differ_are_named() {
    let mut fake = Fake { version: "9.0.0 (fedcba987654)", ..Fake::new() };
    let own = env!("VHOST_BLK_MPATH_VERSION");
    let both = format!("mpathctl has version {own}, and the daemon has version {}", fake.version);
    let daemon = Daemon::start_with(fake);
    let (code, stdout, stderr) = daemon.said(&["policy", "get"]);
    assert_eq!((code, stdout.lines().count()), (0, 3));
    assert_eq!(stderr, format!("mpathctl: {both}; use the mpathctl of the daemon's version\n"));
    let (code, stderr) = daemon.fail(&["path", "show", "9", "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&stderr).unwrap();
    assert!(code == 1 && error["error"]["message"].as_str().unwrap().ends_with(&format!("; {both}")), "{stderr}");
    // Another build of the same release is worth a word only if the daemon does not understand.
    fake = Fake { version: "0.1.0 (fedcba987654)", ..Fake::new() };
    let daemon = daemon.restart(Duration::ZERO, fake);
    daemon.run(&["policy", "get"]);
    let note = |args: &[&str]| daemon.fail(args).1.contains("; mpathctl has version ");
    assert!(note(&["policy", "set", "latency-rr", "--param", "treshold=2"]) && !note(&["path", "show", "9"]));
}
