//! The paths of the chosen disk: a line of numbers, and below it the last minute and what is special.

use mpath_api::types::{AnaState, Disk, Latency, Path};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Span, Text};
use ratatui::widgets::Row;

use super::{Column, Palette, WIDE, entry, list, number, part, scrolled, text};
use crate::cmd::{injected, state as words_of};
use crate::top::figures::{count, joined, time};
use crate::top::history::{Measure, SECONDS, key, sparkline};
use crate::top::state::{Focus, State};

const COLUMNS: [Column; 8] = [
    text("  #", 4),
    text("ADDRESS", 0),
    text("STATE", 10),
    number("1S(%)", 5),
    number("P50 r/w", 11),
    number("P99 r/w", 11),
    number("BUSY/WIN", 9),
    number("ERRS", 4),
];

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, palette: Palette) {
    let Some(disk) = state.chosen_disk() else { return };
    let is_wide = area.width >= WIDE;
    let paths = state.paths();
    let chosen = state.chosen_path().and_then(|chosen| paths.iter().position(|path| path.address == chosen.address));
    let skipped = scrolled(chosen, usize::from(area.height.saturating_sub(2) / 2));
    let mut columns = COLUMNS;
    if is_wide {
        // Flushes, discards and zeroes have room too.
        (columns[4], columns[5]) = (number("P50 r/w/other", 17), number("P99 r/w/other", 17));
    }
    let cells = if is_wide { SECONDS } else { SECONDS / 2 };
    let minute = |path: &Path| state.history.cells(&key(path), state.measure, cells);
    let full = paths.iter().flat_map(|path| minute(path)).flatten().max().unwrap_or(0);
    let row = |(at, path): (usize, &&Path)| {
        let (style, mark) = entry(chosen == Some(at), state.focus == Focus::Paths);
        let numbers = numbers(path, mark, is_wide);
        let row = columns.iter().zip(numbers).enumerate().map(|(at, (column, words))| {
            let style = if at == 2 { palette.word(&words_of(path)) } else { ratatui::style::Style::new() };
            // The second line of the row is not the state's.
            super::cell(*column, Span::styled(words, style).into())
        });
        Row::new(row.collect::<Vec<_>>()).style(style)
    };
    let rows: Vec<_> = paths.iter().enumerate().skip(skipped).map(row).collect();
    let room = usize::from(area.height.saturating_sub(2));
    let shown = rows.len().min(room.div_ceil(2));
    let rows = rows.into_iter().map(|row| row.height(2)).collect();
    frame.render_widget(list(&columns, rows).block(part(&title(disk, state, full))), area);
    for (at, path) in paths.iter().skip(skipped).take(shown).enumerate() {
        let y = area.y + 3 + 2 * u16::try_from(at).unwrap_or(0);
        if y < area.bottom() {
            let line = Rect { x: area.x + 4, y, width: area.width.saturating_sub(4), height: 1 };
            let bars = sparkline(&minute(path), full);
            frame.render_widget(Text::from(format!("{bars}  {}", notes(path, disk))), line);
        }
    }
}

/// Whose paths they are, policy and scheduler, and what the highest bar stands for.
fn title(disk: &Disk, state: &State, full: u64) -> String {
    let owner = state.owner().unwrap_or(&disk.name);
    let of = if owner == disk.name { String::new() } else { format!(" (those of {owner})") };
    let scheduler = state.scheduling(&disk.name).map_or("-".into(), |of| of.scheduler.kind().to_string());
    let bar = match state.measure {
        Measure::Latency => format!("P99 up to {}", time(full)),
        Measure::Iops => format!("IOPS up to {}", count(full)),
    };
    format!("Paths of {}{of}: {}, {scheduler}; last minute: {bar}", disk.name, disk.policy)
}

fn numbers(path: &Path, mark: &str, is_wide: bool) -> [String; 8] {
    let percentile = |pick: fn(&Latency) -> u64| {
        let [read, write, other] = path.classes().map(|(_, of)| of.latency_1s.as_ref().map(|of| time(pick(of))));
        if is_wide { joined([read, write, other]) } else { joined([read, write]) }
    };
    let address = path.address.to_string();
    [
        format!("{mark}{}", path.index),
        address.strip_prefix("tcp://").unwrap_or(&address).into(),
        path.state.to_string(),
        format!("{:.1}", path.io_share_1s * 100.0),
        percentile(|of| of.p50_us),
        percentile(|of| of.p99_us),
        format!("{}/{}", count(path.in_flight()), count(path.window.ios.into())),
        count(path.errors()),
    ]
}

/// Notes on a path, as the disk sees it.
fn notes(path: &Path, disk: &Disk) -> String {
    let sharer = path.sharers.iter().find(|of| of.disk == disk.name);
    let (ana, unusable) = sharer.map_or((path.ana_state, &path.unusable), |of| (of.ana_state, &of.unusable));
    let mut notes = Vec::new();
    notes.extend((!path.injections.is_empty()).then(|| injected(path)));
    notes.extend(path.suspect.then(|| "suspect".to_owned()));
    notes.extend(ana.filter(|ana| *ana != AnaState::Optimized).map(|ana| ana.to_string()));
    notes.extend(unusable.clone());
    notes.join("; ")
}
