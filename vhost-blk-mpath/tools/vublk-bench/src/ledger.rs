//! The account of requests, which checks that each request completes exactly once.

use crate::backend::{Backend, Head, Used};
use crate::request::{Request, Status};
use serde::Serialize;
use std::io;
use std::time::{Duration, Instant};

/// A request between its submission and its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    pub slot: u16,
    pub request: Request,
    /// Its number on this queue, counted from 1. Unlike heads and slots, it is never reused.
    pub generation: u64,
    pub submitted: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    NeverUsed,
    InFlight(InFlight),
    Completed(InFlight),
}

/// A breach of "exactly once". `HeadTaken` shows that an earlier completion was for the wrong chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    #[error("completed twice: head {head}, request {} ({})", .last.generation, .last.request)]
    CompletedTwice { head: Head, last: InFlight },
    #[error("completed, but never submitted: head {head}")]
    NeverSubmitted { head: Head },
    #[error("head {head} was handed out while request {} ({}) is in flight on it", .holder.generation, .holder.request)]
    HeadTaken { head: Head, holder: InFlight },
}

/// Why a queue has ended. Later results of the queue could not be trusted.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("used without a status: request {generation} ({request})")]
    NoStatus { generation: u64, request: Request },
    #[error("{} request(s) lost: not completed in time", .0.len())]
    Lost(Vec<LostRequest>),
    #[error("the back-end closed the connection with {} request(s) in flight", .0.len())]
    HungUp(Vec<LostRequest>),
    #[error("cannot queue a request: {0}")]
    Submit(#[source] io::Error),
    #[error("cannot signal the back-end: {0}")]
    Kick(#[source] io::Error),
    #[error("cannot wait for completions: {0}")]
    Wait(#[source] io::Error),
}

/// A request that did not complete in time.
#[derive(Debug, Clone, Serialize)]
pub struct LostRequest {
    pub queue: u16,
    pub generation: u64,
    pub request: Request,
    pub age_ms: u64,
}

/// The requests of one queue that are in flight, by ring head.
#[derive(Debug)]
struct Ledger {
    entries: Vec<Entry>,
    in_flight: usize,
    generation: u64,
}

impl Ledger {
    /// An empty account for heads `0..heads`.
    fn new(heads: u16) -> Self {
        Self { entries: vec![Entry::NeverUsed; usize::from(heads)], in_flight: 0, generation: 0 }
    }

    fn submitted(&mut self, head: Head, slot: u16, request: Request, now: Instant) -> Result<(), LedgerError> {
        let entry = self.entries.get_mut(usize::from(head)).ok_or(LedgerError::NeverSubmitted { head })?;
        if let Entry::InFlight(holder) = *entry {
            return Err(LedgerError::HeadTaken { head, holder });
        }
        self.generation += 1;
        self.in_flight += 1;
        *entry = Entry::InFlight(InFlight { slot, request, generation: self.generation, submitted: now });
        Ok(())
    }

    fn completed(&mut self, head: Head) -> Result<InFlight, LedgerError> {
        match self.entries.get_mut(usize::from(head)) {
            Some(entry @ &mut Entry::InFlight(request)) => {
                *entry = Entry::Completed(request);
                self.in_flight -= 1;
                Ok(request)
            }
            Some(&mut Entry::Completed(last)) => Err(LedgerError::CompletedTwice { head, last }),
            Some(Entry::NeverUsed) | None => Err(LedgerError::NeverSubmitted { head }),
        }
    }

    /// The requests in flight for at least `age`, oldest first.
    fn older_than(&self, queue: u16, age: Duration, now: Instant) -> Vec<LostRequest> {
        let lost = self.entries.iter().filter_map(|entry| {
            let Entry::InFlight(InFlight { request, generation, submitted, .. }) = *entry else { return None };
            let waited = now.saturating_duration_since(submitted);
            (waited >= age).then_some(LostRequest { queue, generation, request, age_ms: waited.as_millis() as u64 })
        });
        let mut lost: Vec<_> = lost.collect();
        lost.sort_by_key(|lost| lost.generation);
        lost
    }
}

/// A queue with its buffers and the account of its requests.
#[derive(Debug)]
pub struct AccountedQueue<B> {
    pub backend: B,
    index: u16,
    ledger: Ledger,
    free_slots: Vec<u16>,
}

impl<B: Backend> AccountedQueue<B> {
    /// A queue with `slots` buffers and a ring of `heads` entries. Errors name the queue by its `index`.
    pub fn new(backend: B, index: u16, slots: u16, heads: u16) -> Self {
        Self { backend, index, ledger: Ledger::new(heads), free_slots: (0..slots).rev().collect() }
    }

    /// Whether no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.ledger.in_flight == 0
    }

    /// The buffer of the next request, if there is one.
    pub fn free_slot(&self) -> Option<u16> {
        self.free_slots.last().copied()
    }

    /// Queues a request in the free buffer, which must be there.
    pub fn submit(&mut self, request: Request) -> Result<(), Fatal> {
        let slot = self.free_slots.pop().expect("no more is sent than there are buffers");
        let now = Instant::now();
        let head = self.backend.submit(slot, &request).map_err(Fatal::Submit)?;
        Ok(self.ledger.submitted(head, slot, request, now)?)
    }

    /// Tells the back-end about the queued requests.
    pub fn kick(&mut self) -> Result<(), Fatal> {
        self.backend.kick().map_err(Fatal::Kick)
    }

    /// The next request that has completed, if there is one. Its buffer is free again.
    pub fn next_completed(&mut self) -> Result<Option<(InFlight, Status)>, Fatal> {
        let Some(Used { head, status }) = self.backend.next_used() else { return Ok(None) };
        let done = self.ledger.completed(head)?;
        if status == Status::NotWritten {
            return Err(Fatal::NoStatus { generation: done.generation, request: done.request });
        }
        self.free_slots.push(done.slot);
        Ok(Some((done, status)))
    }

    /// Fails if a request has been in flight for longer than `timeout`.
    pub fn check_for_lost(&self, timeout: Duration, now: Instant) -> Result<(), Fatal> {
        let lost = self.ledger.older_than(self.index, timeout, now);
        if lost.is_empty() { Ok(()) } else { Err(Fatal::Lost(lost)) }
    }

    /// Why the queue ends if the back-end is gone.
    pub fn hung_up(&self) -> Fatal {
        Fatal::HungUp(self.ledger.older_than(self.index, Duration::ZERO, Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completing_twice_is_an_error_and_names_the_request() {
        let mut ledger = Ledger::new(4);
        let now = Instant::now();
        ledger.submitted(2, 0, Request::FLUSH, now).unwrap();
        assert_eq!(ledger.completed(2).unwrap().generation, 1);
        let error = ledger.completed(2).unwrap_err();
        assert!(matches!(error, LedgerError::CompletedTwice { head: 2, last } if last.generation == 1));
        assert_eq!(ledger.in_flight, 0);
    }

    #[test]
    fn completing_what_was_never_submitted_is_an_error() {
        let mut ledger = Ledger::new(4);
        assert_eq!(ledger.completed(3), Err(LedgerError::NeverSubmitted { head: 3 }));
        assert_eq!(ledger.completed(4), Err(LedgerError::NeverSubmitted { head: 4 }));
    }

    #[test]
    fn a_head_in_flight_cannot_be_taken_again() {
        let mut ledger = Ledger::new(4);
        let now = Instant::now();
        ledger.submitted(0, 0, Request::FLUSH, now).unwrap();
        let error = ledger.submitted(0, 1, Request::FLUSH, now).unwrap_err();
        assert!(matches!(error, LedgerError::HeadTaken { head: 0, .. }));
    }

    #[test]
    fn what_waits_too_long_is_lost_oldest_first() {
        let mut ledger = Ledger::new(4);
        let start = Instant::now();
        let second = Duration::from_secs(1);
        ledger.submitted(3, 0, Request::FLUSH, start).unwrap();
        ledger.submitted(1, 1, Request::FLUSH, start + second).unwrap();
        ledger.submitted(0, 2, Request::FLUSH, start + 5 * second).unwrap();
        let lost = ledger.older_than(7, 2 * second, start + 4 * second);
        let names: Vec<_> = lost.iter().map(|lost| (lost.queue, lost.generation, lost.age_ms)).collect();
        assert_eq!(names, [(7, 1, 4000), (7, 2, 3000)]);
    }
}
