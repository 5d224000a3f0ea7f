//! A disk that grows: the steps of [`mpath_host::Growth`], carried out as in `vhost-blk-mpath/src/subsystem/size.rs`.

use std::sync::Arc;
use std::time::Instant;

use mpath_core::DiskId;
use mpath_host::{Disks as _, Growth, GrowthStep};

use super::disks::Disks;
use super::io_thread::Message;
use super::io_threads::IoThreads;
use crate::clock::Event;
use crate::context::Ctx;

/// A disk that grows.
pub(super) struct Growing {
    disk: usize,
    /// `None` until the disk is not being saved for another reason.
    growth: Option<Growth>,
    /// The references that I/O threads hold until they are told.
    told: Option<Arc<()>>,
    /// When the file of the disk is written.
    saved_at: Option<Instant>,
}

impl Growing {
    /// Begins to grow a disk if all its paths agree.
    pub(super) fn begin(disks: &Disks, disk: usize) -> Option<Self> {
        begin(disks, disk).map(|_| Self { disk, growth: None, told: None, saved_at: None })
    }

    /// The disk and the size that are being written.
    pub(super) fn under_way(&self) -> Option<(usize, u64)> {
        match self.growth.as_ref()?.step() {
            Some(GrowthStep::Save { blocks }) => self.saved_at.map(|_| (self.disk, blocks)),
            _ => None,
        }
    }

    /// Takes all steps that are possible now. Returns whether the growth is over: done, or given up. If guests see more blocks
    /// from now on, adds the disk and its blocks to `grown`.
    pub(super) fn advance(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        disks: &mut Disks,
        grown: &mut Vec<(usize, u64)>,
    ) -> bool {
        let disk = self.disk;
        if self.growth.is_none() && disks.begin_to_save(disk) {
            // The disk may have grown meanwhile.
            self.growth = begin(disks, disk);
            if self.growth.is_none() {
                disks.end_to_save(disk);
                return true;
            }
        }
        let Some(mut growth) = self.growth.take() else { return false };
        while let Some(step) = growth.step() {
            let is_done = match step {
                GrowthStep::TellThreads => self.are_told(ctx, threads),
                GrowthStep::Save { .. } => self.is_written(ctx, disks),
                GrowthStep::Show => true,
            };
            if !is_done {
                break;
            }
            match step {
                GrowthStep::TellThreads => growth.threads_told(),
                GrowthStep::Save { blocks } => {
                    let is_saved = disks.save(disk, blocks);
                    ctx.checker.counts.sizes_not_saved += u64::from(!is_saved);
                    growth.saved(is_saved);
                }
                GrowthStep::Show => {
                    let served = disks.served(DiskId(disk as u16)).expect("it is served");
                    if let Some(blocks) = growth.to_show(served, disks.sizes(disk)) {
                        disks.grow(disk, blocks);
                        grown.push((disk, blocks));
                    }
                    growth.shown(disks.shown(disk).expect("it is shown"));
                }
            }
        }
        let is_over = growth.step().is_none();
        if is_over {
            disks.end_to_save(disk);
        }
        self.growth = Some(growth);
        is_over
    }

    /// Tells the I/O threads, at the first call. Returns whether all of them have been told.
    fn are_told(&mut self, ctx: &mut Ctx, threads: &mut IoThreads) -> bool {
        let Some(told) = &self.told else {
            let told = Arc::new(());
            threads.post_all(ctx, || {
                let told = Arc::clone(&told);
                Message::Barrier(Box::new(move || drop(told)))
            });
            self.told = Some(told);
            return false;
        };
        Arc::strong_count(told) == 1
    }

    /// Begins to write the file, at the first call. Returns whether the file is written.
    fn is_written(&mut self, ctx: &mut Ctx, disks: &mut Disks) -> bool {
        let now = ctx.clock.now();
        if self.saved_at.is_none() {
            let at = now + disks.time_to_write();
            self.saved_at = Some(at);
            ctx.clock.at(at, Event::Disks);
        }
        self.saved_at.take_if(|at| *at <= now).is_some()
    }
}

/// The growth of a disk if all its paths agree.
fn begin(disks: &Disks, disk: usize) -> Option<Growth> {
    Growth::begin(disks.served(DiskId(disk as u16))?, disks.sizes(disk))
}
