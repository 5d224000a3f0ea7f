//! A process that is killed, for tests: it ends before one of its stores to shared memory, and none comes after.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Stores that are still carried out.
    static STORES_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Payload of the unwinding that takes the place of a kill.
struct Killed;

/// To be called before every store.
pub(crate) fn before_store() {
    STORES_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Killed)),
        Some(stores) => left.set(Some(stores - 1)),
    });
}

/// Runs `life` up to, and without, the store that comes after so many; `None` if it came so far.
pub(crate) fn killed_after<T>(stores: usize, life: impl FnOnce() -> T) -> Option<T> {
    STORES_LEFT.set(Some(stores));
    let outcome = catch_unwind(AssertUnwindSafe(life));
    STORES_LEFT.set(None);
    match outcome {
        Ok(lived) => Some(lived),
        Err(payload) if payload.is::<Killed>() => None,
        Err(failure) => resume_unwind(failure),
    }
}
