//! The end of a daemon, in order or by a kill.

use std::sync::Arc;

use monotonic::Duration;
use reactor::{DiskQueues, ThreadsShutdown};

use super::Daemon;
use crate::clock::Event;
use crate::context::Ctx;
use crate::host::discovery::Discovery;
use crate::host::disk_task::DiskTask;
use crate::host::files::Files;
use crate::host::front_ends::FrontEndServer;
use crate::host::io_thread::IoThread;
use crate::host::path::PathTask;
use crate::host::shutdown_phase::{EndedDaemon, ShutdownPhase};
use crate::machine::Machine;

/// How long the requests of removed disks may take before they are given up (the daemon's `service/disks.rs`).
const DRAIN_MAX: Duration = Duration::from_secs(11);

impl Daemon {
    /// Kills the daemon. Returns its files, which are all that is left.
    pub(crate) fn kill(self, ctx: &mut Ctx, machines: &mut [Machine], is_reset: bool) -> Files {
        let under_way = self.under_way();
        let front_ends: Vec<_> = self.front_ends.into_iter().filter_map(FrontEndServer::kill).collect();
        for thread in self.threads.0 {
            thread.kill(ctx);
        }
        for machine in machines {
            machine.lose_requests();
            machine.disconnect(is_reset || machine.must_be_reset());
        }
        for front_end in front_ends {
            front_end.join().expect("it serves to the end");
        }
        let discovered = self.discovery.map(Discovery::into_file).unwrap_or_default();
        Files { records: self.fences.into_files(), shown: self.disks.into_files(under_way), discovered }
    }

    /// Begins to end in order. It hangs up on front-ends, and requests in flight have some time to finish.
    pub(crate) fn begin_shutdown(&mut self, ctx: &mut Ctx, machines: &mut [Machine]) {
        self.shutdown = Some(self.daemon_flush(ctx));
        for (disk, machine) in machines.iter_mut().enumerate() {
            self.hang_up(ctx, disk, machine, false);
        }
    }

    /// Begins to remove the disks, whose guests are gone.
    pub(crate) fn begin_removal(&mut self, ctx: &mut Ctx, machines: &mut [Machine]) {
        self.is_removal = true;
        self.disks.forget();
        self.queues.iter().for_each(|disk| disk.begin_hang_up());
        let until = ctx.clock.now() + DRAIN_MAX;
        ctx.clock.at(until, Event::Disks);
        self.shutdown = Some(ShutdownPhase::HangUp { until });
        for (disk, machine) in machines.iter_mut().enumerate() {
            self.hang_up(ctx, disk, machine, true);
            // Guests of disks without a front-end are reset too.
            machine.disconnect(true);
        }
    }

    fn daemon_flush(&mut self, ctx: &mut Ctx) -> ShutdownPhase {
        self.queues.iter().for_each(|disk| disk.begin_hang_up());
        let (count, threads) = (self.threads.0.len(), &mut self.threads);
        let post = |thread, message| threads.post(ctx, thread, message);
        ShutdownPhase::DaemonFlush(ThreadsShutdown::begin(count, post))
    }

    /// Whether its disks are being removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.is_removal
    }

    /// Whether the daemon is ending in order, or its disks are being removed.
    pub(crate) fn is_ending(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Whether the tasks of its paths were told that the daemon ends.
    pub(crate) fn is_closing_paths(&self) -> bool {
        matches!(self.shutdown, Some(ShutdownPhase::Paths { .. }))
    }

    /// Continues the orderly end of the daemon, or the removal of its disks. Returns whether that is over.
    pub(crate) fn has_ended(&mut self, ctx: &mut Ctx) -> bool {
        let have_front_ends = !self.front_ends.iter().all(FrontEndServer::is_free);
        self.shutdown = match self.shutdown.take() {
            None => return false,
            Some(ShutdownPhase::HangUp { until }) if have_front_ends && ctx.clock.now() < until => {
                Some(ShutdownPhase::HangUp { until })
            }
            Some(ShutdownPhase::HangUp { .. }) => Some(self.daemon_flush(ctx)),
            Some(ShutdownPhase::DaemonFlush(shutdown)) if !shutdown.is_flushed() => {
                Some(ShutdownPhase::DaemonFlush(shutdown))
            }
            Some(ShutdownPhase::DaemonFlush(shutdown)) => {
                shutdown.end(|thread, message| self.threads.post(ctx, thread, message));
                Some(ShutdownPhase::Threads)
            }
            Some(ShutdownPhase::Threads) if !self.threads.0.iter().all(IoThread::is_over) => {
                Some(ShutdownPhase::Threads)
            }
            Some(ShutdownPhase::Threads) => {
                self.discovery.iter_mut().for_each(|discovery| discovery.end_all(ctx));
                self.paths.iter_mut().for_each(|path| path.end(ctx, &mut self.fences, &mut self.disks));
                Some(ShutdownPhase::Paths { in_doubt: self.threads.0.iter().any(IoThread::has_writes_in_doubt) })
            }
            Some(paths @ ShutdownPhase::Paths { .. }) => Some(paths),
        };
        self.is_closing_paths()
            && !have_front_ends
            && self.paths.iter().all(PathTask::has_ended)
            && self.discovery.as_ref().is_none_or(Discovery::is_over)
    }

    /// Completes the orderly end. Returns what the daemon leaves.
    pub(crate) fn finish_shutdown(mut self, ctx: &mut Ctx) -> EndedDaemon {
        let Some(ShutdownPhase::Paths { in_doubt }) = self.shutdown else { unreachable!("it has ended") };
        let now = ctx.clock.now();
        let leaving = |(disk, queues): (usize, &Arc<DiskQueues>)| {
            let unflushed = &self.shared[disk].unflushed;
            self.disks.hold(disk).at_shutdown(now, in_doubt, queues.has_unanswered(), unflushed)
        };
        let leaving: Vec<_> = self.queues.iter().enumerate().map(leaving).collect();
        let under_way = self.under_way();
        self.threads.0.into_iter().for_each(|thread| thread.count_stats(ctx));
        let is_clean = leaving.iter().all(|left| !left.in_doubt && left.inherited_left.is_zero() && !left.lost_writes)
            && (0..leaving.len()).all(|disk| self.disks.hold(disk).is_over());
        let (records, is_written, left) = self.fences.end(now, &leaving);
        let mut fence_left = Duration::ZERO;
        for (left, disk) in left.into_iter().zip(0..).filter(|_| self.is_removal) {
            let Some(left) = left else { continue };
            let (name, pending_fences) = (format!("disk {disk}"), &mut self.process.pending_fences);
            let lasts = pending_fences.disk_removed(now, &name, false, self.disks.hold(disk), left);
            fence_left = fence_left.max(lasts.unwrap_or_default());
        }
        // The file goes with the disk.
        let discovered = self.discovery.filter(|_| !self.is_removal).map(Discovery::into_file).unwrap_or_default();
        let files = Files { records, shown: self.disks.into_files(under_way), discovered };
        EndedDaemon { process: self.process, is_removal: self.is_removal, files, is_written, fence_left, is_clean }
    }

    /// The disks that are being saved, with their numbers of blocks.
    fn under_way(&self) -> Vec<(usize, u64)> {
        self.disk_tasks.iter().filter_map(DiskTask::under_way).collect()
    }
}
