//! Decides: an event tells of the first failed request and its status (`record`).
//!
//! The errors that guests of one disk got, counted by operation and reason.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{IoError, Op, PathId};

/// Operations, and one place for requests whose operation is not known.
const OPERATIONS: usize = Op::ALL.len() + 1;

/// Counts since the disk was added. The [`crate::Group`]s of the disk share them, and any thread may read them.
#[derive(Default)]
pub struct GuestErrors {
    counts: [[AtomicU64; IoError::ALL.len()]; OPERATIONS],
    /// The first failed request of each operation and reason since the last [`GuestErrors::take_first`].
    first: Mutex<Vec<FailedRequest>>,
}

/// A request that has failed, as its driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The operation.
    pub op: Op,
    /// Why it failed.
    pub error: IoError,
    /// The first sector and the bytes of its range on the disk; `None` for a flush.
    pub range: Option<(u64, u32)>,
    /// The last error that a path has answered, as the status field of NVMe.
    pub status: Option<(PathId, u16)>,
}

/// Omits the counts: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for GuestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestErrors").finish_non_exhaustive()
    }
}

impl GuestErrors {
    /// Counts errors. `None` stands for requests whose operation is not known.
    pub fn add(&self, op: Option<Op>, error: IoError, count: u64) {
        self.place(op, error).fetch_add(count, Ordering::Relaxed);
    }

    /// The errors of this operation and reason. `None` stands for requests whose operation is not known.
    #[must_use]
    pub fn get(&self, op: Option<Op>, error: IoError) -> u64 {
        self.place(op, error).load(Ordering::Relaxed)
    }

    /// Every operation and reason with errors, and their number.
    pub fn counts(&self) -> impl Iterator<Item = (Option<Op>, IoError, u64)> + '_ {
        let operations = Op::ALL.into_iter().map(Some).chain([None]);
        let all = operations.flat_map(|op| IoError::ALL.into_iter().map(move |error| (op, error)));
        all.map(|(op, error)| (op, error, self.get(op, error))).filter(|(.., count)| *count > 0)
    }

    /// Keeps a failed request, unless an earlier one of its operation and reason is kept.
    #[cold]
    pub fn record(&self, failed: FailedRequest) {
        let mut first = self.first();
        if !first.iter().any(|of| (of.op, of.error) == (failed.op, failed.error)) {
            first.push(failed);
        }
    }

    /// Takes the first failed request of each operation and reason since the last call.
    pub fn take_first(&self) -> Vec<FailedRequest> {
        std::mem::take(&mut self.first())
    }

    fn first(&self) -> MutexGuard<'_, Vec<FailedRequest>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, op: Option<Op>, error: IoError) -> &AtomicU64 {
        &self.counts[op.map_or(OPERATIONS - 1, Op::index)][error.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_reason_has_its_count() {
        let errors = GuestErrors::default();
        assert_eq!(errors.counts().count(), 0);
        let operations = || Op::ALL.into_iter().map(Some).chain([None]);
        for (op, times) in operations().zip(1..) {
            errors.add(op, IoError::NoPath, times - 1);
            errors.add(op, IoError::NoPath, 1);
        }
        errors.add(None, IoError::Malformed, 1);
        let expected: Vec<_> = operations().zip(1..).map(|(op, times)| (op, IoError::NoPath, times)).collect();
        assert_eq!(errors.counts().collect::<Vec<_>>(), [&expected[..], &[(None, IoError::Malformed, 1)]].concat());
        for (index, error) in IoError::ALL.into_iter().enumerate() {
            assert_eq!(error.index(), index);
        }
        for (index, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op.index(), index);
        }
    }

    #[test]
    fn the_first_failed_request_of_each_kind_is_kept_until_it_is_taken() {
        let errors = GuestErrors::default();
        let failed = |op, error, sector| FailedRequest { op, error, range: Some((sector, 4096)), status: None };
        let kept = [failed(Op::Read, IoError::Medium, 8), failed(Op::Read, IoError::NoPath, 16)];
        for of in [kept[0], failed(Op::Read, IoError::Medium, 24), kept[1]] {
            errors.record(of);
        }
        assert_eq!(errors.take_first(), kept);
        assert_eq!(errors.take_first(), []);
    }
}
