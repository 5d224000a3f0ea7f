//! I/O threads that poll before they sleep.

use std::io::Write as _;
use std::time::{Duration, Instant};
use std::{io, thread};

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
        if depth == 1 {
            tell_whether_it_polls(&daemon);
        }
        verification.finish();
    }
    let before = (daemon.processor_ticks(), polled_ms(&daemon));
    thread::sleep(Duration::from_secs(2));
    let ticks = daemon.processor_ticks() - before.0;
    assert!(ticks < 20, "{ticks} ticks of 10 ms in 2 s");
    assert!(polled_ms(&daemon) - before.1 < 100);
}

fn polled_ms(daemon: &Daemon) -> u64 {
    daemon.status().disks[0].io_threads.iter().map(|thread| thread.polled_ms).sum()
}

/// A thread tries polling at least once a second, unless it finds more runnable threads than this machine has processors.
/// Others may always be runnable, so no polling is no failure.
fn tell_whether_it_polls(daemon: &Daemon) {
    let until = Instant::now() + Duration::from_secs(5);
    while polled_ms(daemon) == 0 {
        if until < Instant::now() {
            // The test runner captures what `eprintln!` prints.
            let _ = writeln!(io::stderr(), "SKIPPED: polling itself: too many threads of this machine are runnable");
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}
