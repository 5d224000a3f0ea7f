//! One flow: what it has queued, and what is to be known about it.

use std::collections::VecDeque;
use std::time::Instant;

use hdrhistogram::Histogram;

use super::DEFAULT_WEIGHT;
use super::level::{Member, Tier};
use super::rule::Rule;
use crate::histogram::{add, record, waits};
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

#[derive(Debug)]
pub(super) struct Flow {
    /// That of its latest request.
    pub(super) disk: DiskId,
    pub(super) queue: VecDeque<Waiting>,
    /// Requests taken and neither finished nor put back.
    pub(super) outstanding: u32,
    /// Among the flows of the disk.
    pub(super) member: Member,
    served: u64,
    served_bytes: u64,
    /// Of these, the ones that did not wait: most, as long as there is room. They are not in the histogram yet.
    unwaited: u64,
    waited_ns: Option<Histogram<u64>>,
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            disk: DiskId(0),
            queue: VecDeque::new(),
            outstanding: 0,
            member: Member::new(DEFAULT_WEIGHT),
            served: 0,
            served_bytes: 0,
            unwaited: 0,
            waited_ns: None,
        }
    }
}

impl Flow {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.outstanding == 0
    }

    /// It has had a request, ever.
    pub(super) fn is_known(&self) -> bool {
        self.served > 0 || !self.is_idle()
    }

    /// A request goes.
    pub(super) fn sent(&mut self, now: Instant, sent: Waiting) {
        self.outstanding += 1;
        self.served += 1;
        self.served_bytes += u64::from(sent.bytes);
        if now == sent.since {
            self.unwaited += 1;
        } else {
            record(self.waited_ns.get_or_insert_with(waits), now - sent.since);
        }
    }

    pub(super) fn stats(&self, flow: FlowId, rule: &Rule) -> FlowStats {
        let mut waited_ns = self.waited_ns.clone().unwrap_or_else(waits);
        waited_ns.saturating_record_n(0, self.unwaited);
        let is_idle = self.is_idle();
        FlowStats {
            flow,
            disk: self.disk,
            tier: self.member.tier(rule, is_idle),
            credit: rule.credit(self.member.left(rule, is_idle)),
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
    /// How many requests of 4 KiB it may send before it is bulk, if the scheduler has such a notion.
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
