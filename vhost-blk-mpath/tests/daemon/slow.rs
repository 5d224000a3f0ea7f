//! `GET /v1/slow` over real sockets.

use std::time::Duration;

use mpath_api::types::{GuestOperation, PathSelector};

use crate::support::{Daemon, Disk, Target, inject};

const READS: u64 = 100;

#[test]
fn an_injected_delay_is_attributed_to_the_injection() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 60");
    let mut disk = Disk::connect(&daemon.socket());
    for n in 0..200 {
        assert_eq!(disk.read(4096 * n), 0);
    }
    let mut attributed = 0;
    for n in 0..READS {
        // Each read is slower than those before, so it is the first of the list.
        let delay = Duration::from_micros(20_000 + 500 * n);
        daemon.api.set_injection(&inject(PathSelector::All, delay)).unwrap();
        assert_eq!(disk.read(4096 * n), 0);
        let slow = daemon.api.slow(None).unwrap();
        let found = slow.iter().find(|of| of.sector == Some(8 * n) && of.total_us >= delay.as_micros() as u64);
        attributed += u64::from(found.is_some_and(|of| {
            let is_read = (of.operation, of.bytes, of.attempts) == (GuestOperation::Read, 4096, 1);
            is_read && of.longest == "injection" && of.stages.injection_us >= 20_000 && of.paths == [0]
        }));
    }
    assert!(attributed >= READS - 1, "{attributed} of {READS}");
}
