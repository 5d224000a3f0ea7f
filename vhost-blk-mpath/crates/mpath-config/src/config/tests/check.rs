//! All errors of a text at once.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_yaml::Value;

use super::*;
use crate::config::check::faults;

fn messages(text: &str) -> Vec<String> {
    Config::check(text).expect_err(text).iter().map(ToString::to_string).collect()
}

fn settings(text: &str) -> Vec<String> {
    faults(text).1.into_iter().map(|fault| fault.setting).collect()
}

#[test]
fn a_valid_text_is_the_same_configuration() {
    for text in [SAMPLE, MINIMAL] {
        assert_eq!(Config::check(text).unwrap(), parse(text));
    }
}

#[test]
fn every_error_has_its_place_and_message() {
    let text = "\
api-mode: 660
io-threads: 0
disks:
  - socket-path: /run/a.sock
    polcy: numa
    paths: ['tcp://127.0.0.1', 'rdma://127.0.0.1', 'tcp://127.0.0.1']
    scheduler: {name: fifo, rho: 1}
    weight: 3
    weight: 4
    window: {ios: 0, bytes: 1}
  - name: second
    socket-path: /run/a.sock
    subsystem: nqn.b
    paths: 7
";
    let said = messages(text);
    let begin = |index: usize, begin: &str| assert!(said[index].starts_with(begin), "{said:#?}");
    begin(0, "1:11: api-mode: `660` is no socket mode; give a 0 and three octal digits");
    begin(1, "2:13: io-threads: invalid value: integer `0`, expected an integer from 1 to 64");
    begin(2, "4:5: disks[0]: missing field `subsystem`");
    begin(3, "5:5: disks[0]: unknown field `polcy`: did you mean `policy`?");
    begin(4, "6:32: disks[0].paths[1]: `rdma://127.0.0.1`: unknown transport `rdma`");
    begin(5, "6:52: disks[0].paths[2]: `tcp://127.0.0.1:4420` is also paths[0]; remove one");
    begin(6, "7:16: disks[0].scheduler: scheduler 'fifo' has no parameter 'rho'");
    begin(7, "9:5: disks[0]: duplicate field `weight`");
    begin(8, "10:19: disks[0].window.ios: invalid value: integer `0`");
    begin(9, "10:29: disks[0].window.bytes: `1` is not a number of bytes");
    begin(10, "12:18: disks[1].socket-path: `/run/a.sock` is also the socket of disks[0]");
    begin(11, "14:12: disks[1].paths: invalid type: integer `7`, expected a sequence");
    assert_eq!(said.len(), 12, "{said:#?}");
}

#[test]
fn the_first_error_is_the_daemons() {
    for text in ["disks: []\n", "disks: 3\n", "", "- 1\n", "disks:\n  - socket-path: /tmp/s\n    polcy: numa\n"] {
        let (said, daemons) = (messages(text), refuse(text));
        assert!(said.iter().any(|said| said.ends_with(daemons.trim_start())), "{said:?}: {daemons}");
    }
}

#[test]
fn an_error_in_the_syntax_is_one_error() {
    for text in ["disks: [", "io-threads: 0\ndisks:\n\t- x\n", "disks: *x\n", "a: 1\n---\nb: 2\n"] {
        assert_eq!(messages(text).len(), 1, "{text}: {:?}", messages(text));
    }
}

#[test]
fn errors_that_follow_from_others_are_left_out() {
    let disk = "disks:\n  - {name: a, socket-path: /run/a.sock, subsystem: nqn.a, paths: ['tcp://h']";
    let second = ", {name: b, socket-path: /run/b.sock, subsystem: nqn.b, paths: ['tcp://h']}";
    for (text, expected) in [
        // The setting that a misspelt key means does not count as missing.
        (disk.replace("subsystem", "sub_system") + "}\n", vec!["disks[0].sub_system"]),
        (disk.replace("paths", "pahts") + "}\n", vec!["disks[0].pahts"]),
        (disk.replace("paths: ['tcp://h']", "discovery: ['x://h', 'y://h']") + "}\n", {
            vec!["disks[0].discovery[0]", "disks[0].discovery[1]"]
        }),
        (disk.replace("paths: ['tcp://h']", "discovery: 1") + "}\n", vec!["disks[0].discovery"]),
        // A name with an error is not taken for the name of another disk.
        (disk.replace("name: a", "name: a b") + "}\n", vec!["disks[0].name"]),
        (format!("{disk}, share-paths-with: [{{name: s, socket-path: /s, namespace: 1}}], namespace: 0}}\n"), {
            vec!["disks[0].namespace"]
        }),
        (format!("{disk}, share-paths-with: [7, {{name: s}}], namespace: 1}}\n"), {
            vec![
                "disks[0].share-paths-with[0]",
                "disks[0].share-paths-with[1].socket-path",
                "disks[0].share-paths-with[1].namespace",
            ]
        }),
        (format!("api: 7 7\n{disk}, policy: {{read: numa, write: {{name: x}}}}}}\n").replace("api: 7 7", "api: []"), {
            vec!["api", "disks[0].policy.write"]
        }),
        ("disks: {a: 1}\nio-threads: x\n".into(), vec!["disks", "io-threads"]),
        (format!("{disk}}}\n{}", second.replace(", {", "  - 5\n  - {")), vec!["disks[1]"]),
    ] {
        assert_eq!(settings(&text), expected, "{text}");
    }
}

#[test]
fn the_number_of_errors_is_bounded() {
    let items = "7, ".repeat(300);
    assert_eq!(messages(&format!("disks: [{items}]\n")).len(), 64);
    let keys: String = (0..300).map(|n: u32| ["k", &n.to_string(), ": 1\n"].concat()).collect();
    assert_eq!(messages(&format!("{keys}{MINIMAL}")).len(), 64);
    let paths = "'tcp://h', ".repeat(300);
    assert_eq!(messages(&MINIMAL.replace("paths: [", &format!("paths: [{paths}"))).len(), 64);
}

/// Two disks of which one shares its paths.
const VALID: &str = "\
io-threads: 2
hostnqn: nqn.host
disks:
  - name: a
    socket-path: /run/a.sock
    subsystem: nqn.a
    namespace: 1
    paths: ['tcp://192.0.2.1', 'tcp://192.0.2.2']
    share-paths-with:
      - {name: s, socket-path: /run/s.sock, namespace: 2, weight: 7}
    policy: {name: latency-rr, threshold: 2}
    limits: {iops: 100, burst: 2s}
    read-only: true
  - name: b
    socket-path: /run/b.sock
    subsystem: nqn.b
    paths: ['tcp://192.0.2.1']
    window: {ios: 5}
    hedge: p95
";

/// A mutation: the setting, the place of its value, and the value. `None` removes the key.
type Mutation = (&'static str, &'static str, Option<&'static str>);

const MUTATIONS: &[Mutation] = &[
    ("io-threads", "io-threads", Some("65")),
    ("hostnqn", "hostnqn", Some("foo")),
    ("metrics-address", "metrics-address", Some("localhost:9464")),
    ("colour", "colour", Some("red")),
    ("disks[0].name", "disks.0.name", Some("a b")),
    ("disks[0].socket-path", "disks.0.socket-path", Some("[]")),
    ("disks[0].subsystem", "disks.0.subsystem", None),
    ("disks[0].namespace", "disks.0.namespace", Some("0")),
    ("disks[0].paths[0]", "disks.0.paths.0", Some("rdma://x")),
    ("disks[0].paths[1]", "disks.0.paths.1", Some("{a: b}")),
    ("disks[0].share-paths-with[0].weight", "disks.0.share-paths-with.0.weight", Some("0")),
    ("disks[0].share-paths-with[0].name", "disks.0.share-paths-with.0.name", None),
    ("disks[0].share-paths-with[0].policy", "disks.0.share-paths-with.0.policy", Some("numa")),
    ("disks[0].share-paths-with[0].namespace", "disks.0.share-paths-with.0.namespace", Some("x")),
    ("disks[0].policy", "disks.0.policy.name", Some("fastest")),
    ("disks[0].limits.iops", "disks.0.limits.iops", Some("0")),
    ("disks[0].limits.burst", "disks.0.limits.burst", Some("2h")),
    ("disks[0].read-only", "disks.0.read-only", Some("7")),
    ("disks[1].socket-path", "disks.1.socket-path", None),
    ("disks[1].subsystem", "disks.1.subsystem", Some("a b")),
    ("disks[1].paths", "disks.1.paths", Some("tcp://h")),
    ("disks[1].window.ios", "disks.1.window.ios", Some("many")),
    ("disks[1].window.colour", "disks.1.window.colour", Some("red")),
    ("disks[1].hedge", "disks.1.hedge", Some("p30")),
    ("disks[1].hedge-budget", "disks.1.hedge-budget", Some("{}")),
];

fn mutated(mutations: &[Mutation]) -> String {
    let mut value: Value = serde_yaml::from_str(VALID).unwrap();
    for (_, place, to) in mutations {
        let (parent, last) = place.rsplit_once('.').unwrap_or(("", place));
        let mut at = &mut value;
        for step in parent.split('.').filter(|step| !step.is_empty()) {
            at = match step.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[step],
            };
        }
        match (at, to.map(|to| serde_yaml::from_str::<Value>(to).unwrap())) {
            (Value::Mapping(map), Some(to)) => drop(map.insert(last.into(), to)),
            (Value::Mapping(map), None) => drop(map.shift_remove(last)),
            (Value::Sequence(items), to) => items[last.parse::<usize>().unwrap()] = to.unwrap(),
            _ => panic!("{place}"),
        }
    }
    serde_yaml::to_string(&value).unwrap()
}

#[test]
fn each_mutation_is_one_error() {
    assert_eq!(settings(&mutated(&[])), [""; 0]);
    for mutation in MUTATIONS {
        let text = mutated(&[*mutation]);
        assert_eq!(settings(&text), [mutation.0], "{text}");
        // The daemon refuses it with the same words.
        assert!(messages(&text)[0].ends_with(refuse(&text).trim_start()), "{text}");
    }
}

proptest! {
    #[test]
    fn mutations_are_the_errors(mutations in subsequence(MUTATIONS.to_vec(), 1..=5)) {
        let text = mutated(&mutations);
        let expected: BTreeSet<_> = mutations.iter().map(|(setting, ..)| (*setting).to_owned()).collect();
        prop_assert_eq!(settings(&text).into_iter().collect::<BTreeSet<_>>(), expected, "{}", text);
    }

    #[test]
    fn no_text_panics_or_takes_long(at in 0..VALID.len(), noise in "\\PC{0,8}|[ \\n\\t:\\-\\[{&*!|]{1,8}") {
        let (head, tail) = VALID.split_at(at);
        let text = format!("{head}{noise}{tail}");
        prop_assert_eq!(Config::check(&text).ok(), Config::parse(&text).ok());
    }
}

#[test]
fn a_text_whose_aliases_multiply_is_refused_early() {
    let items = "tcp://a,".repeat(2000);
    let disk = format!("- &d {{socket-path: /s, subsystem: nqn.a, paths: [{items}]}}\n");
    let text = format!("disks:\n{disk}{}", "- *d\n".repeat(100_000));
    for error in
        [Config::parse(&text).unwrap_err().to_string(), Config::check(&text).unwrap_err().remove(0).to_string()]
    {
        assert!(error.contains("more than 100000 values"), "{error}");
    }
}
