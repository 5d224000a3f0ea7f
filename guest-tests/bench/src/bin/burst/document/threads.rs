//! The table of I/O threads.

use super::tables::times;
use crate::cells::Cell;
use crate::results::Results;
use crate::row::{BUSY_FLOWS, COUNT};
use crate::threads::{Divided, LIMIT_BURST, LIMIT_IOPS};
use std::fmt::Write;

pub(super) fn write(text: &mut String, results: &Results) -> std::fmt::Result {
    let Some(first) = results.threads.first() else { return Ok(()) };
    writeln!(
        text,
        "The virtqueues divided among I/O threads, each of which schedules its own: {} slots in one window, or in a window of each \
         thread (13 cannot be halved). One flow of {COUNT} requests against {BUSY_FLOWS} busy ones; its limit is the floor in as \
         many threads and one service. In the last column {BUSY_FLOWS} busy flows of a disk that `mpathctl limit set --iops \
         {LIMIT_IOPS} --burst {LIMIT_BURST}` holds back\n",
        first.io_threads * first.window_ios
    )?;
    writeln!(
        text,
        "| I/O threads | slots of each | | floor | limit | p50 / p99; bursts + those set aside | IOPS; the busy flows' part | IOPS of a busy flow, \
         least / most | IOPS, limited to {LIMIT_IOPS} |\n|--:|--:|---|{}",
        "--:|".repeat(6)
    )?;
    for threads in &results.threads {
        write_threads(text, threads)?;
    }
    writeln!(text)
}

fn write_threads(text: &mut String, threads: &Divided) -> std::fmt::Result {
    let Some(row) = threads.together() else { return Ok(()) };
    let floor = threads.cells.floor(row.spec.interactive).map(times).unwrap_or_default();
    let limit = threads.cells.floor_ms(row).map(|floor| format!("{:.1}", floor + threads.cells.service_ms()));
    let limit = limit.unwrap_or_default();
    let limited = threads.limited().map(|cell| cell.iops.text(0)).unwrap_or_default();
    for (index, cell) in row.cells.iter().enumerate() {
        let Cell { scheduler, iops, busy_percent, busy_flow_iops: [least, most], .. } = cell;
        writeln!(
            text,
            "| {} | {} | `{scheduler}` | {floor} | {limit} | {} | {}; {:.0} % | {:.0} / {:.0} | {} |",
            threads.io_threads,
            threads.window_ios,
            times(cell),
            iops.text(0),
            busy_percent.median,
            least.median,
            most.median,
            // It is of neither: what is limited has no bursts.
            if index == 0 { limited.as_str() } else { "" }
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::nothing;
    use crate::threads::tests::threads;

    #[test]
    fn a_row_for_each_number_of_threads_and_scheduler() {
        let mut text = String::new();
        write(&mut text, &Results { threads: threads(34.0, 500.0), ..nothing(&[]) }).unwrap();
        assert!(text.contains("12 slots in one window"), "{text}");
        let fifo = "| 2 | 6 | `fifo` | 60.0 (60.0–60.0) / 60.0; 1 + 0 | 70.0 | 340.0 (340.0–340.0) / 340.0; 1 + 0 | ";
        assert!(text.contains(fifo), "{text}");
        assert!(text.contains("; 75 % | 30 / 120 | 500 (500–500) |"), "{text}");
        assert!(text.contains("| 1 | 12 | `burst-credit` | 30.0") && text.contains("30 / 120 |  |"), "{text}");
        text.clear();
        write(&mut text, &nothing(&[])).unwrap();
        assert_eq!(text, "");
    }
}
