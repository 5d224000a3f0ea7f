//! How tests wait: for a condition, and not for a time. A busy machine makes such a test slow, and does not fail it. A
//! test listens at an address of its own, so the ports of other tests do not fail it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
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

/// A loopback address that nothing else in this process uses, so that a freed port stays free.
///
/// # Panics
///
/// Panics if the process has used up its addresses.
#[must_use]
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Twelve bits distinguish concurrent processes, and as many bits the addresses of each.
    let host = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(host < 0xfff, "out of addresses");
    let process = std::process::id() & 0xfff;
    (Ipv4Addr::from_bits(127 << 24 | process << 12 | host), 0).into()
}
