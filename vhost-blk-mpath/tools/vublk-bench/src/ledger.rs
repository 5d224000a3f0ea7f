//! Every request completes exactly once: this is where it is counted.

use crate::backend::Head;
use crate::request::Request;
use serde::Serialize;
use std::time::{Duration, Instant};

/// A request between its submission and its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// The buffer it uses.
    pub slot: u16,
    /// What was asked.
    pub request: Request,
    /// Its number on this queue, counted from 1; heads and slots are reused, this is not.
    pub generation: u64,
    /// When it was queued.
    pub submitted: Instant,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    NeverUsed,
    InFlight(InFlight),
    Completed(InFlight),
}

/// A breach of "exactly once".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// A chain was used that had completed before.
    #[error("completed twice: head {head}, request {} ({})", .last.generation, .last.request)]
    CompletedTwice {
        /// The chain.
        head: Head,
        /// The last request it carried.
        last: InFlight,
    },
    /// A chain was used that was never made available.
    #[error("completed, but never submitted: head {head}")]
    NeverSubmitted {
        /// The chain.
        head: Head,
    },
    /// The ring handed out a chain that is still in flight: an earlier completion was for the wrong chain.
    #[error("head {head} was handed out while request {} ({}) is in flight on it", .holder.generation, .holder.request)]
    HeadTaken {
        /// The chain.
        head: Head,
        /// Who still holds it.
        holder: InFlight,
    },
}

/// A request that did not complete in time.
#[derive(Debug, Clone, Serialize)]
pub struct LostRequest {
    /// The queue it was submitted to.
    pub queue: u16,
    /// Its number on that queue.
    pub generation: u64,
    /// What was asked.
    pub request: Request,
    /// How long it had been waiting.
    pub age_ms: u64,
}

/// The requests of one queue that are in flight, by ring head.
#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
    in_flight: usize,
    generation: u64,
}

impl Ledger {
    /// For heads `0..heads`.
    #[must_use]
    pub fn new(heads: u16) -> Self {
        Self { entries: vec![Entry::NeverUsed; usize::from(heads)], in_flight: 0, generation: 0 }
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Records a submission.
    pub fn submitted(&mut self, head: Head, slot: u16, request: Request, now: Instant) -> Result<(), LedgerError> {
        let entry = self.entries.get_mut(usize::from(head)).ok_or(LedgerError::NeverSubmitted { head })?;
        if let Entry::InFlight(holder) = *entry {
            return Err(LedgerError::HeadTaken { head, holder });
        }
        self.generation += 1;
        self.in_flight += 1;
        *entry = Entry::InFlight(InFlight { slot, request, generation: self.generation, submitted: now });
        Ok(())
    }

    /// Records a completion and gives back what was submitted.
    pub fn completed(&mut self, head: Head) -> Result<InFlight, LedgerError> {
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
    #[must_use]
    pub fn older_than(&self, queue: u16, age: Duration, now: Instant) -> Vec<LostRequest> {
        let waiting = self.entries.iter().filter_map(|entry| match entry {
            Entry::InFlight(request) => Some((request, now.saturating_duration_since(request.submitted))),
            _ => None,
        });
        let mut lost: Vec<_> = waiting
            .filter(|(_, waited)| *waited >= age)
            .map(|(request, waited)| LostRequest {
                queue,
                generation: request.generation,
                request: request.request,
                age_ms: waited.as_millis() as u64,
            })
            .collect();
        lost.sort_by_key(|lost| lost.generation);
        lost
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
        assert_eq!(ledger.in_flight(), 0);
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
