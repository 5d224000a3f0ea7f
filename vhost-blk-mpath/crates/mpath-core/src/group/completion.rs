//! Decides: a request is retried, fails over, waits for a fence or fails.
//! Decides: an error of the guest has this reason.
//!
//! What follows from the outcome of an attempt.

use monotonic::{Duration, Instant};

use super::Group;
use crate::failovers::Failover;
use crate::policy::{AttemptEnd, CompletedAttempt};
use crate::requests::State;
use crate::timers::Due;
use crate::{DiskId, IoError, Op, Outcome, PathId, Tag};

/// A failure counts with at least this latency, because a path that fails at once is not a fast path. Every policy
/// accepts latencies up to this.
const FAILED_LATENCY: Duration = Duration::from_secs(1);

/// The longest that a request waits out a controller's delay while another controller is usable. A delay can be 109
/// minutes, and the guest waits for the request.
const CONTROLLER_DELAY_MAX: Duration = Duration::from_secs(10);

/// After this many requests in a row that failed for good, the path counts as failing.
const FAILED_MAX: u32 = 8;

impl Group {
    /// Takes the driver's answer to an [`crate::Action::Issue`].
    ///
    /// After [`Group::path_lost`] the driver may still report an outcome that it had received before. All other
    /// requests end as [`Outcome::Lost`].
    pub fn complete(&mut self, now: Instant, path: PathId, tag: Tag, outcome: Outcome) {
        let is_injected = self.paths[path.index()].injections.is_some();
        let outcome = if is_injected { self.apply_injection_to_answer(now, path, tag, outcome) } else { Some(outcome) };
        if let Some(outcome) = outcome {
            self.end_attempt(now, path, tag, outcome, true);
        }
    }

    /// Records that the path has carried out a part of the request, whose outcome is a retry or a path error. The driver issues
    /// only the rest in the next attempt, and all of it in an attempt that follows a success. Call it before [`Group::complete`].
    pub fn partly_done(&mut self, path: PathId, tag: Tag) {
        let request = &mut self.requests[tag];
        assert_eq!((request.state, request.path), (State::InFlight, path), "a completion answers an issue");
        if let Some(period) = request.unflushed_in {
            request.tried().partly_unflushed_in.push((path, period));
        }
    }

    /// Handles the end of an attempt. `watched`: the driver had the request, so the answer is a sign of life of the
    /// path.
    pub(super) fn end_attempt(&mut self, now: Instant, path: PathId, tag: Tag, outcome: Outcome, watched: bool) {
        if self.has_flush_commands(tag) {
            self.complete_flush_command(now, path, tag, outcome, watched);
            return;
        }
        let request = &self.requests[tag];
        assert_eq!((request.state, request.path), (State::InFlight, path), "a completion answers an issue");
        let (bound_at, class) = (request.bound_at, request.io.op.class());
        let (io, unflushed_in, epoch) = (request.io, request.unflushed_in, request.epoch);
        let latency = now - bound_at;
        if watched {
            self.watch_outcome(now, path, epoch, outcome, Some((class, request.issued_at, io.bytes)));
            if !matches!(outcome, Outcome::Lost { .. } | Outcome::Recalled { .. } | Outcome::GivenUp) {
                let answered_to = &mut self.paths[path.index()].answered_to[class.index()];
                *answered_to = (*answered_to).max(Some(bound_at));
            }
        }
        let hedge_won = self.adopt_hedge(now, tag, outcome);
        self.unbind(tag);
        let of_path = &mut self.paths[path.index()];
        let stats = &mut of_path.stats[class.index()];
        if hedge_won {
            stats.errors += u64::from(!matches!(outcome, Outcome::Recalled { .. }));
            if outcome == Outcome::PathError {
                self.path_error(now, path, io.disk, bound_at);
            }
            self.record_read(now, path, &io, latency);
            match outcome {
                Outcome::Retry { .. } => self.report_failure(now, tag, latency),
                Outcome::Failed(_) => self.failed(now, tag, latency),
                _ => self.report_to_policy(now, tag, latency, AttemptEnd::Overtaken),
            }
            self.hedge_won(tag);
            return;
        }
        match outcome {
            Outcome::Success => {
                of_path.record_success(class, io.bytes, latency, self.since_start.at(now));
                let leads_again = of_path.per_disk[io.disk.index()].rest.success(bound_at);
                of_path.failed_in_row = 0;
                if leads_again {
                    self.find_disks_without_path(now);
                    self.refresh_eligible(now);
                }
                self.report_to_policy(now, tag, latency, AttemptEnd::Answered);
                self.record_read(now, path, &io, latency);
                if self.requests[tag].tried.is_some() && !self.mark_parts(now, tag) {
                    self.requests[tag].tried().avoid = None;
                    self.requeue(now, tag);
                    return;
                }
                if let Some(period) = unflushed_in {
                    self.disks[io.disk.index()].unflushed.mark(now, path, period);
                }
                let result = if io.op == Op::Flush { self.end_shared_flush(now, tag) } else { Ok(()) };
                self.finish(tag, result);
                return;
            }
            Outcome::Failed(error) => {
                stats.errors += 1;
                if error != IoError::Unsupported {
                    self.failed(now, tag, latency);
                }
                self.note_shared_cache_loss(now, tag, outcome);
                self.finish(tag, Err(error));
                return;
            }
            Outcome::GivenUp => {
                self.finish(tag, Err(IoError::GivenUp));
                return;
            }
            Outcome::Recalled { .. } => {
                self.recalled(now, tag, latency);
                return;
            }
            Outcome::PathError | Outcome::Retry { .. } | Outcome::Lost { .. } => stats.errors += 1,
        }
        self.note_shared_cache_loss(now, tag, outcome);
        let request = &mut self.requests[tag];
        if !matches!(outcome, Outcome::Retry { .. }) {
            let is_fenced = outcome == Outcome::Lost { indeterminate: true } && request.io.op.is_mutating();
            request.tried().failover.get_or_insert(Failover { since: bound_at, is_of_path: !is_fenced });
        }
        match outcome {
            Outcome::Retry { after, cause } => {
                let tried = request.tried();
                tried.retries += 1;
                tried.retry_error = cause.error();
                tried.avoid = Some(path);
                tried.delay(now, path, after);
                self.report_failure(now, tag, latency);
                self.requeue_after(now, tag, after);
            }
            Outcome::Lost { indeterminate: true } if request.io.op.is_mutating() => {
                request.tried().failovers += 1;
                request.leaves_state(now, &self.host_time);
                request.state = State::Fenced;
                self.paths[path.index()].fenced.push((epoch, tag));
            }
            Outcome::PathError => {
                request.tried().refused(path, self.paths[path.index()].per_disk[io.disk.index()].rest.is_refusing());
                self.path_error(now, path, io.disk, bound_at);
                self.try_again(now, tag);
            }
            _ => {
                request.tried().failovers += 1;
                self.try_again(now, tag);
            }
        }
    }

    /// Marks the parts of a write that earlier attempts have done as unflushed. Returns `false`, and marks none, if a part may be
    /// lost with its cache. The guest was not told of the write yet, so all of it is to be written again.
    #[cold]
    fn mark_parts(&mut self, now: Instant, tag: Tag) -> bool {
        let request = &mut self.requests[tag];
        let parts = std::mem::take(&mut request.tried().partly_unflushed_in);
        let unflushed = &self.disks[request.io.disk.index()].unflushed;
        let are_current = parts.iter().all(|(path, period)| unflushed.is_current_period(*path, *period));
        if are_current {
            for (path, period) in parts {
                unflushed.mark(now, path, period);
            }
        }
        are_current
    }

    /// Queues a recalled request again. A recall is a failure neither of the request nor of the path, so it counts
    /// towards no limit of retries or failovers. Otherwise two slow paths would use up these limits. [`crate::silence`]
    /// keeps the request from moving between paths too often.
    fn recalled(&mut self, now: Instant, tag: Tag, latency: Duration) {
        let request = &mut self.requests[tag];
        assert!(request.recalled, "only a recalled request ends so");
        let (path, since) = (request.path, request.bound_at);
        let is_of_path = self.paths[path.index()].watch.is_suspect();
        let tried = request.tried();
        tried.recalls += 1;
        tried.failover.get_or_insert(Failover { since, is_of_path });
        tried.avoid = Some(path);
        self.paths[path.index()].recalled += 1;
        // The latency would have been longer still. Without this report the policy would keep the path's old, better
        // estimate. A path that answers all other reads is not at fault.
        let ended = if is_of_path { AttemptEnd::Failed } else { AttemptEnd::Overtaken };
        self.report_to_policy(now, tag, latency, ended);
        if self.has_given_up(now, self.requests[tag].io.disk) {
            self.finish(tag, Err(IoError::NoPath));
        } else {
            self.requeue(now, tag);
        }
    }

    /// Counts a request that has failed for good. The usual cause is the medium or the request. If nothing else
    /// succeeds on the path, the path is the cause, and the policy learns of the failure.
    fn failed(&mut self, now: Instant, tag: Tag, latency: Duration) {
        let path = &mut self.paths[self.requests[tag].path.index()];
        path.failed_in_row += 1;
        if path.failed_in_row >= FAILED_MAX {
            self.report_failure(now, tag, latency);
        }
    }

    /// Reports a failure of a path to the policy.
    fn report_failure(&mut self, now: Instant, tag: Tag, latency: Duration) {
        self.report_to_policy(now, tag, latency.max(FAILED_LATENCY), AttemptEnd::Failed);
    }

    /// Reports the end of an attempt to the policy.
    #[inline]
    fn report_to_policy(&mut self, now: Instant, tag: Tag, latency: Duration, ended: AttemptEnd) {
        let request = &self.requests[tag];
        let (path, class, bytes) = (request.path, request.io.op.class(), request.io.bytes);
        let of_class = self.paths[path.index()].by_class[class.index()];
        let done = CompletedAttempt { now, path, class, bytes, latency, ended, of_class };
        self.policies.of(class).completed(&done);
    }

    pub(super) fn path_error(&mut self, now: Instant, path: PathId, disk: DiskId, bound_at: Instant) {
        self.paths[path.index()].per_disk[disk.index()].rest.path_error(now, bound_at);
        self.find_disks_without_path(now);
        self.refresh_eligible(now);
    }

    fn requeue_after(&mut self, now: Instant, tag: Tag, after: Duration) {
        if after.is_zero() || self.out_of_attempts(tag).is_some() {
            self.try_again(now, tag);
        } else {
            self.back_off(now, tag, after);
        }
    }

    /// Retries a request whose time has come. The request waits on if every usable path leads to a controller that
    /// asked for a longer delay.
    pub(super) fn retry_due(&mut self, now: Instant, tag: Tag) {
        if self.is_delayed(now, tag) {
            self.back_off_until_delay_is_over(now, tag);
        } else {
            self.try_again(now, tag);
        }
    }

    /// Whether every usable path of the disk leads to a controller that has asked for a delay.
    pub(super) fn is_delayed(&self, now: Instant, tag: Tag) -> bool {
        let request = &self.requests[tag];
        let is_usable = || self.disks[request.io.disk.index()].eligible != 0;
        request.known().delayed_paths(now) != 0 && is_usable() && self.choices(now, request) == 0
    }

    pub(super) fn back_off_until_delay_is_over(&mut self, now: Instant, tag: Tag) {
        let left = self.requests[tag].known().delayed_until(now) - now;
        self.back_off(now, tag, left);
    }

    fn back_off(&mut self, now: Instant, tag: Tag, delay: Duration) {
        let request = &mut self.requests[tag];
        if request.state == State::Queued {
            request.history.left_queue(now, || self.scheduler.pauses(now, request.io.disk));
        }
        request.leaves_state(now, &self.host_time);
        request.state = State::Backoff;
        self.backoff += 1;
        self.timers.set(now, delay.min(CONTROLLER_DELAY_MAX), Due::Retry(tag));
    }

    /// Tries a request again after an attempt that can have no further effect. Fails the request if it has no
    /// attempts left.
    pub(super) fn try_again(&mut self, now: Instant, tag: Tag) {
        let request = &self.requests[tag];
        let (path, class) = (request.path, request.io.op.class());
        if let Some(error) = self.out_of_attempts(tag) {
            self.finish(tag, Err(error));
            return;
        }
        if self.has_given_up(now, request.io.disk) {
            self.finish(tag, Err(IoError::NoPath));
            return;
        }
        self.paths[path.index()].stats[class.index()].retries += 1;
        self.requeue(now, tag);
    }

    /// Puts a request back at the front of its flow.
    pub(super) fn requeue(&mut self, now: Instant, tag: Tag) {
        let request = &mut self.requests[tag];
        request.leaves_state(now, &self.host_time);
        request.state = State::Queued;
        let io = request.io;
        request.history.queued_again(self.scheduler.pauses(now, io.disk));
        self.scheduler.push_front(now, &io, !self.fans_out(io.op));
    }

    /// The error of a request that has no attempts left.
    fn out_of_attempts(&self, tag: Tag) -> Option<IoError> {
        let tried = self.requests[tag].known();
        if tried.retries > self.config.max_retries {
            return Some(tried.retry_error);
        }
        (tried.failovers > self.config.max_failovers).then_some(IoError::Attempts)
    }
}
