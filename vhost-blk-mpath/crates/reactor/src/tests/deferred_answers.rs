//! A write is answered while its data are still being sent. It ends when the kernel no longer reads its memory.

use std::time::Duration;

use nvme_tcp::wire::Status;

use crate::CloseMode;
use crate::testing::{Controller, Rig, eventually};

const FAILED: i32 = -libc::EIO;
/// Data of one PDU, more than the sockets take without a reader.
const BYTES: usize = 128 << 10;

/// A write in flight. The controller has asked for all data, read none, and reported a failure.
fn start() -> Rig {
    let mut rig = Rig::start();
    rig.guest.write(0, BYTES);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::ask(cid, BYTES));
    // The first byte shows that the data are on their way.
    assert_eq!(rig.controller.stream.peek(&mut [0]).unwrap(), 1);
    rig.controller.send(&Controller::end(cid, Status::WRITE_FAULT.with_dnr()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(rig.guest.results().is_empty(), "the kernel still reads its memory");
    rig
}

fn fails(mut rig: Rig) {
    let mut results = Vec::new();
    eventually("it fails", || {
        results.extend(rig.guest.results());
        !results.is_empty()
    });
    assert_eq!(results, [FAILED]);
    rig.end();
}

#[test]
fn an_early_answer_waits_for_the_end_of_the_send() {
    let mut rig = start();
    rig.controller.data(BYTES);
    fails(rig);
}

#[test]
fn an_early_answer_waits_no_longer_than_the_connection_lasts() {
    let rig = start();
    rig.close(CloseMode::Reset);
    fails(rig);
}
