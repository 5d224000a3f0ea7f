//! Output: text for people, or the answer of the API as JSON or YAML.

use std::fmt::Display;
use std::io::{self, Write};

use mpath_api::types::ErrorCode;
use serde::Serialize;

use crate::table::Style;
pub(crate) use crate::table::{Column, Table, Text, table};
use crate::{Format, yaml};

/// The code of an error, for programs.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Code {
    /// A code of the API, from the daemon's answer.
    Api(ErrorCode),
    /// A code of this program.
    Own(&'static str),
}

/// An error in the form of the API's.
#[derive(Debug, Serialize)]
struct ErrorReport<'a> {
    error: ErrorParts<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorParts<'a> {
    code: Code,
    message: &'a str,
}

/// Output in the chosen format.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    style: Style,
    /// The text printed so far, if `--watch` collects it.
    collected: Option<String>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format, style: Style::of_stdout(), collected: None }
    }

    /// Keeps what is printed, for `--watch`. JSON has one line then.
    pub(crate) fn collecting(format: Format) -> Self {
        Self { collected: Some(String::new()), ..Self::new(format) }
    }

    pub(crate) fn collected(&self) -> &str {
        self.collected.as_deref().unwrap_or_default()
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Columns and rows of the terminal, if the output is for people and goes there.
    pub(crate) fn screen(&self) -> Option<(usize, usize)> {
        self.style.size.filter(|_| matches!(self.format, Format::Table))
    }

    /// Prints `answer`. `as_text` makes the text for people.
    pub(crate) fn print<T: Serialize, X: Into<Text>>(
        &mut self,
        answer: &T,
        as_text: impl FnOnce(&T) -> X,
    ) -> io::Result<()> {
        let text = match self.format {
            Format::Table => as_text(answer).into().shown(self.style),
            Format::Json if self.collected.is_some() => serde_json::to_string(answer).map_err(io::Error::other)? + "\n",
            Format::Json => serde_json::to_string_pretty(answer).map_err(io::Error::other)? + "\n",
            Format::Yaml => yaml::write(answer).map_err(io::Error::other)?,
        };
        match &mut self.collected {
            Some(collected) => collected.push_str(&text),
            None => write(&text)?,
        }
        Ok(())
    }

    /// Prints one item of a stream: a line of a table or of JSON, or an item of a YAML list.
    pub(crate) fn print_one<T: Serialize>(&mut self, item: &T, as_line: impl FnOnce(&T) -> String) -> io::Result<()> {
        let text = match self.format {
            Format::Table => as_line(item),
            Format::Json => serde_json::to_string(item).map_err(io::Error::other)? + "\n",
            Format::Yaml => yaml::write(&[item]).map_err(io::Error::other)?,
        };
        write(&text)
    }
}

impl Output {
    /// Prints an error to stderr, so that stdout has answers alone.
    pub(crate) fn error(&self, code: Code, message: &str) {
        let report = ErrorReport { error: ErrorParts { code, message } };
        let text = match self.format {
            Format::Table => None,
            Format::Json => serde_json::to_string(&report).ok(),
            Format::Yaml => yaml::write(&report).ok(),
        };
        let text = text.unwrap_or_else(|| format!("mpathctl: {message}"));
        // A failed write leaves nothing to do.
        let _ = writeln!(io::stderr(), "{}", text.trim_end());
    }
}

/// Prints a note to stderr. A failed write leaves nothing to do.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr(), "mpathctl: {text}");
}

pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The value, or `-` without one.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}
