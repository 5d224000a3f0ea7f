//! Output: a table for people, or the answer of the API as JSON or YAML.

use std::io::{self, Write};

use mpath_api::types::ErrorCode;
use serde::Serialize;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::{Alignment, Padding, Style};

use crate::Format;

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
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// Prints `answer`. `as_table` makes the text for people.
    pub(crate) fn print<T: Serialize>(&mut self, answer: &T, as_table: impl FnOnce(&T) -> String) -> io::Result<()> {
        let text = match self.format {
            Format::Table => as_table(answer),
            Format::Json => serde_json::to_string_pretty(answer).map_err(io::Error::other)? + "\n",
            Format::Yaml => serde_yaml::to_string(answer).map_err(io::Error::other)?,
        };
        write(&text)
    }

    /// Prints one item of a stream: a line of a table or of JSON, or an item of a YAML list.
    pub(crate) fn print_one<T: Serialize>(&mut self, item: &T, as_table: impl FnOnce(&T) -> String) -> io::Result<()> {
        let text = match self.format {
            Format::Table => as_table(item),
            Format::Json => serde_json::to_string(item).map_err(io::Error::other)? + "\n",
            Format::Yaml => serde_yaml::to_string(&[item]).map_err(io::Error::other)?,
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
            Format::Yaml => serde_yaml::to_string(&report).ok(),
        };
        let text = text.unwrap_or_else(|| format!("mpathctl: {message}"));
        // A failed write leaves nothing to do.
        let _ = writeln!(io::stderr(), "{}", text.trim_end());
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A column with its header. Numbers are aligned to the right.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Aligned columns below a line of headers.
pub(crate) fn table<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut builder = Builder::default();
    builder.push_record(columns.map(|(Column::Text(header) | Column::Number(header))| header));
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table.with(Style::empty()).with(Padding::new(0, 2, 0, 0));
    for (index, column) in columns.iter().enumerate() {
        if let Column::Number(_) = column {
            table.modify(Columns::one(index), Alignment::right());
        }
    }
    table.to_string().lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

/// The value, or `-` without one.
pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align_and_end_without_blanks() {
        let columns = [Column::Text("NAME"), Column::Number("SIZE(B)"), Column::Text("NOTE")];
        let rows = [["a", "1", ""], ["longer", "1234567890", "x"]].map(|row| row.map(String::from));
        assert_eq!(table(columns, rows), "NAME       SIZE(B)  NOTE\na                1\nlonger  1234567890  x\n");
        assert_eq!(table(columns, []), "NAME  SIZE(B)  NOTE\n");
    }
}
