//! Decides: the text of a configuration has these errors.
//!
//! Reads a text with all its errors.
//!
//! `serde_yaml` reads a text, and stops at the first error. If there is one, all errors are sought in the values with their
//! places, which are parsed once. A type stops at its first error too. So it is read several times. Each time, values with
//! known errors are left out or replaced, until there is no error.

pub(super) mod nodes;
mod place;
mod values;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::de::{DeserializeOwned, IgnoredAny};

use self::nodes::{Node, NodeKind};
use self::place::{Place, Step};
use self::values::{Failure, Value};
use super::error::ConfigError;

/// The most errors that are told of one text.
pub(super) const MAX_ERRORS: usize = 64;
/// The most attempts to read the values: an error may take six, until a placeholder fits.
const MAX_ATTEMPTS: usize = 6 * MAX_ERRORS;
/// The most values of a text. The largest configuration has fewer. Aliases of YAML repeat values without a limit.
const MAX_VALUES: usize = 100_000;

/// An error and the setting that it is about, such as `disks[0].queues`.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) setting: String,
    pub(super) error: ConfigError,
}

/// A text that was read as far as its errors allow.
pub(super) struct Reading<T> {
    /// The value, with placeholders where the text has errors. `None` if too much of the text is wrong.
    pub(super) value: Option<T>,
    /// In the order in which the type reads.
    pub(super) faults: Vec<Fault>,
    root: Option<Rc<Node>>,
    /// The placeholder at each faulty place. `None`: the key is left out with its value.
    repairs: BTreeMap<Place, Option<usize>>,
}

/// Reads a text, or returns its first error.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    let mut reading = read_at_most(text, 1);
    match (reading.faults.pop(), reading.value) {
        (None, Some(value)) => Ok(value),
        (fault, _) => Err(fault.expect("a text without a value has an error").error),
    }
}

/// Reads a text with all its errors.
pub(super) fn read_all<T: DeserializeOwned>(text: &str) -> Reading<T> {
    read_at_most(text, MAX_ERRORS)
}

/// Reads a text with its first errors.
fn read_at_most<T: DeserializeOwned>(text: &str, max_errors: usize) -> Reading<T> {
    let root = Node::parse(text, true);
    let mut reading = Reading { value: None, faults: Vec::new(), root, repairs: BTreeMap::new() };
    let whole = |error| Fault { setting: String::new(), error };
    if reading.root.as_ref().is_some_and(|root| root.count > MAX_VALUES) {
        let message = format!("more than {MAX_VALUES} values, aliases counted in full; write fewer");
        reading.faults.push(whole(ConfigError::Yaml { message, place: None }));
        return reading;
    }
    let error = match serde_yaml::from_str(text) {
        Ok(value) => return Reading { value: Some(value), ..reading },
        Err(error) => error,
    };
    // What follows an error in the syntax means nothing.
    if serde_yaml::from_str::<IgnoredAny>(text).is_ok() {
        reading.explain(max_errors);
    }
    if reading.faults.is_empty() {
        reading.faults.push(whole(error.into()));
    }
    reading
}

/// Line and column of a setting, or else of the mapping or list around it.
pub(super) fn place_of(text: &str, setting: &str) -> Option<(usize, usize)> {
    find(&*Node::parse(text, true)?, setting)
}

fn find(root: &Node, setting: &str) -> Option<(usize, usize)> {
    let place = place::parsed(setting);
    (1..=place.len()).rev().find_map(|len| root.find(&place[..len])).map(|node| node.at)
}

impl<T: DeserializeOwned> Reading<T> {
    /// Seeks the errors of the values, and replaces these values by others.
    fn explain(&mut self, max_errors: usize) {
        let Some(mut root) = self.root.clone() else { return };
        for _ in 0..MAX_ATTEMPTS {
            let failed = RefCell::default();
            let error = match T::deserialize(Value { node: &root, place: Place::new(), failed: &failed }) {
                Ok(value) => {
                    self.value = Some(value);
                    return;
                }
                Err(error) => error.to_string(),
            };
            let whole = Failure { place: Place::new(), is_key: false, at: root.at };
            let goes_on = self.note(Rc::make_mut(&mut root), failed.take().unwrap_or(whole), &error);
            if !goes_on || self.faults.len() >= max_errors {
                return;
            }
        }
    }

    /// Notes an error and repairs it. Returns `false` if the values cannot be read any further.
    fn note(&mut self, root: &mut Node, Failure { mut place, is_key, at }: Failure, error: &str) -> bool {
        let named = place::shown(&place[..place.len() - usize::from(is_key)]);
        let missing = named_in(error, "missing field `");
        place.extend(missing.map(|key| Step::Key(key.into(), 0)));
        let is_new = !self.repairs.contains_key(&place);
        let is_in_placeholder = (1..place.len()).any(|len| self.repairs.contains_key(&place[..len]));
        if is_new && !is_in_placeholder && !(missing.is_some() && self.is_meant(&place::shown(&place))) {
            let message = if named.is_empty() { error.into() } else { format!("{named}: {error}") };
            let error = ConfigError::Yaml { message, place: Some(at) };
            self.faults.push(Fault { setting: place::shown(&place), error });
        }
        // If no repair fits there, the error is in the mapping or list around it.
        while let Some(last) = place.last() {
            let kind = match self.repairs.get(&place) {
                None if missing.is_none() && !matches!(last, Step::Item(_)) => None,
                None | Some(None) => Some(0),
                Some(Some(kind)) => Some(kind + 1),
            };
            let value = kind.and_then(|kind| NodeKind::placeholder(kind, self.repairs.len()));
            if kind.is_none() || value.is_some() {
                root.set(&place, value);
                self.repairs.insert(place, kind);
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
        self.is_meant(setting) || self.repairs.keys().any(|place| contains(&place::shown(place)))
    }

    /// Line and column of a setting, or else of the mapping or list around it.
    pub(super) fn find(&self, setting: &str) -> Option<(usize, usize)> {
        find(self.root.as_ref()?, setting)
    }

    /// Whether the error about an unknown key has suggested this setting.
    fn is_meant(&self, setting: &str) -> bool {
        let (parent, key) = setting.rsplit_once('.').unwrap_or(("", setting));
        self.faults.iter().any(|fault| {
            let message = fault.error.message();
            let meant = named_in(&message, "`: write `").or_else(|| named_in(&message, "`: did you mean `"));
            fault.setting.rsplit_once('.').map_or("", |(parent, _)| parent) == parent && meant == Some(key)
        })
    }
}

/// The name that follows these words in a message.
fn named_in<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    message.split_once(words)?.1.split('`').next()
}
