//! The picture: p50 of a burst by K, by N and by how many flows there are, a line for each scheduler, beside floor,
//! limit, the model in virtual time and what was published.

use crate::cells::{Cell, Row};
use crate::document::published;
use crate::results::Results;
use crate::row::Table;
use plotters::prelude::*;
use vublk_bench::publish::{Axes, ChartError, Curve, Spread, Stroke, draw_curves, draw_legend};

const PANEL: (u32, u32) = (560, 420);
const LEGEND_HEIGHT: u32 = 90;
const LEGEND_COLUMNS: usize = 4;

/// By scheduler.
pub(crate) const COLOURS: [RGBColor; 3] =
    [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xff, 0x7f, 0x0e), RGBColor(0x2c, 0xa0, 0x2c)];
const GREY: RGBColor = RGBColor(0x8c, 0x8c, 0x8c);

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let tables: Vec<(Table, Axes<'static>, Vec<&Row>)> = Table::ALL
        .into_iter()
        .filter_map(|table| Some((table, axes(table)?, results.table(table))))
        .filter(|(.., rows)| !rows.is_empty())
        .collect();
    let size = (PANEL.0 * tables.len().max(1) as u32, LEGEND_HEIGHT + PANEL.1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(LEGEND_HEIGHT);
        for (index, ((table, axes, rows), area)) in
            tables.iter().zip(panels.split_evenly((1, tables.len().max(1)))).enumerate()
        {
            let curves = curves(results, *table, rows);
            if index == 0 {
                draw_legend(&legend, &curves, LEGEND_COLUMNS)?;
            }
            draw_curves(&area, *axes, &curves)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// Of the tables that have a panel.
fn axes(table: Table) -> Option<Axes<'static>> {
    let y = "p50 of a burst, ms";
    match table {
        Table::K => Some(Axes { title: "Bursts of 32 against K busy flows", x: "K", y }),
        Table::N => Some(Axes { title: "Bursts of N against 16 busy flows", x: "N", y }),
        Table::M => Some(Axes { title: "m flows with bursts of 32 against 16 busy flows", x: "m", y }),
        Table::A => None,
    }
}

fn x(table: Table, row: &Row) -> f64 {
    match table {
        Table::K => row.spec.busy as f64,
        Table::M => row.spec.interactive.flows as f64,
        Table::N | Table::A => f64::from(row.spec.interactive.count),
    }
}

fn curves(results: &Results, table: Table, rows: &[&Row]) -> Vec<Curve> {
    let curve = |name: &str, colour, stroke, of: &dyn Fn(&Row) -> Option<Spread>| Curve {
        name: name.to_owned(),
        colour,
        stroke,
        points: rows.iter().filter_map(|row| Some((x(table, row), of(row)?))).collect(),
    };
    let exactly = |value: f64| Spread { median: value, min: value, max: value };
    let floor = |row: &Row| {
        let floor = results.cells.floor(row.spec.interactive).filter(|floor| floor.bursts > 0);
        floor.map(|floor| floor.p50_ms)
    };
    // Several flows at once have another one: their share of the service.
    let limit = |row: &Row| {
        let one = floor(row).filter(|_| row.spec.interactive.flows == 1);
        one.map(|floor| exactly(floor.median + results.cells.service_ms()))
    };
    let virtual_time = |cell: &Cell| cell.virtual_time.map(|times| exactly(times.p50_ms));
    let mut curves = Vec::new();
    for (scheduler, colour) in results.schedulers.iter().zip(COLOURS) {
        curves.push(curve(scheduler, colour, Stroke::Line(2), &|row| row.timed(scheduler).map(|cell| cell.p50_ms)));
    }
    curves.push(curve("floor", BLACK, Stroke::Line(1), &floor));
    curves.push(curve("limit: floor + 1 service", GREY, Stroke::Line(1), &limit));
    // One entry in the legend for several curves.
    curves.push(curve("published figures, plain and credits", BLACK, Stroke::Crosses, &|row| {
        published(table, row).map(|[without, _]| exactly(without))
    }));
    curves.push(curve("", BLACK, Stroke::Crosses, &|row| published(table, row).map(|[_, with]| exactly(with))));
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
    use crate::row::RowSpec;

    #[test]
    fn a_panel_for_each_table() {
        let mut results = results(&[30.0, 34.0]);
        let both = draw(&results).unwrap();
        for text in ["Bursts of 32 against K", "Bursts of N against 16", "burst-credit", "limit: floor + 1 service"] {
            assert!(both.contains(text), "{text}");
        }
        assert!(both.matches("in virtual time").count() == 1 && !both.contains("NaN"));
        assert!(both.contains("m flows with bursts of 32"));
        results.cells.rows.retain(|row| row.spec == RowSpec::one(32, row.spec.busy));
        let one = draw(&results).unwrap();
        assert!(one.contains("Bursts of 32 against K") && !one.contains("Bursts of N") && !one.contains("m flows"));
        results.cells.rows.clear();
        assert!(draw(&results).is_ok(), "tables without a panel");
    }
}
