//! How an I/O thread carries out the messages of other threads.

use std::io;

use monotonic::Instant;
use mpath_core::{DiskId, PathConfig};
use mpath_lifecycle::ThreadMessage;

use super::stopping::SHUTDOWN_DRAIN_MAX;
use super::virtqueues::Stopping;
use super::{DiskState, IoThread};
use crate::connection::{Connection, Tokens};
use crate::ring::Ring;
use crate::ring_token::RingToken;
use crate::{CloseMode, IoThreadMessage, LossReason, PathEvent, PathEventKind};

impl<R: Ring> IoThread<R> {
    /// Carries out a message of another thread.
    ///
    /// # Errors
    ///
    /// The ring is unusable.
    ///
    /// # Panics
    ///
    /// If the message does not suit the messages before it. [`IoThreadMessage`] says what comes first.
    pub fn handle(&mut self, now: Instant, message: IoThreadMessage<R::Socket>) -> io::Result<()> {
        match message {
            IoThreadMessage::StartQueue { disk, flow, queue } => self.start_queue(now, disk, flow, *queue)?,
            IoThreadMessage::StopQueue { flow, drain, reply } => match self.queues.get_mut(flow) {
                Some(slot) => {
                    // At the end of the daemon it drains already, with an earlier deadline.
                    slot.stopping.get_or_insert(Stopping::new(drain.since, drain.until)).reply = Some(reply);
                    slot.times.last_fetch = if slot.is_new { slot.times.last_fetch } else { now };
                    self.group.lift_limits_of(flow);
                    slot.list(flow, &mut self.active);
                }
                // The requester may have ended, and does not need the answer then.
                None => drop(reply.send(self.ended_queues.remove(&flow))),
            },
            IoThreadMessage::AddDisk { disk, name, block_size_bytes, queues } => {
                if self.disks.get(disk).is_none() {
                    let added = DiskState {
                        name,
                        block_size_bytes,
                        queues,
                        last_read_slba: 0,
                        held_until: None,
                        is_suspended: false,
                    };
                    self.disks.insert(disk, added);
                }
            }
            IoThreadMessage::HoldDisk { disk, until } => self.disk_to_hold(disk).held_until = Some(until),
            IoThreadMessage::SuspendDisk(disk) => self.disk_to_hold(disk).is_suspended = true,
            IoThreadMessage::ResumeDisk(disk) => self.disk_to_hold(disk).is_suspended = false,
            IoThreadMessage::AddPath(path) => self.group.add_path(path, PathConfig::default()),
            IoThreadMessage::PathUp { path, association, link } => {
                assert!(self.connections.get(path).is_none(), "a path comes up after its last connection was closed");
                let tokens = Tokens {
                    send: RingToken::Send { path }.encode(),
                    recv: RingToken::Recv { path }.encode(),
                    ended: RingToken::Ended.encode(),
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
                            kind: PathEventKind::Closed { half_closed: None, in_doubt: false },
                        });
                    }
                }
            }
            IoThreadMessage::Path(message) => self.handle_path(now, message),
            IoThreadMessage::SetPolicy(policies) => self.group.set_policy(*policies),
            IoThreadMessage::SetScheduler(scheduler) => self.group.set_scheduler(*scheduler),
            IoThreadMessage::SetWeight { disk, weight } => self.group.set_weight(disk, weight),
            IoThreadMessage::SetHedging(hedging) => self.group.set_hedging(hedging),
            IoThreadMessage::SetPathsExpected(expected) => self.group.set_paths_expected(expected),
            IoThreadMessage::SetInjection { path, class, injection } => {
                self.group.set_injection(now, path, class, injection);
            }
            IoThreadMessage::ClearInjection(path) => self.group.clear_injection(now, path),
            IoThreadMessage::EndInjection { path, class } => self.group.end_injection(now, path, class),
            IoThreadMessage::SetDraining { path, draining } => self.group.set_draining(now, path, draining),
            IoThreadMessage::Barrier(reached) => reached(),
            IoThreadMessage::WhenSettled { disk, settled } => self.settle_callbacks.push((disk, settled)),
            IoThreadMessage::Stats(reply) => reply(self.stats(now)),
            IoThreadMessage::Minute { is_taken, reply } => {
                reply(if is_taken { self.group.take_minute(now) } else { self.group.minute(now) });
            }
            IoThreadMessage::Explain { disk, reply } => reply(self.explain(now, disk)),
            IoThreadMessage::SlowRequests(reply) => reply(self.group.slow_requests(now).copied().collect()),
            IoThreadMessage::WhenFlushed(flushed) => self.flushed_callbacks.push(flushed),
            IoThreadMessage::End => self.is_ending = true,
            IoThreadMessage::Shutdown => {
                self.is_shutting_down = true;
                let deadline = now + SHUTDOWN_DRAIN_MAX;
                for (flow, slot) in self.queues.iter_mut() {
                    self.group.lift_limits_of(flow);
                    slot.list(flow, &mut self.active);
                    match &mut slot.stopping {
                        Some(stopping) => stopping.deadline = stopping.deadline.min(deadline),
                        None => slot.stopping = Some(Stopping::new(now, deadline)),
                    }
                }
            }
        }
        Ok(())
    }

    fn handle_path(&mut self, now: Instant, message: ThreadMessage) {
        match message {
            ThreadMessage::RemovePath(path) => {
                assert!(self.connections.get(path).is_none(), "a path is removed after its last connection was closed");
                self.group.remove_path(path);
            }
            ThreadMessage::PathDown { path, epoch, half_close } => {
                // If there is no connection here, it was closed before, and its end was reported then.
                if self.connections.get(path).is_some_and(|connection| connection.epoch == epoch) {
                    self.close(now, path, CloseMode::with_half_close(half_close));
                }
            }
            ThreadMessage::FenceLifted { path, epoch } => {
                self.requests.fence_lifted(path, epoch);
                self.group.fence_lifted(now, path, epoch);
            }
            ThreadMessage::AddNamespace { path, epoch, disk, limits } => {
                if let Some(connection) = self.connections.get_mut(path).filter(|link| link.epoch == epoch) {
                    connection.add_namespace(disk, limits);
                }
            }
            ThreadMessage::Ana { path, epoch, disk, state } => {
                if self.connections.get(path).is_some_and(|connection| connection.epoch == epoch) {
                    self.group.ana_changed(now, path, disk, state);
                }
            }
            ThreadMessage::DaemonFlush(path) => self.daemon_flushes.begin(now, &mut self.group, path),
        }
    }

    fn disk_to_hold(&mut self, disk: DiskId) -> &mut DiskState {
        self.some_held = true;
        self.disks.get_mut(disk).expect("a disk is added before it is held")
    }
}
