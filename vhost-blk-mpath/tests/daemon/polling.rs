//! I/O threads that poll before they sleep.

use std::thread;
use std::time::Duration;

use crate::support::{Daemon, Verification, VerificationSetup, target_of};

/// At depth 1 a thread is idle between any two events. With many requests it is hardly ever idle.
#[test]
fn a_polling_thread_serves_every_depth_and_sleeps_without_load() {
    let target = target_of(1, 2, 8 << 20);
    let daemon = Daemon::start(&target.addrs(), "--poll-us 1000 --policy round-robin");
    for (queues, depth) in [(1, 1), (4, 16)] {
        let setup = VerificationSetup { queues, depth, ..VerificationSetup::default() };
        let verification = Verification::start(&daemon.socket(), setup);
        verification.goes_on(2000);
        verification.finish();
    }
    let before = daemon.processor_ticks();
    thread::sleep(Duration::from_secs(2));
    let ticks = daemon.processor_ticks() - before;
    assert!(ticks < 20, "{ticks} ticks of 10 ms in 2 s");
}
