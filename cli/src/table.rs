//! Decides: a table leaves out this column on a narrow terminal (`layout`).
//!
//! Text for people: words and aligned columns, which fit the terminal.

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;
use tabled::builder::Builder;
use tabled::settings::object::{Cell, Columns};
use tabled::settings::{Alignment, Color, Padding, Style as Borders};

use crate::tone::Tone;

/// Blanks between two columns.
const GAP: usize = 2;
/// The least width of [`Column::Long`] texts while a spare column can be left out.
const LONG_MIN: usize = 28;
/// The least width of these texts after that, and of addresses once no column can be left out.
const LONG_LEAST: usize = 14;
/// The least width of states: the length of `live/non-optimized`.
const STATE_LEAST: usize = 18;

/// How text is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    /// Columns and rows of the terminal. Without one, tables have every column at its full width.
    pub(crate) size: Option<(usize, usize)>,
    pub(crate) has_colour: bool,
}

impl Style {
    /// The style for standard output.
    pub(crate) fn of_stdout() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self::default();
        }
        let size = tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let size = size.map(|size| (size.ws_col.into(), size.ws_row.into()));
        Self { size, has_colour: wants_colour() }
    }
}

/// Whether the environment allows colours: see <https://no-color.org>.
pub(crate) fn wants_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Words and tables, one below the other.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<Part>);

#[derive(Debug)]
enum Part {
    Words(String),
    Table(Table),
}

impl Text {
    pub(crate) fn then(mut self, next: impl Into<Self>) -> Self {
        self.0.extend(next.into().0);
        self
    }

    /// Texts with an empty line between them.
    pub(crate) fn paragraphs(texts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for text in texts {
            if !all.0.is_empty() {
                all = all.then("\n");
            }
            all = all.then(text);
        }
        all
    }

    pub(crate) fn shown(&self, style: Style) -> String {
        let part = |part: &Part| match part {
            Part::Words(words) => words.clone(),
            Part::Table(table) => table.shown(style),
        };
        self.0.iter().map(part).collect()
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Self(vec![Part::Words(words)])
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        words.to_owned().into()
    }
}

impl From<Table> for Text {
    fn from(table: Table) -> Self {
        Self(vec![Part::Table(table)])
    }
}

/// A column with its header. Numbers are aligned to the right.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
    /// A condition or a state, in its colour. It is broken into lines after columns of [`Column::SpareText`] were left out.
    State(&'static str),
    /// Text that is broken into lines on a narrow terminal.
    Long(&'static str),
    /// An address, which is broken last of all.
    Address(&'static str),
    /// Text that is left out on a narrow terminal. The last of these columns goes first.
    SpareText(&'static str),
    /// A number that is left out on a narrow terminal. The last of these columns goes first.
    SpareNumber(&'static str),
    /// Text that is left out when long texts and states are as narrow as they can be.
    LateText(&'static str),
    /// A number that is left out when long texts and states are as narrow as they can be.
    LateNumber(&'static str),
}

impl Column {
    fn header(self) -> &'static str {
        match self {
            Self::Text(header)
            | Self::Number(header)
            | Self::State(header)
            | Self::Long(header)
            | Self::Address(header)
            | Self::SpareText(header)
            | Self::SpareNumber(header)
            | Self::LateText(header)
            | Self::LateNumber(header) => header,
        }
    }
}

/// Aligned columns below a line of headers.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    has_headers: bool,
}

/// Aligned columns below a line of headers.
pub(crate) fn table<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    Table { columns: columns.into(), rows: rows.into_iter().map(Into::into).collect(), has_headers: true }
}

impl Table {
    pub(crate) fn without_headers(self) -> Self {
        Self { has_headers: false, ..self }
    }

    /// Without the columns from this one on that have `-` in each row.
    pub(crate) fn without_empty_from(mut self, first: usize) -> Self {
        let has_value = |at: usize| at < first || self.rows.iter().any(|row| row[at] != "-");
        let kept: Vec<usize> = (0..self.columns.len()).filter(|at| has_value(*at)).collect();
        self.rows = self.rows.iter().map(|row| kept.iter().map(|at| row[*at].clone()).collect()).collect();
        self.columns = kept.iter().map(|at| self.columns[*at]).collect();
        self
    }

    /// The table with further columns on the right.
    pub(crate) fn with_columns<const N: usize>(
        mut self,
        columns: [Column; N],
        cells: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        self.columns.extend(columns);
        self.rows.iter_mut().zip(cells).for_each(|(row, cells)| row.extend(cells));
        self
    }

    fn shown(&self, style: Style) -> String {
        let width = style.size.map(|(width, _)| width);
        let shown = self.layout(width);
        let mut builder = Builder::default();
        if self.has_headers {
            builder.push_record(shown.iter().map(|(index, _)| self.columns[*index].header()));
        }
        for row in &self.rows {
            builder.push_record(shown.iter().map(|(index, width)| broken(&row[*index], *width)));
        }
        let mut table = builder.build();
        table.with(Borders::empty()).with(Padding::new(0, GAP, 0, 0));
        for (at, (index, _)) in shown.iter().enumerate() {
            match self.columns[*index] {
                Column::Number(_) | Column::SpareNumber(_) | Column::LateNumber(_) => {
                    table.modify(Columns::one(at), Alignment::right());
                }
                Column::State(_) if style.has_colour => {
                    let toned = self.rows.iter().map(|row| Tone::of(&row[*index])).enumerate();
                    for (row, tone) in toned.filter_map(|(row, tone)| Some((row, tone?))) {
                        table.modify(Cell::new(row + usize::from(self.has_headers), at), colour(tone));
                    }
                }
                _ => (),
            }
        }
        let lines = table.to_string();
        let mut text: String = lines.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
        let is_shown = |index: &usize| shown.iter().any(|(other, _)| other == index);
        let left_out = (0..self.columns.len()).filter(|index| !is_shown(index));
        let left_out: Vec<_> = left_out.map(|index| self.columns[index].header()).collect();
        if !left_out.is_empty() {
            let note = format!("(no room for {}; a wider terminal or -o json shows all)", left_out.join(", "));
            text.extend([&*broken(&note, width.unwrap_or(usize::MAX)), "\n"]);
        }
        text
    }

    /// Index and width of each column that the table has room for. These steps make it narrower, in this order: narrower long texts,
    /// spare columns left out, narrower texts and states, late columns left out, broken addresses.
    fn layout(&self, width: Option<usize>) -> Vec<(usize, usize)> {
        let length = |text: &str| text.chars().count();
        let widest = |index: usize| {
            let header = if self.has_headers { length(self.columns[index].header()) } else { 0 };
            self.rows.iter().map(|row| length(&row[index])).max().unwrap_or(0).max(header)
        };
        let mut shown: Vec<_> = (0..self.columns.len()).map(|index| (index, widest(index))).collect();
        let Some(width) = width else { return shown };
        let excess = |shown: &[(usize, usize)]| {
            (shown.iter().map(|(_, width)| width + GAP).sum::<usize>()).saturating_sub(width + GAP)
        };
        let is_spare = |index: usize| matches!(self.columns[index], Column::SpareText(_) | Column::SpareNumber(_));
        let is_late = |index: usize| matches!(self.columns[index], Column::LateText(_) | Column::LateNumber(_));
        while excess(&shown) > 0 {
            let excess = excess(&shown);
            let spare = shown.iter().rposition(|(index, _)| is_spare(*index));
            let late = shown.iter().rposition(|(index, _)| is_late(*index));
            let least = |index: usize| match self.columns[index] {
                Column::Long(_) if spare.is_some() => LONG_MIN,
                Column::Long(_) => LONG_LEAST,
                Column::State(_) if spare.is_none() => STATE_LEAST,
                Column::Address(_) if spare.or(late).is_none() => LONG_LEAST,
                _ => usize::MAX,
            };
            let broken = shown.iter_mut().filter(|(index, width)| *width > least(*index));
            if let Some((index, width)) = broken.max_by_key(|(_, width)| *width) {
                *width = width.saturating_sub(excess).max(least(*index));
            } else if let Some(left_out) = spare.or(late) {
                shown.remove(left_out);
            } else {
                break;
            }
        }
        shown
    }
}

/// The text in lines of at most this width, broken between words where that is possible.
fn broken(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if used > 0 && used + length > width {
            lines.push(String::new());
            used = 0;
        }
        for char in word.chars() {
            // A word that is longer than a line. The blank after a word may be beyond its end.
            if used >= width && char != ' ' {
                lines.push(String::new());
                used = 0;
            }
            lines.last_mut().expect("there is a line").push(char);
            used += 1;
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

fn colour(tone: Tone) -> Color {
    match tone {
        Tone::Good => Color::FG_GREEN,
        Tone::Warning => Color::FG_YELLOW,
        Tone::Bad => Color::FG_RED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [Column::State("STATE"), Column::SpareNumber("SIZE(B)"), Column::Long("NOTE"), Column::SpareText("SOCKET")];

    fn example(has_colour: bool, width: Option<usize>) -> String {
        let note = "a note of more than forty characters, in all";
        let rows = [["ok", "1", "", "/a.sock"], ["failing", "1234567890", note, "/b.sock"]];
        let text: Text = table(COLUMNS, rows.map(|row| row.map(String::from))).into();
        text.shown(Style { size: width.map(|width| (width, 24)), has_colour })
    }

    #[test]
    fn tables_align_and_end_without_blanks() {
        let all = "\
STATE       SIZE(B)  NOTE                                          SOCKET
ok                1                                                /a.sock
failing  1234567890  a note of more than forty characters, in all  /b.sock
";
        for width in [None, Some(74), Some(200)] {
            assert_eq!(example(false, width), all, "{width:?}");
        }
        let columns = [Column::Text("NAME"), Column::Number("SIZE(B)"), Column::Text("NOTE")];
        assert_eq!(Text::from(table(columns, [])).shown(Style::default()), "NAME  SIZE(B)  NOTE\n");
    }

    #[test]
    fn columns_without_a_value_can_be_left_out() {
        let columns = [Column::Text("A"), Column::Number("B"), Column::Number("C")];
        let shown = |rows: [[&str; 3]; 2]| {
            let rows = rows.map(|row| row.map(String::from));
            Text::from(table(columns, rows).without_empty_from(1)).shown(Style::default())
        };
        assert_eq!(shown([["-", "-", "1"], ["-", "-", "-"]]), "A  C\n-  1\n-  -\n");
        assert_eq!(shown([["-", "2", "1"], ["-", "-", "-"]]), "A  B  C\n-  2  1\n-  -  -\n");
    }

    #[test]
    fn a_narrow_terminal_breaks_long_texts_and_then_leaves_out_columns() {
        for width in 45..80 {
            let text = example(false, Some(width));
            assert!(
                text.lines().filter(|line| !line.starts_with('(')).all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(
                "a note of more than forty characters, in all".split(' ').all(|word| text.contains(word)),
                "{text}"
            );
        }
        let text = example(false, Some(45));
        assert!(!text.contains("sock") && text.contains("no room for SIZE(B), SOCKET;"), "{text}");
        // Nothing more can be left out.
        assert!(example(false, Some(10)).contains("failing"));
    }

    #[test]
    fn columns_are_left_out_before_an_address_is_broken() {
        let columns =
            [Column::Address("ADDRESS"), Column::LateNumber("BUSY"), Column::Long("NOTE"), Column::LateText("AT")];
        let address = "tcp://192.0.2.1:4420";
        let row = [address, "17", "a note of some words", "noon"].map(String::from);
        let shown = |width| {
            Text::from(table(columns, [row.clone()])).shown(Style { size: Some((width, 24)), has_colour: false })
        };
        // The long text comes first.
        assert!(shown(48).contains("\ntcp://192.0.2.1:4420    17  a note of some  noon\n"), "{}", shown(48));
        assert!(shown(44).contains("ADDRESS               BUSY  NOTE\n"), "{}", shown(44));
        assert!(shown(36).contains(address) && shown(36).contains("no room for BUSY, AT;"), "{}", shown(36));
        assert!(!shown(35).contains(address), "{}", shown(35));
    }

    #[test]
    fn lines_are_broken_between_words() {
        for (width, expected) in [
            (20, "a short /long/word"),
            (8, "a short\n/long/wo\nrd"),
            (7, "a short\n/long/w\nord"),
            (18, "a short /long/word"),
        ] {
            assert_eq!(broken("a short /long/word", width), expected);
        }
    }

    #[test]
    fn states_have_colours_where_they_are_wanted() {
        let text = example(true, None);
        assert!(text.contains("\u{1b}[32mok") && text.contains("\u{1b}[31mfailing"), "{text:?}");
        assert!(!example(false, None).contains('\u{1b}'));
    }
}
