//! The picture: for each workload, IOPS above and CPU time per I/O below.

use crate::measure::WORKLOADS;
use crate::results::{Results, Row};
use plotters::prelude::*;
use vublk_bench::publish::{Area, Bar, Caption, ChartError, FONT, draw_bars, short};

const SIZE: (u32, u32) = (1120, 640);
const TITLE_HEIGHT: u32 = 40;
const LEGEND_HEIGHT: i32 = 30;
const LABEL_SIZE: u32 = 13;

/// By process role and back-end.
const MPATH: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const MPATH_TARGET: RGBColor = RGBColor(0xae, 0xc7, 0xe8);
const CEILING: RGBColor = RGBColor(0x9a, 0x9a, 0x9a);

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

fn draw_iops(area: &Area<'_>, workload: &str, rows: &[&Row]) -> Result<(), ChartError> {
    let bars = rows.iter().map(|row| Bar {
        parts: vec![(row.iops.median, colour(row.backend, "daemon"))],
        whisker: Some((row.iops.min, row.iops.max)),
        label: short(row.iops.median),
    });
    draw_bars(area, Caption { title: workload, unit: "IOPS", label_size: LABEL_SIZE }, bars.collect(), None)
}

fn draw_cpu(area: &Area<'_>, rows: &[&Row]) -> Result<(), ChartError> {
    let bars = rows.iter().map(|row| {
        let parts = row.cpu_us_per_io.iter().map(|(role, cpu)| (cpu.median, colour(row.backend, role)));
        let total: f64 = row.cpu_us_per_io.values().map(|cpu| cpu.median).sum();
        Bar { parts: parts.collect(), whisker: None, label: format!("{total:.2}") }
    });
    draw_bars(area, Caption { title: "", unit: "CPU µs per I/O", label_size: LABEL_SIZE }, bars.collect(), None)
}
