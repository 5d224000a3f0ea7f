//! A process that is killed, for tests: it ends before one of its stores to shared memory, and none comes after. Or it is
//! looked at there.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Stores that are still carried out.
    static STORES_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Who looks at what was stored so far.
    static WATCH: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Payload of the unwinding that takes the place of a kill.
struct Killed;

/// To be called before every store.
pub(crate) fn before_store() {
    WATCH.with_borrow_mut(|watch| {
        if let Some(look) = watch {
            look();
        }
    });
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

/// Runs `life`, with `look` before each of its stores.
pub(crate) fn watched<T>(look: impl FnMut() + 'static, life: impl FnOnce() -> T) -> T {
    WATCH.set(Some(Box::new(look)));
    let lived = life();
    WATCH.set(None);
    lived
}
