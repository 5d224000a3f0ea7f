//! Test helpers: end a simulated process before one of its stores to shared memory, or observe that memory before each store.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Stores left until the kill. `None` if no kill is planned.
    static STORES_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Called before each store.
    static OBSERVER: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Payload of the unwinding that stands for a kill.
struct Killed;

/// Call before every store to shared memory.
pub(crate) fn before_store() {
    OBSERVER.with_borrow_mut(|observer| {
        if let Some(look) = observer {
            look();
        }
    });
    STORES_LEFT.with(|left| match left.get() {
        None => {}
        Some(0) => resume_unwind(Box::new(Killed)),
        Some(stores) => left.set(Some(stores - 1)),
    });
}

/// Runs `life` and kills it after `stores` stores, before the next one. `None` if it was killed.
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

/// Runs `life`, and calls `look` before each of its stores.
pub(crate) fn watched<T>(look: impl FnMut() + 'static, life: impl FnOnce() -> T) -> T {
    OBSERVER.set(Some(Box::new(look)));
    let lived = life();
    OBSERVER.set(None);
    lived
}
