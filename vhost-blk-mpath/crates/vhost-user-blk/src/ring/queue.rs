//! Decides: a virtqueue stops because of a chain (`pop`).
//! Decides: a request of faulted memory fails (`complete`).
//!
//! A queue: yields block requests and takes their completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

use super::RingError;
use super::chain::{Chain, ChainLimits};
use super::format::Ring;
use super::plain::PlainChain;
use super::split::{QueueError, RingLayout};
use crate::buffer::{GuestByte, Segments};
use crate::descriptor::TakenChain;
use crate::dirty_log::QueueDirtyLog;
use crate::disk::VirtioDisk;
use crate::inflight::InflightArea;
use crate::memory::{GuestMemory, GuestRange, MemoryFault, SharedMemory};
use crate::memory_faults;
use crate::notify::{Alarm, Blocked, Kick, Notifier};
use crate::request::{Answer, BlkStatus, HEADER_BYTES, Op, ParsedChain, Parser};

/// One block request of the guest, checked against the disk. [`Queue::complete`] consumes it.
#[derive(Debug)]
#[must_use = "a request that is never completed is lost to the driver"]
pub struct Request {
    /// The operation.
    pub op: Op,
    /// First sector, in units of 512 bytes, whatever the block size. 0 for a flush.
    pub sector: u64,
    /// Length on the disk: of the data of a read or write, or of the range of a discard or write zeroes. 0 for a flush.
    pub bytes: u32,
    /// The data of a read (to fill) or of a write (to store). Empty otherwise.
    pub segments: Segments,
    chain: UnansweredChain,
    /// Id of the queue that the chain belongs to. A restarted queue has another id.
    queue: u64,
}

/// A chain that was taken and parsed.
#[derive(Clone, Copy, Debug)]
struct UnansweredChain {
    taken: TakenChain,
    status: GuestByte,
    /// Writable bytes before the status byte. `u32::MAX` for a malformed chain: the bytes are not certain, and no chain that is
    /// served has as many.
    data_bytes: u32,
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
/// The owner's loop: at each kick on [`kick_fd`](Self::kick_fd), call [`pop`](Self::pop) until it returns `None`. Call [`complete`](Self::complete) for finished requests, and
/// [`publish`](Self::publish) once a turn. Before sleeping, call [`enable_notifications`](Self::enable_notifications),
/// and continue if it returns `true`. The ring may hold requests at the start, so call `pop` before the first kick.
#[derive(Debug)]
pub struct Queue {
    id: u64,
    index: u16,
    ring: Ring,
    chain: Chain,
    /// `VIRTIO_RING_F_INDIRECT_DESC` was negotiated.
    indirect: bool,
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
    /// References to `memory` for requests. They spare each request two atomic counts.
    spare: Vec<Arc<GuestMemory>>,
    /// Descriptors of chains that were walked since the last [`publish`](Self::publish).
    walked: usize,
}

/// A queue takes no more chains in a turn once it has walked this many descriptors. The owner may serve other guests.
const WALKED_MAX: usize = 16 << 10;

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
        let indirect = features & (1 << VIRTIO_RING_F_INDIRECT_DESC) != 0;
        let limits = ChainLimits::new(indirect, layout.size);
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
            indirect,
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
            spare: Vec::new(),
            walked: 0,
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

    /// Takes the kicks from the kick eventfd.
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
        if memory_faults::any_fault() { self.check_own_memory() } else { Ok(()) }
    }

    #[cold]
    fn check_own_memory(&mut self) -> Result<(), QueueError> {
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
    /// restarts it. Requests popped before are completed as usual. `None` also once long chains have [used up the
    /// turn](Self::has_used_up_turn).
    pub fn pop(&mut self) -> Result<Option<Request>, QueueError> {
        self.check_memory()?;
        if let Some(error) = self.broken {
            return Err(error);
        }
        // This ends: between two publications at most as many chains can be taken as the queue has entries.
        while !self.has_used_up_turn() {
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
            let plain = PlainChain::read(&self.memory, &self.ring, chain, self.indirect);
            let transfer = plain.and_then(|plain| {
                Some((self.parser.parse_transfer(plain.header, plain.bytes, plain.is_writable)?, plain))
            });
            if let Some(((op, sector), PlainChain { data, bytes, is_writable, status, .. })) = transfer {
                // The values read may be zeroes of a replaced page, so the chain stays in flight.
                self.check_memory()?;
                let chain = UnansweredChain { taken: chain, status, data_bytes: if is_writable { bytes } else { 0 } };
                // SAFETY: the data were found in `self.memory`, which all spare references are for.
                let segments = unsafe { Segments::one(self.spare_reference(), data) };
                return Ok(Some(Request { op, sector, bytes, segments, chain, queue: self.id }));
            }
            if let Some(request) = self.walk(chain, is_resubmitted)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// The request of any chain. `None` if the chain is answered here.
    #[inline(never)]
    fn walk(&mut self, chain: TakenChain, is_resubmitted: bool) -> Result<Option<Request>, QueueError> {
        let walked = self.chain.walk(&self.memory, &self.ring, chain);
        self.walked += self.chain.followed();
        // The status address read may be zeroes of a replaced page, so the chain stays in flight.
        self.check_memory()?;
        let status = match (walked, self.chain.status()) {
            (Ok(status), _) => status,
            (Err(defect), Some(status)) => {
                tracing::debug!(queue = self.index, id = chain.id, %defect, "malformed chain");
                self.answer(UnansweredChain { taken: chain, status, data_bytes: u32::MAX }, BlkStatus::IoErr, 0);
                return Ok(None);
            }
            (Err(defect), None) => {
                self.ring.put_back(chain, is_resubmitted);
                return Err(self.break_for(QueueError::NoStatus { id: chain.id, defect }));
            }
        };
        let parsed = self.parser.parse(self.chain.readable(), self.chain.writable());
        // The header read may be zeroes of a replaced page. The chain stays in flight, because its operation is not known.
        self.check_memory()?;
        // In range: the status is one of at most `u32::MAX` bytes.
        let data_bytes = (self.chain.writable().bytes() - 1) as u32;
        let chain = UnansweredChain { taken: chain, status, data_bytes };
        match parsed {
            ParsedChain::Request { op, sector, bytes } => {
                let memory = self.spare_reference();
                let segments = match op {
                    Op::Read => self.chain.writable().part(memory, 0, bytes.into()),
                    Op::Write { .. } => self.chain.readable().part(memory, HEADER_BYTES, bytes.into()),
                    Op::Flush | Op::Discard | Op::WriteZeroes { .. } => Segments::new(memory),
                };
                Ok(Some(Request { op, sector, bytes, segments, chain, queue: self.id }))
            }
            ParsedChain::Answer(Answer { status, filled }) => {
                self.answer(chain, status, filled);
                Ok(None)
            }
        }
    }

    /// Answers the chain that was walked, of which the first `filled` writable bytes are filled.
    fn answer(&mut self, chain: UnansweredChain, status: BlkStatus, filled: u32) {
        match status {
            BlkStatus::Ok => {}
            BlkStatus::IoErr => self.refused.malformed += 1,
            BlkStatus::Unsupp => self.refused.unsupported += 1,
        }
        let memory = self.spare_reference();
        let segments = self.chain.writable().part(memory, 0, filled.into());
        self.complete(Request { op: Op::Read, sector: 0, bytes: filled, segments, chain, queue: self.id }, status);
    }

    /// A reference to the memory for a request.
    fn spare_reference(&mut self) -> Arc<GuestMemory> {
        self.spare.pop().unwrap_or_else(|| Arc::clone(&self.memory))
    }

    /// Whether [`Queue::pop`] takes no more chains until [`Queue::publish`], because long ones have used up the turn.
    #[must_use]
    pub fn has_used_up_turn(&self) -> bool {
        self.walked >= WALKED_MAX
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
        self.notify(Notifier::report_error);
        error
    }

    /// Completes a request of this queue. The driver sees it after [`publish`](Self::publish). Once the queue [has
    /// faulted](Self::has_faulted), no request succeeds, because its data may be lost. A request is not answered if its
    /// status byte or the ring is lost.
    ///
    /// # Panics
    ///
    /// If the request is from another queue, or from this queue before a restart.
    pub fn complete(&mut self, request: Request, status: BlkStatus) {
        let Request { op, bytes, segments, chain, queue, .. } = request;
        assert_eq!(queue, self.id, "a chain is completed on the queue it came from");
        let status = if self.check_memory().is_ok() { status } else { BlkStatus::IoErr };
        // SAFETY: the byte was found in `self.memory`, as the chain is this queue's.
        unsafe { chain.status.write(status as u8) };
        if self.memory.has_lost(chain.status.place(), 1) {
            return;
        }
        let is_read = op == Op::Read;
        if let Some(log) = &self.log {
            self.mark_written(log, is_read.then_some(&segments), chain.status);
        }
        let filled = if is_read && status == BlkStatus::Ok { bytes } else { 0 };
        // 2.7.8.2, 2.8.5: the length counts bytes from the start of the writable part. The status is its last byte, so
        // it counts only if all bytes before it were written.
        let written = if filled == chain.data_bytes { filled.saturating_add(1) } else { filled };
        self.ring.push_used(chain.taken, written);
        let memory = segments.into_memory();
        // The owner of a request can exchange its segments.
        if Arc::ptr_eq(&memory, &self.memory) {
            self.spare.push(memory);
        }
    }

    /// Marks the data of a read and the status byte in the dirty log. Other buffers are not marked. A chain can name a page
    /// many times, and marking all of them could keep an I/O thread busy for minutes.
    #[cold]
    fn mark_written(&self, log: &QueueDirtyLog, data: Option<&Segments>, status: GuestByte) {
        log.mark(data.into_iter().flat_map(Segments::guest_ranges));
        log.mark(self.memory.guest_address(status.place()).map(|start| GuestRange { start, bytes: 1 }));
    }

    /// Shows all completions to the driver, with at most one signal.
    pub fn publish(&mut self) {
        self.walked = 0;
        if self.ring.publish() {
            self.notify(Notifier::signal);
        }
        // The error needs no handling here. The check itself matters: otherwise the queue is not checked before the
        // next kick.
        let _ = self.check_memory();
    }

    /// Writes to a descriptor of the front-end, unless one of its descriptors has made a thread wait.
    fn notify(&self, write: impl FnOnce(&Notifier) -> Result<(), Blocked>) {
        if !self.alarm.has_blocked() && write(&self.notifier).is_err() {
            self.alarm.blocked();
        }
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
