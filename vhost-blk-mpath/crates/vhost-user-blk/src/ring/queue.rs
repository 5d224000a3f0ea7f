//! Decides: a virtqueue stops because of a chain (`pop`).
//! Decides: a request of faulted memory fails (`finish`).
//!
//! A queue: yields block requests and takes their completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

use super::RingError;
use super::chain::{Chain, ChainLimits};
use super::format::Ring;
use super::split::{QueueError, RingLayout};
use crate::buffer::{GuestByte, Segments};
use crate::descriptor::TakenChain;
use crate::dirty_log::QueueDirtyLog;
use crate::disk::VirtioDisk;
use crate::inflight::InflightArea;
use crate::memory::{GuestMemory, GuestRange, MemoryFault, SharedMemory};
use crate::memory_faults;
use crate::notify::{Alarm, Kick, Notifier};
use crate::request::{Answer, BlkStatus, Op, ParsedChain, Parser};

/// The duty to complete one chain once: it is not `Clone`, and [`Queue::complete`] consumes it.
#[derive(Debug)]
#[must_use = "a chain that is never completed is lost to the driver"]
pub struct ChainToken {
    /// Id of the queue that the chain belongs to. A restarted queue has another id.
    queue: u64,
    chain: TakenChain,
    status: GuestByte,
    /// Writable bytes before the status byte.
    data_bytes: u32,
    is_read: bool,
    /// Guest memory to mark as written on completion, during a migration.
    to_mark: Box<[GuestRange]>,
}

/// One block request of the guest, checked against the disk.
#[derive(Debug)]
pub struct Request {
    /// Returned to the queue with the outcome.
    pub token: ChainToken,
    /// The operation.
    pub op: Op,
    /// First sector, in units of 512 bytes, whatever the block size. 0 for a flush.
    pub sector: u64,
    /// Length on the disk: of the data of a read or write, or of the range of a discard or write zeroes. 0 for a flush.
    pub bytes: u32,
    /// The data of a read (to fill) or of a write (to store). Empty otherwise.
    pub segments: Segments,
}

/// The parameters of a new queue.
pub(crate) struct QueueParts {
    pub(crate) index: u16,
    pub(crate) layout: RingLayout,
    pub(crate) disk: Arc<VirtioDisk>,
    /// Negotiated features.
    pub(crate) features: u64,
    pub(crate) kick: Arc<Kick>,
    pub(crate) notifier: Arc<Notifier>,
    /// The in-flight log, if the front-end keeps one.
    pub(crate) inflight: Option<InflightArea>,
    /// The dirty log, during a migration.
    pub(crate) log: Option<QueueDirtyLog>,
    /// Rings when an access to the queue's memory failed.
    pub(crate) alarm: Arc<Alarm>,
}

/// A virtqueue that moves by value into an I/O thread and comes back drained.
///
/// The owner's loop: when [`kick_fd`](Self::kick_fd) is readable, call [`clear_kick`](Self::clear_kick), then
/// [`pop`](Self::pop) until it returns `None`. Call [`complete`](Self::complete) for finished requests, and
/// [`publish`](Self::publish) once a turn. Before sleeping, call [`enable_notifications`](Self::enable_notifications),
/// and continue if it returns `true`. The ring may hold requests at the start, so call `pop` before the first kick.
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
    /// The in-flight log, if the front-end keeps one.
    inflight: Option<InflightArea>,
    log: Option<QueueDirtyLog>,
    alarm: Arc<Alarm>,
    broken: Option<QueueError>,
    refused: RefusedRequests,
}

/// Requests that a queue has answered with an error by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedRequests {
    /// Malformed requests, answered with `VIRTIO_BLK_S_IOERR`. A broken queue counts as one.
    pub malformed: u32,
    /// Requests for an operation that the disk does not offer, answered with `VIRTIO_BLK_S_UNSUPP`.
    pub unsupported: u32,
}

impl Queue {
    pub(crate) fn new(memory: &GuestMemory, parts: QueueParts) -> Result<Self, RingError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let QueueParts { index, layout, disk, features, kick, notifier, inflight, log, alarm } = parts;
        // The map is small. A copy per queue avoids a reference count for each request that other threads write to as
        // well.
        let memory = Arc::new(memory.clone());
        let limits = ChainLimits::new(features & (1 << VIRTIO_RING_F_INDIRECT_DESC) != 0, layout.size);
        let mut ring = Ring::new(&memory, &layout)?;
        if let Some(log) = &log {
            ring.set_dirty_log(log.clone());
        }
        // `resume` puts the ring's position into the log, so the position must be valid.
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
            refused: RefusedRequests::default(),
        })
    }

    /// Index of the queue in its disk.
    #[must_use]
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The kick eventfd, non-blocking. It becomes readable when the driver has made chains available.
    #[must_use]
    pub fn kick_fd(&self) -> BorrowedFd<'_> {
        self.kick.fd()
    }

    /// Takes the kicks from the kick eventfd. A hostile front-end can make this block.
    pub fn clear_kick(&self) {
        self.kick.clear();
    }

    /// Requests that are popped and whose completion was not published.
    #[must_use]
    pub fn outstanding(&self) -> u16 {
        self.ring.outstanding()
    }

    /// The position to continue from, in vhost-user's format.
    pub(crate) fn position(&self) -> u32 {
        self.ring.position()
    }

    /// Requests of an earlier queue that are still to be resubmitted. A front-end that stops a queue considers them
    /// executed, like everything that was taken from the ring.
    #[must_use]
    pub fn to_resubmit(&self) -> u16 {
        self.ring.to_resubmit()
    }

    /// Whether the front-end keeps an in-flight log.
    #[must_use]
    pub fn has_inflight_log(&self) -> bool {
        self.inflight.is_some()
    }

    /// Whether nothing is lost if the front-end is hung up on while the queue has requests: they are resubmitted when it
    /// reconnects. During a migration it may reconnect nowhere.
    #[must_use]
    pub fn survives_hang_up(&self) -> bool {
        self.inflight.is_some() && self.log.is_none()
    }

    /// Whether the in-flight log has requests that this queue did not answer. They are resubmitted when the front-end
    /// reconnects.
    #[must_use]
    pub fn has_unanswered_requests(&self) -> bool {
        self.inflight.is_some() && (self.outstanding() > 0 || self.to_resubmit() > 0)
    }

    /// Whether the front-end keeps an in-flight log, and the ring has requests that were not popped. They are taken
    /// when the front-end reconnects.
    #[must_use]
    pub fn has_waiting_requests(&self) -> bool {
        self.inflight.is_some() && self.ring.has_available()
    }

    /// Whether the in-flight log has requests of queue `index`, another queue of the disk, which must not run.
    #[must_use]
    pub fn other_queue_has_requests(&self, index: u16) -> bool {
        self.inflight.as_ref().is_some_and(|area| area.other_area_has_requests(index))
    }

    /// Whether an access to memory of the queue has failed: guest memory, in-flight memory or the dirty log. No more
    /// requests are popped then, and none succeeds. Once the queue is given back, the back-end hangs up on the
    /// front-end. The queue may come back with requests given up.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        let inflight = || self.inflight.as_ref().is_some_and(InflightArea::has_faulted);
        let log = || self.log.as_ref().is_some_and(|log| log.log.has_faulted());
        memory_faults::any_fault() && (self.memory.has_faulted() || inflight() || log())
    }

    /// The first fault in memory of the queue, if there was one.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        let inflight = || self.inflight.as_ref().and_then(InflightArea::fault);
        let log = || self.log.as_ref().and_then(|log| log.log.fault());
        self.memory.fault(SharedMemory::Guest).or_else(inflight).or_else(log)
    }

    /// Replaces the guest memory of a queue that [has faulted](Self::has_faulted) by private zeroes, for the queue and
    /// its popped requests. The front-end sees no further writes. Returns `false` if the host has no memory for that.
    ///
    /// # Panics
    ///
    /// If the queue has not faulted.
    #[must_use]
    pub fn discard_memory(&self) -> bool {
        assert!(self.has_faulted(), "the guest's memory is as it should be");
        self.memory.discard()
    }

    /// Whether the queue yields no more requests, because of its driver or after a memory fault.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Checks for memory faults. After a fault, marks the queue broken and wakes the thread that serves the front-end.
    /// Cheap without a fault.
    ///
    /// # Errors
    ///
    /// [`QueueError::Memory`] after a fault.
    pub fn check_memory(&mut self) -> Result<(), QueueError> {
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

    /// Takes the next request. Requests that were in flight when an earlier daemon ended come first, in their order, if
    /// the front-end has kept their log. Requests without I/O (malformed ones, get-id) are completed here, for the next
    /// [`publish`](Self::publish). An error means that the queue is broken: it yields no requests until the front-end
    /// restarts it. Requests popped before are completed as usual.
    pub fn pop(&mut self) -> Result<Option<Request>, QueueError> {
        self.check_memory()?;
        if let Some(error) = self.broken {
            return Err(error);
        }
        // This ends: between two publications at most as many chains can be taken as the queue has entries.
        loop {
            let is_resubmitted = self.ring.to_resubmit() > 0;
            let chain = match self.ring.next_chain() {
                Ok(Some(chain)) => chain,
                Ok(None) => return Ok(None),
                Err(error) => {
                    // The values read may be zeroes of a replaced page.
                    self.check_memory()?;
                    return Err(self.break_for(error));
                }
            };
            let walked = self.chain.walk(&self.memory, &self.ring, chain);
            // The status address read may be zeroes of a replaced page, so the chain stays in flight.
            self.check_memory()?;
            let status = match (walked, self.chain.status()) {
                (Ok(status), _) => status,
                (Err(defect), Some(status)) => {
                    tracing::debug!(queue = self.index, id = chain.id, %defect, "malformed chain");
                    self.refused.malformed += 1;
                    self.refuse(chain, status);
                    continue;
                }
                (Err(defect), None) => {
                    self.ring.put_back(chain, is_resubmitted);
                    return Err(self.break_for(QueueError::NoStatus { id: chain.id, defect }));
                }
            };
            let parsed = self.parser.parse(self.chain.readable(), self.chain.writable());
            // The header read may be zeroes of a replaced page. The chain stays in flight, because its operation is not
            // known.
            self.check_memory()?;
            // In range: the status is one of at most `u32::MAX` bytes.
            let data_bytes = (self.chain.writable().bytes() - 1) as u32;
            let filled = match &parsed {
                ParsedChain::Request { op: Op::Read, .. } => data_bytes,
                ParsedChain::Request { .. } => 0,
                ParsedChain::Answer(answer) => answer.filled,
            };
            let to_mark =
                self.log.as_ref().map_or_else(Box::default, |_| written_ranges(self.chain.writable(), filled));
            let token = ChainToken { queue: self.id, chain, status, data_bytes, is_read: false, to_mark };
            match parsed {
                ParsedChain::Request { op, sector, bytes, segments } => {
                    let token = ChainToken { is_read: op == Op::Read, ..token };
                    return Ok(Some(Request { token, op, sector, bytes, segments }));
                }
                ParsedChain::Answer(answer) => {
                    match answer.status {
                        BlkStatus::Ok => {}
                        BlkStatus::IoErr => self.refused.malformed += 1,
                        BlkStatus::Unsupp => self.refused.unsupported += 1,
                    }
                    self.finish(&token, answer);
                }
            }
        }
    }

    /// The requests that [`Queue::pop`] has answered with an error since the last call.
    pub fn take_refused(&mut self) -> RefusedRequests {
        std::mem::take(&mut self.refused)
    }

    /// Marks the queue broken.
    fn break_for(&mut self, error: QueueError) -> QueueError {
        tracing::debug!(queue = self.index, %error, "virtqueue is broken");
        self.broken = Some(error);
        self.refused.malformed += 1;
        self.notifier.report_error();
        error
    }

    /// Returns a malformed chain with an error in its status byte. The number of writable bytes before that byte is not
    /// certain, so the length promises none.
    fn refuse(&mut self, chain: TakenChain, status: GuestByte) {
        // SAFETY: the byte was just found in `self.memory`.
        unsafe { status.write(BlkStatus::IoErr as u8) };
        if self.memory.has_lost(status.place(), 1) {
            return;
        }
        if let Some(log) = &self.log
            && let Some(start) = self.memory.guest_address(status.place())
        {
            log.mark([GuestRange { start, bytes: 1 }]);
        }
        self.ring.push_used(chain, 0);
    }

    /// Completes a request of this queue. The driver sees it after [`publish`](Self::publish). Once the queue [has
    /// faulted](Self::has_faulted), no request succeeds, because its data may be lost. A request is not answered if its
    /// status byte or the ring is lost.
    ///
    /// # Panics
    ///
    /// If the token is from another queue, or from this queue before a restart.
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
        // 2.7.8.2, 2.8.5: the length counts bytes from the start of the writable part. The status is its last byte, so
        // it counts only if all bytes before it were written.
        let written = if answer.filled == token.data_bytes { answer.filled.saturating_add(1) } else { answer.filled };
        self.ring.push_used(token.chain, written);
    }

    /// Shows all completions to the driver, with at most one signal.
    pub fn publish(&mut self) {
        if self.ring.publish() {
            self.notifier.signal();
        }
        // The error needs no handling here. The check itself matters: otherwise the queue is not checked before the
        // next kick.
        let _ = self.check_memory();
    }

    /// Whether a chain is available, unless the queue is broken. Reads guest memory, and is cheap.
    #[must_use]
    pub fn has_available(&self) -> bool {
        self.broken.is_none() && self.ring.has_available()
    }

    /// Asks the driver not to kick while the owner polls the ring. Kicks may still come.
    pub fn disable_notifications(&mut self) {
        self.ring.disable_notifications();
    }

    /// Asks the driver to kick on its next request. `true` if a request is already available. No kick need come for it:
    /// pop again.
    #[must_use]
    pub fn enable_notifications(&mut self) -> bool {
        let is_available = self.ring.enable_notifications();
        self.check_memory().is_ok() && self.broken.is_none() && is_available
    }
}

/// The guest memory that is written for a chain: `filled` bytes of its writable part, and the status at its end. Other
/// buffers are not marked. A chain can name a page many times, and marking all of them could keep an I/O thread busy
/// for minutes.
fn written_ranges(writable: &Segments, filled: u32) -> Box<[GuestRange]> {
    let status = writable.part(writable.bytes() - 1, 1);
    let data = writable.part(0, filled.into());
    data.guest_ranges().chain(status.guest_ranges()).collect()
}
