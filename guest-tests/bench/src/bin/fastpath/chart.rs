//! The picture: for each workload, IOPS above and CPU time per I/O below.

use crate::measure::WORKLOADS;
use crate::results::{Results, Row};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (1120, 640);
const TITLE_HEIGHT: u32 = 40;
const LEGEND_HEIGHT: i32 = 30;
const FONT: &str = "sans-serif";

/// By process role and back-end.
const MPATH: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const MPATH_TARGET: RGBColor = RGBColor(0xae, 0xc7, 0xe8);
const CEILING: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct ChartError(#[from] DrawingAreaErrorKind<std::io::Error>);

/// Draws an SVG.
pub(crate) fn draw(results: &Results) -> Result<String, ChartError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (legend, panels) = root.split_vertically(TITLE_HEIGHT);
        draw_legend(&legend)?;
        let cells = panels.split_evenly((2, WORKLOADS.len()));
        let (above, below) = cells.split_at(WORKLOADS.len());
        for (workload, (iops, cpu)) in WORKLOADS.iter().zip(above.iter().zip(below)) {
            let rows: Vec<&Row> = results.rows.iter().filter(|row| row.workload == workload.name).collect();
            draw_iops(iops, workload.name, &rows)?;
            draw_cpu(cpu, &rows)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn colour(backend: &str, role: &str) -> RGBColor {
    match (backend, role) {
        ("vhost-blk-mpath", "target") => MPATH_TARGET,
        ("vhost-blk-mpath", _) => MPATH,
        _ => CEILING,
    }
}

fn draw_legend(area: &Area<'_>) -> Result<(), ChartError> {
    let entries = [
        (MPATH, "vhost-blk-mpath"),
        (MPATH_TARGET, "its mpath-target"),
        (CEILING, "qemu-storage-daemon, null disk (the ceiling)"),
    ];
    for ((colour, text), x) in entries.into_iter().zip([60, 260, 460]) {
        let square = [(x, LEGEND_HEIGHT - 16), (x + 14, LEGEND_HEIGHT - 2)];
        area.draw(&Rectangle::new(square, colour.filled()))?;
        area.draw(&Text::new(text, (x + 20, LEGEND_HEIGHT - 16), (FONT, 15).into_font()))?;
    }
    Ok(())
}

/// A bar of stacked parts with a whisker from least to most.
struct Bar {
    parts: Vec<(f64, RGBColor)>,
    whisker: Option<(f64, f64)>,
    label: String,
}

impl Bar {
    fn height(&self) -> f64 {
        self.parts.iter().map(|(height, _)| height).sum()
    }

    fn top(&self) -> f64 {
        self.height().max(self.whisker.map_or(0.0, |(_, most)| most))
    }
}

fn draw_iops(area: &Area<'_>, workload: &str, rows: &[&Row]) -> Result<(), ChartError> {
    let bars = rows.iter().map(|row| Bar {
        parts: vec![(row.iops.median, colour(row.backend, "daemon"))],
        whisker: Some((row.iops.min, row.iops.max)),
        label: short(row.iops.median),
    });
    draw_bars(area, workload, "IOPS", bars.collect())
}

fn draw_cpu(area: &Area<'_>, rows: &[&Row]) -> Result<(), ChartError> {
    let bars = rows.iter().map(|row| {
        let parts = row.cpu_us_per_io.iter().map(|(role, cpu)| (cpu.median, colour(row.backend, role)));
        let total: f64 = row.cpu_us_per_io.values().map(|cpu| cpu.median).sum();
        Bar { parts: parts.collect(), whisker: None, label: format!("{total:.2}") }
    });
    draw_bars(area, "", "CPU µs per I/O", bars.collect())
}

fn draw_bars(area: &Area<'_>, caption: &str, unit: &str, bars: Vec<Bar>) -> Result<(), ChartError> {
    let top = bars.iter().map(Bar::top).fold(f64::MIN_POSITIVE, f64::max) * 1.2;
    let width = bars.len().max(1) as f64;
    let mut builder = ChartBuilder::on(area);
    builder.margin(8).x_label_area_size(8).y_label_area_size(64);
    if !caption.is_empty() {
        builder.caption(caption, (FONT, 17));
    }
    let mut chart = builder.build_cartesian_2d(0f64..width, 0f64..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(0)
        .y_labels(5)
        .y_desc(unit)
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
        let centred = (FONT, 13).into_font().into_text_style(area).pos(Pos::new(HPos::Center, VPos::Bottom));
        let at = (middle, bar.top() + top * 0.02);
        chart.draw_series([Text::new(bar.label, at, centred)])?;
    }
    Ok(())
}

/// Three digits and a unit.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
