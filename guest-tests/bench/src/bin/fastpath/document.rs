//! The section of `docs/benchmarks.md` that is rewritten with each measurement.

use crate::results::{Results, Row};
use std::fmt::Write;
use vublk_bench::publish::Section;

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "fastpath", command: "make bench-fastpath" };

/// The section: table, machine, commands.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(text, "| workload | back-end | IOPS | MiB/s | p50 µs | p99 µs | CPU µs per I/O |")?;
    writeln!(text, "|---|---|--:|--:|--:|--:|--:|")?;
    for row in &results.rows {
        let Row { workload, backend, .. } = row;
        writeln!(
            text,
            "| {workload} | {backend} | {} | {} | {} | {} | {} |",
            row.iops.text(0),
            row.mib_per_second.text(0),
            row.p50_us.text(1),
            row.p99_us.text(1),
            cpu(row)
        )?;
    }
    writeln!(text, "\nMachine: {}\n", results.machine.text())?;
    writeln!(text, "```console")?;
    for command in results.commands.values().flat_map(|commands| commands.values()) {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![IOPS and CPU time per I/O](results/fastpath.svg)")
}

fn cpu(row: &Row) -> String {
    let parts = row.cpu_us_per_io.iter().map(|(role, cpu)| format!("{role} {:.2}", cpu.median));
    parts.collect::<Vec<_>>().join(" + ")
}
