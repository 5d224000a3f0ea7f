//! Messages of the control thread to I/O threads (crate `reactor`), and their reports.

pub(crate) mod injection;
pub(crate) mod reports;

use std::sync::Arc;

use mpath_api_server::ControlError;
use mpath_core::{GroupStats, HostStats};
use reactor::{IoThreadControl, IoThreadHandle, IoThreads};
use tokio::sync::oneshot;

/// Resolves when the thread has carried out all earlier messages.
pub(crate) fn barrier(thread: &IoThreadHandle) -> oneshot::Receiver<()> {
    let (reply, wait) = oneshot::channel();
    // The client may have stopped waiting.
    thread.barrier(Box::new(move || {
        let _ = reply.send(());
    }));
    wait
}

/// Sends something to each I/O thread. The receivers resolve when the threads have carried it out.
pub(crate) fn tell_threads(threads: &[IoThreadHandle], tell: impl Fn(&IoThreadHandle)) -> Vec<oneshot::Receiver<()>> {
    let one = |thread: &IoThreadHandle| {
        tell(thread);
        barrier(thread)
    };
    threads.iter().map(one).collect()
}

/// What this host has cost each I/O thread.
pub(crate) async fn host_stats(threads: &IoThreads) -> Result<Vec<HostStats>, ControlError> {
    let ask = |thread: &Arc<IoThreadControl>| {
        let (reply, wait) = oneshot::channel();
        thread.host_stats(Box::new(move |stats| drop(reply.send(stats))));
        wait
    };
    let mut all = Vec::new();
    for wait in threads.all().iter().map(ask).collect::<Vec<_>>() {
        all.push(wait.await.map_err(|_| ControlError::Ending)?);
    }
    Ok(all)
}

/// The statistics of a subsystem, summed over its threads; `None` while it has no threads.
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
