//! YAML that readers of YAML 1.1 understand too, such as `PyYAML` and Ansible.

use serde::Serialize;
use serde_yaml::{Mapping, Value};

/// Stands for a quotation mark until the text is written: a private character of Unicode, which needs no quotes.
const QUOTE: char = '\u{e000}';

/// Writes an answer. Quotes what YAML 1.1 takes for something other than a text.
pub(crate) fn write(answer: &impl Serialize) -> serde_yaml::Result<String> {
    let answer = quoted(serde_yaml::to_value(answer)?);
    Ok(serde_yaml::to_string(&answer)?.replace(QUOTE, "'"))
}

fn quoted(value: Value) -> Value {
    match value {
        Value::String(text) if is_other_in_yaml_1_1(&text) => Value::String(format!("{QUOTE}{text}{QUOTE}")),
        Value::Sequence(items) => items.into_iter().map(quoted).collect(),
        Value::Mapping(map) => {
            map.into_iter().map(|(key, value)| (quoted(key), quoted(value))).collect::<Mapping>().into()
        }
        other => other,
    }
}

/// Whether a text without quotes is no text in YAML 1.1, but may be one in YAML 1.2.
fn is_other_in_yaml_1_1(text: &str) -> bool {
    let words = ["y", "n", "yes", "no", "on", "off", "=", "<<"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word)) || is_number(text) || is_date(text)
}

/// Binary, hexadecimal, with `_` between digits, or sexagesimal such as `12:30`.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text).replace('_', "");
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let sexagesimal = |text: &str| text.contains(':') && text.split(':').all(is_digits);
    let prefixed =
        |(prefix, radix)| digits.strip_prefix(prefix).is_some_and(|rest| u64::from_str_radix(rest, radix).is_ok());
    digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && (digits.parse::<f64>().is_ok()
            || [("0b", 2), ("0x", 16)].into_iter().any(prefixed)
            || sexagesimal(digits.split('.').next().unwrap_or_default()))
}

/// A date, alone or with a time.
fn is_date(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let lengths: Vec<_> = date.split('-').map(str::len).collect();
    date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') && matches!(lengths[..], [4, 1..=2, 1..=2])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The texts that `PyYAML` does not read as texts were read by `PyYAML` 6.0.
    #[test]
    fn what_yaml_1_1_reads_otherwise_is_quoted() {
        for text in [
            "on",
            "off",
            "Off",
            "OFF",
            "yes",
            "no",
            "y",
            "N",
            "true",
            "null",
            "~",
            "",
            "0660",
            "007",
            "0x1f",
            "0b11",
            "1_000",
            "+5",
            "1.5e+3",
            "1_0.5",
            ".5",
            "12:30",
            "190:20:30",
            "1:20.5",
            "-1:20",
            "2024-01-02",
            "2024-01-02T10:00:00.123Z",
            "2024-1-2 10:00:00",
            "=",
            "<<",
        ] {
            let written = write(&text).unwrap();
            assert_eq!(written, format!("'{text}'\n"));
            assert_eq!(serde_yaml::from_str::<String>(&written).unwrap(), text);
        }
        for text in [
            "one",
            "only",
            "p95",
            "5%",
            "300ms",
            "512KiB",
            "disk0",
            "0a",
            "1-2",
            "127.0.0.1:9464",
            "tcp://192.0.2.1:4420",
            "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21",
            "2024-01",
            "nqn.2014-08.org.example:disk0",
            "12:30 o'clock",
        ] {
            assert_eq!(write(&text).unwrap(), format!("{text}\n"));
        }
    }

    #[test]
    fn keys_and_values_of_any_depth_are_quoted() {
        let answer = BTreeMap::from([("no", vec![BTreeMap::from([("iops", "off"), ("name", "it's: on")])])]);
        let written = write(&answer).unwrap();
        assert_eq!(written, "'no':\n- iops: 'off'\n  name: 'it''s: on'\n");
        assert_eq!(serde_yaml::from_str::<BTreeMap<String, Value>>(&written).unwrap().len(), 1);
    }
}
