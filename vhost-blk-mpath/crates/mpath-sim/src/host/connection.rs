//! One queue pair on its connection, as `reactor::connection` has it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpath_core::{AnaStates, Epoch, Outcome, Tag};
use nvme_tcp::host::{Answered, HostQueue, Recalled, STAGING_MIN, TxPart};
use nvme_tcp::wire::Status;
use reactor::outcome_of;

use super::Link;
use super::requests::Requests;
use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

pub(super) type Completions = Vec<(Tag, Outcome)>;

/// Probes and hedges have no memory of the guest's.
fn is_of_guest(tag: Tag) -> bool {
    tag != Tag::PROBE && tag.hedged().is_none()
}

/// One ANA error says as much as all those that come with it.
const ANA_ERROR_REST: Duration = Duration::from_millis(100);

/// Most bytes taken from a socket at once.
const RECEIVE_BYTES: u64 = 64 * 1024;

/// Payload that a send carries: the least that the reactor has.
const SEND_BYTES: u32 = 128 * 1024;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) epoch: Epoch,
    pub(super) conn: ConnId,
    pub(super) queue: HostQueue,
    retry_delays: [Duration; 3],
    staging: Vec<u8>,
    /// What the send in flight carries, and how far it has come.
    plan: Vec<TxPart>,
    sent: (usize, usize),
    /// Completions of requests whose memory the send in flight still names.
    deferred: Completions,
    /// Set when closing: when the kernel has let go of everything.
    quiescent_at: Option<Instant>,
    /// What the group was last told of the path.
    pub(super) ana: AnaStates,
    /// Issued and not answered.
    pub(super) ios: u32,
    pub(super) bytes: u64,
    /// Something has arrived since the group was told last.
    heard: bool,
    /// Requests taken back that the controller owes an answer.
    pub(super) abandoned: u32,
    /// A probe is under way.
    pub(super) probing: bool,
    /// Hedges under way, and the bytes of each.
    pub(super) hedges: BTreeMap<Tag, u64>,
    /// A command has ended with an ANA error that has not been told.
    ana_error: bool,
    ana_error_told_at: Option<Instant>,
}

impl Connection {
    pub(super) fn open(epoch: Epoch, ana: AnaStates, link: Link, rng: &mut Rng) -> Self {
        let staging = STAGING_MIN + rng.index(64 * 1024);
        Self {
            epoch,
            conn: link.conn,
            queue: link.queue,
            retry_delays: link.retry_delays,
            staging: Vec::with_capacity(staging),
            plan: Vec::new(),
            sent: (0, 0),
            deferred: Vec::new(),
            quiescent_at: None,
            ana,
            ios: 0,
            bytes: 0,
            heard: false,
            abandoned: 0,
            probing: false,
            hedges: BTreeMap::new(),
            ana_error: false,
            ana_error_told_at: None,
        }
    }

    /// Takes a read or flush back without waiting for the controller; `None` if its outcome comes otherwise.
    pub(super) fn recall(&mut self, tag: Tag) -> Option<Outcome> {
        if self.is_closing() {
            return None;
        }
        match self.queue.recall(nvme_tcp::host::Tag(tag.0)) {
            Recalled::Unsent => Some(Outcome::Recalled { abandoned: false }),
            Recalled::Abandoned => {
                self.abandoned += 1;
                Some(Outcome::Recalled { abandoned: true })
            }
            Recalled::Completed => None,
        }
    }

    /// Signs of life since this was asked last: whether there were any, and the recalled requests that were answered.
    pub(super) fn take_progress(&mut self) -> Option<Answered> {
        let answered = self.queue.take_answered();
        self.abandoned -= answered.requests;
        std::mem::take(&mut self.heard).then_some(answered)
    }

    /// Requests that are waited for, and their bytes.
    pub(super) fn holds(&self) -> (u32, u64) {
        (self.ios + self.hedges.len() as u32, self.bytes + self.hedges.values().sum::<u64>())
    }

    fn is_sending(&self) -> bool {
        self.sent.0 < self.plan.len()
    }

    /// Sends everything that is ready, unless a send is on its way.
    pub(super) fn transmit(&mut self, ctx: &mut Ctx<'_>, requests: &Requests) {
        while !self.is_closing() && !self.is_sending() {
            self.staging.clear();
            self.plan.clear();
            self.sent = (0, 0);
            self.queue.fill_tx(ctx.clock.now(), &mut self.staging, requests, &mut self.plan, SEND_BYTES);
            if self.plan.is_empty() {
                return;
            }
            self.go_on_sending(ctx, requests);
        }
    }

    /// The socket may have room again.
    pub(super) fn on_room(&mut self, ctx: &mut Ctx<'_>, requests: &Requests, completions: &mut Completions) {
        if self.is_closing() || !self.is_sending() {
            return;
        }
        self.go_on_sending(ctx, requests);
        if !self.is_sending() {
            completions.append(&mut self.deferred);
        }
    }

    fn go_on_sending(&mut self, ctx: &mut Ctx<'_>, requests: &Requests) {
        while let Some(part) = self.plan.get(self.sent.0) {
            let (_, done) = self.sent;
            let mut copy = Vec::new();
            let bytes = match *part {
                TxPart::Staged { start, len } => &self.staging[start + done..start + len],
                TxPart::Payload { tag, offset, len } => {
                    copy.resize(len as usize - done, 0);
                    nvme_tcp::host::PayloadSource::gather(requests, tag, offset + done as u32, &mut copy);
                    &copy
                }
            };
            let sent = ctx.net.send(ctx.clock, self.conn, Side::Host, bytes);
            self.sent = if sent == bytes.len() { (self.sent.0 + 1, 0) } else { (self.sent.0, done + sent) };
            if sent == 0 {
                break;
            }
        }
    }

    /// Takes what has arrived; an error ends the connection.
    pub(super) fn on_bytes(
        &mut self,
        ctx: &mut Ctx<'_>,
        rng: &mut Rng,
        requests: &mut Requests,
        completions: &mut Completions,
    ) -> Result<(), String> {
        while !self.is_closing() && ctx.net.has_received(self.conn, Side::Host) {
            let of_guest = |tag: nvme_tcp::host::Tag| is_of_guest(Tag(tag.0));
            let direct = self.queue.direct().filter(|direct| rng.percent(50) && of_guest(direct.tag));
            let parsed = if let Some(direct) = direct {
                let bytes = ctx.net.receive(ctx.clock, self.conn, Side::Host, direct.len as usize);
                let buffer = requests.buffer_mut(Tag(direct.tag.0));
                buffer[direct.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                self.heard |= !bytes.is_empty();
                self.queue.received_direct(bytes.len() as u32)
            } else {
                let most = if rng.percent(20) { rng.range(1, 64) } else { RECEIVE_BYTES };
                let bytes = ctx.net.receive(ctx.clock, self.conn, Side::Host, most as usize);
                self.heard |= !bytes.is_empty();
                self.queue.receive(&bytes, requests)
            };
            while let Some(completion) = self.queue.poll_completion() {
                let tag = Tag(completion.tag.0);
                requests.heard(tag, completion.result);
                self.ana_error |= completion.result.is_err_and(Status::is_ana_error);
                let outcome = outcome_of(completion.result, &self.retry_delays);
                if self.is_being_sent(tag) {
                    self.deferred.push((tag, outcome));
                } else {
                    completions.push((tag, outcome));
                }
            }
            parsed.map_err(|error| error.to_string())?;
        }
        if ctx.net.is_reset(self.conn, Side::Host) { Err("connection reset".into()) } else { Ok(()) }
    }

    /// Whether there was an ANA error, at most once in [`ANA_ERROR_REST`].
    pub(super) fn take_ana_error(&mut self, now: Instant) -> bool {
        let rested = self.ana_error_told_at.is_none_or(|at| now - at >= ANA_ERROR_REST);
        let told = std::mem::take(&mut self.ana_error) && rested;
        if told {
            self.ana_error_told_at = Some(now);
        }
        told
    }

    fn is_being_sent(&self, tag: Tag) -> bool {
        let names = |part: &TxPart| matches!(part, TxPart::Payload { tag: sent, .. } if sent.0 == tag.0);
        self.is_sending() && self.plan.iter().any(names)
    }

    /// Begins the end: nothing more is sent or parsed.
    pub(super) fn close(&mut self, now: Instant, rng: &mut Rng) {
        if self.quiescent_at.is_none() {
            self.quiescent_at = Some(now + rng.tail(Duration::from_micros(100)));
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.quiescent_at.is_some()
    }

    pub(super) fn quiescent_at(&self) -> Option<Instant> {
        self.quiescent_at
    }

    /// Closes the socket and says how each request still here ended.
    pub(super) fn lost(self, ctx: &mut Ctx<'_>) -> Completions {
        ctx.net.close(ctx.clock, self.conn, Side::Host);
        let mut completions = self.deferred;
        let lost = self.queue.into_lost().map(|lost| (Tag(lost.tag.0), lost.indeterminate));
        let requests = lost.filter(|(tag, _)| is_of_guest(*tag));
        completions.extend(requests.map(|(tag, indeterminate)| (tag, Outcome::Lost { indeterminate })));
        completions
    }
}
