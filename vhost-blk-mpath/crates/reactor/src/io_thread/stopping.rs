//! Decides: virtqueues are given up at once, or after a time.
//! Decides: an I/O thread has flushed before its connections close.
//!
//! The end of a turn and the end of virtqueues: completions are published, and stopping virtqueues are drained or given
//! up.

use std::io;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, FlowId};

use super::IoThread;
use crate::by_id::paths_of;
use crate::disk_queues::DRAIN_MAX;
use crate::ring::Ring;
use crate::ring_token::RingToken;
use crate::{CloseMode, LossReason};

/// The limit after a fault in memory that the front-end shares. The back-end hangs up on that front-end.
pub(super) const FAULTED_DRAIN_MAX: Duration = Duration::from_secs(1);
/// How long a virtqueue drains at least while no path is there.
const IN_VAIN_MIN: Duration = Duration::from_secs(1);
/// The limit at the end of the daemon.
pub(super) const SHUTDOWN_DRAIN_MAX: Duration = Duration::from_secs(1);

impl<R: Ring> IoThread<R> {
    /// Publishes completions, and returns stopping virtqueues that are drained.
    pub(super) fn publish(&mut self, now: Instant) -> io::Result<()> {
        let mut stopping = Vec::new();
        self.active.retain(|&flow| {
            let slot = self.queues.get_mut(flow).expect("an active virtqueue has a slot");
            slot.queue.publish();
            stopping.extend(slot.deadline().map(|deadline| (flow, deadline)));
            slot.is_listed = slot.is_active() || self.is_polling;
            slot.is_listed
        });
        for (flow, deadline) in stopping {
            let waits_in_vain = self.in_vain_at(flow).is_some_and(|at| at <= now);
            if (deadline <= now || waits_in_vain) && self.queues[flow].in_flight > 0 {
                self.give_up(now, flow);
            }
            // If no socket holds its requests, a virtqueue only waits to have them given up. At the end of the daemon,
            // requests that were not taken are left to the next daemon.
            let slot = &self.queues[flow];
            let is_held = slot.queue.to_resubmit() > 0 && !slot.queue.is_broken();
            let waits_for_hold = is_held && deadline > now && !self.is_shutting_down && !waits_in_vain;
            if slot.in_flight > 0 || waits_for_hold {
                continue;
            }
            let mut slot = self.queues.remove(flow).expect("it was listed above");
            self.active.retain(|active| *active != flow);
            if !slot.has_notifications {
                // Whoever serves the ring next gets its kicks. Requests that wait in it are for its next start.
                let _ = slot.queue.enable_notifications();
            }
            self.disks[slot.disk].queues.queue_stopped(&slot.queue, now);
            self.stopped_queue_times.insert(flow, slot.times);
            let token = RingToken::Kick { flow, generation: slot.generation };
            self.ring.unwatch(token.encode(), RingToken::Ended.encode())?;
            match slot.stopping.and_then(|stopping| stopping.reply) {
                // The requester may have ended. The virtqueue is dropped with the answer then.
                Some(reply) => drop(reply.send(Some(slot.queue))),
                None => drop(self.ended_queues.insert(flow, slot.queue)),
            }
        }
        let is_settled = |(disk, _): &mut (DiskId, _)| !self.requests.has_writes_in_doubt_of(*disk);
        self.settle_callbacks.extract_if(.., is_settled).for_each(|(_, settled)| settled());
        if self.is_shutting_down && self.queues.is_empty() && self.daemon_flush(now) {
            self.flushed_callbacks.drain(..).for_each(|flushed| flushed());
            if self.is_ending {
                for path in self.connections.paths().collect::<Vec<_>>() {
                    self.connections.get_mut(path).expect("listed above").close(&mut self.ring, CloseMode::Reset);
                    self.group.path_closed(now, path);
                }
                self.close_quiescent(now);
            }
        }
        Ok(())
    }

    /// When a stopping virtqueue gives up its requests early. They can be sent nowhere, none of them may still be executed, and
    /// the front-end loses none of them. A path that is soon back, or that only rests, is waited for.
    pub(super) fn in_vain_at(&self, flow: FlowId) -> Option<Instant> {
        let slot = &self.queues[flow];
        let since = self.group.without_path_since(slot.disk)?.max(slot.stopping.as_ref()?.since);
        let gives_up = slot.queue.survives_hang_up() && self.requests.are_idle(flow);
        gives_up.then(|| since + IN_VAIN_MIN)
    }

    /// Gives up the requests of a virtqueue that does not drain in time. They get no answer: success would be false, and
    /// after an error the guest could reuse sectors that a lost path may still write. Connections that hold its guest
    /// memory are closed, so that the kernel releases it at once. If that memory has faulted, it is replaced instead,
    /// and the connections keep the requests.
    fn give_up(&mut self, now: Instant, flow: FlowId) {
        let slot = self.queues.get_mut(flow).expect("the virtqueue is overdue, so it has a slot");
        let stopping = slot.stopping.as_mut().expect("only a stopping virtqueue is overdue");
        let cause = match (slot.queue.has_faulted(), self.is_shutting_down) {
            (true, _) => "stopped because its memory cannot be accessed",
            (false, true) => "stopped because its disk ends",
            (false, false) => "stopped by its front-end, or because the front-end is gone",
        };
        let why = if stopping.deadline <= now { "did not drain in time" } else { "cannot drain, as no path is live" };
        tracing::error!(
            disk = &*self.disks[slot.disk].name,
            queue = slot.queue.index(),
            requests = slot.in_flight,
            "virtqueue {why} ({cause}, {:.1} s ago); its requests are given up without an answer",
            (now - stopping.since).as_secs_f64()
        );
        (stopping.deadline, stopping.given_up) = (now + DRAIN_MAX, true);
        // A flush that ends with its path must not report a loss: the guest gets no answer to the flush.
        self.group.give_up(flow);
        // The sockets hold replaced memory then. A fault of one front-end's memory must not end paths.
        if slot.queue.has_faulted() && slot.queue.discard_memory() {
            self.requests.detach(flow);
            slot.in_flight = 0;
        } else {
            let (released, paths) = self.requests.give_up(flow);
            slot.in_flight -= released;
            for path in paths_of(paths) {
                self.lose(now, path, LossReason::GivenUp);
            }
            // Lost paths have returned requests that were not sent. While no path is live, front-ends that reconnect
            // would leave more of them behind each time.
            self.group.give_up(flow);
        }
        self.run_actions(now);
        self.transmit(now);
    }
}
