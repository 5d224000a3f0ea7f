//! The hold of a disk. The shipping hold decides when requests are fetched, and this module tells the I/O threads.

use std::sync::mpsc;
use std::time::Instant;

use mpath_core::{DiskId, SharedDisk};
use mpath_host::{HoldAction, HoldReason, InheritedFence};

use super::io_thread::Message;
use super::io_threads::IoThreads;
use crate::clock::Event;
use crate::context::Ctx;

/// An action in one line, without a time of the clock.
fn described(now: Instant, action: &HoldAction) -> String {
    match action {
        HoldAction::HoldUntil(until) | HoldAction::Held(HoldReason::InheritedFence(InheritedFence { until, .. })) => {
            format!("held by the inherited fence for {:?}", until.saturating_duration_since(now))
        }
        action => format!("{action:?}"),
    }
}

/// The hold of a disk.
pub(super) struct DiskHold {
    disk: DiskId,
    /// The shipping state machine, which decides.
    inner: mpath_host::DiskHold,
    /// The channel for a message from each I/O thread on which the disk is settled.
    settled: (mpsc::Sender<()>, mpsc::Receiver<()>),
    /// The number of messages that have not come yet.
    unsettled: usize,
    /// The time of the last [`Event::Disks`].
    wake_at: Option<Instant>,
}

impl DiskHold {
    pub(super) fn new(disk: DiskId, inner: mpath_host::DiskHold) -> Self {
        Self { disk, inner, settled: mpsc::channel(), unsettled: 0, wake_at: None }
    }

    /// Adds the fence that a removed disk has left.
    pub(super) fn inherit(&mut self, fence: InheritedFence, shared: &SharedDisk) {
        self.inner.inherit(fence, shared);
    }

    /// Whether the fences that it has inherited are over.
    pub(super) fn is_past_fences(&self, now: Instant) -> bool {
        self.inner.inherited_fence().is_none_or(|fence| fence.until <= now)
    }

    /// Sets the time at which the hold has to be updated even if no path changes.
    pub(super) fn set_timer(&mut self, ctx: &mut Ctx) {
        let at = self.inner.next_timeout();
        if at != self.wake_at {
            self.wake_at = at;
            if let Some(at) = at {
                ctx.clock.at(at, Event::Disks);
            }
        }
    }

    pub(super) fn decides(&self) -> &mpath_host::DiskHold {
        &self.inner
    }

    /// Changes the hold, and carries out its actions. Returns whether the inherited fence has to be removed from the fence
    /// record.
    pub(super) fn change(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        change: impl FnOnce(&mut mpath_host::DiskHold),
    ) -> bool {
        let (disk, mut is_released) = (self.disk, false);
        change(&mut self.inner);
        while let Some(action) = self.inner.poll() {
            let now = ctx.clock.now();
            ctx.say(|| format!("disk {}: {}", disk.0, described(now, &action)));
            match action {
                HoldAction::HoldUntil(until) => threads.post_all(ctx, || Message::HoldDisk { disk, until }),
                HoldAction::Suspend => threads.post_all(ctx, || Message::SuspendDisk(disk)),
                HoldAction::Resume => threads.post_all(ctx, || Message::ResumeDisk(disk)),
                HoldAction::TellWhenSettled => {
                    self.unsettled += threads.0.len();
                    threads.post_all(ctx, || {
                        let settled = self.settled.0.clone();
                        let settled = Box::new(move || settled.send(()).expect("the I/O threads end first"));
                        Message::WhenSettled { disk, settled }
                    });
                }
                HoldAction::Held(_) => {}
                HoldAction::Released { .. } => is_released = true,
            }
        }
        is_released
    }

    /// Takes the messages of I/O threads. Returns whether the disk has just become settled on all of them.
    pub(super) fn poll_settled(&mut self, ctx: &mut Ctx, threads: &mut IoThreads) -> bool {
        let mut has_settled = false;
        while self.settled.1.try_recv().is_ok() {
            self.unsettled -= 1;
            has_settled = self.unsettled == 0;
            self.change(ctx, threads, mpath_host::DiskHold::thread_settled);
        }
        has_settled
    }
}
