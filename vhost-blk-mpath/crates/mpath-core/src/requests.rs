//! The table of requests, indexed by tag.

use std::ops::{Index, IndexMut};

use monotonic::{Duration, Instant};

use crate::failovers::Failover;
use crate::history::{History, Pauses, Phase};
use crate::host_time::HostTime;
use crate::unflushed::CachePeriod;
use crate::{DiskId, Epoch, FlowId, Io, IoError, Op, PathId, Tag};

/// "No request" in the links of in-flight lists.
const NIL: u32 = u32::MAX;

/// State of a request. Every request has exactly one.
///
/// ```text
///          submit          bind           released        Success, Failed, limits
///  Free ──────────→ Queued ─────→ Injected ─────→ InFlight ──────────────────────→ Finished ─→ Free
///                    ↑  ↑  ↖── path lost, recalled ───┘│ │                             ↑
///                    │  └──── due ──── Backoff ←──────┘ │ Lost, indeterminate         │
///                    └────── fence lifted ── Fenced ←───┘                             │
///                   Queued ──→ Flushing (on several paths at once) ──────────────────→┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// In its flow's queue.
    Queued,
    /// Bound to a path; its injection delays the request.
    Injected,
    /// Bound to a path; its injection keeps the request until the injection ends.
    Stalled,
    /// With the driver.
    InFlight,
    /// Answered by the driver; the injection of the path delays or stalls the answer.
    Answered,
    /// Waits for the time of its retry.
    Backoff,
    /// In doubt: waits for the fence of its association.
    Fenced,
    /// A flush with a command for every unflushed path, sent or queued.
    Flushing,
    /// Finished; its `Finish` has not been polled yet.
    Finished,
}

#[derive(Debug)]
// The flags are independent of each other and of `state`.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Request {
    pub(crate) io: Io,
    pub(crate) state: State,
    /// The path, its association and the time of the latest bind.
    pub(crate) path: PathId,
    pub(crate) epoch: Epoch,
    pub(crate) bound_at: Instant,
    /// When the present attempt was given to the driver, or stalled by an injection. Its age counts from here.
    pub(crate) issued_at: Instant,
    /// Earlier attempts. `None` in the first attempt, which so costs no more for them.
    pub(crate) tried: Option<Box<Tried>>,
    /// The present attempt is recalled.
    pub(crate) recalled: bool,
    /// The present attempt may still be hedged.
    pub(crate) may_hedge: bool,
    /// The cache period in which its completion leaves an unflushed write; `None`: it leaves none.
    pub(crate) unflushed_in: Option<CachePeriod>,
    /// Index of the job of a flush.
    pub(crate) job: usize,
    pub(crate) history: History,
    /// The state in which the request ended.
    pub(crate) ended_in: State,
    prev: u32,
    next: u32,
}

/// The earlier attempts of a request.
#[derive(Debug)]
pub(crate) struct Tried {
    /// Attempts that ended in a retry status.
    pub(crate) retries: u32,
    /// The error if the last of the retries fails.
    pub(crate) retry_error: IoError,
    /// Attempts that ended with the path, or in a path error though the path serves other requests.
    pub(crate) failovers: u32,
    /// The paths that have refused the request, as a set.
    refused_by: u64,
    /// The path that asked for the last retry, or from which the request was recalled. Another path is preferred.
    pub(crate) avoid: Option<PathId>,
    /// Paths with controllers that asked for a delay of this request, and when the delay ends.
    delays: Vec<(PathId, Instant)>,
    /// The failover that is under way; `None` once the request is bound again.
    pub(crate) failover: Option<Failover>,
    /// Attempts that ended in a recall.
    pub(crate) recalls: u32,
    /// The cache periods in which earlier attempts have left unflushed parts of the request.
    pub(crate) partly_unflushed_in: Vec<(PathId, CachePeriod)>,
}

/// Requests in flight on one path, oldest first; the links are in the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightList {
    head: u32,
    tail: u32,
}

impl Default for InFlightList {
    fn default() -> Self {
        Self { head: NIL, tail: NIL }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    slots: Vec<Request>,
}

impl Requests {
    /// All slots, including free ones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.slots.iter()
    }

    /// All slots, including free ones.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.slots.iter_mut()
    }

    /// Adds a request in state `Queued`. `pauses` are those of its disk so far.
    pub(crate) fn insert(&mut self, now: Instant, io: Io, pauses: Pauses) {
        assert!(io.tag.0 < Tag::COUNT, "the virtqueues of all disks have fewer requests");
        while self.slots.len() <= io.tag.0 as usize {
            let tag = Tag(self.slots.len() as u32);
            self.slots.push(Request::free(now, tag, Pauses::default()));
        }
        let slot = &mut self[io.tag];
        assert_eq!(slot.state, State::Free, "a tag is reused only after its Finish");
        // Field by field: a whole request would be written twice.
        (slot.io, slot.state, slot.ended_in, slot.job) = (io, State::Queued, State::Free, 0);
        (slot.path, slot.epoch, slot.bound_at, slot.issued_at) = (PathId(0), Epoch(0), now, now);
        (slot.tried, slot.recalled, slot.may_hedge, slot.unflushed_in) = (None, false, false, None);
        slot.history = History::new(now, pauses);
    }

    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> + use<> {
        (0..self.slots.len() as u32).map(Tag)
    }

    /// Appends a request to the list of its path.
    pub(crate) fn link(&mut self, list: &mut InFlightList, tag: Tag) {
        let slot = &mut self[tag];
        slot.prev = list.tail;
        slot.next = NIL;
        match list.tail {
            NIL => list.head = tag.0,
            tail => self[Tag(tail)].next = tag.0,
        }
        list.tail = tag.0;
    }

    pub(crate) fn unlink(&mut self, list: &mut InFlightList, tag: Tag) {
        let (prev, next) = (self[tag].prev, self[tag].next);
        match prev {
            NIL => list.head = next,
            prev => self[Tag(prev)].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self[Tag(next)].prev = prev,
        }
    }
}

impl InFlightList {
    pub(crate) fn newest(self) -> Option<Tag> {
        (self.tail != NIL).then_some(Tag(self.tail))
    }

    pub(crate) fn oldest(self) -> Option<Tag> {
        (self.head != NIL).then_some(Tag(self.head))
    }
}

impl Request {
    /// The time since its submission.
    #[inline]
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now - self.history.submitted_at
    }

    /// The phase that belongs to a state.
    pub(crate) fn phase(&self, state: State) -> Phase {
        match state {
            State::Queued => Phase::Queued,
            State::Backoff => Phase::Retry,
            State::Fenced => Phase::Fence,
            State::Flushing => Phase::Flush { began: self.bound_at },
            State::Free | State::Injected | State::Stalled | State::InFlight | State::Answered | State::Finished => {
                Phase::Path { bound_at: self.bound_at, issued_at: self.issued_at }
            }
        }
    }

    /// Records in the history that the request leaves its state to wait for another attempt.
    pub(crate) fn leaves_state(&mut self, now: Instant, host: &HostTime) {
        let phase = self.phase(self.state);
        self.history.leave(now, phase, host);
    }

    /// The request in flight that was bound before this one.
    pub(crate) fn older(&self) -> Option<Tag> {
        (self.prev != NIL).then_some(Tag(self.prev))
    }

    /// The request in flight that was bound after this one.
    pub(crate) fn newer(&self) -> Option<Tag> {
        (self.next != NIL).then_some(Tag(self.next))
    }

    /// The earlier attempts, for a change.
    pub(crate) fn tried(&mut self) -> &mut Tried {
        self.tried.get_or_insert_with(|| Box::new(Tried::NOTHING))
    }

    /// The earlier attempts.
    #[inline]
    pub(crate) fn known(&self) -> &Tried {
        static NOTHING: Tried = Tried::NOTHING;
        self.tried.as_deref().unwrap_or(&NOTHING)
    }

    /// A request that would be submitted now, without a place in the table.
    pub(crate) fn hypothetical(now: Instant, io: Io) -> Self {
        Self { io, state: State::Queued, ..Self::free(now, io.tag, Pauses::default()) }
    }

    fn free(now: Instant, tag: Tag, pauses: Pauses) -> Self {
        Self {
            io: Io { tag, op: Op::Read, bytes: 0, disk: DiskId(0), flow: FlowId(0), fua: false },
            state: State::Free,
            path: PathId(0),
            epoch: Epoch(0),
            bound_at: now,
            issued_at: now,
            tried: None,
            recalled: false,
            may_hedge: false,
            unflushed_in: None,
            job: 0,
            history: History::new(now, pauses),
            ended_in: State::Free,
            prev: NIL,
            next: NIL,
        }
    }
}

impl Tried {
    const NOTHING: Self = Self {
        retries: 0,
        retry_error: IoError::Attempts,
        failovers: 0,
        refused_by: 0,
        avoid: None,
        delays: Vec::new(),
        failover: None,
        recalls: 0,
        partly_unflushed_in: Vec::new(),
    };

    /// Sets how long the controller of a path wants this request delayed.
    pub(crate) fn delay(&mut self, now: Instant, path: PathId, delay: Duration) {
        self.delays.retain(|&(other, until)| other != path && now < until);
        if !delay.is_zero() {
            self.delays.push((path, now + delay));
        }
    }

    /// The paths with a delay that is not over, as a set.
    pub(crate) fn delayed_paths(&self, now: Instant) -> u64 {
        self.delays.iter().filter(|(_, until)| now < *until).fold(0, |set, (path, _)| set | path.bit())
    }

    /// When the delay ends that the controller of a path has asked for, if it is not over.
    pub(crate) fn delay_on(&self, now: Instant, path: PathId) -> Option<Instant> {
        self.delays.iter().find(|(of, until)| *of == path && now < *until).map(|(_, until)| *until)
    }

    /// Notes a path error. `is_refusing`: nothing has succeeded on the path since an earlier path error. A path that refuses
    /// everything says nothing about this request. A path that refuses this request again, and has served others meanwhile,
    /// uses up a failover.
    pub(crate) fn refused(&mut self, path: PathId, is_refusing: bool) {
        self.failovers += u32::from(!is_refusing && self.refused_by & path.bit() != 0);
        self.refused_by |= path.bit();
    }

    /// Forgets a removed path: the next path with this id leads to another controller.
    pub(crate) fn forget_path(&mut self, path: PathId) {
        self.refused_by &= !path.bit();
        self.delays.retain(|(of, _)| *of != path);
        self.avoid = self.avoid.filter(|avoid| *avoid != path);
    }

    /// When the first of the delays ends.
    pub(crate) fn delayed_until(&self, now: Instant) -> Instant {
        self.delays.iter().map(|(_, until)| *until).filter(|until| now < *until).min().unwrap_or(now)
    }
}

impl Index<Tag> for Requests {
    type Output = Request;
    fn index(&self, tag: Tag) -> &Request {
        &self.slots[tag.0 as usize]
    }
}

impl IndexMut<Tag> for Requests {
    fn index_mut(&mut self, tag: Tag) -> &mut Request {
        &mut self.slots[tag.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_the_oldest_first() {
        let start = Instant::now();
        let mut requests = Requests::default();
        let mut list = InFlightList::default();
        for n in 0..4 {
            let now = start + Duration::from_secs(u64::from(n));
            let io = Io { tag: Tag(n), op: Op::Read, bytes: 0, disk: DiskId(0), flow: FlowId(0), fua: false };
            requests.insert(now, io, Pauses::default());
            requests.link(&mut list, Tag(n));
        }
        let mut oldest = Vec::new();
        for n in [1, 0, 3, 2] {
            requests.unlink(&mut list, Tag(n));
            oldest.push(list.oldest().map(|tag| (requests[tag].bound_at - start).as_secs()));
        }
        assert_eq!(oldest, [Some(0), Some(2), Some(2), None]);
    }

    /// Four disks with 256 virtqueues of 1024 entries have this many requests.
    #[test]
    fn full_virtqueues_of_many_disks_have_tags_for_all_of_their_requests() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        let tag = Tag(1 << 20);
        let io = Io { tag, op: Op::Read, bytes: 0, disk: DiskId(0), flow: FlowId(0), fua: false };
        requests.insert(now, io, Pauses::default());
        assert_eq!(requests[tag].state, State::Queued);
        assert!(Tag(Tag::COUNT - 1).of_hedge() != Tag::PROBE, "nor is the hedge of any of them the probe");
    }

    #[test]
    #[should_panic(expected = "reused")]
    fn a_tag_in_use_is_refused() {
        let mut requests = Requests::default();
        let io = Io { tag: Tag(0), op: Op::Read, bytes: 0, disk: DiskId(0), flow: FlowId(0), fua: false };
        requests.insert(Instant::now(), io, Pauses::default());
        requests.insert(Instant::now(), io, Pauses::default());
    }
}
