//! Whole turns of an I/O thread over the simulated ring, with the daemon's policy and scheduler.

use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_core::{
    AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, PathConfig, PathId, PolicyKind, SchedulerKind,
    SharedDisk,
};
use mpath_sim::{BlockGuest, BlockOp};
use reactor::{CloseMode, ConnectedQueuePair, DiskQueues, IoThreadMessage, SimulatedRing};

use super::guest::{self, BLOCK_BYTES};
use super::meter::{self, Meter, Work};
use super::queue_pair;

/// The only socket.
const SOCKET: () = ();

/// An I/O thread with a guest and a path.
pub(super) struct IoThread {
    now: Instant,
    thread: reactor::IoThread<SimulatedRing<()>>,
    guest: BlockGuest,
    /// Bytes of a capsule of the guest's requests.
    capsule_bytes: usize,
    /// Answers of the controller that the thread has not received yet.
    answers: Vec<u8>,
}

impl IoThread {
    /// Requests in groups of `depth`. A group ends before the next begins.
    pub(super) fn work(op: BlockOp, are_packed: bool, depth: usize) -> Work {
        let mut thread = Self::new(op, are_packed, depth);
        Box::new(move |meter, requests| (0..requests as usize / depth).for_each(|_| thread.serve(meter, depth)))
    }

    fn new(op: BlockOp, are_packed: bool, depth: usize) -> Self {
        let now = meter::start();
        let (path, disk, epoch) = (PathId(0), DiskId(0), Epoch(1));
        let config = GroupConfig {
            policy: PolicyKind::Bdp.into(),
            scheduler: SchedulerKind::BurstCredit.into(),
            ..GroupConfig::default()
        };
        let mut group = Group::new(now, config, &[SharedDisk::default()]);
        group.add_path(path, PathConfig::default());
        let report = Box::new(|event: reactor::PathEvent<()>| panic!("path {}: {:?}", event.path, event.kind));
        let mut thread = reactor::IoThread::new(SimulatedRing::new(), group, report);
        let (guest, queue) = guest::connected(op, are_packed, depth);
        let association =
            Association { epoch, ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth: 127 };
        thread.ring().set_rooms([(SOCKET, usize::MAX)]);
        let link = Box::new(ConnectedQueuePair {
            socket: SOCKET,
            queue: queue_pair::connected(),
            tls: None,
            retry_delays: [Duration::ZERO; 3],
            close_mode: CloseMode::Reset,
        });
        let queues = Arc::new(DiskQueues::new(0, now));
        for message in [
            IoThreadMessage::AddDisk { disk, name: "disk".into(), block_size_bytes: BLOCK_BYTES, queues },
            IoThreadMessage::PathUp { path, association, link },
            IoThreadMessage::StartQueue { disk, flow: FlowId(0), queue: Box::new(queue) },
        ] {
            thread.handle(now, message).expect("the ring does what it is asked");
        }
        let capsule_bytes = queue_pair::capsule_bytes(op);
        Self { now, thread, guest, capsule_bytes, answers: Vec::new() }
    }

    fn serve(&mut self, meter: Meter, depth: usize) {
        (0..depth).for_each(|place| self.guest.submit(place));
        self.guest.kick();
        self.thread.ring().poll();
        let mut answered = 0;
        while answered < depth {
            self.now += Duration::from_micros(10);
            meter.count(|| {
                self.thread.take_events(self.now).expect("the ring does what it is asked");
                self.thread.finish_turn(self.now).expect("the ring does what it is asked");
                self.thread.next_timeout()
            });
            answered += self.guest.reap();
            self.exchange();
        }
    }

    /// The controller answers what was sent, and the answers are received.
    fn exchange(&mut self) {
        let ring = self.thread.ring();
        ring.set_rooms([(SOCKET, usize::MAX)]);
        for ((), capsules) in ring.take_sent() {
            self.answers.extend(capsules.chunks(self.capsule_bytes).flat_map(queue_pair::answer));
        }
        if !self.answers.is_empty() {
            let room = ring.receives(SOCKET).expect("the thread always receives").min(self.answers.len());
            let received: Vec<u8> = self.answers.drain(..room).collect();
            ring.received(SOCKET, &received);
        }
    }
}
