//! The virtqueues of the chosen disk, as the scheduler sees them.

use mpath_api::types::{QueueTurns, SchedulerDetail};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Row;

use super::{Column, cell, list, number, part, text};
use crate::output::or_dash;
use crate::top::figures::{count as short, joined, mib, time};
use crate::top::state::State;

const COLUMNS: [Column; 8] = [
    number("QUEUE", 7),
    text("TIER", 7),
    number("CREDIT", 7),
    number("QUEUED", 7),
    number("BUSY", 6),
    number("IOPS", 6),
    number("MiB/s", 6),
    number("WAIT P50/P99", 13),
];

/// How many virtqueues have had requests.
pub(super) fn count(state: &State) -> usize {
    detail(state).map_or(0, |of| of.queues.len())
}

fn detail(state: &State) -> Option<&SchedulerDetail> {
    state.scheduling(&state.chosen_disk()?.name)
}

pub(super) fn draw(frame: &mut Frame, area: Rect, state: &State) {
    let Some(of) = detail(state) else { return };
    let tier = of.tier.map_or(String::new(), |tier| format!(", {tier}"));
    let title = format!("Virtqueues of {}: weight {}{tier}", of.disk, of.weight);
    let row = |queue: &QueueTurns| {
        let cells = COLUMNS.iter().zip(cells(queue, &of.disk, state));
        Row::new(cells.map(|(column, words)| cell(*column, words.into())).collect::<Vec<_>>())
    };
    frame.render_widget(list(&COLUMNS, of.queues.iter().map(row).collect()).block(part(&title)), area);
}

fn cells(queue: &QueueTurns, disk: &str, state: &State) -> [String; 8] {
    let rate = state.queue_rate(disk, queue.queue);
    [
        queue.queue.to_string(),
        queue.tier.to_string(),
        or_dash(queue.credit.map(short)),
        short(queue.queued),
        short(queue.in_flight),
        or_dash(rate.map(|of| short(of.ios))),
        or_dash(rate.map(|of| mib(of.bytes))),
        joined([queue.waited.map(|of| time(of.p50_us)), queue.waited.map(|of| time(of.p99_us))]),
    ]
}
