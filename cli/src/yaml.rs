//! YAML that readers of YAML 1.1 understand too, such as `PyYAML` and Ansible.

use serde::Serialize;
use serde_yaml::Value;

/// Writes an answer. Quotes what YAML 1.1 takes for something other than a text.
pub(crate) fn write(answer: &impl Serialize) -> serde_yaml::Result<String> {
    block(&serde_yaml::to_value(answer)?)
}

/// A value on lines of its own.
fn block(value: &Value) -> serde_yaml::Result<String> {
    let indented = |value: &Value| block(value).map(|lines| lines.trim_end_matches('\n').replace('\n', "\n  "));
    match value {
        Value::Sequence(items) if !items.is_empty() => {
            items.iter().map(|item| Ok(format!("- {}\n", indented(item)?))).collect()
        }
        Value::Mapping(map) if !map.is_empty() => {
            let pair = |(key, value): (&Value, &Value)| match value {
                Value::Sequence(items) if !items.is_empty() => Ok(format!("{}:\n{}", indented(key)?, block(value)?)),
                Value::Mapping(map) if !map.is_empty() => Ok(format!("{}:\n  {}\n", indented(key)?, indented(value)?)),
                _ => Ok(format!("{}: {}\n", indented(key)?, indented(value)?)),
            };
            map.iter().map(pair).collect()
        }
        Value::String(text) if is_other_in_yaml_1_1(text) => Ok(format!("'{text}'\n")),
        // On one line, whatever the indentation.
        Value::String(text) if text.contains('\n') => {
            Ok(serde_json::json!(text).to_string().chars().map(escaped).chain(["\n".into()]).collect())
        }
        scalar => serde_yaml::to_string(scalar),
    }
}

/// A character within double quotes. JSON leaves some as they are that YAML refuses or takes for the end of a line.
fn escaped(c: char) -> String {
    match c {
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => format!("\\u{:04x}", c as u32),
        _ => c.into(),
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
    let prefixed = |(prefix, radix)| {
        digits.strip_prefix(prefix).is_some_and(|rest| rest.chars().all(|digit| digit.is_digit(radix)))
    };
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

    use serde_yaml::Mapping;

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
            "0x_",
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

    #[test]
    fn any_structure_and_any_text_is_read_again() {
        let texts = [
            "\u{85}\n",
            "\u{7f}\n\u{2028}",
            "a",
            "\u{e000}off\u{e000}",
            "two\nlines\n",
            " \n b",
            "it's",
            "- a",
            "",
            "a: b",
            "#",
            "\t",
            "\u{85}",
            "a\u{a0}",
        ];
        let texts = Value::from(texts.map(Value::from).to_vec());
        let map =
            |value: &Value| Value::from(Mapping::from_iter([("off".into(), value.clone()), (7.into(), "x".into())]));
        let list = |value: &Value| Value::from(vec![value.clone(), Value::Null, value.clone()]);
        for leaf in [texts, Value::from(Mapping::new()), Value::from(Vec::<Value>::new()), 1.5.into(), true.into()] {
            for answer in [map(&map(&leaf)), map(&list(&leaf)), list(&map(&leaf)), list(&list(&leaf)), leaf] {
                let written = write(&answer).unwrap();
                assert_eq!(serde_yaml::from_str::<Value>(&written).unwrap(), answer, "{written}");
            }
        }
    }
}
