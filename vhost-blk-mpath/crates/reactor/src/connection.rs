//! One queue pair on its socket: what the kernel is doing for it, and how it ends.
//!
//! ```text
//!   Open ── error from socket or protocol, or PathDown ──▶ Closing ── kernel out of all buffers ──▶ gone, but for a socket that drains
//! ```

use std::io;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, Epoch, Outcome, Tag};
use nvme_tcp::host::{AbandonedAnswers, HostQueue, IoCommand, NamespaceLimits, RecallOutcome, SubmitError, TxPart};
use nvme_tcp::wire::Status;
use vhost_user_blk::Segments;

use crate::classify::outcome_of;
use crate::message::{Ending, Link, LossReason};
use crate::pace::Pace;
use crate::requests::Requests;
use crate::ring::{Received, RecvSlot, Ring, SendPart, SendSlot, Sent};

/// A payload with at least this much left is received straight into guest memory; below it, copying out of the
/// read-ahead buffer is cheaper than a receive of its own.
const DIRECT_BYTES_MIN: u32 = 32 * 1024;

/// One ANA error says as much as all those that come with it: a path rests at least that long after one.
const ANA_ERROR_REST: Duration = Duration::from_millis(100);

/// Probes, hedges and write-backs have no memory of the guest's.
fn is_of_guest(tag: Tag) -> bool {
    tag != Tag::PROBE && tag.hedged().is_none() && tag.written_back().is_none()
}

/// Where completions go: the request, and how it ended on this path.
pub(crate) type Completions = Vec<(Tag, Outcome)>;

pub(crate) struct Connection<R: Ring> {
    pub(crate) epoch: Epoch,
    socket: R::Socket,
    queue: HostQueue,
    retry_delays: [Duration; 3],
    send: SendSlot,
    recv: RecvSlot,
    /// The read whose guest memory the receive in flight names.
    direct: Option<Tag>,
    /// That read is to be taken back when the receive has come back.
    recalling: bool,
    /// What the send in flight carries, and before it is laid out the space for it.
    plan: Vec<TxPart>,
    pace: Pace,
    /// Completions of requests whose guest memory the send in flight still names.
    deferred: Completions,
    pub(crate) ending: Ending,
    /// A command has ended with an ANA error that has not been told.
    ana_error: bool,
    ana_error_told_at: Option<Instant>,
    /// Set once it closes.
    closing: Option<Ending>,
    /// The controller has closed it.
    ended: bool,
    tokens: Tokens,
}

/// The names the ring knows this connection's operations by.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    pub(crate) send: u64,
    pub(crate) recv: u64,
    /// Of what has said all there is to say by ending.
    pub(crate) ended: u64,
}

impl<R: Ring> Connection<R> {
    /// Takes over a ready queue pair and starts receiving on it.
    pub(crate) fn open(
        epoch: Epoch,
        link: Link<R::Socket>,
        tokens: Tokens,
        ring: &mut R,
        requests: &Requests,
    ) -> io::Result<Self> {
        let mut connection = Self {
            epoch,
            socket: link.socket,
            queue: link.queue,
            retry_delays: link.retry_delays,
            send: SendSlot::new(),
            recv: RecvSlot::new(),
            direct: None,
            recalling: false,
            plan: Vec::new(),
            pace: Pace::default(),
            deferred: Vec::new(),
            ending: link.ending,
            ana_error: false,
            ana_error_told_at: None,
            closing: None,
            ended: false,
            tokens,
        };
        connection.start_recv(ring, requests)?;
        Ok(connection)
    }

    /// The disk's namespace can be used from now on.
    pub(crate) fn add_namespace(&mut self, disk: DiskId, limits: NamespaceLimits) {
        self.queue.add_namespace(disk.0, limits).expect("checked when the controller was asked what it is");
    }

    /// Hands a request to the queue pair; it leaves with the next [`Connection::transmit`].
    pub(crate) fn submit(&mut self, tag: Tag, disk: DiskId, command: IoCommand) -> Result<(), SubmitError> {
        self.queue.submit(nvme_tcp::host::Tag(tag.0), disk.0, command)
    }

    /// Sends what is ready, unless a send is on its way: then it leaves with the next one, as does what is more than the connection takes
    /// in a moment.
    pub(crate) fn transmit(&mut self, now: Instant, ring: &mut R, requests: &Requests) -> io::Result<()> {
        if self.is_closing() || self.send.in_flight() {
            return Ok(());
        }
        self.plan.clear();
        self.queue.fill_tx(now, self.send.staging(), requests, &mut self.plan, self.pace.bytes);
        if self.plan.is_empty() {
            return Ok(());
        }
        self.pace.begins(now, &self.plan);
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
        // finished; `complete` defers that while this send names them, and `lost` is called when the kernel is out.
        unsafe { self.send.start(ring, &self.socket, self.tokens.send, parts) }
    }

    /// Takes the completion of a send; what waited for its end is appended to `completions`. Guest memory that cannot be read is given up:
    /// zeroes are sent in its place, as PDUs have to be whole, and nobody is told of success ([`Segments::give_up`]).
    pub(crate) fn on_send(
        &mut self,
        now: Instant,
        ring: &mut R,
        requests: &Requests,
        result: i32,
        completions: &mut Completions,
    ) -> io::Result<()> {
        if self.is_closing() {
            self.send.abandon();
            return Ok(());
        }
        match self.send.finished(ring, &self.socket, self.tokens.send, result)? {
            Sent::All => {
                completions.append(&mut self.deferred);
                self.pace.ends(now);
            }
            Sent::Rest => {}
            Sent::Unreadable(segment) => {
                let mut payloads = self.plan.iter().filter_map(|part| match *part {
                    TxPart::Payload { tag, .. } => Some(requests.get(Tag(tag.0))),
                    TxPart::Staged { .. } => None,
                });
                if !payloads.any(|request| request.segments.give_up(&[segment])) {
                    return Err(io::Error::from_raw_os_error(libc::EFAULT));
                }
                self.send.try_again(ring, &self.socket, self.tokens.send)?;
            }
        }
        Ok(())
    }

    /// Takes the completion of a receive, parses all of it, and starts the next one.
    pub(crate) fn on_recv(
        &mut self,
        ring: &mut R,
        requests: &mut Requests,
        result: i32,
        completions: &mut Completions,
    ) -> Result<(), LossReason> {
        let direct = self.direct.take();
        let received = match (self.recv.finished(result), direct) {
            // Nothing was taken off the socket: the same can be received again.
            (Err(_), Some(tag))
                if result == -libc::EFAULT && !self.is_closing() && self.give_up(&requests.get(tag).segments) =>
            {
                Ok(Received { direct: 0, buffered: 0 })
            }
            (received, _) => received,
        };
        let recalled = direct.filter(|_| std::mem::take(&mut self.recalling));
        self.ended |= received.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if self.is_closing() {
            return Ok(());
        }
        let received = received.map_err(LossReason::Socket)?;
        let counted = if received.direct > 0 { self.queue.received_direct(received.direct as u32) } else { Ok(()) };
        let parsed = counted.and_then(|()| self.queue.receive(self.recv.buffered(received.buffered), requests));
        // Commands that completed before the bytes that broke the protocol did complete.
        while let Some(completion) = self.queue.poll_completion() {
            let tag = Tag(completion.tag.0);
            self.ana_error |= completion.result.is_err_and(Status::is_ana_error);
            let outcome = outcome_of(completion.result, &self.retry_delays);
            if self.is_being_sent(tag) {
                self.deferred.push((tag, outcome));
            } else {
                completions.push((tag, outcome));
            }
        }
        parsed?;
        if let Some(tag) = recalled {
            completions.extend(self.take_back(tag).map(|outcome| (tag, outcome)));
        }
        self.start_recv(ring, requests).map_err(LossReason::Socket)
    }

    /// Takes a read back without waiting for the controller: its outcome, or `None` if that comes later, with the receive that
    /// names its guest memory or with the end of the connection.
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

    /// The same for what no receive names: it has memory of its own. `None` if it has completed, which has been told.
    pub(crate) fn take_back(&mut self, tag: Tag) -> Option<Outcome> {
        match self.queue.recall(nvme_tcp::host::Tag(tag.0)) {
            RecallOutcome::Unsent => Some(Outcome::Recalled { abandoned: false }),
            RecallOutcome::Abandoned => Some(Outcome::Recalled { abandoned: true }),
            RecallOutcome::Completed => None,
        }
    }

    /// What was taken back and has been answered since this was asked last.
    pub(crate) fn take_answered(&mut self) -> AbandonedAnswers {
        self.queue.take_answered()
    }

    /// When the oldest command without a completion was sent. A send that the kernel does not take counts as well: a completion
    /// may wait for its end.
    pub(crate) fn oldest_sent(&self) -> Option<Instant> {
        self.queue.oldest_sent().into_iter().chain(self.pace.begun()).min()
    }

    /// Whether there was an ANA error, at most once in [`ANA_ERROR_REST`].
    pub(crate) fn take_ana_error(&mut self, now: Instant) -> bool {
        let rested = self.ana_error_told_at.is_none_or(|at| now - at >= ANA_ERROR_REST);
        let told = std::mem::take(&mut self.ana_error) && rested;
        if told {
            self.ana_error_told_at = Some(now);
        }
        told
    }

    /// Gives up the part of a read's guest memory that the receive named, and that the kernel cannot write. Whether there is any.
    fn give_up(&mut self, segments: &Segments) -> bool {
        self.queue.direct().is_some_and(|direct| {
            let named: Vec<_> = segments.iovecs(direct.offset, direct.len).collect();
            segments.give_up(&named)
        })
    }

    fn start_recv(&mut self, ring: &mut R, requests: &Requests) -> io::Result<()> {
        let of_guest = |tag: nvme_tcp::host::Tag| is_of_guest(Tag(tag.0));
        let direct = self.queue.direct().filter(|direct| direct.len >= DIRECT_BYTES_MIN && of_guest(direct.tag));
        let iovecs = direct
            .map(|direct| requests.get(Tag(direct.tag.0)).segments.iovecs(direct.offset, direct.len))
            .into_iter()
            .flatten();
        self.direct = direct.map(|direct| Tag(direct.tag.0));
        // SAFETY: the request stays in the table, and so its guest memory mapped, until its last byte was received
        // here, or until `recall` or `lost`, which both wait for this receive.
        unsafe { self.recv.start(ring, &self.socket, self.tokens.recv, iovecs) }
    }

    fn is_being_sent(&self, tag: Tag) -> bool {
        self.send.in_flight()
            && self.plan.iter().any(|part| matches!(part, TxPart::Payload { tag: sent, .. } if sent.0 == tag.0))
    }

    /// Tells a controller that broke the protocol what it did, if that can be done at once: behind all that was sent, and without waiting.
    /// Whether it gets to read it is not sure, as the connection is reset next.
    pub(crate) fn report_violation(&self, ring: &mut R) {
        if !self.is_closing()
            && !self.send.in_flight()
            && let Some(pdu) = self.queue.term_req()
        {
            ring.send_at_once(&self.socket, &pdu);
        }
    }

    /// The most data of one command, if that has become smaller.
    pub(crate) fn take_smaller_transfer(&mut self) -> Option<u32> {
        self.queue.take_smaller_transfer()
    }

    /// Begins the end: both operations come back soon, and nothing more is sent or parsed.
    pub(crate) fn close(&mut self, ring: &mut R, ending: Ending) {
        if self.is_closing() {
            return;
        }
        self.closing = Some(ending);
        let how = match ending {
            Ending::Reset => Shutdown::Both,
            Ending::Drain => Shutdown::Write,
        };
        ring.shutdown(&self.socket, how);
        if ending == Ending::Drain
            && self.recv.in_flight()
            && self.recv.cancel(ring, self.tokens.recv, self.tokens.ended).is_err()
        {
            // Then the receive has to end with the socket.
            self.closing = Some(Ending::Reset);
            ring.shutdown(&self.socket, Shutdown::Both);
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// The kernel holds no buffer of this connection any more.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.is_closing() && !self.send.in_flight() && !self.recv.in_flight()
    }

    /// Closes the socket, unless it drains, and says how each request still here ended. Probes and hedges have ended with the path.
    pub(crate) fn lost(self, ring: &mut R) -> (Completions, Option<R::Socket>) {
        assert!(self.is_quiescent(), "the kernel may still touch guest memory");
        let mut completions = self.deferred;
        let draining = if self.closing == Some(Ending::Drain) && !self.ended {
            Some(self.socket)
        } else {
            ring.reset(self.socket);
            None
        };
        let lost = self.queue.into_lost().map(|lost| (Tag(lost.tag.0), lost.indeterminate));
        let requests = lost.filter(|(tag, _)| is_of_guest(*tag));
        completions.extend(requests.map(|(tag, indeterminate)| (tag, Outcome::Lost { indeterminate })));
        (completions, draining)
    }
}
