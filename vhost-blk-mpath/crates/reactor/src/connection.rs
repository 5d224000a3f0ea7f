//! One queue pair on its socket: its operations in the kernel, and its end.
//!
//! ```text
//!   Open ── error from socket or protocol, or PathDown ──▶ Closing ── kernel holds no buffer ──▶ gone
//!                                                                     (CloseMode::HalfClose passes the socket on)
//! ```

use std::io;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, Epoch, Outcome, PathId, Tag};
use nvme_tcp::host::{
    AbandonedAnswers, HostQueue, IoCommand, NamespaceLimits, Part, RecallOutcome, SubmitError, TxPart,
};
use nvme_tcp::wire::Status;
use vhost_user_blk::Segments;

use crate::encryption::Encryption;
use crate::requests::Requests;
use crate::ring::{Received, RecvSlot, Ring, SendPart, SendSlot, Sent};
use crate::send_budget::SendBudget;
use crate::translate::outcome_of;
use crate::{CloseMode, ConnectedQueuePair, LossReason, PathEventKind};

/// Payload that is received straight into guest memory has at least this length. For less, a copy from the read-ahead
/// buffer is cheaper than a receive.
const DIRECT_BYTES_MIN: u32 = 32 * 1024;

/// Shortest time between two reports of ANA errors of a path, and between two reports of missing namespaces.
const ANA_ERROR_REST: Duration = Duration::from_millis(100);
/// Shortest time between two reports of wrong data digests of a path, which an operator gets.
const DIGEST_ERROR_REST: Duration = Duration::from_secs(1);
/// Shortest time between two reports of all other errors of a path after which a command is repeated.
const COMMAND_ERROR_REST: Duration = Duration::from_secs(60);

/// Whether the command uses guest memory. Probes, hedges and daemon flushes do not.
fn is_of_guest(tag: Tag) -> bool {
    tag != Tag::PROBE && tag.hedged().is_none() && tag.daemon_flushed().is_none()
}

/// Commands that ended on this path: the request, its outcome, and when its last command was sent, if that is known.
pub(crate) type Completions = Vec<(Tag, Outcome, Option<Instant>)>;

pub(crate) struct Connection<R: Ring> {
    pub(crate) epoch: Epoch,
    socket: R::Socket,
    queue: HostQueue,
    tls: Option<Encryption>,
    retry_delays: [Duration; 3],
    send: SendSlot,
    recv: RecvSlot,
    /// The read whose guest memory the receive in flight uses.
    direct: Option<Tag>,
    /// Whether that read is recalled when the receive comes back.
    recalling: bool,
    /// The parts of the send in flight.
    plan: Vec<TxPart>,
    send_budget: SendBudget,
    /// Completions of requests whose guest memory the send in flight uses.
    deferred: Completions,
    pub(crate) close_mode: CloseMode,
    ana_error: RareReport<()>,
    invalid_namespace: RareReport<()>,
    digest_error: RareReport<()>,
    command_error: RareReport<Status>,
    /// Set once the connection closes.
    closing: Option<CloseMode>,
    tokens: Tokens,
}

/// Limits the reports of one kind of command errors: the first error says as much as those that follow.
struct RareReport<T> {
    /// A command has ended with such an error since the last call of [`RareReport::take`].
    due: Option<T>,
    reported_at: Option<Instant>,
}

impl<T> Default for RareReport<T> {
    fn default() -> Self {
        Self { due: None, reported_at: None }
    }
}

impl<T> RareReport<T> {
    /// The error to report, at most once in this time.
    fn take(&mut self, now: Instant, rest: Duration) -> Option<T> {
        // Checked first, because this runs after each receive and errors are rare.
        let due = self.due.take()?;
        if self.reported_at.is_some_and(|at| now - at < rest) {
            return None;
        }
        self.reported_at = Some(now);
        Some(due)
    }
}

/// The tokens of this connection's operations in the ring.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) send: u64,
    pub(crate) recv: u64,
    /// For operations whose completion needs no handling.
    pub(crate) ended: u64,
}

impl<R: Ring> Connection<R> {
    /// Takes over a ready queue pair and starts receiving on it.
    pub(crate) fn open(
        epoch: Epoch,
        link: ConnectedQueuePair<R::Socket>,
        tokens: Tokens,
        ring: &mut R,
        requests: &Requests,
    ) -> io::Result<Self> {
        let mut connection = Self {
            epoch,
            socket: link.socket,
            queue: link.queue,
            tls: link.tls.map(Encryption::new),
            retry_delays: link.retry_delays,
            send: SendSlot::new(),
            recv: RecvSlot::new(),
            direct: None,
            recalling: false,
            plan: Vec::new(),
            send_budget: SendBudget::default(),
            deferred: Vec::new(),
            close_mode: link.close_mode,
            ana_error: RareReport::default(),
            invalid_namespace: RareReport::default(),
            digest_error: RareReport::default(),
            command_error: RareReport::default(),
            closing: None,
            tokens,
        };
        connection.start_recv(ring, requests)?;
        Ok(connection)
    }

    /// Allows commands to the disk's namespace.
    pub(crate) fn add_namespace(&mut self, disk: DiskId, limits: NamespaceLimits) {
        self.queue.add_namespace(disk.0, limits).expect("limits were checked when the namespace was identified");
    }

    /// Hands a command to the queue pair. It is sent with the next [`Connection::transmit`].
    pub(crate) fn submit(&mut self, tag: Tag, disk: DiskId, command: IoCommand) -> Result<(), SubmitError> {
        self.submit_parts(tag, disk, command, &[])
    }

    /// Hands over a command of which only these parts are left to be done; all of it without parts.
    pub(crate) fn submit_parts(
        &mut self,
        tag: Tag,
        disk: DiskId,
        command: IoCommand,
        parts: &[Part],
    ) -> Result<(), SubmitError> {
        self.queue.submit_parts(nvme_tcp::host::Tag(tag.0), disk.0, command, parts)
    }

    /// Sends commands and data that are ready, up to the send budget. While a send is under way, nothing is started. Returns
    /// whether the socket took all of it at once and more may be ready, which a later call sends.
    pub(crate) fn transmit(&mut self, now: Instant, ring: &mut R, requests: &Requests) -> io::Result<bool> {
        if self.is_closing() || self.send.in_flight() || !self.queue.has_output() {
            return Ok(false);
        }
        self.plan.clear();
        let staging = self.tls.as_mut().map_or_else(|| self.send.staging(), Encryption::staging);
        self.queue.fill_tx(now, staging, requests, &mut self.plan, self.send_budget.bytes);
        if self.plan.is_empty() {
            return Ok(false);
        }
        self.send_budget.send_started(now, &self.plan);
        if let Some(tls) = &mut self.tls {
            let encrypted = self.send.staging();
            tls.encrypt(&self.plan, requests, encrypted).map_err(io::Error::other)?;
            // The send uses no memory of requests.
            self.plan.clear();
            self.plan.push(TxPart::Staged { start: 0, len: encrypted.len() });
        }
        let parts = self.plan.iter().flat_map(|part| {
            let (staged, payload) = match *part {
                TxPart::Staged { start, len } => (Some(SendPart::Staged { start, len }), None),
                TxPart::Payload { tag, offset, len } => {
                    (None, Some(requests.get(Tag(tag.0)).segments.iovecs(offset, len).map(SendPart::Outside)))
                }
            };
            staged.into_iter().chain(payload.into_iter().flatten())
        });
        // SAFETY: guest memory named here belongs to requests that stay in the table, and so mapped, until they are
        // finished. `on_recv` defers that while this send names them, and `into_lost` is called when the kernel holds
        // no buffer.
        let sent = unsafe { self.send.start(ring, &self.socket, self.tokens.send, parts)? };
        Ok(self.follow_send(now, ring, requests, sent)? && self.queue.has_output())
    }

    /// Handles the result of a send that was under way. Adds completions that waited for its end.
    pub(crate) fn on_send(
        &mut self,
        now: Instant,
        ring: &mut R,
        requests: &Requests,
        result: i32,
        completions: &mut Completions,
    ) -> io::Result<()> {
        if self.is_closing() {
            self.send.ignore_result();
            return Ok(());
        }
        let sent = self.send.finished(ring, &self.socket, self.tokens.send, result)?;
        if self.follow_send(now, ring, requests, sent)? {
            completions.append(&mut self.deferred);
        }
        Ok(())
    }

    /// Returns whether the socket has taken all of the send. Guest memory that cannot be read is replaced
    /// ([`Segments::replace_inaccessible`]): zeroes are sent, as PDUs must be complete, and the request does not succeed.
    fn follow_send(&mut self, now: Instant, ring: &mut R, requests: &Requests, mut sent: Sent) -> io::Result<bool> {
        loop {
            let segment = match sent {
                Sent::All => {
                    self.send_budget.send_finished(now);
                    return Ok(true);
                }
                Sent::UnderWay => return Ok(false),
                Sent::Unreadable(segment) => segment,
            };
            let mut payloads = self.plan.iter().filter_map(|part| match *part {
                TxPart::Payload { tag, .. } => Some(requests.get(Tag(tag.0))),
                TxPart::Staged { .. } => None,
            });
            if !payloads.any(|request| request.segments.replace_inaccessible(&[segment])) {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            sent = self.send.try_again(ring, &self.socket, self.tokens.send)?;
        }
    }

    /// Handles the completion of a receive, parses all of it, and starts the next one.
    pub(crate) fn on_recv(
        &mut self,
        path: PathId,
        ring: &mut R,
        requests: &mut Requests,
        result: i32,
        completions: &mut Completions,
    ) -> Result<(), LossReason> {
        let direct = self.direct.take();
        let received = match (self.recv.finished(result), direct) {
            // The kernel took nothing off the socket, so the same bytes can be received again.
            (Err(_), Some(tag))
                if result == -libc::EFAULT
                    && !self.is_closing()
                    && self.replace_inaccessible(&requests.get(tag).segments) =>
            {
                Ok(Received { direct: 0, buffered: 0 })
            }
            (received, _) => received,
        };
        let recalled = direct.filter(|_| std::mem::take(&mut self.recalling));
        if self.is_closing() {
            return Ok(());
        }
        let received = received.map_err(LossReason::Socket)?;
        let counted = if received.direct > 0 { self.queue.received_direct(received.direct as u32) } else { Ok(()) };
        let buffered = self.recv.buffered(received.buffered);
        let parsed = counted.map_err(LossReason::from).and_then(|()| match &mut self.tls {
            Some(tls) => tls.decrypt(buffered, &mut self.queue, requests),
            None => Ok(self.queue.receive(buffered, requests)?),
        });
        // Commands that completed before the protocol violation are valid.
        while let Some(completion) = self.queue.poll_completion() {
            let tag = Tag(completion.tag.0);
            let outcome = outcome_of(completion.result, &self.retry_delays);
            if let Err(status) = completion.result {
                self.note_error(status, outcome);
                requests.note_error(tag, path, status, self.queue.take_unfinished());
            }
            let ended = (tag, outcome, completion.sent_at);
            if self.is_being_sent(tag) {
                self.deferred.push(ended);
            } else {
                completions.push(ended);
            }
        }
        parsed?;
        if let Some(tag) = recalled {
            completions.extend(self.take_back(tag).map(|outcome| (tag, outcome, None)));
        }
        self.start_recv(ring, requests).map_err(LossReason::Socket)
    }

    /// Recalls a read without waiting for the controller. Returns its outcome. `None` means that the outcome comes
    /// later: with the receive that uses its guest memory, or with the end of the connection.
    pub(crate) fn recall(&mut self, ring: &mut R, tag: Tag) -> io::Result<Option<Outcome>> {
        if self.is_closing() {
            return Ok(None);
        }
        if self.direct != Some(tag) {
            return Ok(self.take_back(tag));
        }
        self.recalling = true;
        self.recv.cancel(ring, self.tokens.recv, self.tokens.ended)?;
        Ok(None)
    }

    /// Recalls a command whose memory no receive uses. `None` if it has completed: its outcome was delivered.
    pub(crate) fn take_back(&mut self, tag: Tag) -> Option<Outcome> {
        match self.queue.recall(nvme_tcp::host::Tag(tag.0)) {
            RecallOutcome::Unsent => Some(Outcome::Recalled { abandoned: false }),
            RecallOutcome::Abandoned => Some(Outcome::Recalled { abandoned: true }),
            RecallOutcome::Completed => None,
        }
    }

    /// Recalled commands that were answered since the last call.
    pub(crate) fn take_answered(&mut self) -> AbandonedAnswers {
        self.queue.take_answered()
    }

    /// When the oldest command without a completion was sent. A send that the kernel does not take counts too, because
    /// a completion may wait for its end.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        self.queue.oldest_sent().into_iter().chain(self.send_budget.started_at()).min()
    }

    fn note_error(&mut self, status: Status, outcome: Outcome) {
        if status.is_missing_namespace() {
            self.invalid_namespace.due = Some(());
        }
        if status.is_ana_error() {
            self.ana_error.due = Some(());
        } else if status.is(Status::TRANSIENT_TRANSPORT_ERROR) && self.queue.has_data_digests() {
            self.digest_error.due = Some(());
        } else if matches!(outcome, Outcome::PathError | Outcome::Retry { .. }) {
            self.command_error.due = Some(status);
        }
    }

    /// The error of commands to report now, if there is one.
    pub(crate) fn take_error(&mut self, now: Instant) -> Option<PathEventKind<R::Socket>> {
        let ana = self.ana_error.take(now, ANA_ERROR_REST).map(|()| PathEventKind::AnaError);
        let digest = || self.digest_error.take(now, DIGEST_ERROR_REST).map(|()| PathEventKind::DigestError);
        let command = || self.command_error.take(now, COMMAND_ERROR_REST).map(PathEventKind::CommandError);
        let missing = || self.invalid_namespace.take(now, ANA_ERROR_REST).map(|()| PathEventKind::InvalidNamespace);
        ana.or_else(missing).or_else(digest).or_else(command)
    }

    /// Replaces the part of a read's guest memory that the receive used and the kernel could not write. Returns `false`
    /// if the receive used none, or if the memory cannot be replaced.
    fn replace_inaccessible(&mut self, segments: &Segments) -> bool {
        self.queue.direct().is_some_and(|direct| {
            let named: Vec<_> = segments.iovecs(direct.offset, direct.len).collect();
            segments.replace_inaccessible(&named)
        })
    }

    fn start_recv(&mut self, ring: &mut R, requests: &Requests) -> io::Result<()> {
        let of_guest = |tag: nvme_tcp::host::Tag| is_of_guest(Tag(tag.0));
        let is_encrypted = self.tls.is_some();
        let is_direct = |len, tag| !is_encrypted && len >= DIRECT_BYTES_MIN && of_guest(tag);
        let direct = self.queue.direct().filter(|direct| is_direct(direct.len, direct.tag));
        let iovecs = direct
            .map(|direct| requests.get(Tag(direct.tag.0)).segments.iovecs(direct.offset, direct.len))
            .into_iter()
            .flatten();
        self.direct = direct.map(|direct| Tag(direct.tag.0));
        // SAFETY: the request stays in the table, and so its guest memory mapped, until its last byte was received
        // here, or until `recall` or `into_lost`, which both wait for this receive.
        unsafe { self.recv.start(ring, &self.socket, self.tokens.recv, iovecs) }
    }

    fn is_being_sent(&self, tag: Tag) -> bool {
        self.send.in_flight()
            && self.plan.iter().any(|part| matches!(part, TxPart::Payload { tag: sent, .. } if sent.0 == tag.0))
    }

    /// Reports a protocol violation to the controller, if the socket takes the PDU at once behind all sent data. The
    /// controller may not read the PDU, because the connection is reset next.
    pub(crate) fn report_violation(&mut self, ring: &mut R) {
        if !self.is_closing()
            && !self.send.in_flight()
            && let Some(pdu) = self.queue.term_req()
        {
            let encrypted = self.tls.as_mut().map(|tls| tls.encrypt_pdu(&pdu));
            // A session that has ended can tell nothing.
            if let Ok(pdu) = encrypted.unwrap_or(Ok(pdu)) {
                ring.send_at_once(&self.socket, &pdu);
            }
        }
    }

    /// The new limit for the data of one command, if the controller has refused larger commands.
    pub(crate) fn take_smaller_transfer(&mut self) -> Option<u32> {
        self.queue.take_smaller_transfer()
    }

    /// Begins to close: both operations come back soon, and nothing more is sent or parsed.
    pub(crate) fn close(&mut self, ring: &mut R, close_mode: CloseMode) {
        if self.is_closing() {
            return;
        }
        let is_reset = match close_mode {
            CloseMode::Reset => true,
            // Operations that cannot be cancelled must end with the connection.
            CloseMode::HalfClose => self.cancel(ring).is_err(),
        };
        if is_reset {
            ring.shutdown(&self.socket);
        }
        self.closing = Some(if is_reset { CloseMode::Reset } else { CloseMode::HalfClose });
    }

    fn cancel(&mut self, ring: &mut R) -> io::Result<()> {
        if self.send.in_flight() {
            self.send.cancel(ring, self.tokens.send, self.tokens.ended)?;
        }
        if self.recv.in_flight() {
            self.recv.cancel(ring, self.tokens.recv, self.tokens.ended)?;
        }
        Ok(())
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether the kernel holds no buffer of this closing connection.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.is_closing() && !self.send.in_flight() && !self.recv.in_flight()
    }

    /// Closes the socket, unless it is half-closed, and returns the outcome of each remaining request. Probes and hedges ended
    /// with the path.
    pub(crate) fn into_lost(self, ring: &mut R) -> (Completions, Option<R::Socket>) {
        assert!(self.is_quiescent(), "the kernel may still touch guest memory");
        let mut completions = self.deferred;
        // Only now, as the kernel reports a reset once: an operation under way could take that report from the half-closed socket.
        let half_closes = self.closing == Some(CloseMode::HalfClose) && ring.end_sending(&self.socket);
        let half_closed = if half_closes {
            Some(self.socket)
        } else {
            ring.reset(self.socket);
            None
        };
        let lost = self.queue.into_lost().map(|lost| (Tag(lost.tag.0), lost.indeterminate));
        let requests = lost.filter(|(tag, _)| is_of_guest(*tag));
        completions.extend(requests.map(|(tag, indeterminate)| (tag, Outcome::Lost { indeterminate }, None)));
        (completions, half_closed)
    }
}
