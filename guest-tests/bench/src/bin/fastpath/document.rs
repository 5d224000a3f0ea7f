//! The section of `docs/benchmarks.md` that is rewritten with each measurement.

use crate::results::{Results, Row, Spread};
use std::fmt::Write;
use std::io;

/// Around the section.
const BEGIN: &str = "<!-- fastpath: begin (written by `make bench-fastpath`) -->";
const END: &str = "<!-- fastpath: end -->";

/// Why the document was left as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("cannot read it: {0}")]
    Read(#[source] io::Error),
    #[error("the marker lines '{BEGIN}' and '{END}' must be there once each, in this order")]
    Markers,
}

/// Replaces what is between the markers.
pub(crate) fn replace_section(text: &str, section: &str) -> Result<String, DocumentError> {
    let (before, rest) = text.split_once(BEGIN).ok_or(DocumentError::Markers)?;
    let (_, after) = rest.split_once(END).ok_or(DocumentError::Markers)?;
    if before.contains(END) || after.contains(BEGIN) || after.contains(END) {
        return Err(DocumentError::Markers);
    }
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", section.trim()))
}

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
            spread(row.iops, 0),
            spread(row.mib_per_second, 0),
            spread(row.p50_us, 1),
            spread(row.p99_us, 1),
            cpu(row)
        )?;
    }
    let machine = &results.machine;
    writeln!(
        text,
        "\nMedian of {} rounds of {} s, back-ends alternating (least–most of the rounds). One queue, used-ring eventfds, \
         no polling. CPU time is user and system time of the back-end's processes over all requests; the front-end \
         that makes the load runs on the same cores.",
        results.rounds, results.seconds_per_measurement
    )?;
    writeln!(
        text,
        "\nMachine: {}, {} CPUs{}, {} GiB, Linux {}; load average {:.2} before the start; {}; commit {}; {}.\n",
        machine.cpu,
        machine.cpus,
        if machine.virtualised { " (virtual machine)" } else { "" },
        machine.memory_gib,
        machine.kernel,
        machine.load_average,
        machine.qemu_storage_daemon,
        machine.commit,
        machine.date
    )?;
    writeln!(text, "```console")?;
    for command in results.commands.values().flat_map(|commands| commands.values()) {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![IOPS and CPU time per I/O](results/fastpath.svg)")
}

fn spread(spread: Spread, digits: usize) -> String {
    let number = |value: f64| if digits == 0 { grouped(value) } else { format!("{value:.digits$}") };
    format!("{} ({}–{})", number(spread.median), number(spread.min), number(spread.max))
}

/// 1234567 as `1 234 567`.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

fn cpu(row: &Row) -> String {
    let parts = row.cpu_us_per_io.iter().map(|(role, cpu)| format!("{role} {:.2}", cpu.median));
    parts.collect::<Vec<_>>().join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_only_between_the_markers() {
        let text = format!("# Title\n{BEGIN}\nold\n{END}\nrest\n");
        let replaced = replace_section(&text, "\nnew\n").unwrap();
        assert_eq!(replaced, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\nrest\n"));
        assert_eq!(replace_section(&replaced, "new").unwrap(), replaced);
    }

    #[test]
    fn refuses_without_or_with_wrong_markers() {
        for text in
            [String::new(), format!("{BEGIN}\n"), format!("{END}\n{BEGIN}\n"), format!("{BEGIN}{END}{BEGIN}{END}")]
        {
            assert!(replace_section(&text, "new").is_err(), "{text}");
        }
    }

    #[test]
    fn groups_digits() {
        assert_eq!(grouped(7.4), "7");
        assert_eq!(grouped(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(123.0), "123");
    }
}
