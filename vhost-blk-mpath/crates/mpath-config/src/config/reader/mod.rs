//! Decides: the text of a configuration has these errors.
//!
//! Reads a text with all its errors.
//!
//! The reader of YAML stops at the first error. So a text is read several times. Each time, the values with known errors
//! are left out or replaced on their way from the reader to the types, until there is no error. The reader always sees
//! the text as it is, so every error has its own place.

mod access;
mod place;
mod repair;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde::de::{DeserializeOwned, IgnoredAny};

use self::access::{Filtered, Position};
use self::place::{Place, Step};
use self::repair::Repair;
use super::error::ConfigError;

/// The most errors that are told of one text.
pub(super) const MAX_ERRORS: usize = 64;
/// The most attempts to read a text: an error may take six, until a placeholder fits.
const MAX_ATTEMPTS: usize = 6 * MAX_ERRORS;
/// The most values of a text. The largest configuration has fewer. Aliases of YAML repeat values without a limit.
const MAX_VALUES: usize = 100_000;

/// The repairs of a text, and the last error.
#[derive(Default)]
struct Known {
    repairs: BTreeMap<Place, Repair>,
    /// Where the present attempt has failed.
    failed_at: RefCell<Option<Place>>,
    /// The values that the present attempt has read.
    values: Cell<usize>,
}

/// An error and the setting that it is about, such as `disks[0].queues`.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) setting: String,
    pub(super) error: ConfigError,
}

/// A text that was read as far as its errors allow.
pub(super) struct Reading<'a, T> {
    text: &'a str,
    /// In the order of the text.
    pub(super) faults: Vec<Fault>,
    /// The value, with placeholders where the text has errors. `None` if too much of the text is wrong.
    pub(super) value: Option<T>,
    known: Known,
}

/// Reads a text, or returns its first error.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    attempt(text, &Known::default()).map_err(ConfigError::Yaml)
}

/// Reads a text with all its errors.
pub(super) fn read_all<T: DeserializeOwned>(text: &str) -> Reading<'_, T> {
    let mut reading = Reading { text, faults: Vec::new(), value: None, known: Known::default() };
    // Errors in the syntax come first: what follows them means nothing.
    if let Err(error) = serde_yaml::from_str::<IgnoredAny>(text) {
        reading.faults.push(Fault { setting: String::new(), error: ConfigError::Yaml(error) });
        return reading;
    }
    for _ in 0..MAX_ATTEMPTS {
        match attempt(text, &reading.known) {
            Ok(value) => {
                reading.value = Some(value);
                break;
            }
            Err(error) => {
                let failed_at = reading.known.failed_at.take().unwrap_or_default();
                if reading.known.values.get() > MAX_VALUES {
                    reading.faults.push(Fault { setting: String::new(), error: ConfigError::Yaml(error) });
                    break;
                }
                if !reading.note(failed_at, error) || reading.faults.len() >= MAX_ERRORS {
                    break;
                }
            }
        }
    }
    reading
}

fn attempt<T: DeserializeOwned>(text: &str, known: &Known) -> Result<T, serde_yaml::Error> {
    known.values.set(0);
    T::deserialize(Filtered { inner: serde_yaml::Deserializer::from_str(text), position: Position::root(known) })
}

impl<T: DeserializeOwned> Reading<'_, T> {
    /// Notes an error and repairs it. Returns `false` if the text cannot be read any further.
    fn note(&mut self, failed_at: Place, error: serde_yaml::Error) -> bool {
        let message = error.to_string();
        let missing = named_in(&message, "missing field `");
        let mut place = failed_at;
        place.extend(missing.map(|key| Step::Key(key.into())));
        let repairs = &mut self.known.repairs;
        let is_new = !repairs.contains_key(&place);
        let is_in_placeholder = (1..place.len()).any(|len| repairs.contains_key(&place[..len]));
        if is_new && !is_in_placeholder && !(missing.is_some() && is_meant(&self.faults, &place::shown(&place))) {
            self.faults.push(Fault { setting: place::shown(&place), error: ConfigError::Yaml(error) });
        }
        // If no repair fits there, the error is in the mapping or list around it.
        while let Some(last) = place.last() {
            let next = match repairs.get(&place) {
                None if missing.is_none() && !matches!(last, Step::Item(_)) => Some(Repair::LeaveOut),
                None | Some(Repair::LeaveOut) => Some(Repair::first_placeholder(repairs.len())),
                Some(Repair::Replace(placeholder)) => placeholder.next(),
                Some(Repair::Refuse) => None,
            };
            if let Some(next) = next {
                repairs.insert(place, next);
                return true;
            }
            place.pop();
        }
        false
    }

    /// Whether the setting has an error already, or is part of a value that has one.
    pub(super) fn is_faulty(&self, setting: &str) -> bool {
        let contains = |whole: &str| {
            setting.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        is_meant(&self.faults, setting) || self.known.repairs.keys().any(|place| contains(&place::shown(place)))
    }

    /// Line and column of a setting, or else of the mapping or list around it.
    pub(super) fn find(&self, setting: &str) -> Option<(usize, usize)> {
        let mut place = place::parsed(setting);
        while !place.is_empty() {
            let mut known = Known { repairs: self.known.repairs.clone(), ..Known::default() };
            known.repairs.insert(place.clone(), Repair::Refuse);
            if let Some(at) = attempt::<T>(self.text, &known).err().and_then(|error| error.location()) {
                return Some((at.line(), at.column()));
            }
            place.pop();
        }
        None
    }
}

/// The name that follows these words in a message.
fn named_in<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.split_once(words)?.1.split('`').next()
}

/// Whether the error about an unknown key has suggested this setting.
fn is_meant(faults: &[Fault], setting: &str) -> bool {
    let (parent, key) = setting.rsplit_once('.').unwrap_or(("", setting));
    faults.iter().any(|fault| {
        let message = fault.error.to_string();
        let meant = named_in(&message, "`: write `").or_else(|| named_in(&message, "`: did you mean `"));
        fault.setting.rsplit_once('.').map_or("", |(parent, _)| parent) == parent && meant == Some(key)
    })
}
