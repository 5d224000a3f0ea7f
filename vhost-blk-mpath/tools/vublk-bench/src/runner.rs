//! Keeps one queue filled with a workload's requests, and accounts for every request.

use crate::backend::Backend;
use crate::ledger::AccountedQueue;
use crate::request::{Request, Status};
use crate::stats::Stats;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use crate::ledger::Fatal;

/// The longest sleep: how soon a stop, a dead back-end or a lost request is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// How long to listen for completions that must not come, once everything has completed.
const SILENCE: Duration = Duration::from_millis(5);

/// The next step of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Submit this request. Its data, if any, are in the slot's buffer.
    Submit(Request),
    /// Wait: the workload has no request that may run next to those in flight.
    Busy,
    /// No more requests.
    Done,
}

/// The source of requests, which also gets their completions.
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
    pub completed: AtomicU64,
    pub bytes: AtomicU64,
    pub errors: AtomicU64,
}

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
    pub queue: u16,
    pub generation: u64,
    pub request: Request,
    pub status: Status,
}

/// The most failed requests remembered in detail, per queue.
const FAILED_DETAILS: usize = 8;

/// One queue with the account of its requests.
pub struct Runner<B> {
    queue: AccountedQueue<B>,
    index: u16,
    timeout: Duration,
    pub stats: Stats,
    pub failed: Vec<FailedRequest>,
}

impl<B: Backend> Runner<B> {
    /// A runner of queue `index`. `slots` is the depth, and `heads` the size of the ring. A request older than `timeout` is lost.
    pub fn new(backend: B, index: u16, slots: u16, heads: u16, timeout: Duration) -> Self {
        let queue = AccountedQueue::new(backend, index, slots, heads);
        Self { queue, index, timeout, stats: Stats::default(), failed: Vec::new() }
    }

    pub fn backend(&self) -> &B {
        &self.queue.backend
    }

    /// Runs until the schedule, the workload or `control.stop` ends it and everything in flight has completed.
    pub fn run(&mut self, workload: &mut impl Workload<B>, schedule: Schedule, control: &Control) -> Result<(), Fatal> {
        let mut done = false;
        let mut next_check = Instant::now() + LONGEST_WAIT;
        loop {
            let now = Instant::now();
            done |= control.stop.load(Ordering::Relaxed) || schedule.until.is_some_and(|until| now >= until);
            if !done {
                done = self.submit(workload)?;
            }
            let completed = self.reap(workload, schedule, control)?;
            if done && self.queue.is_idle() {
                return self.expect_silence();
            }
            if now >= next_check {
                if control.hung_up.load(Ordering::Relaxed) {
                    return Err(self.queue.hung_up());
                }
                self.queue.check_for_lost(self.timeout, now)?;
                next_check = now + LONGEST_WAIT;
            }
            if completed > 0 {
                continue;
            }
            if self.queue.is_idle() {
                // Other queues hold every range this workload might use.
                std::thread::yield_now();
            } else {
                self.queue.backend.wait(LONGEST_WAIT).map_err(Fatal::Wait)?;
            }
        }
    }

    /// Fills the free buffers. Returns whether the workload is done.
    fn submit(&mut self, workload: &mut impl Workload<B>) -> Result<bool, Fatal> {
        let (mut submitted, mut done) = (false, false);
        while let Some(slot) = self.queue.free_slot() {
            match workload.next(slot, &mut self.queue.backend) {
                Next::Submit(request) => self.queue.submit(request)?,
                Next::Busy => break,
                Next::Done => {
                    done = true;
                    break;
                }
            }
            submitted = true;
        }
        if submitted {
            self.queue.kick()?;
        }
        Ok(done)
    }

    fn reap(&mut self, workload: &mut impl Workload<B>, schedule: Schedule, control: &Control) -> Result<u32, Fatal> {
        let mut completed = 0;
        while let Some((done, status)) = self.queue.next_completed()? {
            let (now, request) = (Instant::now(), done.request);
            if status == Status::Ok {
                if now >= schedule.measure_from {
                    let latency = now.saturating_duration_since(done.submitted);
                    let in_time = schedule.until.is_none_or(|until| now < until);
                    self.stats.record(request.kind, request.len, latency, in_time);
                }
                control.bytes.fetch_add(u64::from(request.len), Ordering::Relaxed);
            } else {
                self.stats.errors += 1;
                control.errors.fetch_add(1, Ordering::Relaxed);
                if self.failed.len() < FAILED_DETAILS {
                    let generation = done.generation;
                    self.failed.push(FailedRequest { queue: self.index, generation, request, status });
                }
            }
            workload.completed(done.slot, &request, status, &mut self.queue.backend);
            completed += 1;
        }
        control.completed.fetch_add(u64::from(completed), Ordering::Relaxed);
        Ok(completed)
    }

    /// Everything has completed, so anything that still comes is a completion too many, and the ledger says so.
    fn expect_silence(&mut self) -> Result<(), Fatal> {
        self.queue.backend.wait(SILENCE).map_err(Fatal::Wait)?;
        self.queue.next_completed().map(|_| ())
    }
}
