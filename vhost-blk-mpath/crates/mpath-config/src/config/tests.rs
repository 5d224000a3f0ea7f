mod check;
mod generated;
mod schema;

use super::*;
use crate::{PolicyKind, SchedulerKind};

const SAMPLE: &str = include_str!("../../../../dist/sample.yaml");

const MINIMAL: &str = "\
disks:
  - socket-path: /run/vhost-blk-mpath/disk0.sock
    subsystem: nqn.2014-08.org.example:disk0
    paths: ['tcp://127.0.0.1:4420', 'tcp://127.0.0.1:4421']
";

fn parse(text: &str) -> Config {
    Config::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refuse(text: &str) -> String {
    Config::parse(text).expect_err(text).to_string()
}

/// The minimal configuration with a namespace, and the disks in these lines over its paths.
fn with_sharers(sharers: &str) -> String {
    with_disk_lines(&format!("    namespace: 1\n    share-paths-with:\n{sharers}"))
}

/// Namespace and number of a disk over other paths, in the form of a list's item.
fn sharer(namespace: usize, number: usize) -> String {
    format!("      - {{name: s{number}, socket-path: /run/s{number}.sock, namespace: {namespace}}}\n")
}

/// The minimal configuration with more lines in its disk.
fn with_disk_lines(lines: &str) -> String {
    format!("{MINIMAL}{lines}")
}

#[test]
fn the_sample_shows_the_defaults() {
    assert_eq!(parse(SAMPLE), parse(MINIMAL));
}

#[test]
fn the_sample_shows_every_setting() {
    fn keys(value: &serde_yaml::Value, found: &mut Vec<String>) {
        match value {
            serde_yaml::Value::Mapping(map) => {
                for (key, value) in map {
                    found.push(key.as_str().unwrap().into());
                    keys(value, found);
                }
            }
            serde_yaml::Value::Sequence(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let mut config = parse(SAMPLE);
    config.hostnqn = Some("nqn".parse().unwrap());
    (config.api_mode, config.api_owner) = (Some("0660".parse().unwrap()), Some("root".parse().unwrap()));
    config.api_group = Some("root".parse().unwrap());
    config.metrics_address = Some("127.0.0.1:9464".parse().unwrap());
    config.io_thread_pool = Some("4".parse().unwrap());
    let disk = &mut config.disks[0];
    (disk.socket_mode, disk.socket_owner) = (Some("0660".parse().unwrap()), Some("root".parse().unwrap()));
    disk.socket_group = Some("root".parse().unwrap());
    config.hostid = Some("6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21".parse().unwrap());
    config.disks[0].namespace = NamespaceId::new(1);
    config.disks[0].fast_io_fail_tmo = Some("60".parse().unwrap());
    config.disks[0].ctrl_loss_tmo = Some("600".parse().unwrap());
    config.disks[0].max_transfer = Some("1MiB".parse().unwrap());
    config.disks[0].tls_key_file = Some("/etc/vhost-blk-mpath/disk0.key".parse().unwrap());
    config.disks[0].discovery_tls_key_file = Some("/etc/vhost-blk-mpath/discovery.key".parse().unwrap());
    config.disks[0].dhchap_secret_file = Some("/etc/vhost-blk-mpath/host.secret".parse().unwrap());
    config.disks[0].dhchap_ctrl_secret_file = Some("/etc/vhost-blk-mpath/controller.secret".parse().unwrap());
    let sharer = SharerConfig::new("s".parse().unwrap(), "/s".parse().unwrap(), NamespaceId::new(2).unwrap());
    config.disks[0].share_paths_with = vec![sharer];
    config.disks[0].discovery = vec!["tcp://127.0.0.1".parse().unwrap()];
    let mut found = Vec::new();
    keys(&serde_yaml::to_value(&config).unwrap(), &mut found);
    assert_eq!(found.len(), 67, "{found:?}");
    for key in found {
        let shown = |line: &str| line.trim_start_matches([' ', '#', '-']).starts_with(&format!("{key}:"));
        assert!(SAMPLE.lines().any(shown), "the sample does not show {key}");
    }
}

#[test]
fn the_samples_commented_settings_work() {
    let uncommented: String = SAMPLE.lines().map(uncomment).collect();
    let config = parse(&uncommented);
    assert!(config.hostnqn.is_some() && config.hostid.is_some());
    assert_eq!(config.disks[0].namespace, NamespaceId::new(1));
    assert_eq!((config.disks[0].discovery.len(), config.disks[0].share_paths_with.len()), (1, 1));
    assert!(config.disks[0].fast_io_fail_tmo.is_some() && config.disks[0].ctrl_loss_tmo.is_some());
}

/// A guest whose QEMU does not connect again is lost with the first restart of the daemon.
#[test]
fn every_documented_chardev_connects_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let documents = [".", "docs", "docs/operating"].iter().flat_map(|folder| root.join(folder).read_dir().unwrap());
    let files =
        documents.map(|file| file.unwrap().path()).filter(|file| file.extension().is_some_and(|ext| ext == "md"));
    let mut shown = 0;
    for file in files.chain([root.join("vhost-blk-mpath/dist/sample.yaml")]) {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| line.contains("-chardev socket,")) {
            assert!(line.contains(",reconnect"), "{}: {line}", file.display());
            shown += 1;
        }
    }
    assert!(shown >= 5, "{shown} found");
}

#[test]
fn the_example_of_shared_paths_works() {
    let documentation = include_str!("../../../../../docs/operating/sharing-paths.md");
    let example = documentation.lines().skip_while(|line| *line != "    disks:").take_while(|line| !line.is_empty());
    let lines: Vec<_> = example.map(|line| line.strip_prefix("    ").unwrap()).collect();
    let disk = &parse(&lines.join("\n")).disks[0];
    assert_eq!((disk.weight.get(), disk.share_paths_with[0].weight.get()), (100, 25));
}

#[test]
fn the_documented_defaults() {
    let config = parse(MINIMAL);
    assert_eq!(config.api.to_string(), DEFAULT_API_SOCKET);
    assert_eq!((config.io_threads.get(), config.wait_for, config.history_size.get()), (1, WaitFor::None, 64 << 20));
    assert_eq!([1, 3, 64].map(|processors| config.io_thread_count(processors)), [1, 3, 4]);
    assert_eq!((config.hostnqn, config.hostid, config.metrics_address), (None, None, None));
    let disk = &config.disks[0];
    assert_eq!(disk.name.as_str(), "disk0");
    assert_eq!(disk.policy, PolicyKind::Bdp.into());
    assert_eq!((disk.namespace, disk.read_only, disk.hdr_digest, disk.data_digest), (None, false, false, false));
    assert_eq!((disk.queues.get(), disk.queue_size.get(), disk.weight.get()), (64, 128, 100));
    assert_eq!((disk.window.ios.get(), disk.window.bytes.get()), (128, 8 << 20));
    assert_eq!(disk.keep_alive_tmo.duration().as_secs(), 5);
    assert_eq!(disk.reconnect_delay.duration().as_secs(), 2);
    assert_eq!(disk.suspect_timeout.duration().as_millis(), 300);
    assert_eq!(disk.io_timeout.duration().as_secs(), 30);
    assert_eq!(disk.share_paths_with, []);
    let sharer = &parse(&with_sharers(&sharer(2, 7))).disks[0].share_paths_with[0];
    assert_eq!((sharer.name.as_str(), sharer.socket_path.as_path().to_str()), ("s7", Some("/run/s7.sock")));
    assert_eq!((sharer.namespace.get(), sharer.weight.get(), sharer.queues.get()), (2, 100, 64));
    assert_eq!((sharer.read_only, sharer.limits), (false, LimitsConfig::default()));
    assert_eq!((disk.mpath_window, sharer.mpath_window), (false, false));
    let built = SharerConfig::new(sharer.name.clone(), sharer.socket_path.clone(), sharer.namespace);
    assert_eq!(*sharer, built);
    let built = DiskConfig::new(disk.socket_path.clone(), disk.subsystem.clone(), disk.paths.clone());
    assert_eq!(parse(MINIMAL), Config::new(vec![built]));
}

/// `PyYAML` and Ansible read YAML 1.1 and write what they read.
#[test]
fn the_sample_survives_yaml_1_1() {
    let is_octal =
        |text: &str| text.len() == 4 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    let read = |value: &str| match value {
        "off" => "false".into(),
        "on" => "true".into(),
        mode if is_octal(mode) => u32::from_str_radix(mode, 8).unwrap().to_string(),
        other => other.to_owned(),
    };
    let uncommented: String = SAMPLE.lines().map(uncomment).collect();
    let mut changed = 0;
    let line = |line: &str| match line.split_once(": ") {
        Some((key, value)) if read(value) != value => {
            changed += 1;
            format!("{key}: {}\n", read(value))
        }
        _ => format!("{line}\n"),
    };
    let written: String = uncommented.lines().map(line).collect();
    assert_eq!(parse(&written), parse(&uncommented), "{written}");
    assert_eq!(changed, 7, "{written}");
    let refused = refuse(&with_disk_lines("    hedge: true\n"));
    assert!(refused.contains("invalid type: boolean `true`, expected off or a quantile"), "{refused}");
}

/// The line, as a setting if it is a commented one.
fn uncomment(line: &str) -> String {
    let is_setting = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase());
    let setting = line.trim_start().strip_prefix('#').is_some_and(is_setting);
    line.replacen('#', "", usize::from(setting)) + "\n"
}

#[test]
fn a_list_may_end_at_the_column_of_its_key() {
    let text = MINIMAL
        .replace("['tcp://127.0.0.1:4420', 'tcp://127.0.0.1:4421']", "[\n      'tcp://h1',\n    'tcp://h2',\n    ]");
    assert_eq!(parse(&text).disks[0].paths.len(), 2);
}

#[test]
fn a_window_with_one_setting_keeps_the_default_of_the_other() {
    let window = parse(&with_disk_lines("    window: {ios: 7}\n")).disks[0].window;
    assert_eq!((window.ios.get(), window.bytes.get()), (7, 8 << 20));
}

#[test]
fn errors_name_place_value_and_remedy() {
    for (line, message) in [
        ("queues: 0", "5:13: disks[0].queues: invalid value: integer `0`, expected an integer from 1 to 256"),
        ("queues: many", "5:13: disks[0].queues: invalid type: string \"many\", expected an integer from 1 to 256"),
        (
            "queue-size: 1025",
            "5:17: disks[0].queue-size: invalid value: integer `1025`, expected an integer from 16 to 1024",
        ),
        (
            "poll-us: 5ms",
            "5:14: disks[0].poll-us: `5ms` is not `off`, `auto` or a number of microseconds from 1 to 1000",
        ),
        (
            "max-transfer: 64MiB",
            "5:19: disks[0].max-transfer: `64MiB` is not a number of bytes from 4KiB to 32MiB, such as 512KiB or 1MiB",
        ),
        (
            "window: {bytes: 1}",
            "5:21: disks[0].window.bytes: `1` is not a number of bytes from 64KiB to 1GiB, such as 512KiB or 1MiB",
        ),
        (
            "io-timeout: 30",
            "5:17: disks[0].io-timeout: `30` is not a time from 1s to 600s; give a number and its unit, such as 300ms, 1.5s or 5m",
        ),
        (
            "keep-alive-tmo: 601",
            "5:21: disks[0].keep-alive-tmo: `601` is not a whole number of seconds from 1 to 600, such as 5 or 5s",
        ),
        (
            "reconnect-delay: 5x",
            "5:22: disks[0].reconnect-delay: `5x` is not a whole number of seconds from 1 to 600, such as 5 or 5s",
        ),
        (
            "namespace: 0",
            "5:16: disks[0].namespace: invalid value: integer `0`, expected an integer from 1 to 4294967294",
        ),
        (
            "name: a b",
            "5:11: disks[0].name: `a b` is no disk name; give 1 to 64 letters, digits, `.`, `_` and `-`, not starting with `-`, and not `.` or `..`",
        ),
        ("hedge: p30", "5:12: disks[0].hedge: `p30` is not off or a quantile from p50 to p99.9, such as p95 or p99.5"),
        (
            "hedge-budget: 7%",
            "5:19: disks[0].hedge-budget: `7%` is not a share of all reads from 0.1% to 5%, such as 5% or 0.5%",
        ),
        (
            "scheduler: cfq",
            "5:16: disks[0].scheduler: unknown scheduler 'cfq', expected one of: burst-credit, published, fifo",
        ),
        (
            "scheduler: {name: burst-credit, rho: 0}",
            "5:16: disks[0].scheduler: scheduler 'burst-credit' has no parameter 'rho'; it has burst, share, gap, io-cost",
        ),
        (
            "limits: {iops: 0}",
            "5:20: disks[0].limits.iops: `0` is not off or a number of requests per second from 1 to 1000000000",
        ),
        (
            "limits: {bandwidth: 1MB}",
            "5:25: disks[0].limits.bandwidth: `1MB` is not off or a number of bytes per second from 4KiB to 1TiB, such as 100MiB",
        ),
        (
            "suspect-timeout: 10ms",
            "5:22: disks[0].suspect-timeout: `10ms` is not a time from 50ms to 60s; give a number and its unit, such as 300ms, 1.5s or 5m",
        ),
        ("weight: 0", "5:13: disks[0].weight: invalid value: integer `0`, expected an integer from 1 to 1000"),
        ("weight: 1001", "5:13: disks[0].weight: invalid value: integer `1001`, expected an integer from 1 to 1000"),
        ("read-only: 7", "5:16: disks[0].read-only: invalid type: integer `7`, expected true or false"),
        ("drain-fence: yes", "5:18: disks[0].drain-fence: invalid type: string \"yes\", expected true or false"),
        ("mpath-window: 1", "5:19: disks[0].mpath-window: invalid type: integer `1`, expected true or false"),
        ("drain-fence:", "5:17: disks[0].drain-fence: invalid value: nothing, expected true or false"),
        ("queues:", "5:12: disks[0].queues: invalid value: nothing, expected an integer from 1 to 256"),
        (
            "ctrl-loss-tmo: -1",
            "5:20: disks[0].ctrl-loss-tmo: `-1` is not a whole number of seconds from 1 to 86400, such as 5 or 5s; leave the setting out for no limit",
        ),
        (
            "fast-io-fail-tmo: off",
            "5:23: disks[0].fast-io-fail-tmo: `off` is not a whole number of seconds from 1 to 86400, such as 5 or 5s; leave the setting out for no limit",
        ),
        (
            "keep-alive-tmo: 99999999999999999999",
            "5:21: disks[0].keep-alive-tmo: `99999999999999999999` is not a whole number of seconds from 1 to 600, such as 5 or 5s",
        ),
        ("read_only: true", "5:5: disks[0]: unknown field `read_only`: write `read-only`"),
        (
            "window: {i_os: 5}",
            "5:14: disks[0].window: unknown field `i_os`: did you mean `ios`? Expected `ios` or `bytes`",
        ),
        (
            "colour: red",
            "5:5: disks[0]: unknown field `colour`, expected one of `name`, `socket-path`, `socket-mode`, `socket-owner`, `socket-group`, `subsystem`, `namespace`, `paths`, `discovery`, `share-paths-with`, `policy`, `scheduler`, `limits`, `weight`, `read-only`, `queues`, `queue-size`, `max-transfer`, `window`, `poll-us`, `hdr-digest`, `data-digest`, `tls-key-file`, `discovery-tls-key-file`, `dhchap-secret-file`, `dhchap-ctrl-secret-file`, `concat`, `keep-alive-tmo`, `reconnect-delay`, `suspect-timeout`, `io-timeout`, `hedge`, `hedge-budget`, `min-paths`, `fast-io-fail-tmo`, `ctrl-loss-tmo`, `shared-write-cache`, `drain-fence`, `mpath-window`",
        ),
    ] {
        assert_eq!(refuse(&with_disk_lines(&format!("    {line}\n"))), message);
    }
    let policy = refuse(&with_disk_lines("    policy: fastest\n"));
    assert!(policy.starts_with("5:13: disks[0].policy: unknown policy"), "{policy}");
    assert!(policy.contains("fastest") && policy.contains("latency-rr"), "{policy}");
    let path = refuse(&MINIMAL.replace("tcp://127.0.0.1:4421", "rdma://127.0.0.1:4421"));
    assert_eq!(
        path,
        "4:37: disks[0].paths[1]: `rdma://127.0.0.1:4421`: unknown transport `rdma`; write tcp:// or mptcp://"
    );
    let missing = refuse(&MINIMAL.replace("    subsystem: nqn.2014-08.org.example:disk0\n", ""));
    assert_eq!(missing, "2:5: disks[0]: missing field `subsystem`");
}

#[test]
fn a_repeated_key_is_named_with_its_place() {
    for (line, message) in [
        ("policy: numa\n    weight: 5\n    policy: bdp", "7:5: disks[0]: duplicate field `policy`"),
        ("window: {ios: 5, bytes: 65536, ios: 6}", "5:36: disks[0].window: duplicate field `ios`"),
        ("paths: ['tcp://h']", "5:5: disks[0]: duplicate field `paths`"),
    ] {
        assert_eq!(refuse(&with_disk_lines(&format!("    {line}\n"))), message);
    }
    assert_eq!(refuse(&format!("{MINIMAL}api: /a\nio-threads: 1\napi: /b\n")), "7:1: duplicate field `api`");
}

#[test]
fn errors_in_disks_that_share_paths_name_the_known_settings() {
    const KNOWN: &str = "`name`, `socket-path`, `socket-mode`, `socket-owner`, `socket-group`, `namespace`, `limits`, `weight`, `read-only`, `queues`, `mpath-window`";
    let refused = |setting: &str| refuse(&with_sharers(&sharer(2, 0).replace('}', &format!(", {setting}}}"))));
    for setting in ["paths: ['tcp://h']", "subsystem: nqn.x", "policy: numa", "scheduler: fifo", "share-paths-with: []"]
    {
        let name = setting.split(':').next().unwrap();
        let message = format!(
            "7:61: disks[0].share-paths-with[0]: unknown field `{name}`, expected one of {KNOWN}; set everything else on the disk that has the paths, for all that share them"
        );
        assert_eq!(refused(setting), message);
    }
    assert_eq!(
        refused("limits: {iop: 5}"),
        "7:70: disks[0].share-paths-with[0].limits: unknown field `iop`: did you mean `iops`? Expected one of `iops`, `bandwidth`, `burst`",
        "no setting of the other disk's"
    );
    assert_eq!(
        refused("weight: 0"),
        "7:69: disks[0].share-paths-with[0].weight: invalid value: integer `0`, expected an integer from 1 to 1000"
    );
    let item = sharer(2, 0);
    for (left_out, missing) in
        [("name: s0, ", "name"), ("socket-path: /run/s0.sock, ", "socket-path"), (", namespace: 2", "namespace")]
    {
        let message = format!("7:9: disks[0].share-paths-with[0]: missing field `{missing}`");
        assert_eq!(refuse(&with_sharers(&item.replace(left_out, ""))), message);
    }
}

#[test]
fn conflicts_of_disks_that_share_paths_are_refused() {
    let many = |count: usize| (0..count).map(|n| sharer(n + 2, n)).collect::<String>();
    let one = with_sharers(&sharer(2, 0));
    let other = "  - {name: other, socket-path: /run/other.sock, subsystem: nqn.x, paths: ['tcp://h']}\n";
    for (text, message) in [
        (
            one.replace("    namespace: 1\n", ""),
            " disks[0].namespace: none given; give the namespace of `disk0`, because a subsystem whose disks share paths has several",
        ),
        (
            one.replace("namespace: 2", "namespace: 1"),
            " disks[0].share-paths-with[0].namespace: `1` is also the namespace of disks[0]; give each disk over these paths its own",
        ),
        (
            with_sharers(&format!("{}{}", sharer(2, 0), sharer(2, 1))),
            " disks[0].share-paths-with[1].namespace: `2` is also the namespace of disks[0].share-paths-with[0]; give each disk over these paths its own",
        ),
        (
            one.replace("name: s0", "name: disk0"),
            " disks[0].share-paths-with[0].name: `disk0` is also the name of disks[0]; give each disk its own",
        ),
        (
            format!("{one}{}", other.replace("name: other", "name: s0")),
            " disks[1].name: `s0` is also the name of disks[0].share-paths-with[0]; give each disk its own",
        ),
        (
            one.replace("/run/s0.sock", "/run/vhost-blk-mpath/disk0.sock"),
            " disks[0].share-paths-with[0].socket-path: `/run/vhost-blk-mpath/disk0.sock` is also the socket of disks[0]; give each disk its own",
        ),
        (
            format!("{one}{}", other.replace("/run/other.sock", "/run/s0.sock")),
            " disks[1].socket-path: `/run/s0.sock` is also the socket of disks[0].share-paths-with[0]; give each disk its own",
        ),
        (
            one.replace("/run/s0.sock", "/run/vhost-blk-mpath/api.sock"),
            " disks[0].share-paths-with[0].socket-path: `/run/vhost-blk-mpath/api.sock` is also the API's socket; give each its own",
        ),
        (
            with_sharers(&many(64)),
            " disks[0].share-paths-with: 64 given; give 63 at most, because at most 64 disks can share paths",
        ),
    ] {
        assert_eq!(refuse(&text), message);
    }
    assert_eq!(parse(&with_sharers(&many(63))).disks[0].share_paths_with.len(), 63);
    // The same number on other paths may be another namespace, or another way to this one.
    parse(&format!("{one}{}", other.replace("paths", "namespace: 2, paths")));

    // Disks that share paths count too.
    let more = |count: usize| -> String {
        let disk = |n| other.replace("other", &format!("other{n}")).replace("nqn.x", &format!("nqn.x{n}"));
        (0..count).map(disk).collect()
    };
    assert_eq!(parse(&format!("{one}{}", more(254))).disks.len(), 255);
    let said = refuse(&format!("{one}{}", more(255)));
    assert_eq!(said, " disks: 257 given, 1 of them in share-paths-with; give 1 to 256");
}

#[test]
fn malformed_yaml_has_a_place() {
    for (text, start) in [
        ("disks: [", "2:1: "),
        ("disks:\n  - name: 'x\n", "3:1: "),
        ("disks:\n\t- x\n", "2:1: "),
        ("", "1:1: missing field `disks`"),
        ("disks: 3\n", "1:8: disks: invalid type: integer `3`, expected a sequence"),
        ("- 1\n", "1:1: invalid type: sequence, expected a mapping of settings"),
    ] {
        let error = refuse(text);
        assert!(error.starts_with(start), "{text:?}: {error}");
        let place = start.trim_end_matches(": ").replacen(':', " column ", 1);
        assert!(!error.contains('\n') && !error.contains(&format!(" at line {place}")), "{error}");
    }
    let error = refuse(&MINIMAL.replace("nqn.2014", "\"a\\n\\e[2J\" #"));
    assert!(!error.contains(char::is_control) && error.contains("a\\n\\u{1b}[2J"), "{error}");
}

#[test]
fn conflicting_values_are_refused() {
    let second = MINIMAL.trim_start_matches("disks:\n");
    let two = |change: fn(String) -> String| format!("{MINIMAL}{}", change(second.into()));
    for (text, message) in [
        ("disks: []\n".into(), " disks: 0 given; give 1 to 256"),
        (
            format!("io-threads: 3\nio-thread-pool: 2\n{MINIMAL}"),
            " io-thread-pool: 2 given, which is fewer than the 3 of `io-threads`; give at least 3, or remove `io-thread-pool`",
        ),
        (
            format!("hostnqn: foo\n{MINIMAL}"),
            " hostnqn: `foo` does not start with `nqn.`; give nqn.YYYY-MM.REVERSE.DOMAIN:NAME or nqn.2014-08.org.nvmexpress:uuid:UUID, as in /etc/nvme/hostnqn",
        ),
        (
            two(|disk| disk.replace("disk0.sock", "disk1.sock")),
            " disks[1].name: `disk0` is also the name of disks[0]; give each disk its own",
        ),
        (
            two(|disk| disk + "    name: disk1\n"),
            " disks[1].socket-path: `/run/vhost-blk-mpath/disk0.sock` is also the socket of disks[0]; give each disk its own",
        ),
        (
            MINIMAL.replace("disk0.sock", "api.sock"),
            " disks[0].socket-path: `/run/vhost-blk-mpath/api.sock` is also the API's socket; give each its own",
        ),
        (
            MINIMAL.replace("tcp://127.0.0.1:4421", "tcp://127.0.0.1"),
            " disks[0].paths[1]: `tcp://127.0.0.1:4420` is also paths[0]; remove one",
        ),
        (
            MINIMAL.replace("['tcp://127.0.0.1:4420', 'tcp://127.0.0.1:4421']", "[]"),
            " disks[0].paths: 0 given; give 1 to 64, or a discovery controller in `discovery`",
        ),
        (
            with_disk_lines("    discovery: ['tcp://[::1]', 'tcp://[::1]:8009']\n"),
            " disks[0].discovery[1]: `tcp://[::1]:8009` is also discovery[0]; remove one",
        ),
        (
            with_disk_lines(&format!(
                "    discovery: [{}]\n",
                ['1', '2', '3', '4', '5', '6', '7', '8', '9'].map(|n| format!("'tcp://h{n}'")).join(", ")
            )),
            " disks[0].discovery: 9 given; give 8 at most",
        ),
        (
            with_disk_lines("    concat: true\n"),
            " disks[0].concat: needs `dhchap-secret-file`, because the authentication generates the key; add `dhchap-secret-file`, or \
             remove `concat`",
        ),
        (
            with_disk_lines("    concat: true\n    dhchap-secret-file: /s\n    tls-key-file: /k\n"),
            " disks[0].concat: not possible with `tls-key-file`, because a disk has one key for TLS; remove `tls-key-file` if the \
             target takes generated keys, or else `concat`",
        ),
        (
            with_disk_lines("    concat: true\n    dhchap-secret-file: /s\n    drain-fence: true\n"),
            " disks[0].drain-fence: not possible with TLS (`tls-key-file`, `concat`), because anyone on the network can forge the end of \
             a TCP connection; remove `drain-fence`, and the daemon waits for the fence time",
        ),
        (
            with_disk_lines("    discovery-tls-key-file: /k\n"),
            " disks[0].discovery-tls-key-file: needs `discovery`; add `discovery`, or remove `discovery-tls-key-file`",
        ),
    ] {
        assert_eq!(refuse(&text), message);
    }
    let discovered =
        MINIMAL.replace("paths: ['tcp://127.0.0.1:4420', 'tcp://127.0.0.1:4421']", "discovery: ['tcp://h']");
    assert_eq!((parse(&discovered).disks[0].paths.len(), parse(&discovered).disks[0].discovery.len()), (0, 1));
    let disks = two(|disk| disk.replace("disk0.sock", "disk1.sock") + "    name: disk1\n");
    assert_eq!(parse(&disks).disks.len(), 2);
}

#[test]
fn errors_of_a_file_begin_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    let name = path.display();
    let error = || Config::load(&path).unwrap_err().to_string();

    assert_eq!(error(), format!("{name}: No such file or directory (os error 2)"));
    std::fs::write(&path, "disks: 3\n").unwrap();
    assert!(error().starts_with(&format!("{name}:1:8: disks: ")), "{}", error());
    std::fs::write(&path, "disks: []\n").unwrap();
    assert_eq!(error(), format!("{name}: disks: 0 given; give 1 to 256"));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(error(), format!("{name}: stream did not contain valid UTF-8"));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert_eq!(error(), format!("{name}: larger than 1048576 bytes; name a configuration file"));
    std::fs::write(&path, SAMPLE).unwrap();
    assert_eq!(Config::load(&path).unwrap(), parse(SAMPLE));
}

#[test]
fn the_socket_that_only_reads_is_another_one() {
    let refused = |settings: &str| {
        let disk = "{socket-path: /tmp/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1']}";
        Config::parse(&format!("{settings}\ndisks: [{disk}]")).unwrap_err().to_string()
    };
    assert!(refused("api: /tmp/a\napi-read-only: /tmp/a").contains("`/tmp/a` is also `api`"));
    assert!(refused("api-read-only: /tmp/s").contains("disks[0].socket-path: `/tmp/s` is also the API's socket"));
    assert!(refused("api-read-only-mode: 0666").contains("api-read-only: none given"));
}
