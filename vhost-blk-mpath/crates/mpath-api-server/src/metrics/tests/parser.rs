//! Parses Prometheus' text format, and checks the rules for names. Panics at an error.

use std::collections::HashSet;

#[derive(Debug)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) kind: String,
    pub(super) samples: Vec<Sample>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        self.label(name) == Some(value)
    }
}

impl Family {
    /// The value of the sample that has these labels among others.
    pub(super) fn value(&self, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&Sample| labels.iter().all(|(name, value)| sample.has(name, value));
        let found: Vec<_> = self.samples.iter().filter(has).collect();
        assert_eq!(found.len(), 1, "{labels:?} of {self:?}");
        found[0].value
    }
}

pub(super) fn parse(text: &str) -> Vec<Family> {
    let text = text.strip_suffix('\n').expect("the last line ends too");
    let mut families: Vec<Family> = Vec::new();
    let mut names = HashSet::new();
    let mut series = HashSet::new();
    let mut lines = text.split('\n');
    while let Some(line) = lines.next() {
        if let Some(of) = line.strip_prefix("# HELP ") {
            let (name, help) = of.split_once(' ').expect("a help text");
            let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
            check_name(name, kind);
            assert!(!help.is_empty() && !help.contains('\\'), "{help:?}");
            assert!(names.insert(name), "{name} is there twice");
            families.push(Family { name: name.into(), help: help.into(), kind: kind.into(), samples: vec![] });
        } else {
            let family = families.last_mut().expect("a sample belongs to a metric");
            let sample = parse_sample(line);
            check_sample(family, &sample);
            let mut labels = sample.labels.clone();
            labels.sort();
            assert!(series.insert((sample.name.clone(), labels)), "{line:?} is there twice");
            family.samples.push(sample);
        }
    }
    families.iter().filter(|family| family.kind == "histogram").for_each(check_buckets);
    families
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn check_name(name: &str, kind: &str) {
    assert!(name.starts_with("vhost_blk_mpath_") && is_word(name), "{name:?}");
    let ends: Vec<_> = ["_total", "_sum", "_count", "_bucket"].into_iter().filter(|end| name.ends_with(end)).collect();
    match kind {
        "counter" => assert_eq!(ends, ["_total"], "{name}"),
        "histogram" => assert!(ends.is_empty() && name.ends_with("_seconds"), "{name}"),
        "gauge" => assert!(ends.is_empty(), "{name}"),
        _ => panic!("{name} is no {kind}"),
    }
}

fn check_sample(family: &Family, sample: &Sample) {
    let suffix = sample.name.strip_prefix(&*family.name).unwrap_or_else(|| panic!("{sample:?} in {family:?}"));
    let can_be_counted = |value: f64| value >= 0.0 && value.is_finite();
    match (&*family.kind, suffix, sample.label("le")) {
        ("histogram", "_bucket", Some(_)) | ("histogram", "_sum" | "_count", None) | ("counter", "", None) => {
            assert!(can_be_counted(sample.value), "{sample:?}");
        }
        ("gauge", "", None) => {
            let is_info = family.name.ends_with("_info");
            assert!(sample.value.is_finite() && (!is_info || sample.value == 1.0), "{sample:?}");
        }
        _ => panic!("{sample:?} of a {}", family.kind),
    }
}

/// The buckets of each histogram grow with `le`, to `+Inf`, which is the count.
fn check_buckets(family: &Family) {
    let mut last: Option<(&Sample, f64)> = None;
    for sample in &family.samples {
        match (sample.label("le"), last) {
            (Some(le), before) => {
                let le: f64 = le.parse().unwrap_or_else(|_| panic!("{sample:?}"));
                if let Some((before, end)) = before {
                    assert!(end < le && before.value <= sample.value, "{sample:?} after {before:?}");
                }
                last = Some((sample, le));
            }
            (None, Some((before, end))) => {
                assert_eq!(end, f64::INFINITY, "{before:?}");
                if sample.name.ends_with("_count") {
                    assert_eq!(before.value, sample.value, "{sample:?}");
                    last = None;
                }
            }
            (None, None) => panic!("{sample:?} without buckets"),
        }
    }
    assert!(last.is_none(), "{last:?} without a count");
}

fn parse_sample(line: &str) -> Sample {
    let (name, rest) = line.split_at(line.find([' ', '{']).unwrap_or_else(|| panic!("{line:?}")));
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest),
        None => (vec![], rest),
    };
    let value = value.strip_prefix(' ').unwrap_or_else(|| panic!("{line:?}"));
    assert!(value.bytes().all(|b| b.is_ascii_digit() || b"-.e".contains(&b)), "{line:?}");
    Sample { name: name.into(), labels, value: value.parse().unwrap_or_else(|_| panic!("{line:?}")) }
}

/// Parses labels from the text after the opening brace. Also returns the text after the closing brace.
fn parse_labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut labels: Vec<(String, String)> = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_word(name) && labels.iter().all(|(other, _)| other != name), "{name:?} after {labels:?}");
        let mut value = String::new();
        let mut chars = after.chars();
        loop {
            match chars.next().expect("a closing quote") {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(char @ ('\\' | '"')) => char,
                    other => panic!("{other:?} cannot be escaped"),
                }),
                char => value.push(char),
            }
        }
        labels.push((name.into(), value));
        match chars.next() {
            Some(',') => rest = chars.as_str(),
            Some('}') => return (labels, chars.as_str()),
            other => panic!("{other:?} after {labels:?}"),
        }
    }
}

#[test]
fn wrong_buckets_are_noticed() {
    let good = "# HELP vhost_blk_mpath_x_seconds X\n# TYPE vhost_blk_mpath_x_seconds histogram
vhost_blk_mpath_x_seconds_bucket{le=\"0.5\"} 1
vhost_blk_mpath_x_seconds_bucket{le=\"+Inf\"} 3
vhost_blk_mpath_x_seconds_sum 2.5
vhost_blk_mpath_x_seconds_count 3
";
    assert_eq!(parse(good)[0].samples.len(), 4);
    for (from, to) in [
        ("} 1\n", "} 4\n"),
        ("count 3", "count 2"),
        ("+Inf", "7"),
        ("0.5", "half"),
        ("le=\"0.5\"", "quantile=\"0.5\""),
        ("vhost_blk_mpath_x_seconds_count 3\n", ""),
        ("vhost_blk_mpath_x_seconds_sum", "vhost_blk_mpath_x_seconds"),
    ] {
        let bad = good.replace(from, to);
        assert!(std::panic::catch_unwind(|| parse(&bad)).is_err(), "{bad}");
    }
}

/// A parser that lets everything pass would prove nothing.
#[test]
fn what_is_wrong_is_noticed() {
    let good = "# HELP vhost_blk_mpath_x_total X\n# TYPE vhost_blk_mpath_x_total counter\nvhost_blk_mpath_x_total{a=\"\\\\\"} 1\n";
    assert_eq!(parse(good)[0].value(&[("a", "\\")]), 1.0);
    for (from, to) in [
        ("_total", ""),
        ("# HELP vhost_blk_mpath_x_total X\n", ""),
        ("# TYPE vhost_blk_mpath_x_total counter\n", ""),
        ("counter", "gauge"),
        ("counter", "histogram"),
        ("\\\\", "\\x"),
        ("\\\\", "\""),
        ("\\\\", "\n"),
        ("} 1\n", "} 1"),
        ("} 1", "} -1"),
        ("} 1", "} NaN"),
        ("} 1", "}  1"),
        ("} 1", "} 1 1"),
        ("a=", "A="),
        ("{a=", "{a=\"\",a="),
        ("{a=", "{le=\"1\",a="),
    ] {
        let bad = good.replace(from, to);
        assert!(std::panic::catch_unwind(|| parse(&bad)).is_err(), "{bad}");
    }
    assert!(std::panic::catch_unwind(|| parse(&good.repeat(2))).is_err());
    let last = good.lines().last().unwrap();
    assert!(std::panic::catch_unwind(|| parse(&format!("{good}{last}\n"))).is_err());
}
