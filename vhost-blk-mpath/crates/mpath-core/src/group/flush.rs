//! Flushes go to every path that has completed writes not flushed yet.
//!
//! A flush owes nothing to writes that are still in flight, only to those that had completed when it was submitted.
//! When its turn comes in its flow, the paths that are dirty at that moment are noted; each of them is sent the command
//! as soon as it has room, under the flush's one tag, before other requests. When all have answered the flush is over.
//! See [`crate::dirty`] for why this is enough, also between threads, and for paths lost while dirty.

use std::time::{Duration, Instant};

use super::Group;
use crate::dirty::{Owed, Round};
use crate::requests::State;
use crate::timers::Due;
use crate::{Action, DiskId, Epoch, IoError, OpClass, Outcome, PathId, Tag};

/// How soon to look again at a path that is up in another group and not yet, or no longer, in this one.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

const CLASS: usize = OpClass::Other.index();

/// How long a flush waits for a path that is live and may not be used: the I/O time-out of Linux. Nothing can be proven about the
/// writes it owes without that path.
const UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// One path's part of a flush.
#[derive(Debug)]
struct Leg {
    path: PathId,
    /// The association whose writes are to be made durable.
    epoch: Epoch,
    /// Dirty by presumption only: its loss loses nothing of ours.
    presumed: bool,
    state: LegState,
    retries: u32,
    failovers: u32,
    /// When the flush came to ask for it.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegState {
    /// In its path's queue.
    Queued,
    /// Held by the path's injection.
    Injected(Attempt),
    /// With the driver.
    InFlight(Attempt),
    /// Answered by the driver; the path's injection holds the answer.
    Answered(Attempt),
    /// Waits for the time of its retry.
    Backoff,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    /// What it makes clean when it succeeds.
    cleans: Round,
    bound_at: Instant,
    /// After the delay of an injection.
    issued_at: Instant,
}

/// A flush that waits or is under way.
#[derive(Debug)]
struct Job {
    /// By path: what the flush has to cover.
    owed: Vec<Owed>,
    legs: Vec<Leg>,
    /// Legs not done.
    open: usize,
    result: Result<(), IoError>,
    /// The paths whose losses the result tells the guest of.
    losses: Vec<PathId>,
}

/// All flushes under way.
#[derive(Debug, Default)]
pub(super) struct FlushJobs {
    jobs: Vec<Job>,
    free: Vec<usize>,
    /// The paths that have legs queued, as a set.
    waiting: u64,
    look_again: Option<Instant>,
    /// They are next, before other requests.
    pub(super) first: bool,
    /// The disk after the one whose turn it was last.
    next_disk: u16,
}

impl FlushJobs {
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting != 0
    }

    pub(super) fn look_again_at(&self) -> Option<Instant> {
        self.look_again
    }

    /// Parts of flushes that this path has not answered yet, be they sent or not.
    pub(super) fn open_on(&self, path: PathId) -> u64 {
        let legs = self.jobs.iter().flat_map(|job| &job.legs);
        legs.filter(|leg| leg.path == path && leg.state != LegState::Done).count() as u64
    }

    /// The association that a flush is about on this path.
    pub(super) fn epoch_on(&self, job: usize, path: PathId) -> Option<Epoch> {
        self.jobs[job].legs.iter().find(|leg| leg.path == path).map(|leg| leg.epoch)
    }

    /// When the present attempt of a flush on this path was issued.
    pub(super) fn issued_at_on(&self, job: usize, path: PathId) -> Option<Instant> {
        match self.jobs[job].legs.iter().find(|leg| leg.path == path)?.state {
            LegState::Injected(attempt) | LegState::InFlight(attempt) | LegState::Answered(attempt) => {
                Some(attempt.issued_at)
            }
            LegState::Queued | LegState::Backoff | LegState::Done => None,
        }
    }

    fn look_again_by(&mut self, at: Instant) {
        self.look_again = Some(self.look_again.map_or(at, |earlier| earlier.min(at)));
    }

    /// The request of this job has finished.
    pub(super) fn free(&mut self, job: usize) {
        self.free.push(job);
    }

    fn new_job(&mut self) -> usize {
        let job = Job { owed: Vec::new(), legs: Vec::new(), open: 0, result: Ok(()), losses: Vec::new() };
        let Some(index) = self.free.pop() else {
            self.jobs.push(job);
            return self.jobs.len() - 1;
        };
        let slot = &mut self.jobs[index];
        slot.owed.clear();
        slot.legs.clear();
        slot.losses.clear();
        slot.result = Ok(());
        index
    }
}

impl Group {
    /// A flush comes in that was submitted since then: what it covers is decided now.
    pub(super) fn prepare_flush(&mut self, since: Instant, tag: Tag) {
        let index = self.flushes.new_job();
        let paths = (0..self.paths.len() as u16).map(PathId);
        let request = &mut self.requests[tag];
        let dirty = &self.disks[request.io.disk.index()].dirty;
        self.flushes.jobs[index].owed.extend(paths.map(|id| dirty.flush_submitted(since, id)));
        request.job = index;
    }

    /// The turn of a flush has come.
    pub(super) fn start_flush(&mut self, now: Instant, tag: Tag) {
        let request = &mut self.requests[tag];
        request.state = State::Flushing;
        let disk = request.io.disk.index();
        let job = &mut self.flushes.jobs[request.job];
        for (path, id) in self.paths.iter_mut().zip((0..).map(PathId)) {
            let need = self.disks[disk].dirty.need(id, job.owed.get(id.index()).copied());
            if need.lost {
                job.losses.push(id);
                job.result = Err(IoError::Io);
            }
            if let Some(association) = need.dirty {
                job.legs.push(Leg {
                    path: id,
                    epoch: association.epoch,
                    presumed: association.presumed,
                    state: LegState::Queued,
                    retries: 0,
                    failovers: 0,
                    since: now,
                });
                path.of_disk[disk].flushes.push_back(tag);
                self.flushes.waiting |= id.bit();
            }
        }
        job.open = job.legs.len();
        self.finish_flush_if_done(now, tag);
    }

    fn finish_flush_if_done(&mut self, now: Instant, tag: Tag) {
        let job = &self.flushes.jobs[self.requests[tag].job];
        if job.open > 0 {
            return;
        }
        let dirty = &self.disks[self.requests[tag].io.disk.index()].dirty;
        for &path in &job.losses {
            // A path added since has nothing to report.
            if let Some(owed) = job.owed.get(path.index()) {
                dirty.report(now, path, *owed);
            }
        }
        let result = job.result;
        self.finish(tag, result);
    }

    /// Sends what waits for a path that can take it.
    pub(super) fn dispatch_flush(&mut self, now: Instant) -> Option<Action> {
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

    /// The same for one path and one disk, whose flushes wait for each other, and for no other disk's.
    fn dispatch_flush_of(&mut self, now: Instant, id: PathId, disk: DiskId) -> Option<Action> {
        while let Some(&tag) = self.paths[id.index()].of_disk[disk.index()].flushes.front() {
            let &mut Leg { epoch, presumed, since, .. } = self.leg(id, tag);
            let lost = self.is_lost_meanwhile(id, tag);
            let path = &mut self.paths[id.index()];
            let dirty = &self.disks[disk.index()].dirty;
            let round = if dirty.is_current(id, epoch) && !lost {
                if path.association.is_none_or(|live| live.epoch != epoch) {
                    self.flushes.look_again_by(now + LOOK_AGAIN);
                    return None;
                }
                let usable = path.usable(now, disk).is_some();
                let unusable_since = &mut path.of_disk[disk.index()].unusable_since;
                if !usable {
                    // Nothing of ours is behind it.
                    let optional = !dirty.is_after_crash() && presumed;
                    // All that wait do so at the same time.
                    let give_up = since.max(*unusable_since.get_or_insert(now)) + UNUSABLE_MAX;
                    if now < give_up && !optional {
                        self.flushes.look_again_by(give_up);
                        return None;
                    }
                    self.unqueue_leg(id, disk);
                    if !optional {
                        // Nothing is lost yet, nor is anything durable: the next flush owes the same writes of ours.
                        self.disks[disk.index()].dirty.presumed_in_vain(id, epoch);
                    }
                    self.end_leg(now, id, tag, if optional { Ok(()) } else { Err(IoError::Io) });
                    continue;
                }
                *unusable_since = None;
                if !path.has_room(self.config.window, 0) {
                    return None;
                }
                dirty.begin_flush(id, epoch)
            } else {
                None
            };
            self.unqueue_leg(id, disk);
            if let Some(cleans) = round {
                let action = self.bind_leg(now, id, tag, cleans);
                if action.is_some() {
                    return action;
                }
            } else {
                self.lose_leg(now, id, tag);
            }
        }
        None
    }

    fn bind_leg(&mut self, now: Instant, id: PathId, tag: Tag, cleans: Round) -> Option<Action> {
        let path = &mut self.paths[id.index()];
        path.usage.take(0);
        path.stats[CLASS].in_flight += 1;
        let attempt = Attempt { cleans, bound_at: now, issued_at: now };
        if self.hold_by_injection(now, id, tag).is_some() {
            self.leg(id, tag).state = LegState::Injected(attempt);
            return None;
        }
        self.leg(id, tag).state = LegState::InFlight(attempt);
        self.issued(now, id, tag);
        Some(Action::Issue { path: id, tag })
    }

    fn unbind_leg(&mut self, id: PathId) {
        let path = &mut self.paths[id.index()];
        path.usage.give_back(0);
        path.stats[CLASS].in_flight -= 1;
    }

    /// The injection of its path lets a leg go.
    pub(super) fn leg_released(&mut self, now: Instant, id: PathId, tag: Tag) {
        let leg = self.leg(id, tag);
        let LegState::Injected(attempt) = leg.state else {
            unreachable!("only what an injection held is released");
        };
        leg.state = LegState::InFlight(Attempt { issued_at: now, ..attempt });
    }

    /// The injection of its path holds the answer of a leg, or does so no longer.
    pub(super) fn set_leg_answered(&mut self, id: PathId, tag: Tag, answered: bool) {
        let leg = self.leg(id, tag);
        leg.state = match (leg.state, answered) {
            (LegState::InFlight(attempt), true) => LegState::Answered(attempt),
            (LegState::Answered(attempt), false) => LegState::InFlight(attempt),
            _ => panic!("a completion answers an issue"),
        };
    }

    /// A leg held by the injection of its path was not sent and is not going to be.
    pub(super) fn take_back_leg(&mut self, id: PathId, tag: Tag) {
        self.unbind_leg(id);
        self.queue_leg(id, tag);
    }

    /// The time of a leg's retry has come.
    pub(super) fn queue_leg(&mut self, id: PathId, tag: Tag) {
        self.leg(id, tag).state = LegState::Queued;
        let disk = self.requests[tag].io.disk.index();
        self.paths[id.index()].of_disk[disk].flushes.push_front(tag);
        self.flushes.waiting |= id.bit();
    }

    fn unqueue_leg(&mut self, id: PathId, disk: DiskId) {
        let of_disk = &mut self.paths[id.index()].of_disk;
        of_disk[disk.index()].flushes.pop_front();
        if of_disk.iter().all(|of| of.flushes.is_empty()) {
            self.flushes.waiting &= !id.bit();
        }
    }

    pub(super) fn complete_leg(&mut self, now: Instant, id: PathId, tag: Tag, outcome: Outcome, watched: bool) {
        let (max_retries, max_failovers) = (self.config.max_retries, self.config.max_failovers);
        let leg = self.leg(id, tag);
        let LegState::InFlight(attempt) = leg.state else {
            panic!("a completion answers an issue");
        };
        match outcome {
            Outcome::Retry { .. } => leg.retries += 1,
            Outcome::PathError => leg.failovers += 1,
            _ => {}
        }
        let worn_out = leg.retries > max_retries || leg.failovers > max_failovers;
        let epoch = leg.epoch;
        if watched {
            self.watch_outcome(now, id, epoch, outcome, None);
        }
        self.unbind_leg(id);
        let path = &mut self.paths[id.index()];
        let disk = self.requests[tag].io.disk;
        if outcome == Outcome::Success {
            path.record_success(OpClass::Other, 0, now - attempt.bound_at, now - self.started);
            path.of_disk[disk.index()].hold.success(attempt.bound_at);
            self.disks[disk.index()].dirty.flushed(id, epoch, attempt.cleans);
            if self.is_lost_meanwhile(id, tag) {
                // It may have been executed after that.
                self.lose_leg(now, id, tag);
            } else {
                self.end_leg(now, id, tag, Ok(()));
            }
            return;
        }
        if outcome == Outcome::GivenUp {
            self.end_leg(now, id, tag, Err(IoError::Io));
            return;
        }
        path.stats[CLASS].errors += 1;
        let again = match outcome {
            Outcome::PathError => {
                self.path_error(now, id, disk, attempt.bound_at);
                Duration::ZERO
            }
            Outcome::Retry { after } => after,
            Outcome::Failed(error) => return self.end_leg(now, id, tag, Err(error)),
            Outcome::Lost { .. } | Outcome::Success | Outcome::GivenUp | Outcome::Recalled { .. } => {
                return self.lose_leg(now, id, tag);
            }
        };
        if worn_out {
            self.end_leg(now, id, tag, Err(IoError::Io));
            return;
        }
        self.paths[id.index()].stats[CLASS].retries += 1;
        if again.is_zero() {
            self.queue_leg(id, tag);
        } else {
            self.leg(id, tag).state = LegState::Backoff;
            self.timers.set(now, again, Due::RetryLeg(id, tag));
        }
    }

    /// Whether something that a flush owes on this path was lost since it began, though the namespace may be there again.
    fn is_lost_meanwhile(&self, id: PathId, tag: Tag) -> bool {
        let request = &self.requests[tag];
        let job = &self.flushes.jobs[request.job];
        let dirty = &self.disks[request.io.disk.index()].dirty;
        !job.losses.contains(&id) && dirty.need(id, job.owed.get(id.index()).copied()).lost
    }

    /// The association that a leg had to flush is over.
    fn lose_leg(&mut self, now: Instant, id: PathId, tag: Tag) {
        let &mut Leg { epoch, presumed, .. } = self.leg(id, tag);
        let request = &self.requests[tag];
        let dirty = &self.disks[request.io.disk.index()].dirty;
        let job = &mut self.flushes.jobs[request.job];
        // Another flush may have covered it meanwhile, and nothing was lost.
        let clean = !dirty.is_current(id, epoch) && !dirty.need(id, job.owed.get(id.index()).copied()).lost;
        if presumed || clean {
            self.end_leg(now, id, tag, Ok(()));
            return;
        }
        job.losses.push(id);
        self.end_leg(now, id, tag, Err(IoError::Io));
    }

    fn end_leg(&mut self, now: Instant, id: PathId, tag: Tag, result: Result<(), IoError>) {
        self.leg(id, tag).state = LegState::Done;
        let job = &mut self.flushes.jobs[self.requests[tag].job];
        job.open -= 1;
        job.result = job.result.and(result);
        self.finish_flush_if_done(now, tag);
    }

    fn leg(&mut self, id: PathId, tag: Tag) -> &mut Leg {
        let request = &self.requests[tag];
        assert_eq!(request.state, State::Flushing, "the flush is under way");
        self.flushes.jobs[request.job]
            .legs
            .iter_mut()
            .find(|leg| leg.path == id)
            .expect("a flush knows the paths it was sent to")
    }
}
