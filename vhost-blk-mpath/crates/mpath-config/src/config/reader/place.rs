//! Decides: an error about a key names this place.
//!
//! Places in a configuration.

use std::fmt;

/// A step from a value to a part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The value of a key, and how often the mapping has the key before.
    Key(String, usize),
    /// The item of a list, from 0.
    Item(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key, _) => f.write_str(key),
            Self::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// The steps from the root.
pub(super) type Place = Vec<Step>;

/// A place as errors name it: `disks[0].queues`.
pub(super) fn shown(place: &[Step]) -> String {
    let text: String =
        place.iter().map(|step| if let Step::Key(..) = step { format!(".{step}") } else { step.to_string() }).collect();
    text.strip_prefix('.').unwrap_or(&text).into()
}

/// The place that [`shown`] shows as this text.
pub(super) fn parsed(setting: &str) -> Place {
    let mut place = Place::new();
    for part in setting.split('.') {
        let mut parts = part.split('[');
        place.extend(parts.next().map(|key| Step::Key(key.into(), 0)));
        place.extend(parts.filter_map(|index| Some(Step::Item(index.strip_suffix(']')?.parse().ok()?))));
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_shown_and_parsed() {
        let place = [Step::Key("disks".into(), 0), Step::Item(2), Step::Key("paths".into(), 0), Step::Item(0)];
        assert_eq!(shown(&place), "disks[2].paths[0]");
        assert_eq!(parsed("disks[2].paths[0]"), place);
        assert_eq!(shown(&[Step::Key("api".into(), 1)]), "api");
    }
}
