//! Test helpers: the cases of a table, each with a daemon of its own.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// How many cases run at a time. Most of them wait.
const AT_ONCE: usize = 6;

/// Runs all cases, several at a time. Returns their results in order.
pub(crate) fn at_once<C: Send, R: Send>(
    cases: impl IntoIterator<Item = C, IntoIter: Send>,
    run: impl Fn(C) -> R + Sync,
) -> Vec<R> {
    let cases = Mutex::new(cases.into_iter().enumerate());
    let next = || cases.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || std::iter::from_fn(next).map(|(number, case)| (number, run(case))).collect::<Vec<_>>();
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
