//! The end of I/O threads that share an association.

use std::io::{ErrorKind, Read};
use std::sync::mpsc;
use std::thread;

use monotonic::{Duration, Instant};
use mpath_core::{
    AnaState, Association, Direction, Epoch, Group, GroupConfig, Injection, PathConfig, PathId, SharedDisk,
};
use mpath_lifecycle::ThreadMessage;
use nvme_tcp::wire::Status;

use crate::IoThreadHandle;
use crate::testing::{Controller, FLOW, Guest, TIMEOUT, eventually, start_queue, start_thread};

const PATH: PathId = PathId(0);
const QUEUE_DEPTH: u16 = 15;

/// An association with room for this many commands.
fn association(queue_depth: u16) -> Association {
    Association { epoch: Epoch(1), ana: AnaState::Optimized.into(), volatile_write_cache: true, queue_depth }
}

/// A thread with its queue pair of the path.
fn start(disk: &SharedDisk) -> (IoThreadHandle, Controller) {
    let mut group = Group::new(Instant::now(), GroupConfig::default(), std::slice::from_ref(disk));
    group.add_path(PATH, PathConfig::default());
    let thread = start_thread(group, Duration::ZERO, drop);
    let (controller, link) = Controller::connect();
    thread.path_up(PATH, association(QUEUE_DEPTH), link);
    (thread, controller)
}

/// A guest whose write is answered, and not flushed.
fn written(thread: &IoThreadHandle, controller: &mut Controller) -> Guest {
    let mut guest = Guest::new();
    start_queue(thread, FLOW, guest.queue()).unwrap();
    guest.write(0, 4096);
    guest.kick();
    let write = controller.command();
    controller.stream.read_exact(&mut [0; 4096]).unwrap();
    controller.send(&Controller::end(write, Status::SUCCESS));
    eventually("the write is answered", || guest.results() == [0]);
    guest
}

/// A controller may end an association with the first of its connections.
#[test]
fn no_connection_closes_while_another_thread_waits_for_answers() {
    let disk = SharedDisk::default();
    let (idle, mut of_idle) = start(&disk);
    let (busy, mut of_busy) = start(&disk);
    let mut guest = Guest::new();
    start_queue(&busy, FLOW, guest.queue()).unwrap();
    guest.write(0, 4096);
    guest.kick();
    of_busy.command();
    of_busy.stream.read_exact(&mut [0; 4096]).unwrap();
    let ending = thread::spawn(move || IoThreadHandle::end_all(&[idle, busy]));
    let closed = of_idle.stream.read(&mut [0]);
    assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
    // The write is given up after a second. The busy thread has closed its connection then.
    of_busy.stream.set_nonblocking(true).unwrap();
    let closed = of_busy.stream.read(&mut [0]);
    assert!(!closed.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{closed:?}");
    assert!(ending.join().unwrap(), "the write is in doubt");
}

#[test]
fn no_connection_closes_while_another_thread_flushes() {
    let disk = SharedDisk::default();
    let (idle, mut of_idle) = start(&disk);
    let (busy, mut of_busy) = start(&disk);
    let _guest = written(&busy, &mut of_busy);
    let ending = thread::spawn(move || IoThreadHandle::end_all(&[idle, busy]));
    // Both threads flush, as both may have written. One has its answer.
    let (flush, of_other) = (of_busy.command(), of_idle.command());
    of_idle.send(&Controller::end(of_other, Status::SUCCESS));
    of_idle.stream.set_read_timeout(Some(Duration::from_millis(100).into())).unwrap();
    let open = of_idle.stream.read(&mut [0]);
    assert!(open.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{open:?}");
    of_busy.send(&Controller::end(flush, Status::SUCCESS));
    assert!(!ending.join().unwrap(), "nothing is in doubt");
    assert!(!disk.unflushed.is_unflushed(PATH) && !disk.unflushed.has_unreported_loss());
}

#[test]
fn writes_that_the_controller_could_not_flush_are_lost() {
    let disk = SharedDisk::default();
    let (thread, mut controller) = start(&disk);
    let _guest = written(&thread, &mut controller);
    let ending = thread::spawn(move || IoThreadHandle::end_all(&[thread]));
    let flush = controller.command();
    controller.send(&Controller::end(flush, Status::INTERNAL_ERROR));
    assert!(!ending.join().unwrap(), "nothing is in doubt");
    assert!(disk.unflushed.has_unreported_loss());
}

/// The guest gets no answer to the flush. The next daemon must have its next flush fail.
#[test]
fn a_flush_that_is_given_up_reports_no_loss() {
    give_up_flush(false);
}

/// Such a flush ends when its path is lost, which is before its connection is closed.
#[test]
fn a_flush_whose_answer_is_injected_reports_no_loss_when_given_up() {
    give_up_flush(true);
}

fn give_up_flush(answer_is_stalled: bool) {
    let disk = SharedDisk::default();
    let (thread, mut controller) = start(&disk);
    let mut guest = written(&thread, &mut controller);
    thread.post(ThreadMessage::PathDown { path: PATH, epoch: Epoch(1), half_close: false });
    eventually("the write is lost", || disk.unflushed.has_known_loss());
    let (mut other, link) = Controller::connect();
    thread.add_path(PathId(1));
    thread.path_up(PathId(1), association(QUEUE_DEPTH), link);
    // A flush just after the loss may be older than the loss, and is never the last to report it.
    thread::sleep(Duration::from_millis(200).into());
    guest.flush();
    guest.kick();
    // An earlier daemon may have left writes here.
    let flush = other.command();
    if answer_is_stalled {
        let injection = Injection { direction: Direction::Response, stall: true, ..Injection::default() };
        thread.set_injection(PathId(1), None, injection);
        let (set, is_set) = mpsc::channel();
        thread.barrier(Box::new(move || set.send(()).unwrap()));
        is_set.recv_timeout(TIMEOUT).unwrap();
        other.send(&Controller::end(flush, Status::SUCCESS));
        // The path holds the memory of this read, so the path is reset when the read is given up.
        guest.read(0, 4096);
        guest.kick();
        other.command();
    }
    IoThreadHandle::end_all(&[thread]);
    assert!(guest.results().is_empty());
    assert!(disk.unflushed.has_unreported_loss());
}

/// Commands that were recalled stay in the queue pair until they are answered.
#[test]
fn a_flush_at_the_end_waits_for_room_in_its_queue_pair() {
    let disk = SharedDisk::default();
    let (thread, mut controller) = start(&disk);
    let mut guest = written(&thread, &mut controller);
    (0..QUEUE_DEPTH).for_each(|_| guest.read(0, 4096));
    guest.kick();
    let recalled: Vec<u16> = (0..QUEUE_DEPTH).map(|_| controller.command()).collect();
    let (mut other, link) = Controller::connect();
    thread.add_path(PathId(1));
    thread.path_up(PathId(1), association(QUEUE_DEPTH), link);
    let mut results = 0;
    for _ in 0..QUEUE_DEPTH {
        let read = other.command();
        other.send(&Controller::answer(read, 0, 4096));
    }
    eventually("the reads are answered on the other path", || {
        results += guest.results().len();
        results == usize::from(QUEUE_DEPTH)
    });
    let ending = thread::spawn(move || IoThreadHandle::end_all(&[thread]));
    controller.stream.set_read_timeout(Some(Duration::from_millis(100).into())).unwrap();
    let open = controller.stream.read(&mut [0]);
    assert!(open.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{open:?}");
    controller.stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    controller.send(&Controller::answer(recalled[0], 0, 4096));
    let flush = controller.command();
    controller.send(&Controller::end(flush, Status::SUCCESS));
    assert!(!ending.join().unwrap(), "nothing is in doubt");
    assert!(!disk.unflushed.has_unreported_loss());
}
