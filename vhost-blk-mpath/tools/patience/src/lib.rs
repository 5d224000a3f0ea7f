//! How tests wait: for a condition, and not for a time. A busy machine makes such a test slow, and does not fail it.

use std::thread;
use std::time::{Duration, Instant};

/// The longest wait of any test. It costs time only in a test that fails, so it outlasts every delay of a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// The shortest and the longest pause between two looks at a condition.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// Waits until `condition` is true. Returns how long that took.
///
/// # Panics
///
/// If the condition is not true within [`PATIENCE`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        let waited = start.elapsed();
        assert!(waited < PATIENCE, "never happened: {what}");
        // A look may cost as much as the machine has for the test, so looks become rarer.
        thread::sleep((waited / 16).clamp(PAUSES.0, PAUSES.1));
    }
    start.elapsed()
}
