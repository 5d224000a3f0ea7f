//! Latencies of the last second, of the last minute, and since the start.

use std::time::Duration;

use mpath_api::types::{Latency, PathSelector};

use crate::support::{Daemon, Disk, Target, eventually, inject};

const INJECTED_MS: u64 = 30;

/// Whether the median is at least the injected latency, by path.
fn are_slow(daemon: &Daemon, latency: impl Fn(&mpath_api::types::OpStats) -> Option<Latency>) -> [bool; 2] {
    let paths = daemon.paths();
    [0, 1].map(|path: usize| latency(&paths[path].read).is_some_and(|of| of.p50_us >= INJECTED_MS * 1000))
}

#[test]
fn an_injection_shows_in_the_last_second_at_once_and_is_gone_when_it_is_cleared() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin --keep-alive-tmo 60");
    let mut disk = Disk::connect(&daemon.socket());
    for path in &daemon.paths() {
        assert_eq!((path.read.latency_1s, path.read.latency_60s, path.read.latency), (None, None, None));
    }
    let mut read = || assert_eq!(disk.read(0), 0);
    (0..1000).for_each(|_| read());
    assert_eq!(are_slow(&daemon, |read| read.latency_1s), [false; 2]);

    daemon.api.set_injection(&inject(PathSelector::All, Duration::from_millis(INJECTED_MS))).unwrap();
    // After a second, 33 reads, the window has slow reads alone.
    let becomes_slow = (0..300).any(|_| {
        read();
        are_slow(&daemon, |read| read.latency_1s) == [true; 2]
    });
    assert!(becomes_slow, "{:?}", daemon.paths());
    for (what, slow) in
        [("minute", are_slow(&daemon, |read| read.latency_60s)), ("start", are_slow(&daemon, |read| read.latency))]
    {
        assert_eq!(slow, [false; 2], "most reads since the {what} were fast: {:?}", daemon.paths());
    }

    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    eventually("the last second is fast", || {
        read();
        are_slow(&daemon, |read| read.latency_1s) == [false; 2]
    });
    // Without requests there is nothing to show.
    eventually("the last second is empty", || daemon.paths().iter().all(|path| path.read.latency_1s.is_none()));
    assert!(daemon.paths().iter().all(|path| path.read.latency_60s.is_some()));
}
