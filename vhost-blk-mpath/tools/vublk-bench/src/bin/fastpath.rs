//! `fastpath`: what the daemon costs, compared with a back-end that does nothing.

use clap::Parser;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Bench, Cell, Chart, Column, EXIT_STATUS, Failure, Machine, Panel, PlannedRow, ProcessTime, Publication, Results,
    Row, Sample, Section, Target, Writing, measure, measure_options, run_program,
};
use vublk_bench::options::{Mode, Options};
use vublk_bench::process::Managed;
use vublk_bench::stack::{MpathStack, NullStack, Programs, command_lines, directory};
use vublk_bench::units::parse_duration;

/// Measures the daemon over its target and qemu-storage-daemon's null disk, and rewrites the published results:
/// DOCS/results/fastpath.json, DOCS/results/fastpath.svg and the table in DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// qemu-storage-daemon
    #[arg(long, value_name = "PATH", default_value = "qemu-storage-daemon")]
    qsd: PathBuf,

    /// Rounds; their median is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Length of each measurement
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,

    #[command(flatten)]
    writing: Writing,
}

const PUBLICATION: Publication = Publication {
    name: "fastpath",
    command: "make bench-fastpath",
    document: "benchmarks.md",
    targets: |_| Vec::new(),
    section,
    chart,
};

const PATHS: u16 = 2;
const WARMUP: Duration = Duration::from_millis(500);

/// Memory that is written for the first time costs the target a page fault. So each disk is written once before anything is measured.
const FILL: Workload = Workload { name: "first write", mode: Mode::Write, bs: 131_072, iodepth: 8 };
/// Long enough to write the whole disk at 200 MiB/s.
const FILL_TIME: Duration = Duration::from_secs(5);

const WORKLOADS: [Workload; 4] = [
    Workload { name: "4k randread QD1", mode: Mode::Randread, bs: 4096, iodepth: 1 },
    Workload { name: "4k randread QD32", mode: Mode::Randread, bs: 4096, iodepth: 32 },
    Workload { name: "128k read QD8", mode: Mode::Read, bs: 131_072, iodepth: 8 },
    Workload { name: "4k randwrite QD32", mode: Mode::Randwrite, bs: 4096, iodepth: 32 },
];

#[derive(Debug, Clone, Copy)]
struct Workload {
    name: &'static str,
    mode: Mode,
    bs: u64,
    iodepth: u16,
}

#[derive(Debug, Clone, Copy)]
enum BackEnd {
    Mpath,
    Null,
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Mpath => "vhost-blk-mpath",
            Self::Null => "qemu-storage-daemon null",
        })
    }
}

struct Stacks<'a> {
    mpath: MpathStack,
    null: NullStack,
    time: Duration,
    interrupted: &'a AtomicBool,
}

impl Stacks<'_> {
    fn back_end(&self, back_end: BackEnd) -> (&Path, Vec<(&'static str, &Managed)>) {
        match back_end {
            BackEnd::Mpath => (&self.mpath.socket, self.mpath.processes().into()),
            BackEnd::Null => (&self.null.socket, vec![("daemon", &self.null.daemon)]),
        }
    }

    fn run(&self, workload: &Workload, back_end: BackEnd, time: Duration, warmup: Duration) -> Result<Sample, Failure> {
        let (socket, processes) = self.back_end(back_end);
        let options = Options {
            bs: workload.bs,
            iodepth: workload.iodepth,
            queues: 1,
            time,
            warmup,
            ..Options::with_defaults(socket, workload.mode)
        };
        let before = ProcessTime::now(&processes)?;
        let what = format!("{} on {back_end}", workload.name);
        let log = || {
            let logs: Vec<String> =
                processes.iter().map(|(role, process)| format!("[{role}] {}", process.log_tail())).collect();
            logs.join("\n")
        };
        let report = measure_options(&what, &options, self.interrupted, Duration::from_secs(1), log, |_| ())?;
        let after = ProcessTime::now(&processes)?;
        let (read, write) = (&report.total.read, &report.total.write);
        let class = if read.ios >= write.ios { read } else { write };
        let latency = class.latency_us.as_ref();
        let latency = latency.ok_or_else(|| Failure::Failed(format!("{what}: no request was completed")))?;
        let mut sample = Sample::new(&[
            ("iops", class.iops),
            ("mib_s", class.mib_per_second),
            ("p50_us", latency.p50),
            ("p99_us", latency.p99),
        ]);
        ProcessTime::add_to(&mut sample, &before, &after, report.completed);
        Ok(sample)
    }
}

impl Bench<Workload, BackEnd> for Stacks<'_> {
    fn cell(&mut self, row: &PlannedRow<Workload, BackEnd>, back_end: &BackEnd) -> Result<Sample, Failure> {
        self.run(&row.spec, *back_end, self.time, WARMUP)
    }
}

fn main() -> ExitCode {
    run_program("fastpath", fastpath)
}

fn fastpath(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    if line.writing.render {
        return PUBLICATION.render(&line.writing).map(|()| 0);
    }
    PUBLICATION.check(&line.writing.docs)?;
    let directory = directory("fastpath-")?;
    let machine = Machine::look_and_warn(Some(&line.qsd));
    let mpath = MpathStack::start(&line.programs, directory.path(), PATHS, &["--policy", "round-robin"])?;
    let null = NullStack::start(&line.qsd, directory.path(), 1)?;
    let mut stacks = Stacks { mpath, null, time: line.time, interrupted };
    let settings = [("rounds", line.rounds.into()), ("seconds", line.time.as_secs_f64().into())];
    let mut results = Results::new(machine, &settings);
    let back_ends = [BackEnd::Mpath, BackEnd::Null];
    for back_end in back_ends {
        results.commands.extend(command_lines(&stacks.back_end(back_end).1, directory.path()));
        stacks.run(&FILL, back_end, FILL_TIME, Duration::ZERO)?;
    }
    let row = |workload: Workload| PlannedRow::new("", workload.name, workload, back_ends.into(), line.rounds);
    let mut rows = WORKLOADS.map(row);
    measure(&mut rows, &mut stacks, &["iops", "cpu_daemon_us"])?;
    results.rows = rows.into_iter().map(|planned| planned.row).collect();
    PUBLICATION.publish(&line.writing, &results, &results.samples())?;
    Ok(0)
}

fn section(results: &Results, _: &[Target], section: &mut Section) {
    let (rounds, seconds, warmup) = (results.setting("rounds"), results.setting("seconds"), WARMUP.as_secs_f64());
    section.paragraph(&format!(
        "Median (least–most) of {rounds} rounds of {seconds} s, after {warmup} s of warm-up. The back-ends take turns. One queue \
         sleeps on the eventfd of its used ring. CPU µs: user and system time of the back-end's processes for each I/O, \
         the daemon's and the target's. The front-end runs on the same cores."
    ));
    let cpu = |_: &Row, cell: &Cell| {
        let times = ["cpu_daemon_us", "cpu_target_us"].into_iter().filter_map(|role| cell.median(role));
        times.map(|time| format!("{time:.2}")).collect::<Vec<_>>().join(" + ")
    };
    let columns = [
        Column::spread("IOPS", "iops", 0),
        Column::median("MiB/s", "mib_s", 0),
        Column::median("p50 µs", "p50_us", 1),
        Column::median("p99 µs", "p99_us", 1),
        Column::new("CPU µs", cpu),
    ];
    section.tables("back-end", results.rows.iter(), |row| format!("{}:", row.name), &columns);
    section.machine(results, "", "IOPS and CPU time per I/O", PUBLICATION.name);
}

fn chart(results: &Results) -> Chart {
    let contenders: Vec<String> = results.contenders().into_iter().map(str::to_owned).collect();
    let figures = [("IOPS", "iops"), ("daemon CPU µs", "cpu_daemon_us")];
    let panel =
        |what: &str, figure: &str, row: &Row| Panel::new(&format!("{}: {what}", row.name), row, figure, &contenders);
    let panels = figures.iter().flat_map(|(what, figure)| results.rows.iter().map(move |row| (*what, *figure, row)));
    let panels = panels.map(|(what, figure, row)| panel(what, figure, row)).collect();
    Chart { panels, contenders: contenders.clone(), columns: 4, limit: String::new() }
}
