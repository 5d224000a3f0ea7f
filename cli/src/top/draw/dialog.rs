//! Help, lists to choose from, and questions, above the rest.

use mpath_config::PolicyKind;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Modifier;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::entry;
use crate::top::dialog::{Dialog, KINDS};
use crate::top::state::State;

/// The keys, as the page `top` has them.
pub(in crate::top) const HELP: [(&str, &str); 14] = [
    ("arrows, j, k", "choose a disk or a path"),
    ("Tab", "go from the disks to the paths, and back"),
    ("p", "switch the policy of the disk"),
    ("i", "impair the path: latency, errors or a stall"),
    ("c", "clear the injections of the path"),
    ("C", "clear the injections of every path of the disk"),
    ("d", "drain the path"),
    ("D", "disable the path: drain it and close its association"),
    ("e", "enable a drained or disabled path"),
    ("r", "reset the path: drop its association and connect again"),
    ("s", "last minute: latency or IOPS"),
    ("Esc", "leave a list or a question"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

pub(super) fn draw(frame: &mut Frame, body: Rect, state: &State) {
    let Some(dialog) = &state.dialog else { return };
    let (title, lines) = match dialog {
        Dialog::Help => ("Keys".to_owned(), HELP.map(|(key, what)| Line::from(format!("{key:<13} {what}"))).to_vec()),
        Dialog::Policy { disk, chosen } => {
            let entries = PolicyKind::ALL.map(|kind| format!("{:<13} {}", kind.name(), kind.description()));
            (format!("Policy of {disk} (Enter sets, Esc leaves)"), choice(&entries, *chosen))
        }
        Dialog::Kind { target, chosen } => {
            let entries = KINDS.map(|(kind, _)| kind.to_owned());
            (format!("Injection on {} (Enter goes on, Esc leaves)", target.named()), choice(&entries, *chosen))
        }
        Dialog::Options { target, text, error } => {
            let mut lines = vec![Line::from(format!("mpathctl inject set {} {text}_", target.index))];
            lines.extend(error.as_ref().map(|error| Line::from(format!("error: {error}"))));
            (format!("Injection on {} (Enter sets, Esc leaves)", target.named()), lines)
        }
        Dialog::Confirm { question, .. } => {
            let answers = Line::from("y: yes    n, Esc: no").style(Modifier::BOLD);
            ("Confirm".to_owned(), vec![Line::from(question.as_str()), answers])
        }
    };
    let inner = body.width.saturating_sub(4).max(1);
    let rows: usize = lines.iter().map(|line| line.width().div_ceil(usize::from(inner)).max(1)).sum();
    let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
    let area = body.centered(Constraint::Length(inner + 2), Constraint::Length(height.min(body.height)));
    frame.render_widget(Clear, area);
    let shown = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(shown.block(Block::bordered().title(title)), area);
}

fn choice<const N: usize>(entries: &[String; N], chosen: usize) -> Vec<Line<'static>> {
    let line = |(at, entry_text): (usize, &String)| {
        let (style, mark) = entry(at == chosen, true);
        Line::from(format!("{mark}{entry_text}")).style(style)
    };
    entries.iter().enumerate().map(line).collect()
}
