//! Decides: requests of a disk are fetched, as `disk_hold.rs` of `mpath-host` says.
//!
//! Carries out what the [`DiskHold`] of a disk decides: when requests are fetched.

use std::sync::Arc;
use std::time::Instant;

use mpath_api::types::EventKind;
use mpath_core::DiskId;
use mpath_host::{DiskHold, HoldAction};

use crate::disk::describe_hold;
use crate::subsystem::Subsystem;

impl Subsystem {
    /// Changes the hold of a disk, and carries out what follows. Returns whether the inherited fence has to be removed from
    /// the fence record.
    pub(crate) fn change_hold(self: &Arc<Self>, id: DiskId, change: impl FnOnce(&mut DiskHold)) -> bool {
        let (disk, threads) = (self.disk(id), self.threads());
        let (mut is_released, mut events) = (false, Vec::new());
        // The lock is kept, so that the threads learn of changes in order.
        let mut hold = disk.hold();
        change(&mut hold);
        while let Some(action) = hold.poll() {
            match action {
                HoldAction::HoldUntil(until) => threads.iter().for_each(|thread| thread.hold_disk(id, until)),
                HoldAction::Suspend => threads.iter().for_each(|thread| thread.suspend_disk(id)),
                HoldAction::Resume => threads.iter().for_each(|thread| thread.resume_disk(id)),
                HoldAction::TellWhenSettled => {
                    for thread in threads {
                        let subsystem = Arc::clone(self);
                        let settled = move || _ = subsystem.change_hold(id, DiskHold::thread_settled);
                        thread.when_settled(id, Box::new(settled));
                    }
                }
                HoldAction::Held(reason) => {
                    events.push((EventKind::DiskHeld, describe_hold(reason, Instant::now())));
                }
                HoldAction::Released { was_held } => {
                    is_released = true;
                    if was_held {
                        let message = "no longer held: no earlier write can be executed any more";
                        events.push((EventKind::DiskResumed, message.into()));
                    }
                }
            }
        }
        // An I/O thread may wait for the lock, and a log may be slow.
        drop(hold);
        for (kind, message) in events {
            disk.event(kind, message);
        }
        is_released
    }
}
