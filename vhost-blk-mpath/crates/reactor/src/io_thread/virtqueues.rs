//! Decides: a virtqueue is fetched from, with or without a kick (`fetch`).
//!
//! The virtqueues of an I/O thread: their start, and the fetching of requests.

use std::io;
use std::sync::mpsc;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, FlowId, Io, IoError};
use vhost_user_blk::{Queue, QueueError};

use super::stopping::FAULTED_DRAIN_MAX;
use super::{DiskState, IoThread};
use crate::ring::Ring;
use crate::ring_token::{Generation, RingToken};
use crate::translate::io_of;
use crate::usdt;

/// The kernel reports a kick that came during a stall this soon after the stall, though not always in the first turn.
const KICKED_WITHIN: Duration = Duration::from_millis(2);

#[expect(clippy::struct_excessive_bools, reason = "independent facts of the virtqueue")]
pub(super) struct QueueSlot {
    pub(super) disk: DiskId,
    pub(super) queue: Queue,
    /// Distinguishes its kick events from those of an earlier virtqueue of the same flow.
    pub(super) generation: Generation,
    /// Requests fetched and not completed.
    pub(super) in_flight: u32,
    /// Set when the virtqueue drains. No more available requests are fetched then.
    pub(super) stopping: Option<Stopping>,
    /// The guest may have queued a request since the last fetch.
    pub(super) kicked: bool,
    /// Whether the device asks the guest to kick when it queues a request. Kicks may come without this.
    pub(super) has_notifications: bool,
    pub(super) times: QueueTimes,
    /// The last fetch. Requests that came before it do not wait in the ring.
    pub(super) fetched_at: Instant,
    /// Since when requests wait in the ring, because the disk is held.
    pub(super) held_since: Option<Instant>,
    /// Whether nothing was fetched since the start. Requests may have waited since the virtqueue's last run.
    pub(super) is_new: bool,
    /// Whether the list of active virtqueues names it.
    pub(super) is_listed: bool,
}

/// Bounds of the age of a virtqueue's requests, over all its runs in this thread.
#[derive(Clone, Copy)]
pub(super) struct QueueTimes {
    /// The first start. Requests in its in-flight log may be that old.
    pub(super) first_start: Instant,
    /// The end of fetching in its last run. Requests that wait in its ring may be that old.
    pub(super) last_fetch: Instant,
}

pub(super) struct Stopping {
    pub(super) reply: Option<mpsc::SyncSender<Option<Queue>>>,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
    /// Its requests were given up. It only waits for the kernel.
    pub(super) given_up: bool,
}

impl Stopping {
    pub(super) fn new(since: Instant, deadline: Instant) -> Self {
        Self { reply: None, since, deadline, given_up: false }
    }
}

impl QueueSlot {
    /// Whether the next turn has to look at the virtqueue.
    pub(super) fn is_active(&self) -> bool {
        self.kicked || self.in_flight > 0 || self.stopping.is_some()
    }

    /// Puts the virtqueue on the list of active ones.
    pub(super) fn list(&mut self, flow: FlowId, active: &mut Vec<FlowId>) {
        if !std::mem::replace(&mut self.is_listed, true) {
            active.push(flow);
        }
    }

    /// Until when the virtqueue may drain, if it is stopping.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let &Stopping { since, deadline, given_up, .. } = self.stopping.as_ref()?;
        let is_short = self.queue.has_faulted() && !given_up;
        Some(if is_short { deadline.min(since + FAULTED_DRAIN_MAX) } else { deadline })
    }
}

impl<R: Ring> IoThread<R> {
    pub(super) fn start_queue(&mut self, now: Instant, disk: DiskId, flow: FlowId, queue: Queue) -> io::Result<()> {
        self.generation = self.generation.next();
        let generation = self.generation;
        self.ring.watch(queue.kick_fd(), RingToken::Kick { flow, generation }.encode())?;
        self.disks[disk].queues.queue_started(&queue);
        // `kicked`: the guest may have queued requests before the start.
        let stopping = self.is_shutting_down.then_some(Stopping::new(now, now));
        let since = self.disks[disk].queues.served_since();
        let times =
            self.stopped_queue_times.remove(&flow).unwrap_or(QueueTimes { first_start: since, last_fetch: since });
        let mut slot = Box::new(QueueSlot {
            disk,
            queue,
            generation,
            in_flight: 0,
            stopping,
            kicked: true,
            has_notifications: false,
            times,
            fetched_at: now,
            held_since: None,
            is_new: true,
            is_listed: false,
        });
        slot.list(flow, &mut self.active);
        self.queues.insert(flow, slot);
        Ok(())
    }

    /// From the next fetch on, guests need not kick: the caller looks for their requests by [`IoThread::has_requests`].
    pub fn start_polling(&mut self) {
        self.is_polling = true;
    }

    /// Whether an active virtqueue has requests that the next turn would fetch. Guests kick the others.
    #[must_use]
    pub fn has_requests(&self) -> bool {
        self.active_slots().any(|slot| self.is_fetched(slot) && slot.queue.has_available())
    }

    fn active_slots(&self) -> impl Iterator<Item = &QueueSlot> {
        self.active.iter().map(|flow| &*self.queues[*flow])
    }

    fn is_fetched(&self, slot: &QueueSlot) -> bool {
        slot.stopping.is_none() && !self.disks.get(slot.disk).is_some_and(DiskState::is_held)
    }

    /// Has guests kick again. To be called before the caller sleeps. Returns whether it must not sleep, as requests have come.
    #[must_use]
    pub fn stop_polling(&mut self) -> bool {
        if !std::mem::take(&mut self.is_polling) {
            return false;
        }
        for &flow in &self.active {
            let slot = self.queues.get_mut(flow).expect("an active virtqueue has a slot");
            if !std::mem::replace(&mut slot.has_notifications, true) {
                // For these requests no kick comes. Those of a held disk are fetched later.
                slot.kicked |= slot.queue.enable_notifications();
            }
        }
        self.active_slots().any(|slot| slot.kicked && self.is_fetched(slot))
    }

    /// Fetches the requests that wait in the virtqueues. A virtqueue with requests in flight is checked in every turn,
    /// as a check is cheaper than a kick. An idle one is checked when kicked, and from then on while the thread polls.
    pub(super) fn fetch(&mut self, now: Instant) {
        if std::mem::take(&mut self.some_held) {
            for (_, disk) in self.disks.iter_mut() {
                disk.held_until.take_if(|until| *until <= now);
                self.some_held |= disk.is_held();
            }
        }
        let stall = self.last_stall.filter(|stall| now - stall.ended < KICKED_WITHIN);
        for &flow in &self.active {
            let slot = self.queues.get_mut(flow).expect("an active virtqueue has a slot");
            if self.some_held && self.disks.get(slot.disk).is_some_and(DiskState::is_held) {
                if slot.queue.to_resubmit() > 0 || slot.queue.has_available() {
                    slot.held_since.get_or_insert(now);
                }
                continue;
            }
            let stopping = slot.stopping.is_some();
            // Requests that an earlier daemon had in flight count as taken from the ring, so they belong to the drain.
            // At the end of this daemon they are left to the next one, like all requests that were not taken.
            if stopping && (self.is_shutting_down || slot.queue.to_resubmit() == 0) {
                continue;
            }
            if !(slot.is_active() || self.is_polling) {
                continue;
            }
            if self.is_polling && std::mem::take(&mut slot.has_notifications) {
                slot.queue.disable_notifications();
            }
            slot.kicked = false;
            let stalled_since = stall.filter(|stall| slot.fetched_at < stall.ended).map(|stall| stall.began);
            let held_since = slot.held_since.take();
            slot.fetched_at = now;
            loop {
                loop {
                    let is_resubmitted = slot.queue.to_resubmit() > 0;
                    if stopping && !is_resubmitted {
                        break;
                    }
                    let request = match slot.queue.pop() {
                        Ok(Some(request)) => request,
                        // The thread of the front-end ends the virtqueue soon.
                        Ok(None) | Err(QueueError::Memory) => break,
                        // The virtqueue has logged its error. Requests fetched before are completed as usual.
                        Err(error) => {
                            self.disks[slot.disk].queues.queue_broke(&slot.queue, now, error);
                            break;
                        }
                    };
                    let since = match (is_resubmitted, slot.is_new) {
                        (true, _) => slot.times.first_start,
                        (false, true) => slot.times.last_fetch,
                        (false, false) => now,
                    };
                    slot.in_flight += 1;
                    let io = io_of(&request, slot.disk, flow);
                    let tag = self.requests.insert(slot.disk, flow, request);
                    let io = Io { tag, ..io };
                    usdt::fetched(&io);
                    self.group.submit_queued_since(now, since, io);
                    if let Some(since) = held_since.or(stalled_since) {
                        self.group.waited_in_virtqueue(now, tag, since, held_since.is_some());
                    }
                }
                if slot.queue.has_used_up_turn() {
                    // The thread serves others meanwhile.
                    slot.kicked = true;
                    self.again_at = Some(now);
                    break;
                }
                if stopping || self.is_polling {
                    break;
                }
                slot.has_notifications = true;
                if !slot.queue.enable_notifications() {
                    break;
                }
            }
            slot.is_new &= stopping;
            let refused = slot.queue.take_refused();
            self.group.count_errors(slot.disk, None, IoError::Malformed, refused.malformed.into());
            self.group.count_errors(slot.disk, None, IoError::Unsupported, refused.unsupported.into());
        }
    }
}
