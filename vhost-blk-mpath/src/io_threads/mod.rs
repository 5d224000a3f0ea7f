//! What the control thread tells I/O threads (crate `reactor`), and what it hears of them.

pub(crate) mod injection;
pub(crate) mod reports;

use mpath_api::server::ControlError;
use mpath_core::GroupStats;
use reactor::IoThreadHandle;
use tokio::sync::oneshot;

/// Resolves when a thread has carried out all it was told before.
pub(crate) fn barrier(thread: &IoThreadHandle) -> oneshot::Receiver<()> {
    let (reply, wait) = oneshot::channel();
    // Nobody waits any more if the client gave up.
    thread.barrier(Box::new(move || {
        let _ = reply.send(());
    }));
    wait
}

/// The statistics of a subsystem over all its threads; `None` while it has none.
pub(crate) async fn statistics(threads: &[IoThreadHandle]) -> Result<Option<GroupStats>, ControlError> {
    let mut waits = Vec::with_capacity(threads.len());
    for thread in threads {
        let (reply, wait) = oneshot::channel();
        thread.stats(Box::new(move |stats| drop(reply.send(stats))));
        waits.push(wait);
    }
    let mut total: Option<GroupStats> = None;
    for wait in waits {
        let stats = wait.await.map_err(|_| ControlError::Ending)?;
        match &mut total {
            Some(total) => total.merge(&stats),
            None => total = Some(stats),
        }
    }
    Ok(total)
}
