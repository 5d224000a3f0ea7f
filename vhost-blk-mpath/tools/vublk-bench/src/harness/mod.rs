//! What the benchmark programs share: options, rounds, results, and their section, picture and data in the documentation.
//!
//! A program declares a [`Publication`] and measures its cells. The harness interleaves the contenders over the rounds,
//! makes medians, stores them, judges the targets and writes the section.

mod chart;
mod machine;
mod process_time;
mod program;
mod publication;
mod results;
mod rounds;
mod section;
mod spread;
mod targets;

pub use chart::{Chart, Panel};
pub use machine::Machine;
pub use process_time::ProcessTime;
pub use program::{EXIT_STATUS, Failure, Writing, run_program};
pub use publication::Publication;
pub use results::{Cell, Results, Row, Sample};
pub use rounds::{Bench, PlannedRow, in_turn, measure, measure_options};
pub use section::{Column, Section};
pub use spread::{Spread, grouped, number};
pub use targets::{Case, Limit, Target};
