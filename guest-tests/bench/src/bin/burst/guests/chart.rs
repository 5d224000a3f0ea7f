//! The picture: p50 and p99 of a burst and the bulk guest's IOPS, a bar for each scheduler beside the floor.

use super::results::{Cell, Results};
use crate::chart::COLOURS;
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, Spread, draw_bars, short};

const PANEL: (u32, u32) = (330, 280);
const LEGEND_HEIGHT: u32 = 40;
const LABEL_SIZE: u32 = 12;

const ALONE: RGBColor = RGBColor(0x8c, 0x8c, 0x8c);

/// Draws an SVG: a line of panels for each weight.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let weights = &results.plan.bulk_weights;
    let mut svg = String::new();
    {
        let size = (PANEL.0 * 3, LEGEND_HEIGHT + PANEL.1 * weights.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        draw_legend(&legend, results)?;
        for (&weight, areas) in weights.iter().zip(panels.split_evenly((weights.len(), 3)).chunks(3)) {
            let p99 = |cell: &Cell| Spread { median: cell.all_p99_ms, ..cell.p99_ms };
            let bars = |alone, of: &dyn Fn(&Cell) -> Spread| bars(results, weight, alone, of);
            let figures = [
                ("p50 of a burst", "ms", bars(results.alone.p50_ms, &|cell| cell.p50_ms)),
                ("p99 of a burst", "ms", bars(p99(&results.alone), &p99)),
                ("the bulk guest", "IOPS", bars(results.bulk_alone_iops, &|cell| cell.bulk_iops)),
            ];
            for ((what, unit, bars), area) in figures.into_iter().zip(areas) {
                let title = format!("bulk of weight {weight}: {what}");
                draw_bars(area, Caption { title: &title, unit, label_size: LABEL_SIZE }, bars, None)?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

fn bars(results: &Results, weight: usize, alone: Spread, of: &dyn Fn(&Cell) -> Spread) -> Vec<Bar> {
    let cells = results.together.iter().filter(|cell| cell.bulk_weight == weight);
    let bar = |(spread, colour): (Spread, RGBColor)| Bar {
        parts: vec![(spread.median, colour)],
        whisker: Some((spread.min, spread.max)),
        label: short(spread.median),
    };
    std::iter::once((alone, ALONE)).chain(cells.map(of).zip(COLOURS)).map(bar).collect()
}

fn draw_legend(area: &Area<'_>, results: &Results) -> Result<(), ChartError> {
    let schedulers = results.plan.schedulers.iter().map(String::as_str).zip(COLOURS);
    let mut x = 20;
    for (name, colour) in std::iter::once(("one guest alone", ALONE)).chain(schedulers) {
        area.draw(&Rectangle::new([(x, 14), (x + 14, 28)], colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), (x + 20, 14), (FONT, 15).into_font()))?;
        x += 40 + 8 * i32::try_from(name.len()).unwrap_or(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::results::tests::{results, times};

    #[test]
    fn a_bar_for_each_scheduler() {
        let cells = ["fifo", "burst-credit"].map(|scheduler| (scheduler, times(&[200], 1200.0)));
        let svg = draw(&results(&cells)).unwrap();
        for text in ["one guest alone", "burst-credit", "bulk of weight 800: p99 of a burst", "the bulk guest"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN"));
    }
}
