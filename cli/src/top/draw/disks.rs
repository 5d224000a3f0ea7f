//! The disks, the worst first.

use mpath_api::types::{Disk, OpStats, Path};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Row;

use super::{Column, Palette, WIDE, cell, entry, list, number, part, scrolled, text};
use crate::top::figures::{count, joined, mib, quantile, time};
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
const WIDE_COLUMNS: [Column; 2] = [text("POLICY", 14), text("SCHEDULER", 13)];

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State, palette: Palette) {
    let is_wide = area.width >= WIDE;
    let columns: Vec<_> = COLUMNS.into_iter().chain(WIDE_COLUMNS.into_iter().filter(|_| is_wide)).collect();
    let disks = state.disks();
    let chosen = state.chosen_disk().and_then(|chosen| disks.iter().position(|disk| disk.name == chosen.name));
    let skipped = scrolled(chosen, usize::from(area.height.saturating_sub(2)));
    let row = |(at, disk): (usize, &&Disk)| {
        let (style, mark) = entry(chosen == Some(at), state.focus == Focus::Disks);
        let cells = [cells(disk, mark, state).to_vec(), policy_and_scheduler(disk, state).to_vec()].concat();
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
    // A path of several disks counts for all of them, so it is shown with the disk that has it.
    let paths = || state.paths_of(&disk.name);
    let sum = |of: fn(&Path) -> u64| disk.shares_paths_of.is_none().then(|| paths().map(of).sum::<u64>());
    let percentile = |share: f64| {
        let of = |class: fn(&Path) -> &OpStats| quantile(paths().map(class), share).map(time);
        joined([of(|path| &path.read), of(|path| &path.write)])
    };
    let rates: Vec<_> = paths().filter_map(|path| state.byte_rate(path)).collect();
    let rate = |sum: u64| (!rates.is_empty()).then(|| mib(sum));
    [
        format!("{mark}{}", disk.name),
        disk.health.condition.to_string(),
        format!("{}/{}", disk.path_counts.usable, disk.path_counts.expected),
        count(disk.queued),
        joined([sum(|path| path.read.ios_1s).map(count), sum(|path| path.write.ios_1s).map(count)]),
        joined([rate(rates.iter().map(|of| of.read).sum()), rate(rates.iter().map(|of| of.write).sum())]),
        percentile(0.5),
        percentile(0.99),
    ]
}

fn policy_and_scheduler(disk: &Disk, state: &State) -> [String; 2] {
    let scheduler = state.scheduling(&disk.name).map_or("-".into(), |of| of.scheduler.kind().to_string());
    [disk.policy.to_string(), scheduler]
}
