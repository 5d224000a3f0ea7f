//! Decides: an error about a key names this place.
//!
//! Places in a configuration.

use std::fmt::Write;

/// A step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The value of a key.
    Key(String),
    /// The value of a key that the mapping has already, and how often.
    Repeated(String, usize),
    /// The item of a list, from 0.
    Item(usize),
}

/// The steps from the root.
pub(super) type Place = Vec<Step>;

/// A place as errors name it: `disks[0].queues`.
pub(super) fn shown(place: &[Step]) -> String {
    let mut text = String::new();
    for step in place {
        let dot = if text.is_empty() { "" } else { "." };
        // Writing to a string does not fail.
        let _ = match step {
            Step::Key(key) | Step::Repeated(key, _) => write!(text, "{dot}{key}"),
            Step::Item(index) => write!(text, "[{index}]"),
        };
    }
    text
}

/// The place that [`shown`] shows as this text.
pub(super) fn parsed(setting: &str) -> Place {
    let mut place = Place::new();
    for part in setting.split('.') {
        let mut parts = part.split('[');
        place.extend(parts.next().map(|key| Step::Key(key.into())));
        place.extend(parts.filter_map(|index| Some(Step::Item(index.strip_suffix(']')?.parse().ok()?))));
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_and_parsed() {
        let place = [Step::Key("disks".into()), Step::Item(2), Step::Key("paths".into()), Step::Item(0)];
        assert_eq!(shown(&place), "disks[2].paths[0]");
        assert_eq!(parsed("disks[2].paths[0]"), place);
        assert_eq!(shown(&[Step::Repeated("api".into(), 1)]), "api");
    }
}
