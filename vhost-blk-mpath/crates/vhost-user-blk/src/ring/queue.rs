//! A queue: hands out block requests, takes their completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

use super::RingError;
use super::chain::{Chain, ChainLimits};
use super::format::Ring;
use super::split::{QueueError, RingLayout};
use crate::buffer::{GuestByte, Segments};
use crate::descriptor::Taken;
use crate::dirty::QueueLog;
use crate::disk::Disk;
use crate::inflight::InflightArea;
use crate::memory::{GuestMemory, GuestRange, MemoryFault, SharedMemory};
use crate::memory_faults;
use crate::notify::{Alarm, Kick, Notifier};
use crate::request::{Answer, BlkStatus, Op, Parsed, Parser};

/// The duty to complete one chain, once: it is not `Clone`, and [`Queue::complete`] consumes it.
#[derive(Debug)]
#[must_use = "a chain that is never completed is lost to the driver"]
pub struct ChainToken {
    /// The queue it belongs to: a restarted queue is another one.
    queue: u64,
    chain: Taken,
    status: GuestByte,
    /// Writable bytes before the status byte.
    data_bytes: u32,
    is_read: bool,
    /// What will have been written when it is completed, while that is to be marked for a migration.
    to_mark: Box<[GuestRange]>,
}

/// One block request of the guest, checked against the disk.
#[derive(Debug)]
pub struct Request {
    /// To be given back with the outcome.
    pub token: ChainToken,
    /// What to do.
    pub op: Op,
    /// First sector, in units of 512 bytes whatever the block size. 0 for a flush.
    pub sector: u64,
    /// Length on disk: of the data for a read or write, of the range for a discard or write zeroes, 0 for a flush.
    pub bytes: u32,
    /// The data of a read (to fill) or write (to store); empty otherwise.
    pub segments: Segments,
}

/// What a queue is made of.
pub(crate) struct QueueParts {
    pub(crate) index: u16,
    pub(crate) layout: RingLayout,
    pub(crate) disk: Arc<Disk>,
    /// Negotiated features.
    pub(crate) features: u64,
    pub(crate) kick: Arc<Kick>,
    pub(crate) notifier: Arc<Notifier>,
    /// Where to keep what is in flight.
    pub(crate) inflight: Option<InflightArea>,
    /// Where to mark what is written, during a migration.
    pub(crate) log: Option<QueueLog>,
    /// Rings when any of this memory could not be accessed.
    pub(crate) alarm: Arc<Alarm>,
}

/// A virtqueue that moves by value into an I/O thread and comes back drained.
///
/// The loop of its owner: when [`kick_fd`](Self::kick_fd) becomes readable, [`drain_kick`](Self::drain_kick), then
/// [`pop`](Self::pop) until it returns nothing; [`complete`](Self::complete) what is done; once a turn,
/// [`publish`](Self::publish). Before sleeping, [`enable_notifications`](Self::enable_notifications), and go on if that
/// returns `true`. A queue starts with whatever is already in its ring: look before the first kick.
#[derive(Debug)]
pub struct Queue {
    id: u64,
    index: u16,
    ring: Ring,
    chain: Chain,
    parser: Parser,
    memory: Arc<GuestMemory>,
    kick: Arc<Kick>,
    notifier: Arc<Notifier>,
    /// Where the front-end keeps what is in flight, if it does.
    inflight: Option<InflightArea>,
    log: Option<QueueLog>,
    alarm: Arc<Alarm>,
    broken: Option<QueueError>,
}

impl Queue {
    pub(crate) fn new(memory: &GuestMemory, parts: QueueParts) -> Result<Self, RingError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let QueueParts { index, layout, disk, features, kick, notifier, inflight, log, alarm } = parts;
        // The map is small; a copy of its own spares each request a reference count that other threads write to, too.
        let memory = Arc::new(memory.clone());
        let limits = ChainLimits {
            indirect: features & (1 << VIRTIO_RING_F_INDIRECT_DESC) != 0,
            // 2.7.5.3.1 (2.8.19 for packed rings) forbids chains longer than the queue, but Linux goes by the seg_max it read alone when it builds an
            // indirect table. What we advertise must work, so that is the bound where it is larger.
            indirect_descriptors: layout.size.max(disk.geometry().descriptors_max()),
        };
        let mut ring = Ring::new(&memory, &layout)?;
        if let Some(log) = &log {
            ring.set_dirty_log(log.clone());
        }
        // Where the ring says that it is, the log is told.
        if memory.has_faulted() {
            return Err(RingError::Memory);
        }
        if let Some(area) = &inflight {
            ring.resume(area)?;
        }
        if memory.has_faulted() || inflight.as_ref().is_some_and(InflightArea::has_faulted) {
            return Err(RingError::Memory);
        }
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            index,
            ring,
            chain: Chain::new(&memory, limits),
            parser: Parser::new(disk, features),
            memory,
            kick,
            notifier,
            inflight,
            log,
            alarm,
            broken: None,
        })
    }

    /// Which of the disk's queues this is.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Becomes readable when the driver has made chains available. Non-blocking.
    #[must_use]
    pub fn kick_fd(&self) -> BorrowedFd<'_> {
        self.kick.fd()
    }

    /// Takes note of all kicks so far.
    pub fn drain_kick(&self) {
        self.kick.drain();
    }

    /// Requests popped whose completion was not published yet.
    #[must_use]
    pub fn outstanding(&self) -> u16 {
        self.ring.outstanding()
    }

    /// Where the ring is to be gone on with, as vhost-user passes it.
    pub(crate) fn position(&self) -> u32 {
        self.ring.position()
    }

    /// Requests that a queue before this one had in flight and that were not popped again yet. A front-end that stops a queue
    /// takes them for executed, as it does all that was taken from the ring.
    #[must_use]
    pub fn to_resubmit(&self) -> u16 {
        self.ring.to_resubmit()
    }

    /// Whether the front-end keeps an in-flight log.
    #[must_use]
    pub fn keeps_log(&self) -> bool {
        self.inflight.is_some()
    }

    /// Whether the front-end has a log of requests that this queue has not answered, so that they are resubmitted when it comes back.
    #[must_use]
    pub fn leaves_requests(&self) -> bool {
        self.inflight.is_some() && (self.outstanding() > 0 || self.to_resubmit() > 0)
    }

    /// Whether the front-end keeps a log, and there are requests that this queue has not taken: they are taken when it comes back.
    #[must_use]
    pub fn leaves_waiting(&self) -> bool {
        self.inflight.is_some() && self.ring.is_waiting()
    }

    /// Whether the front-end has a log that says so of another one of its queues, which does not run.
    #[must_use]
    pub fn other_left_requests(&self, index: u16) -> bool {
        self.inflight.as_ref().is_some_and(|area| area.other_has_requests(index))
    }

    /// Whether memory that the front-end shares for the queue could not be accessed: guest memory, in-flight memory or the dirty log.
    /// Nothing more is popped, nothing succeeds, and the front-end is hung up on once the queue is given back. It may come back
    /// with requests given up.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        let inflight = || self.inflight.as_ref().is_some_and(InflightArea::has_faulted);
        let log = || self.log.as_ref().is_some_and(|log| log.log.has_faulted());
        memory_faults::any() && (self.memory.has_faulted() || inflight() || log())
    }

    /// What is to be said of that.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        let inflight = || self.inflight.as_ref().and_then(InflightArea::fault);
        let log = || self.log.as_ref().and_then(|log| log.log.fault());
        self.memory.fault(SharedMemory::Guest).or_else(inflight).or_else(log)
    }

    /// Gives up the guest memory of a queue that [has faulted](Self::has_faulted), for it and for the requests popped: what is still
    /// written there reaches nobody, and zeroes are read. `false` if the host has no memory for that.
    ///
    /// # Panics
    /// If it has not.
    #[must_use]
    pub fn discard_memory(&self) -> bool {
        assert!(self.has_faulted(), "the guest's memory is as it should be");
        self.memory.discard()
    }

    /// Whether any memory has faulted; then no more requests come from the queue, and whoever serves the front-end is told.
    fn check_memory(&mut self) -> Result<(), QueueError> {
        if !self.has_faulted() {
            return Ok(());
        }
        if self.broken.replace(QueueError::Memory) != Some(QueueError::Memory)
            && let Some(fault) = self.fault()
        {
            tracing::warn!(queue = self.index, %fault, "virtqueue stops");
            self.alarm.ring();
        }
        Err(QueueError::Memory)
    }

    /// Takes the next request; first of all, in their order, those that were in flight when an earlier daemon ended, if the
    /// front-end has kept the log of them. What needs no I/O (a bad request, get-id) is completed inside, for the next
    /// [`publish`](Self::publish). An error means the queue is broken: no more requests come from it until the front-end
    /// restarts it; those taken before are completed as ever.
    pub fn pop(&mut self) -> Result<Option<Request>, QueueError> {
        self.check_memory()?;
        if let Some(error) = self.broken {
            return Err(error);
        }
        // Ends: at most as many chains as the queue has entries can be taken between two publications.
        loop {
            let chain = match self.ring.next_chain() {
                Ok(Some(chain)) => chain,
                Ok(None) => return Ok(None),
                Err(error) => {
                    // What was read may be zeroes.
                    self.check_memory()?;
                    tracing::warn!(queue = self.index, %error, "virtqueue is broken");
                    self.broken = Some(error);
                    self.notifier.report_error();
                    return Err(error);
                }
            };
            let walked = self.chain.walk(&self.memory, &self.ring, chain);
            // What was walked may be zeroes where the status had its place: the chain stays in flight.
            self.check_memory()?;
            let status = match walked {
                Ok(status) => status,
                Err(defect) => {
                    tracing::debug!(queue = self.index, head = chain.head, %defect, "malformed chain");
                    self.refuse(chain);
                    continue;
                }
            };
            let parsed = self.parser.parse(self.chain.readable(), self.chain.writable());
            // So may its header be. It stays in flight, too: nobody knows what it asks for.
            self.check_memory()?;
            // The status is one of at most `u32::MAX` bytes.
            let data_bytes = (self.chain.writable().bytes() - 1) as u32;
            let filled = match &parsed {
                Parsed::Request { op: Op::Read, .. } => data_bytes,
                Parsed::Request { .. } => 0,
                Parsed::Answer(answer) => answer.filled,
            };
            let to_mark =
                self.log.as_ref().map_or_else(Box::default, |_| written_ranges(self.chain.writable(), filled));
            let token = ChainToken { queue: self.id, chain, status, data_bytes, is_read: false, to_mark };
            match parsed {
                Parsed::Request { op, sector, bytes, segments } => {
                    let token = ChainToken { is_read: op == Op::Read, ..token };
                    return Ok(Some(Request { token, op, sector, bytes, segments }));
                }
                Parsed::Answer(answer) => self.finish(&token, answer),
            }
        }
    }

    /// Returns a malformed chain: with a status if there is room for one. How much of it is writable before that is not
    /// certain, so nothing is promised to be written.
    fn refuse(&mut self, chain: Taken) {
        let written = self.chain.status().map(|status| {
            // SAFETY: the byte was just found in `self.memory`.
            unsafe { status.write(BlkStatus::IoErr as u8) };
            0
        });
        if let Some(log) = &self.log
            && written.is_some()
        {
            log.mark(written_ranges(self.chain.writable(), 0));
        }
        self.ring.push_used(chain, written);
    }

    /// Completes a request of this queue; the driver sees it after [`publish`](Self::publish). Once the queue [has
    /// faulted](Self::has_faulted) none succeeds: its data may be among those that were lost. Where its status or the ring were lost, it is
    /// not answered.
    ///
    /// # Panics
    /// If the token is of another queue, or of this one before it was restarted.
    #[allow(clippy::needless_pass_by_value)] // consuming the token is the point
    pub fn complete(&mut self, token: ChainToken, status: BlkStatus) {
        let filled = if token.is_read && status == BlkStatus::Ok { token.data_bytes } else { 0 };
        self.finish(&token, Answer { status, filled });
    }

    fn finish(&mut self, token: &ChainToken, answer: Answer) {
        assert_eq!(token.queue, self.id, "a chain is completed on the queue it came from");
        let faulted = self.check_memory().is_err();
        let answer = if faulted { Answer::status(BlkStatus::IoErr) } else { answer };
        // SAFETY: the byte was found in `self.memory`, as the token is this queue's.
        unsafe { token.status.write(answer.status as u8) };
        if self.memory.has_lost(token.status.place(), 1) {
            return;
        }
        if let Some(log) = &self.log {
            log.mark(token.to_mark.iter().copied());
        }
        // 2.7.8.2, 2.8.5: the length counts bytes written from the start of the writable part. The status is its last byte, so it
        // counts only when all before it was written, too.
        let written = if answer.filled == token.data_bytes { answer.filled.saturating_add(1) } else { answer.filled };
        self.ring.push_used(token.chain, Some(written));
    }

    /// Shows all completions so far to the driver, with at most one signal.
    pub fn publish(&mut self) {
        if self.ring.publish() {
            self.notifier.signal();
        }
        // Nothing may come of it but this: nobody looks at the queue before the next kick.
        let _ = self.check_memory();
    }

    /// Asks the driver not to kick while the ring is being worked off anyway. Kicks may still come.
    pub fn disable_notifications(&mut self) {
        self.ring.disable_notifications();
    }

    /// Asks the driver to kick on its next request. `true` if one is already there, for which no kick may come: pop again.
    #[must_use]
    pub fn enable_notifications(&mut self) -> bool {
        self.ring.enable_notifications() && self.broken.is_none()
    }
}

/// What a chain is written to: so many bytes of its writable part, and the status at the end of that. A chain can name the same
/// page over and over; what is not written is not marked, or a guest could have an I/O thread mark for minutes.
fn written_ranges(writable: &Segments, filled: u32) -> Box<[GuestRange]> {
    let status = writable.part(writable.bytes() - 1, 1);
    let data = writable.part(0, filled.into());
    data.guest_ranges().chain(status.guest_ranges()).collect()
}
