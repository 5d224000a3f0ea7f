//! Disks that grow: the daemon carries out the steps of [`mpath_host::Growth`], as `vhost-blk-mpath/src/subsystem/size.rs` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::DiskId;
use mpath_host::{Disks as _, Growth, GrowthStep};

use super::Daemon;
use crate::clock::Event;
use crate::context::Ctx;
use crate::host::disks::Disks;
use crate::host::io_thread::Message;

/// The typical time of a write of the file of a disk.
const SAVE: Duration = Duration::from_millis(2);

/// A disk that grows.
pub(super) struct Growing {
    growth: Growth,
    /// The references that I/O threads hold until they are told.
    told: Option<Arc<()>>,
    /// When the file of the disk is written.
    saved_at: Option<Instant>,
}

impl Growing {
    fn begin(disks: &Disks, disk: usize) -> Option<Self> {
        let growth = Growth::begin(disks.served(DiskId(disk as u16))?, disks.sizes(disk))?;
        Some(Self { growth, told: None, saved_at: None })
    }

    /// The size that is being written.
    pub(super) fn under_way(&self) -> Option<u64> {
        match self.growth.step() {
            Some(GrowthStep::Save { blocks }) => self.saved_at.map(|_| blocks),
            _ => None,
        }
    }
}

impl Daemon {
    /// Begins growths that the news of a path allow.
    pub(super) fn begin_growths(&mut self) {
        for disk in 0..self.shared.len() {
            if !self.growing.contains_key(&disk)
                && let Some(growing) = Growing::begin(&self.disks, disk)
            {
                self.growing.insert(disk, growing);
            }
        }
    }

    /// Continues growths. Returns the disks that guests see larger, and their blocks.
    pub(crate) fn grow(&mut self, ctx: &mut Ctx) -> Vec<(usize, u64)> {
        let mut grown = Vec::new();
        for (disk, mut growing) in std::mem::take(&mut self.growing) {
            while self.take_growth_step(ctx, disk, &mut growing, &mut grown) {}
            if growing.growth.step().is_some() {
                self.growing.insert(disk, growing);
            }
        }
        grown
    }

    /// Takes a step of a growth: whether another can follow at once.
    fn take_growth_step(
        &mut self,
        ctx: &mut Ctx,
        disk: usize,
        Growing { growth, told, saved_at }: &mut Growing,
        grown: &mut Vec<(usize, u64)>,
    ) -> bool {
        let now = ctx.clock.now();
        match growth.step() {
            None => return false,
            Some(GrowthStep::TellThreads) => match told {
                None => {
                    let told = told.insert(Arc::new(()));
                    self.post_all(ctx, || {
                        let told = Arc::clone(told);
                        Message::Barrier(Box::new(move || drop(told)))
                    });
                    return false;
                }
                Some(told) if Arc::strong_count(told) > 1 => return false,
                Some(_) => growth.threads_told(),
            },
            Some(GrowthStep::Save { blocks }) => match saved_at {
                None => {
                    let at = now + self.disks.rng.tail(SAVE);
                    *saved_at = Some(at);
                    ctx.clock.at(at, Event::Grow);
                    return false;
                }
                Some(at) if now < *at => return false,
                Some(_) => {
                    *saved_at = None;
                    growth.saved(self.disks.save(disk, blocks));
                }
            },
            Some(GrowthStep::Show) => {
                let served = self.disks.served(DiskId(disk as u16)).expect("it is served");
                if let Some(blocks) = growth.to_show(served, self.disks.sizes(disk)) {
                    self.disks.grow(disk, blocks);
                    self.front_ends[disk].grow(blocks);
                    grown.push((disk, blocks));
                }
                growth.shown(self.disks.shown(disk).expect("it is shown"));
            }
        }
        true
    }
}
