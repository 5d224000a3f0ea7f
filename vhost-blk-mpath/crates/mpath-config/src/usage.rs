//! The message about a command line that cannot be parsed: one line, as for every other error.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::config::looks_like_key;

/// The message. `None` for help and version, which are no errors, and for an empty command line, which gets the help.
#[must_use]
pub fn usage_line(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    if error.kind() == ErrorKind::ArgumentConflict {
        let line = conflict(error, std::env::args_os().filter_map(|arg| arg.into_string().ok()));
        if line.is_some() {
            return line;
        }
    }
    let message = without_keys(error, error.render().to_string());
    // The error ends at the first blank line. Hints and the usage follow.
    let words: Vec<_> = message.split("\n\n").take(1).flat_map(str::split_whitespace).collect();
    let line = words.join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Some(match error.kind() {
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => line.to_owned(),
        _ => format!("{line}; see --help"),
    })
}

/// Hides values that may be keys: an error is printed, and logged by whoever starts the program.
fn without_keys(error: &clap::Error, message: String) -> String {
    let values = error.context().filter_map(|(_, value)| match value {
        ContextValue::String(value) if looks_like_key(value) => Some(value),
        _ => None,
    });
    values.fold(message, |message, value| message.replace(value.as_str(), "(hidden)"))
}

/// The message about options that cannot be used together. clap names every option of a conflicting group, and this names only
/// those on the command line. `None` if there are no two such options.
fn conflict(error: &clap::Error, given: impl Iterator<Item = String>) -> Option<String> {
    // `--config <FILE>`: the name is the first word.
    let names = |kind| match error.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(several)) => several.clone(),
        _ => Vec::new(),
    };
    let given: Vec<_> = given.collect();
    let is_given = |name: &str| given.iter().any(|arg| arg.split('=').next() == Some(name));
    let first = |text: String| text.split_whitespace().next().unwrap_or_default().to_owned();
    let mut together: Vec<String> = [ContextKind::InvalidArg, ContextKind::PriorArg]
        .into_iter()
        .flat_map(names)
        .map(first)
        .filter(|name| is_given(name))
        .collect();
    together.dedup();
    (together.len() > 1).then(|| format!("{} cannot be used together; see --help", together.join(" and ")))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction, Command};

    use super::*;

    fn error(line: &str) -> clap::Error {
        let number = clap::value_parser!(u8);
        Command::new("program")
            .args([
                Arg::new("config").long("config").conflicts_with_all(["size", "name", "on"]),
                Arg::new("size").long("size").value_parser(number).allow_negative_numbers(true),
                Arg::new("name").long("name").required_unless_present("config"),
                Arg::new("on").long("on").action(ArgAction::SetTrue),
            ])
            .try_get_matches_from(line.split_whitespace())
            .unwrap_err()
    }

    #[test]
    fn every_error_is_one_line() {
        for (line, said) in [
            ("program --size 300 --name x", "invalid value '300' for '--size <size>': 300 is not in 0..=255"),
            ("program --size -3 --name x", "invalid value '-3' for '--size <size>': -3 is not in 0..=255"),
            ("program --size 3", "the following required arguments were not provided: --name <name>; see --help"),
            ("program --name x --bogus", "unexpected argument '--bogus' found; see --help"),
            ("program --name", "a value is required for '--name <name>' but none was supplied"),
        ] {
            assert_eq!(usage_line(&error(line)).as_deref(), Some(said));
        }
        assert_eq!(usage_line(&error("program --help")), None);
    }

    #[test]
    fn a_conflict_names_what_was_given() {
        for line in ["program --config f --size=3", "program --size=3 --config f"] {
            let said = conflict(&error(line), line.split_whitespace().map(str::to_owned)).unwrap();
            assert!(said.contains("--config") && said.contains("--size") && !said.contains("--name"), "{said}");
        }
    }
}
