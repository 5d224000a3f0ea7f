//! The text of a document's section: tables, targets, settings, the machine. Lines of prose have at most 130 columns. The data file
//! has the command lines too.

use super::results::{Cell, Results, Row};
use super::spread::number;
use super::targets::Target;
use serde_json::Value;

/// The longest line of prose.
const COLUMNS: usize = 130;
/// Stands for a figure that was not measured.
const NOTHING: &str = "–";

/// What a column shows of a cell.
#[derive(Debug, Clone, Copy)]
pub enum Show {
    /// Median (least–most) of a figure, with this many decimals.
    Spread(&'static str, usize),
    /// Median of a figure with this many decimals, and how far the rounds lie from the median at most.
    Near(&'static str, usize),
    /// The median of a figure, with this many decimals.
    Median(&'static str, usize),
    /// The least value of the rounds, with this many decimals.
    Least(&'static str, usize),
    /// The largest value of the rounds, with this many decimals.
    Most(&'static str, usize),
    /// The median of a figure in µs, in ms with two decimals.
    Millis(&'static str),
    /// A part in percent, with this many decimals.
    Percent(usize, fn(&Results, &Row, &Cell) -> Option<f64>),
    /// CPU time for each request in µs, of the daemon + of the target, with this many decimals.
    Cpu(usize),
    Text(fn(&Results, &Row, &Cell) -> Option<String>),
}

/// The head of a column, and what the column shows.
pub type Column = (&'static str, Show);

/// How rows become tables.
#[derive(Debug, Clone, Copy)]
pub enum Layout {
    /// A table for each row, below this text. The first column has this head.
    EachRow(&'static str, fn(&Row) -> String),
    /// A table for each column, below the head of that column: contenders from left to right, and a line for each row. The first
    /// column has this head and these texts.
    EachColumn(&'static str, fn(&Row) -> String),
    /// One table of all rows. The first columns have these heads.
    AllRows([&'static str; 2]),
}

/// A table of a section.
#[derive(Debug, Clone)]
pub struct Table {
    caption: String,
    rows: Vec<Row>,
    layout: Layout,
    columns: &'static [Column],
}

/// A section as it is written.
#[derive(Debug, Default)]
pub(super) struct Section(String);

impl Show {
    fn text(self, results: &Results, row: &Row, cell: &Cell) -> String {
        let text = match self {
            Self::Spread(figure, decimals) => cell.get(figure).map(|spread| spread.text(decimals)),
            Self::Near(figure, decimals) => cell.get(figure).map(|spread| spread.near(decimals)),
            Self::Median(figure, decimals) => cell.median(figure).map(|median| number(median, decimals)),
            Self::Least(figure, decimals) => cell.get(figure).map(|spread| number(spread.min, decimals)),
            Self::Most(figure, decimals) => cell.get(figure).map(|spread| number(spread.max, decimals)),
            Self::Millis(figure) => cell.median(figure).map(|us| number(us / 1e3, 2)),
            Self::Percent(decimals, of) => of(results, row, cell).map(|percent| number(percent, decimals) + " %"),
            Self::Cpu(decimals) => {
                let times = ["cpu_daemon_us", "cpu_target_us"].into_iter().filter_map(|figure| cell.median(figure));
                Some(times.map(|us| format!("{us:.decimals$}")).collect::<Vec<_>>().join(" + "))
            }
            Self::Text(of) => of(results, row, cell),
        };
        text.unwrap_or_else(|| NOTHING.to_owned())
    }
}

impl Table {
    /// A table with these columns after that of the contender. Without rows nothing is written. The caption may be empty or a
    /// heading.
    pub fn new(caption: &str, rows: Vec<Row>, layout: Layout, columns: &'static [Column]) -> Self {
        Self { caption: caption.to_owned(), rows, layout, columns }
    }
}

impl Section {
    /// The written text, with one newline at its end.
    pub(super) fn text(&self) -> String {
        self.0.trim().to_owned() + "\n"
    }

    pub(super) fn table(&mut self, results: &Results, table: &Table) {
        if table.rows.is_empty() {
            return;
        }
        if !table.caption.is_empty() {
            self.paragraph(&table.caption);
        }
        if let Layout::EachColumn(first, name) = table.layout {
            return self.each_column(results, table, first, name);
        }
        if let Layout::AllRows(first) = table.layout {
            self.head(&first, table.columns.iter().map(|(head, _)| *head));
        }
        for row in &table.rows {
            if let Layout::EachRow(first, heading) = table.layout {
                self.paragraph(&heading(row));
                self.head(&[first], table.columns.iter().map(|(head, _)| *head));
            }
            for (index, cell) in row.cells.iter().filter(|cell| !cell.figures.is_empty()).enumerate() {
                let name = if index == 0 { &*row.name } else { "" };
                let first = matches!(table.layout, Layout::AllRows(_)).then(|| name.to_owned());
                let shown = table.columns.iter().map(|(_, show)| show.text(results, row, cell));
                let words: Vec<String> = first.into_iter().chain([cell.contender.clone()]).chain(shown).collect();
                self.push(&format!("| {} |\n", words.join(" | ")));
            }
            if matches!(table.layout, Layout::EachRow(..)) {
                self.0.push('\n');
            }
        }
        if matches!(table.layout, Layout::AllRows(_)) {
            self.0.push('\n');
        }
    }

    fn each_column(&mut self, results: &Results, table: &Table, first: &str, name: fn(&Row) -> String) {
        let mut contenders: Vec<&str> = Vec::new();
        for cell in table.rows.iter().flat_map(|row| &row.cells).filter(|cell| !cell.figures.is_empty()) {
            if !contenders.contains(&&*cell.contender) {
                contenders.push(&cell.contender);
            }
        }
        for (head, show) in table.columns {
            self.paragraph(&format!("{head}:"));
            self.head(&[first], contenders.iter().copied());
            for row in &table.rows {
                let shown = |contender: &&str| {
                    let cell = row.cells.iter().find(|cell| cell.contender == **contender);
                    cell.map_or_else(|| NOTHING.to_owned(), |cell| show.text(results, row, cell))
                };
                let words: Vec<String> = [name(row)].into_iter().chain(contenders.iter().map(shown)).collect();
                self.push(&format!("| {} |\n", words.join(" | ")));
            }
            self.0.push('\n');
        }
    }

    fn head<'a>(&mut self, first: &[&'a str], columns: impl Iterator<Item = &'a str>) {
        let heads: Vec<&str> = first.iter().copied().chain(columns).collect();
        let ruler = "---|".repeat(first.len()) + &"--:|".repeat(heads.len() - first.len());
        self.push(&format!("| {} |\n|{ruler}\n", heads.join(" | ")));
    }

    pub(super) fn targets(&mut self, targets: &[Target]) {
        if targets.is_empty() {
            return;
        }
        self.0 += "Targets, judged by the medians:\n\n";
        for target in targets {
            self.wrapped(&target.text(), "* ", "  ");
        }
        self.0.push('\n');
    }

    /// The settings, the machine and the picture.
    pub(super) fn origin(&mut self, results: &Results, picture: &str, name: &str) {
        let settings = results.settings.iter().map(|(name, value)| format!("{name} {}", setting(value)));
        self.paragraph(&format!("Settings: {}.", settings.collect::<Vec<_>>().join("; ")));
        self.paragraph(&format!("Machine: {}", results.machine.text()));
        self.push(&format!("![{picture}](results/{name}.svg)\n"));
    }

    fn push(&mut self, text: &str) {
        self.0 += text;
    }

    fn paragraph(&mut self, words: &str) {
        self.wrapped(words, "", "");
        self.0.push('\n');
    }

    /// Breaks lines between words.
    fn wrapped(&mut self, words: &str, first: &str, next: &str) {
        let mut line = String::new();
        let mut indent = first;
        for word in words.split_whitespace() {
            let length = [indent, &*line, " ", word].iter().map(|part| part.chars().count()).sum::<usize>();
            if !line.is_empty() && length > COLUMNS {
                self.push(&format!("{indent}{line}\n"));
                (line, indent) = (String::new(), next);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        self.push(&format!("{indent}{line}\n"));
    }
}

/// A value for people. Numbers have at most three decimals.
fn setting(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            ((number * 1e3).round() / 1e3).to_string()
        }
        Value::Array(values) => values.iter().map(setting).collect::<Vec<_>>().join(", "),
        Value::Object(values) => {
            let values = values.iter().map(|(name, value)| format!("{name} {}", setting(value)));
            format!("({})", values.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Machine, Sample};

    #[test]
    fn prose_and_lists_stay_within_their_columns() {
        let mut section = Section::default();
        section.paragraph(&"words ".repeat(40));
        section.wrapped(&"of a list ".repeat(20), "* ", "  ");
        let text = section.text();
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert_eq!(text.matches("words").count(), 40);
        assert!(text.contains("\n* of a") && text.contains("\n  "), "{text}");
    }

    #[test]
    fn tables_have_the_cells_that_were_measured() {
        let mut row = Row::new("a", "4k", ["bdp", "numa"].into_iter());
        row.cells[0].add(Sample::new(&[("iops", 1000.0)]));
        let columns = &[("IOPS", Show::Spread("iops", 0)), ("p50 ms", Show::Median("p50_ms", 1))];
        let all = Layout::AllRows(["workload", "policy"]);
        let mut table = Table::new("", vec![row], all, columns);
        let (mut section, results) = (Section::default(), Results::new(Machine::look(None), &[]));
        section.table(&results, &table);
        table.layout = Layout::EachRow("policy", |row| format!("Of {}:", row.name));
        section.table(&results, &table);
        let line = "1\u{202f}000 (1\u{202f}000–1\u{202f}000) | – |\n";
        let expected = format!(
            "| workload | policy | IOPS | p50 ms |\n|---|---|--:|--:|\n| 4k | bdp | {line}\nOf 4k:\n\n\
             | policy | IOPS | p50 ms |\n|---|--:|--:|\n| bdp | {line}"
        );
        assert_eq!(section.text(), expected);
    }

    #[test]
    fn a_table_of_one_column_has_the_contenders_of_all_rows() {
        let mut rows =
            vec![Row::new("a", "4k", ["bdp", "numa"].into_iter()), Row::new("a", "64k", ["alone"].into_iter())];
        for iops in [1000.0, 1020.0, 1050.0] {
            rows[0].cells[0].add(Sample::new(&[("iops", iops)]));
        }
        rows[1].cells[0].add(Sample::new(&[("iops", 7.0)]));
        let layout = Layout::EachColumn("workload", |row| row.name.clone());
        let table = Table::new("", rows, layout, &[("IOPS", Show::Near("iops", 0))]);
        let (mut section, results) = (Section::default(), Results::new(Machine::look(None), &[]));
        section.table(&results, &table);
        let head = "IOPS:\n\n| workload | bdp | alone |\n|---|--:|--:|\n";
        assert_eq!(section.text(), format!("{head}| 4k | 1\u{202f}020 ± 3 % | – |\n| 64k | – | 7 |\n"));
    }

    #[test]
    fn settings_are_for_people() {
        let value =
            serde_json::json!({"seconds": 0.199_999, "of": ["a", "b"], "watched": {"how": "fifo"}, "rounds": 5});
        assert_eq!(setting(&value), "(of a, b, rounds 5, seconds 0.2, watched (how fifo))");
    }
}
