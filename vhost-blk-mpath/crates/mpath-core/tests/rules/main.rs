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

use monotonic::{Duration, Instant};
use mpath_core::{Group, Outcome, RetryCause, TurnWatch, Waking};

/// A status that asks for a retry, of a command that was not executed.
fn retry(after: Duration) -> Outcome {
    Outcome::Retry { after, cause: RetryCause::NotExecuted }
}

/// Begins a turn of a driver this much later, which wanted to be woken at `due`.
fn wake_after(group: &mut Group, now: &mut Instant, due: Option<Instant>, time: Duration) {
    let idle_since = *now;
    *now += time;
    let waking = Waking { idle_since, due, processor_wait: Duration::ZERO, processor_time: Duration::ZERO };
    if let Some(standstill) = TurnWatch::new(idle_since).begin_turn(*now, waking) {
        group.stood_still(&standstill);
    }
    group.publish_oldest_if_due(*now);
}
