//! Measures schedulers against bursts and busy flows, and judges their targets. Each table is printed when it is measured.

use std::process::ExitCode;

use monotonic::Duration;
use mpath_core::{SchedulerKind, SchedulerSpec};
use mpath_sim::bursts::scenario::{
    BYTES, SERVICE, SLOTS, against, attackers, bulk, by_size, in_front, interactive, measure, published_by_k,
    published_by_n, schedulers, uniform,
};
use mpath_sim::bursts::targets::{self, ATTACKS, BUSY, COUNTS, MANY, SIZES, attacked, jains, sustained};
use mpath_sim::bursts::{Load, Measured, Setup};

use crate::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seed of pauses and phases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Judge only
    #[arg(long)]
    targets: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    if !args.targets {
        tables(args.seed);
    }
    println!("\nTargets, seed {}\n\n| target | worst measured | |\n|---|---|---|", args.seed);
    let mut all_met = true;
    for target in targets::all(args.seed) {
        let verdict = if target.met { "MET" } else { "MISSED" };
        table::row(target.what, [target.measured, verdict.to_owned()]);
        all_met &= target.met;
    }
    if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tables(seed: u64) {
    println!("{SLOTS} slots, {} ms a request, seed {seed}; times are p50 / p99 of a burst in ms.", SERVICE.as_millis());
    println!(
        "Floor: the flow alone. Limit: its p50 and one service, which nothing that does not preempt can promise to beat."
    );
    by_k(seed);
    by_n(seed);
    under_attack(seed);
    victims(seed);
    at_once(seed);
    shares(seed);
    sizes(seed);
    fairness(seed);
    wide_window(seed);
}

fn head(title: &str, first: &[&str]) {
    table::head(title, first, schedulers());
}

fn row(first: &str, cell: impl Fn(SchedulerSpec) -> String) {
    table::row(first, schedulers().map(cell));
}

fn quantiles(measured: &Measured) -> String {
    format!("{:.1} / {:.1}", measured.burst_ms([0], 0.5), measured.burst_ms([0], 0.99))
}

/// The floor and the limit of bursts of `count` requests, as cells of a table.
fn alone(count: u32, seed: u64) -> String {
    let floor = measure(&uniform(SchedulerKind::Fifo.into(), vec![interactive(count)], seed));
    floor_and_limit([0.5, 0.99].map(|quantile| floor.burst_ms([0], quantile)))
}

fn floor_and_limit([p50, p99]: [f64; 2]) -> String {
    format!("{p50:.1} / {p99:.1} | {:.1}", p50 + SERVICE.as_secs_f64() * 1e3)
}

/// The published p50 without and with credits, as a cell of a table.
fn words(published: Option<[f64; 2]>) -> String {
    published.map_or_else(String::new, |[without, with]| format!("{without} / {with}"))
}

fn by_k(seed: u64) {
    head("One flow of 32 requests against K busy ones", &["K", "published, p50", "floor", "limit"]);
    for busy in BUSY {
        let cell = |scheduler| quantiles(&against(scheduler, 32, busy, seed));
        row(&format!("{busy} | {} | {}", words(published_by_k(busy)), alone(32, seed)), cell);
    }
}

fn by_n(seed: u64) {
    head("One flow of N requests against 16 busy ones", &["N", "published, p50", "floor", "limit"]);
    for count in COUNTS {
        let cell = |scheduler| quantiles(&against(scheduler, count, 16, seed));
        row(&format!("{count} | {} | {}", words(published_by_n(count)), alone(count, seed)), cell);
    }
}

fn under_attack(seed: u64) {
    let title = "Attackers that send a burst, drain and repeat, against 16 busy flows: % of the service of all attackers \
                 together / of the one that has most; fair is 1 / (16 + attackers)";
    head(title, &["attackers", "burst", "fair, each"]);
    for flows in 1..=4 {
        for count in ATTACKS {
            let cell = |scheduler| {
                let with = in_front(scheduler, &attackers(flows, count), 16, seed);
                let most = (0..flows).map(|one| with.share(|flow| flow == one)).fold(0.0, f64::max);
                format!("{:.1} / {:.1}", 100.0 * with.share(|flow| flow < flows), 100.0 * most)
            };
            row(&format!("{flows} | {count} | {:.1}", 100.0 / (16 + flows) as f64), cell);
        }
    }
}

fn victims(seed: u64) {
    let title = "A flow of N requests with this pause, together with attackers and 16 busy flows. The first two ask for more than their share";
    head(title, &["N", "pause, ms", "attackers", "floor"]);
    for (count, pause_ms) in [(8, 50), (32, 50), (1, 50), (8, 250), (48, 1500)] {
        let victim = Load::Burst { count, bytes: BYTES, pause: Duration::from_millis(pause_ms) };
        let floor = quantiles(&measure(&uniform(SchedulerKind::Fifo.into(), vec![victim], seed)));
        for (others, attack) in [(4, 64), (4, 128), (16, 64)] {
            let cell = |scheduler| quantiles(&attacked(scheduler, victim, others, attack, seed));
            row(&format!("{count} | {pause_ms} | {others} × {attack} | {floor}"), cell);
        }
    }
}

fn at_once(seed: u64) {
    head("m flows of 32 requests at once against 16 busy ones: mean / p99 of a burst in ms", &["m", "alone"]);
    for flows in MANY {
        let front = vec![interactive(32); flows];
        let cell =
            |with: &Measured| format!("{:.1} / {:.1}", with.mean_burst_ms(0..flows), with.burst_ms(0..flows, 0.99));
        let alone = cell(&measure(&uniform(SchedulerKind::Fifo.into(), front.clone(), seed)));
        row(&format!("{flows} | {alone}"), |scheduler| cell(&in_front(scheduler, &front, 16, seed)));
    }
}

fn shares(seed: u64) {
    let title = "What 16 busy flows keep under sustained bursts: % of the service / % of their worst second / longest gap in ms";
    head(title, &["bursts"]);
    for (name, front) in sustained() {
        let cell = |scheduler| {
            let with = in_front(scheduler, &front, 16, seed);
            let busy = |flow: usize| flow >= front.len();
            let (share, least) = (100.0 * with.share(busy), 100.0 * with.least_share(busy));
            format!("{share:.1} / {:.1} / {:.0}", f64::max(least, 0.0), with.longest_gap_ms(busy))
        };
        row(&name, cell);
    }
}

fn sizes(seed: u64) {
    let title = "Mixed sizes, service by size (64 KiB 10 ms, 4 KiB 2.5 ms, 256 KiB 34 ms): one flow of N requests of 4 KiB against 16 \
                 busy ones of 256 KiB";
    head(title, &["N", "floor", "limit"]);
    let busy = vec![Load::Bulk { depth: 32, bytes: 256 << 10 }; 16];
    for count in COUNTS {
        let alone = measure(&by_size(SchedulerKind::Fifo.into(), vec![interactive(count)], seed));
        let limit = alone.burst_ms([0], 0.5) + 34.0;
        let cell = |scheduler| {
            quantiles(&measure(&by_size(scheduler, [vec![interactive(count)], busy.clone()].concat(), seed)))
        };
        row(&format!("{count} | {} | {limit:.1}", quantiles(&alone)), cell);
    }
}

fn fairness(seed: u64) {
    head("Jain's index of the service of 16 busy flows", &["flows"]);
    row("all of 4 KiB", |scheduler| format!("{:.4}", jains(scheduler, seed).0));
    let sizes = SIZES.map(|bytes| (bytes >> 10).to_string()).join(", ");
    row(&format!("4 each of {sizes} KiB"), |scheduler| format!("{:.4}", jains(scheduler, seed).1));
}

fn wide_window(seed: u64) {
    let title = "The same with a window wider than the service: what was sent early waits below, where no scheduler reaches it. One flow \
                 of 32 against 16 busy ones";
    head(title, &["window", "floor", "limit"]);
    for window in [SLOTS as u32, 2 * SLOTS as u32, 64, 128] {
        let cell = |scheduler| {
            let flows = [vec![interactive(32)], bulk(16)].concat();
            quantiles(&measure(&Setup { window, ..uniform(scheduler, flows, seed) }))
        };
        row(&format!("{window} | {}", alone(32, seed)), cell);
    }
}
