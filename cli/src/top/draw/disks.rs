//! The disks, the worst first.

use mpath_api::types::{Disk, GuestIo, GuestOperation};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Row;

use super::{Column, Palette, WIDE, cell, entry, list, number, part, scrolled, text};
use crate::top::figures::{count, joined, mib, time};
use crate::top::state::{Focus, State};

const COLUMNS: [Column; 8] = [
    text("  DISK", 0),
    text("CONDITION", 12),
    number("PATHS", 5),
    number("QUEUED", 6),
    number("IOPS r/w", 9),
    number("MiB/s r/w", 9),
    number("P50 r/w", 11),
    number("P99 r/w", 11),
];
const WIDE_COLUMNS: [Column; 3] = [number("OLDEST", 6), text("POLICY", 14), text("SCHEDULER", 13)];

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, palette: Palette) {
    let is_wide = area.width >= WIDE;
    let columns: Vec<_> = COLUMNS.into_iter().chain(WIDE_COLUMNS.into_iter().filter(|_| is_wide)).collect();
    let disks = state.disks();
    let chosen = state.chosen_disk().and_then(|chosen| disks.iter().position(|disk| disk.name == chosen.name));
    let skipped = scrolled(chosen, usize::from(area.height.saturating_sub(2)));
    let row = |(at, disk): (usize, &&Disk)| {
        let (style, mark) = entry(chosen == Some(at), state.focus == Focus::Disks);
        let cells = [cells(disk, mark, state).to_vec(), wide_cells(disk, state).to_vec()].concat();
        let cells = columns.iter().zip(cells).enumerate().map(|(at, (column, words))| {
            let style = if at == 1 { palette.word(&words) } else { ratatui::style::Style::new() };
            cell(*column, words.into()).style(style)
        });
        Row::new(cells.collect::<Vec<_>>()).style(style)
    };
    let rows = disks.iter().enumerate().skip(skipped).map(row).collect();
    frame.render_widget(list(&columns, rows).block(part("Disks, the worst first")), area);
}

fn cells(disk: &Disk, mark: &str, state: &State) -> [String; 8] {
    let both = |of: fn(&GuestIo) -> Option<String>| {
        joined([GuestOperation::Read, GuestOperation::Write].map(|operation| disk.guest.of(operation).and_then(of)))
    };
    let rate = state.byte_rate(&disk.name);
    [
        format!("{mark}{}", disk.name),
        disk.health.condition.to_string(),
        format!("{}/{}", disk.path_counts.usable, disk.path_counts.expected),
        count(disk.queued),
        both(|of| Some(count(of.ios_1s))),
        joined([rate.map(|of| mib(of.read)), rate.map(|of| mib(of.write))]),
        both(|of| of.latency_1s.map(|latency| time(latency.p50_us))),
        both(|of| of.latency_1s.map(|latency| time(latency.p99_us))),
    ]
}

fn wide_cells(disk: &Disk, state: &State) -> [String; 3] {
    let oldest = disk.guest.oldest_request_ms.map_or("-".into(), |ms| time(ms * 1000));
    let scheduler = state.scheduling(&disk.name).map_or("-".into(), |of| of.scheduler.kind().to_string());
    [oldest, disk.policy.to_string(), scheduler]
}
