//! Decides: requests of a disk are fetched, as `disk_hold.rs` of `mpath-lifecycle` says.
//!
//! Carries out what the [`DiskHold`](mpath_lifecycle::DiskHold) of a disk decides: when requests are fetched.

use std::sync::Arc;

use monotonic::Instant;
use mpath_api::types::EventKind;
use mpath_core::DiskId;
use mpath_lifecycle::{DiskDriver, HoldAction};

use crate::disk::describe_hold;
use crate::subsystem::Subsystem;

impl Subsystem {
    /// Changes a disk, and carries out what its hold decides.
    pub(crate) fn change_disk<T>(self: &Arc<Self>, id: DiskId, change: impl FnOnce(&mut DiskDriver) -> T) -> T {
        let (disk, threads, mut events) = (self.disk(id), self.threads(), Vec::new());
        // The lock is kept, so that the threads learn of changes in order.
        let mut driver = disk.driver();
        let changed = change(&mut driver);
        while let Some(action) = driver.hold.poll() {
            match action {
                HoldAction::HoldUntil(until) => threads.iter().for_each(|thread| thread.hold_disk(id, until)),
                HoldAction::Suspend => threads.iter().for_each(|thread| thread.suspend_disk(id)),
                HoldAction::Resume => threads.iter().for_each(|thread| thread.resume_disk(id)),
                HoldAction::TellWhenSettled => {
                    for thread in threads {
                        let subsystem = Arc::clone(self);
                        let settled = move || subsystem.change_disk(id, thread_settled);
                        thread.when_settled(id, Box::new(settled));
                    }
                }
                HoldAction::Held(reason) => {
                    events.push((EventKind::DiskHeld, describe_hold(reason, Instant::now())));
                }
                HoldAction::Released { was_held: false } => {}
                HoldAction::Released { was_held: true } => {
                    let message = "no longer held: no earlier write can be executed any more";
                    events.push((EventKind::DiskResumed, message.into()));
                }
            }
        }
        // An I/O thread may wait for the lock, and a log may be slow.
        drop(driver);
        for (kind, message) in events {
            disk.event(kind, message);
        }
        changed
    }
}

/// A function and no closure, as [`Subsystem::change_disk`] calls itself with it.
fn thread_settled(disk: &mut DiskDriver) {
    disk.hold.thread_settled();
}
