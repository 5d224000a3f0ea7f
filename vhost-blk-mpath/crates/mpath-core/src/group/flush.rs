//! Decides: a flush goes to these controllers.
//! Decides: a failed flush has this reason.
//!
//! Flushes go to every path with completed writes that no flush has covered.
//!
//! A flush must cover the writes that had completed when it was submitted, not the writes in flight. When its turn
//! comes in its flow, the group records the paths that are unflushed then. Each of these paths gets the command once
//! it has room, before other requests, under the tag of the flush. The flush is over when all have answered.
//! [`crate::unflushed`] says why this is enough between threads, and for unflushed paths that are lost.

use monotonic::{Duration, Instant};

use super::Group;
use crate::requests::{Request, State};
use crate::timers::Due;
use crate::unflushed::{FlushScope, Round, SHARED_CACHE};
use crate::{Action, DiskId, Epoch, FlowId, IoError, Op, OpClass, Outcome, PathId, Tag};

/// How soon to look again at a path that is up in another group and down in this one, or whose ANA log is being read.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(10);

const CLASS: usize = OpClass::Other.index();

/// How long a flush waits for a path that is live and not usable: the I/O timeout of Linux. Without the path nothing
/// can be proven about the writes.
const UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// The command of a flush on one path.
#[derive(Debug)]
struct FlushCommand {
    path: PathId,
    /// The association whose writes the command makes durable.
    epoch: Epoch,
    /// The association is only presumed unflushed: its loss loses no write of this daemon.
    is_presumed: bool,
    state: FlushCommandState,
    retries: u32,
    /// When the flush started.
    since: Instant,
    /// The first success that proved nothing, because the ANA log was read.
    unproven_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushCommandState {
    /// In its path's queue.
    Queued,
    /// Delayed or stalled by the injection of the path.
    Injected(Attempt),
    /// With the driver.
    InFlight(Attempt),
    /// Answered by the driver; the injection of the path delays or stalls the answer.
    Answered(Attempt),
    /// Waits for the time of its retry.
    Backoff,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    /// The round that the command covers if it succeeds.
    covers: Round,
    bound_at: Instant,
    /// When the driver got the command, after the delay of an injection.
    issued_at: Instant,
}

/// A flush that waits or is under way.
#[derive(Debug)]
struct FlushJob {
    /// By path: what the flush must cover.
    scopes: Vec<FlushScope>,
    commands: Vec<FlushCommand>,
    /// Commands that are not done.
    open: usize,
    result: Result<(), IoError>,
    /// The paths with losses that the result reports to the guest.
    losses: Vec<PathId>,
    /// The guest sees no result, so the result reports nothing.
    is_given_up: bool,
}

/// All flushes under way.
#[derive(Debug, Default)]
pub(super) struct FlushJobs {
    jobs: Vec<FlushJob>,
    free: Vec<usize>,
    /// The paths with queued flush commands, as a set.
    waiting: u64,
    look_again: Option<Instant>,
    /// Flush commands are next, before other requests.
    pub(super) first: bool,
    /// The disk whose turn is next.
    next_disk: u16,
}

impl FlushJobs {
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting != 0
    }

    pub(super) fn look_again_at(&self) -> Option<Instant> {
        self.look_again
    }

    /// Flush commands that this path has not answered, sent or not.
    pub(super) fn open_on(&self, path: PathId) -> u64 {
        let commands = self.jobs.iter().flat_map(|job| &job.commands);
        commands.filter(|command| command.path == path && command.state != FlushCommandState::Done).count() as u64
    }

    /// The paths of a job that have not answered, and whether the command is on its way.
    pub(super) fn open_of(&self, job: usize) -> impl Iterator<Item = (PathId, bool)> + '_ {
        let open = self.jobs[job].commands.iter().filter(|command| command.state != FlushCommandState::Done);
        open.map(|command| {
            let waits = matches!(command.state, FlushCommandState::Queued | FlushCommandState::Backoff);
            (command.path, !waits)
        })
    }

    /// The association that a flush job flushes on this path.
    pub(super) fn epoch_on(&self, job: usize, path: PathId) -> Option<Epoch> {
        self.jobs[job].commands.iter().find(|command| command.path == path).map(|command| command.epoch)
    }

    /// When the present attempt of a flush job on this path was issued.
    pub(super) fn issued_at_on(&self, job: usize, path: PathId) -> Option<Instant> {
        match self.jobs[job].commands.iter().find(|command| command.path == path)?.state {
            FlushCommandState::Injected(attempt)
            | FlushCommandState::InFlight(attempt)
            | FlushCommandState::Answered(attempt) => Some(attempt.issued_at),
            FlushCommandState::Queued | FlushCommandState::Backoff | FlushCommandState::Done => None,
        }
    }

    fn look_again_by(&mut self, at: Instant) {
        self.look_again = Some(self.look_again.map_or(at, |earlier| earlier.min(at)));
    }

    /// Frees the slot of a job whose request has finished.
    pub(super) fn free(&mut self, job: usize) {
        self.free.push(job);
    }

    fn new_job(&mut self) -> usize {
        let job = FlushJob {
            scopes: Vec::new(),
            commands: Vec::new(),
            open: 0,
            result: Ok(()),
            losses: Vec::new(),
            is_given_up: false,
        };
        let Some(index) = self.free.pop() else {
            self.jobs.push(job);
            return self.jobs.len() - 1;
        };
        let slot = &mut self.jobs[index];
        slot.scopes.clear();
        slot.commands.clear();
        slot.losses.clear();
        (slot.result, slot.is_given_up) = (Ok(()), false);
        index
    }
}

impl Group {
    /// Fixes what an arriving flush must cover. The guest submitted the flush at `since` or later.
    pub(super) fn prepare_flush(&mut self, since: Instant, tag: Tag) {
        let index = self.flushes.new_job();
        let fans_out = self.fans_out(Op::Flush);
        let paths = if fans_out { 0..self.paths.len() as u16 } else { SHARED_CACHE.0..SHARED_CACHE.0 + 1 }.map(PathId);
        let request = &mut self.requests[tag];
        let unflushed = &self.disks[request.io.disk.index()].unflushed;
        self.flushes.jobs[index].scopes.extend(paths.map(|id| unflushed.flush_submitted(since, id)));
        request.job = index;
    }

    /// Starts a flush whose turn has come: finds its paths and queues its commands.
    pub(super) fn start_flush(&mut self, now: Instant, tag: Tag) {
        let request = &mut self.requests[tag];
        request.history.left_queue(now, || self.scheduler.pauses(now, request.io.disk));
        request.bound_at = now;
        request.state = State::Flushing;
        let disk = request.io.disk.index();
        let job = &mut self.flushes.jobs[request.job];
        for (path, id) in self.paths.iter_mut().zip((0..).map(PathId)) {
            let need = self.disks[disk].unflushed.need(id, job.scopes.get(id.index()).copied());
            if need.lost {
                job.losses.push(id);
                job.result = Err(IoError::LostWrites);
            }
            if let Some(association) = need.unflushed {
                job.commands.push(FlushCommand {
                    path: id,
                    epoch: association.epoch,
                    is_presumed: association.is_presumed,
                    state: FlushCommandState::Queued,
                    retries: 0,
                    since: now,
                    unproven_since: None,
                });
                path.per_disk[disk].flushes.push_back(tag);
                self.flushes.waiting |= id.bit();
                request.history.paths |= id.bit();
            }
        }
        job.open = job.commands.len();
        self.finish_flush_if_done(now, tag);
    }

    /// Notes that an attempt of a request has failed. If the request is a flush of a shared cache, the cache may have lost data.
    pub(super) fn note_shared_cache_loss(&self, now: Instant, tag: Tag, outcome: Outcome) {
        let io = self.requests[tag].io;
        if io.op == Op::Flush && outcome.may_lose_cache() {
            self.disks[io.disk.index()].unflushed.shared_flush_failed(now);
        }
    }

    /// The result of a flush of a shared cache that has succeeded: it reports what failed flushes may have lost.
    pub(super) fn end_shared_flush(&self, now: Instant, tag: Tag) -> Result<(), IoError> {
        let request = &self.requests[tag];
        let unflushed = &self.disks[request.io.disk.index()].unflushed;
        let scope = self.flushes.jobs[request.job].scopes[0];
        if !unflushed.need(SHARED_CACHE, Some(scope)).lost {
            return Ok(());
        }
        if !self.flushes.jobs[request.job].is_given_up {
            unflushed.report(now, SHARED_CACHE, scope);
        }
        Err(IoError::LostWrites)
    }

    /// Gives up the flow's flushes that are under way: the guest does not see their results.
    pub(super) fn give_up_flushes(&mut self, flow: FlowId) {
        let is_under_way = |request: &Request| !matches!(request.state, State::Free | State::Finished);
        for request in self.requests.iter_mut().filter(|request| request.io.op == Op::Flush && is_under_way(request)) {
            self.flushes.jobs[request.job].is_given_up |= request.io.flow == flow;
        }
    }

    fn finish_flush_if_done(&mut self, now: Instant, tag: Tag) {
        let job = &self.flushes.jobs[self.requests[tag].job];
        if job.open > 0 {
            return;
        }
        let unflushed = &self.disks[self.requests[tag].io.disk.index()].unflushed;
        for &path in job.losses.iter().filter(|_| !job.is_given_up) {
            // A path added after the flush arrived has nothing to report.
            if let Some(scope) = job.scopes.get(path.index()) {
                unflushed.report(now, path, *scope);
            }
        }
        let result = job.result;
        self.finish(tag, result);
    }

    /// Sends the next queued flush command to a path with room.
    #[inline]
    pub(super) fn dispatch_flush(&mut self, now: Instant) -> Option<Action> {
        if self.flushes.is_waiting() { self.dispatch_waiting_flush(now) } else { None }
    }

    fn dispatch_waiting_flush(&mut self, now: Instant) -> Option<Action> {
        self.flushes.look_again = None;
        let mut left = self.flushes.waiting;
        while left != 0 {
            let id = PathId(left.trailing_zeros() as u16);
            left &= left - 1;
            let disks = self.disks.len() as u16;
            for turn in 0..disks {
                let disk = DiskId((self.flushes.next_disk + turn) % disks);
                let action = self.dispatch_flush_of(now, id, disk);
                if action.is_some() {
                    self.flushes.next_disk = (disk.0 + 1) % disks;
                    return action;
                }
            }
        }
        None
    }

    /// Sends the next queued flush command of one disk to one path. Flushes of different disks do not wait for each
    /// other.
    fn dispatch_flush_of(&mut self, now: Instant, id: PathId, disk: DiskId) -> Option<Action> {
        while let Some(&tag) = self.paths[id.index()].per_disk[disk.index()].flushes.front() {
            let &mut FlushCommand { epoch, since, .. } = self.command(id, tag);
            let (lost, optional) = (self.is_lost_meanwhile(id, tag), self.is_optional(id, tag));
            let path = &mut self.paths[id.index()];
            let unflushed = &self.disks[disk.index()].unflushed;
            let round = if unflushed.is_current(id, epoch) && !lost {
                if path.association.is_none_or(|live| live.epoch != epoch) {
                    self.flushes.look_again_by(now + LOOK_AGAIN);
                    return None;
                }
                let usable = path.takes_requests(now, disk).is_ok();
                let unusable_since = &mut path.per_disk[disk.index()].unusable_since;
                if !usable {
                    // All flushes of this path and disk wait since the same time.
                    let give_up = since.max(*unusable_since.get_or_insert(now)) + UNUSABLE_MAX;
                    if now < give_up && !optional {
                        self.flushes.look_again_by(give_up);
                        return None;
                    }
                    self.unqueue_flush_command(id, disk);
                    if optional {
                        self.end_flush_command(now, id, tag, Ok(()));
                    } else {
                        self.give_flush_command_up(now, id, tag);
                    }
                    continue;
                }
                if !path.has_room(self.config.window, 0) {
                    return None;
                }
                unflushed.begin_flush(id, epoch)
            } else {
                None
            };
            self.unqueue_flush_command(id, disk);
            if let Some(covers) = round {
                let action = self.bind_flush_command(now, id, tag, covers);
                if action.is_some() {
                    return action;
                }
            } else {
                self.lose_flush_command(now, id, tag);
            }
        }
        None
    }

    fn bind_flush_command(&mut self, now: Instant, id: PathId, tag: Tag, covers: Round) -> Option<Action> {
        self.take_room(id, 0);
        self.paths[id.index()].stats[CLASS].in_flight += 1;
        let attempt = Attempt { covers, bound_at: now, issued_at: now };
        if self.apply_injection(now, id, tag).is_some() {
            self.command(id, tag).state = FlushCommandState::Injected(attempt);
            return None;
        }
        self.command(id, tag).state = FlushCommandState::InFlight(attempt);
        self.issued(now, id, tag);
        Some(Action::Issue { path: id, tag })
    }

    fn unbind_flush_command(&mut self, id: PathId) {
        self.give_room_back(id, 0);
        self.paths[id.index()].stats[CLASS].in_flight -= 1;
    }

    /// Releases a flush command that the injection of its path has kept.
    pub(super) fn flush_command_released(&mut self, now: Instant, id: PathId, tag: Tag) {
        let command = self.command(id, tag);
        let FlushCommandState::Injected(attempt) = command.state else {
            unreachable!("an injection releases only commands that it kept");
        };
        command.state = FlushCommandState::InFlight(Attempt { issued_at: now, ..attempt });
    }

    /// Notes that the injection of a path keeps the answer to a flush command (`answered`), or releases the answer.
    pub(super) fn set_flush_command_answered(&mut self, id: PathId, tag: Tag, answered: bool) {
        let command = self.command(id, tag);
        command.state = match (command.state, answered) {
            (FlushCommandState::InFlight(attempt), true) => FlushCommandState::Answered(attempt),
            (FlushCommandState::Answered(attempt), false) => FlushCommandState::InFlight(attempt),
            _ => panic!("a completion answers an issue"),
        };
    }

    /// Takes back a flush command that the injection of its path kept and that was never sent.
    pub(super) fn take_back_flush_command(&mut self, id: PathId, tag: Tag) {
        self.unbind_flush_command(id);
        self.queue_flush_command(id, tag);
    }

    /// Queues a flush command again.
    pub(super) fn queue_flush_command(&mut self, id: PathId, tag: Tag) {
        self.command(id, tag).state = FlushCommandState::Queued;
        let disk = self.requests[tag].io.disk.index();
        self.paths[id.index()].per_disk[disk].flushes.push_front(tag);
        self.flushes.waiting |= id.bit();
    }

    fn unqueue_flush_command(&mut self, id: PathId, disk: DiskId) {
        let per_disk = &mut self.paths[id.index()].per_disk;
        per_disk[disk.index()].flushes.pop_front();
        if per_disk.iter().all(|of| of.flushes.is_empty()) {
            self.flushes.waiting &= !id.bit();
        }
    }

    pub(super) fn complete_flush_command(
        &mut self,
        now: Instant,
        id: PathId,
        tag: Tag,
        outcome: Outcome,
        watched: bool,
    ) {
        let max_retries = self.config.max_retries;
        let command = self.command(id, tag);
        let FlushCommandState::InFlight(attempt) = command.state else {
            panic!("a completion answers an issue");
        };
        let epoch = command.epoch;
        if watched {
            self.watch_outcome(now, id, epoch, outcome, None);
        }
        self.unbind_flush_command(id);
        let path = &mut self.paths[id.index()];
        let disk = self.requests[tag].io.disk;
        if outcome == Outcome::Success {
            let of_disk = &mut path.per_disk[disk.index()];
            of_disk.unusable_since = None;
            if of_disk.rest.success(attempt.bound_at) {
                self.find_disks_without_path(now);
                self.refresh_eligible(now);
            }
            if !self.disks[disk.index()].unflushed.flushed(id, epoch, attempt.covers) {
                if self.is_optional(id, tag) && !self.is_lost_meanwhile(id, tag) {
                    self.end_flush_command(now, id, tag, Ok(()));
                } else if now < *self.command(id, tag).unproven_since.get_or_insert(now) + UNUSABLE_MAX {
                    self.repeat_flush_command(now, id, tag, LOOK_AGAIN);
                } else {
                    self.give_flush_command_up(now, id, tag);
                }
                return;
            }
            let at = self.since_start.at(now);
            self.paths[id.index()].record_success(OpClass::Other, 0, now - attempt.bound_at, at);
            if self.is_lost_meanwhile(id, tag) {
                // The controller may have executed the flush after the loss.
                self.lose_flush_command(now, id, tag);
            } else {
                self.end_flush_command(now, id, tag, Ok(()));
            }
            return;
        }
        if outcome == Outcome::GivenUp {
            self.end_flush_command(now, id, tag, Err(IoError::GivenUp));
            return;
        }
        path.stats[CLASS].errors += 1;
        if outcome.may_lose_cache() {
            let unflushed = &self.disks[disk.index()].unflushed;
            let job = &mut self.flushes.jobs[self.requests[tag].job];
            if unflushed.flush_failed(now, id, epoch) && !job.losses.contains(&id) {
                job.losses.push(id);
                if matches!(outcome, Outcome::Retry { .. }) {
                    job.result = job.result.and(Err(IoError::LostWrites));
                }
            }
        }
        let again = match outcome {
            // A path that refuses everything ends the flush after `UNUSABLE_MAX`.
            Outcome::PathError => {
                self.path_error(now, id, disk, attempt.bound_at);
                self.paths[id.index()].per_disk[disk.index()].unusable_since.get_or_insert(now);
                Duration::ZERO
            }
            Outcome::Retry { after, cause } => {
                self.paths[id.index()].per_disk[disk.index()].unusable_since = None;
                let command = self.command(id, tag);
                command.retries += 1;
                if command.retries > max_retries {
                    return self.end_flush_command(now, id, tag, Err(cause.error()));
                }
                after
            }
            Outcome::Failed(error) => return self.end_flush_command(now, id, tag, Err(error)),
            Outcome::Lost { .. } | Outcome::Success | Outcome::GivenUp | Outcome::Recalled { .. } => {
                return self.lose_flush_command(now, id, tag);
            }
        };
        self.repeat_flush_command(now, id, tag, again);
    }

    /// Ends a flush command that no path carries out, or of which no success proves anything. Nothing is lost yet and nothing is
    /// durable: the next flush covers the same writes of this daemon.
    fn give_flush_command_up(&mut self, now: Instant, id: PathId, tag: Tag) {
        let (disk, job) = (self.requests[tag].io.disk, self.requests[tag].job);
        if !self.flushes.jobs[job].is_given_up {
            let epoch = self.command(id, tag).epoch;
            self.disks[disk.index()].unflushed.report_presumed(id, epoch);
        }
        self.end_flush_command(now, id, tag, Err(IoError::NoPath));
    }

    fn repeat_flush_command(&mut self, now: Instant, id: PathId, tag: Tag, after: Duration) {
        self.paths[id.index()].stats[CLASS].retries += 1;
        if after.is_zero() {
            self.queue_flush_command(id, tag);
        } else {
            self.command(id, tag).state = FlushCommandState::Backoff;
            self.timers.set(now, after, Due::RetryFlushCommand(id, tag));
        }
    }

    /// Whether the flush can do without this command. Without a crash, one to an association that is only presumed unflushed covers no
    /// write of this daemon.
    fn is_optional(&mut self, id: PathId, tag: Tag) -> bool {
        self.command(id, tag).is_presumed && !self.disks[self.requests[tag].io.disk.index()].unflushed.is_after_crash()
    }

    /// Whether writes that a flush must cover on this path were lost after it began, even if the namespace has come
    /// back.
    fn is_lost_meanwhile(&self, id: PathId, tag: Tag) -> bool {
        let request = &self.requests[tag];
        let job = &self.flushes.jobs[request.job];
        let unflushed = &self.disks[request.io.disk.index()].unflushed;
        !job.losses.contains(&id) && unflushed.need(id, job.scopes.get(id.index()).copied()).lost
    }

    /// Ends a flush command whose association is over.
    fn lose_flush_command(&mut self, now: Instant, id: PathId, tag: Tag) {
        let &mut FlushCommand { epoch, is_presumed, .. } = self.command(id, tag);
        let request = &self.requests[tag];
        let unflushed = &self.disks[request.io.disk.index()].unflushed;
        let job = &mut self.flushes.jobs[request.job];
        // Another flush may have covered the writes meanwhile, or there may have been none. A recorded loss counts either way.
        let is_lost = unflushed.need(id, job.scopes.get(id.index()).copied()).lost;
        if !is_lost && (is_presumed || !unflushed.is_current(id, epoch)) {
            self.end_flush_command(now, id, tag, Ok(()));
            return;
        }
        job.losses.push(id);
        self.end_flush_command(now, id, tag, Err(IoError::LostWrites));
    }

    fn end_flush_command(&mut self, now: Instant, id: PathId, tag: Tag, result: Result<(), IoError>) {
        self.command(id, tag).state = FlushCommandState::Done;
        let job = &mut self.flushes.jobs[self.requests[tag].job];
        job.open -= 1;
        job.result = job.result.and(result);
        self.finish_flush_if_done(now, tag);
    }

    fn command(&mut self, id: PathId, tag: Tag) -> &mut FlushCommand {
        let request = &self.requests[tag];
        assert_eq!(request.state, State::Flushing, "the flush is under way");
        self.flushes.jobs[request.job]
            .commands
            .iter_mut()
            .find(|command| command.path == id)
            .expect("the flush has a command on this path")
    }
}
