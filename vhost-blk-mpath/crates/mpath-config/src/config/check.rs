//! Decides: a configuration has all these errors.
//!
//! All errors of a configuration at once.

use std::path::Path;

use super::reader::{self, Fault, MAX_ERRORS};
use super::{Config, ConfigError, LoadError};

/// The settings in a text as they are written, without defaults.
#[must_use]
pub fn settings_in(text: &str) -> serde_json::Value {
    serde_yaml::from_str(text).unwrap_or_default()
}

/// Line and column of a setting in a text without errors, such as `disks[0].tls-key-file`, or else of the mapping or list around it.
#[must_use]
pub fn place_of(text: &str, setting: &str) -> Option<(usize, usize)> {
    reader::read_all::<Config>(text).find(setting)
}

/// The value of a text, and all errors in the order of the text. Errors that only follow from others are left out.
pub(super) fn faults(text: &str) -> (Option<Config>, Vec<Fault>) {
    let mut reading = reader::read_all::<Config>(text);
    let mut faults = Vec::new();
    let conflicts = reading.value.iter().flat_map(Config::conflicts).map(|conflict| (conflict.settings(), conflict));
    let own = conflicts.filter(|(settings, _)| !settings.iter().any(|setting| reading.is_faulty(setting)));
    // The text is read again to find the place of each conflict, so their number is limited.
    for (settings, conflict) in own.take(MAX_ERRORS) {
        let setting = settings.into_iter().next().unwrap_or_default();
        let error = ConfigError::Conflict { error: conflict.into(), place: reading.find(&setting) };
        faults.push(Fault { setting, error });
    }
    faults.append(&mut reading.faults);
    // A conflict without a place is last.
    faults.sort_by_key(|fault| fault.error.place().unwrap_or((usize::MAX, 0)));
    faults.truncate(MAX_ERRORS);
    (reading.value, faults)
}

impl Config {
    /// Reads and checks a text. Returns all its errors, in the order of the text.
    pub fn check(text: &str) -> Result<Self, Vec<ConfigError>> {
        let (config, faults) = faults(text);
        config.filter(|_| faults.is_empty()).ok_or_else(|| faults.into_iter().map(|fault| fault.error).collect())
    }

    /// Reads and checks the text of a file. Returns all its errors, each of which begins with the name of the file.
    pub fn check_file(name: &Path, text: &str) -> Result<Self, Vec<LoadError>> {
        let of_file = |source| LoadError::Invalid { path: name.into(), source };
        Self::check(text).map_err(|errors| errors.into_iter().map(of_file).collect())
    }
}
