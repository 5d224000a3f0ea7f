//! Bars with their spread.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// All text.
pub const FONT: &str = "sans-serif";

/// Of a dashed line.
const DASHES: u8 = 40;

/// A part of an SVG.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ChartError(#[from] DrawingAreaErrorKind<std::io::Error>);

/// A bar of stacked parts with a whisker from least to most.
#[derive(Debug, Clone)]
pub struct Bar {
    /// From below: height and colour.
    pub parts: Vec<(f64, RGBColor)>,
    /// Least and most.
    pub whisker: Option<(f64, f64)>,
    /// Above it.
    pub label: String,
}

impl Bar {
    fn height(&self) -> f64 {
        self.parts.iter().map(|(height, _)| height).sum()
    }

    fn top(&self) -> f64 {
        self.height().max(self.whisker.map_or(0.0, |(_, most)| most))
    }
}

/// What stands at a panel of bars.
#[derive(Debug, Clone, Copy)]
pub struct Caption<'a> {
    /// Above; may be empty.
    pub title: &'a str,
    /// Of the heights.
    pub unit: &'a str,
    /// Size of the labels.
    pub label_size: u32,
}

/// Draws a panel; `limit` is a dashed line at that height.
pub fn draw_bars(area: &Area<'_>, caption: Caption<'_>, bars: Vec<Bar>, limit: Option<f64>) -> Result<(), ChartError> {
    let top = bars.iter().map(Bar::top).chain(limit).fold(f64::MIN_POSITIVE, f64::max) * 1.2;
    let width = bars.len().max(1) as f64;
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).x_label_area_size(8).y_label_area_size(64);
    if !caption.title.is_empty() {
        builder.caption(caption.title, (FONT, 17));
    }
    let mut chart = builder.build_cartesian_2d(0f64..width, 0f64..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        .y_labels(5)
        .y_desc(caption.unit)
        .y_label_formatter(&|value| short(*value))
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .draw()?;
    for (index, bar) in bars.into_iter().enumerate() {
        let left = index as f64 + 0.2;
        let middle = index as f64 + 0.5;
        let mut base = 0.0;
        for (height, colour) in &bar.parts {
            let corners = [(left, base), (left + 0.6, base + height)];
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            base += height;
        }
        if let Some((least, most)) = bar.whisker {
            chart.draw_series([PathElement::new([(middle, least), (middle, most)], BLACK.stroke_width(2))])?;
        }
        let centred =
            (FONT, caption.label_size).into_font().into_text_style(area).pos(Pos::new(HPos::Center, VPos::Bottom));
        let at = (middle, bar.top() + top * 0.02);
        chart.draw_series([Text::new(bar.label, at, centred)])?;
    }
    if let Some(limit) = limit {
        let dashes = (0..DASHES).map(|dash| {
            let at = |part: f64| (width * (f64::from(dash) + part) / f64::from(DASHES), limit);
            PathElement::new([at(0.0), at(0.6)], BLACK.stroke_width(1))
        });
        chart.draw_series(dashes)?;
    }
    Ok(())
}

/// Three digits and a unit.
#[must_use]
pub fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
