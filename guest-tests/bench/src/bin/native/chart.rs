//! The picture: a line of panels for each network and operation, a bar for each contender.

use crate::results::{Cell, Results};
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};

const COLUMNS: usize = 4;
const PANEL: (u32, u32) = (300, 210);
const LEGEND_HEIGHT: u32 = 40;
const TITLE_HEIGHT: u32 = 30;
const LABEL_SIZE: u32 = 11;

/// Linux's policies in greys, the daemon's in colours.
const LINUX: [RGBColor; 3] = [RGBColor(0x55, 0x55, 0x55), RGBColor(0x8c, 0x8c, 0x8c), RGBColor(0xc0, 0xc0, 0xc0)];
const OURS: [RGBColor; 4] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xff, 0x7f, 0x0e), RGBColor(0x2c, 0xa0, 0x2c), RGBColor(0x17, 0xbe, 0xcf)];

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let heights = results.tables.iter().map(|table| TITLE_HEIGHT + PANEL.1 * lines(table.rows.len()) as u32);
    let size = (PANEL.0 * COLUMNS as u32, LEGEND_HEIGHT + heights.sum::<u32>());
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, mut rest) = root.split_vertically(LEGEND_HEIGHT);
        if let Some(row) = results.tables.first().and_then(|table| table.rows.first()) {
            draw_legend(&legend, &row.cells)?;
        }
        for table in &results.tables {
            let (title, below) = rest.split_vertically(TITLE_HEIGHT);
            title.draw(&Text::new(table.name.title(), (20, 8), (FONT, 18).into_font()))?;
            let (panels, below) = below.split_vertically(PANEL.1 * lines(table.rows.len()) as u32);
            for (area, row) in panels.split_evenly((lines(table.rows.len()), COLUMNS)).iter().zip(&table.rows) {
                draw_row(area, &row.name(), &row.cells)?;
            }
            rest = below;
        }
        root.present()?;
    }
    Ok(svg)
}

fn lines(rows: usize) -> usize {
    rows.div_ceil(COLUMNS).max(1)
}

/// By place among the cells of the same initiator.
fn colours(cells: &[Cell]) -> Vec<RGBColor> {
    let (mut linux, mut ours) = (LINUX.into_iter().cycle(), OURS.into_iter().cycle());
    let colour = |cell: &Cell| if cell.initiator == "Linux" { linux.next() } else { ours.next() };
    cells.iter().filter_map(colour).collect()
}

fn draw_legend(area: &Area<'_>, cells: &[Cell]) -> Result<(), ChartError> {
    let mut x = 20;
    for (cell, colour) in cells.iter().zip(colours(cells)) {
        area.draw(&Rectangle::new([(x, 14), (x + 14, 28)], colour.filled()))?;
        let name = cell.contender();
        area.draw(&Text::new(name.clone(), (x + 20, 14), (FONT, 15).into_font()))?;
        x += 40 + 8 * i32::try_from(name.len()).unwrap_or(0);
    }
    Ok(())
}

fn draw_row(area: &Area<'_>, name: &str, cells: &[Cell]) -> Result<(), ChartError> {
    let bars = cells.iter().zip(colours(cells)).map(|(cell, colour)| Bar {
        parts: vec![(cell.iops.median, colour)],
        whisker: Some((cell.iops.min, cell.iops.max)),
        label: short(cell.iops.median),
    });
    draw_bars(area, Caption { title: name, unit: "IOPS", label_size: LABEL_SIZE }, bars.collect(), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn a_bar_for_each_contender() {
        let svg = draw(&results()).unwrap();
        for text in ["Linux numa", "vhost-blk-mpath bdp", "4k randread QD1, slow first", "Delay by netem in the guest"]
        {
            assert!(svg.contains(text), "{text}");
        }
    }
}
