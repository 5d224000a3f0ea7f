//! Decides: a request's time belongs to this stage.
//!
//! The stages of a request between its submission and its end, for the list of slow requests.
//!
//! The fast path stores two times and the set of paths. Everything else is added when a request leaves the fast path:
//! when an injection keeps it, or when it waits for another attempt.

use std::fmt;
use std::ops::{Add, AddAssign};

use monotonic::{Duration, Instant};

use crate::PathId;
use crate::host_time::HostTime;

/// How long a request was in each stage.
// The sum is the time from submission to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
#[cfg_attr(feature = "api", schema(as = SlowStages))]
pub struct Stages {
    /// The limits of the disk let nothing go.
    #[cfg_attr(feature = "api", serde(rename = "limit-us", with = "crate::us"), schema(value_type = u64))]
    pub limit: Duration,
    /// No path was eligible.
    #[cfg_attr(feature = "api", serde(rename = "no-path-us", with = "crate::us"), schema(value_type = u64))]
    pub no_path: Duration,
    /// Waited for its turn and for a path with room.
    #[cfg_attr(feature = "api", serde(rename = "queue-us", with = "crate::us"), schema(value_type = u64))]
    pub queue: Duration,
    /// Kept by injections.
    #[cfg_attr(feature = "api", serde(rename = "injection-us", with = "crate::us"), schema(value_type = u64))]
    pub injection: Duration,
    /// With the queue pair, until its last command was encoded for the socket.
    #[cfg_attr(feature = "api", serde(rename = "send-us", with = "crate::us"), schema(value_type = u64))]
    pub send: Duration,
    /// From there to the answer: the socket, the network and the target. A flush has everything after its turn here.
    #[cfg_attr(feature = "api", serde(rename = "path-us", with = "crate::us"), schema(value_type = u64))]
    pub path: Duration,
    /// With paths, in attempts before the last one.
    #[cfg_attr(feature = "api", serde(rename = "earlier-attempts-us", with = "crate::us"), schema(value_type = u64))]
    pub earlier_attempts: Duration,
    /// Waited for the time of a retry.
    #[cfg_attr(feature = "api", serde(rename = "retry-us", with = "crate::us"), schema(value_type = u64))]
    pub retry: Duration,
    /// In doubt: waited for a fence. Or the request waited in its virtqueue while its disk was held.
    #[cfg_attr(feature = "api", serde(rename = "fence-us", with = "crate::us"), schema(value_type = u64))]
    pub fence: Duration,
    /// In any of these stages, while this host did not run the I/O thread: the thread was stopped, or waited for a
    /// processor. Times below 5 ms are not noticed.
    #[cfg_attr(feature = "api", serde(rename = "host-us", default, with = "crate::us"), schema(value_type = u64))]
    pub host: Duration,
}

impl Stages {
    /// Every stage with its name, in the order of a request.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Duration); 10] {
        [
            ("limit", self.limit),
            ("no-path", self.no_path),
            ("queue", self.queue),
            ("injection", self.injection),
            ("send", self.send),
            ("path", self.path),
            ("earlier-attempts", self.earlier_attempts),
            ("retry", self.retry),
            ("fence", self.fence),
            ("host", self.host),
        ]
    }

    /// The sum of all stages.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.named().into_iter().map(|(_, time)| time).sum()
    }

    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, Duration::saturating_sub)
    }

    /// Each stage with that of `other`.
    fn with(self, other: Self, of: impl Fn(Duration, Duration) -> Duration) -> Self {
        Self {
            limit: of(self.limit, other.limit),
            no_path: of(self.no_path, other.no_path),
            queue: of(self.queue, other.queue),
            injection: of(self.injection, other.injection),
            send: of(self.send, other.send),
            path: of(self.path, other.path),
            earlier_attempts: of(self.earlier_attempts, other.earlier_attempts),
            retry: of(self.retry, other.retry),
            fence: of(self.fence, other.fence),
            host: of(self.host, other.host),
        }
    }

    /// The name of the longest stage.
    #[must_use]
    pub fn longest(&self) -> &'static str {
        let longest = self.named().into_iter().max_by_key(|(_, time)| *time);
        longest.map_or("", |(name, _)| name)
    }
}

impl AddAssign for Stages {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, Add::add);
    }
}

/// How long limits or a lack of paths have held the requests of a disk, in µs. The values are sums since the start of
/// the group, which wrap, or differences of such sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    pub(crate) limit_us: u32,
    pub(crate) no_path_us: u32,
}

impl Pauses {
    /// What has been added since `earlier`.
    fn since(self, earlier: Self) -> Self {
        Self {
            limit_us: self.limit_us.wrapping_sub(earlier.limit_us),
            no_path_us: self.no_path_us.wrapping_sub(earlier.no_path_us),
        }
    }
}

/// Measures the pauses of a disk.
#[derive(Clone, Copy, Default)]
pub(crate) struct PauseClock {
    /// Pauses that are over.
    ended: Pauses,
    blocked_since: Option<Instant>,
}

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for PauseClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseClock").finish_non_exhaustive()
    }
}

impl PauseClock {
    /// Records that the disk has no eligible path, or has one again.
    pub(crate) fn set_blocked(&mut self, now: Instant, is_blocked: bool) {
        if is_blocked {
            self.blocked_since.get_or_insert(now);
        } else if let Some(since) = self.blocked_since.take() {
            self.ended.no_path_us = self.ended.no_path_us.wrapping_add(us(now - since));
        }
    }

    /// Adds a time for which limits have throttled the disk.
    #[cold]
    pub(crate) fn throttled(&mut self, time: Duration) {
        self.ended.limit_us = self.ended.limit_us.wrapping_add(us(time));
    }

    /// The pauses that are over.
    #[inline]
    pub(crate) fn ended(&self) -> Pauses {
        self.ended
    }

    /// All pauses until now.
    #[cold]
    pub(crate) fn until(&self, now: Instant, throttled_since: Option<Instant>) -> Pauses {
        let until_now = |since: Option<Instant>| since.map_or(0, |since| us(now - since));
        Pauses {
            limit_us: self.ended.limit_us.wrapping_add(until_now(throttled_since)),
            no_path_us: self.ended.no_path_us.wrapping_add(until_now(self.blocked_since)),
        }
    }
}

/// A time in µs, which wraps after 71 minutes.
fn us(time: Duration) -> u32 {
    time.as_micros() as u32
}

/// What a request has gone through so far.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) submitted_at: Instant,
    /// When the last command of an attempt was sent. If this is before the issue of the present attempt, it is of an
    /// earlier attempt.
    pub(crate) sent_at: Instant,
    /// The paths that got the request, hedges included, as a set.
    pub(crate) paths: u64,
    /// While the request is queued: the pauses of the disk until it was queued, less those that the request had waited for
    /// before. Otherwise: the pauses that the request has waited for.
    paused: Pauses,
    rare: Option<Box<Rare>>,
}

/// The phase that a request is in, with the times of its attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for its turn and for a path.
    Queued,
    /// Waits for the time of a retry.
    Retry,
    /// Waits for a fence.
    Fence,
    /// A flush with its commands on their way.
    Flush { began: Instant },
    /// Bound to a path.
    Path { bound_at: Instant, issued_at: Instant },
}

/// What only some requests go through.
#[derive(Clone, Default)]
struct Rare {
    /// Stages that are over. `queue` includes pauses.
    stages: Stages,
    /// The end of these stages.
    since: Option<Instant>,
    /// Since when the injection of the path keeps the request or its answer.
    kept_since: Option<Instant>,
}

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}

impl History {
    /// The history of a request that is submitted now. `pauses` are those of its disk so far.
    #[inline]
    pub(crate) fn new(now: Instant, pauses: Pauses) -> Self {
        Self { submitted_at: now, sent_at: now, paths: 0, paused: pauses, rare: None }
    }

    /// Records that the request, submitted now, has waited in its virtqueue since `since`, in this phase.
    pub(crate) fn waited_in_virtqueue(&mut self, now: Instant, since: Instant, phase: Phase, host: &HostTime) {
        self.submitted_at = since;
        self.leave(now, phase, host);
    }

    /// Records that the request leaves its queue for a path. `pauses` are those of its disk so far.
    #[inline]
    pub(crate) fn bound(&mut self, now: Instant, path: PathId, pauses: impl FnOnce() -> Pauses) {
        self.paths |= path.bit();
        self.left_queue(now, pauses);
    }

    /// Records that the request leaves its queue. `pauses` are those of its disk so far.
    #[inline]
    pub(crate) fn left_queue(&mut self, now: Instant, pauses: impl FnOnce() -> Pauses) {
        let has_waited = now != self.submitted_at;
        self.paused = if has_waited { pauses().since(self.paused) } else { Pauses::default() };
    }

    /// Records that the injection of its path keeps the request, or its answer, from now on.
    pub(crate) fn kept(&mut self, now: Instant) {
        self.rare.get_or_insert_default().kept_since = Some(now);
    }

    /// Records that the injection of its path has let the request go.
    pub(crate) fn released(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.kept_since = None;
        }
    }

    /// When the present phase began.
    pub(crate) fn phase_began(&self) -> Instant {
        self.rare.as_ref().and_then(|rare| rare.since).unwrap_or(self.submitted_at)
    }

    /// Ends the present phase, because the request waits for another attempt. The times of the last attempt move to
    /// `earlier_attempts`.
    pub(crate) fn leave(&mut self, now: Instant, phase: Phase, host: &HostTime) {
        let mut rare = self.with_phase(now, phase, host);
        let Stages { send, path, .. } = rare.stages;
        rare.stages.earlier_attempts += send + path;
        (rare.stages.send, rare.stages.path) = (Duration::ZERO, Duration::ZERO);
        self.rare = Some(Box::new(rare));
    }

    /// Records that the request is queued again. `pauses` are those of its disk so far.
    pub(crate) fn queued_again(&mut self, pauses: Pauses) {
        self.paused = pauses.since(self.paused);
    }

    /// All stages of a request that ended in this phase. `pauses` are those of its disk so far.
    pub(crate) fn stages(&self, now: Instant, phase: Phase, pauses: Pauses, host: &HostTime) -> Stages {
        let mut stages = self.with_phase(now, phase, host).stages;
        let paused = if phase == Phase::Queued { pauses.since(self.paused) } else { self.paused };
        stages.limit = Duration::from_micros(paused.limit_us.into()).min(stages.queue);
        stages.queue -= stages.limit;
        stages.no_path = Duration::from_micros(paused.no_path_us.into()).min(stages.queue);
        stages.queue -= stages.no_path;
        stages
    }

    /// The stages until now, with the time in the latest phase.
    fn with_phase(&self, now: Instant, phase: Phase, host: &HostTime) -> Rare {
        let mut rare = self.rare.as_deref().cloned().unwrap_or_default();
        let since = rare.since.unwrap_or(self.submitted_at);
        let kept_since = rare.kept_since.take();
        let stages = &mut rare.stages;
        let mut stalled = Duration::ZERO;
        // Adds a time to a stage, less what was the host's.
        let mut add = |stage: &mut Duration, from: Instant, until: Instant| {
            let of_host = host.stalled(from, until);
            stalled += of_host;
            *stage += (until - from).saturating_sub(of_host);
        };
        match phase {
            Phase::Queued => add(&mut stages.queue, since, now),
            Phase::Retry => add(&mut stages.retry, since, now),
            Phase::Fence => add(&mut stages.fence, since, now),
            Phase::Flush { began } => {
                add(&mut stages.queue, since, began);
                add(&mut stages.path, began, now);
            }
            Phase::Path { bound_at, issued_at } => {
                add(&mut stages.queue, since, bound_at);
                // An injection keeps a request from its bind on. What it keeps only from a later time is the answer, so
                // the request was issued.
                let was_issued = kept_since.is_none_or(|kept| kept > bound_at);
                let on_path_until = kept_since.unwrap_or(now);
                add(&mut stages.injection, on_path_until, now);
                if was_issued {
                    add(&mut stages.injection, bound_at, issued_at);
                    let sent_at = self.sent_at.clamp(issued_at, on_path_until);
                    add(&mut stages.send, issued_at, sent_at);
                    add(&mut stages.path, sent_at, on_path_until);
                }
            }
        }
        stages.host += stalled;
        rare.since = Some(now);
        rare
    }
}
