//! What an I/O thread reports of its paths.

use nvme_tcp::wire::Status;

use crate::testing::{Controller, PATIENCE, Rig};
use crate::{Ending, PathEventKind};

fn is_in_doubt(closed: &PathEventKind) -> bool {
    matches!(closed, PathEventKind::Closed { in_doubt: true, .. })
}

#[test]
fn a_write_without_answer_leaves_doubt_and_a_read_does_not() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    rig.controller.command();
    let closed = rig.close(Ending::Reset);
    assert!(!is_in_doubt(&closed), "{closed:?}");
    rig.end();

    let mut rig = Rig::start();
    rig.guest.write(0, 4096);
    rig.guest.kick();
    rig.controller.command();
    let closed = rig.close(Ending::Reset);
    assert!(is_in_doubt(&closed), "{closed:?}");
    rig.end();
}

#[test]
fn an_ana_error_is_told_and_another_error_is_not() {
    let mut rig = Rig::start();
    rig.guest.read(0, 4096);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::end(cid, Status::INTERNAL_ERROR));
    // It comes again at once.
    let cid = rig.controller.command();
    rig.controller.send(&Controller::end(cid, Status::ANA_INACCESSIBLE));
    let event = rig.events.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(event.kind, PathEventKind::AnaError), "{event:?}");
    rig.end();
}
