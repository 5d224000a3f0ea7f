//! The end of a daemon, in order or by a kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpath_core::SharedDisk;
use reactor::UnansweredQueues;

use super::{Daemon, ShutdownPhase};
use crate::context::Ctx;
use crate::host::discovery::Discovery;
use crate::host::disk_hold::DiskHold;
use crate::host::files::Files;
use crate::host::front_ends::FrontEndServer;
use crate::host::growing::Growing;
use crate::host::io_thread::{IoThread, Message};
use crate::host::path::PathTask;
use crate::machine::Machine;

impl Daemon {
    /// The daemon is killed. Only its files are left.
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
        Files { records: self.fences.into_files(), shown: self.disks.into_files(under_way) }
    }

    /// Begins to end in order. It hangs up on front-ends, and requests in flight have some time to finish.
    pub(crate) fn begin_shutdown(&mut self, ctx: &mut Ctx, machines: &mut [Machine]) {
        let written_back = Arc::new(AtomicUsize::new(0));
        self.shutdown = Some(ShutdownPhase::WriteBack(Arc::clone(&written_back)));
        self.unanswered.iter().for_each(|disk| disk.begin_hang_up());
        self.post_all(ctx, || Message::Shutdown);
        self.post_all(ctx, || {
            let written_back = Arc::clone(&written_back);
            Message::WhenWrittenBack(Box::new(move || _ = written_back.fetch_add(1, Ordering::SeqCst)))
        });
        for (disk, machine) in machines.iter_mut().enumerate() {
            self.hang_up(ctx, disk, machine, false);
        }
    }

    /// Whether it ends in order.
    pub(crate) fn is_ending(&self) -> bool {
        self.shutdown.is_some()
    }

    /// Continues its orderly end: whether it has ended.
    pub(crate) fn has_ended(&mut self, ctx: &mut Ctx) -> bool {
        match &self.shutdown {
            None => false,
            Some(ShutdownPhase::WriteBack(written_back)) => {
                if written_back.load(Ordering::SeqCst) == self.threads.0.len() {
                    self.shutdown = Some(ShutdownPhase::Threads);
                    self.post_all(ctx, || Message::End);
                }
                false
            }
            Some(ShutdownPhase::Threads) => {
                let are_over = self.threads.0.iter().all(IoThread::is_over);
                if are_over {
                    let in_doubt = self.threads.0.iter().any(IoThread::has_writes_in_doubt);
                    self.shutdown = Some(ShutdownPhase::Paths { in_doubt });
                    self.discovery.iter_mut().for_each(|discovery| discovery.end_all(ctx));
                    self.paths.iter_mut().for_each(|path| path.end(ctx));
                }
                false
            }
            Some(ShutdownPhase::Paths { .. }) => {
                let discovery = self.discovery.as_ref();
                self.paths.iter().all(PathTask::has_ended)
                    && self.front_ends.iter().all(FrontEndServer::is_free)
                    && discovery.is_none_or(Discovery::is_over)
            }
        }
    }

    /// It has ended in order: the files that it leaves, and whether the fence records were written.
    pub(crate) fn finish_shutdown(self, ctx: &mut Ctx) -> (Files, bool) {
        let Some(ShutdownPhase::Paths { in_doubt }) = self.shutdown else { unreachable!("it has ended") };
        let now = ctx.clock.now();
        let leaving = |((disk, unanswered), hold): ((&SharedDisk, &Arc<UnansweredQueues>), &DiskHold)| {
            let has_loss = disk.unflushed.has_unreported_loss();
            hold.decides().at_shutdown(now, in_doubt, unanswered.has_any(), has_loss)
        };
        let leaving: Vec<_> = self.shared.iter().zip(&self.unanswered).zip(&self.holds).map(leaving).collect();
        let under_way = self.under_way();
        self.threads.0.into_iter().for_each(|thread| thread.count_stats(ctx));
        let (records, are_written) = self.fences.end(now, &leaving);
        (Files { records, shown: self.disks.into_files(under_way) }, are_written)
    }
    /// The disks that are being saved, and their blocks.
    fn under_way(&self) -> Vec<(usize, u64)> {
        let opened = self.openings.iter().filter_map(|opening| opening.under_way(&self.disks));
        opened.chain(self.growing.values().filter_map(Growing::under_way)).collect()
    }
}
