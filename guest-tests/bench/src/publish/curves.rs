//! Curves with their spread, on a logarithmic scale.

use super::bars::{Area, ChartError, FONT, short};
use super::spread::Spread;
use plotters::prelude::*;

/// Of a mark.
const MARK_RADIUS: i32 = 4;
const MARK: i32 = 3;

/// Free space above and below the curves, as a factor.
const MARGIN: f64 = 1.3;

/// Of an entry of the legend, beside its text.
const LEGEND_SAMPLE: i32 = 24;
const LEGEND_GAP: i32 = 8;
/// About what a letter takes.
const LEGEND_LETTER: i32 = 8;

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// A line of this width.
    Line(u32),
    /// A circle at each point.
    Circles,
    /// A cross at each point.
    Crosses,
}

/// A row of measurements.
#[derive(Debug, Clone)]
pub struct Curve {
    /// In the legend; empty if another curve stands there for both.
    pub name: String,
    /// Of all of it.
    pub colour: RGBColor,
    /// How it is drawn.
    pub stroke: Stroke,
    /// From left to right; with a whisker from least to most.
    pub points: Vec<(f64, Spread)>,
}

/// What stands at a panel of curves.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// Above.
    pub title: &'a str,
    /// Below.
    pub x: &'a str,
    /// At the side, which is logarithmic.
    pub y: &'a str,
}

/// Draws a panel. Values are above 0. Of no points there is nothing to draw.
pub fn draw_curves(area: &Area<'_>, axes: Axes<'_>, curves: &[Curve]) -> Result<(), ChartError> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    if points().next().is_none() {
        return Ok(());
    }
    let right = points().map(|(x, _)| *x).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let most = points().map(|(_, y)| y.max).fold(f64::MIN_POSITIVE, f64::max);
    let least = points().map(|(_, y)| y.min).fold(most, f64::min);
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).x_label_area_size(40).y_label_area_size(64).caption(axes.title, (FONT, 17));
    let mut chart = builder.build_cartesian_2d(0f64..right, (least / MARGIN..most * MARGIN).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| short(*value))
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for Curve { colour, stroke, points, .. } in curves {
        let medians = points.iter().map(|(x, y)| (*x, y.median));
        match stroke {
            Stroke::Line(width) => {
                chart.draw_series([PathElement::new(medians.collect::<Vec<_>>(), colour.stroke_width(*width))])?;
            }
            Stroke::Circles => {
                chart.draw_series(medians.map(|at| Circle::new(at, MARK_RADIUS, colour.stroke_width(1))))?;
            }
            Stroke::Crosses => {
                chart.draw_series(medians.map(|at| Cross::new(at, MARK, colour.stroke_width(1))))?;
            }
        }
        let whiskers = points.iter().filter(|(_, y)| y.min < y.max);
        chart.draw_series(
            whiskers.map(|(x, y)| PathElement::new([(*x, y.min), (*x, y.max)].to_vec(), colour.stroke_width(1))),
        )?;
    }
    Ok(())
}

/// Draws what each curve with a name is, in lines of so many.
pub fn draw_legend(area: &Area<'_>, curves: &[Curve], columns: usize) -> Result<(), ChartError> {
    let longest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
    let step = LEGEND_SAMPLE + 3 * LEGEND_GAP + LEGEND_LETTER * i32::try_from(longest).unwrap_or(0);
    for (index, curve) in (0i32..).zip(curves.iter().filter(|curve| !curve.name.is_empty())) {
        let columns = i32::try_from(columns).unwrap_or(i32::MAX).max(1);
        let (x, y) = (20 + step * (index % columns), 18 + 22 * (index / columns));
        let middle = (x + LEGEND_SAMPLE / 2, y);
        match curve.stroke {
            Stroke::Line(width) => {
                let line = [(x, y), (x + LEGEND_SAMPLE, y)];
                area.draw(&PathElement::new(line, curve.colour.stroke_width(width)))?;
            }
            Stroke::Circles => area.draw(&Circle::new(middle, MARK_RADIUS, curve.colour.stroke_width(1)))?,
            Stroke::Crosses => area.draw(&Cross::new(middle, MARK, curve.colour.stroke_width(1)))?,
        }
        let at = (x + LEGEND_SAMPLE + LEGEND_GAP, y - 8);
        area.draw(&Text::new(curve.name.clone(), at, (FONT, 15).into_font()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(stroke: Stroke) -> String {
        let point = |x: f64, y: f64| (x, Spread { median: y, min: y * 0.9, max: y * 1.1 });
        let curve =
            Curve { name: "fifo".into(), colour: BLUE, stroke, points: vec![point(4.0, 30.0), point(64.0, 1600.0)] };
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (600, 300)).into_drawing_area();
            let (legend, panel) = root.split_vertically(40);
            draw_legend(&legend, std::slice::from_ref(&curve), 2).unwrap();
            draw_curves(&panel, Axes { title: "t", x: "K", y: "ms" }, &[curve]).unwrap();
            root.present().unwrap();
        }
        svg
    }

    #[test]
    fn each_stroke_is_drawn_in_panel_and_legend() {
        let count = |stroke, what: &str| svg(stroke).matches(what).count();
        assert!(
            svg(Stroke::Line(2)).contains("fifo") && svg(Stroke::Line(2)).contains("1.0k"),
            "{}",
            svg(Stroke::Line(2))
        );
        assert_eq!((count(Stroke::Circles, "<circle"), count(Stroke::Line(2), "<circle")), (3, 0));
        assert!(count(Stroke::Crosses, "<line") > count(Stroke::Circles, "<line"));
    }

    #[test]
    fn a_curve_without_a_name_has_no_entry() {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (600, 300)).into_drawing_area();
            let curve = |name: &str| Curve { name: name.into(), colour: RED, stroke: Stroke::Circles, points: vec![] };
            draw_legend(&root, &[curve(""), curve("fifo"), curve("")], 2).unwrap();
            root.present().unwrap();
        }
        assert_eq!((svg.matches("<circle").count(), svg.matches("<text").count()), (1, 1), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_no_failure() {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (600, 300)).into_drawing_area();
        draw_curves(&root, Axes { title: "t", x: "K", y: "ms" }, &[]).unwrap();
    }
}
