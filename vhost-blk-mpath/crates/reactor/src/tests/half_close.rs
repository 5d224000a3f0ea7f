//! Connections that are closed with [`CloseMode::HalfClose`], so that the controller can confirm that it has executed
//! everything.

use std::io::Read;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use crate::testing::{Controller, Rig, TIMEOUT};
use crate::{CloseMode, PathEventKind};

/// Closes the path and returns the half-closed socket.
fn close(rig: &Rig, close_mode: CloseMode) -> Option<OwnedFd> {
    let PathEventKind::Closed { half_closed, .. } = rig.close(close_mode) else { unreachable!() };
    half_closed
}

#[test]
fn sent_data_arrive_before_the_end_of_the_connection() {
    let mut rig = Rig::start();
    rig.guest.write(0, 4096);
    rig.guest.kick();
    rig.controller.command();
    let mut socket: TcpStream = close(&rig, CloseMode::HalfClose).expect("it is half-closed").into();
    let mut rest = Vec::new();
    rig.controller.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 4096, "the data of the write, in its capsule");
    // The controller's answers still arrive, and the end of its data.
    rig.controller.send(&[1, 2, 3]);
    rig.controller.stream.shutdown(Shutdown::Write).unwrap();
    let mut answers = Vec::new();
    socket.read_to_end(&mut answers).unwrap();
    assert_eq!(answers, [1, 2, 3]);
    rig.end();
}

/// The kernel has guest memory for the data of a read.
#[test]
fn a_receive_under_way_comes_back() {
    const BYTES: usize = 512 << 10;
    let mut rig = Rig::start();
    rig.guest.read(0, BYTES);
    rig.guest.kick();
    let cid = rig.controller.command();
    let answer = Controller::answer(cid, 7, BYTES);
    rig.controller.send(&answer[..100_000]);
    let socket = close(&rig, CloseMode::HalfClose).expect("it is half-closed");
    // Later data reach no memory.
    let before = rig.guest.memory(BYTES);
    rig.controller.send(&answer[100_000..]);
    rig.controller.stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    TcpStream::from(socket).read_to_end(&mut rest).unwrap();
    assert!(!rest.is_empty() && answer.ends_with(&rest));
    assert!(rig.guest.memory(BYTES) == before);
    rig.end();
}

/// If the controller closes first, that confirms nothing.
#[test]
fn a_controller_that_closed_first_does_not_drain() {
    let rig = Rig::start();
    rig.controller.stream.shutdown(Shutdown::Both).unwrap();
    let lost = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(lost.kind, PathEventKind::Lost(_)), "{lost:?}");
    let closed = rig.events.recv_timeout(TIMEOUT).unwrap();
    assert!(matches!(closed.kind, PathEventKind::Closed { half_closed: None, in_doubt: false }), "{closed:?}");
    rig.end();
}

#[test]
fn a_reset_leaves_no_socket() {
    let mut rig = Rig::start();
    assert!(close(&rig, CloseMode::Reset).is_none());
    // The controller sees a FIN or RST.
    assert!(matches!(rig.controller.stream.read(&mut [0]), Ok(0) | Err(_)));
    rig.end();
}
