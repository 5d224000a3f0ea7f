//! The text of a document's section: paragraphs of at most 100 columns, tables, targets, the machine.

use super::results::{Cell, Results, Row};
use super::spread::number;
use super::targets::Target;

/// The longest line of prose.
const COLUMNS: usize = 100;

/// A section as it is written.
#[derive(Debug, Clone, Default)]
pub struct Section(String);

/// What a column shows of a cell.
type Text<'a> = Box<dyn Fn(&Row, &Cell) -> String + 'a>;

/// A column of a table of cells.
pub struct Column<'a> {
    head: &'a str,
    text: Text<'a>,
}

impl<'a> Column<'a> {
    /// What `text` makes of a cell.
    pub fn new(head: &'a str, text: impl Fn(&Row, &Cell) -> String + 'a) -> Self {
        Self { head, text: Box::new(text) }
    }

    /// Median (least–most) of a figure.
    #[must_use]
    pub fn spread(head: &'a str, figure: &'a str, decimals: usize) -> Self {
        Self::new(head, move |_, cell| cell.get(figure).map_or("–".to_owned(), |spread| spread.text(decimals)))
    }

    /// The median of a figure.
    #[must_use]
    pub fn median(head: &'a str, figure: &'a str, decimals: usize) -> Self {
        Self::value(head, decimals, "", move |_, cell| cell.median(figure))
    }

    /// A number and its unit.
    #[must_use]
    pub fn value(head: &'a str, decimals: usize, unit: &'a str, of: impl Fn(&Row, &Cell) -> Option<f64> + 'a) -> Self {
        Self::new(head, move |row, cell| of(row, cell).map_or("–".to_owned(), |value| number(value, decimals) + unit))
    }
}

impl Section {
    /// The written text, with one newline at its end.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.trim().to_owned() + "\n"
    }

    /// A heading of the fourth level.
    pub fn heading(&mut self, title: &str) {
        self.push(&format!("#### {title}\n\n"));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, words: &str) {
        self.wrapped(words, "", "", "");
        self.0.push('\n');
    }

    /// One table for each row, which its name heads.
    pub fn tables<'r>(
        &mut self,
        first: &str,
        rows: impl Iterator<Item = &'r Row>,
        heading: impl Fn(&Row) -> String,
        columns: &[Column<'_>],
    ) {
        for row in rows {
            self.paragraph(&heading(row));
            self.head(&[first], columns);
            for cell in row.cells.iter().filter(|cell| !cell.figures.is_empty()) {
                self.line(&[&cell.contender], row, cell, columns);
            }
            self.0.push('\n');
        }
    }

    /// One table of all rows; a row's name stands in its first line.
    pub fn table<'r>(&mut self, first: [&str; 2], rows: impl Iterator<Item = &'r Row>, columns: &[Column<'_>]) {
        self.head(&first, columns);
        for row in rows {
            for (index, cell) in row.cells.iter().filter(|cell| !cell.figures.is_empty()).enumerate() {
                self.line(&[if index == 0 { &row.name } else { "" }, &cell.contender], row, cell, columns);
            }
        }
        self.0.push('\n');
    }

    fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn head(&mut self, first: &[&str], columns: &[Column<'_>]) {
        let heads: Vec<&str> = first.iter().copied().chain(columns.iter().map(|column| column.head)).collect();
        let ruler = "---|".repeat(first.len()) + &"--:|".repeat(columns.len());
        self.push(&format!("| {} |\n|{ruler}\n", heads.join(" | ")));
    }

    fn line(&mut self, first: &[&str], row: &Row, cell: &Cell, columns: &[Column<'_>]) {
        let cells = columns.iter().map(|column| (column.text)(row, cell));
        let words: Vec<String> = first.iter().map(|word| (*word).to_owned()).chain(cells).collect();
        self.push(&format!("| {} |\n", words.join(" | ")));
    }

    /// A list of the targets.
    pub fn targets(&mut self, targets: &[Target]) {
        self.0 += "Targets, judged by the medians:\n\n";
        for target in targets {
            self.wrapped(&target.text(), "* ", "  ", "");
        }
        self.0.push('\n');
    }

    /// The machine, the command lines and the picture.
    pub fn machine(&mut self, results: &Results, note: &str, picture: &str, name: &str) {
        self.paragraph(&format!("Machine: {} {note}", results.machine.text()));
        self.0 += "```console\n";
        for command in &results.commands {
            self.wrapped(command, "$ ", "    ", " \\");
        }
        self.push(&format!("```\n\n![{picture}](results/{name}.svg)\n"));
    }

    /// Breaks lines between words.
    fn wrapped(&mut self, words: &str, first: &str, next: &str, end: &str) {
        let (mut line, mut is_empty) = (first.to_owned(), true);
        for word in words.split_whitespace() {
            let length = line.chars().count() + 1 + word.chars().count() + end.len();
            if !is_empty && length > COLUMNS {
                self.push(&format!("{line}{end}\n"));
                (line, is_empty) = (next.to_owned(), true);
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        self.push(&format!("{line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Sample;

    #[test]
    fn prose_and_commands_stay_within_a_hundred_columns() {
        let mut section = Section::default();
        section.paragraph(&"words ".repeat(40));
        section.wrapped(&"--option value ".repeat(20), "$ ", "    ", " \\");
        let text = section.text();
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(text.matches("words").count(), 40);
        assert!(text.contains(" \\\n    --option value"), "{text}");
    }

    #[test]
    fn tables_have_the_cells_that_were_measured() {
        let mut row = Row::new("a", "4k", ["bdp", "numa"].into_iter());
        row.cells[0].add(Sample::new(&[("iops", 1000.0)]));
        let columns = [Column::spread("IOPS", "iops", 0), Column::median("p50 ms", "p50_ms", 1)];
        let mut section = Section::default();
        section.table(["workload", "policy"], [&row].into_iter(), &columns);
        section.tables("policy", [&row].into_iter(), |row| format!("Of {}:", row.name), &columns);
        let line = "1\u{202f}000 (1\u{202f}000–1\u{202f}000) | – |\n";
        let expected = format!(
            "| workload | policy | IOPS | p50 ms |\n|---|---|--:|--:|\n| 4k | bdp | {line}\nOf 4k:\n\n\
             | policy | IOPS | p50 ms |\n|---|--:|--:|\n| bdp | {line}"
        );
        assert_eq!(section.text(), expected);
    }
}
