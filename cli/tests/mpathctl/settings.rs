//! Policies, hedging, schedulers and injections.

use crate::daemon::{Daemon, finish, mpathctl};

const INJECTED: &str = "\
DISK   #  ADDRESS               CLASS  DIRECTION  SEED  LEFT(s)  INJECTION
disk0  1  tcp://127.0.0.1:4421  all    request       0        -  latency 30ms
";

const NO_INJECTION: &str = "DISK  #  ADDRESS  CLASS  DIRECTION  SEED  LEFT(s)  INJECTION\n";
/// A cleared injection must not look as if it was in force.
const CLEARED: &str = "\
DISK   #  ADDRESS               CLASS  DIRECTION  SEED  LEFT(s)  WAS
disk0  1  tcp://127.0.0.1:4421  all    request       0        -  latency 30ms
";
const NONE_CLEARED: &str = "DISK  #  ADDRESS  CLASS  DIRECTION  SEED  LEFT(s)  WAS\n";

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
fn a_policy_is_set_for_all_disks_or_for_none() {
    let daemon = Daemon::start();
    let added =
        ["--name", "disk2", "--socket-path", "/run/2.sock", "--subsystem", "nqn.a", "--path", "tcp://192.0.2.1"];
    daemon.run(&[&["disk", "add"][..], &added].concat());
    let before = "DISK   POLICY\ndisk0  round-robin\ndisk1  latency-rr\ndisk2  bdp\n";
    assert_eq!(daemon.run(&["policy", "get"]), before);
    let (code, stderr) = daemon.fail(&["policy", "set", "latency-rr", "--param", "treshold=2"]);
    assert!(code == 2 && stderr.contains("no parameter 'treshold'"), "{stderr}");
    assert_eq!(daemon.run(&["policy", "get"]), before);
    let after = "DISK   POLICY\ndisk0  latency-rr\ndisk1  latency-rr\ndisk2  latency-rr\n";
    assert_eq!(daemon.run(&["policy", "set", "latency-rr"]), after);
    assert_eq!(daemon.run(&["policy", "get"]), after);
}

#[test]
fn settings_have_these_keys() {
    let daemon = Daemon::start();
    let keys = |words: &[&str]| {
        let yaml = daemon.run(&[words, &["--disk", "disk1", "-oyaml"]].concat());
        yaml.lines().map(|line| line[2..].split(':').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&["policy", "set", "numa"]), "disk policy");
    assert_eq!(keys(&["scheduler", "get"]), "disk scheduler");
    assert_eq!(keys(&["hedge", "show"]), "disk hedge hedge-budget hedgeable-reads hedges hedges-won");
    let limits = "disk iops bandwidth burst balance-ios balance-bytes throttled-ms";
    assert_eq!(keys(&["limit", "set", "--iops", "5"]), limits);
    assert_eq!(keys(&["weight", "list"]), "disk weight shares-paths-of");
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
    let set = ["hedge", "set", "p99.5", "--hedge-budget", "0.5%", "--disk", "disk1"];
    let disk1 = "DISK   HEDGE  BUDGET  READS  SENT  WON\ndisk1  p99.5    0.5%      0     0    0\n";
    assert_eq!(daemon.run(&set), disk1);
    assert_eq!(daemon.run(&["hedge", "show", "--disk", "disk1"]), disk1);
    let budget = daemon.run(&["hedge", "set", "--hedge-budget", "1%", "--disk", "disk1"]);
    assert!(budget.contains("\ndisk1  p99.5      1% "), "{budget}");
    assert!(daemon.run(&set).contains("0.5%"));
    let json = daemon.run(&["hedge", "set", "p95", "-ojson"]);
    assert!(json.contains("\"hedge\": \"p95\"") && json.contains("\"hedge-budget\": \"0.5%\""), "{json}");
    for (words, said) in [
        (
            &["hedge", "set", "p30"][..],
            "invalid value 'p30' for '[HEDGE]': `p30` is not off or a quantile from p50 to p99.9, such as p95 or p99.5",
        ),
        (&["hedge", "set"], "the following required arguments were not provided: <HEDGE>; see --help"),
        (
            &["hedge", "set", "p95", "--hedge-budget", "7%"],
            "invalid value '7%' for '--hedge-budget <PERCENT>': `7%` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%",
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
            ["burst-credit", "disk0", "burst,share,gap,io-cost"],
            ["published", "-", "-"],
            ["fifo", "disk1", "-"]
        ]
    );
    assert_eq!(daemon.run(&["scheduler", "get"]), "DISK   SCHEDULER\ndisk0  burst-credit gap=50ms\ndisk1  fifo\n");
    let shown = daemon.run(&["scheduler", "show", "--disk", "disk0"]);
    assert!(shown.starts_with("disk0, weight 100, bulk: burst-credit: "), "{shown}");
    let gap: Vec<_> = shown.lines().find(|line| line.starts_with("gap")).unwrap().split_whitespace().take(7).collect();
    assert_eq!(gap, ["gap", "50ms", "150ms", "time", "1ms", "to", "10s"]);
    let queues = "
QUEUE  TIER    CREDIT  QUEUED  IN-FLIGHT  SERVED  MiB  WAIT-P50(ms)  WAIT-P99(ms)
    0  bulk         0      32         13    1000    4          0.25          0.75
    3  sparse      17       0         13    1000    4             -             -
";
    assert!(shown.ends_with(queues), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["-ojson", "scheduler", "show"])).unwrap();
    let tiers = [&json[0]["tier"], &json[0]["queues"][0]["tier"], &json[0]["queues"][1]["tier"], &json[1]["tier"]];
    assert_eq!(tiers, [&"bulk".into(), &"bulk".into(), &"sparse".into(), &serde_json::Value::Null]);
    let unused = daemon.run(&["scheduler", "show", "--disk", "disk1"]);
    assert!(unused.starts_with("disk1, weight 100: fifo: "), "no tier without I/O threads: {unused}");
    let set = ["scheduler", "set", "burst-credit", "--param", "share=0.5", "--disk", "disk0"];
    assert_eq!(daemon.run(&set), "DISK   SCHEDULER\ndisk0  burst-credit share=0.5 gap=50ms\n");
    assert_eq!(daemon.run(&["scheduler", "set", "fifo"]), "DISK   SCHEDULER\ndisk0  fifo\ndisk1  fifo\n");
    for (words, part) in [
        (&["scheduler", "set", "cfq"][..], "unknown scheduler 'cfq', expected one of: burst-credit, published, fifo"),
        (&["scheduler", "set", "fifo", "--param", "gap"], "write NAME=VALUE"),
    ] {
        let (code, stdout, stderr) = finish(&mut mpathctl(words));
        assert!((code, &*stdout) == (2, "") && stderr.contains(part), "{stderr}");
    }
}

#[test]
fn an_unknown_parameter_is_refused_with_the_known_ones() {
    let daemon = Daemon::start();
    for (scheduler, known) in [("burst-credit", "it has burst, share, gap, io-cost"), ("published", "it has none")] {
        let message = format!("mpathctl: scheduler '{scheduler}' has no parameter 'rho'; {known}\n");
        assert_eq!(daemon.fail(&["scheduler", "set", scheduler, "--param", "rho=1"]), (2, message));
    }
    assert!(daemon.run(&["scheduler", "get"]).contains("\ndisk1  fifo\n"), "a refused order changes nothing");
}

#[test]
fn policy_show() {
    let daemon = Daemon::start();
    assert_eq!(
        daemon.run(&["policy", "show", "--disk", "disk0"]),
        "\
disk0, all requests: round-robin: each path in turn

CLASS  #  ADDRESS               STATE  1S(%)  1M(%)  EST(ms)  AGE  IGNORED  CKPTS  CKPT-IOS  CKPT-AVG(ms)
read   0  tcp://127.0.0.1:4420  live   100.0   75.0    0.210    3   450000      1       100         0.210
read   1  tcp://127.0.0.1:4421  lost     0.0   25.0   30.417    3    50000      1       100        30.418
write  0  tcp://127.0.0.1:4420  live     0.0    0.0    0.095    3        0      1       100         0.096
write  1  tcp://127.0.0.1:4421  lost     0.0    0.0        -    -        -      -         -             -
other  0  tcp://127.0.0.1:4420  live     0.0    0.0        -    -        -      -         -             -
other  1  tcp://127.0.0.1:4421  lost     0.0    0.0        -    -        -      -         -             -
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
    assert!(!shown.contains("WINDOW(KiB)"), "no listed policy has one: {shown}");
    let json: serde_json::Value = serde_json::from_str(&daemon.run(&["policy", "show", "-o", "json"])).unwrap();
    let interval = &json[0]["policies"][1]["params"][0];
    assert_eq!((&interval["name"], &interval["value"]), (&"interval".into(), &"1s".into()));
    let path = &json[0]["paths"][1];
    assert_eq!((&path["latency-us"], &path["age"], path.get("weight")), (&30_417.0.into(), &3.into(), None));
    assert_eq!((&path["share-1s"], &path["share-60s"]), (&0.0.into(), &0.25.into()));
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
      "latency-us": 30000,
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
fn inject_with_every_option() {
    let daemon = Daemon::start();
    let set = |options: &str| {
        let args: Vec<&str> = ["inject", "set", "1"].into_iter().chain(options.split(' ')).collect();
        daemon.run(&args).lines().last().unwrap().to_owned()
    };
    let all = "--latency 30ms --jitter 5ms --distribution normal --rate 100MiB --error-rate 1% --status internal-error \
               --class write --direction response --seed 7";
    let shown = "latency 30ms, jitter 5ms normal, rate 104857600 B/s, errors 1% internal-error";
    assert!(set(all).ends_with(&format!(" write  response      7        -  {shown}")), "{}", set(all));
    assert!(set("--stall --class read").ends_with(" read   request       0        -  stall"));
    assert!(set("--stall --class read --for 1m").ends_with(" read   request       0       60  stall"));
    let listed = daemon.run(&["inject", "list"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let json = daemon.run(&["inject", "list", "-o", "json"]);
    for part in [
        "\"seed\": 7",
        "\"rate\": 104857600",
        "\"error-rate-ppm\": 10000",
        "\"distribution\": \"normal\"",
        "\"stall\": true",
    ] {
        assert!(json.contains(part), "{part}: {json}");
    }
    assert!(daemon.run(&["inject", "list", "-o", "yaml"]).contains("status: internal-error"));
    assert!(daemon.run(&["path", "list"]).contains(&format!("write: {shown}; read: stall (60 s left)")));
    assert!(set("--error-rate 0.5").ends_with("errors 50% path-error"));
    assert_eq!(daemon.run(&["inject", "list"]).lines().count(), 2, "an injection for every class replaces the others");
    assert_eq!(daemon.run(&["inject", "clear"]).lines().count(), 2);
    assert_eq!(daemon.run(&["inject", "list"]), NO_INJECTION);
}
