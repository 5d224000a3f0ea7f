//! Paths.

use crate::daemon::Daemon;
use crate::fake::Fake;

#[test]
fn a_note_on_several_paths_of_a_disk_is_said_once() {
    let fake = Fake::new();
    {
        let mut paths = fake.paths.lock().unwrap();
        let unusable = paths[1].unusable.clone();
        (paths[0].unusable, paths[2].unusable) = (unusable.clone(), unusable);
    }
    let list = Daemon::start_with(fake).run(&["path", "list"]);
    let notes = "
disk0 paths 0 (tcp://127.0.0.1:4420), 1 (tcp://127.0.0.1:4421): lost: Connection refused (os error 111)
disk1 path 0 (tcp://[::1]:4420): lost: Connection refused (os error 111)
";
    assert!(list.ends_with(notes), "{list}");
}

#[test]
fn path_list() {
    let daemon = Daemon::start();
    let table = daemon.run(&["path", "list"]);
    assert_eq!(
        table,
        "\
DISK   #  ADDRESS               STATE                         1S(%)  1M(%)  SHARE(%)     IOS  BUSY  ERRS  RD50(us)  RD99(us)  WR50(us)  WR99(us)  INJECTION
disk0  0  tcp://127.0.0.1:4420  live                          100.0   75.0      90.0  900000     4     2       420      1260       190       570  -
disk0  1  tcp://127.0.0.1:4421  lost                            0.0   25.0      10.0  100000     2     1     60834    182502         -         -  -
disk1  0  tcp://[::1]:4420      live/non-optimized (suspect)    0.0    0.0       0.0       0     0     0         -         -         -         -  -

disk0 path 1 (tcp://127.0.0.1:4421): lost: Connection refused (os error 111)
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
    "tls-suite": null,
    "authentication": null,
    "origin": "configured",
    "state": "live",
    "since": "2026-11-21T07:00:00.123Z",
    "waits-for": [],
    "unusable": null,
    "losses": 0,
    "losses-1h": 0,
    "reconnects": 0,
    "last-error": null,
    "last-error-at": null,
    "ana-state": "non-optimized",
    "resting": false,
    "suspect": true,
    "suspicions": 1,
    "recalled": 7,
    "probes": 0,
    "hedges": 0,
    "hedges-won": 0,
    "fenced": 0,
    "fence-left-ms": null,
    "unflushed": false,
    "cntlid": 1,
    "controller": {
      "model": "Made-up Controller",
      "serial": "0042",
      "firmware": "7.1",
      "keep-alive-tmo-ms": 5000,
      "max-transfer-bytes": 1048576,
      "queue-depth": 127,
      "volatile-write-cache": true,
      "fence-ms": 11000
    },
    "window": {
      "ios": 64,
      "bytes": 4194304
    },
    "io-share": 0.0,
    "io-share-1s": 0.0,
    "io-share-60s": 0.0,
    "read": {
      "ios": 0,
      "ios-1s": 0,
      "ios-60s": 0,
      "bytes": 0,
      "in-flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "latency-1s": null,
      "latency-60s": null,
      "estimate": {}
    },
    "write": {
      "ios": 0,
      "ios-1s": 0,
      "ios-60s": 0,
      "bytes": 0,
      "in-flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "latency-1s": null,
      "latency-60s": null,
      "estimate": {}
    },
    "other": {
      "ios": 0,
      "ios-1s": 0,
      "ios-60s": 0,
      "bytes": 0,
      "in-flight": 0,
      "errors": 0,
      "retries": 0,
      "latency": null,
      "latency-1s": null,
      "latency-60s": null,
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
waits for             I/Os in flight, a flush
ANA state             optimized
controller (cntlid)   1
TLS suite             off
authentication        -
model                 Made-up Controller
serial                0042
firmware              7.1
keep-alive-tmo (ms)   5000
max transfer (B)      1048576
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
fence left (s)        -
unflushed             no
usable                yes
losses                0
losses, 1 h           0
reconnects            0
last error            -
last error at         -

CLASS     IOS       BYTES  BUSY  ERRS  RETRIES
read   900000  3686400000     2     1        1
write       0           0     2     1        1
other       0           0     0     0        0

CLASS  PERIOD  P50(us)  P99(us)  P99.9(us)  MAX(us)
read   1 s         840     2520       5880    16800
read   1 min       420     1260       2940     8400
read   all         210      630       1470     4200
write  1 s           -        -          -        -
write  1 min       190      570       1330     3800
write  all          95      285        665     1900
other  1 s           -        -          -        -
other  1 min         -        -          -        -
other  all           -        -          -        -

CLASS  WEIGHT  EST(ms)  WINDOW(KiB)  AGE  IGNORED  CKPTS  CKPT-IOS  CKPT-AVG(ms)
read        -    0.210            -    3   450000      1       100         0.210
write       -    0.095            -    3        0      1       100         0.096
other       -        -            -    -        -      -         -             -
"
    );
    let json = daemon.run(&["path", "show", "1", "-ojson"]);
    assert!(json.contains("\"last-error-at\": \"2026-11-21T07:00:01.000Z\""), "{json}");
    assert_eq!(daemon.run(&["path", "show", "all"]).lines().filter(|line| line.starts_with("disk ")).count(), 3);
}

#[test]
fn a_path_over_mptcp_shows_its_subflows_and_its_fallback() {
    let daemon = Daemon::start();
    let address = "mptcp://10.77.0.2:4420?host-traddr=10.77.0.1";
    let listed = daemon.run(&["path", "add", address, "--disk", "disk0"]);
    assert!(listed.contains(&format!("{address}  connecting (plain TCP)")), "{listed}");
    let note =
        format!("disk0 path 2 ({address}): plain TCP, because the target or the network does not support MPTCP\n");
    assert!(listed.ends_with(&note), "{listed}");
    let shown = daemon.run(&["path", "show", address]);
    let suite = "TLS suite             TLS_AES_128_GCM_SHA256\n";
    for row in ["connections           2\n", "fallbacks to TCP      1\n", "subflows              2\n", suite] {
        assert!(shown.contains(row), "{shown}");
    }
    let subflows = "\
QUEUE  LOCAL            REMOTE          STATE                    RTT(us)  CWND  MSS(B)  SENT(B)  RECEIVED(B)  AGAIN(B)  AGAIN(SEGS)  LOST
    0  10.77.0.1:40000  10.77.0.2:4420  established                  250    12    1448     1000         2000         3            2     4
    0  10.77.1.1:40000  10.77.1.2:4420  closing (backup)             250    12    1448     1000         2000         3            2     4
    1  10.77.0.1:40000  10.77.0.2:4420  established (plain TCP)      250    12    1448     1000         2000         3            2     4
";
    assert!(shown.ends_with(subflows), "{shown}");
}

#[test]
fn a_path_over_tcp_shows_its_connections_and_what_the_kernel_knows_of_them() {
    let daemon = Daemon::start();
    daemon.run(&["path", "add", "tcp://10.77.0.2:4420", "--disk", "disk0"]);
    let shown = daemon.run(&["path", "show", "tcp://10.77.0.2:4420"]);
    assert!(shown.contains("connections           1\n") && !shown.contains("fallbacks"), "{shown}");
    let connections = "\
QUEUE  LOCAL            REMOTE          STATE        RTT(us)  CWND  MSS(B)  SENT(B)  RECEIVED(B)  AGAIN(B)  AGAIN(SEGS)  LOST
    0  10.77.0.1:40000  10.77.0.2:4420  established      250    12    1448        -            -         -            2     4
";
    assert!(shown.ends_with(connections), "{shown}");
}

#[test]
fn paths_are_drained_disabled_and_enabled() {
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
    assert_eq!(states(&["path", "enable", "0", "--all"]), ["live", "live/non-optimized"]);
    assert_eq!(states(&["path", "disable", "0", "--disk", "disk1", "--force"]), ["draining/non-optimized"]);
    assert_eq!(
        daemon.run(&["path", "reset", "0", "--disk", "disk0"]),
        "disk0 path 0 (tcp://127.0.0.1:4420) is being reset\n\
         `mpathctl path list` shows when the paths are live again\n"
    );
    for (args, message) in [
        (
            &["path", "drain", "[::1]"][..],
            "disk `disk1` would have no usable path left, and its I/O would wait; enable another path first, or use --force",
        ),
        (
            &["path", "reset", "1"],
            "cannot reset path 1 of disk `disk0`: it is disabled; connect it again with `mpathctl path enable`",
        ),
    ] {
        assert_eq!(daemon.fail(args), (1, format!("mpathctl: {message}\n")), "{args:?}");
    }
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
    // A path that is gone at once is not shown.
    assert_eq!(daemon.run(&["path", "remove", "2", "--force", "-o", "json"]), "[]\n");
    assert_eq!(daemon.run(&["path", "remove", "[::1]", "--disk", "disk1", "--force", "-o", "json"]), "[]\n");
    assert_eq!(daemon.run(&["path", "list", "--disk", "disk1", "-o", "json"]), "[]\n", "a disk without paths");

    // The last usable path of each disk stays, and the others are removed.
    let daemon = Daemon::start();
    let (code, table, said) = daemon.said(&["path", "remove", "all", "--all"]);
    let why =
        "would have no usable path left, and its I/O would wait; add or enable another path first, or use --force";
    let refused = format!(
        "mpathctl: disk0 path 0 (tcp://127.0.0.1:4420): disk `disk0` {why}\n\
         mpathctl: disk1 path 0 (tcp://[::1]:4420): disk `disk1` {why}\n"
    );
    assert_eq!((code, &said), (1, &refused));
    assert_eq!(row(table, 1)[..4], ["disk0", "1", "tcp://127.0.0.1:4421", "removing"]);
    let all = daemon.run(&["path", "remove", "all", "--all", "--force", "-o", "json"]);
    assert_eq!(all, "[]\n");
    // The answer is printed even if no path is removed.
    let daemon = Daemon::start();
    assert_eq!(daemon.run(&["path", "remove", "tcp://127.0.0.1:4421", "--force", "-o", "json"]), "[]\n");
    let (code, answer, errors) = daemon.said(&["path", "remove", "all", "--all", "-o", "json"]);
    assert_eq!((code, &*answer), (1, "[]\n"));
    let errors: Vec<serde_json::Value> = errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        errors.iter().map(|error| error["error"]["code"].as_str().unwrap()).collect::<Vec<_>>(),
        ["last-path"; 2]
    );

    let daemon = Daemon::start();
    for (args, code, part) in [
        (&["path", "add", "tcp://127.0.0.1:4422"][..], 2, "there are several disks; name one with --disk"),
        (&["path", "add", "127.0.0.1:4422", "--disk", "disk0"], 2, "127.0.0.1:4422"),
        (
            &["path", "add", "tcp://127.0.0.1:4420", "--disk", "disk0"],
            1,
            "cannot add path tcp://127.0.0.1:4420: disk `disk0` already has it as path 0, which is live",
        ),
        (
            &["path", "remove", "all"],
            2,
            "there are such paths of several disks; name one with --disk NAME, or give --all",
        ),
        (&["path", "drain", "0"], 2, "this changes 2 disks (disk0, disk1); name one"),
        (&["path", "remove", "9"], 1, "no path is `9`"),
        (&["path", "remove", "[::1]"], 1, "would have no usable path left"),
        (&["path", "remove", "0", "--disk", "x"], 1, "no disk is named `x`"),
    ] {
        let (exit, stderr) = daemon.fail(args);
        assert!(exit == code && stderr.contains(part) && stderr.lines().count() == 1, "{args:?}: {exit} {stderr}");
    }
}
