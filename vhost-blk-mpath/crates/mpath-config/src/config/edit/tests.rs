use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;

const TEXT: &str = "\
# The host.
io-threads: 2   # two
disks:
    # The database.
  - name: db
    socket-path: /run/db.sock
    subsystem: nqn.a
    namespace: 1
    paths:
      - tcp://192.0.2.1   # rack 1
      # Rack 2.
      - tcp://192.0.2.2
    policy: bdp   # the default
    limits: {iops: 100}   # agreed

    share-paths-with: [{name: s, socket-path: /run/s.sock, namespace: 2}]
  # The scratch disk.
  - socket-path: /run/b.sock
    subsystem: nqn.b
    paths: ['tcp://192.0.2.1', tcp://192.0.2.9]
    policy:
      name: latency-rr
      threshold: 2 # measured
";

/// Replacements of a text by another, which make the wanted configuration.
fn edited(changes: &[(&str, &str)]) -> String {
    let mut wanted = TEXT.to_owned();
    for (from, to) in changes {
        assert!(wanted.contains(from), "{from}");
        wanted = wanted.replacen(from, to, 1);
    }
    let wanted = Config::parse(&wanted).unwrap();
    edit(TEXT, &wanted).unwrap().0
}

/// The lines that differ: of the text, and of the edited text.
fn differing(edited: &str) -> (Vec<&str>, Vec<&str>) {
    let only = |of: &'static str, other: &str| -> Vec<&'static str> {
        of.lines().filter(|line| !other.lines().any(|there| there == *line)).collect()
    };
    let new = edited.lines().filter(|line| !TEXT.lines().any(|there| there == *line)).collect();
    (only(TEXT, edited), new)
}

#[test]
fn without_a_change_the_text_stays() {
    assert_eq!(edited(&[]), TEXT);
}

#[test]
fn a_changed_value_leaves_its_line_and_comment() {
    let policy = edited(&[("policy: bdp", "policy: {read: numa, write: {name: latency-rr, threshold: 3}}")]);
    let (gone, new) = differing(&policy);
    assert_eq!(gone, ["    policy: bdp   # the default"]);
    assert_eq!(new, ["    policy: {read: numa, write: {name: latency-rr, threshold: '3'}}   # the default"]);
    let limits = edited(&[("{iops: 100}", "{iops: 7, bandwidth: 8MiB}")]);
    assert_eq!(differing(&limits).1, ["    limits: {iops: 7, bandwidth: 8388608}   # agreed"]);
    let threshold = edited(&[("threshold: 2", "threshold: 4")]);
    assert_eq!(differing(&threshold).1, ["      threshold: '4' # measured"]);
}

#[test]
fn a_new_setting_follows_the_others_of_its_disk() {
    let hedge = edited(&[("policy: bdp", "hedge: p95")]);
    assert_eq!(differing(&hedge).1, ["    hedge: p95"]);
    let limits = edited(&[("    paths: ['tcp", "    limits: {iops: 8}\n    paths: ['tcp")]);
    assert_eq!(differing(&limits).1, ["    limits: {iops: 8}"]);
    let weight = edited(&[("namespace: 2}", "namespace: 2, weight: 9}")]);
    assert!(weight.contains("[{name: s, socket-path: /run/s.sock, namespace: 2, weight: 9}]"), "{weight}");
}

#[test]
fn paths_come_and_go() {
    let block = edited(&[("      - tcp://192.0.2.2\n", "      - tcp://[2001:db8::1]\n")]);
    assert_eq!(differing(&block), (vec!["      - tcp://192.0.2.2"], vec!["      - tcp://[2001:db8::1]:4420"]));
    let flow = edited(&[("['tcp://192.0.2.1', tcp://192.0.2.9]", "[tcp://192.0.2.9, 'tcp://[::1]']")]);
    assert!(
        flow.contains("    paths: [tcp://192.0.2.9:4420, 'tcp://[::1]:4420']")
            || flow.contains("    paths: [tcp://192.0.2.9, 'tcp://[::1]:4420']"),
        "{flow}"
    );
}

#[test]
fn disks_come_and_go() {
    let lines = ["  - name: new", "    socket-path: /run/new.sock", "    subsystem: nqn.new", "    paths:"];
    let added = lines.join("\n") + "\n    - tcp://192.0.2.1:4420\n    queues: 7\n";
    assert_eq!(
        edited(&[("      threshold: 2 # measured\n", &format!("      threshold: 2 # measured\n{added}"))]),
        format!("{TEXT}{added}")
    );
    let second = TEXT.find("  # The scratch disk.").unwrap();
    let removed = edit(TEXT, &Config::parse(&TEXT[..second]).unwrap()).unwrap().0;
    assert_eq!(removed, format!("{}  # The scratch disk.\n", &TEXT[..second]));
}

/// The sample has every setting, and a comment at each.
#[test]
fn the_sample_keeps_its_comments() {
    let sample = include_str!("../../../../../dist/sample.yaml");
    let mut wanted = Config::parse(sample).unwrap();
    let disk = &mut wanted.disks[0];
    disk.policy = crate::PolicyKind::Numa.into();
    disk.limits.iops = "500".parse().unwrap();
    disk.paths[1] = "mptcp://192.0.2.7".parse().unwrap();
    (disk.hedge, disk.weight) = ("p99".parse().unwrap(), "3".parse().unwrap());
    let edited = edit(sample, &wanted).unwrap().0;
    assert_eq!(Config::parse(&edited).unwrap(), wanted);
    let changed: Vec<_> = edited.lines().filter(|line| !sample.lines().any(|there| there == *line)).collect();
    let new = ["- mptcp://192.0.2.7:4420", "policy: numa", "iops: 500", "weight: 3", "hedge: p99"];
    assert_eq!(changed.iter().map(|line| line.trim()).collect::<Vec<_>>(), new);
    assert_eq!(edited.lines().count(), sample.lines().count());
}

#[test]
fn settings_that_need_a_restart_stay() {
    let wanted =
        Config::parse(&TEXT.replace("io-threads: 2", "io-threads: 3").replace("iops: 100", "iops: 9")).unwrap();
    let (text, changes) = edit(TEXT, &wanted).unwrap();
    assert!(text.contains("io-threads: 2   # two") && text.contains("{iops: 9}"), "{text}");
    assert_eq!(changes.len(), 1);
}

#[test]
fn what_the_edit_does_not_know_is_refused() {
    let text = TEXT
        .replace("policy: bdp", "policy: &p bdp")
        .replace("    subsystem: nqn.b\n", "    subsystem: nqn.b\n    scheduler: fifo\n");
    let aliased = text
        .replace("  - socket-path: /run/b.sock\n", "  - socket-path: /run/b.sock\n    name: x\n")
        .replace("policy:\n      name: latency-rr\n      threshold: 2 # measured\n", "policy: *p\n");
    let wanted = Config::parse(&aliased.replace("iops: 100", "iops: 9")).unwrap();
    let error = edit(&aliased, &wanted).unwrap_err().to_string();
    assert!(error.contains("`disk `db`: limits: ") && error.contains("edit the file by hand"), "{error}");
    assert_eq!(edit("disks: 3", &wanted), Err(EditError::Invalid));
}

proptest! {
    /// Any changes, in a text with comments and every form of a mapping and a list.
    #[test]
    fn the_edited_text_means_the_wanted_configuration(changes in subsequence(vec![
        ("policy: bdp", "policy: {read: numa, write: bdp}"),
        ("policy: bdp   #", "scheduler: fifo   #"),
        ("limits: {iops: 100}", "limits: {bandwidth: 1MiB, burst: 2s}"),
        ("limits: {iops: 100}", "limits: {}"),
        ("- tcp://192.0.2.1   # rack 1", "- mptcp://192.0.2.1"),
        ("      # Rack 2.\n      - tcp://192.0.2.2\n", ""),
        ("namespace: 2}]", "namespace: 2, limits: {iops: 1}, weight: 3}]"),
        ("tcp://192.0.2.9]", "tcp://192.0.2.9, tcp://192.0.2.10, 'tcp://[::1]:1']"),
        ("'tcp://192.0.2.1', tcp", "tcp"),
        ("threshold: 2", "threshold: 5"),
        ("    subsystem: nqn.b", "    hedge: p99\n    hedge-budget: 1%\n    subsystem: nqn.b"),
        ("  - socket-path: /run/b.sock", "  - name: c\n    socket-path: /run/c.sock"),
    ], 0..12)) {
        let mut wanted = TEXT.to_owned();
        for (from, to) in &changes {
            wanted = wanted.replacen(from, to, 1);
        }
        let wanted = Config::parse(&wanted).unwrap();
        let (edited, _) = edit(TEXT, &wanted).unwrap();
        prop_assert_eq!(difference(&Config::parse(&edited).unwrap(), &wanted), []);
        prop_assert!(edited.contains("# The host.\nio-threads: 2   # two\n"));
    }
}
