//! Decides: a path set gets these I/O threads (`place`).
//!
//! The I/O threads of a daemon. Each serves many path sets in one turn with one wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use mpath_core::Stall;

use crate::io_thread_control::{IoThreadControl, StartError};
use crate::io_thread_handle::IoThreadHandle;
use crate::thread_message::{PathSetConfig, PathSetPart, SetId, ThreadMessage};

/// The number of the next path set.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The I/O threads of a daemon.
pub struct IoThreads(Vec<Arc<IoThreadControl>>);

impl IoThreads {
    /// Starts this many threads, `io0` and so on.
    pub fn start(count: u16) -> Result<Self, StartError> {
        let start = |number| IoThreadControl::start(number).map(Arc::new);
        (0..count).map(start).collect::<Result<_, _>>().map(Self)
    }

    /// Has each thread call one of these after each time for which this host did not run the thread. They must not block.
    pub fn report_stalls(&self, stalled: impl Fn() -> Box<dyn Fn(Stall) + Send>) {
        for thread in &self.0 {
            let _ = thread.send(ThreadMessage::ReportStalls(stalled()));
        }
    }

    /// The threads, by number.
    #[must_use]
    pub fn all(&self) -> &[Arc<IoThreadControl>] {
        &self.0
    }

    /// Has a thread of its own serve each part, as long as there are threads: those with the fewest path sets.
    #[must_use]
    pub fn place(&self, parts: impl Iterator<Item = PathSetPart>) -> Vec<IoThreadHandle> {
        let mut threads: Vec<_> = self.0.iter().collect();
        threads.sort_by_cached_key(|thread| thread.path_sets());
        threads.into_iter().cycle().zip(parts).map(|(thread, part)| add(thread, part)).collect()
    }
}

/// The threads end when all path sets have ended.
impl Drop for IoThreads {
    fn drop(&mut self) {
        for thread in &self.0 {
            let _ = thread.send(ThreadMessage::End);
        }
    }
}

/// Has the thread serve a part.
fn add(thread: &Arc<IoThreadControl>, part: PathSetPart) -> IoThreadHandle {
    let place = thread.take_place();
    let set = SetId { place, number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed) };
    let (has_ended, of_part) = (Arc::new(AtomicBool::new(false)), Arc::clone(thread));
    let (ended, end) = mpsc::sync_channel(1);
    let ended = Box::new(move |in_doubt| {
        of_part.free_place(place);
        // Nothing may wait for it.
        let _ = ended.send(in_doubt);
    });
    let config = Box::new(PathSetConfig { part, has_ended: Arc::clone(&has_ended), ended });
    // A thread ends only with the daemon. Nothing waits for the part then.
    let _ = thread.send(ThreadMessage::Add { set, config });
    IoThreadHandle::new(Arc::clone(thread), set, has_ended, end)
}
