//! One I/O thread, but for its loop and its clock. Each turn: take what the kernel finished, fetch what the guest queued, let
//! the group decide, send what is ready in one send a path, publish what is done with one signal a virtqueue.

mod drain;
#[cfg(test)]
mod given_up_tests;
mod hedge;
mod virtqueues;
mod write_back;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use mpath_core::{Action, DiskId, FlowId, Group, GroupStats, IoError, Outcome, PathConfig, PathId, Tag};
use nvme_tcp::host::IoCommand;

use self::drain::{DRAIN_MAX, SHUTDOWN_DRAIN_MAX};
use self::virtqueues::{QueueSlot, Seen, Stopping};
use self::write_back::WriteBacks;
use crate::classify::{command_of, status_of};
use crate::connection::{Completions, Connection, Tokens};
use crate::message::{Ending, LossReason, Message, PathEvent, PathEventKind};
use crate::requests::Requests;
use crate::ring::{Event, Ring, SimulatedRing};
use crate::token::Token;
use crate::unanswered::Unanswered;

struct Disk {
    /// For the log.
    name: Arc<str>,
    block_size_bytes: u32,
    unanswered: Arc<Unanswered>,
    /// Where the guest has read last.
    last_read_slba: u64,
    /// Nothing is fetched before.
    held_until: Option<Instant>,
    /// Nor while this is not 0.
    suspended: u32,
}

impl Disk {
    fn is_held(&self) -> bool {
        self.held_until.is_some() || self.suspended > 0
    }
}

/// What an I/O thread does, turn by turn: whoever drives it tells it what has happened, and the time.
pub struct IoThread<R: Ring> {
    ring: R,
    group: Group,
    requests: Requests,
    queues: BTreeMap<FlowId, QueueSlot>,
    connections: BTreeMap<PathId, Connection<R>>,
    report: Box<dyn Fn(PathEvent<R::Socket>) + Send>,
    disks: BTreeMap<DiskId, Disk>,
    generation: u32,
    /// Set by [`Message::Shutdown`].
    ending: bool,
    completions: Completions,
    /// The suspect paths that were reported.
    suspects: u64,
    /// Virtqueues that were here and may come back.
    left: BTreeMap<FlowId, Seen>,
    /// Who waits for the end of [`Requests::leaves_doubt_of`].
    settling: Vec<(DiskId, Box<dyn FnOnce() + Send>)>,
    write_backs: WriteBacks,
}

impl<R: Ring> IoThread<R> {
    /// One with this group, that calls `report`, which must not block, with what happens to its paths.
    pub fn new(ring: R, group: Group, report: Box<dyn Fn(PathEvent<R::Socket>) + Send>) -> Self {
        Self {
            ring,
            group,
            requests: Requests::default(),
            queues: BTreeMap::new(),
            connections: BTreeMap::new(),
            report,
            disks: BTreeMap::new(),
            generation: 0,
            ending: false,
            completions: Vec::new(),
            suspects: 0,
            left: BTreeMap::new(),
            settling: Vec::new(),
            write_backs: WriteBacks::default(),
        }
    }

    /// Its ring.
    pub fn ring(&mut self) -> &mut R {
        &mut self.ring
    }

    /// A copy of its statistics.
    #[must_use]
    pub fn stats(&self, now: Instant) -> GroupStats {
        self.group.stats(now)
    }

    /// Whether [`Message::Shutdown`] has been carried out.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending && self.queues.is_empty() && self.connections.is_empty()
    }

    /// Whether memory that the front-end of a disk shares could not be accessed, so that it is hung up on.
    #[must_use]
    pub fn has_faulted(&self, disk: DiskId) -> bool {
        self.queues.values().any(|slot| slot.disk == disk && slot.queue.has_faulted())
    }

    /// Whether it gave up writes that may still be executed.
    #[must_use]
    pub fn leaves_doubt(&self) -> bool {
        self.requests.leaves_doubt()
    }

    /// Ends a turn, after every event and message of which it was told: it does what there is to do.
    ///
    /// # Errors
    /// The ring is unusable.
    pub fn finish_turn(&mut self, now: Instant) -> io::Result<()> {
        while let Some(path) = self.group.timed_out(now, |path| self.connections.get(&path)?.oldest_sent()) {
            self.lose(now, path, LossReason::TimedOut(self.group.io_timeout()));
        }
        self.fetch(now);
        self.act(now);
        self.transmit(now);
        self.report_suspects();
        self.close_quiescent(now);
        self.publish(now)
    }

    /// Says which paths have become suspect and which are no more. Those that are lost say so otherwise.
    fn report_suspects(&mut self) {
        let suspects = self.group.suspects();
        let mut changed = suspects ^ std::mem::replace(&mut self.suspects, suspects);
        while changed != 0 {
            let path = PathId(changed.trailing_zeros() as u16);
            let suspect = suspects & changed & changed.wrapping_neg() != 0;
            changed &= changed - 1;
            if let Some(connection) = self.connections.get(&path).filter(|connection| !connection.is_closing()) {
                let kind = if suspect { PathEventKind::Suspect } else { PathEventKind::Recovered };
                (self.report)(PathEvent { path, epoch: connection.epoch, kind });
            }
        }
    }

    /// When the next turn is due, whatever happens.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let deadlines = self.queues.values().filter_map(QueueSlot::deadline);
        let held = self.disks.values().filter_map(|disk| disk.held_until);
        deadlines.chain(held).chain(self.group.next_timeout()).chain(self.write_backs.until()).min()
    }

    /// What the ring has reported.
    pub(crate) fn on_event(&mut self, now: Instant, event: Event) -> io::Result<()> {
        match Token::decode(event.token) {
            Token::Kick { flow, generation } => {
                if let Some(slot) = self.queues.get_mut(&flow).filter(|slot| slot.generation == generation) {
                    slot.kicked = true;
                    if event.result < 0 {
                        // Not a descriptor that can be polled. Requests in flight still have the ring looked at.
                        let (disk, queue) = (&*self.disks[&slot.disk].name, slot.queue.index());
                        tracing::error!(disk, queue, error = %io::Error::from_raw_os_error(-event.result), "kick cannot be watched");
                    } else if !event.more {
                        self.ring.watch(slot.queue.kick_fd(), event.token)?;
                    }
                }
            }
            Token::Ended => {}
            Token::Inbox => unreachable!("whoever drives the thread takes its messages"),
            Token::Send { path } => {
                let connection = self.connections.get_mut(&path).expect("a connection outlives its operations");
                let sent = connection.on_send(now, &mut self.ring, &self.requests, event.result, &mut self.completions);
                self.settle(now, path);
                if let Err(error) = sent {
                    self.lose(now, path, LossReason::Socket(error));
                }
            }
            Token::Recv { path } => {
                let connection = self.connections.get_mut(&path).expect("a connection outlives its operations");
                let received =
                    connection.on_recv(&mut self.ring, &mut self.requests, event.result, &mut self.completions);
                let answered = connection.take_answered();
                if connection.take_ana_error(now) {
                    (self.report)(PathEvent { path, epoch: connection.epoch, kind: PathEventKind::AnaError });
                }
                if let Some(bytes) = connection.take_smaller_transfer() {
                    let kind = PathEventKind::SmallerTransfer { bytes };
                    (self.report)(PathEvent { path, epoch: connection.epoch, kind });
                }
                self.settle(now, path);
                if event.result > 0 {
                    // Whatever it is, the path is alive.
                    self.group.progress(now, path, answered.requests, answered.read);
                }
                if let Err(reason) = received {
                    self.lose(now, path, reason);
                }
            }
        }
        Ok(())
    }

    /// Passes the completions of one path on to the group.
    fn settle(&mut self, now: Instant, path: PathId) {
        for (tag, outcome) in self.completions.drain(..) {
            if tag == Tag::PROBE {
                self.group.probed(now, path, outcome == Outcome::Success);
                continue;
            }
            if let Some(disk) = tag.written_back() {
                self.write_backs.answered(path, disk);
                self.group.written_back(path, disk, outcome == Outcome::Success);
                continue;
            }
            if let Some(tag) = tag.hedged() {
                self.group.hedged(now, path, tag, outcome);
                continue;
            }
            self.group.complete(now, path, tag, outcome);
            if let Some(flow) = self.requests.answered(tag, path) {
                self.queues.get_mut(&flow).expect("a virtqueue outlives its requests").in_flight -= 1;
            }
        }
    }

    /// What another thread has to say.
    ///
    /// # Errors
    /// The ring is unusable.
    ///
    /// # Panics
    /// If the message does not suit those before it: its [`Message`] says what comes first.
    pub fn handle(&mut self, now: Instant, message: Message<R::Socket>) -> io::Result<()> {
        match message {
            Message::StartQueue { disk, flow, queue } => self.start_queue(now, disk, flow, *queue)?,
            Message::StopQueue { flow, reply } => match self.queues.get_mut(&flow) {
                Some(slot) => {
                    // At the end of the daemon it has its deadline already, and a sooner one.
                    let deadline = slot.stopping.as_ref().map_or(now + DRAIN_MAX, |stopping| stopping.deadline);
                    slot.stopping = Some(Stopping { reply: Some(reply), since: now, deadline });
                    slot.seen.last = if slot.is_new { slot.seen.last } else { now };
                    self.group.lift_limits_of(flow);
                }
                // The front-end that asked may be gone; then nobody needs the answer.
                None => drop(reply.send(None)),
            },
            Message::AddDisk { disk, name, block_size_bytes, unanswered } => {
                let added =
                    Disk { name, block_size_bytes, unanswered, last_read_slba: 0, held_until: None, suspended: 0 };
                self.disks.entry(disk).or_insert(added);
            }
            Message::HoldDisk { disk, until } => self.disk_to_hold(disk).held_until = Some(until),
            Message::SuspendDisk(disk) => self.disk_to_hold(disk).suspended += 1,
            Message::ResumeDisk(disk) => self.disk_to_hold(disk).suspended -= 1,
            Message::AddPath(path) => self.group.add_path(path, PathConfig::default()),
            Message::RemovePath(path) => {
                assert!(!self.connections.contains_key(&path), "a path is removed after its last life was closed");
                self.group.remove_path(path);
            }
            Message::PathUp { path, association, link } => {
                assert!(!self.connections.contains_key(&path), "a path comes up after its last life was closed");
                let tokens = Tokens {
                    send: Token::Send { path }.encode(),
                    recv: Token::Recv { path }.encode(),
                    ended: Token::Ended.encode(),
                };
                let epoch = association.epoch;
                match Connection::open(epoch, *link, tokens, &mut self.ring, &self.requests) {
                    Ok(connection) => {
                        self.connections.insert(path, connection);
                        self.group.path_up(now, path, association);
                    }
                    Err(error) => {
                        let lost = PathEventKind::Lost(LossReason::Socket(error));
                        (self.report)(PathEvent { path, epoch, kind: lost });
                        (self.report)(PathEvent {
                            path,
                            epoch,
                            kind: PathEventKind::Closed { draining: None, in_doubt: false },
                        });
                    }
                }
            }
            Message::PathDown { path, epoch, ending } => {
                // If it is not here it closed before on its own; the report was sent then.
                if self.connections.get(&path).is_some_and(|connection| connection.epoch == epoch) {
                    self.close(now, path, ending);
                }
            }
            Message::FenceLifted { path, epoch } => {
                self.requests.fence_lifted(path, epoch);
                self.group.fence_lifted(now, path, epoch);
            }
            Message::AddNamespace { path, epoch, disk, limits } => {
                if let Some(connection) = self.connections.get_mut(&path).filter(|link| link.epoch == epoch) {
                    connection.add_namespace(disk, limits);
                }
            }
            Message::Ana { path, epoch, disk, state } => {
                if self.connections.get(&path).is_some_and(|connection| connection.epoch == epoch) {
                    self.group.ana_changed(now, path, disk, state);
                }
            }
            Message::SetPolicy(policies) => self.group.set_policy(*policies),
            Message::SetScheduler(scheduler) => self.group.set_scheduler(*scheduler),
            Message::SetWeight { disk, weight } => self.group.set_weight(disk, weight),
            Message::SetHedging(hedging) => self.group.set_hedging(hedging),
            Message::SetPathsExpected(expected) => self.group.set_paths_expected(expected),
            Message::SetInjection { path, class, injection } => self.group.set_injection(now, path, class, injection),
            Message::ClearInjection(path) => self.group.clear_injection(now, path),
            Message::SetDraining { path, draining } => self.group.set_draining(now, path, draining),
            Message::Barrier(reached) => reached(),
            Message::WhenSettled { disk, settled } => self.settling.push((disk, settled)),
            Message::Stats(reply) => reply(self.stats(now)),
            Message::Shutdown => {
                self.ending = true;
                let deadline = now + SHUTDOWN_DRAIN_MAX;
                for (&flow, slot) in &mut self.queues {
                    self.group.lift_limits_of(flow);
                    match &mut slot.stopping {
                        Some(stopping) => stopping.deadline = stopping.deadline.min(deadline),
                        None => slot.stopping = Some(Stopping { reply: None, since: now, deadline }),
                    }
                }
            }
        }
        Ok(())
    }

    fn disk_to_hold(&mut self, disk: DiskId) -> &mut Disk {
        self.disks.get_mut(&disk).expect("a disk is added before it is held")
    }

    /// Carries out what the group decides, until it has nothing more to say.
    fn act(&mut self, now: Instant) {
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
        let Some((id, request)) = self.requests.issue(tag, path) else {
            self.group.complete(now, path, tag, Outcome::GivenUp);
            return;
        };
        let disk = self.disks.get_mut(&id).expect("a disk is added before its virtqueues");
        let command = command_of(request, disk.block_size_bytes);
        if let IoCommand::Read { slba, .. } = command {
            disk.last_read_slba = slba;
        }
        let open = self.connections.get_mut(&path).filter(|connection| !connection.is_closing());
        let submitted = open.is_some_and(|connection| connection.submit(tag, id, command).is_ok());
        if !submitted {
            // Not a byte of it was handed to a socket, so it may go elsewhere at once.
            self.completions.push((tag, Outcome::Lost { indeterminate: false }));
            self.settle(now, path);
        }
    }

    /// Reads where the guest has read last, so that the target has no more to do, and no less, than for a request.
    fn probe(&mut self, now: Instant, path: PathId, id: DiskId, bytes: u32) {
        let disk = self.disks.get(&id).expect("a disk is added before a path that leads to it");
        let blocks = (bytes / disk.block_size_bytes).max(1);
        let open = self.connections.get_mut(&path).filter(|connection| !connection.is_closing());
        let submitted = open.is_some_and(|connection| {
            // The end of the disk may be nearer than that.
            let mut places = [disk.last_read_slba, 0].into_iter();
            places.any(|slba| connection.submit(Tag::PROBE, id, IoCommand::Read { slba, blocks }).is_ok())
        });
        if !submitted {
            self.group.probed(now, path, false);
        }
    }

    fn recall(&mut self, now: Instant, path: PathId, tag: Tag) {
        let connection = self.connections.get_mut(&path).expect("a live path has a connection");
        match connection.recall(&mut self.ring, tag) {
            Ok(Some(outcome)) => {
                self.completions.push((tag, outcome));
                self.settle(now, path);
            }
            Ok(None) => {}
            Err(error) => self.lose(now, path, LossReason::Socket(error)),
        }
    }

    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        let Some((flow, request)) = self.requests.finish(tag) else { return };
        let slot = self.queues.get_mut(&flow).expect("a virtqueue outlives its requests");
        slot.in_flight -= 1;
        slot.queue.complete(request.token, status_of(result));
    }

    fn transmit(&mut self, now: Instant) {
        let mut lost = Vec::new();
        for (&path, connection) in &mut self.connections {
            if let Err(error) = connection.transmit(now, &mut self.ring, &self.requests) {
                lost.push((path, error));
            }
        }
        for (path, error) in lost {
            self.lose(now, path, LossReason::Socket(error));
        }
    }

    /// A connection failed: say so, and close it.
    fn lose(&mut self, now: Instant, path: PathId, reason: LossReason) {
        let connection = self.connections.get(&path).expect("only an open connection fails");
        if !connection.is_closing() {
            let ending = match reason {
                LossReason::TimedOut(_) | LossReason::Abandoned => connection.ending,
                LossReason::Socket(_) | LossReason::Queue(_) => Ending::Reset,
            };
            connection.report_violation(&mut self.ring);
            (self.report)(PathEvent { path, epoch: connection.epoch, kind: PathEventKind::Lost(reason) });
            self.close(now, path, ending);
        }
    }

    /// No more requests for this path, and its socket begins to close.
    fn close(&mut self, now: Instant, path: PathId, ending: Ending) {
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.close(&mut self.ring, ending);
            self.write_backs.path_lost(path);
            self.group.path_lost(now, path);
        }
    }

    /// Ends the connections whose last operation came back, and gives their requests back to the group.
    fn close_quiescent(&mut self, now: Instant) {
        let quiescent = self.connections.iter().filter(|(_, connection)| connection.is_quiescent());
        let ended: Vec<PathId> = quiescent.map(|(&path, _)| path).collect();
        for path in ended {
            let connection = self.connections.remove(&path).expect("just seen");
            let epoch = connection.epoch;
            let (lost, draining) = connection.lost(&mut self.ring);
            self.completions.extend(lost);
            let mut in_doubt = false;
            for &(tag, outcome) in &self.completions {
                if outcome == (Outcome::Lost { indeterminate: true }) {
                    self.requests.lost_in_doubt(tag, path, epoch);
                    in_doubt = true;
                }
            }
            self.settle(now, path);
            (self.report)(PathEvent { path, epoch, kind: PathEventKind::Closed { draining, in_doubt } });
            // Its requests may go elsewhere at once.
            self.act(now);
            self.transmit(now);
        }
    }
}

impl<S: Copy + Eq> IoThread<SimulatedRing<S>> {
    /// Takes what the ring has to report.
    ///
    /// # Errors
    /// The ring is unusable.
    pub fn take_events(&mut self, now: Instant) -> io::Result<()> {
        let events = self.ring.take_events();
        events.into_iter().try_for_each(|event| self.on_event(now, event))
    }
}
