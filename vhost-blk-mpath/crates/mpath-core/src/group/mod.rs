//! Decides: requests of a disk without a path fail (`fast-io-fail-tmo`) (`gives_up_at`).
//!
//! The group: the requests and paths of one disk, or of disks that share paths, in one I/O thread.
//!
//! * `mod`: configuration, small events, time.
//! * [`dispatch`]: which request gets which path, and when.
//! * [`candidates`]: what policies see of the paths.
//! * [`completion`]: what follows from the outcome of an attempt.
//! * [`paths`]: paths that come and go, and fences.
//! * [`injection`]: injections, and the requests and answers that they keep.
//! * [`flush`]: flushes, which go to every unflushed path.
//! * [`hedge`]: slow reads that are sent a second time.
//! * [`probe`]: reads by which the daemon measures unused paths.
//! * [`suspicion`]: suspect paths.
//! * [`recall`]: requests taken back from their paths.
//! * [`io_timeout`]: commands that are not answered in time.
//! * [`daemon_flush`]: flushes of the daemon itself.
//! * [`stats`]: snapshots of the statistics.
//! * [`explain`]: what happens next, and why.
//! * [`slow`]: the slowest requests of the last minutes.

mod candidates;
mod completion;
mod daemon_flush;
mod dispatch;
mod explain;
mod flush;
mod hedge;
mod injection;
mod io_timeout;
mod paths;
mod probe;
mod recall;
mod slow;
mod stats;
mod suspicion;

use std::collections::VecDeque;
use std::sync::Arc;

use monotonic::{Duration, Instant};

use crate::attention::Attention;
use crate::guest_io::{GuestCounts, SinceStart};
use crate::host_time::HostTime;
use crate::late_answers::LateAnswers;
use crate::oldest_request::PublishedRequest;
use crate::path::Path;
use crate::policy::ActivePolicies;
use crate::requests::{Requests, State};
use crate::scheduler::Scheduler;
use crate::slow_requests::SlowRequests;
use crate::timers::{Due, Timers};
use crate::usable_paths::PublishedPaths;
use crate::{
    Action, ClassPolicies, DiskId, FailedRequest, FailoverTimes, FenceWaits, FlowId, GuestErrors, Io, IoError,
    MAX_DISKS, Op, Outcome, PathId, PolicyKind, SchedulerKind, SchedulerSpec, SharedDisk, Tag, UnflushedPaths, Window,
};
use candidates::Candidates;
use flush::FlushJobs;
use hedge::Hedges;
pub use hedge::Hedging;

/// Settings of a [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The policies at the start.
    pub policy: ClassPolicies,
    /// The scheduler at the start.
    pub scheduler: SchedulerSpec,
    /// The limit of each path's requests in flight.
    pub window: Window,
    /// The most retries of a request that controllers ask for. One more fails the request. Linux:
    /// `nvme_core.max_retries`, 5.
    pub max_retries: u32,
    /// The most failovers of a request: by lost paths, and by path errors of a path that has refused the request before and
    /// serves others. One more fails the request.
    pub max_failovers: u32,
    /// The subsystem's controllers share one write cache per namespace: a flush on any controller covers the writes
    /// of all. Without this, a flush goes to every unflushed controller, and the loss of an unflushed controller
    /// fails the next flush.
    pub shared_write_cache: bool,
    /// How long requests wait while no path is live; `None` is without end. After that they fail, and new requests
    /// fail at once. See also [`Group::set_paths_expected`].
    pub no_path_timeout: Option<Duration>,
    /// The longest silence of a path that owes answers before it is suspect. A path that has been quicker so far is
    /// suspect sooner.
    pub suspect_timeout: Duration,
    /// How long a command may wait for its answer. An older command ends its association. Linux:
    /// `nvme_core.io_timeout`, 30 s.
    pub io_timeout: Duration,
    /// How slow reads are hedged at the start; `None`: not at all.
    pub hedging: Option<Hedging>,
    /// Seed of the random choices of policies: the jitter of probes.
    pub seed: u64,
}

impl Default for GroupConfig {
    /// `round-robin`, `fifo`, 5 retries, 16 failovers, no end of waiting, suspect after 300 ms, an I/O timeout of 30
    /// s, no hedges.
    fn default() -> Self {
        Self {
            policy: PolicyKind::RoundRobin.into(),
            scheduler: SchedulerKind::Fifo.into(),
            window: Window::default(),
            max_retries: 5,
            max_failovers: 16,
            shared_write_cache: false,
            no_path_timeout: None,
            suspect_timeout: Duration::from_millis(300),
            io_timeout: Duration::from_secs(30),
            hedging: None,
            seed: 0,
        }
    }
}

/// The multipath core of one disk, or of disks that share paths, in one I/O thread. The crate's documentation has the
/// rules for its driver.
#[derive(Debug)]
pub struct Group {
    config: GroupConfig,
    since_start: SinceStart,
    /// The last [`Group::take_minute`], and how long this host had not run the thread until then.
    minute_began: Instant,
    taken_stalled: Duration,
    policies: ActivePolicies,
    /// By id, including ids without a path.
    paths: Vec<Path>,
    requests: Requests,
    /// Requests that wait for a path.
    scheduler: Scheduler,
    timers: Timers,
    flushes: FlushJobs,
    hedges: Hedges,
    /// By id.
    disks: Vec<GroupDisk>,
    /// Disks with namespaces that no live path leads to.
    without_path: usize,
    /// The paths that policies may choose from now for any disk, as a set.
    eligible: u64,
    /// The paths with room for a request without data, as a set.
    with_room: u64,
    /// The paths with a probe, as a set.
    probed: u64,
    /// Requests that the injection of their path has released. If there is an outcome, the injection ends the request
    /// with it, and the request is not sent.
    released: VecDeque<(PathId, Tag, Option<Outcome>)>,
    finished: VecDeque<(Tag, Result<(), IoError>)>,
    /// Requests submitted and not yet finished.
    open: usize,
    slow: SlowRequests,
    /// The disk whose slowest request has ended last, if its sector is not known yet.
    needs_sector: Option<DiskId>,
    /// When to publish the oldest open request of each disk again.
    publish_oldest_at: Instant,
    /// Whether an open request is published.
    has_published_oldest: bool,
    /// Requests in [`State::Backoff`].
    backoff: u64,
    failover_times: FailoverTimes,
    attention: Attention,
    host_time: HostTime,
    late_answers: LateAnswers,
    /// The suspect paths, as a set.
    suspects: u64,
    /// When to look for suspect paths: at the time when the next one may become suspect, or earlier.
    watch_at: Option<Instant>,
    /// When to look for requests to recall: at the time when the next one is due, or earlier.
    recall_at: Option<Instant>,
    /// When the next rest of a path ends.
    rest_ends_at: Option<Instant>,
    /// Whether a path may come back.
    paths_expected: bool,
    /// When to ask a policy again that chose to wait.
    select_again_at: Option<Instant>,
    /// Paths, as a set, that have no room for an earlier request. Later requests may not take the room there.
    reserved_paths: u64,
    /// By class.
    candidates: [Candidates; 3],
}

/// The earlier of two times, if there is one.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The paths of a set, in the order of their ids.
#[inline]
pub(super) fn paths_of(mut set: u64) -> impl Iterator<Item = PathId> {
    std::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let id = PathId(set.trailing_zeros() as u16);
        set &= set - 1;
        Some(id)
    })
}

/// A disk of the group. Sets are sets of paths.
#[derive(Debug)]
struct GroupDisk {
    unflushed: Arc<UnflushedPaths>,
    errors: Arc<GuestErrors>,
    published: PublishedPaths,
    /// The paths that policies may choose from now.
    eligible: u64,
    /// Paths that take requests, and are not suspect and not drained, including those in a worse ANA state.
    usable: u64,
    /// The suspect paths that get no requests because a usable path exists.
    bypassed: u64,
    /// The time since which no live path leads to the namespace.
    no_path_since: Option<Instant>,
    fence_waits: FenceWaits,
    guest: GuestCounts,
    oldest: PublishedRequest,
}

impl Group {
    /// A group without paths. The position of a disk in `disks` is its [`DiskId`]; there are 1 to [`MAX_DISKS`]
    /// disks.
    #[must_use]
    pub fn new(now: Instant, config: GroupConfig, disks: &[SharedDisk]) -> Self {
        assert!((1..=MAX_DISKS).contains(&disks.len()), "a group has 1 to {MAX_DISKS} disks");
        let limits = disks.iter().map(|disk| Arc::clone(&disk.limits));
        let of = |disk: &SharedDisk| GroupDisk {
            unflushed: Arc::clone(&disk.unflushed),
            errors: Arc::clone(&disk.errors),
            published: disk.usable.publisher(),
            eligible: 0,
            usable: 0,
            bypassed: 0,
            no_path_since: Some(now),
            fence_waits: FenceWaits::default(),
            guest: GuestCounts::default(),
            oldest: disk.oldest.publisher(now),
        };
        Self {
            since_start: SinceStart::new(now),
            minute_began: now,
            taken_stalled: Duration::ZERO,
            policies: ActivePolicies::new(config.policy, config.seed),
            config,
            paths: Vec::new(),
            requests: Requests::default(),
            scheduler: Scheduler::new(config.scheduler, limits),
            timers: Timers::default(),
            flushes: FlushJobs::default(),
            hedges: Hedges::new(config.hedging),
            disks: disks.iter().map(of).collect(),
            without_path: disks.len(),
            eligible: 0,
            with_room: 0,
            probed: 0,
            released: VecDeque::new(),
            finished: VecDeque::new(),
            open: 0,
            slow: SlowRequests::new(now),
            needs_sector: None,
            publish_oldest_at: now,
            has_published_oldest: false,
            backoff: 0,
            failover_times: FailoverTimes::default(),
            attention: Attention::new(),
            host_time: HostTime::new(),
            late_answers: LateAnswers::default(),
            suspects: 0,
            watch_at: None,
            recall_at: None,
            rest_ends_at: None,
            paths_expected: true,
            select_again_at: None,
            reserved_paths: 0,
            candidates: Default::default(),
        }
    }

    /// Takes a request. It ends with exactly one [`Action::Finish`].
    pub fn submit(&mut self, now: Instant, io: Io) {
        self.submit_queued_since(now, now, io);
    }

    /// Takes a request that may have waited in its virtqueue since `since`, because the I/O thread has just begun to
    /// serve the virtqueue. A flush then also reports losses that other flushes have reported since then, because the
    /// guest may have submitted this flush before those reports.
    pub fn submit_queued_since(&mut self, now: Instant, since: Instant, io: Io) {
        self.requests.insert(now, io, self.scheduler.pauses(now, io.disk));
        self.hedges.submitted(io.op);
        self.open += 1;
        if io.op == Op::Flush {
            self.prepare_flush(since, io.tag);
        }
        self.scheduler.push_back(now, &io, !self.fans_out(io.op));
    }

    /// The next action for the driver; `None`: nothing until the next event or timeout.
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        let finished = self.poll_finished(now);
        if finished.is_some() {
            return finished;
        }
        self.handle_timeout(now);
        loop {
            let finished = self.poll_finished(now);
            if finished.is_some() {
                return finished;
            }
            if self.is_recall_due(now)
                && let Some(recall) = self.poll_recall(now)
            {
                return Some(recall);
            }
            if !self.released.is_empty()
                && let Some(released) = self.poll_released(now)
            {
                return Some(released);
            }
            if let Some(bound) = self.bind_next(now) {
                return Some(bound);
            }
            // A flush that has just started may be over already.
            let action = self.poll_finished(now).or_else(|| self.poll_hedge(now)).or_else(|| self.poll_probe(now));
            // An injection may have failed the request that was just bound, and recalled requests may have a better
            // path. Or a path has become usable that silent paths are to be compared with.
            if action.is_some() || (self.released.is_empty() && !self.is_recall_due(now) && !self.is_watch_due(now)) {
                return action;
            }
            self.check_watches(now);
        }
    }

    /// The next end of a hedge, or of a request. A hedge ends before its request.
    #[inline]
    fn poll_finished(&mut self, now: Instant) -> Option<Action> {
        if let Some(hedge) = self.poll_hedge_end() {
            return Some(hedge);
        }
        let (tag, result) = self.finished.pop_front()?;
        Some(self.end_request(now, tag, result))
    }

    /// Ends a request that has finished.
    fn end_request(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) -> Action {
        let request = &mut self.requests[tag];
        request.state = State::Free;
        self.open -= 1;
        self.answered(now, tag, result);
        Action::Finish { tag, result }
    }

    fn poll_released(&mut self, now: Instant) -> Option<Action> {
        loop {
            let (path, tag, outcome) = self.released.pop_front()?;
            if self.has_flush_commands(tag) {
                self.flush_command_released(now, path, tag);
            } else {
                let state = &mut self.requests[tag].state;
                assert_eq!(*state, State::Injected, "an injection releases only requests that it kept");
                *state = State::InFlight;
            }
            if let Some(outcome) = outcome {
                // The injection answers the request; the driver never gets it.
                self.end_attempt(now, path, tag, outcome, false);
                continue;
            }
            self.requests[tag].history.released();
            self.issued(now, path, tag);
            return Some(Action::Issue { path, tag });
        }
    }

    /// The latest time for the next call of [`Group::handle_timeout`], given that [`Group::poll_action`] has returned
    /// `None`.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let mut next = earlier(self.timers.next(), self.rest_ends_at);
        next = earlier(next, self.next_suspicion());
        next = earlier(next, self.next_expiry());
        next = earlier(next, self.hedges.next_timeout());
        next = earlier(next, self.scheduler.next_timeout());
        if self.flushes.is_waiting() {
            next = earlier(next, self.flushes.look_again_at());
        }
        if self.open > 0 {
            next = earlier(next, earlier(self.recall_at, self.policies.next_timeout()));
        }
        if self.scheduler.len() > 0 {
            next = earlier(next, self.select_again_at);
        }
        if self.without_path > 0 && self.scheduler.len() > 0 {
            let stands = |disk: &DiskId| self.scheduler.len_of(*disk) > 0 && self.disks[disk.index()].eligible == 0;
            let waiting = self.disks().filter(stands);
            next = waiting.fold(next, |next, disk| earlier(next, self.gives_up_at(disk)));
        }
        next
    }

    /// Handles what is due. [`Group::poll_action`] does so too.
    #[inline]
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.next())
            || is_due(self.watch_at)
            || is_due(self.rest_ends_at)
            || self.scheduler.throttles()
            || self.without_path > 0
        {
            self.handle_due(now);
        }
    }

    fn handle_due(&mut self, now: Instant) {
        while let Some(due) = self.timers.pop_due(now) {
            match due {
                Due::Inject(path, tag, outcome) => self.released.push_back((path, tag, outcome)),
                Due::Answer(path, tag, answer) => self.answer_due(now, path, tag, answer),
                Due::Abandoned(path, class) => self.abandoned_due(now, path, class),
                Due::Hedge(path, tag) => self.release_hedge(now, path, tag, true),
                Due::Probe(path) => self.release_probe(now, path, true),
                Due::Retry(tag) => {
                    self.backoff -= 1;
                    self.retry_due(now, tag);
                }
                Due::RetryFlushCommand(path, tag) => self.queue_flush_command(path, tag),
            }
        }
        self.scheduler.handle_timeout(now);
        self.check_watches(now);
        if self.rest_ends_at.is_some_and(|at| at <= now) {
            self.refresh_eligible(now);
        }
        if self.without_path > 0 && self.scheduler.len() > 0 {
            for disk in self.disks() {
                if self.has_given_up(now, disk) && self.scheduler.len_of(disk) > 0 {
                    for tag in self.scheduler.take_all_of(disk) {
                        self.finish(tag, Err(IoError::NoPath));
                    }
                }
            }
        }
    }

    /// Changes the policies. They decide on the next request. A policy that was already in force keeps its estimates,
    /// even if its parameters change. A new policy starts without estimates. Statistics continue.
    pub fn set_policy(&mut self, policies: impl Into<ClassPolicies>) {
        self.policies.set(policies.into());
        self.select_again_at = None;
    }

    /// The policies in force.
    #[must_use]
    pub fn policy(&self) -> &ClassPolicies {
        self.policies.specs()
    }

    /// Changes the scheduler or its parameters. It decides on the next request. No request is lost, and none
    /// overtakes another of its flow. A scheduler that was already in force keeps its state of the flows, even if its
    /// parameters change.
    pub fn set_scheduler(&mut self, spec: impl Into<SchedulerSpec>) {
        self.scheduler.set(spec.into());
    }

    /// The scheduler in force.
    #[must_use]
    pub fn scheduler(&self) -> &SchedulerSpec {
        self.scheduler.spec()
    }

    /// Exempts the requests that a flow has queued from the limits of its disk, because its virtqueue is about to
    /// stop. Later requests wait for the excess.
    pub fn lift_limits_of(&mut self, flow: FlowId) {
        self.scheduler.lift_limits_of(flow);
    }

    /// Gives up the requests of a flow: the guest sees none of their results. Requests that wait for their turn or for a retry
    /// end at once. Requests on a path, or behind a fence, end as usual. If the caller ends paths to get rid of these requests,
    /// it calls this before and after that.
    pub fn give_up(&mut self, flow: FlowId) {
        self.give_up_flushes(flow);
        let mut ended = self.scheduler.take_all_of_flow(flow);
        let retries = self.timers.take_retries(|tag| self.requests[tag].io.flow == flow);
        self.backoff -= retries.len() as u64;
        ended.extend(retries);
        for tag in ended {
            self.finish(tag, Err(IoError::GivenUp));
        }
    }

    /// Sets a disk's weight among the disks, at least 1; at first [`crate::DEFAULT_WEIGHT`]. Its flows share the
    /// service of the disk.
    pub fn set_weight(&mut self, disk: DiskId, weight: u16) {
        self.scheduler.set_weight(disk, weight);
    }

    /// Sets whether a path may come back. If not, requests fail at once while no path is live. At first paths are
    /// expected.
    pub fn set_paths_expected(&mut self, expected: bool) {
        self.paths_expected = expected;
    }

    /// The suspect paths as a set: bit 0 is [`PathId`] 0.
    #[must_use]
    pub fn suspects(&self) -> u64 {
        self.suspects
    }

    /// The time since which no live path leads to the namespace of a disk.
    #[must_use]
    pub fn without_path_since(&self, disk: DiskId) -> Option<Instant> {
        self.disks[disk.index()].no_path_since
    }

    /// Requests submitted and not finished yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    fn disks(&self) -> impl Iterator<Item = DiskId> + use<> {
        (0..self.disks.len() as u16).map(DiskId)
    }

    /// When requests of a disk without a live path fail.
    fn gives_up_at(&self, disk: DiskId) -> Option<Instant> {
        let since = self.disks[disk.index()].no_path_since?;
        if self.paths_expected { Some(since + self.config.no_path_timeout?) } else { Some(since) }
    }

    /// Whether requests of a disk fail for want of a path. A path that has refused requests is tried again after its rest.
    fn has_given_up(&self, now: Instant, disk: DiskId) -> bool {
        self.gives_up_at(disk).is_some_and(|at| at <= now) && self.disks[disk.index()].eligible == 0
    }

    #[inline]
    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        let request = &mut self.requests[tag];
        assert!(!matches!(request.state, State::Free | State::Finished), "a request finishes once");
        (request.ended_in, request.state) = (request.state, State::Finished);
        let (job, io) = (request.job, request.io);
        self.scheduler.finished(io.flow);
        if let Err(error) = result
            && error != IoError::GivenUp
        {
            self.count_errors(io.disk, Some(io.op), error, 1);
        }
        if io.op == Op::Flush {
            self.flushes.free(job);
        }
        self.finished.push_back((tag, result));
    }

    /// Counts errors that the guest of a disk gets. `op` is `None` if the operation is not known.
    pub fn count_errors(&self, disk: DiskId, op: Option<Op>, error: IoError, count: u64) {
        if count > 0 {
            self.disks[disk.index()].errors.add(op, error, count);
        }
    }

    /// Records a request that has failed, for the operator. [`Action::Finish`] has counted it.
    pub fn record_failed(&self, disk: DiskId, failed: FailedRequest) {
        self.disks[disk.index()].errors.record(failed);
    }

    /// Whether an operation goes to every unflushed path, rather than to one path that the policy chooses.
    fn fans_out(&self, op: Op) -> bool {
        op == Op::Flush && !self.config.shared_write_cache
    }

    fn has_flush_commands(&self, tag: Tag) -> bool {
        self.fans_out(self.requests[tag].io.op)
    }
}
