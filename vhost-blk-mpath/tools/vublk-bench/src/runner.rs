//! Keeps one queue filled with a workload's requests and accounts for every one of them.

use crate::backend::{Backend, Used};
use crate::ledger::{Ledger, LedgerError, LostRequest};
use crate::request::{Request, Status};
use crate::stats::Stats;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest sleep: how soon a stop, a dead back-end or a lost request is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Turns of a busy loop between two looks at the clock for lost requests.
const TURNS_BETWEEN_CHECKS: u32 = 4096;

/// How long to listen for completions that must not come, once everything has completed.
const SILENCE: Duration = Duration::from_millis(5);

/// What a workload wants now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Submit this; its data, if it has any, is in the slot's buffer.
    Submit(Request),
    /// No request that may run while others are in flight.
    Busy,
    /// No more requests.
    Done,
}

/// Where requests come from and completions go.
pub trait Workload<B: Backend> {
    /// The next request, to be submitted from `slot`.
    fn next(&mut self, slot: u16, backend: &mut B) -> Next;
    /// A request submitted from `slot` has completed.
    fn completed(&mut self, slot: u16, request: &Request, status: Status, backend: &mut B);
}

/// What all queues of a run share.
#[derive(Debug, Default)]
pub struct Control {
    /// Submit no more; finish what is in flight.
    pub stop: AtomicBool,
    /// The back-end closed the connection; nothing more will complete.
    pub hung_up: AtomicBool,
    /// Requests completed so far, warm-up included.
    pub completed: AtomicU64,
    /// Bytes moved so far, warm-up included.
    pub bytes: AtomicU64,
    /// Failed requests so far.
    pub errors: AtomicU64,
}

/// When to measure.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Completions before this are warm-up.
    pub measure_from: Instant,
    /// No submission after this; `None` means until the workload is done.
    pub until: Option<Instant>,
}

/// A request that completed with another status than OK.
#[derive(Debug, Clone, serde::Serialize)]
pub struct FailedRequest {
    /// The queue it was submitted to.
    pub queue: u16,
    /// Its number on that queue.
    pub generation: u64,
    /// What was asked.
    pub request: Request,
    /// The answer.
    pub status: Status,
}

/// Ends a queue: nothing after it can be trusted.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// A completion too many.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The status byte of a used chain was never written.
    #[error("used without a status: request {generation} ({request})")]
    NoStatus {
        /// Its number on this queue.
        generation: u64,
        /// What was asked.
        request: Request,
    },
    /// Requests that did not complete within the timeout.
    #[error("{} request(s) lost: not completed in time", .0.len())]
    Lost(Vec<LostRequest>),
    /// The back-end is gone, with these requests in flight.
    #[error("the back-end closed the connection with {} request(s) in flight", .0.len())]
    HungUp(Vec<LostRequest>),
    /// The ring did not take a request.
    #[error("cannot queue a request: {0}")]
    Submit(#[source] io::Error),
    /// The notification did not get through.
    #[error("cannot signal the back-end: {0}")]
    Kick(#[source] io::Error),
    /// Waiting for completions failed.
    #[error("cannot wait for completions: {0}")]
    Wait(#[source] io::Error),
}

/// The most failed requests remembered in detail, per queue.
const FAILED_DETAILS: usize = 8;

/// One queue with its accounts.
pub struct Runner<B> {
    backend: B,
    queue: u16,
    ledger: Ledger,
    free_slots: Vec<u16>,
    busy_poll: bool,
    timeout: Duration,
    /// What was measured so far.
    pub stats: Stats,
    /// The first failed requests.
    pub failed: Vec<FailedRequest>,
}

impl<B: Backend> Runner<B> {
    /// `slots` is the depth, `heads` the size of the ring; a request older than `timeout` is lost.
    pub fn new(backend: B, queue: u16, slots: u16, heads: u16, busy_poll: bool, timeout: Duration) -> Self {
        Self {
            backend,
            queue,
            ledger: Ledger::new(heads),
            free_slots: (0..slots).rev().collect(),
            busy_poll,
            timeout,
            stats: Stats::default(),
            failed: Vec::new(),
        }
    }

    /// The queue below.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Runs until the schedule, the workload or `control.stop` ends it and everything in flight has completed.
    pub fn run(&mut self, workload: &mut impl Workload<B>, schedule: Schedule, control: &Control) -> Result<(), Fatal> {
        let mut done = false;
        let mut next_check = Instant::now() + LONGEST_WAIT;
        let mut idle_turns = 0;
        loop {
            let now = Instant::now();
            done |= control.stop.load(Ordering::Relaxed) || schedule.until.is_some_and(|until| now >= until);
            let submitted = if done { 0 } else { self.submit(workload, &mut done)? };
            let completed = self.reap(workload, schedule, control)?;
            if done && self.ledger.in_flight() == 0 {
                return self.expect_silence();
            }
            if now >= next_check {
                self.check_for_lost(now, control)?;
                next_check = now + LONGEST_WAIT;
            }
            if completed > 0 || (submitted > 0 && self.busy_poll) {
                idle_turns = 0;
            } else if self.ledger.in_flight() == 0 {
                // Other queues hold every range this workload might use.
                std::thread::yield_now();
            } else if self.busy_poll {
                idle_turns += 1;
                if idle_turns % TURNS_BETWEEN_CHECKS == 0 {
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            } else {
                self.backend.wait(LONGEST_WAIT).map_err(Fatal::Wait)?;
            }
        }
    }

    fn submit(&mut self, workload: &mut impl Workload<B>, done: &mut bool) -> Result<u32, Fatal> {
        let mut submitted = 0;
        while let Some(&slot) = self.free_slots.last() {
            let request = match workload.next(slot, &mut self.backend) {
                Next::Submit(request) => request,
                Next::Busy => break,
                Next::Done => {
                    *done = true;
                    break;
                }
            };
            let now = Instant::now();
            let head = self.backend.submit(slot, &request).map_err(Fatal::Submit)?;
            self.ledger.submitted(head, slot, request, now)?;
            self.free_slots.pop();
            submitted += 1;
        }
        if submitted > 0 {
            self.backend.kick().map_err(Fatal::Kick)?;
        }
        Ok(submitted)
    }

    fn reap(&mut self, workload: &mut impl Workload<B>, schedule: Schedule, control: &Control) -> Result<u32, Fatal> {
        let mut completed = 0;
        while let Some(Used { head, status }) = self.backend.next_used() {
            let request = self.ledger.completed(head)?;
            let now = Instant::now();
            if status == Status::NotWritten {
                return Err(Fatal::NoStatus { generation: request.generation, request: request.request });
            }
            if status == Status::Ok {
                if now >= schedule.measure_from {
                    let latency = now.saturating_duration_since(request.submitted);
                    let in_time = schedule.until.is_none_or(|until| now < until);
                    self.stats.record(request.request.kind, request.request.len, latency, in_time);
                }
                control.bytes.fetch_add(u64::from(request.request.len), Ordering::Relaxed);
            } else {
                self.stats.errors += 1;
                control.errors.fetch_add(1, Ordering::Relaxed);
                if self.failed.len() < FAILED_DETAILS {
                    self.failed.push(FailedRequest {
                        queue: self.queue,
                        generation: request.generation,
                        request: request.request,
                        status,
                    });
                }
            }
            workload.completed(request.slot, &request.request, status, &mut self.backend);
            self.free_slots.push(request.slot);
            completed += 1;
        }
        control.completed.fetch_add(u64::from(completed), Ordering::Relaxed);
        Ok(completed)
    }

    fn check_for_lost(&self, now: Instant, control: &Control) -> Result<(), Fatal> {
        if control.hung_up.load(Ordering::Relaxed) {
            return Err(Fatal::HungUp(self.ledger.older_than(self.queue, Duration::ZERO, now)));
        }
        let lost = self.ledger.older_than(self.queue, self.timeout, now);
        if lost.is_empty() { Ok(()) } else { Err(Fatal::Lost(lost)) }
    }

    /// Everything has completed, so anything that still comes is a completion too many.
    fn expect_silence(&mut self) -> Result<(), Fatal> {
        self.backend.wait(SILENCE).map_err(Fatal::Wait)?;
        match self.backend.next_used() {
            Some(used) => Err(self.ledger.completed(used.head).map_or_else(Fatal::from, |request| Fatal::NoStatus {
                generation: request.generation,
                request: request.request,
            })),
            None => Ok(()),
        }
    }
}
