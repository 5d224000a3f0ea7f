//! A front-end cuts off the memory of its guest, on a connection that also carries another guest's requests.

use std::sync::mpsc;

use monotonic::{Duration, Instant};
use mpath_core::FlowId;
use nvme_tcp::wire::Status;

use crate::PathEventKind;
use crate::testing::{Controller, DISK, FLOW, Guest, Rig, TIMEOUT, eventually, start_queue, stop_queue};

const FAILED: i32 = -libc::EIO;
const BYTES: usize = 512 << 10;
/// Memory ends after these bytes: at once, within the data of the read-ahead buffer, and within the direct receive.
const CUTS: [usize; 3] = [0, 20 << 10, 300 << 10];

/// A thread with one path and two guests: that of the rig, whose memory will fault, and a correct one.
fn start() -> (Rig, Guest) {
    let rig = Rig::start();
    let other = Guest::new();
    start_queue(&rig.thread, FlowId(FLOW.0 + 1), other.queue()).unwrap();
    (rig, other)
}

fn results(guest: &mut Guest, count: usize) -> Vec<i32> {
    let mut results = Vec::new();
    eventually("all are answered", || {
        results.extend(guest.results());
        results.len() >= count
    });
    results
}

/// Checks that a read of the other guest succeeds, and that the path was not lost.
fn other_guest_succeeds(rig: &mut Rig, other: &mut Guest) {
    other.read(0, 4096);
    other.kick();
    let cid = rig.controller.command();
    rig.controller.send(&Controller::answer(cid, 5, 4096));
    assert_eq!(results(other, 1), [0]);
    assert_eq!(other.memory(4096), [5; 4096]);
    for event in rig.events.try_iter() {
        assert!(matches!(event.kind, PathEventKind::Suspect | PathEventKind::Recovered), "{event:?}");
    }
}

#[test]
fn a_read_into_memory_that_is_cut_off_fails_alone() {
    for cut in CUTS {
        let (mut rig, mut other) = start();
        rig.guest.read(0, BYTES);
        rig.guest.kick();
        let bad = rig.controller.command();
        other.read(0, BYTES);
        other.kick();
        let good = rig.controller.command();
        rig.guest.cut_off(cut);
        rig.controller.send(&[Controller::answer(bad, 7, BYTES), Controller::answer(good, 8, BYTES)].concat());
        assert_eq!(results(&mut other, 1), [0]);
        assert!(other.memory(BYTES).iter().all(|&byte| byte == 8));
        assert_eq!(results(&mut rig.guest, 1), [FAILED], "{cut}");
        other_guest_succeeds(&mut rig, &mut other);
        rig.end();
    }
}

#[test]
fn a_write_from_memory_that_is_cut_off_fails_alone() {
    for cut in CUTS {
        let (mut rig, mut other) = start();
        rig.guest.fill(7);
        other.fill(8);
        rig.guest.write(0, BYTES);
        rig.guest.kick();
        let bad = rig.controller.command();
        other.write(0, BYTES);
        other.kick();
        let good = rig.controller.command();
        rig.guest.cut_off(cut);
        rig.controller.send(&[Controller::ask(bad, BYTES), Controller::ask(good, BYTES)].concat());
        let (cid, data) = rig.controller.data(BYTES);
        assert_eq!(cid, bad);
        let whole = cut.next_multiple_of(4096);
        // The kernel fills the rest of the last page with zeroes.
        assert!(data[..cut].iter().all(|&byte| byte == 7), "what is left of it");
        assert!(data[whole..].iter().all(|&byte| byte == 0));
        let (cid, data) = rig.controller.data(BYTES);
        assert!(cid == good && data.iter().all(|&byte| byte == 8));
        rig.controller.send(&[bad, good].map(|cid| Controller::end(cid, Status::SUCCESS)).concat());
        assert_eq!((results(&mut rig.guest, 1), results(&mut other, 1)), (vec![FAILED], vec![0]), "{cut}");
        other_guest_succeeds(&mut rig, &mut other);
        rig.end();
    }
}

/// Up to 8 KiB are copied between the PDU headers.
#[test]
fn a_copied_write_from_memory_that_is_cut_off_fails() {
    let (mut rig, mut other) = start();
    rig.guest.cut_off(0);
    rig.guest.write(0, 4096);
    rig.guest.kick();
    let cid = rig.controller.command();
    rig.controller.send(&[]);
    let mut data = [0xee; 4096];
    std::io::Read::read_exact(&mut rig.controller.stream, &mut data).unwrap();
    assert_eq!(data, [0; 4096]);
    rig.controller.send(&Controller::end(cid, Status::SUCCESS));
    assert_eq!(results(&mut rig.guest, 1), [FAILED]);
    other_guest_succeeds(&mut rig, &mut other);
    rig.end();
}

/// The controller does not answer the write. The path must not be lost. The next front-end waits for the write.
#[test]
fn a_virtqueue_whose_memory_has_faulted_stops_without_its_requests() {
    let (mut rig, mut other) = start();
    rig.guest.write(0, BYTES);
    rig.guest.read(0, 4096);
    rig.guest.kick();
    let cids = [(); 2].map(|()| rig.controller.command());
    rig.guest.cut_off(0);
    rig.controller.send(&Controller::answer(cids[1], 7, 4096));
    assert_eq!(results(&mut rig.guest, 1), [FAILED]);
    let begun = Instant::now();
    let queue = stop_queue(&rig.thread).expect("it is here");
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    assert!(queue.has_faulted() && queue.outstanding() == 1);
    drop(queue);
    let (reply, settled) = mpsc::channel();
    rig.thread.when_settled(DISK, Box::new(move || reply.send(()).unwrap()));
    // Another virtqueue becomes this flow. It must not get the old answers.
    let mut next = Guest::new();
    start_queue(&rig.thread, FLOW, next.queue()).unwrap();
    other_guest_succeeds(&mut rig, &mut next);
    other_guest_succeeds(&mut rig, &mut other);
    assert!(settled.try_recv().is_err(), "the write may still be executed");
    rig.controller.send(&Controller::ask(cids[0], BYTES));
    let (_, data) = rig.controller.data(BYTES);
    assert!(data.iter().all(|&byte| byte == 0), "nobody's memory");
    rig.controller.send(&Controller::end(cids[0], Status::SUCCESS));
    settled.recv_timeout(TIMEOUT).unwrap();
    other_guest_succeeds(&mut rig, &mut next);
    rig.end();
}
