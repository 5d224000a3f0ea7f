//! Decides: `explain` gives this reason; `opinions` of each policy say what the policy thinks.
//!
//! Explanations of what the group does next, for the operator. An explanation follows the rules of the real choice: it
//! walks the scheduler, calls [`Group::offer`] and asks the policy. It works on copies of the scheduler and the
//! policies, so it changes nothing.

use std::collections::BTreeMap;

use monotonic::{Duration, Instant};

use super::Group;
use super::candidates::without_room;
use super::dispatch::query;
use crate::explanation::{Explanation, FlushTarget, Next, NextRequest, PathVerdict, WaitCause, Waiting, WhyNot};
use crate::path::Standing;
use crate::policy::{Choice, Opinion};
use crate::requests::{Request, State};
use crate::scheduler::Scheduler;
use crate::{AnaState, DiskId, FlowId, Io, Op, PathId, Tag};

/// The size of a request that does not exist.
const TYPICAL_BYTES: u32 = 4096;

/// The first request of a flow, in the order in which the scheduler offers them.
struct Head {
    tag: Tag,
    /// Paths without room for an earlier request, as a set.
    reserved_paths: u64,
    choice: Choice,
    has_room: bool,
}

/// The first requests of all flows that may go, and the paths that they reserve.
struct Walk {
    heads: Vec<Head>,
    reserved_paths: u64,
    /// The scheduler after the walk. The walk has asked the limits of the disks.
    scheduler: Scheduler,
}

impl Group {
    /// Explains which path the next read and the next write of a disk would take, and what its requests wait for.
    #[must_use]
    pub fn explain(&self, now: Instant, disk: DiskId) -> Explanation {
        let walk = self.walk(now);
        Explanation {
            read: self.explain_next(now, disk, Op::Read, &walk),
            write: self.explain_next(now, disk, Op::Write, &walk),
            flush: self.flush_targets(now, disk),
            waiting: self.waiting(now, disk, &walk),
        }
    }

    /// Walks over the waiting requests as [`Group::dispatch`] does.
    fn walk(&self, now: Instant) -> Walk {
        let (mut scheduler, mut policies) = (self.scheduler.clone(), self.policies.clone());
        let (mut heads, mut last, mut reserved_paths) = (Vec::new(), None, 0);
        let mut waiting_for = [0; 3];
        while let Some((place, tag)) = scheduler.candidate(now, last) {
            last = Some(place);
            let request = &self.requests[tag];
            if self.has_flush_commands(tag) || self.is_delayed(now, tag) {
                continue;
            }
            let (class, choices) = (request.io.op.class(), self.choices(now, request));
            let candidates = self.offer(&request.io, choices, reserved_paths);
            let has_room = candidates.iter().any(|candidate| candidate.has_room);
            let is_known_to_wait = choices != 0 && waiting_for[class.index()] == choices;
            let query = query(now, &request.io, scheduler.ready());
            let choice = if has_room && !is_known_to_wait {
                policies.of(query.class).select(&query, &candidates)
            } else {
                Choice::Wait { again: None }
            };
            heads.push(Head { tag, reserved_paths, choice, has_room });
            if matches!(choice, Choice::Wait { .. }) && !is_known_to_wait {
                reserved_paths |= without_room(&candidates);
                if policies.treats_flows_alike(class) {
                    waiting_for[class.index()] = choices;
                }
            }
        }
        Walk { heads, reserved_paths, scheduler }
    }

    fn explain_next(&self, now: Instant, disk: DiskId, op: Op, walk: &Walk) -> NextRequest {
        let is_next = |head: &&Head| {
            let io = self.requests[head.tag].io;
            (io.disk, io.op.class()) == (disk, op.class())
        };
        let head = walk.heads.iter().find(is_next);
        // The walk leaves out a disk that limits throttle, or that has no path.
        let is_of_class = |tag: &Tag| self.requests[*tag].io.op.class() == op.class();
        let mut fronts = walk.scheduler.flows_of(disk).filter_map(|flow| walk.scheduler.queued_in(flow).next());
        let waiting = head.map(|head| head.tag).or_else(|| fronts.find(is_of_class));
        // If no request waits, explain one that would come now, behind all requests that wait.
        let flow = walk.scheduler.flows_of(disk).next().unwrap_or(FlowId(0));
        let io = Io { tag: Tag(0), op, bytes: TYPICAL_BYTES, disk, flow, fua: false };
        let hypothetical = Request::hypothetical(now, io);
        let request = waiting.map_or(&hypothetical, |tag| &self.requests[tag]);
        let reserved_paths = head.map_or(walk.reserved_paths, |head| head.reserved_paths);
        let candidates = self.offer(&request.io, self.choices(now, request), reserved_paths);
        let has_room = candidates.iter().any(|candidate| candidate.has_room);
        let query = query(now, &request.io, walk.scheduler.ready() + usize::from(waiting.is_none()));
        let mut policies = self.policies.clone();
        let policy = policies.of(query.class);
        let opinions = policy.opinions(&query, &candidates);
        let choice = if has_room { policy.select(&query, &candidates) } else { Choice::Wait { again: None } };
        let next = match choice {
            Choice::Path(path) => Next::Path(path),
            Choice::Wait { .. } if candidates.is_empty() => {
                Next::NoPath { fails_in: self.gives_up_at(disk).map(|at| at.saturating_duration_since(now)) }
            }
            Choice::Wait { .. } if !has_room => Next::NoRoom,
            Choice::Wait { again } => {
                Next::PolicyWaits { again_in: again.map(|again| again.saturating_duration_since(now)) }
            }
        };
        let known = |id: PathId| candidates.iter().position(|candidate| candidate.path == id);
        let verdict = |id: PathId| {
            let at = known(id);
            let opinion = at.map(|at| opinions[at]);
            self.verdict(now, id, request, reserved_paths, opinion, next == Next::Path(id))
        };
        let added = (0..self.paths.len() as u16).map(PathId).filter(|id| self.paths[id.index()].added);
        NextRequest {
            waits: waiting.is_some(),
            bytes: request.io.bytes,
            limit_ends_in: walk.scheduler.throttled_until(now, disk).map(|at| at.saturating_duration_since(now)),
            next,
            paths: added.map(verdict).collect(),
        }
    }

    /// The verdict about this path: whether the request takes it, and if not, why.
    fn verdict(
        &self,
        now: Instant,
        id: PathId,
        request: &Request,
        reserved_paths: u64,
        opinion: Option<Opinion>,
        is_next: bool,
    ) -> PathVerdict {
        let path = &self.paths[id.index()];
        let io = &request.io;
        let standing = path.standing(now, io.disk);
        let delayed = request.known().delay_on(now, id);
        let why_not = match standing {
            _ if is_next => None,
            Standing::Down => Some(WhyNot::Down),
            Standing::NotAccessible(ana) => Some(WhyNot::Ana(ana)),
            Standing::Resting { until } => Some(WhyNot::Resting { ends_in: until - now }),
            Standing::Draining => Some(WhyNot::Draining),
            _ if delayed.is_some() => delayed.map(|until| WhyNot::ControllerDelay { ends_in: until - now }),
            Standing::Suspect(_) if opinion.is_none() => Some(WhyNot::Suspect),
            Standing::Usable(_) if opinion.is_none() && request.known().avoid == Some(id) => Some(WhyNot::Avoided),
            Standing::Usable(AnaState::NonOptimized) if opinion.is_none() => Some(WhyNot::NonOptimized),
            _ if !path.has_room(self.config.window, io.bytes) => Some(WhyNot::WindowFull),
            _ if reserved_paths & id.bit() != 0 => Some(WhyNot::RoomReserved),
            _ => Some(WhyNot::NotPreferred),
        };
        PathVerdict {
            path: id,
            why_not,
            opinion,
            in_flight: path.usage.ios,
            in_flight_bytes: path.usage.bytes,
            is_suspect: matches!(standing, Standing::Suspect(_)),
            is_injected: path.injections.is_some(),
        }
    }

    /// The paths with controllers that a flush must reach now; `None`: any path will do.
    fn flush_targets(&self, now: Instant, disk: DiskId) -> Option<Vec<FlushTarget>> {
        if !self.fans_out(Op::Flush) {
            return None;
        }
        let unflushed = &self.disks[disk.index()].unflushed;
        let target = |id: PathId| {
            let need = unflushed.need(id, None);
            let path = &self.paths[id.index()];
            (need.lost || need.unflushed.is_some()).then(|| FlushTarget {
                path: id,
                is_presumed: need.unflushed.is_some_and(|of| of.is_presumed),
                has_lost_writes: need.lost,
                is_reachable: path.takes_requests(now, disk).is_ok(),
            })
        };
        Some((0..self.paths.len() as u16).map(PathId).filter_map(target).collect())
    }

    /// The open requests of a disk by what they wait for.
    fn waiting(&self, now: Instant, disk: DiskId, walk: &Walk) -> Vec<Waiting> {
        let mut all: BTreeMap<(WaitCause, Option<PathId>), Waiting> = BTreeMap::new();
        let mut count = |cause, path, requests: u64, oldest: Duration, ends_at: Option<Instant>, behind| {
            let ends_in = ends_at.map(|at| at.saturating_duration_since(now));
            let new = Waiting { cause, path, requests: 0, oldest, ends_in, behind };
            let sum = all.entry((cause, path)).or_insert(new);
            sum.requests += requests;
            sum.oldest = sum.oldest.max(oldest);
            sum.ends_in = sum.ends_in.into_iter().chain(ends_in).min();
            sum.behind = sum.behind.min(behind);
        };
        for flow in walk.scheduler.flows_of(disk) {
            let Some(first) = walk.scheduler.queued_in(flow).next() else { continue };
            let oldest = walk.scheduler.queued_in(flow).map(|tag| self.requests[tag].age(now)).max();
            let position = walk.heads.iter().position(|head| head.tag == first);
            let limit = walk.scheduler.flow_throttled_until(disk, flow);
            let (cause, ends_at) = if limit.is_some() {
                (WaitCause::Limit, limit)
            } else if self.disks[disk.index()].eligible == 0 {
                (WaitCause::NoPath, self.gives_up_at(disk))
            } else {
                match position.map(|at| &walk.heads[at]) {
                    Some(Head { has_room: true, choice: Choice::Wait { again }, .. }) => (WaitCause::Policy, *again),
                    Some(Head { has_room: false, .. }) => (WaitCause::Room, None),
                    _ => (WaitCause::Turn, None),
                }
            };
            let behind = position.map_or(0, |at| at as u64);
            let requests = walk.scheduler.queued_in(flow).len() as u64;
            count(cause, None, requests, oldest.unwrap_or_default(), ends_at, behind);
        }
        for tag in self.requests.tags() {
            let request = &self.requests[tag];
            if request.io.disk != disk {
                continue;
            }
            let path = Some(request.path);
            let (cause, path, ends_at) = match request.state {
                State::Free | State::Finished | State::Queued => continue,
                State::Backoff => (WaitCause::Retry, path, self.timers.retry_at(tag)),
                State::Fenced => (WaitCause::Fence, path, None),
                State::InFlight if request.recalled => (WaitCause::Recall, path, None),
                State::Injected | State::Stalled | State::Answered => (WaitCause::Injection, path, None),
                State::InFlight if self.hedges.has(tag) => (WaitCause::Hedge, path, None),
                State::InFlight => (WaitCause::Answer, path, Some(request.issued_at + self.config.io_timeout)),
                State::Flushing => {
                    for (path, is_sent) in self.flushes.open_of(request.job) {
                        let cause = if is_sent { WaitCause::Answer } else { WaitCause::FlushTurn };
                        count(cause, Some(path), 1, request.age(now), None, 0);
                    }
                    continue;
                }
            };
            count(cause, path, 1, request.age(now), ends_at, 0);
        }
        all.into_values().collect()
    }
}
