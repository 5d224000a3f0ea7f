//! An I/O thread over controllers that fall silent, in the middle of a payload above all: then the kernel has been given the
//! guest's memory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mpath_core::{
    AnaState, Association, DirtyPaths, Epoch, Group, GroupConfig, GroupStats, PathConfig, PathId, PolicyKind,
};
use nvme_tcp::host::{
    HostIdentity, HostQueue, IoLimits, PayloadSink, PayloadSource, QueueConfig, STAGING_MIN, Tag as WireTag,
};
use nvme_tcp::wire::{C2hData, Cqe, Digests, Framing, IcResp, Nqn, Pdu, Status};

use crate::testing::Guest;
use crate::{IoThreadConfig, IoThreadHandle, Link, PathEvent};

const PATIENCE: Duration = Duration::from_secs(20);
const SUSPECT: Duration = Duration::from_millis(50);
const BYTES: usize = 512 << 10;
/// A command capsule without data: common header and SQE.
const CAPSULE_BYTES: usize = 72;

/// The controller's end of one queue pair.
struct Controller(TcpStream);

impl Controller {
    /// A ready queue pair and the controller at its other end.
    fn connect() -> (Self, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        host.set_nodelay(true).unwrap();
        let controller = listener.accept().unwrap().0;
        controller.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut queue = HostQueue::new(QueueConfig {
            qid: 1,
            entries: 16,
            host: HostIdentity { hostnqn: Nqn::new("nqn.2014-08.org.example:host").unwrap(), hostid: [1; 16] },
            subnqn: Nqn::new("nqn.2014-08.org.example:disk").unwrap(),
            cntlid: 1,
            digests: Digests::default(),
            nsid: 1,
            limits: IoLimits {
                block_bytes: 4096,
                namespace_blocks: 1024,
                max_transfer_bytes: 1 << 20,
                in_capsule_bytes: 8192,
                noiob_blocks: 0,
            },
        })
        .unwrap();
        // ICReq and Connect need no wire.
        let icresp = Pdu::IcResp(IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 131_072 });
        for answer in [icresp, Pdu::CapsuleResp(Cqe::new(0x1000, 0, Status::SUCCESS, 1))] {
            queue.fill_tx(&mut Vec::with_capacity(STAGING_MIN), &NoPayload, &mut Vec::new());
            queue.receive(&bytes_of(answer, &[]), &mut NoPayload).unwrap();
        }
        assert!(queue.is_ready());
        (Self(controller), Link { socket: host.into(), queue, retry_delays: [Duration::ZERO; 3] })
    }

    /// The CID of the next command.
    fn command(&mut self) -> u16 {
        let mut capsule = [0; CAPSULE_BYTES];
        self.0.read_exact(&mut capsule).unwrap();
        u16::from_le_bytes([capsule[10], capsule[11]])
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The whole answer to a read.
    fn answer(cid: u16, byte: u8) -> Vec<u8> {
        let data = C2hData { cid, offset: 0, length: BYTES as u32, last: true, success: false };
        let mut answer = bytes_of(Pdu::C2hData(data), &vec![byte; BYTES]);
        answer.extend(bytes_of(Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 0)), &[]));
        answer
    }
}

fn bytes_of(pdu: Pdu, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu.emit(&Framing::default(), data, &mut bytes);
    bytes
}

struct NoPayload;

impl PayloadSource for NoPayload {
    fn gather(&self, _: WireTag, _: u32, _: &mut [u8]) {
        unreachable!("no request yet");
    }
}

impl PayloadSink for NoPayload {
    fn scatter(&mut self, _: WireTag, _: u32, _: &[u8]) {
        unreachable!("no request yet");
    }
}

/// A thread with two paths, of which the first is the one to use.
fn start() -> (IoThreadHandle, [Controller; 2]) {
    let config = GroupConfig { policy: PolicyKind::Numa.into(), suspect_timeout: SUSPECT, ..GroupConfig::default() };
    let mut group = Group::new(Instant::now(), config, Arc::new(DirtyPaths::default()));
    let paths = [PathId(0), PathId(1)];
    for path in paths {
        group.add_path(path, PathConfig::default());
    }
    let report = Box::new(|_: PathEvent| {});
    let config = IoThreadConfig { name: "io-test".into(), group, block_size_bytes: 4096, report };
    let thread = IoThreadHandle::start(config).unwrap();
    let association =
        Association { epoch: Epoch(1), ana: AnaState::Optimized, volatile_write_cache: false, queue_depth: 15 };
    let controllers = paths.map(|path| {
        let (controller, link) = Controller::connect();
        thread.path_up(path, association, link);
        controller
    });
    (thread, controllers)
}

fn stats(thread: &IoThreadHandle) -> GroupStats {
    let (reply, stats) = mpsc::channel();
    thread.stats(Box::new(move |stats| reply.send(stats).unwrap()));
    stats.recv().unwrap()
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn completes(guest: &mut Guest) {
    let mut results = Vec::new();
    eventually("the read completes", || {
        results = guest.results();
        !results.is_empty()
    });
    assert_eq!(results, [0]);
}

/// Sends so many bytes of the answer to a read and has the thread take all of them.
fn fall_silent_after(bytes: usize) {
    let (thread, [mut grey, mut good]) = start();
    let mut guest = Guest::new();
    thread.start_queue(guest.queue()).unwrap();
    guest.read(0, BYTES);
    guest.kick();
    let cid = grey.command();
    let answer = Controller::answer(cid, 0xa1);
    let (first, rest) = answer.split_at(bytes);
    grey.send(first);

    // The other path is asked, although the kernel was given the guest's memory for the first one.
    let other = good.command();
    good.send(&Controller::answer(other, 0xb2));
    completes(&mut guest);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xb2), "after {bytes}");
    let seen = stats(&thread).paths.swap_remove(0);
    assert!(seen.suspect && seen.suspicions == 1 && seen.recalled == 1 && seen.classes[0].in_flight == 0);

    // What the silent one has to say in the end reaches nobody but the watch.
    grey.send(rest);
    eventually("the path is trusted again", || !stats(&thread).paths[0].suspect);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xb2), "after {bytes}");
    guest.read(0, BYTES);
    guest.kick();
    let again = grey.command();
    assert_ne!(again, cid);
    grey.send(&Controller::answer(again, 0xc3));
    completes(&mut guest);
    assert!(guest.memory(BYTES).iter().all(|&byte| byte == 0xc3), "after {bytes}");
    thread.begin_shutdown();
    thread.join();
}

#[test]
fn a_read_leaves_a_path_that_falls_silent_wherever_it_stood() {
    // Before its data, in a header, where the data are still buffered, where they go straight to the guest, before the last
    // of them, and when only the completion is missing.
    for bytes in [0, 5, 24, 1000, 100_000, 300_000, 24 + BYTES - 1, 24 + BYTES, 24 + BYTES + 23] {
        fall_silent_after(bytes);
    }
}

#[test]
fn the_end_does_not_wait_for_silent_paths() {
    let (thread, [mut grey, mut other]) = start();
    let mut guest = Guest::new();
    thread.start_queue(guest.queue()).unwrap();
    guest.read(0, BYTES);
    guest.kick();
    let cid = grey.command();
    grey.send(&Controller::answer(cid, 0xa1)[..100_000]);
    let cid = other.command();
    other.send(&Controller::answer(cid, 0xb2)[..200_000]);
    eventually("both are suspect", || stats(&thread).paths.iter().all(|path| path.suspect));
    let start = Instant::now();
    thread.begin_shutdown();
    if let Some(queue) = thread.stop_queue(0) {
        assert_eq!(queue.outstanding(), 1, "given up");
    }
    thread.join();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(guest.results().is_empty());
}

#[test]
fn a_lost_connection_gives_back_what_is_being_recalled() {
    let (thread, [mut grey, mut good]) = start();
    let mut guest = Guest::new();
    thread.start_queue(guest.queue()).unwrap();
    for round in 0..4 {
        if round > 0 {
            let (controller, link) = Controller::connect();
            let epoch = Epoch(1 + round);
            let association =
                Association { epoch, ana: AnaState::Optimized, volatile_write_cache: false, queue_depth: 15 };
            thread.path_up(PathId(0), association, link);
            grey = controller;
        }
        guest.read(0, BYTES);
        guest.kick();
        let cid = grey.command();
        grey.send(&Controller::answer(cid, 0xa1)[..100_000]);
        // About when the read is recalled: before, after, or at the same time.
        std::thread::sleep(Duration::from_micros(49_000 + 500 * round));
        drop(grey.0.shutdown(std::net::Shutdown::Both));
        let cid = good.command();
        good.send(&Controller::answer(cid, round as u8));
        completes(&mut guest);
        assert!(guest.memory(BYTES).iter().all(|&byte| byte == round as u8));
        eventually("the path is lost", || stats(&thread).paths[0].ana.is_none());
    }
    thread.begin_shutdown();
    thread.join();
}
