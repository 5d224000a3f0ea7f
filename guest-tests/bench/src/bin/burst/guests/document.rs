//! The section of `docs/scheduler-results.md` that is rewritten with each measurement.

use super::results::{Cell, Results};
use std::fmt::Write;
use vublk_bench::publish::{Section, write_targets};

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "burst-guests", command: "make bench-burst" };

/// The section: the table, targets, method, machine, picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    let plan = &results.plan;
    writeln!(
        text,
        "Bursts of {} reads of 4 KiB by the interactive guest, beside {} virtqueues that the bulk guest keeps filled with {} each: median \
         (least–most of the rounds), in ms, and behind the semicolon the floor, the same guest while the other one does nothing. The p99 of a burst \
         in front of its rounds is that of all of them together. The interactive guest's disk has a weight of 100.\n",
        plan.count, plan.flows, plan.depth
    )?;
    writeln!(
        text,
        "| bulk's weight | | bursts | p50 of a burst | p99 of a burst | IOPS of the bulk guest |\n|--:|---|{}",
        "--:|".repeat(4)
    )?;
    let alone = &results.alone;
    writeln!(
        text,
        "| | alone (floor) | {} | {} | {} | {} |",
        alone.bursts,
        alone.p50_ms.text(1),
        p99(alone),
        results.bulk_alone_iops.text(0)
    )?;
    for cell in &results.together {
        writeln!(
            text,
            "| {} | `{}` | {} | {}; {:.1} | {}; {:.1} | {}; {:.0} % |",
            cell.bulk_weight,
            cell.scheduler,
            cell.bursts,
            cell.p50_ms.text(1),
            alone.p50_ms.median,
            p99(cell),
            alone.all_p99_ms,
            cell.bulk_iops.text(0),
            results.bulk_percent(cell)
        )?;
    }
    write_targets(text, &results.targets)?;
    write_method(text, results)
}

/// Of all bursts, and how far the rounds lie apart.
fn p99(cell: &Cell) -> String {
    format!("{:.1} ({:.1}–{:.1})", cell.all_p99_ms, cell.p99_ms.min, cell.p99_ms.max)
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let plan = &results.plan;
    let ideal = plan.ideal_ms();
    writeln!(
        text,
        "\nTwo guests under QEMU at the same time, one with each of two disks that share one path, whose window of {} requests makes {} slots of \
         its target's delay of {} ms. A burst takes {ideal} ms at least, so what emulation, daemon and target add to the interactive guest alone \
         is {:.1} ms of its p50. fio in it has {} random reads submitted at once, waits for all, pauses for {} ms and begins again; a burst lasts from its first read \
         to when fio has all answers, by its log. {} rounds, schedulers alternating: fio in the bulk guest runs through all of them, while `mpathctl \
         scheduler set` and `weight set` switch; for {} s after each switch nothing counts, then all bursts that begin within {} s. IOPS of the bulk guest are what the \
         daemon sent for it in that time, and all of them together what its fio counts, within 2 %.\n",
        plan.slots,
        plan.slots,
        plan.delay_ms,
        results.alone.p50_ms.median - ideal as f64,
        plan.count,
        plan.pause_ms,
        plan.rounds,
        plan.settle_seconds,
        plan.seconds
    )?;
    let guest = |disk, name| results.guest(disk, name);
    writeln!(
        text,
        "Guests: Linux {}, {}, under {}; {} CPU and {} virtqueue the interactive one, {} and {} the bulk one. Machine: {} The guests run on the \
         same cores.\n",
        guest("interactive", "kernel"),
        guest("interactive", "fio"),
        guest("interactive", "accel"),
        guest("interactive", "cpus"),
        guest("interactive", "queues"),
        guest("bulk", "cpus"),
        guest("bulk", "queues"),
        results.machine.text()
    )?;
    writeln!(text, "```console")?;
    for command in &results.commands {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![The interactive guest's bursts and the bulk guest's IOPS](results/{}.svg)", SECTION.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::results::tests::{results, times};
    use crate::guests::targets::targets;

    #[test]
    fn a_row_for_each_scheduler_with_the_floor_beside_it() {
        let mut results = results(&[("fifo", times(&[200, 230], 1170.0))]);
        results.targets = targets(&results);
        let text = section(&results);
        let floor =
            "| | alone (floor) | 6 | 30.0 (30.0–30.0) | 30.0 (30.0–30.0) | 1\u{202f}300 (1\u{202f}300–1\u{202f}300) |";
        assert!(text.contains(floor), "{text}");
        let row = "| 800 | `fifo` | 6 | 230.0 (230.0–230.0); 30.0 | 230.0 (230.0–230.0); 30.0 |";
        assert!(text.contains(row) && text.contains("| 1\u{202f}170 (1\u{202f}170–1\u{202f}170); 90 % |"), "{text}");
        assert!(text.contains("alone is 20.0 ms of its p50") && text.contains("not measured"), "{text}");
        assert!(
            text.contains("Linux 6.1.0, fio-3.33, under tcg; 1 CPU and 1 virtqueue the interactive one, 8 and 8"),
            "{text}"
        );
        assert!(text.contains("$ mpath-target --x\n```") && text.contains("results/burst-guests.svg"), "{text}");
    }
}
