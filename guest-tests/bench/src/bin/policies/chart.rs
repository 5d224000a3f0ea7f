//! The picture of a table: a panel for each row with a bar for each policy and the bound; where paths change, throughput by time.

use crate::measure::Sample;
use crate::results::{Results, Row};
use crate::series::Timeline;
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};

const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (400, 220);
const LEGEND_HEIGHT: u32 = 60;
/// Names in a line of the legend; the longest needs this width.
const LEGEND_COLUMNS: i32 = 6;
const LEGEND_STEP: (i32, i32) = (195, 22);
const LABEL_SIZE: u32 = 11;

/// By contender; the palette of the category10 scheme, and one more.
const COLOURS: [RGBColor; 11] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0x7f, 0x7f, 0x7f),
    RGBColor(0xbc, 0xbd, 0x22),
    RGBColor(0x17, 0xbe, 0xcf),
    RGBColor(0x39, 0x3b, 0x79),
];

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let lines = results.rows.len().div_ceil(COLUMNS).max(1);
    let size = (PANEL.0 * COLUMNS as u32, LEGEND_HEIGHT + PANEL.1 * lines as u32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        draw_legend(&legend, results)?;
        for (area, row) in panels.split_evenly((lines, COLUMNS)).iter().zip(&results.rows) {
            if row.bound.phases_iops.is_empty() {
                draw_row(area, row)?;
            } else {
                draw_series(area, row)?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

fn colour(policy: usize) -> RGBColor {
    COLOURS[policy % COLOURS.len()]
}

fn draw_legend(area: &Area<'_>, results: &Results) -> Result<(), ChartError> {
    let place = |index: usize| {
        let index = i32::try_from(index).unwrap_or_default();
        (20 + LEGEND_STEP.0 * (index % LEGEND_COLUMNS), 10 + LEGEND_STEP.1 * (index / LEGEND_COLUMNS))
    };
    for (index, policy) in results.policies.iter().enumerate() {
        let (x, y) = place(index);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], colour(index).filled()))?;
        area.draw(&Text::new(policy.name.clone(), (x + 20, y), (FONT, 15).into_font()))?;
    }
    let (x, y) = place(results.policies.len());
    area.draw(&PathElement::new([(x, y + 7), (x + 16, y + 7)], BLACK.stroke_width(1)))?;
    area.draw(&Text::new("the bound", (x + 22, y), (FONT, 15).into_font()))?;
    Ok(())
}

fn draw_row(area: &Area<'_>, row: &Row) -> Result<(), ChartError> {
    let bars = row.cells.iter().enumerate().map(|(index, cell)| Bar {
        parts: vec![(cell.iops.median, colour(index))],
        whisker: Some((cell.iops.min, cell.iops.max)),
        label: short(cell.iops.median),
    });
    let caption = Caption { title: &row.name, unit: "IOPS", label_size: LABEL_SIZE };
    draw_bars(area, caption, bars.collect(), Some(row.bound.iops))
}

/// The first round of each policy: a mean over rounds would smear what happens at a change.
fn draw_series(area: &Area<'_>, row: &Row) -> Result<(), ChartError> {
    let timelines: Vec<Option<&Timeline>> = row
        .cells
        .iter()
        .map(|cell| cell.samples.first().and_then(|Sample { timeline, .. }| timeline.as_ref()))
        .collect();
    let bins = || timelines.iter().flatten().flat_map(|timeline| &timeline.bins);
    let most =
        bins().map(|bin| bin.iops).chain(row.bound.phases_iops.iter().copied()).fold(f64::MIN_POSITIVE, f64::max);
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).x_label_area_size(24).y_label_area_size(64).caption(&row.name, (FONT, 17));
    let mut chart = builder.build_cartesian_2d(0f64..row.seconds, 0f64..most * 1.1)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(7)
        .y_labels(5)
        .x_desc("s")
        .y_desc("IOPS")
        .y_label_formatter(&|value| short(*value))
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .draw()?;
    if let Some(timeline) = timelines.iter().flatten().next() {
        let ends = timeline.changes.iter().skip(1).map(|change| change.at_seconds).chain([row.seconds]);
        let steps = timeline.changes.iter().zip(ends);
        let steps = steps.flat_map(|(change, end)| [(change.at_seconds, change.bound_iops), (end, change.bound_iops)]);
        chart.draw_series([PathElement::new(steps.collect::<Vec<_>>(), BLACK.stroke_width(1))])?;
    }
    for (index, timeline) in timelines.iter().enumerate() {
        let Some(timeline) = timeline else { continue };
        let points = timeline.bins.iter().map(|bin| (f64::midpoint(bin.from_seconds, bin.to_seconds), bin.iops));
        chart.draw_series([PathElement::new(points.collect::<Vec<_>>(), colour(index).stroke_width(2))])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;
    use crate::series::{Bin, Change};

    #[test]
    fn bars_and_lines() {
        let mut results = results();
        let bars = draw(&results).unwrap();
        for text in ["numa", "adaptive", "4k randread QD1, slow first", "the bound"] {
            assert!(bars.contains(text), "{text}");
        }
        results.rows[0].bound.phases_iops = vec![4000.0];
        let bins = [0.0, 0.1].map(|from_seconds| Bin { from_seconds, to_seconds: from_seconds + 0.1, iops: 900.0 });
        let changes = vec![Change { at_seconds: 0.0, bound_iops: 4000.0 }];
        results.rows[0].cells[0].samples[0].timeline = Some(Timeline { bins: bins.into(), changes });
        let lines = draw(&results).unwrap();
        assert!(lines.contains("<polyline") && lines != bars);
    }
}
