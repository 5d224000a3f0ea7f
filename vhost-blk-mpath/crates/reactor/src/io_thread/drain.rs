//! The end of a turn, and of virtqueues: completions are shown to guests, what is to stop is drained or given up.

use std::io;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, FlowId, PathId};

use super::IoThread;
use crate::message::{Ending, LossReason};
use crate::ring::Ring;
use crate::token::Token;

/// How long a virtqueue may take to drain before its remaining requests are given up. The front-end's main loop, and
/// so the guest, stands still meanwhile.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(10);
/// How long if memory that its front-end shares could not be accessed, so that the front-end is hung up on.
pub(super) const FAULTED_DRAIN_MAX: Duration = Duration::from_secs(1);
/// How long the requests in flight may take at the end of the daemon.
pub(super) const SHUTDOWN_DRAIN_MAX: Duration = Duration::from_secs(1);

impl<R: Ring> IoThread<R> {
    /// Shows the guest what is done, and lets go of virtqueues that were to stop and are drained.
    pub(super) fn publish(&mut self, now: Instant) -> io::Result<()> {
        let mut stopping = Vec::new();
        for (&flow, slot) in &mut self.queues {
            slot.queue.publish();
            stopping.extend(slot.deadline().map(|deadline| (flow, deadline)));
        }
        for (flow, deadline) in stopping {
            if deadline <= now && self.queues[&flow].in_flight > 0 {
                self.abandon(now, flow);
            }
            // Where no socket holds anything of it, giving up is all there is to wait for. At the daemon's end what was not taken yet is
            // the next one's.
            let slot = &self.queues[&flow];
            let is_held = slot.queue.to_resubmit() > 0 && !slot.queue.has_faulted();
            let waits_for_hold = is_held && deadline > now && !self.ending;
            if slot.in_flight > 0 || waits_for_hold {
                continue;
            }
            let slot = self.queues.remove(&flow).expect("just seen");
            self.disks[&slot.disk].unanswered.left(&slot.queue);
            self.left.insert(flow, slot.seen);
            let token = Token::Kick { flow, generation: slot.generation };
            self.ring.unwatch(token.encode(), Token::Ended.encode())?;
            if let Some(reply) = slot.stopping.and_then(|stopping| stopping.reply) {
                // The front-end that asked may be gone; then the virtqueue is dropped with the answer.
                drop(reply.send(Some(slot.queue)));
            }
        }
        let is_settled = |(disk, _): &mut (DiskId, _)| !self.requests.leaves_doubt_of(*disk);
        self.settling.extract_if(.., is_settled).for_each(|(_, settled)| settled());
        if self.ending && self.queues.is_empty() && self.write_back(now) {
            for (&path, connection) in &mut self.connections {
                connection.close(&mut self.ring, Ending::Reset);
                self.group.path_closed(now, path);
            }
            self.close_quiescent(now);
        }
        Ok(())
    }

    /// Gives up the requests of a virtqueue that did not drain in time. They get no answer: success would be a lie, and an
    /// error would let the guest reuse sectors that a lost path may still write. Sockets that hold its guest memory are
    /// closed, upon which the kernel gives it back at once. Not so if that memory has faulted: it is replaced, and the sockets keep the
    /// requests.
    fn abandon(&mut self, now: Instant, flow: FlowId) {
        let slot = self.queues.get_mut(&flow).expect("an overdue virtqueue is here");
        if let Some(stopping) = &mut slot.stopping {
            // Once: what is left then only waits for the kernel.
            (stopping.since, stopping.deadline) = (now + DRAIN_MAX, now + DRAIN_MAX);
        }
        tracing::error!(
            disk = &*self.disks[&slot.disk].name,
            queue = slot.queue.index(),
            requests = slot.in_flight,
            "virtqueue did not drain in time; its requests are given up without an answer"
        );
        // Then sockets hold memory that is nobody's any more: no path has to end for what one front-end has done.
        if slot.queue.has_faulted() && slot.queue.discard_memory() {
            self.requests.release(flow);
            slot.in_flight = 0;
        } else {
            let (let_go, paths) = self.requests.abandon(flow);
            slot.in_flight -= let_go;
            let held: Vec<PathId> = self.connections.keys().copied().filter(|path| paths & 1 << path.0 != 0).collect();
            for path in held {
                self.lose(now, path, LossReason::Abandoned);
            }
        }
        // Or front-ends that come and go while no path is live would leave more behind each time.
        self.group.give_up(flow);
        self.act(now);
        self.transmit(now);
    }
}
