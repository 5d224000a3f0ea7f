//! Values as YAML.

use serde_yaml::Value;

/// A value on one line, within a line.
pub(super) fn flow(value: &Value) -> String {
    match value {
        Value::Mapping(map) => {
            let pairs: Vec<_> = map.iter().map(|(key, value)| format!("{}: {}", flow(key), flow(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::Sequence(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        scalar => {
            let text = serde_yaml::to_string(scalar).unwrap_or_default();
            let text = text.trim_end();
            let is_quoted = text.starts_with(['\'', '"']);
            // These end a value that is not quoted.
            if text.contains(['[', ']', '{', '}', ',']) && !is_quoted { format!("'{text}'") } else { text.into() }
        }
    }
}

/// A value on lines of its own, not indented.
pub(super) fn block(value: &Value) -> String {
    serde_yaml::to_string(value).unwrap_or_default().trim_end().into()
}
