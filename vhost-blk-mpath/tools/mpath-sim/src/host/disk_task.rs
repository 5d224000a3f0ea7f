//! The task of a disk. The shipping driver decides, and this module tells the I/O threads and lets time pass.

use std::sync::{Arc, mpsc};

use monotonic::Instant;
use mpath_core::DiskId;
use mpath_lifecycle::{DiskDriver, HoldAction, HoldReason, InheritedFence};

use super::disks::Disks;
use super::io_thread::Message;
use super::io_threads::IoThreads;
use crate::clock::{Event, earliest};
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

/// The task of a disk.
pub(super) struct DiskTask {
    disk: DiskId,
    /// The channel for a message from each I/O thread on which the disk is settled.
    settled: (mpsc::Sender<()>, mpsc::Receiver<()>),
    /// The number of messages that have not come yet.
    unsettled: usize,
    /// When the file of the step under way is written. If the step saves the disk: with these blocks.
    write: Option<(Instant, Option<u64>)>,
    /// The references that I/O threads hold until they are told of sizes.
    told: Option<Arc<()>>,
    /// The record of the disk has the fences of removed disks on its namespace.
    pub(super) has_inherited: bool,
    /// A path has changed.
    is_woken: bool,
    /// The time of the last [`Event::Disks`].
    wake_at: Option<Instant>,
}

impl DiskTask {
    pub(super) fn new(disk: DiskId) -> Self {
        Self {
            disk,
            settled: mpsc::channel(),
            unsettled: 0,
            write: None,
            told: None,
            has_inherited: false,
            is_woken: true,
            wake_at: None,
        }
    }

    /// A path has changed.
    pub(super) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Whether the disk may have a step now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        std::mem::take(&mut self.is_woken) || self.told.is_some() || self.wake_at.is_some_and(|at| at <= now)
    }

    /// Sets the time of the next turn if no path changes.
    pub(super) fn set_timer(&mut self, ctx: &mut Ctx, driver: &DiskDriver) {
        let at = earliest([self.write.map(|(at, _)| at), driver.next_timeout()]);
        if at != self.wake_at {
            self.wake_at = at;
            if let Some(at) = at {
                ctx.clock.at(at, Event::Disks);
            }
        }
    }

    /// Changes the driver, and carries out what its hold decides.
    pub(super) fn change<T>(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        driver: &mut DiskDriver,
        change: impl FnOnce(&mut DiskDriver) -> T,
    ) -> T {
        let (disk, changed) = (self.disk, change(driver));
        while let Some(action) = driver.hold.poll() {
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
                HoldAction::Held(_) | HoldAction::Released { .. } => {}
            }
        }
        changed
    }

    /// Takes the messages of I/O threads. Returns whether the disk has just become settled on all of them.
    pub(super) fn poll_settled(&mut self, ctx: &mut Ctx, threads: &mut IoThreads, driver: &mut DiskDriver) -> bool {
        let mut has_settled = false;
        while self.settled.1.try_recv().is_ok() {
            self.unsettled -= 1;
            has_settled = self.unsettled == 0;
            self.change(ctx, threads, driver, |driver| driver.hold.thread_settled());
        }
        has_settled
    }

    /// Begins to write the file of a step, at the first call. `None` until the file is written.
    pub(super) fn written(&mut self, ctx: &Ctx, disks: &mut Disks, blocks: Option<u64>) -> Option<()> {
        let now = ctx.clock.now();
        self.write.get_or_insert_with(|| (now + disks.time_to_write(usize::from(self.disk.0), blocks), blocks));
        self.write.take_if(|(at, _)| *at <= now).map(drop)
    }

    /// Tells the I/O threads, at the first call. `None` until all of them have been told.
    pub(super) fn told(&mut self, ctx: &mut Ctx, threads: &mut IoThreads) -> Option<()> {
        let told = self.told.get_or_insert_with(|| {
            let told = Arc::new(());
            threads.post_all(ctx, || {
                let told = Arc::clone(&told);
                Message::Barrier(Box::new(move || drop(told)))
            });
            told
        });
        let are_told = Arc::strong_count(told) == 1;
        self.told.take_if(|_| are_told).map(drop)
    }

    /// The disk and the blocks with which it is being saved.
    pub(super) fn under_way(&self) -> Option<(usize, u64)> {
        Some((self.disk.0.into(), self.write?.1?))
    }
}
