//! Monotonic times on the clock of tokio, which tests can pause.

use std::sync::LazyLock;

use monotonic::{Duration, Instant};
use tokio::time::Sleep;

/// The same time on both clocks. The second is read later, so no wait ends early.
static BOTH: LazyLock<(Instant, std::time::Instant)> = LazyLock::new(|| (Instant::now(), std::time::Instant::now()));

/// The time of tokio's clock.
pub(crate) fn now() -> Instant {
    let ((ours, of_tokio), now) = (*BOTH, tokio::time::Instant::now().into_std());
    let since = Duration::from(now.saturating_duration_since(of_tokio));
    // The clock of a paused test may be behind.
    ours + since - Duration::from(of_tokio.saturating_duration_since(now))
}

/// Waits until `at`.
pub(crate) fn sleep_until(at: Instant) -> Sleep {
    let (ours, of_tokio) = *BOTH;
    tokio::time::sleep_until((of_tokio + std::time::Duration::from(at - ours)).into())
}
