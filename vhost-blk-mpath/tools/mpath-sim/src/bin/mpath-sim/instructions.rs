//! The number of instructions that the multipath core takes for a read, with each scheduler, as a table in Markdown.
//!
//! `valgrind` counts them, so the numbers are the same on every machine with the same build. The program runs itself under it with two
//! numbers of reads; the difference between the two runs is free of what the start costs.

use std::collections::VecDeque;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use mpath_core::{
    Action, DiskId, FlowId, Group, GroupConfig, Io, Op, Outcome, PathId, PolicyKind, SchedulerKind, SharedDisk, Tag,
    Window,
};
use mpath_sim::group;

const PATH: PathId = PathId(0);
const SLOTS: usize = 13;
/// Most virtqueues of a disk.
const FLOWS_OF_DISK: u16 = 256;
const FLOWS: [u16; 4] = [8, 64, 512, 16_384];
/// Requests that a flow keeps outstanding.
const DEPTH: u32 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the work itself, with this scheduler
    #[arg(long, hide = true)]
    scheduler: Option<SchedulerKind>,
    #[arg(long, hide = true, default_value_t = 8)]
    flows: u16,
    #[arg(long, hide = true, default_value_t = 0)]
    reads: u32,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if let Some(scheduler) = args.scheduler {
        Work::new(scheduler, args.flows).serve(args.reads);
        return ExitCode::SUCCESS;
    }
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mpath-sim instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<(), String> {
    println!("| flows | fifo | published | burst-credit | more than fifo |\n|--:|--:|--:|--:|--:|");
    for flows in FLOWS {
        let per_read = |kind| {
            let reads = [1, 2].map(|times| times * 4 * DEPTH * u32::from(flows).max(2000));
            let counted = reads.map(|reads| count(kind, flows, reads));
            let [less, more] = counted;
            Ok::<u64, String>((more? - less?) / u64::from(reads[1] - reads[0]))
        };
        let (fifo, published) = (per_read(SchedulerKind::Fifo)?, per_read(SchedulerKind::Published)?);
        let ours = per_read(SchedulerKind::BurstCredit)?;
        println!("| {flows} | {fifo} | {published} | {ours} | {} |", ours.cast_signed() - fifo.cast_signed());
    }
    Ok(())
}

/// Instructions that this program executes for this number of reads.
fn count(scheduler: SchedulerKind, flows: u16, reads: u32) -> Result<u64, String> {
    let itself = std::env::current_exe().map_err(|error| format!("cannot find itself: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(itself)
        .arg("instructions")
        .args([format!("--scheduler={scheduler}"), format!("--flows={flows}"), format!("--reads={reads}")])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; install the package valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let counted =
        text.lines().find_map(|line| line.split_once("refs:")).map(|(_, count)| count.trim().replace(',', ""));
    let counted = counted.and_then(|count| count.parse().ok()).filter(|_| output.status.success());
    counted.ok_or_else(|| format!("valgrind counted nothing ({}):\n{text}", output.status))
}

/// Flows that have requests waiting all the time; every fourth one waits until all it has asked for is over, and so is sparse.
struct Work {
    now: Instant,
    group: Group,
    flows: u16,
    in_flight: VecDeque<Tag>,
    /// Unfinished requests of each flow.
    open: Vec<u32>,
    served: u32,
}

impl Work {
    fn new(scheduler: SchedulerKind, flows: u16) -> Self {
        let now = Instant::now();
        let config = GroupConfig {
            policy: PolicyKind::Numa.into(),
            scheduler: scheduler.into(),
            window: Window { ios: SLOTS as u32, bytes: 1 << 40 },
            ..GroupConfig::default()
        };
        let disks: Vec<SharedDisk> = (0..flows.div_ceil(FLOWS_OF_DISK)).map(|_| SharedDisk::default()).collect();
        let group = group::with_paths(now, config, &disks, 1);
        let open = vec![0; flows.into()];
        let mut work = Self { now, group, flows, in_flight: VecDeque::new(), open, served: 0 };
        for tag in 0..u32::from(flows) * DEPTH {
            work.submit(tag);
        }
        work
    }

    /// The tags of a flow are its own.
    fn flow_of(&self, tag: u32) -> u16 {
        (tag % u32::from(self.flows)) as u16
    }

    fn submit(&mut self, tag: u32) {
        let flow = self.flow_of(tag);
        self.open[usize::from(flow)] += 1;
        let disk = DiskId(flow / FLOWS_OF_DISK);
        let io = Io { tag: Tag(tag), op: Op::Read, bytes: 4096, disk, flow: FlowId(flow), fua: false };
        self.group.submit(self.now, io);
    }

    fn serve(&mut self, reads: u32) {
        self.act();
        while self.served < reads {
            self.now += Duration::from_micros(10);
            let tag = self.in_flight.pop_front().expect("there is always work");
            self.group.complete(self.now, PATH, tag, Outcome::Success);
            self.act();
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Issue { tag, .. } => self.in_flight.push_back(tag),
                Action::Finish { tag, result } => {
                    assert_eq!(result, Ok(()), "nothing fails here");
                    self.finished(tag.0);
                }
                other => unreachable!("one path, never silent: {other:?}"),
            }
        }
    }

    fn finished(&mut self, tag: u32) {
        self.served += 1;
        let flow = self.flow_of(tag);
        let open = &mut self.open[usize::from(flow)];
        *open -= 1;
        if !flow.is_multiple_of(4) {
            self.submit(tag);
        } else if *open == 0 {
            (0..DEPTH).for_each(|at| self.submit(u32::from(flow) + at * u32::from(self.flows)));
        }
    }
}
