//! One flow: its queue, its counters and its turn.

use std::collections::VecDeque;

use monotonic::Instant;

use super::DEFAULT_WEIGHT;
use super::fair_queue::{Member, Tier};
use super::settings::Settings;
use crate::{DiskId, FlowId, OpClass, Tag, Times};

/// A request that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub(super) tag: Tag,
    pub(super) bytes: u32,
    pub(super) since: Instant,
    /// The request can be sent only if a path is eligible.
    pub(super) needs_path: bool,
    /// The class of a request that needs a path, in its first attempt.
    pub(super) first_attempt: Option<OpClass>,
}

#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The disk of its latest request.
    pub(super) disk: DiskId,
    pub(super) queue: VecDeque<WaitingRequest>,
    /// Requests that were taken and have neither finished nor been put back.
    pub(super) outstanding: u32,
    /// Its turn among the flows of the disk.
    pub(super) member: Member,
    served: u64,
    served_bytes: u64,
    /// The served requests that did not wait. Most do not while there is room, so they are added to the times only for
    /// a snapshot.
    unwaited: u64,
    waited: Option<Times>,
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
            waited: None,
        }
    }
}

impl Flow {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.outstanding == 0
    }

    /// Whether the flow has ever had a request.
    pub(super) fn is_known(&self) -> bool {
        self.served > 0 || !self.is_idle()
    }

    /// Counts a request that is sent.
    pub(super) fn sent(&mut self, now: Instant, sent: WaitingRequest) {
        self.outstanding += 1;
        self.served += 1;
        self.served_bytes += u64::from(sent.bytes);
        if now == sent.since {
            self.unwaited += 1;
        } else {
            self.waited.get_or_insert_with(Times::waits).record(now - sent.since);
        }
    }

    pub(super) fn stats(&self, flow: FlowId, settings: &Settings) -> FlowStats {
        let mut waited = self.waited.clone().unwrap_or_else(Times::waits);
        waited.record_zeros(self.unwaited);
        let is_idle = self.is_idle();
        FlowStats {
            flow,
            disk: self.disk,
            tier: self.member.tier(settings, is_idle),
            credit: settings.credit_in_requests(self.member.credit(settings, is_idle)),
            queued: self.queue.len() as u64,
            outstanding: self.outstanding.into(),
            served: self.served,
            served_bytes: self.served_bytes,
            waited,
        }
    }
}

/// Scheduler statistics of one flow.
#[derive(Clone, Debug)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// The disk of the flow.
    pub disk: DiskId,
    /// The tier of its next request.
    pub tier: Tier,
    /// The requests of 4 KiB that the flow may send before it is bulk; `None` if the scheduler has no bursts.
    pub credit: Option<u64>,
    /// Requests that wait for their turn.
    pub queued: u64,
    /// Requests that were sent and have not finished.
    pub outstanding: u64,
    /// Requests sent. Each attempt counts.
    pub served: u64,
    /// Bytes of the requests in `served`.
    pub served_bytes: u64,
    /// How long requests waited for their turn; quantiles are to 10 %. Each attempt counts.
    pub waited: Times,
}

impl FlowStats {
    /// Adds the counters of the same flow in another group. Tier and credit are taken from the group with an active
    /// flow.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.queued + self.outstanding == 0 && other.queued + other.outstanding > 0 {
            (self.tier, self.credit) = (other.tier, other.credit);
        }
        self.queued += other.queued;
        self.outstanding += other.outstanding;
        self.served += other.served;
        self.served_bytes += other.served_bytes;
        self.waited.add(&other.waited);
    }
}
