//! What the benchmark programs share: options, rounds, results, and their section, picture and data in the documentation.
//!
//! A program declares [`Publication`]s and measures cells. The harness interleaves the contenders over the rounds, makes
//! medians, stores them, judges the targets and writes the section.

mod chart;
mod external;
mod machine;
mod process_time;
mod program;
mod publication;
mod results;
mod rounds;
mod spread;
mod table;
mod targets;

pub use chart::{Chart, Panel};
pub use external::measure_rows;
pub use machine::Machine;
pub use process_time::ProcessTime;
pub use program::{EXIT_STATUS, Failure, Writing, parse_seconds, run_program};
pub use publication::{Part, Publication, publish};
pub use results::{Cell, Results, Row, Sample};
pub use rounds::{Bench, PlannedRow, checked, measure, measure_options};
pub use spread::{Spread, grouped, number};
pub use table::{Column, Layout, Show, Table};
pub use targets::{Case, Limit, Target};
