//! Tests of the core as its users see it: one small test per rule, random events, and policies in virtual time.

mod drained_paths;
mod explanation;
mod group;
mod hedging;
mod injection;
mod random_events;
mod removal;
mod slow;
mod suspicion;
mod virtual_time;

use monotonic::Duration;
use mpath_core::{Outcome, RetryCause};

/// A status that asks for a retry, of a command that was not executed.
fn retry(after: Duration) -> Outcome {
    Outcome::Retry { after, cause: RetryCause::NotExecuted }
}
