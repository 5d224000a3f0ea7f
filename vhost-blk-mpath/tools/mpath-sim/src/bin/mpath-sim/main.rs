//! `mpath-sim`: simulations of the stack in virtual time.

// Counts of things are below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bursts;
mod faults;
mod instructions;
mod policies;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs the whole stack in virtual time against random faults, and checks every block. The commands run the core alone.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    faults: faults::Args,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Path selection policies on modelled paths, compared with the bound, as tables in Markdown
    Policies(policies::Args),
    /// Schedulers against bursts and busy flows, as tables in Markdown, and their targets, judged
    Bursts(bursts::Args),
    /// Instructions of each part of a request, counted by valgrind and compared with the baseline
    Instructions(instructions::Args),
}

fn main() -> ExitCode {
    let args = CommandLine::parse();
    match args.scenario {
        None => faults::run(&args.faults),
        Some(Scenario::Policies(args)) => policies::run(&args),
        Some(Scenario::Bursts(args)) => bursts::run(&args),
        Some(Scenario::Instructions(args)) => instructions::run(&args),
    }
}
