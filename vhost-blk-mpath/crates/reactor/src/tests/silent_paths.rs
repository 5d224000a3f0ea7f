//! An I/O thread and controllers that fall silent, mostly in the middle of a payload, while the kernel has guest memory
//! for it.

use monotonic::{Duration, Instant};
use mpath_core::{AnaState, Association, Epoch, GroupConfig, PathId};

use crate::IoThreadHandle;
use crate::testing::{Controller, FLOW, Guest, completes, eventually, start_queue, stats, stop_queue, two_paths};

/// Longer than a busy machine keeps the controllers from answering.
const SUSPECT: Duration = Duration::from_millis(700);
const BYTES: usize = 512 << 10;

fn start() -> (IoThreadHandle, [Controller; 2]) {
    two_paths(&GroupConfig { suspect_timeout: SUSPECT, ..GroupConfig::default() })
}

/// Sends the first `bytes` of the answer to a read, then nothing until the read has succeeded on the other path.
fn fall_silent_after(bytes: usize) {
    let (thread, [mut silent, mut good]) = start();
    let mut guest = Guest::new();
    start_queue(&thread, FLOW, guest.queue()).unwrap();
    guest.read(0, BYTES);
    guest.kick();
    let cid = silent.command();
    let answer = Controller::answer(cid, 0xa1, BYTES);
    let (first, rest) = answer.split_at(bytes);
    silent.send(first);

    // The read goes to the other path, although the kernel had guest memory for the first one.
    let other = good.command();
    good.send(&Controller::answer(other, 0xb2, BYTES));
    completes(&mut guest);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xb2), "after {bytes}");
    let seen = stats(&thread).paths.swap_remove(0);
    // The path is suspect, or on a busy machine the read is overdue before.
    assert!(seen.recalled == 1 && seen.classes[0].in_flight == 0);

    // The late data of the silent path reach no memory. They only show that the path is alive.
    silent.send(rest);
    eventually("the path is trusted again", || !stats(&thread).paths[0].suspect);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xb2), "after {bytes}");
    guest.read(0, BYTES);
    guest.kick();
    let again = silent.command();
    assert_ne!(again, cid);
    silent.send(&Controller::answer(again, 0xc3, BYTES));
    completes(&mut guest);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xc3), "after {bytes}");
    thread.begin_shutdown();
    thread.join();
}

#[test]
fn a_read_leaves_a_silent_path_at_any_point_of_its_answer() {
    // Before the data, in a header, in buffered data, in data for a direct receive, before the last data byte, and
    // before the completion.
    std::thread::scope(|scope| {
        for bytes in [0, 5, 24, 1000, 100_000, 300_000, 24 + BYTES - 1, 24 + BYTES, 24 + BYTES + 23] {
            scope.spawn(move || fall_silent_after(bytes));
        }
    });
}

#[test]
fn shutdown_does_not_wait_for_silent_paths() {
    let (thread, [mut silent, mut other]) = start();
    let mut guest = Guest::new();
    start_queue(&thread, FLOW, guest.queue()).unwrap();
    guest.read(0, BYTES);
    guest.kick();
    let cid = silent.command();
    silent.send(&Controller::answer(cid, 0xa1, BYTES)[..100_000]);
    let cid = other.command();
    other.send(&Controller::answer(cid, 0xb2, BYTES)[..200_000]);
    eventually("both are silent", || stats(&thread).paths[0].suspect);
    let start = Instant::now();
    thread.begin_shutdown();
    if let Some(queue) = stop_queue(&thread) {
        assert_eq!(queue.outstanding(), 1, "given up");
    }
    thread.join();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert!(guest.results().is_empty());
}

#[test]
fn a_lost_connection_returns_a_read_that_is_being_recalled() {
    let (thread, [mut silent, mut good]) = start();
    let mut guest = Guest::new();
    start_queue(&thread, FLOW, guest.queue()).unwrap();
    for round in 0..4 {
        if round > 0 {
            let (controller, link) = Controller::connect();
            let epoch = Epoch(1 + round);
            let association =
                Association { epoch, ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth: 15 };
            thread.path_up(PathId(0), association, link);
            silent = controller;
        }
        guest.read(0, BYTES);
        guest.kick();
        let cid = silent.command();
        silent.send(&Controller::answer(cid, 0xa1, BYTES)[..100_000]);
        // About when the read is recalled: before, after, or at the same time.
        let pause = SUSPECT - Duration::from_millis(1) + Duration::from_micros(500 * round);
        std::thread::sleep(pause.into());
        drop(silent.stream.shutdown(std::net::Shutdown::Both));
        let cid = good.command();
        good.send(&Controller::answer(cid, round as u8, BYTES));
        completes(&mut guest);
        assert!(guest.memory(BYTES).iter().all(|&byte| byte == round as u8));
        eventually("the path is lost", || stats(&thread).paths[0].ana.is_none());
    }
    thread.begin_shutdown();
    thread.join();
}
