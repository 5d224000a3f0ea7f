//! Disks, discovery controllers, limits and weights.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use mpath_api::types::DiskState;

use crate::daemon::{Daemon, finish, mpathctl};
use crate::fake::Fake;

#[test]
fn status_names_the_disks_of_a_reason_and_counts_medium_errors() {
    let daemon = Daemon::start_with(Fake { held: &["disk0", "disk1"], ..Fake::new() });
    let notes = |daemon: &Daemon| daemon.run(&["status"]).split("\n\n").nth(2).unwrap_or_default().to_owned();
    let held = "disk0, disk1: held: requests wait for 12.0 s: the previous daemon did not end in order\n";
    assert_eq!(notes(&daemon), held);
    let daemon = Daemon::start_with(Fake { medium_errors: 3, ..Fake::new() });
    let errors = "disk1: medium errors: the guest got 3 so far, the last at 2026-11-21T07:00:01.000Z\n";
    assert_eq!(notes(&daemon).split_inclusive('\n').nth(1), Some(errors));
}

#[test]
fn fences_are_listed_and_cleared() {
    let daemon = Daemon::start();
    let table = "\
DISK   KIND         PATH                  SINCE(UTC)                LEFT(s)  MEANING
disk0  path         tcp://127.0.0.1:4421  2026-11-21T07:00:00.000Z        3  its writes in doubt wait; lifted by time or cross-controller reset
disk1  inherited    -                     -                              10  requests wait for writes of the earlier daemon or disk of this socket
disk1  guest        -                     -                               -  may come back with unanswered requests; only namespace 1 of nqn.example is served
disk1  lost writes  -                     -                               -  the guest's next flush fails
";
    assert_eq!(daemon.run(&["fence", "list"]), table);
    assert_eq!(daemon.run(&["fence", "list", "--disk", "disk0"]).lines().count(), 2);
    let (code, error) = daemon.fail(&["fence", "clear", "disk1"]);
    assert!(code == 1 && error.contains("old writes overwrite newer data"), "{error}");
    let cleared = "disk1: cleared: unanswered requests, inherited fence, lost writes\n";
    assert_eq!(daemon.run(&["fence", "clear", "disk1", "--force"]), cleared);
    assert_eq!(daemon.run(&["fence", "clear", "disk1"]), "disk1: nothing to clear\n");
    assert_eq!(daemon.run(&["fence", "list"]).lines().count(), 2);
}

#[test]
fn an_upgrade_says_both_versions_or_why_not() {
    let daemon = Daemon::start();
    let upgraded = "upgraded from 1.2.3 to 1.2.4, process 4711\n";
    assert_eq!(daemon.run(&["upgrade", "--force"]), upgraded);
    let error = "mpathctl: the new process does not take over: disk vda: no path; the daemon goes on\n";
    assert_eq!(daemon.fail(&["upgrade"]), (1, error.to_owned()));
}

#[test]
fn status() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["status"]),
        "\
vhost-blk-mpath 0.1.0, pid 4711, up 1h 2m 5s

DISK   CONDITION  GUEST      POLICY       USABLE  PATHS  QUEUED  SIZE(MiB)  BLOCK(B)  MODE  SOCKET
disk0  degraded   connected  round-robin       1      2       0       1024       512  rw    /run/vhost-blk-mpath/disk0.sock
disk1  ok         -          latency-rr        1      1       0       1024       512  ro    /run/vhost-blk-mpath/disk1.sock

disk0: degraded: 1 of 2 expected paths are usable: path 1: lost
"
    );
    let yaml = daemon.run(&["status", "-o", "yaml"]);
    let start = "\
version: 0.1.0
pid: 4711
uptime-s: 3725
disks:
- name: disk0
  socket-path: /run/vhost-blk-mpath/disk0.sock
  subsystem: nqn.2014-08.org.example:disks
  shares-paths-of: null
  namespace: 1
  state: served
  condition: degraded
  condition-since: '2026-11-21T07:00:01.000Z'
  reasons:
  - condition: degraded
    message: '1 of 2 expected paths are usable: path 1: lost'
  outstanding: 0
  guest-errors: []
  connected: true
  front-end:
    pid: 71
    program: qemu-system-x86
  held-ms: null
  policy: round-robin
  scheduler:
    name: burst-credit
    gap: 50ms
  limits:
    iops: 'off'
    bandwidth: 104857600
    burst: 1s
    balance-ios: null
    balance-bytes: -65536
    throttled-ms: 1234
  capacity-bytes: 1073741824
  block-size-bytes: 512
  growth:
    capacity-bytes: 2147483648
    lagging:
    - index: 1
      address: tcp://127.0.0.1:4421
      capacity-bytes: 1073741824
  read-only: false
  queues: 64
  mpath-window: true
  weight: 100
  queued: 0
  moved-reads:
    ios: 0
    time: null
  moved-writes:
    ios: 0
    time: null
  first-moved:
    ios: 3
    time:
      p50-us: 12000
      p99-us: 304000
      p999-us: 304000
      max-us: 304000
  fence-waits:
    ios: 40
    total-ms: 84060
  io-threads:
  - thread: 0
    polled-ms: 1700
    ran-ms: 90500
    processor-wait-ms: 120
    stalls: 0
    stalled-ms: 0
  - thread: 1
    polled-ms: 0
    ran-ms: 40000
    processor-wait-ms: 2500
    stalls: 3
    stalled-ms: 2430
  guest-io:
  - operation: read
    ios: 9000000
    ios-1s: 9000
    bytes: 36864000000
    latency-1s:
      p50-us: 280
      p99-us: 840
      p999-us: 1960
      max-us: 5600
    latency-60s:
      p50-us: 140
      p99-us: 420
      p999-us: 980
      max-us: 2800
  - operation: write
    ios: 1200000
    ios-1s: 1200
    bytes: 4915200000
    latency-1s:
      p50-us: 760
      p99-us: 2280
      p999-us: 5320
      max-us: 15200
    latency-60s:
      p50-us: 380
      p99-us: 1140
      p999-us: 2660
      max-us: 7600
  long-requests:
    limit-us: 0
    no-path-us: 0
    queue-us: 0
    injection-us: 0
    send-us: 0
    path-us: 0
    earlier-attempts-us: 0
    retry-us: 0
    fence-us: 0
    host-us: 0
  oldest-request-ms: 1250
  hedge: 'off'
  hedge-budget: 5%
  hedgeable-reads: 9000
  hedges: 70
  hedges-won: 41
  min-paths: auto
  path-counts:
    total: 2
    expected: 2
    usable: 1
    missing: 0
- name: disk1
";
    assert_eq!(yaml.get(..start.len()), Some(start));
}

#[test]
fn the_tree_of_subsystems() {
    let daemon = Daemon::start_sharing();
    assert_eq!(
        daemon.run(&["status", "--tree"]),
        "\
nqn.2014-08.org.example:disks
├─ disk0                      degraded        namespace 1    1024 MiB  rw, policy round-robin, guest connected
│  ├─ 0 tcp://127.0.0.1:4420  live            optimized        75.0 %
│  └─ 1 tcp://127.0.0.1:4421  lost            optimized        25.0 %  lost: Connection refused (os error 111)
├─ disk1                      ok              namespace 1    1024 MiB  ro, policy latency-rr
│  └─ 0 tcp://[::1]:4420      live (suspect)  non-optimized     0.0 %
└─ backup                     ok              namespace 1    1024 MiB  rw, policy round-robin
   ├─ 0 tcp://127.0.0.1:4420  live            non-optimized    75.0 %
   └─ 1 tcp://127.0.0.1:4421  lost            -                25.0 %  there is no namespace 2
"
    );
    let (_, ascii, _) = finish(daemon.command(&["status", "--tree"]).env("LC_ALL", "C"));
    assert!(ascii.is_ascii() && ascii.contains("\n|- disk0 ") && ascii.contains("\n|  `- 1 tcp://"), "{ascii}");
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["status", "--tree", "-o", "json"])).unwrap();
    let disks = &json[0]["disks"];
    assert_eq!((&disks[1]["name"], &disks[1]["paths"][0]["index"]), (&"disk1".into(), &0.into()));
    assert_eq!(disks.as_array().unwrap().len(), 3);
}

#[test]
fn health_is_a_line_and_an_exit_code() {
    let degraded = "disk0: degraded: 1 of 2 expected paths are usable: path 1: lost\n";
    let daemon = Daemon::start();
    assert_eq!(daemon.said(&["health"]), (1, degraded.into(), String::new()));
    // This one has no front-end.
    assert_eq!(daemon.said(&["health", "--disk", "disk1"]), (0, "ok: 1 disk\n".into(), String::new()));
    let held = "disk1: held: requests wait for 12.0 s: the previous daemon did not end in order\n";
    assert_eq!(Daemon::start_held().said(&["health", "--disk", "disk1"]), (2, held.into(), String::new()));
    let (code, error) = daemon.fail(&["health", "--disk", "disk9"]);
    assert!(code == 3 && error.contains("no disk is named `disk9`"), "{error}");
    let (code, _, stderr) = finish(&mut mpathctl(&["--api", "/nonexistent", "health"]));
    assert!(code == 3 && stderr.contains("no daemon listens"), "{code} {stderr}");
}

#[test]
fn a_held_disk_is_shown_as_held() {
    let daemon = Daemon::start_held();
    let line = "held: requests wait for 12.0 s: the previous daemon did not end in order\n";
    for words in [&["status"][..], &["disk", "list"], &["disk", "list", "--disk", "disk1"]] {
        let told = daemon.run(words);
        assert!(told.ends_with(&format!("\ndisk1: {line}")), "{told}");
    }
    assert!(!daemon.run(&["disk", "list", "--disk", "disk0"]).contains("held"));
    let told = daemon.run(&["disk", "show", "disk1"]);
    assert!(
        told.starts_with(&format!(
            "disk          disk1\ncondition     held since 2026-11-21T07:00:01.000Z\nbecause       {line}state "
        )),
        "{told}"
    );
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-o", "json", "disk", "list"])).unwrap();
    assert_eq!((&json[0]["held-ms"], &json[1]["held-ms"]), (&serde_json::Value::Null, &serde_json::json!(12_001)));
}

#[test]
fn a_disk_that_is_being_removed_is_shown_as_removing() {
    let daemon = Daemon::start_in_state(DiskState::Removing);
    let line = "the daemon closes its front-ends' connections; the disk is gone within 15 s, and its name and socket are free after that\n";
    for words in [&["status"][..], &["disk", "list"]] {
        let told = daemon.run(words);
        assert!(told.contains("  removing  ") && !told.contains("connected"), "{told}");
        assert!(told.contains(&format!("disk1.sock\n\ndisk0: REMOVING: {line}")), "{told}");
    }
    let told = daemon.run(&["disk", "show", "disk0"]);
    assert!(told.starts_with(&format!("disk          disk0\nREMOVING      {line}condition ")), "{told}");
    assert!(told.contains("\nstate         removing\n"), "{told}");
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-o", "json", "disk", "list"])).unwrap();
    assert_eq!((&json[0]["state"], &json[1]["state"]), (&serde_json::json!("removing"), &serde_json::json!("served")));
}

#[test]
fn a_disk_without_a_path_so_far_is_shown_as_starting() {
    let daemon = Daemon::start_in_state(DiskState::Starting);
    for words in [&["status"][..], &["disk", "list"]] {
        let told = daemon.run(words);
        let row = told.lines().find(|line| line.starts_with("disk0 ")).unwrap();
        assert!(row.contains("  starting  ") && !told.contains("connected"), "{told}");
    }
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-o", "json", "disk", "list"])).unwrap();
    assert_eq!((&json[0]["state"], &json[1]["state"]), (&serde_json::json!("starting"), &serde_json::json!("served")));
}

#[test]
fn disk() {
    let daemon = Daemon::start();
    let list = daemon.run(&["disk", "list"]);
    assert_eq!(daemon.run(&["status"]).split_once("\n\n").unwrap().1, list);
    assert_eq!(daemon.run(&["disk", "list", "--disk", "disk1"]).lines().count(), 2);
    assert_eq!(
        daemon.run(&["disk", "show", "disk0"]),
        "\
disk          disk0
condition     degraded since 2026-11-21T07:00:01.000Z
because       degraded: 1 of 2 expected paths are usable: path 1: lost
state         served
socket-path   /run/vhost-blk-mpath/disk0.sock
front-end     connected, process 71 (qemu-system-x86)
subsystem     nqn.2014-08.org.example:disks
namespace     1
size          1073741824 bytes, in blocks of 512; grows to 2147483648 bytes once all paths report that size: path 1 (tcp://127.0.0.1:4421) reports 1073741824
mode          read-write
virtqueues    64 at most
mpath-window  yes
paths of      disk0
paths         2, 2 of them expected to be usable, 1 usable
policy        round-robin
hedge         off, budget 5%
weight        100
queued        0
outstanding   0
oldest        a request without an answer for 1250 ms
guest         read: 9000000, in the last minute 0.14 ms at the median, 0.42 ms at p99, 2.80 ms at most
guest         write: 1200000, in the last minute 0.38 ms at the median, 1.14 ms at p99, 7.60 ms at most
failovers     first requests that moved, by failure and I/O thread: 3, after 12.00 ms at the median, 304.00 ms at most
fences        requests that waited: 40, 84.1 s in total
I/O threads   0, 1
polling       1.7 s of the I/O threads in total
host          did not run I/O thread 1 for 2.4 s in total, 3 times
"
    );
    let flags = ["--socket-path", "/tmp/s", "--subsystem", "nqn.a", "--path", "tcp://127.0.0.1"];
    let added = daemon.run(&[&["disk", "add", "--name", "db", "--policy", "numa"], &flags[..]].concat());
    assert!(added.lines().count() == 2 && added.contains("\ndb ") && added.contains(" numa "), "{added}");
    let (code, said) = daemon.fail(&[&["disk", "add", "--name", "db"], &flags[..]].concat());
    assert_eq!(
        (code, &*said),
        (1, "mpathctl: cannot add disk `db`: another disk has this name; give each disk its own `name`\n")
    );
    let (code, said) = daemon.fail(&["disk", "remove", "disk0"]);
    assert!(code == 1 && said.contains("`disk0` has a front-end connected"), "{said}");
    let (code, removed, said) = daemon.said(&["disk", "remove", "disk0", "--force"]);
    assert_eq!((code, &*removed), (0, "REMOVED  IN DOUBT(ms)\ndisk0            2100\n"));
    let doubt = "the controllers may execute writes in doubt for another 2100 ms; give the namespace to another daemon only after that";
    assert!(said.starts_with(&format!("mpathctl: disk0: {doubt}; ")) && said.lines().count() == 1, "{said}");
    let json = daemon.run(&["disk", "remove", "db", "-ojson"]);
    assert_eq!(json, "[\n  {\n    \"disk\": \"db\",\n    \"in-doubt-ms\": null\n  }\n]\n");
    assert!(!daemon.run(&["disk", "list"]).contains("disk0"));
    assert_eq!(daemon.fail(&["disk", "show", "disk0"]).0, 1);
    for (words, said) in [
        (&["disk", "add"][..], "no socket: give --socket-path PATH; see --help"),
        (&["disk", "add", "--socket-path", "/tmp/s"], "no subsystem: give --subsystem NQN; see --help"),
        (
            &["disk", "add", "--socket-path", "/tmp/s", "--subsystem", "nqn.a"],
            "no path: give --path tcp://HOST:PORT for each path, --discovery tcp://HOST, or --config FILE",
        ),
        (
            &["disk", "add", "--config", "f", "--policy", "numa"],
            "--config and --policy cannot be used together; see --help",
        ),
        (&["disk", "add", "--config", "/nonexistent"], "/nonexistent: No such file or directory (os error 2)"),
    ] {
        assert_eq!(daemon.fail(words), (2, format!("mpathctl: {said}\n")));
    }
}

#[test]
fn paths_are_relative_to_the_directory_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let api = dir.path().join("api.sock");
    let listener = UnixListener::bind(&api).unwrap();
    let sent = |words: &[&str]| {
        let mut command = mpathctl(&[&["--api", api.to_str().unwrap(), "disk", "add"], words].concat());
        let child = command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            request.extend(&buffer[..read]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").unwrap();
        assert!(child.wait_with_output().unwrap().status.success());
        let body = String::from_utf8(request).unwrap().split_once("\r\n\r\n").unwrap().1.to_owned();
        serde_json::from_str::<serde_json::Value>(&body).unwrap()
    };
    let here = |name: &str| serde_json::json!(dir.path().canonicalize().unwrap().join(name).to_str().unwrap());
    let flags = ["--subsystem", "nqn.a", "--path", "tcp://127.0.0.1", "--socket-path"];
    assert_eq!(sent(&[&flags[..], &["db.sock"]].concat())["socket-path"], here("db.sock"));
    let settings = ["tls-key-file", "discovery-tls-key-file", "dhchap-secret-file", "dhchap-ctrl-secret-file"];
    let key_files = settings.map(|setting| [format!("--{setting}"), setting.to_owned()]).concat();
    let key_files: Vec<_> = key_files.iter().map(String::as_str).collect();
    let with_keys = sent(&[&flags[..], &["db.sock", "--discovery", "tcp://127.0.0.1"], &key_files].concat());
    for setting in settings {
        assert_eq!(with_keys[setting], here(setting));
    }
    // Absolute paths are not changed: the socket may come from socket activation, which compares the path.
    assert_eq!(sent(&[&flags[..], &["/tmp//db.sock"]].concat())["socket-path"], "/tmp//db.sock");
    let text = "disks: [{socket-path: a, subsystem: nqn.a, namespace: 1, paths: ['tcp://127.0.0.1'], \
        share-paths-with: [{name: b, socket-path: b/c, namespace: 2}]}]";
    std::fs::write(dir.path().join("file"), text).unwrap();
    let sent = sent(&["--config", "file"]);
    assert_eq!((&sent["socket-path"], &sent["share-paths-with"][0]["socket-path"]), (&here("a"), &here("b/c")));
    let long = "n".repeat(107);
    let mut command = mpathctl(&[&["--api", "/nowhere", "disk", "add"], &flags[..], &[&long]].concat());
    let (code, _, said) = finish(&mut command);
    assert!(code == 2 && said.contains("socket-path: `/"), "{said}");
}

#[test]
fn disks_of_a_file() {
    let daemon = Daemon::start();
    let disk = |name: &str| {
        format!("  - {{name: {name}, socket-path: /tmp/{name}, subsystem: nqn.a, paths: ['tcp://127.0.0.1']}}\n")
    };
    let add = |text: &str| {
        let mut child = daemon.command(&["disk", "add", "--config", "-"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, added, said) = add(&format!("disks:\n{}{}", disk("x"), disk("y")));
    assert_eq!((code, added.lines().count(), &*said), (0, 3, ""), "{added}");
    // The disk before the refused one was added.
    let (code, added, said) = add(&format!("disks:\n{}{}{}", disk("z"), disk("x"), disk("w")));
    assert!(code == 1 && added.contains("\nz ") && !added.contains("\nw "), "{added}");
    assert!(said.contains("cannot add disk `x`"), "{said}");
    for (text, part) in [
        (format!("api: /tmp/a\ndisks:\n{}", disk("v")), "standard input:1:1: unknown field `api`, expected `disks`"),
        (format!("disks:\n{0}{0}", disk("v")), "standard input: disks[1].name: `v` is also the name of disks[0]"),
        ("disks: [{polcy: numa}]".into(), "unknown field `polcy`"),
    ] {
        let (code, added, said) = add(&text);
        assert!(code == 2 && added.is_empty() && said.contains(part), "{said}");
    }
}

#[test]
fn discovery_list() {
    let daemon = Daemon::start();
    let table = daemon.run(&["discovery", "list"]);
    assert_eq!(
        table,
        "\
DISK   ADDRESS                   STATE       GENCTR  RECORDS  TLS  BY                    LAST ERROR
disk0  tcp://192.0.2.1:8009      connected        7        3  on   -                     -
disk0  tcp://[2001:db8::1]:8009  connecting       -        -  -    tcp://192.0.2.1:8009  Connection refused (os error 111)
"
    );
    let none = daemon.run(&["discovery", "list", "--disk", "disk1", "-o", "json"]);
    assert_eq!(none, "[]\n");
    let all = daemon.run(&["status", "-o", "yaml"]);
    assert!(all.contains("\ndiscovery:\n- disk: disk0\n  address: tcp://192.0.2.1:8009\n"), "{all}");
}

#[test]
fn limit() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["limit", "show"]),
        "\
DISK   IOPS  BANDWIDTH  BURST  LEFT(ios)  LEFT(KiB)  THROTTLED(ms)
disk0   off     100MiB     1s          -        -64           1234
disk1   off        off     1s          -          -              0
"
    );
    let json = daemon.run(&["limit", "set", "--iops", "5000", "--burst", "2s", "--disk", "disk1", "-ojson"]);
    for part in ["\"iops\": 5000", "\"bandwidth\": \"off\"", "\"burst\": \"2s\""] {
        assert!(json.contains(part), "{json}");
    }
    let set = ["limit", "set", "--bandwidth", "10000", "--disk", "disk1"];
    assert!(daemon.run(&set).contains("\ndisk1  5000      10000     2s"));
    let cleared = daemon.run(&["limit", "clear", "--all"]);
    assert!(cleared.contains("\ndisk0   off        off     1s") && cleared.contains("\ndisk1   off        off     2s"));
    for words in [&["limit", "set", "--iops", "7"][..], &["limit", "clear"]] {
        let (code, stderr) = daemon.fail(words);
        assert!(code == 2 && stderr.contains("this changes 2 disks (disk0, disk1); name one"), "{stderr}");
    }
    for (words, part) in [
        (&["limit", "clear", "--disk", "disk0", "--all"][..], "--disk and --all cannot be used together"),
        (&["limit", "set"], "--iops"),
        (&["limit", "set", "--iops", "0"], "`0` is not off or a number of requests per second from 1 to 1000000000"),
        (&["limit", "set", "--bandwidth", "1MB"], "`1MB` is not off or a number of bytes per second from 4KiB to 1TiB"),
        (&["limit", "set", "--burst", "2h"], "`2h` is not a time from 0ms to 3600s"),
    ] {
        let (code, stdout, stderr) = finish(&mut mpathctl(words));
        assert!((code, &*stdout) == (2, "") && stderr.contains(part), "{stderr}");
    }
}

#[test]
fn weight() {
    let daemon = Daemon::start_sharing();
    let all = "DISK    WEIGHT  PATHS OF\ndisk0      100  disk0\ndisk1      100  disk1\nbackup      25  disk0\n";
    assert_eq!(daemon.run(&["weight", "list"]), all);
    let set = ["weight", "set", "10", "--disk", "backup"];
    assert_eq!(daemon.run(&set), "DISK    WEIGHT  PATHS OF\nbackup      10  disk0\n");
    assert_eq!(daemon.run(&["weight", "list", "--disk", "backup"]), daemon.run(&set));
    assert_eq!(
        daemon.run(&["weight", "list", "--disk", "disk1", "-oyaml"]),
        "- disk: disk1\n  weight: 100\n  shares-paths-of: null\n"
    );
    assert!(
        daemon
            .run(&["scheduler", "show", "--disk", "backup"])
            .starts_with("backup, weight 10, over the paths of disk0: ")
    );
    for (args, code, part) in [
        (&["weight", "set", "10"][..], 2, "this changes 3 disks (disk0, disk1, backup); name one"),
        (&["weight", "set"], 2, "<WEIGHT>"),
        (&["weight", "set", "0", "--disk", "backup"], 2, "`0` is not an integer from 1 to 1000"),
        (&["weight", "set", "1001", "--disk", "backup"], 2, "`1001` is not an integer from 1 to 1000"),
        (&["weight", "set", "10", "--disk", "disk9"], 1, "no disk is named `disk9`"),
        (&["weight", "list", "--disk", "disk9"], 1, "no disk is named `disk9`"),
    ] {
        let (exit, stderr) = daemon.fail(args);
        assert!(exit == code && stderr.contains(part) && stderr.lines().count() == 1, "{args:?}: {exit} {stderr}");
    }
}

#[test]
fn disks_that_share_paths() {
    let daemon = Daemon::start_sharing();
    assert_eq!(
        daemon.run(&["status"]),
        "\
vhost-blk-mpath 0.1.0, pid 4711, up 1h 2m 5s

DISK    CONDITION  GUEST      POLICY       USABLE       PATHS  QUEUED  SIZE(MiB)  BLOCK(B)  MODE  SOCKET
disk0   degraded   connected  round-robin       1           2       0       1024       512  rw    /run/vhost-blk-mpath/disk0.sock
disk1   ok         -          latency-rr        1           1       0       1024       512  ro    /run/vhost-blk-mpath/disk1.sock
backup  ok         -          round-robin       1  2 of disk0       0       1024       512  rw    /run/vhost-blk-mpath/backup.sock

disk0: degraded: 1 of 2 expected paths are usable: path 1: lost
"
    );
    let list = daemon.run(&["path", "list"]);
    let notes = "
disk0 path 0 (tcp://127.0.0.1:4420) for backup: non-optimized
disk0 path 1 (tcp://127.0.0.1:4421): lost: Connection refused (os error 111)
disk0 path 1 (tcp://127.0.0.1:4421) for backup: there is no namespace 2
the paths of disk0 are shared by backup
";
    assert!(list.lines().take_while(|line| !line.is_empty()).count() == 4 && list.ends_with(notes), "{list}");
    assert!(!daemon.run(&["path", "list", "--disk", "disk1"]).contains("backup"));
    let lines = |args: &[&str]| -> Vec<String> {
        daemon.run(args).lines().filter(|line| line.starts_with("ANA state")).map(Into::into).collect()
    };
    let show = |path| lines(&["path", "show", path, "--disk", "disk0"]);
    assert_eq!(show("0"), ["ANA state             optimized", "ANA state for backup  non-optimized"]);
    assert_eq!(show("1"), ["ANA state             optimized", "ANA state for backup  there is no namespace 2"]);
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["path", "list", "-ojson"])).unwrap();
    let shown = serde_json::json!([{"disk": "backup", "ana-state": "non-optimized", "unusable": null}]);
    assert_eq!((&json[0]["sharers"], json[2].get("sharers")), (&shown, None));

    // Tables about paths list only disks with paths of their own.
    assert_eq!(daemon.run(&["policy", "get"]), "DISK   POLICY\ndisk0  round-robin\ndisk1  latency-rr\n");
    assert_eq!(daemon.run(&["hedge", "show"]).lines().count(), 3);
    assert_eq!(daemon.run(&["scheduler", "get"]).lines().count(), 3);
    assert_eq!(daemon.run(&["limit", "show"]).lines().count(), 4);
    let message = "disk `backup` shares the paths, policy, scheduler and hedging of `disk0`; name `disk0`";
    for args in [
        &["policy", "set", "numa"][..],
        &["hedge", "set", "p95"],
        &["scheduler", "set", "fifo"],
        &["path", "drain", "0"],
        &["path", "add", "tcp://127.0.0.1:4422"],
        &["path", "remove", "0"],
        &["inject", "set", "0", "--latency", "1ms"],
        &["inject", "clear"],
    ] {
        let args = [args, &["--disk", "backup"]].concat();
        assert_eq!(daemon.fail(&args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
    for args in [
        &["policy", "get"][..],
        &["policy", "show"],
        &["hedge", "show"],
        &["scheduler", "get"],
        &["path", "list"],
        &["path", "show", "0"],
        &["inject", "list"],
        &["discovery", "list"],
    ] {
        let of = |disk| daemon.run(&[args, &["--disk", disk]].concat());
        assert_eq!(of("backup"), of("disk0"), "{args:?}");
    }
    // Each disk has events and limits of its own.
    assert_eq!(daemon.run(&["events", "--disk", "backup"]).lines().count(), 1);
    assert!(daemon.run(&["limit", "set", "--iops", "500", "--disk", "backup"]).contains("\nbackup   500 "));
    assert_eq!(daemon.run(&["limit", "show"]).matches(" 500 ").count(), 1);
}

#[test]
fn the_only_disk_with_paths_need_not_be_named() {
    let daemon = Daemon::start_sharing_alone();
    let added = daemon.run(&["path", "add", "tcp://127.0.0.1:4422"]);
    assert!(added.contains("\ndisk0  2  tcp://127.0.0.1:4422  connecting"), "{added}");
    // A weight may be that of any disk.
    let (code, stderr) = daemon.fail(&["weight", "set", "10"]);
    assert!(code == 2 && stderr.contains("this changes 2 disks (disk0, backup)"), "{stderr}");
    assert_eq!(daemon.run(&["weight", "set", "10", "--all"]).matches(" 10 ").count(), 2);
}
