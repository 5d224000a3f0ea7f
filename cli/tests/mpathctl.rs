//! The real `mpathctl` against the real server over a real Unix socket.

// Clippy lets only `#[test]` functions unwrap, not what they share.
#![allow(missing_docs, clippy::unwrap_used)]

mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;

use daemon::{Daemon, finish, mpathctl};

const INJECTED: &str = "\
DISK   #  ADDRESS               CLASS  DIRECTION  SEED  INJECTION
disk0  1  tcp://127.0.0.1:4421  all    request       0  latency 30ms
";

const NO_INJECTION: &str = "DISK  #  ADDRESS  CLASS  DIRECTION  SEED  INJECTION\n";
/// What `inject clear` ended must not look as if it were in force.
const CLEARED: &str = "\
DISK   #  ADDRESS               CLASS  DIRECTION  SEED  WAS
disk0  1  tcp://127.0.0.1:4421  all    request       0  latency 30ms
";
const NONE_CLEARED: &str = "DISK  #  ADDRESS  CLASS  DIRECTION  SEED  WAS\n";

#[test]
fn status() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["status"]),
        "\
vhost-blk-mpath 0.1.0, pid 4711, up 1h 2m 5s

DISK   GUEST      POLICY       LIVE  PATHS  QUEUED  SIZE(MiB)  BLOCK(B)  MODE  SOCKET
disk0  connected  round-robin     1      2       0       1024       512  rw    /run/vhost-blk-mpath/disk0.sock
disk1  -          latency-rr      1      1       0       1024       512  ro    /run/vhost-blk-mpath/disk1.sock
"
    );
    let yaml = daemon.run(&["status", "-o", "yaml"]);
    let start = "\
version: 0.1.0
pid: 4711
uptime_s: 3725
disks:
- name: disk0
  socket: /run/vhost-blk-mpath/disk0.sock
  subsystem: nqn.2014-08.org.example:disks
  shares_paths_of: null
  nsid: 1
  connected: true
  policy: round-robin
  capacity_bytes: 1073741824
  block_size_bytes: 512
  read_only: false
  queues: 64
  weight: 100
  queued: 0
  moved_reads:
    ios: 0
    time: null
  moved_writes:
    ios: 0
    time: null
  hedge:
    hedge: off
    budget: 5%
    reads: 9000
    sent: 70
    won: 41
  paths:
    total: 2
    live: 1
- name: disk1
";
    assert_eq!(yaml.get(..start.len()), Some(start));
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
disk        disk0
socket      /run/vhost-blk-mpath/disk0.sock
front-end   connected
subsystem   nqn.2014-08.org.example:disks
namespace   1
size        1073741824 bytes, in blocks of 512
mode        read-write
virtqueues  64 at most
paths of    disk0
paths       2, of which 1 live
policy      round-robin
hedge       off, budget 5%
weight      100
queued      0
"
    );
    let flags = ["--socket-path", "/tmp/s", "--subsystem", "nqn.a", "--path", "tcp://127.0.0.1"];
    let added = daemon.run(&[&["disk", "add", "--name", "db", "--policy", "numa"], &flags[..]].concat());
    assert!(added.lines().count() == 2 && added.contains("\ndb ") && added.contains(" numa "), "{added}");
    let (code, said) = daemon.fail(&[&["disk", "add", "--name", "db"], &flags[..]].concat());
    assert_eq!((code, &*said), (1, "mpathctl: there is a disk `db` already; give each disk its own name\n"));
    let (code, said) = daemon.fail(&["disk", "remove", "disk0"]);
    assert!(code == 1 && said.contains("`disk0` has a front-end connected"), "{said}");
    assert!(daemon.run(&["disk", "remove", "disk0", "--force"]).contains("\ndisk0 "));
    assert!(!daemon.run(&["disk", "list"]).contains("disk0"));
    assert_eq!(daemon.fail(&["disk", "show", "disk0"]).0, 1);
    for (words, said) in [
        (&["disk", "add"][..], "no socket: give --socket-path PATH; see --help"),
        (&["disk", "add", "--socket-path", "/tmp/s"], "no subsystem: give --subsystem NQN; see --help"),
        (
            &["disk", "add", "--socket-path", "/tmp/s", "--subsystem", "nqn.a"],
            "no path: give --path tcp://HOST:PORT, once for each, or --discovery tcp://HOST, or a file by --config",
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
    // The one before is there.
    let (code, added, said) = add(&format!("disks:\n{}{}{}", disk("z"), disk("x"), disk("w")));
    assert!(code == 1 && added.contains("\nz ") && !added.contains("\nw "), "{added}");
    assert!(said.contains("there is a disk `x` already"), "{said}");
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
DISK   ADDRESS                   STATE       GENCTR  RECORDS  BY                    LAST ERROR
disk0  tcp://192.0.2.1:8009      connected        7        3  -                     -
disk0  tcp://[2001:db8::1]:8009  connecting       -        -  tcp://192.0.2.1:8009  Connection refused (os error 111)
"
    );
    let none = daemon.run(&["discovery", "list", "--disk", "disk1", "-o", "json"]);
    assert_eq!(none, "[]\n");
    let all = daemon.run(&["status", "-o", "yaml"]);
    assert!(all.contains("\ndiscovery:\n- disk: disk0\n  address: tcp://192.0.2.1:8009\n"), "{all}");
}

#[test]
fn path_list() {
    let daemon = Daemon::start();
    let table = daemon.run(&["path", "list"]);
    assert_eq!(
        table,
        "\
DISK   #  ADDRESS               STATE                         1S(%)  1M(%)  SHARE(%)     IOS  BUSY  ERRS  RD50(us)  RD99(us)  WR50(us)  WR99(us)  INJECTION
disk0  0  tcp://127.0.0.1:4420  live                          100.0   75.0      90.0  900000     4     2       210       630        95       285  -
disk0  1  tcp://127.0.0.1:4421  lost                            0.0   25.0      10.0  100000     2     1     30417     91251         -         -  -
disk1  0  tcp://[::1]:4420      live/non-optimized (suspect)    0.0    0.0       0.0       0     0     0         -         -         -         -  -

disk0 path 1 (tcp://127.0.0.1:4421): Connection refused (os error 111)
"
    );
    let json = daemon.run(&["path", "list", "--disk", "disk1", "--output=json"]);
    assert_eq!(
        json,
        r#"[
  {
    "disk": "disk1",
    "index": 0,
    "address": "tcp://[::1]:4420",
    "transport": "tcp",
    "origin": "configured",
    "state": "live",
    "since": "2026-11-21T07:00:00.123Z",
    "waits_for": [],
    "last_error": null,
    "last_error_at": null,
    "ana_state": "non-optimized",
    "resting": false,
    "suspect": true,
    "suspicions": 1,
    "recalled": 7,
    "probes": 0,
    "hedges": 0,
    "hedges_won": 0,
    "fenced": 0,
    "cntlid": 1,
    "controller": {
      "model": "Made-up Controller",
      "serial": "0042",
      "firmware": "7.1",
      "kato_ms": 5000,
      "max_transfer_bytes": 1048576,
      "queue_depth": 127,
      "volatile_write_cache": true,
      "fence_ms": 11000
    },
    "window": {
      "ios": 64,
      "bytes": 4194304
    },
    "io_share": 0.0,
    "io_share_1s": 0.0,
    "io_share_60s": 0.0,
    "read": {
      "ios": 0,
      "ios_1s": 0,
      "ios_60s": 0,
      "bytes": 0,
      "in_flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "estimate": {}
    },
    "write": {
      "ios": 0,
      "ios_1s": 0,
      "ios_60s": 0,
      "bytes": 0,
      "in_flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "estimate": {}
    },
    "other": {
      "ios": 0,
      "ios_1s": 0,
      "ios_60s": 0,
      "bytes": 0,
      "in_flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "estimate": {}
    },
    "injections": []
  }
]
"#
    );
}

#[test]
fn path_show() {
    let daemon = Daemon::start();
    daemon.run(&["path", "drain", "0", "--disk", "disk0"]);
    assert_eq!(
        daemon.run(&["path", "show", "127.0.0.1:4420"]),
        "\
disk                  disk0
index                 0
address               tcp://127.0.0.1:4420
origin                configured
state                 draining
since                 2026-11-21T07:00:00.123Z
waits for             I/Os in flight, the guest's next flush
ANA state             optimized
controller (cntlid)   1
model                 Made-up Controller
serial                0042
firmware              7.1
KATO (ms)             5000
MDTS (B)              1048576
volatile write cache  yes
queue depth           127
fence (ms)            11000
window (I/Os)         64
window (B)            4194304
injected              -
share, 1 s (%)        100.0
share, 1 min (%)      75.0
share, all (%)        90.0
resting               no
suspect               no
suspicions            0
recalled              0
probes                0
hedges                0
hedges won            0
fenced                0
last error            -
last error at         -

CLASS     IOS       BYTES  BUSY  ERRS  RETRIES  P50(us)  P99(us)  P99.9(us)  MAX(us)
read   900000  3686400000     2     1        1      210      630       1470     4200
write       0           0     2     1        1       95      285        665     1900
other       0           0     0     0        0        -        -          -        -

CLASS  WEIGHT  EST(ms)  WINDOW(KiB)  AGE  IGNORED  CKPTS  CKPT-IOS  CKPT-AVG(ms)
read        -    0.210            -    3   450000      1       100         0.210
write       -    0.095            -    3        0      1       100         0.096
other       -        -            -    -        -      -         -             -
"
    );
    let json = daemon.run(&["path", "show", "1", "-ojson"]);
    assert!(json.contains("\"last_error_at\": \"2026-11-21T07:00:01.000Z\""), "{json}");
    assert_eq!(daemon.run(&["path", "show", "all"]).lines().filter(|line| line.starts_with("disk ")).count(), 3);
}

#[test]
fn a_path_over_mptcp_shows_its_subflows_and_that_it_has_fallen_back() {
    let daemon = Daemon::start();
    let address = "mptcp://10.77.0.2:4420?host-traddr=10.77.0.1";
    let listed = daemon.run(&["path", "add", address, "--disk", "disk0"]);
    assert!(listed.contains(&format!("{address}  connecting (plain TCP)")), "{listed}");
    let note =
        format!("disk0 path 2 ({address}): plain TCP, as the target or something on the way to it has no MPTCP\n");
    assert!(listed.ends_with(&note), "{listed}");
    let shown = daemon.run(&["path", "show", address]);
    for row in ["MPTCP connections     2\n", "fallen back to TCP    1\n", "subflows              1\n"] {
        assert!(shown.contains(row), "{shown}");
    }
    let subflows = "\
QUEUE  LOCAL            REMOTE          STATE                    RTT(us)  CWND  MSS(B)  SENT(B)  RECEIVED(B)  AGAIN(B)  LOST
    0  10.77.0.1:40000  10.77.0.2:4420  established                  250    12    1448     1000         2000         3     4
    0  10.77.1.1:40000  10.77.1.2:4420  closing (backup)             250    12    1448     1000         2000         3     4
    1  10.77.0.1:40000  10.77.0.2:4420  established (plain TCP)      250    12    1448     1000         2000         3     4
";
    assert!(shown.ends_with(subflows), "{shown}");
}

#[test]
fn paths_are_taken_out_and_back() {
    let daemon = Daemon::start();
    let states = |args: &[&str]| -> Vec<String> {
        let table = daemon.run(args);
        table
            .lines()
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(|l| l.split_whitespace().nth(3).unwrap().into())
            .collect()
    };
    assert_eq!(states(&["path", "disable", "tcp://127.0.0.1:4421"]), ["draining"]);
    assert_eq!(states(&["path", "drain", "all", "--disk=disk0"]), ["draining", "draining"]);
    assert_eq!(states(&["path", "enable", "0"]), ["live", "live/non-optimized"]);
    assert_eq!(states(&["path", "disable", "0", "--disk", "disk1", "--force"]), ["draining/non-optimized"]);
    for (args, message) in [
        (
            &["path", "drain", "[::1]"][..],
            "disk `disk1` would have no usable path left and its I/O would wait; enable another path first, or say --force",
        ),
        (&["path", "reset", "1"], "path 1 of disk `disk0` is disabled and cannot be reset"),
    ] {
        assert_eq!(daemon.fail(args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
}

#[test]
fn events() {
    let daemon = Daemon::start();
    let table = "\
SEQ  TIME(UTC)                 DISK   PATH                  EVENT                WHAT
  1  2026-11-21T07:00:01.000Z  disk0  tcp://127.0.0.1:4421  path-live            path live: controller 2, optimized
  2  2026-11-21T07:00:02.000Z  disk0  -                     front-end-connected  front-end connected
";
    assert_eq!(daemon.run(&["events"]), table);
    assert_eq!(daemon.run(&["events", "--since", "1"]).lines().count(), 2);
    assert_eq!(daemon.run(&["events", "--disk", "disk1"]).lines().count(), 1);
    assert!(daemon.run(&["events", "-o", "json"]).starts_with("[\n  {\n    \"seq\": 1,"));
    assert_eq!(daemon.fail(&["events", "--disk", "disk9"]).0, 1);

    let (code, stdout, stderr) = finish(&mut daemon.command(&["events", "--follow", "-o", "json"]));
    let lines: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 5]);
    assert_eq!(lines[0]["path"]["address"], "tcp://127.0.0.1:4421");
    // What was missed is told beside the events, and the end of the daemon is one.
    assert_eq!(code, 1);
    assert_eq!(
        stderr,
        "mpathctl: 2 older events are not kept any more\nmpathctl: the daemon is ending, or this disk is being removed\n"
    );
    let (_, stdout, _) = finish(&mut daemon.command(&["events", "-f", "--since", "2"]));
    assert_eq!(stdout, "5  2026-11-21T07:00:05.000Z  disk0  -  policy-set  policy set to numa\n");
}

#[test]
fn policy() {
    let daemon = Daemon::start();
    assert_eq!(daemon.run(&["policy", "get"]), "DISK   POLICY\ndisk0  round-robin\ndisk1  latency-rr\n");
    assert_eq!(daemon.run(&["policy", "set", "latency-rr"]), "DISK   POLICY\ndisk0  latency-rr\ndisk1  latency-rr\n");
    assert_eq!(daemon.run(&["policy", "set", "queue-depth", "--disk", "disk1"]), "DISK   POLICY\ndisk1  queue-depth\n");
    assert_eq!(
        daemon.run(&["policy", "get", "-oyaml"]),
        "- disk: disk0\n  policy: latency-rr\n- disk: disk1\n  policy: queue-depth\n"
    );
    let set = ["policy", "set", "latency-rr", "--disk", "disk1", "--param", "threshold=2", "--class", "read"];
    let shown = "DISK   POLICY\ndisk1  read: latency-rr threshold=2, write: queue-depth\n";
    assert_eq!(daemon.run(&set), shown);
    assert_eq!(daemon.run(&["policy", "get", "--disk", "disk1"]), shown);
    daemon.run(&["policy", "set", "queue-depth", "--disk", "disk1"]);
    let list = daemon.run(&["policy", "list"]);
    let cells: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(
        cells,
        [
            ["POLICY", "ACTIVE"],
            ["numa", "-"],
            ["round-robin", "-"],
            ["queue-depth", "disk1"],
            ["adaptive", "-"],
            ["pid", "-"],
            ["latency", "-"],
            ["latency-rr", "disk0"],
            ["service-time", "-"],
            ["bdp", "-"]
        ]
    );
}

#[test]
fn hedge() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["hedge", "show"]),
        "\
DISK   HEDGE  BUDGET  READS  SENT  WON
disk0  off        5%   9000    70   41
disk1  off        5%      0     0    0
"
    );
    let set = ["hedge", "set", "p99.5", "--budget", "0.5%", "--disk", "disk1"];
    let disk1 = "DISK   HEDGE  BUDGET  READS  SENT  WON\ndisk1  p99.5    0.5%      0     0    0\n";
    assert_eq!(daemon.run(&set), disk1);
    assert_eq!(daemon.run(&["hedge", "show", "--disk", "disk1"]), disk1);
    let budget = daemon.run(&["hedge", "set", "--budget", "1%", "--disk", "disk1"]);
    assert!(budget.contains("\ndisk1  p99.5      1% "), "{budget}");
    assert!(daemon.run(&set).contains("0.5%"));
    let json = daemon.run(&["hedge", "set", "p95", "-ojson"]);
    assert!(json.contains("\"hedge\": \"p95\"") && json.contains("\"budget\": \"0.5%\""), "{json}");
    for (words, said) in [
        (
            &["hedge", "set", "p30"][..],
            "invalid value 'p30' for '[HEDGE]': `p30` is not off or a quantile from p50 to p99.9; write it as p95 or p99.5",
        ),
        (&["hedge", "set"], "the following required arguments were not provided: <HEDGE>; see --help"),
        (
            &["hedge", "set", "p95", "--budget", "7%"],
            "invalid value '7%' for '--budget <PERCENT>': `7%` is not a share of the reads from 0.1% to 5%; write it as 5% or 0.5%",
        ),
    ] {
        let (code, stdout, stderr) = finish(&mut mpathctl(words));
        assert_eq!((code, &*stdout, &*stderr), (2, "", &*format!("mpathctl: {said}\n")));
    }
}

#[test]
fn scheduler() {
    let daemon = Daemon::start();
    let columns: Vec<Vec<String>> = daemon
        .run(&["scheduler", "list"])
        .lines()
        .map(|line| line.split_whitespace().take(3).map(Into::into).collect())
        .collect();
    assert_eq!(
        columns,
        [
            ["SCHEDULER", "ACTIVE", "ON"],
            ["fifo", "disk1", "-"],
            ["burst-credit", "-", "credit"],
            ["burst-credit-drr", "disk0", "rho,share,gap,budget,io-cost"]
        ]
    );
    assert_eq!(daemon.run(&["scheduler", "get"]), "DISK   SCHEDULER\ndisk0  burst-credit-drr rho=0.5\ndisk1  fifo\n");
    let shown = daemon.run(&["scheduler", "show", "--disk", "disk0"]);
    assert!(shown.starts_with("disk0, weight 100: burst-credit-drr: "), "{shown}");
    let rho: Vec<_> = shown.lines().find(|line| line.starts_with("rho")).unwrap().split_whitespace().take(6).collect();
    assert_eq!(rho, ["rho", "0.5", "0.75", "ratio", "0", "to"]);
    let queues = "
QUEUE  TIER    CREDIT  QUEUED  IN-FLIGHT  SERVED  MiB  WAIT-P50(ms)  WAIT-P99(ms)
    0  normal       0      32         13    1000    4          0.25          0.75
    3  first       17       0         13    1000    4             -             -
";
    assert!(shown.ends_with(queues), "{shown}");
    let set = ["scheduler", "set", "burst-credit-drr", "--param", "share=0.5", "--disk", "disk0"];
    assert_eq!(daemon.run(&set), "DISK   SCHEDULER\ndisk0  burst-credit-drr rho=0.5 share=0.5\n");
    assert_eq!(daemon.run(&["scheduler", "set", "fifo"]), "DISK   SCHEDULER\ndisk0  fifo\ndisk1  fifo\n");
    for (words, part) in [
        (&["scheduler", "set", "cfq"][..], "unknown scheduler 'cfq', expected one of: fifo, burst-credit"),
        (&["scheduler", "set", "fifo", "--param", "rho"], "a parameter is NAME=VALUE"),
    ] {
        let (code, stdout, stderr) = finish(&mut mpathctl(words));
        assert!((code, &*stdout) == (2, "") && stderr.contains(part), "{stderr}");
    }
}

#[test]
fn limit() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["limit", "show"]),
        "\
DISK   IOPS  BANDWIDTH   BURST  LEFT(ios)  LEFT(KiB)  THROTTLED(ms)
disk0   off     100MiB  1000ms          -        -64           1234
disk1   off        off  1000ms          -          -              0
"
    );
    let json = daemon.run(&["limit", "set", "--iops", "5000", "--burst", "2s", "--disk", "disk1", "-ojson"]);
    for part in ["\"iops\": 5000", "\"bandwidth\": \"off\"", "\"burst\": \"2000ms\""] {
        assert!(json.contains(part), "{json}");
    }
    let set = ["limit", "set", "--bandwidth", "10000", "--disk", "disk1"];
    assert!(daemon.run(&set).contains("\ndisk1  5000      10000  2000ms"));
    let cleared = daemon.run(&["limit", "clear"]);
    assert!(
        cleared.contains("\ndisk0   off        off  1000ms") && cleared.contains("\ndisk1   off        off  2000ms")
    );
    for (words, part) in [
        (&["limit", "set"][..], "--iops"),
        (&["limit", "set", "--iops", "0"], "`0` is not off or a number of requests per second from 1 to 1000000000"),
        (&["limit", "set", "--bandwidth", "1MB"], "`1MB` is not off or a number of bytes per second from 4KiB to 1TiB"),
        (&["limit", "set", "--burst", "1h"], "`1h` is not a time from 0ms to 3600000ms"),
    ] {
        let (code, stdout, stderr) = finish(&mut mpathctl(words));
        assert!((code, &*stdout) == (2, "") && stderr.contains(part), "{stderr}");
    }
}

#[test]
fn policy_show() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["policy", "show", "--disk", "disk0"]),
        "\
disk0, all requests: round-robin: each path in turn

CLASS  #  ADDRESS               STATE  1S(%)  1M(%)  WEIGHT  EST(ms)  WINDOW(KiB)  AGE  IGNORED  CKPTS  CKPT-IOS  CKPT-AVG(ms)
read   0  tcp://127.0.0.1:4420  live   100.0   75.0       -    0.210            -    3   450000      1       100         0.210
read   1  tcp://127.0.0.1:4421  lost     0.0   25.0       -   30.417            -    3    50000      1       100        30.418
write  0  tcp://127.0.0.1:4420  live     0.0    0.0       -    0.095            -    3        0      1       100         0.096
write  1  tcp://127.0.0.1:4421  lost     0.0    0.0       -        -            -    -        -      -         -             -
other  0  tcp://127.0.0.1:4420  live     0.0    0.0       -        -            -    -        -      -         -             -
other  1  tcp://127.0.0.1:4421  lost     0.0    0.0       -        -            -    -        -      -         -             -
"
    );
    daemon.run(&["policy", "set", "adaptive", "--class", "write", "--param", "interval=1s", "--disk", "disk0"]);
    let shown = daemon.run(&["policy", "show", "--disk", "disk0"]);
    let start = "\
disk0, read requests: round-robin: each path in turn

disk0, write requests: adaptive: turns in inverse proportion to smoothed latency

PARAMETER  VALUE  DEFAULT  UNIT  RANGE         WHAT IT DOES
interval   1s     15s      time  10ms to 300s  how often weights are made anew
shift      3      3        bits  0 to 8        k: an interval counts 1/2^k in the smoothed latency
credits    64     64       I/Os  2 to 4096     the sum of all weights: how long a round over the paths is

CLASS  #  ADDRESS ";
    assert_eq!(shown.get(..start.len()), Some(start), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["policy", "show", "-o", "json"])).unwrap();
    let interval = &json[0]["policies"][1]["params"][0];
    assert_eq!((&interval["name"], &interval["value"]), (&"interval".into(), &"1s".into()));
    let path = &json[0]["paths"][1];
    assert_eq!((&path["latency_us"], &path["age"], path.get("weight")), (&30_417.0.into(), &3.into(), None));
    assert_eq!((&path["share_1s"], &path["share_60s"]), (&0.0.into(), &0.25.into()));
}

#[test]
fn inject() {
    let daemon = Daemon::start();
    assert_eq!(daemon.run(&["inject", "list"]), NO_INJECTION);
    assert_eq!(daemon.run(&["inject", "set", "tcp://127.0.0.1:4421", "--latency", "30ms"]), INJECTED);
    assert_eq!(daemon.run(&["inject", "set", "127.0.0.1:4421", "--latency=0.03s"]), INJECTED);
    assert_eq!(daemon.run(&["inject", "set", "1", "--latency", "30000us"]), INJECTED);
    assert_eq!(daemon.run(&["inject", "list"]), INJECTED);
    assert_eq!(
        daemon.run(&["inject", "list", "-o", "json"]),
        r#"[
  {
    "disk": "disk0",
    "index": 1,
    "address": "tcp://127.0.0.1:4421",
    "injection": {
      "direction": "request",
      "latency_us": 30000,
      "stall": false,
      "seed": 0
    }
  }
]
"#
    );
    assert!(daemon.run(&["path", "list"]).lines().nth(2).unwrap().ends_with(" latency 30ms"));
    assert_eq!(daemon.run(&["inject", "list", "--disk", "disk1"]), NO_INJECTION);
    assert_eq!(daemon.run(&["inject", "clear", "0"]), NONE_CLEARED);
    assert_eq!(daemon.run(&["inject", "clear", "1"]), CLEARED);
    assert_eq!(daemon.run(&["inject", "set", "all", "--latency", "1ms"]).lines().count(), 4);
    assert_eq!(daemon.run(&["inject", "clear", "--disk", "disk0"]).lines().count(), 3);
    assert_eq!(daemon.run(&["inject", "clear"]).lines().count(), 2);
    assert_eq!(daemon.run(&["inject", "list"]), NO_INJECTION);
}

#[test]
fn inject_everything() {
    let daemon = Daemon::start();
    let set = |options: &str| {
        let args: Vec<&str> = ["inject", "set", "1"].into_iter().chain(options.split(' ')).collect();
        daemon.run(&args).lines().last().unwrap().to_owned()
    };
    let all = "--latency 30ms --jitter 5ms --distribution normal --rate 100MiB --error-rate 1% --status internal-error \
               --class write --direction response --seed 7";
    let shown = "latency 30ms, jitter 5ms normal, rate 104857600 B/s, errors 1% internal-error";
    assert!(set(all).ends_with(&format!(" write  response      7  {shown}")), "{}", set(all));
    assert!(set("--stall --class read").ends_with(" read   request       0  stall"));
    let listed = daemon.run(&["inject", "list"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let json = daemon.run(&["inject", "list", "-o", "json"]);
    for part in [
        "\"seed\": 7",
        "\"rate\": 104857600",
        "\"error_ppm\": 10000",
        "\"distribution\": \"normal\"",
        "\"stall\": true",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    assert!(daemon.run(&["inject", "list", "-o", "yaml"]).contains("status: internal-error"));
    assert!(daemon.run(&["path", "list"]).contains(&format!("write: {shown}; read: stall")));
    assert!(set("--error-rate 0.5").ends_with("errors 50% path-error"));
    assert_eq!(
        daemon.run(&["inject", "list"]).lines().count(),
        2,
        "one for all classes takes the place of every other"
    );
    assert_eq!(daemon.run(&["inject", "clear"]).lines().count(), 2);
    assert_eq!(daemon.run(&["inject", "list"]), NO_INJECTION);
}

#[test]
fn the_daemon_refuses_with_1() {
    let daemon = Daemon::start();
    for (args, message) in [
        (&["path", "list", "--disk", "disk9"][..], "no disk is named `disk9`; `mpathctl status` shows them"),
        (&["policy", "get", "--disk", "a b&c=d"], "no disk is named `a b&c=d`; `mpathctl status` shows them"),
        (&["policy", "set", "numa", "--param", "gain=1"], "policy 'numa' has no parameter 'gain'; it has none"),
        (&["policy", "set", "numa", "--disk", "\u{e4}"], "no disk is named `\u{e4}`; `mpathctl status` shows them"),
        (&["inject", "set", "7", "--latency", "1ms"], "no path is `7`; `mpathctl path list` shows them"),
        (
            &["inject", "set", "1", "--latency", "1ms", "--disk", "disk1"],
            "no path is `1`; `mpathctl path list` shows them",
        ),
        (&["inject", "clear", "10.0.0.1"], "no path is `tcp://10.0.0.1:4420`; `mpathctl path list` shows them"),
    ] {
        assert_eq!(daemon.fail(args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
}

#[test]
fn bad_values_are_one_line_and_2() {
    let daemon = Daemon::start();
    for (args, parts) in [
        (&["policy", "set", "fastest"][..], &["fastest", "latency-rr"][..]),
        (&["policy", "set", "latency-rr", "--param", "threshold"], &["--param", "NAME=VALUE"]),
        (&["policy", "set", "numa", "--class", "flush"], &["--class", "flush", "read, write"]),
        (&["inject", "set", "1", "--latency", "30"], &["'30'", "unit"]),
        (&["inject", "set", "1", "--latency", "1\n2"], &["'1 2'"]),
        (&["inject", "set", "1", "--latency", "0ms"], &["1us to 60s"]),
        (&["inject", "set", "1", "--latency", "2min"], &["1us to 60s"]),
        (&["inject", "set", "1", "--rate", "1MB"], &["--rate", "64KiB to 100GiB"]),
        (&["inject", "set", "1", "--error-rate", "101%"], &["--error-rate", "0.0001% to 100%"]),
        (&["inject", "set", "1", "--error-rate", "1%", "--status", "x"], &["--status", "give one of: path-error"]),
        (&["inject", "set", "1", "--stall", "--class", "flush"], &["--class", "read, write, other"]),
        (&["inject", "set", "1", "--latency", "1ms", "--status", "path-error"], &["give an error rate"]),
        (&["inject", "set", "1", "--latency", "1ms", "--distribution", "normal"], &["give a jitter"]),
        (&["inject", "set", "1", "--latency", "1ms", "--stall"], &["leave latency"]),
        (&["inject", "set", "rdma://h", "--latency", "1ms"], &["unknown transport `rdma`"]),
        (&["inject", "clear", "h:0"], &["`0` is no port"]),
        (&["inject", "clear", "-1"], &["`-1` is no index of a path"]),
        (&["path", "remove", "-1"], &["`-1` is no index of a path", "`path list`"]),
        (&["path", "drain", "00"], &["`00` is no index of a path"]),
        (&["path", "drain", "+1"], &["`+1` is no index of a path"]),
        (&["path", "show", ""], &["names no path", "`all`"]),
        (&["path", "add", "", "--disk", "disk0"], &["tcp://HOST:PORT"]),
        (&["events", "--since", "x"], &["'x'", "--since", "number of an event"]),
        (&["events", "--since", "-1"], &["'-1'", "--since", "number of an event"]),
        (&["status", "-o", "xml"], &["xml", "table, json, yaml"]),
    ] {
        let (code, stderr) = daemon.fail(args);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("mpathctl: ") && parts.iter().all(|part| stderr.contains(part)), "{stderr}");
    }
    // A command line without anything gets the help.
    for args in [&[][..], &["policy"]] {
        let (code, stderr) = daemon.fail(args);
        assert!(code == 2 && stderr.contains("\nUsage: mpathctl"), "{args:?}: {code}: {stderr}");
    }
    for args in [&["paths"][..], &["inject", "set", "1"], &["policy", "set"], &["status", "--json"]] {
        let (code, stderr) = daemon.fail(args);
        assert_eq!((code, stderr.lines().count()), (2, 1), "{args:?}: {stderr}");
        assert!(stderr.starts_with("mpathctl: ") && stderr.ends_with("; see --help\n"), "{args:?}: {stderr}");
    }
}

#[test]
fn an_unreachable_daemon_is_3() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let name = path.to_str().unwrap();
    let fail = || {
        let (code, stdout, stderr) = finish(&mut mpathctl(&["--api", name, "policy", "get"]));
        assert_eq!(stdout, "");
        (code, stderr)
    };
    let not_running =
        format!("mpathctl: no vhost-blk-mpath is running at {name}; name its API socket with --api or MPATH_API\n");

    assert_eq!(fail(), (3, not_running.clone()));
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(fail(), (3, not_running));
    fs::remove_file(&path).unwrap();

    // Something that listens and is no daemon.
    let listener = UnixListener::bind(&path).unwrap();
    let stranger = |answer: &'static [u8]| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        })
    };
    for (answer, part) in [
        (&b""[..], "broke off"),
        (b"SSH-2.0-OpenSSH\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[", "broke off"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "does not understand"),
        (b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nhi", "answered (HTTP 500)"),
    ] {
        let thread = stranger(answer);
        let (code, stderr) = fail();
        thread.join().unwrap();
        assert_eq!((code, stderr.lines().count()), (3, 1), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn the_flag_wins_over_the_environment() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let mut command = mpathctl(&["status", "--api", socket.to_str().unwrap()]);
    assert_eq!(finish(command.env("MPATH_API", "/nowhere")).0, 0);
    let (code, _, stderr) = finish(&mut daemon.command(&["--api", "/nowhere", "status"]));
    assert!(code == 3 && stderr.contains("/nowhere"), "{stderr}");
}

#[test]
fn an_empty_variable_is_none() {
    let daemon = Daemon::start();
    let socket = daemon.socket();
    let mut command = mpathctl(&["status", "--api", socket.to_str().unwrap()]);
    assert_eq!(finish(command.env("MPATH_API", "")).0, 0);
    let (code, _, stderr) = finish(mpathctl(&["status"]).env("MPATH_API", ""));
    // Whether a daemon runs here or not, it is the usual socket that was asked.
    assert!(code == 0 || stderr.contains(mpath_api::DEFAULT_API_SOCKET), "{code}: {stderr}");
}

#[test]
fn help_and_version() {
    let (code, help, _) = finish(&mut mpathctl(&["--help"]));
    assert_eq!(code, 0);
    for part in ["/run/vhost-blk-mpath/api.sock", "MPATH_API", "Exit codes:", "policy", "inject"] {
        assert!(help.contains(part), "{part}\n{help}");
    }
    let version = concat!("mpathctl ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(finish(&mut mpathctl(&["--version"])), (0, version.into(), String::new()));
}

#[test]
fn a_closed_pipe_is_no_error_and_a_full_device_is() {
    let daemon = Daemon::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = daemon.command(&["path", "list"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));

    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = daemon.command(&["path", "list"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr, "mpathctl: cannot write the output: No space left on device (os error 28)\n");
}

#[test]
fn garbage_leaves_the_daemon_answering() {
    let daemon = Daemon::start();
    let connect = || UnixStream::connect(daemon.socket()).unwrap();
    // Whatever the server does with these, a write may fail because it has closed.
    let send = |bytes: &[u8]| {
        let mut stream = connect();
        let _ = stream.write_all(bytes);
        stream
    };
    let mut open = Vec::new();
    open.push(send(b"GET /v1/sta"));
    open.push(send(b"PUT /v1/policy HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{\"policy\""));
    let mut large = b"PUT /v1/policy HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n".to_vec();
    large.resize(large.len() + (1 << 20), b' ');
    open.push(send(&large));
    open.push(send(&vec![0xa5; 1 << 20]));
    for _ in 0..200 {
        open.push(connect());
    }
    assert_eq!(daemon.run(&["policy", "set", "numa"]), "DISK   POLICY\ndisk0  numa\ndisk1  numa\n");
    drop(open);
    assert_eq!(daemon.run(&["policy", "get", "--disk", "disk0"]), "DISK   POLICY\ndisk0  numa\n");
}

#[test]
fn paths_are_added_and_removed() {
    let daemon = Daemon::start();
    let row = |table: String, nth: usize| -> Vec<String> {
        table.lines().nth(nth).unwrap_or_default().split_whitespace().map(Into::into).collect()
    };
    let added = row(daemon.run(&["path", "add", "--disk", "disk0", "tcp://127.0.0.1:4422"]), 1);
    assert_eq!(added[..4], ["disk0", "2", "tcp://127.0.0.1:4422", "connecting"]);
    let json = daemon.run(&["path", "list", "-o", "json", "--disk", "disk0"]);
    assert!(json.contains(r#""origin": "operator""#), "{json}");

    let removing = row(daemon.run(&["path", "remove", "tcp://127.0.0.1:4421"]), 1);
    assert_eq!(removing[..4], ["disk0", "1", "tcp://127.0.0.1:4421", "removing"]);
    let shown = daemon.run(&["path", "show", "127.0.0.1:4421"]);
    assert!(shown.contains("waits for             the fence"), "{shown}");
    // What is gone at once is not shown any more.
    assert_eq!(daemon.run(&["path", "remove", "2", "--force", "-o", "json"]), "[]\n");
    assert_eq!(daemon.run(&["path", "remove", "[::1]", "--disk", "disk1", "--force", "-o", "json"]), "[]\n");
    assert_eq!(daemon.run(&["path", "list", "--disk", "disk1", "-o", "json"]), "[]\n", "a disk without paths");

    let daemon = Daemon::start();
    for (args, code, part) in [
        (&["path", "add", "tcp://127.0.0.1:4422"][..], 2, "there are several disks; name one with --disk"),
        (&["path", "add", "127.0.0.1:4422", "--disk", "disk0"], 2, "127.0.0.1:4422"),
        (
            &["path", "add", "tcp://127.0.0.1:4420", "--disk", "disk0"],
            1,
            "has a path to tcp://127.0.0.1:4420 already: path 0, live",
        ),
        (&["path", "remove", "9"], 1, "no path is `9`"),
        (&["path", "remove", "[::1]"], 1, "would have no usable path left"),
        (&["path", "remove", "0", "--disk", "x"], 1, "no disk is named `x`"),
    ] {
        let (exit, stderr) = daemon.fail(args);
        assert!(exit == code && stderr.contains(part) && stderr.lines().count() == 1, "{args:?}: {exit} {stderr}");
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
        "- disk: disk1\n  weight: 100\n  shares_paths_of: null\n"
    );
    assert!(
        daemon
            .run(&["scheduler", "show", "--disk", "backup"])
            .starts_with("backup, weight 10, over the paths of disk0: ")
    );
    for (args, code, part) in [
        (&["weight", "set", "10"][..], 2, "there are several disks; name one with --disk"),
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

DISK    GUEST      POLICY       LIVE       PATHS  QUEUED  SIZE(MiB)  BLOCK(B)  MODE  SOCKET
disk0   connected  round-robin     1           2       0       1024       512  rw    /run/vhost-blk-mpath/disk0.sock
disk1   -          latency-rr      1           1       0       1024       512  ro    /run/vhost-blk-mpath/disk1.sock
backup  -          round-robin     1  2 of disk0       0       1024       512  rw    /run/vhost-blk-mpath/backup.sock
"
    );
    let list = daemon.run(&["path", "list"]);
    let notes = "
disk0 path 0 (tcp://127.0.0.1:4420) for backup: non-optimized
disk0 path 1 (tcp://127.0.0.1:4421): Connection refused (os error 111)
disk0 path 1 (tcp://127.0.0.1:4421) for backup: there is no namespace 2
the paths of disk0 are also those of backup
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
    let shown = serde_json::json!([{"disk": "backup", "ana_state": "non-optimized", "error": null}]);
    assert_eq!((&json[0]["sharers"], json[2].get("sharers")), (&shown, None));

    // Tables of what belongs to paths list who has them.
    assert_eq!(daemon.run(&["policy", "get"]), "DISK   POLICY\ndisk0  round-robin\ndisk1  latency-rr\n");
    assert_eq!(daemon.run(&["hedge", "show"]).lines().count(), 3);
    assert_eq!(daemon.run(&["scheduler", "get"]).lines().count(), 3);
    assert_eq!(daemon.run(&["limit", "show"]).lines().count(), 4);
    let message =
        "disk `backup` uses the paths of `disk0`, and with them its policy, scheduler and hedging: name `disk0`";
    for args in [
        &["policy", "set", "numa"][..],
        &["policy", "get"],
        &["policy", "show"],
        &["hedge", "set", "p95"],
        &["hedge", "show"],
        &["scheduler", "set", "fifo"],
        &["scheduler", "get"],
        &["path", "list"],
        &["path", "show", "0"],
        &["path", "drain", "0"],
        &["path", "add", "tcp://127.0.0.1:4422"],
        &["path", "remove", "0"],
        &["inject", "set", "0", "--latency", "1ms"],
        &["inject", "clear"],
        &["inject", "list"],
        &["discovery", "list"],
    ] {
        let args = [args, &["--disk", "backup"]].concat();
        assert_eq!(daemon.fail(&args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
    // What belongs to each disk is that disk's.
    assert_eq!(daemon.run(&["events", "--disk", "backup"]).lines().count(), 1);
    assert!(daemon.run(&["limit", "set", "--iops", "500", "--disk", "backup"]).contains("\nbackup   500 "));
    assert_eq!(daemon.run(&["limit", "show"]).matches(" 500 ").count(), 1);
}

#[test]
fn the_only_disk_with_paths_need_not_be_named() {
    let daemon = Daemon::start_sharing_alone();
    let added = daemon.run(&["path", "add", "tcp://127.0.0.1:4422"]);
    assert!(added.contains("\ndisk0  2  tcp://127.0.0.1:4422  connecting"), "{added}");
    // A weight is that of any disk.
    let (code, stderr) = daemon.fail(&["weight", "set", "10"]);
    assert!(code == 2 && stderr.contains("there are several disks"), "{stderr}");
}
