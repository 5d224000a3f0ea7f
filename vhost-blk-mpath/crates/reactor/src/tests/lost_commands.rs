//! An I/O thread and a controller that loses single commands and answers all others. When it is noticed is tested in virtual time
//! (`mpath-core/tests/rules/suspicion/lost_commands.rs`).

use std::io::Read;

use monotonic::{Duration, Instant};
use mpath_core::GroupConfig;
use nvme_tcp::wire::Status;

use crate::IoThreadHandle;
use crate::testing::{Controller, FLOW, Guest, TIMEOUT, eventually, start_queue, stats, two_paths};

/// Longer than a busy machine keeps the controller from answering.
const SUSPECT: Duration = Duration::from_secs(1);
const IO_TIMEOUT: Duration = Duration::from_secs(4);

fn start(guest: &mut Guest) -> (IoThreadHandle, [Controller; 2]) {
    let (thread, controllers) =
        two_paths(&GroupConfig { suspect_timeout: SUSPECT, io_timeout: IO_TIMEOUT, ..GroupConfig::default() });
    start_queue(&thread, FLOW, guest.queue()).unwrap();
    (thread, controllers)
}

/// Submits and answers requests without data until `ends`, so that the path is never silent.
fn answer_others(guest: &mut Guest, controller: &mut Controller, ends: impl Fn() -> bool) {
    let start = Instant::now();
    while !ends() {
        assert!(start.elapsed() < TIMEOUT.into(), "no end");
        guest.write_zeroes(8192, 4096, false);
        guest.kick();
        let cid = controller.command();
        controller.send(&Controller::end(cid, Status::SUCCESS));
        eventually("the other request completes", || !guest.results().is_empty());
        std::thread::sleep(Duration::from_millis(5).into());
    }
}

#[test]
fn a_lost_read_is_read_elsewhere_and_ends_its_association_in_the_end() {
    let mut guest = Guest::new();
    let (thread, [mut losing, mut good]) = start(&mut guest);
    let issued = Instant::now();
    guest.read(0, 4096);
    guest.kick();
    losing.command();
    answer_others(&mut guest, &mut losing, || stats(&thread).paths[0].recalled == 1);
    assert!(issued.elapsed() >= SUSPECT);
    let seen = stats(&thread).paths.swap_remove(0);
    assert!(!seen.suspect && seen.suspicions == 0 && seen.ana.is_some(), "it answers all others");
    let cid = good.command();
    good.send(&Controller::answer(cid, 0xb2, 4096));
    eventually("the read completes", || !guest.results().is_empty());
    assert!(guest.memory(4096).iter().all(|&byte| byte == 0xb2));

    // The command is still unanswered, and its age counts on.
    let mut left = Vec::new();
    // The connection ends with FIN or RST.
    drop(losing.stream.read_to_end(&mut left));
    assert!(issued.elapsed() >= IO_TIMEOUT, "{:?}", issued.elapsed());
    eventually("the path is lost", || stats(&thread).paths[0].ana.is_none());
    assert!(stats(&thread).paths[1].ana.is_some());
    thread.begin_shutdown();
    thread.join();
}

#[test]
fn a_lost_write_ends_its_association_while_others_are_answered() {
    let mut guest = Guest::new();
    let (thread, [mut losing, _good]) = start(&mut guest);
    let issued = Instant::now();
    guest.write(0, 4096);
    guest.kick();
    losing.command();
    losing.stream.read_exact(&mut [0; 4096]).unwrap();
    let lost = || issued.elapsed() >= IO_TIMEOUT / 4;
    answer_others(&mut guest, &mut losing, lost);
    assert!(stats(&thread).paths[0].ana.is_some(), "not yet");
    eventually("the path is lost", || stats(&thread).paths[0].ana.is_none());
    assert!(issued.elapsed() >= IO_TIMEOUT, "{:?}", issued.elapsed());
    eventually("the write waits for the fence", || stats(&thread).paths[0].fenced == 1);
    assert!(guest.results().is_empty());
    thread.begin_shutdown();
    thread.join();
}
