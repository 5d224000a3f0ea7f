//! The picture: p50 of a burst by K and by N, a line for each scheduler, beside floor, limit, the model in virtual time
//! and what was published.

use crate::plan::Table;
use crate::results::{Cell, Results, Row};
use plotters::prelude::*;
use vublk_bench::publish::{Axes, ChartError, Curve, Spread, Stroke, draw_curves, draw_legend};

const PANEL: (u32, u32) = (560, 420);
const LEGEND_HEIGHT: u32 = 90;
const LEGEND_COLUMNS: usize = 4;

/// By scheduler.
const COLOURS: [RGBColor; 3] = [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xff, 0x7f, 0x0e), RGBColor(0x2c, 0xa0, 0x2c)];
const GREY: RGBColor = RGBColor(0x8c, 0x8c, 0x8c);

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let tables: Vec<(Table, Vec<&Row>)> = Table::ALL
        .into_iter()
        .map(|table| (table, results.table(table)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    let size = (PANEL.0 * tables.len().max(1) as u32, LEGEND_HEIGHT + PANEL.1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        for (index, ((table, rows), area)) in
            tables.iter().zip(panels.split_evenly((1, tables.len().max(1)))).enumerate()
        {
            let curves = curves(results, *table, rows);
            if index == 0 {
                draw_legend(&legend, &curves, LEGEND_COLUMNS)?;
            }
            draw_curves(&area, table.axes(), &curves)?;
        }
        root.present()?;
    }
    Ok(svg)
}

impl Table {
    fn axes(self) -> Axes<'static> {
        let y = "p50 of a burst, ms";
        match self {
            Self::K => Axes { title: "Bursts of 32 against K busy flows", x: "K", y },
            Self::N => Axes { title: "Bursts of N against 16 busy flows", x: "N", y },
        }
    }

    fn x(self, row: &Row) -> f64 {
        match self {
            Self::K => row.busy as f64,
            Self::N => f64::from(row.count),
        }
    }
}

fn curves(results: &Results, table: Table, rows: &[&Row]) -> Vec<Curve> {
    let curve = |name: &str, colour, stroke, of: &dyn Fn(&Row) -> Option<Spread>| Curve {
        name: name.to_owned(),
        colour,
        stroke,
        points: rows.iter().filter_map(|row| Some((table.x(row), of(row)?))).collect(),
    };
    let exactly = |value: f64| Spread { median: value, min: value, max: value };
    let floor = |row: &Row| results.floor(row.count).map(|floor| floor.p50_ms);
    let limit = |row: &Row| floor(row).map(|floor| exactly(floor.median + results.service_ms()));
    let virtual_time = |cell: &Cell| cell.virtual_time.map(|quantiles| exactly(quantiles.p50_ms));
    let mut curves = Vec::new();
    for (scheduler, colour) in results.schedulers.iter().zip(COLOURS) {
        curves.push(curve(scheduler, colour, Stroke::Line(2), &|row| row.cell(scheduler).map(|cell| cell.p50_ms)));
    }
    curves.push(curve("floor", BLACK, Stroke::Line(1), &floor));
    curves.push(curve("limit: floor + 1 service", GREY, Stroke::Line(1), &limit));
    // One entry in the legend for several curves.
    curves.push(curve("published, plain and credits", BLACK, Stroke::Crosses, &|row| {
        table.published(row).map(|[without, _]| exactly(without))
    }));
    curves.push(curve("", BLACK, Stroke::Crosses, &|row| table.published(row).map(|[_, with]| exactly(with))));
    for (index, (scheduler, colour)) in results.schedulers.iter().zip(COLOURS).enumerate() {
        let name = if index == 0 { "in virtual time" } else { "" };
        curves.push(curve(name, colour, Stroke::Circles, &|row| row.cell(scheduler).and_then(virtual_time)));
    }
    curves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn a_panel_for_each_table() {
        let mut results = results(&[30.0, 34.0]);
        let both = draw(&results).unwrap();
        for text in ["Bursts of 32 against K", "Bursts of N against 16", "burst-credit-drr", "limit: floor + 1 service"]
        {
            assert!(both.contains(text), "{text}");
        }
        assert!(both.matches("in virtual time").count() == 1 && !both.contains("NaN"));
        results.rows.retain(|row| row.count == 32);
        let one = draw(&results).unwrap();
        assert!(one.contains("Bursts of 32 against K") && !one.contains("Bursts of N"));
    }
}
