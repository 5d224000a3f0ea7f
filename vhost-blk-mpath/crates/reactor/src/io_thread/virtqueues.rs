//! The virtqueues of an I/O thread, from their start: what guests have queued is taken.

use std::io;
use std::sync::mpsc;
use std::time::Instant;

use mpath_core::{DiskId, FlowId, Io};
use vhost_user_blk::Queue;

use super::drain::FAULTED_DRAIN_MAX;
use super::{Disk, IoThread};
use crate::classify::io_of;
use crate::ring::Ring;
use crate::token::Token;

pub(super) struct QueueSlot {
    pub(super) disk: DiskId,
    pub(super) queue: Queue,
    /// Tells the events of this virtqueue's kick from those of one with the same index before it.
    pub(super) generation: u32,
    /// Chains fetched and not yet completed.
    pub(super) in_flight: u32,
    /// Where it goes once drained; set, nothing more is fetched.
    pub(super) stopping: Option<Stopping>,
    /// The guest may have queued something since the last fetch.
    pub(super) kicked: bool,
    pub(super) seen: Seen,
    /// It was not looked into since it runs: what is there may have waited since the last time that it ran.
    pub(super) is_new: bool,
}

/// What is known of the requests of a virtqueue over the times that it runs here.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// It ran for the first time: what its log has may have been submitted before.
    pub(super) first: Instant,
    /// It was looked into until then: what waits in it may have been submitted since.
    pub(super) last: Instant,
}

pub(super) struct Stopping {
    pub(super) reply: Option<mpsc::SyncSender<Option<Queue>>>,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

impl QueueSlot {
    /// Until when the virtqueue may drain, if it is to stop.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Stopping { since, deadline, .. } = self.stopping.as_ref()?;
        Some(if self.queue.has_faulted() { (*deadline).min(*since + FAULTED_DRAIN_MAX) } else { *deadline })
    }
}

impl<R: Ring> IoThread<R> {
    pub(super) fn start_queue(&mut self, now: Instant, disk: DiskId, flow: FlowId, queue: Queue) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        self.ring.watch(queue.kick_fd(), Token::Kick { flow, generation }.encode())?;
        self.disks[&disk].unanswered.taken_up(&queue);
        // Kicked: the guest may have queued requests before the virtqueue came here.
        let stopping = self.ending.then_some(Stopping { reply: None, since: now, deadline: now });
        let began = self.disks[&disk].unanswered.began();
        let seen = self.left.remove(&flow).unwrap_or(Seen { first: began, last: began });
        let slot = QueueSlot { disk, queue, generation, in_flight: 0, stopping, kicked: true, seen, is_new: true };
        let before = self.queues.insert(flow, slot);
        assert!(before.is_none(), "a virtqueue is started once");
        Ok(())
    }

    /// Takes the requests that wait in the virtqueues. A virtqueue with requests in flight is looked at in every turn,
    /// since a look is cheaper than a kick; one without is left to its kick.
    pub(super) fn fetch(&mut self, now: Instant) {
        let mut some_held = false;
        for disk in self.disks.values_mut() {
            disk.held_until.take_if(|until| *until <= now);
            some_held |= disk.is_held();
        }
        for (&flow, slot) in &mut self.queues {
            if some_held && self.disks.get(&slot.disk).is_some_and(Disk::is_held) {
                continue;
            }
            let stopping = slot.stopping.is_some();
            // What an earlier daemon had in flight was taken from the ring by that: it belongs to what is drained. At the end of this
            // one it is the next one's, as all else that was not taken yet.
            if stopping && (self.ending || slot.queue.to_resubmit() == 0) {
                continue;
            }
            let kicked = std::mem::take(&mut slot.kicked);
            if !(kicked || slot.in_flight > 0 || stopping) {
                continue;
            }
            if kicked {
                slot.queue.drain_kick();
            }
            loop {
                // A broken virtqueue has said so itself; what was taken before is completed as ever.
                loop {
                    let is_resubmitted = slot.queue.to_resubmit() > 0;
                    if stopping && !is_resubmitted {
                        break;
                    }
                    let Ok(Some(request)) = slot.queue.pop() else { break };
                    let since = match (is_resubmitted, slot.is_new) {
                        (true, _) => slot.seen.first,
                        (false, true) => slot.seen.last,
                        (false, false) => now,
                    };
                    slot.in_flight += 1;
                    let io = io_of(&request, slot.disk, flow);
                    let tag = self.requests.insert(slot.disk, flow, request);
                    self.group.submit_queued_since(now, since, Io { tag, ..io });
                }
                if stopping || !slot.queue.enable_notifications() {
                    break;
                }
            }
            slot.is_new &= stopping;
        }
    }
}
