//! A disk that is opened: the steps of [`mpath_host::DiskOpening`], carried out as in `vhost-blk-mpath/src/service/opening.rs`.

use std::time::{Duration, Instant};

use mpath_core::SharedDisk;
use mpath_host::{OpeningStep, PendingFences, TriedPath};

use super::disk_hold::DiskHold;
use super::disks::Disks;
use super::fences::Fences;
use crate::clock::{Event, earliest};
use crate::context::Ctx;

/// A disk that is opened.
#[derive(Debug)]
pub(super) struct Opening {
    disk: usize,
    /// The step under way, and when the file that it writes is written.
    write: Option<(OpeningStep, Instant)>,
    /// The time of the last [`Event::Disks`].
    wake_at: Option<Instant>,
    /// The record of the disk has the fences of removed disks on its namespace.
    pub(super) has_inherited: bool,
}

impl Opening {
    pub(super) fn new(disk: usize) -> Self {
        Self { disk, write: None, wake_at: None, has_inherited: false }
    }

    /// The disk and the size that are being written.
    pub(super) fn under_way(&self, disks: &Disks) -> Option<(usize, u64)> {
        let is_saved = matches!(self.write, Some((OpeningStep::Save, _)));
        disks.shown(self.disk).filter(|_| is_saved).map(|blocks| (self.disk, blocks))
    }

    /// Takes all steps that are possible now. Returns whether front-ends are served from now on.
    pub(super) fn advance(
        &mut self,
        ctx: &mut Ctx,
        (disks, fences): (&mut Disks, &mut Fences),
        (hold, shared, pending_fences): (&mut DiskHold, &SharedDisk, &PendingFences),
        first_logs_are_done: bool,
        paths: &[TriedPath],
    ) -> bool {
        let (disk, now, mut is_opened) = (self.disk, ctx.clock.now(), false);
        while let Some(step) = disks.opening(disk).step(now, first_logs_are_done, paths) {
            let is_done = match step {
                OpeningStep::InheritFences => {
                    let namespace = disks.namespace(disk).expect("a path or an earlier daemon has named it");
                    match pending_fences.to_inherit(now, namespace, hold.decides()) {
                        None => true,
                        Some(_) if !self.is_written(ctx, step, || disks.time_to_write()) => break,
                        Some(pending) => {
                            let is_written = fences.inherit(disk, &pending.recorded(now));
                            if is_written {
                                ctx.checker.counts.pending_fences += 1;
                                hold.inherit(pending.fence.clone(), shared);
                                continue;
                            }
                            false
                        }
                    }
                }
                OpeningStep::RecordNamespace => {
                    if !self.is_written(ctx, step, || disks.time_to_write()) {
                        break;
                    }
                    fences.record_namespace(disk)
                }
                OpeningStep::Save => {
                    let blocks = disks.shown(disk).expect("a path has found it");
                    if self.write.is_none() && !disks.begin_to_save(disk) {
                        break;
                    }
                    let saved = disks.saved(disk);
                    let is_new = saved != Some(blocks);
                    if !self.is_written(ctx, step, || if is_new { disks.time_to_write() } else { Duration::ZERO }) {
                        break;
                    }
                    disks.end_to_save(disk);
                    let is_saved = disks.save(disk, blocks);
                    let has_grown = is_saved && saved.is_some_and(|saved| saved < blocks);
                    ctx.checker.counts.grown_while_no_daemon_ran += u64::from(has_grown);
                    is_saved
                }
                OpeningStep::Serve => {
                    is_opened = true;
                    true
                }
            };
            ctx.say(|| format!("disk {disk}: {step:?} {}", if is_done { "done" } else { "failed" }));
            if is_done {
                self.has_inherited |= matches!(step, OpeningStep::InheritFences);
                disks.opening(disk).done();
            } else {
                ctx.checker.counts.openings_repeated += 1;
                disks.opening(disk).failed(now);
            }
        }
        self.set_timer(ctx, disks);
        is_opened
    }

    /// Begins to write the file of a step, unless that is under way. Returns whether the file is written.
    fn is_written(&mut self, ctx: &Ctx, step: OpeningStep, takes: impl FnOnce() -> Duration) -> bool {
        let now = ctx.clock.now();
        self.write.get_or_insert_with(|| (step, now + takes()));
        self.write.take_if(|(_, until)| *until <= now).is_some()
    }

    fn set_timer(&mut self, ctx: &mut Ctx, disks: &mut Disks) {
        let written = self.write.map(|(_, at)| at);
        let at = earliest([written, disks.opening(self.disk).next_timeout()]);
        if at != self.wake_at {
            self.wake_at = at;
            if let Some(at) = at {
                ctx.clock.at(at, Event::Disks);
            }
        }
    }
}
