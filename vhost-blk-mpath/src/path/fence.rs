//! The task of a subsystem's fences. It tells those who wait for a fence once the fence is lifted.

use std::sync::Arc;

use mpath_lifecycle::{LiftedFence, ThreadMessage};

use crate::subsystem::Subsystem;

/// Lifts the fences of a subsystem until its end.
pub(crate) async fn run(subsystem: Arc<Subsystem>) {
    let mut shutdown = subsystem.shutdown.clone();
    loop {
        let LiftedFence { of, by, after } = tokio::select! {
            lifted = subsystem.fences.next_lifted() => lifted,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        subsystem.path_fence_lifted(of.path, by, after);
        subsystem
            .threads()
            .iter()
            .for_each(|thread| thread.post(ThreadMessage::FenceLifted { path: of.path, epoch: of.epoch }));
        // Another fence may be due while the record is being written.
        let subsystem = Arc::clone(&subsystem);
        tokio::spawn(async move { subsystem.record_ended(of.path, of.epoch).await });
    }
}
