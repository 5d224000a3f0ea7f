//! The picture: p50 and p99 of a burst and the bulk guest's IOPS, a bar for each scheduler beside the floor.

use super::results::{Cell, Results};
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, Spread, draw_bars, short};

const SIZE: (u32, u32) = (1000, 320);
const LEGEND_HEIGHT: u32 = 40;
const LABEL_SIZE: u32 = 12;

const ALONE: RGBColor = RGBColor(0x8c, 0x8c, 0x8c);
/// By scheduler.
const COLOURS: [RGBColor; 3] = [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xff, 0x7f, 0x0e), RGBColor(0x2c, 0xa0, 0x2c)];

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        draw_legend(&legend, results)?;
        let p99 = |cell: &Cell| Spread { median: cell.all_p99_ms, ..cell.p99_ms };
        let figures = [
            ("p50 of a burst", "ms", bars(results, results.alone.p50_ms, |cell| cell.p50_ms)),
            ("p99 of a burst", "ms", bars(results, p99(&results.alone), p99)),
            ("The bulk guest", "IOPS", bars(results, results.bulk_alone_iops, |cell| cell.bulk_iops)),
        ];
        for ((title, unit, bars), area) in figures.into_iter().zip(panels.split_evenly((1, 3))) {
            draw_bars(&area, Caption { title, unit, label_size: LABEL_SIZE }, bars, None)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn bars(results: &Results, alone: Spread, of: impl Fn(&Cell) -> Spread) -> Vec<Bar> {
    let together = results.together.iter().map(of).zip(COLOURS);
    let bar = |(spread, colour): (Spread, RGBColor)| Bar {
        parts: vec![(spread.median, colour)],
        whisker: Some((spread.min, spread.max)),
        label: short(spread.median),
    };
    std::iter::once((alone, ALONE)).chain(together).map(bar).collect()
}

fn draw_legend(area: &Area<'_>, results: &Results) -> Result<(), ChartError> {
    let schedulers = results.together.iter().map(|cell| cell.scheduler.as_str()).zip(COLOURS);
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
    use crate::guests::results::tests::{Times, results};

    #[test]
    fn a_bar_for_each_scheduler() {
        let times = || Times { bursts_ms: vec![200], bulk_iops: 1200.0 };
        let svg = draw(&results(&[("fifo", times()), ("burst-credit-drr", times())])).unwrap();
        for text in ["one guest alone", "burst-credit-drr", "p99 of a burst", "The bulk guest"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN"));
    }
}
