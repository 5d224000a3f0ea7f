//! The picture: a line of panels for each row, reads and writes, with a bar for each method, beside what the links can
//! carry.

use crate::results::{Results, Row, Workload};
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};

const PANEL: (u32, u32) = (560, 220);
const LEGEND_LINE: i32 = 26;
const LEGEND_HEIGHT: u32 = 122;
const LEGEND_COLUMNS: usize = 3;
const LEGEND_STEP: i32 = 260;
const LABEL_SIZE: u32 = 11;

/// TCP multipath in blues, MPTCP in oranges, sockets alone in greys.
const COLOURS: [(&str, RGBColor); 10] = [
    ("tcp-1", RGBColor(0x9e, 0xca, 0xe1)),
    ("tcp-N round-robin", RGBColor(0x6b, 0xae, 0xd6)),
    ("tcp-N queue-depth", RGBColor(0x31, 0x82, 0xbd)),
    ("tcp-N bdp", RGBColor(0x08, 0x51, 0x9c)),
    ("mptcp-1", RGBColor(0xfd, 0x8d, 0x3c)),
    ("mptcp-N bdp", RGBColor(0xd9, 0x48, 0x01)),
    ("mptcp-N numa", RGBColor(0x8c, 0x2d, 0x04)),
    ("raw tcp-N", RGBColor(0x55, 0x55, 0x55)),
    ("raw mptcp-1", RGBColor(0x8c, 0x8c, 0x8c)),
    ("raw mptcp-N", RGBColor(0xc0, 0xc0, 0xc0)),
];

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let rows = results.rows.len();
    let mut svg = String::new();
    {
        let size = (PANEL.0 * 2, LEGEND_HEIGHT + PANEL.1 * rows.max(1) as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        draw_legend(&legend)?;
        let panels = panels.split_evenly((rows.max(1), 2));
        for (row, areas) in results.rows.iter().zip(panels.chunks(2)) {
            for (area, (workload, what)) in areas.iter().zip([(Workload::Read, "read"), (Workload::Write, "write")]) {
                let title = format!("{}: {what}", row.name);
                let caption = Caption { title: &title, unit: "MiB/s", label_size: LABEL_SIZE };
                draw_bars(area, caption, bars(row, workload), Some(row.payload_mib_s))?;
            }
        }
        root.present()?;
    }
    Ok(svg)
}

fn bars(row: &Row, workload: Workload) -> Vec<Bar> {
    let cells = COLOURS.iter().filter_map(|(method, colour)| Some((row.cell(method, workload)?.mib_s, *colour)));
    let bar = |(mib_s, colour): (vublk_bench::publish::Spread, RGBColor)| Bar {
        parts: vec![(mib_s.median, colour)],
        whisker: Some((mib_s.min, mib_s.max)),
        label: short(mib_s.median),
    };
    cells.map(bar).collect()
}

fn draw_legend(area: &Area<'_>) -> Result<(), ChartError> {
    let text = |words: &str, at| Text::new(words.to_owned(), at, (FONT, 15).into_font());
    for (index, (method, colour)) in COLOURS.iter().enumerate() {
        let column = i32::try_from(index % LEGEND_COLUMNS).unwrap_or(0);
        let line = i32::try_from(index / LEGEND_COLUMNS).unwrap_or(0);
        let (x, y) = (20 + LEGEND_STEP * column, 10 + LEGEND_LINE * line);
        area.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], colour.filled()))?;
        area.draw(&text(method, (x + 20, y)))?;
    }
    area.draw(&text("dashed: what the links can carry", (20 + LEGEND_STEP * 3, 10)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, row};

    #[test]
    fn a_bar_for_each_method() {
        let methods = COLOURS.map(|(method, _)| (method, 20.0));
        let svg = draw(&results(&[row("a", &[200.0, 200.0], &methods)], &[])).unwrap();
        for (method, colour) in COLOURS {
            assert!(svg.contains(method), "{method}");
            let fill = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
            // In the legend and in the panel of reads.
            assert_eq!(svg.matches(&format!("fill=\"{fill}\"")).count(), 2, "{method}");
        }
        assert!(svg.contains("row of a: write") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn outages_alone_have_an_empty_picture() {
        assert!(draw(&results(&[], &[])).unwrap().contains("raw tcp-N"));
    }
}
