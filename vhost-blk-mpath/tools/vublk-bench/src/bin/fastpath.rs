//! `fastpath`: measures the cost of the daemon and of TLS, compared with a back-end that does nothing.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Bench, Chart, Column, EXIT_STATUS, Failure, Layout, Machine, Panel, PlannedRow, ProcessTime, Publication, Results,
    Sample, Show, Table, Writing, measure, measure_options, publish, run_program,
};
use vublk_bench::options::{Mode, Options};
use vublk_bench::stack::{MpathStack, Programs, Stack};
use vublk_bench::units::parse_duration;

/// Measures the daemon over its target, in clear text and over TLS, and qemu-storage-daemon's null disk, and rewrites the published results:
/// DOCS/results/fastpath.json, DOCS/results/fastpath.svg and the table in DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// qemu-storage-daemon
    #[arg(long, value_name = "PATH", default_value = "qemu-storage-daemon")]
    qsd: PathBuf,

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
    tables: |results| {
        let layout = Layout::EachRow("back-end", |row| format!("{}:", row.name));
        vec![Table::new("", results.rows.clone(), layout, &COLUMNS)]
    },
    targets: |_| Vec::new(),
    chart: |results| {
        let panel = |(what, figure)| {
            results.rows.iter().map(move |row| Panel::new(format!("{}: {what}", row.name), row, figure))
        };
        let panels = [("IOPS", "iops"), ("daemon CPU µs", "cpu_daemon_us")].into_iter().flat_map(panel).collect();
        Chart { columns: 5, panels, limit: "" }
    },
    picture: "IOPS and CPU time per I/O",
};

const COLUMNS: [Column; 5] = [
    ("IOPS", Show::Spread("iops", 0)),
    ("MiB/s", Show::Median("mib_s", 0)),
    ("p50 µs", Show::Median("p50_us", 1)),
    ("p99 µs", Show::Median("p99_us", 1)),
    ("CPU µs", Show::Cpu(2)),
];

#[derive(Debug, Clone, Copy)]
struct Workload {
    name: &'static str,
    mode: Mode,
    bs: u64,
    iodepth: u16,
    warmup: Duration,
}

const WARMUP: Duration = Duration::from_millis(500);

const WORKLOADS: [Workload; 5] = [
    Workload { name: "4k randread QD1", mode: Mode::Randread, bs: 4096, iodepth: 1, warmup: WARMUP },
    Workload { name: "4k randread QD32", mode: Mode::Randread, bs: 4096, iodepth: 32, warmup: WARMUP },
    Workload { name: "128k read QD8", mode: Mode::Read, bs: 131_072, iodepth: 8, warmup: WARMUP },
    Workload { name: "4k randwrite QD32", mode: Mode::Randwrite, bs: 4096, iodepth: 32, warmup: WARMUP },
    Workload { name: "128k write QD8", mode: Mode::Write, bs: 131_072, iodepth: 8, warmup: WARMUP },
];

/// Memory that is written for the first time costs the target a page fault. So each disk is written once before anything is measured.
const FILL: Workload =
    Workload { name: "first write", mode: Mode::Write, bs: 131_072, iodepth: 8, warmup: Duration::ZERO };
/// Long enough to write the whole disk at 200 MiB/s.
const FILL_TIME: Duration = Duration::from_secs(5);

const MPATH: &str = "vhost-blk-mpath";
const AES_128: &str = "vhost-blk-mpath, TLS_AES_128_GCM_SHA256";
const AES_256: &str = "vhost-blk-mpath, TLS_AES_256_GCM_SHA384";
/// Keys in the interchange format, for the suites above. They protect nothing: they are published here.
const KEY_128: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const KEY_256: &str = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const NULL: &str = "qemu-storage-daemon null";

struct Stacks<'a> {
    by_name: Vec<(&'static str, Stack)>,
    time: Duration,
    interrupted: &'a AtomicBool,
}

impl Stacks<'_> {
    fn run(&self, workload: &Workload, back_end: &str, time: Duration) -> Result<Sample, Failure> {
        let (_, stack) = self.by_name.iter().find(|(name, _)| *name == back_end).expect("every back-end has a stack");
        let Workload { name, mode, bs, iodepth, warmup } = *workload;
        let options = Options { bs, iodepth, queues: 1, time, warmup, ..Options::with_defaults(&stack.socket, mode) };
        let before = ProcessTime::now(stack)?;
        let what = format!("{name} on {back_end}");
        let report = measure_options(&what, stack, &options, self.interrupted, Duration::from_secs(1), |_| ())?;
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
        before.add_since(&mut sample, stack, report.completed)?;
        Ok(sample)
    }
}

impl Bench<Workload, &'static str> for Stacks<'_> {
    fn cell(&mut self, row: &PlannedRow<Workload, &'static str>, back_end: &&'static str) -> Result<Sample, Failure> {
        self.run(&row.spec, back_end, self.time)
    }
}

fn main() -> ExitCode {
    run_program("fastpath", |line: &CommandLine, interrupted| {
        let part = Box::new(|machine| fastpath(line, machine, interrupted));
        publish(vec![(PUBLICATION, part)], &line.writing, Some(&line.qsd))
    })
}

fn fastpath(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let policy = ["--policy", "round-robin"];
    let over_tls = |key| MpathStack::start_with_tls(&line.programs, 2, &policy, key);
    let stacks = vec![
        (MPATH, MpathStack::start(&line.programs, 2, &policy)?.stack),
        (AES_128, over_tls(KEY_128)?.stack),
        (AES_256, over_tls(KEY_256)?.stack),
        (NULL, Stack::null(&line.qsd)?),
    ];
    let mut stacks = Stacks { by_name: stacks, time: line.time, interrupted };
    let settings = [
        ("rounds", line.writing.rounds().into()),
        ("seconds", line.time.as_secs_f64().into()),
        ("warmup_seconds", WARMUP.as_secs_f64().into()),
    ];
    let mut results = Results::new(machine, &settings);
    results.commands = stacks.by_name.iter().flat_map(|(_, stack)| stack.command_lines()).collect();
    let back_ends = [MPATH, AES_128, AES_256, NULL];
    for back_end in back_ends {
        stacks.run(&FILL, back_end, FILL_TIME)?;
    }
    let mut rows =
        WORKLOADS.map(|workload| PlannedRow::new("", workload.name, workload, back_ends.into(), line.writing.rounds()));
    measure(&mut rows, &mut stacks, &["iops", "cpu_daemon_us"])?;
    results.rows = rows.into_iter().map(|planned| planned.row).collect();
    Ok(results)
}
