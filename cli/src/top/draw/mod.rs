//! Draws the state. Nothing here changes it.

mod dialog;
mod disks;
mod flows;
mod paths;

use mpath_api::types::{Event, Severity};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, Wrap};

#[cfg(test)]
pub(super) use self::dialog::HELP;
use super::state::State;
use crate::tone::Tone;

/// The width from which on lists have more columns.
const WIDE: u16 = 120;
/// The rows that the last events get in any case, with their title.
const EVENTS_MIN: u16 = 3;

/// Colours, or none. What they say is in the words too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    pub(super) has_colour: bool,
}

impl Palette {
    fn tone(self, tone: Option<Tone>) -> Style {
        let colour = match tone {
            Some(Tone::Good) => Color::Green,
            Some(Tone::Warning) => Color::Yellow,
            Some(Tone::Bad) => Color::Red,
            None => return Style::new(),
        };
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// A condition or a state.
    fn word(self, word: &str) -> Style {
        self.tone(Tone::of(word))
    }
}

/// Heights of the parts of the screen.
struct Heights {
    disks: u16,
    paths: u16,
    flows: u16,
    reasons: u16,
}

impl Heights {
    /// The lists get what they need, as far as there is room. Events get the rest.
    fn new(total: u16, state: &State, reasons: u16) -> Self {
        let entries = |count: usize| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(2);
        let room = total.saturating_sub(EVENTS_MIN + reasons);
        let flows = entries(flows::count(state)).min((room / 4).max(3)).min(room);
        let disks = entries(state.disks().len()).min((room / 3).max(3)).min(room - flows);
        let paths = entries(state.paths().len() * 2).min(room - flows - disks);
        Self { disks, paths, flows, reasons }
    }
}

pub(super) fn draw(frame: &mut Frame, state: &State, palette: Palette) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
    frame.render_widget(title(state, palette), head);
    frame.render_widget(footer(state, palette), foot);
    if state.status().is_some() {
        let reasons = reasons(state);
        let width = usize::from(body.width.max(1));
        let lines: usize = reasons.iter().map(|line| line.width().div_ceil(width)).sum();
        let height = if reasons.is_empty() { 0 } else { 1 + u16::try_from(lines.min(4)).unwrap_or(4) };
        let heights = Heights::new(body.height, state, height);
        let parts = [heights.disks, heights.paths, heights.flows, heights.reasons].map(Constraint::Length);
        let [disks, paths, flows, why, events] =
            Layout::vertical(parts.into_iter().chain([Constraint::Fill(1)])).areas(body);
        disks::draw(frame, disks, state, palette);
        paths::draw(frame, paths, state, palette);
        flows::draw(frame, flows, state);
        frame.render_widget(Paragraph::new(reasons).wrap(Wrap { trim: false }).block(part("Condition")), why);
        frame.render_widget(last_events(state, palette, events), events);
    }
    dialog::draw(frame, body, state);
}

/// The frame of a part: a line with its title.
fn part(title: &str) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(Line::styled(format!("{title} "), Modifier::BOLD))
}

fn title(state: &State, palette: Palette) -> Line<'static> {
    let mut line = match state.status() {
        Some(status) => {
            let uptime = humantime::format_duration(std::time::Duration::from_secs(status.uptime_s));
            Line::from(format!("vhost-blk-mpath {}, pid {}, up {uptime}", status.version, status.pid))
        }
        None => Line::from("vhost-blk-mpath"),
    };
    if let Some(silent) = state.silent_s() {
        let says = format!("  NO ANSWER for {silent} s, asking again");
        line.push_span(Span::styled(says, palette.tone(Some(Tone::Bad)).add_modifier(Modifier::BOLD)));
    }
    line
}

/// The last line: an error of the daemon, the outcome of the last change, or the keys.
fn footer(state: &State, palette: Palette) -> Line<'_> {
    const KEYS: &str = "q:quit ?:help p:policy i:inject c:clear d:drain D:disable e:enable r:reset";
    match (&state.outcome, &state.error) {
        (Some(Ok(done)), _) => Line::styled(done, palette.tone(Some(Tone::Good))),
        (Some(Err(error)), _) | (None, Some(error)) => {
            Line::from(format!("error: {error}")).style(palette.tone(Some(Tone::Bad)))
        }
        (None, None) => Line::styled(KEYS, Modifier::DIM),
    }
}

/// The reasons of the chosen disk's condition.
fn reasons(state: &State) -> Vec<Line<'static>> {
    let reasons = state.chosen_disk().into_iter().flat_map(|disk| &disk.health.reasons);
    reasons.map(|of| Line::from(format!("{}: {}", of.condition, of.message))).collect()
}

/// As many of the last events as there is room for, the newest below.
fn last_events(state: &State, palette: Palette, area: Rect) -> Paragraph<'_> {
    let room = usize::from(area.height.saturating_sub(1));
    let skipped = state.events.len().saturating_sub(room);
    let lines: Vec<_> = state.events.iter().skip(skipped).map(|of| event(of, palette)).collect();
    Paragraph::new(lines).block(part("Last events"))
}

fn event(of: &Event, palette: Palette) -> Line<'_> {
    let tone = match of.severity {
        Severity::Info => None,
        Severity::Warning => Some(Tone::Warning),
        Severity::Error => Some(Tone::Bad),
    };
    // `2026-11-21T07:00:01.000Z`: the date is left out.
    let time = of.time.get(11..19).unwrap_or(&of.time);
    let disk = of.disk.as_deref().unwrap_or("-");
    let path = of.path.as_ref().map_or(String::new(), |path| format!(" path {}", path.index));
    Line::from(vec![
        Span::raw(format!("{time} {disk}{path} ")),
        Span::styled(of.kind.to_string(), palette.tone(tone)),
        Span::raw(format!(" {}", of.message)),
    ])
}

/// A column of a list: its header, its width, and whether it has numbers.
#[derive(Clone, Copy)]
struct Column {
    header: &'static str,
    width: u16,
    is_number: bool,
}

const fn text(header: &'static str, width: u16) -> Column {
    Column { header, width, is_number: false }
}

const fn number(header: &'static str, width: u16) -> Column {
    Column { header, width, is_number: true }
}

/// A list below its headers. The first column of text that has no width takes what is left.
fn list<'a>(columns: &[Column], rows: Vec<Row<'a>>) -> Table<'a> {
    let header = columns.iter().map(|column| cell(*column, column.header.into()));
    let widths = columns.iter().map(|column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    Table::new(rows, widths).header(Row::new(header).style(Modifier::DIM)).column_spacing(1)
}

fn cell(column: Column, content: Text<'_>) -> Cell<'_> {
    Cell::new(if column.is_number { content.right_aligned() } else { content })
}

/// The entries to draw so that the chosen one is among them: how many to skip.
fn scrolled(chosen: Option<usize>, room: usize) -> usize {
    chosen.map_or(0, |chosen| (chosen + 1).saturating_sub(room))
}

/// The style of an entry, and the mark before it.
fn entry(is_chosen: bool, has_focus: bool) -> (Style, &'static str) {
    match (is_chosen, has_focus) {
        (true, true) => (Modifier::REVERSED.into(), "> "),
        (true, false) => (Modifier::BOLD.into(), "> "),
        (false, _) => (Style::new(), "  "),
    }
}
