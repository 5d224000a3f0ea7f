//! The section of `docs/scheduler-results.md` that is rewritten with each measurement.

mod tables;
mod threads;

use crate::results::Results;
use crate::row::Table;
use std::fmt::Write;
use std::time::Duration;
pub(crate) use tables::published;
use vublk_bench::publish::{Section, write_targets};
use vublk_bench::stalls::{How, Watched};

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "burst", command: "make bench-burst" };

/// The section: the tables, targets, method, machine, picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    let (slots, delay, service) = (results.slots, results.delay_ms, results.service_ms());
    let varies = match results.jitter_ms {
        0.0 => String::new(),
        jitter => format!(
            ", which varies by {jitter} ms either way, at random: slots that take exactly the same come to begin and end together, \
             and a single request meets the middle of a service, which adds half of one to it"
        ),
    };
    writeln!(
        text,
        "{slots} slots: one path with a window of {slots} requests to a target that answers after {delay} ms{varies}. In each \
         cell p50 (least–most of the rounds) / p99 of a burst in ms, and how many bursts that is + how many were set aside, as the \
         machine stood still meanwhile (below); the p99 is that of all rounds together. Floor: the flow alone. Limit: its p50 and one service, which is what a single request takes alone, \
         {service:.1} ms. Published figures: p50 without / with credits.\n"
    )?;
    tables::write(text, results)?;
    threads::write(text, results)?;
    // One blank line is enough.
    text.truncate(text.trim_end().len() + 1);
    write_targets(text, &results.targets)?;
    write_method(text, results)
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let Results { depth, pause_ms: [least, most], rounds, seconds, seed, .. } = results;
    let (fewer, longer) = (Table::M.rounds(*rounds), Table::M.time(Duration::from_secs_f64(*seconds)).as_secs_f64());
    writeln!(text)?;
    if let Some(watched) = &results.watched {
        write_watched(text, results, watched)?;
    }
    writeln!(
        text,
        "{rounds} rounds, schedulers alternating. For each row the front-end connects once and keeps K virtqueues filled \
         with {depth} reads of 4 KiB each. `mpathctl scheduler set` switches from one scheduler to the next under that load, by way of \
         `fifo`, so that each begins without knowledge. To it all virtqueues are new then: nothing counts until each has sent what a \
         new one may send as a burst, and each flow that sends bursts has ended one that began after the switch. The first virtqueues send N reads each at once with one \
         notification, wait for all, pause for {least} to {most} ms and begin again; attackers do not pause. A cell begins \
         with the end of a burst; bursts count that begin within `--seconds {seconds}` of that. Tables of attackers and of m \
         flows have {fewer} rounds of {longer} s a cell, that of I/O threads has {fewer} rounds. One thread drives \
         all virtqueues. `--seed {seed}`.\n\nMachine: {} The front-end runs on the same cores.\n",
        results.machine.text()
    )?;
    writeln!(text, "```console")?;
    let threads = results.threads.iter().map(|threads| &threads.command);
    for command in results.commands.values().chain(threads) {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![p50 of a burst by K, N and m](results/{}.svg)", SECTION.name)
}

/// How long the machine stood still, and what became of that.
fn write_watched(text: &mut String, results: &Results, watched: &Watched) -> std::fmt::Result {
    let Watched { threshold_ms, seconds, stalls, stalled_seconds, longest_ms, .. } = watched;
    let aside: usize = results.all_cells().map(|cell| cell.set_aside).sum();
    let all: usize = results.all_cells().map(|cell| cell.bursts).sum::<usize>() + aside;
    let repeated = results.all_cells().flat_map(|cell| &cell.samples).filter(|sample| sample.repeated).count();
    let how = match watched.how {
        How::Fifo => "of priority `SCHED_FIFO`, which nothing that is measured has,",
        How::Ordinary => {
            "(`SCHED_FIFO` is not permitted, so what the kernel counts as its waiting for others is taken off)"
        }
    };
    writeln!(
        text,
        "The machine stood still for {stalled_seconds:.2} s of {seconds:.0} s: in {stalls} stalls of up to {longest_ms:.0} ms, {:.2} s of its \
         processors' time (their steal time in `/proc/stat`, which has short ones too: {:.2} s). A stall is when a thread \
         {how} that sleeps for 1 ms at a time on each processor wakes {threshold_ms} ms late or more. {aside} of {all} bursts have one in their time, \
         and are in neither p50 nor p99, however long or short they were; `set_aside_ms` in the data. A cell of which more than a tenth of a \
         round's bursts was set aside is measured once more ({repeated} were), and `unreliable` if it happens again. Gaps are less what of them was \
         stalled; shares and throughput are as they were.\n",
        watched.processor_seconds, watched.steal_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::counted::Sample;
    use crate::results::tests::{nothing, results};
    use crate::targets::targets;

    #[test]
    fn tables_targets_and_picture() {
        let mut results = results(&[30.0, 34.0]);
        results.targets = targets(&results);
        let text = section(&results);
        assert!(text.contains("against K busy ones\n\n| K |"), "{text}");
        assert!(text.contains("Targets, by the medians") && text.contains("results/burst.svg"), "{text}");
    }

    #[test]
    fn what_was_set_aside_is_told() {
        let mut results = results(&[30.0, 34.0]);
        let cell = &mut results.cells.rows[0].cells[0];
        cell.add(Sample { set_aside_ms: vec![250.0], repeated: true, ..sample(&[30.0], 1290.0) });
        assert!(section(&results).contains("/ 34.0; 7 + 1, unreliable |"), "{}", section(&results));
        assert!(!section(&results).contains("stood still for"), "nobody watched");
        let mut watched = Watched {
            how: How::Fifo,
            threshold_ms: 5.0,
            seconds: 812.4,
            stalls: 31,
            stalled_seconds: 1.234,
            longest_ms: 249.6,
            processor_seconds: 2.0,
            steal_seconds: 3.5,
        };
        results.watched = Some(watched.clone());
        let text = section(&results);
        assert!(text.contains("stood still for 1.23 s of 812 s: in 31 stalls of up to 250 ms, 2.00 s of"), "{text}");
        let all: usize = results.all_cells().map(|cell| cell.bursts).sum::<usize>() + 1;
        assert!(
            text.contains(&format!("wakes 5 ms late or more. 1 of {all} bursts have")) && text.contains("(1 were)"),
            "{text}"
        );
        watched.how = How::Ordinary;
        results.watched = Some(watched);
        assert!(section(&results).contains("`SCHED_FIFO` is not permitted"));
    }

    #[test]
    fn why_the_service_varies_is_told_where_it_does() {
        let mut results = nothing(&[Table::K]);
        let told = |results: &Results| section(results).contains("varies by");
        assert!(!told(&results));
        results.jitter_ms = 1.0;
        assert!(told(&results) && section(&results).contains("varies by 1 ms either way"));
    }
}
