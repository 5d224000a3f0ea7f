//! Events that an I/O thread reports of its paths.

use std::io::Read;

use nvme_tcp::wire::Status;

use crate::testing::{Controller, Rig, TIMEOUT, eventually};
use crate::{CloseMode, LossReason, PathEventKind};

fn is_in_doubt(closed: &PathEventKind) -> bool {
    matches!(closed, PathEventKind::Closed { in_doubt: true, .. })
}

#[test]
fn an_unanswered_write_is_in_doubt_and_a_read_is_not() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    rig.controller.command();
    let closed = rig.close(CloseMode::Reset);
    assert!(!is_in_doubt(&closed), "{closed:?}");
    rig.end();

    let mut rig = Rig::start();
    rig.guest.write(0, 4096);
    rig.guest.kick();
    rig.controller.command();
    let closed = rig.close(CloseMode::Reset);
    assert!(is_in_doubt(&closed), "{closed:?}");
    rig.end();
}

#[test]
fn errors_that_have_commands_repeated_are_reported_now_and_then() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    // The read is repeated at once.
    for status in [Status::INTERNAL_ERROR, Status::INTERNAL_ERROR, Status::ANA_INACCESSIBLE] {
        let cid = rig.controller.command();
        rig.controller.send(&Controller::end(cid, status));
    }
    let event = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(event.kind, PathEventKind::CommandError(Status::INTERNAL_ERROR)), "{event:?}");
    let event = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(event.kind, PathEventKind::AnaError), "{event:?}");
    rig.end();
}

#[test]
fn an_error_that_ends_the_request_is_no_event_of_the_path() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::end(cid, Status::INTERNAL_ERROR.with_dnr()));
    eventually("the read has failed", || !rig.guest.results().is_empty());
    assert!(rig.events.try_recv().is_err());
    rig.end();
}

/// The fault table of the daemon covers a path with data digests.
#[test]
fn without_data_digests_a_transport_error_is_no_digest_error() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::end(cid, Status::TRANSIENT_TRANSPORT_ERROR));
    let cid = rig.controller.command();
    rig.controller.send(&Controller::answer(cid, 7, 4096));
    eventually("the read has succeeded", || rig.guest.results() == [0]);
    let event = rig.events.try_recv().unwrap();
    assert!(matches!(event.kind, PathEventKind::CommandError(_)), "{event:?}");
    rig.end();
}

/// The controller gets an `H2CTermReq` with the header that it sent: an invalid field, the CID of the completion.
#[test]
fn a_protocol_violation_is_reported_to_the_controller() {
    let mut rig = Rig::start();
    let unasked = Controller::end(0x0fff, Status::SUCCESS);
    rig.controller.send(&unasked);
    let event = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(event.kind, PathEventKind::Lost(LossReason::Queue(_))), "{event:?}");
    let mut told = [0; 48];
    rig.controller.stream.read_exact(&mut told).unwrap();
    assert_eq!(told[..16], [2, 0, 24, 0, 48, 0, 0, 0, 1, 0, 20, 0, 0, 0, 0, 0]);
    assert_eq!(told[24..], unasked);
    rig.end();
}

#[test]
fn a_controller_that_refuses_large_commands_gets_smaller_ones() {
    const BYTES: usize = 256 << 10;
    let mut rig = Rig::start();
    // A transient failure must not reduce the transfer size. The second round starts with large commands again.
    for _ in 0..2 {
        rig.guest.read(0, BYTES);
        rig.guest.kick();
        let cid = rig.controller.command();
        rig.controller.send(&Controller::end(cid, Status::INTERNAL_ERROR.with_dnr()));
        let halves = [rig.controller.command(), rig.controller.command()];
        for (byte, cid) in (1..).zip(halves) {
            rig.controller.send(&Controller::answer(cid, byte, BYTES / 2));
        }
        let mut results = Vec::new();
        eventually("the read has succeeded", || {
            results.extend(rig.guest.results());
            results == [0]
        });
        let memory = rig.guest.memory(BYTES);
        assert!(memory[..BYTES / 2].iter().all(|&byte| byte == 1) && memory[BYTES / 2..].iter().all(|&byte| byte == 2));
    }
    let event = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(event.kind, PathEventKind::SmallerTransfer { bytes: 131_072 }), "{event:?}");
    rig.end();
}
