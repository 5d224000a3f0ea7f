//! One flow: what it has queued, and what is to be known about it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Tier;
use super::census::Seen;
use crate::stats::{add, record, waits};
use crate::{DiskId, FlowId, Tag};

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) tag: Tag,
    pub(super) bytes: u32,
    pub(super) since: Instant,
    /// It can only be sent where there is a path.
    pub(super) needs_path: bool,
}

#[derive(Debug, Default)]
pub(super) struct Flow {
    /// That of its latest request.
    pub(super) disk: DiskId,
    pub(super) queue: VecDeque<Waiting>,
    /// Of these.
    pub(super) queued_bytes: u64,
    /// Requests taken and neither finished nor put back.
    pub(super) outstanding: u32,
    /// Limits do not keep it, until it has been idle.
    pub(super) unlimited: bool,
    /// Among the flows of the disk.
    pub(super) seen: Seen,
    /// What it has queued belongs to the normal tier.
    pub(super) in_normal: bool,
    last_sent: Option<Instant>,
    served: u64,
    served_bytes: u64,
    /// Of these, the ones that did not wait: most, as long as there is room. They are not in the histogram yet.
    unwaited: u64,
    waited_ns: Option<Histogram<u64>>,
}

impl Flow {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.outstanding == 0
    }

    /// It has had a request, ever.
    pub(super) fn is_known(&self) -> bool {
        self.served > 0 || !self.is_idle()
    }

    /// Since when its next request has been the next one.
    pub(super) fn next_since(&self) -> Option<Instant> {
        let next = self.queue.front()?;
        Some(next.since.max(self.last_sent.unwrap_or(next.since)))
    }

    /// How long ago its last request went, if one ever did.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        self.last_sent.map(|at| now - at)
    }

    pub(super) fn push_back(&mut self, waiting: Waiting) {
        self.queued_bytes += u64::from(waiting.bytes);
        self.queue.push_back(waiting);
    }

    pub(super) fn push_front(&mut self, waiting: Waiting) {
        self.queued_bytes += u64::from(waiting.bytes);
        self.queue.push_front(waiting);
    }

    pub(super) fn pop_front(&mut self) -> Option<Waiting> {
        let first = self.queue.pop_front()?;
        self.queued_bytes -= u64::from(first.bytes);
        Some(first)
    }

    /// Takes all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        self.queued_bytes = 0;
        self.queue.drain(..)
    }

    /// A request goes.
    pub(super) fn sent(&mut self, now: Instant, sent: Waiting) {
        self.outstanding += 1;
        self.last_sent = Some(now);
        self.served += 1;
        self.served_bytes += u64::from(sent.bytes);
        if now == sent.since {
            self.unwaited += 1;
        } else {
            record(self.waited_ns.get_or_insert_with(waits), now - sent.since);
        }
    }

    pub(super) fn stats(&self, flow: FlowId, tier: Tier, credit: Option<u64>) -> FlowStats {
        let mut waited_ns = self.waited_ns.clone().unwrap_or_else(waits);
        waited_ns.saturating_record_n(0, self.unwaited);
        FlowStats {
            flow,
            disk: self.disk,
            tier,
            credit,
            queued: self.queue.len() as u64,
            outstanding: self.outstanding.into(),
            served: self.served,
            served_bytes: self.served_bytes,
            waited_ns,
        }
    }
}

/// Snapshot of one flow.
#[derive(Clone, Debug)]
pub struct FlowStats {
    /// Which flow.
    pub flow: FlowId,
    /// Of which disk.
    pub disk: DiskId,
    /// Where its next request belongs.
    pub tier: Tier,
    /// How many requests more it may send before those of busy flows, if the scheduler has such a notion. In requests of
    /// mean cost where cost counts.
    pub credit: Option<u64>,
    /// Requests that wait.
    pub queued: u64,
    /// Requests that have been sent and are not finished.
    pub outstanding: u64,
    /// Requests sent, each attempt for itself, and their bytes.
    pub served: u64,
    /// See `served`.
    pub served_bytes: u64,
    /// How long they had waited here in ns, to 10 %, each attempt for itself.
    pub waited_ns: Histogram<u64>,
}

impl FlowStats {
    /// Adds the counters of the same flow in another group. What cannot be added is that of the group where the flow is active.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.queued + self.outstanding == 0 && other.queued + other.outstanding > 0 {
            (self.tier, self.credit) = (other.tier, other.credit);
        }
        self.queued += other.queued;
        self.outstanding += other.outstanding;
        self.served += other.served;
        self.served_bytes += other.served_bytes;
        add(&mut self.waited_ns, &other.waited_ns);
    }
}
