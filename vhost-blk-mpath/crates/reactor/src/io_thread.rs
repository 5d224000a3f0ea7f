//! An I/O thread without its loop and its clock. Each turn handles the kernel's completions, fetches requests of
//! guests, and lets the group decide. Then it publishes completions with at most one signal per virtqueue, and sends what
//! is ready, up to the send budget of each path.

mod daemon_flush;
mod explanation;
mod hedge;
mod message_handling;
mod stopping;
#[cfg(test)]
mod tests;
mod virtqueues;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use monotonic::Instant;
use mpath_core::{Action, DiskId, FlowId, Group, GroupStats, IoError, Outcome, PathId, Stall, Standstill, Tag};
use nvme_tcp::host::{IoCommand, SubmitError};
use vhost_user_blk::{Op, Queue, any_memory_fault};

use self::daemon_flush::DaemonFlushes;
use self::virtqueues::{QueueSlot, QueueTimes};
use crate::by_id::{ById, paths_of};
use crate::connection::Completions;
use crate::connections::Connections;
use crate::disk_queues::DiskQueues;
use crate::requests::Requests;
use crate::ring::{Event, Ring, SimulatedRing};
use crate::ring_token::{Generation, RingToken};
use crate::translate::{command_of, status_of};
use crate::{CloseMode, LossReason, PathEvent, PathEventKind, usdt};

struct DiskState {
    /// Name of the disk, for the log.
    name: Arc<str>,
    block_size_bytes: u32,
    queues: Arc<DiskQueues>,
    /// Where the guest's last read began.
    last_read_slba: u64,
    /// Requests are fetched only after this time.
    held_until: Option<Instant>,
    /// No requests are fetched until the disk is resumed.
    is_suspended: bool,
}

impl DiskState {
    fn is_held(&self) -> bool {
        self.held_until.is_some() || self.is_suspended
    }
}

/// The work of an I/O thread, turn by turn. Its driver passes it events, messages and the time.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of the thread")]
pub struct IoThread<R: Ring> {
    ring: R,
    group: Group,
    requests: Requests,
    queues: ById<FlowId, Box<QueueSlot>>,
    /// The virtqueues that a turn looks at. Idle ones, of which there may be thousands, cost it nothing.
    active: Vec<FlowId>,
    /// The thread looks into every active virtqueue in every turn, so their guests need not kick.
    is_polling: bool,
    /// The number of requests finished since [`IoThread::take_finished`].
    finished: u64,
    /// Virtqueues that the shutdown has ended and no front-end's thread has taken back.
    ended_queues: BTreeMap<FlowId, Queue>,
    connections: Connections<R>,
    report: Box<dyn Fn(PathEvent<R::Socket>) + Send>,
    disks: ById<DiskId, DiskState>,
    /// Whether a disk may be held.
    some_held: bool,
    /// That of the virtqueue started last.
    generation: Generation,
    /// Set by [`IoThreadMessage::Shutdown`](crate::IoThreadMessage::Shutdown).
    is_shutting_down: bool,
    /// Set by [`IoThreadMessage::End`](crate::IoThreadMessage::End).
    is_ending: bool,
    completions: Completions,
    /// The time of the last turn, if that turn has left something to do at once: then the next turn is due. A path may have more to
    /// send, or long chains have used up the turn of a virtqueue.
    again_at: Option<Instant>,
    /// The suspect paths that were reported, as a bit set.
    suspects: u64,
    /// Times of virtqueues that ran here and may start again.
    stopped_queue_times: BTreeMap<FlowId, QueueTimes>,
    /// Callbacks that wait for the end of [`Requests::has_writes_in_doubt_of`].
    settle_callbacks: Vec<(DiskId, Box<dyn FnOnce() + Send>)>,
    daemon_flushes: DaemonFlushes,
    /// Callbacks that wait for the end of the daemon flush at the daemon's end.
    flushed_callbacks: Vec<Box<dyn FnOnce() + Send>>,
    /// The last stall. Requests may wait in virtqueues since it began.
    last_stall: Option<Stall>,
}

impl<R: Ring> IoThread<R> {
    /// A thread with this group. It calls `report` with the events of its paths. `report` must not block.
    pub fn new(ring: R, group: Group, report: Box<dyn Fn(PathEvent<R::Socket>) + Send>) -> Self {
        Self {
            ring,
            group,
            requests: Requests::default(),
            queues: ById::default(),
            active: Vec::new(),
            is_polling: false,
            finished: 0,
            ended_queues: BTreeMap::new(),
            connections: Connections::default(),
            report,
            disks: ById::default(),
            some_held: false,
            generation: Generation::default(),
            is_shutting_down: false,
            is_ending: false,
            completions: Vec::new(),
            again_at: None,
            suspects: 0,
            stopped_queue_times: BTreeMap::new(),
            settle_callbacks: Vec::new(),
            daemon_flushes: DaemonFlushes::default(),
            flushed_callbacks: Vec::new(),
            last_stall: None,
        }
    }

    /// The ring.
    pub fn ring(&mut self) -> &mut R {
        &mut self.ring
    }

    /// Whether the last turn has left something to do at once.
    #[must_use]
    pub fn has_more_to_do(&self) -> bool {
        self.again_at.is_some()
    }

    /// A copy of the statistics.
    #[must_use]
    pub fn stats(&self, now: Instant) -> GroupStats {
        self.group.stats(now)
    }

    /// The number of requests finished since the last call.
    pub(crate) fn take_finished(&mut self) -> u64 {
        std::mem::take(&mut self.finished)
    }

    /// Whether [`IoThreadMessage::End`](crate::IoThreadMessage::End) has been carried out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_ending && self.queues.is_empty() && self.connections.is_empty()
    }

    /// Whether an access to memory that the disk's front-end shares has failed. The back-end hangs up on that
    /// front-end.
    #[must_use]
    pub fn has_faulted(&self, disk: DiskId) -> bool {
        self.queues.iter().any(|(_, slot)| slot.disk == disk && slot.queue.has_faulted())
    }

    /// Whether requests are open.
    pub(crate) fn is_busy(&self) -> bool {
        self.group.open() > 0
    }

    /// The number of the virtqueue started last.
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Begins to number virtqueues behind this one. Events of an earlier path set with the same tokens may be under way.
    pub(crate) fn continue_from(&mut self, generation: Generation) {
        self.generation = generation;
    }

    /// Whether writes that were given up may still be executed.
    #[must_use]
    pub fn has_writes_in_doubt(&self) -> bool {
        self.requests.has_writes_in_doubt()
    }

    /// Takes note of a time in which the thread stood still. Call it before anything else in the turn.
    pub fn stood_still(&mut self, standstill: &Standstill) {
        self.group.stood_still(standstill);
        self.last_stall = standstill.stall().or(self.last_stall);
    }

    /// Ends a turn, after all its events and messages.
    ///
    /// # Errors
    ///
    /// The ring is unusable.
    pub fn finish_turn(&mut self, now: Instant) -> io::Result<()> {
        self.group.publish_oldest_if_due(now);
        while let Some(path) = self.group.timed_out(now, |path| self.connections.get(path)?.oldest_sent()) {
            self.lose(now, path, LossReason::TimedOut(self.group.io_timeout()));
        }
        self.again_at = None;
        self.fetch(now);
        self.run_actions(now);
        self.report_suspects();
        self.close_quiescent(now);
        self.publish(now)?;
        self.submit_daemon_flushes();
        // After the completions, because a send may wake a controller on this processor. A path that is lost here has a
        // receive under way, whose end brings the next turn.
        self.transmit(now);
        if any_memory_fault() {
            // Sends read guest memory, and the virtqueue may have no other event soon.
            for &flow in &self.active {
                let _ = self.queues.get_mut(flow).expect("an active virtqueue has a slot").queue.check_memory();
            }
        }
        Ok(())
    }

    /// Reports paths that became suspect or recovered. Lost paths have reports of their own.
    fn report_suspects(&mut self) {
        let suspects = self.group.suspects();
        for path in paths_of(suspects ^ std::mem::replace(&mut self.suspects, suspects)) {
            if let Some(connection) = self.connections.get(path).filter(|connection| !connection.is_closing()) {
                let is_suspect = suspects & 1 << path.0 != 0;
                let kind = if is_suspect { PathEventKind::Suspect } else { PathEventKind::Recovered };
                (self.report)(PathEvent { path, epoch: connection.epoch, kind });
            }
        }
    }

    /// When the next turn is due, even without an event.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let stopping = self.active.iter().filter(|flow| self.queues[**flow].stopping.is_some());
        let deadlines = stopping.flat_map(|&flow| [self.queues[flow].deadline(), self.in_vain_at(flow)]).flatten();
        let held = self.some_held.then(|| self.disks.iter().filter_map(|(_, disk)| disk.held_until));
        let held = held.into_iter().flatten();
        let deadlines = deadlines.chain(held).chain(self.group.next_timeout());
        deadlines.chain(self.daemon_flushes.until()).chain(self.again_at).min()
    }

    /// Handles an event of the ring.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) -> io::Result<()> {
        match RingToken::decode(event.token) {
            RingToken::Kick { flow, generation } => {
                if let Some(slot) = self.queues.get_mut(flow).filter(|slot| slot.generation == generation) {
                    slot.kicked = true;
                    slot.list(flow, &mut self.active);
                    if event.result < 0 {
                        // The descriptor cannot be polled. While requests are in flight, the ring is checked in every
                        // turn.
                        let (disk, queue) = (&*self.disks[slot.disk].name, slot.queue.index());
                        tracing::error!(disk, queue, error = %io::Error::from_raw_os_error(-event.result), "cannot watch the kick descriptor");
                    } else if !event.more {
                        self.ring.watch(slot.queue.kick_fd(), event.token)?;
                    }
                }
            }
            RingToken::Ended => {}
            RingToken::Send { path } => {
                let connection = self.connections.get_mut(path).expect("a connection outlives its operations");
                let sent = connection.on_send(now, &mut self.ring, &self.requests, event.result, &mut self.completions);
                self.deliver_completions(now, path);
                if let Err(error) = sent {
                    self.lose(now, path, LossReason::Socket(error));
                }
            }
            RingToken::Recv { path } => {
                let connection = self.connections.get_mut(path).expect("a connection outlives its operations");
                let received =
                    connection.on_recv(path, &mut self.ring, &mut self.requests, event.result, &mut self.completions);
                let answered = connection.take_answered();
                while let Some(kind) = connection.take_error(now) {
                    (self.report)(PathEvent { path, epoch: connection.epoch, kind });
                }
                if let Some(bytes) = connection.take_smaller_transfer() {
                    let kind = PathEventKind::SmallerTransfer { bytes };
                    (self.report)(PathEvent { path, epoch: connection.epoch, kind });
                }
                self.deliver_completions(now, path);
                if event.result > 0 {
                    // Any data show that the path is alive.
                    self.group.progress(now, path, answered.requests, answered.read);
                }
                if let Err(reason) = received {
                    self.lose(now, path, reason);
                }
            }
        }
        Ok(())
    }

    /// Passes the completions of one path to the group.
    fn deliver_completions(&mut self, now: Instant, path: PathId) {
        for (tag, outcome, sent_at) in self.completions.drain(..) {
            if tag == Tag::PROBE {
                self.group.probed(now, path, outcome == Outcome::Success);
                continue;
            }
            if let Some(disk) = tag.daemon_flushed() {
                self.daemon_flushes.answered(now, &mut self.group, path, disk, outcome);
                continue;
            }
            if let Some(tag) = tag.hedged() {
                self.group.hedged(now, path, tag, outcome);
                continue;
            }
            usdt::answered(tag, path);
            if let Some(sent_at) = sent_at {
                self.group.sent(path, tag, sent_at);
            }
            let is_done = outcome == Outcome::Success;
            if !is_done && self.requests.take_partly_done(tag) {
                self.group.partly_done(path, tag);
            }
            self.group.complete(now, path, tag, outcome);
            if let Some(flow) = self.requests.answered(tag, path, is_done) {
                self.queues.get_mut(flow).expect("a virtqueue outlives its requests").in_flight -= 1;
            }
        }
    }

    /// Carries out the group's decisions until it has no more.
    fn run_actions(&mut self, now: Instant) {
        while let Some(action) = self.group.poll_action(now) {
            match action {
                Action::Issue { path, tag } => self.issue(now, path, tag),
                Action::Recall { path, tag } => self.recall(now, path, tag),
                Action::Hedge { path, tag } => self.hedge(now, path, tag),
                Action::DropHedge { path, tag } => self.drop_hedge(now, path, tag),
                Action::Adopt { tag, .. } => self.requests.adopt(tag),
                Action::Probe { path, disk, bytes } => self.probe(now, path, disk, bytes),
                Action::Finish { tag, result } => self.finish(tag, result),
            }
        }
    }

    fn issue(&mut self, now: Instant, path: PathId, tag: Tag) {
        usdt::issued(tag, path);
        let Some((id, request, parts)) = self.requests.issue(tag, path) else {
            self.group.complete(now, path, tag, Outcome::GivenUp);
            return;
        };
        let disk = self.disks.get_mut(id).expect("a disk is added before its virtqueues");
        let command = command_of(request, disk.block_size_bytes);
        if let IoCommand::Read { slba, .. } = command {
            disk.last_read_slba = slba;
        }
        let submitted = self.connections.open_mut(path).is_some_and(|connection| {
            let submitted = connection.submit_parts(tag, id, command, parts);
            debug_assert!(!matches!(submitted, Err(SubmitError::Full)), "the group knows how many commands have room");
            submitted.is_ok()
        });
        if !submitted {
            // No byte of the command was handed to a socket, so the request may go elsewhere at once.
            self.completions.push((tag, Outcome::Lost { indeterminate: false }, None));
            self.deliver_completions(now, path);
        }
    }

    /// Reads where the guest's last read began, so that the probe costs the target as much as a request.
    fn probe(&mut self, now: Instant, path: PathId, id: DiskId, bytes: u32) {
        let disk = self.disks.get(id).expect("a disk is added before a path that leads to it");
        let blocks = (bytes / disk.block_size_bytes).max(1);
        let submitted = self.connections.open_mut(path).is_some_and(|connection| {
            // The disk may end before the probe does, so block 0 is the second choice.
            let mut places = [disk.last_read_slba, 0].into_iter();
            places.any(|slba| connection.submit(Tag::PROBE, id, IoCommand::Read { slba, blocks }).is_ok())
        });
        if !submitted {
            self.group.probed(now, path, false);
        }
    }

    fn recall(&mut self, now: Instant, path: PathId, tag: Tag) {
        let connection = self.connections.get_mut(path).expect("a live path has a connection");
        match connection.recall(&mut self.ring, tag) {
            Ok(Some(outcome)) => {
                self.completions.push((tag, outcome, None));
                self.deliver_completions(now, path);
            }
            Ok(None) => {}
            Err(error) => self.lose(now, path, LossReason::Socket(error)),
        }
    }

    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        self.finished += 1;
        usdt::finished(tag, result);
        if let Err(error) = result
            && let Some((disk, failed)) = self.requests.failed(tag, error)
        {
            self.group.record_failed(disk, failed);
        }
        let finished = self.requests.finish(tag);
        if self.group.asks_for_sector() {
            let with_sector = finished.as_ref().filter(|(_, request)| request.op != Op::Flush);
            self.group.set_slow_sector(with_sector.map(|(_, request)| request.sector));
        }
        let Some((flow, request)) = finished else { return };
        let slot = self.queues.get_mut(flow).expect("a virtqueue outlives its requests");
        slot.in_flight -= 1;
        slot.queue.complete(request, status_of(result));
    }

    fn transmit(&mut self, now: Instant) {
        let mut lost = Vec::new();
        for path in self.connections.used() {
            let Some(connection) = self.connections.get_mut(path) else { continue };
            match connection.transmit(now, &mut self.ring, &self.requests) {
                Ok(true) => self.again_at = Some(now),
                Ok(false) => self.connections.rest(path),
                Err(error) => lost.push((path, error)),
            }
        }
        for (path, error) in lost {
            self.lose(now, path, LossReason::Socket(error));
        }
    }

    /// Reports a failed connection and closes it.
    fn lose(&mut self, now: Instant, path: PathId, reason: LossReason) {
        let connection = self.connections.get_mut(path).expect("only an open connection fails");
        if !connection.is_closing() {
            let close_mode = match reason {
                LossReason::TimedOut(_) | LossReason::GivenUp => connection.close_mode,
                LossReason::Socket(_) | LossReason::Queue(_) | LossReason::Tls(_) => CloseMode::Reset,
            };
            connection.report_violation(&mut self.ring);
            (self.report)(PathEvent { path, epoch: connection.epoch, kind: PathEventKind::Lost(reason) });
            self.close(now, path, close_mode);
        }
    }

    /// Ends new requests to the path and begins to close its connection.
    fn close(&mut self, now: Instant, path: PathId, close_mode: CloseMode) {
        if let Some(connection) = self.connections.get_mut(path) {
            connection.close(&mut self.ring, close_mode);
            self.daemon_flushes.path_lost(path);
            self.group.path_lost(now, path);
        }
    }

    /// Ends connections whose last operation came back, and returns their requests to the group.
    fn close_quiescent(&mut self, now: Instant) {
        while let Some((path, connection)) = self.connections.take_quiescent() {
            let epoch = connection.epoch;
            let (lost, half_closed) = connection.into_lost(&mut self.ring);
            self.completions.extend(lost);
            let mut in_doubt = false;
            for &(tag, outcome, _) in &self.completions {
                if outcome == (Outcome::Lost { indeterminate: true }) {
                    self.requests.mark_in_doubt(tag, path, epoch);
                    in_doubt = true;
                }
            }
            self.deliver_completions(now, path);
            (self.report)(PathEvent { path, epoch, kind: PathEventKind::Closed { half_closed, in_doubt } });
            // The group may send its requests elsewhere at once.
            self.run_actions(now);
            self.transmit(now);
        }
    }
}

impl<S: Copy + Eq> IoThread<SimulatedRing<S>> {
    /// Handles the events of the simulated ring.
    ///
    /// # Errors
    ///
    /// The ring is unusable.
    pub fn take_events(&mut self, now: Instant) -> io::Result<()> {
        let events = self.ring.take_events();
        events.into_iter().try_for_each(|event| self.on_event(now, event))
    }
}
