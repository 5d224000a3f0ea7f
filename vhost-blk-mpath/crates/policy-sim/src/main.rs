//! `policy-sim`: results of policies on modelled paths, compared with the bound, as tables in Markdown.

mod tables;

use clap::{Parser, ValueEnum};
use mpath_core::PolicyKind;

/// Runs path selection policies on modelled paths in virtual time.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Args {
    /// Which tables; all by default
    #[arg(value_enum)]
    tables: Vec<Table>,
    /// Policies to compare, by name; the more interesting ones by default
    #[arg(long, value_delimiter = ',')]
    policies: Vec<PolicyKind>,
    /// Seed of sizes, delays and policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Two links, uniform and mixed sizes: throughput in percent of the bound
    Links,
    /// One link 30 ms slower than the other: IOPS and tail compared with the fast link alone
    Slow,
    /// Paths that change: time until 90 % of the new bound
    Changes,
    /// Eight disks: IOPS and tail
    Disks,
    /// Delays that vary, reads with writes: throughput in percent of the bound
    Mixes,
}

fn main() {
    let args = Args::parse();
    let policies = match &args.policies[..] {
        [] => vec![
            PolicyKind::RoundRobin,
            PolicyKind::QueueDepth,
            PolicyKind::ServiceTime,
            PolicyKind::LatencyRr,
            PolicyKind::Bdp,
        ],
        named => named.to_vec(),
    };
    let tables = if args.tables.is_empty() { Table::value_variants() } else { &args.tables };
    for table in tables {
        match table {
            Table::Links => tables::links(&policies, args.seed),
            Table::Slow => tables::slow(&policies, args.seed),
            Table::Changes => tables::changes(&policies, args.seed),
            Table::Disks => tables::disks(&policies, args.seed),
            Table::Mixes => tables::mixes(&policies, args.seed),
        }
    }
}
