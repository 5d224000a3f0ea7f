//! A write whose answer comes while its data are still being sent: it ends when the kernel no longer reads them.

use std::time::Duration;

use nvme_tcp::wire::Status;

use crate::Ending;
use crate::testing::{Controller, Rig, eventually};

const FAILED: i32 = -libc::EIO;
/// Of one PDU: more than sockets take that nobody reads from.
const BYTES: usize = 128 << 10;

/// A write of which the controller has asked for all data, read none, and said that it has failed.
fn start() -> Rig {
    let mut rig = Rig::start();
    rig.guest.write(0, BYTES);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::ask(cid, BYTES));
    // A first byte says that they are on their way.
    assert_eq!(rig.controller.stream.peek(&mut [0]).unwrap(), 1);
    rig.controller.send(&Controller::end(cid, Status::NAMESPACE_NOT_READY.with_dnr()));
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
    rig.close(Ending::Reset);
    fails(rig);
}
