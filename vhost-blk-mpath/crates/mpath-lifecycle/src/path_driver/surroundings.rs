//! The surroundings of a path, as its driver needs them.

use std::error::Error;

use monotonic::{Duration, Instant};
use mpath_core::{Association, DiskId, Epoch, UnflushedPaths};
use nvme_tcp::host::{ControllerInfo, HostQueue};

use crate::fence::Fences;
use crate::path::{Action, Path, PathNews};
use crate::thread_message::IoThreads;

/// The surroundings of a path: its sockets, I/O threads, fence record, and those who watch it.
///
/// No method waits. A method begins what takes time, and the outcome is reported to the driver. Sockets that are passed
/// to a method belong to the surroundings from then on.
///
/// `E`: why a socket or a record has failed; `S`: a connected socket of a queue that no I/O thread has; `D`: the half-closed
/// socket of an I/O queue.
pub trait PathSurroundings<E: Error, S, D>: IoThreads {
    /// The time now. Fences count from the end of the sockets that were closed before, even if the process stood still meanwhile.
    fn now(&self) -> Instant;

    /// The next action of the path, with the disks that share it: calls [`Path::poll`].
    fn poll(&mut self, now: Instant, path: &mut Path<E>) -> Option<Action<E>>;

    /// Hears of an action before it is carried out, for a log.
    fn before(&mut self, action: &Action<E>);

    /// Tells those who watch the path.
    fn news(&mut self, news: PathNews<E>);

    /// Connects the socket of this queue. [`PathDriver::connected`](super::PathDriver::connected) or
    /// [`Path::failed`] follows, unless [`Self::give_up`] comes first.
    fn connect(&mut self, qid: u16);

    /// Gives up connecting, and closes the sockets that [`Self::record`] has taken.
    fn give_up(&mut self);

    /// Sends what `fill` appends, as far as the socket takes it at once. The rest goes first next time. Returns bytes that have
    /// arrived, if there are any.
    ///
    /// # Errors
    /// Why the connection has ended.
    fn exchange<'s>(&mut self, socket: &'s mut S, fill: impl FnOnce(&mut Vec<u8>)) -> Result<Option<&'s [u8]>, E>;

    /// Sends an `H2CTermReq`, as far as the socket takes it at once.
    fn send_term_req(&mut self, socket: &mut S, term_req: &[u8]);

    /// Closes a socket with RST, which dropping may do.
    fn close(&mut self, socket: S) {
        drop(socket);
    }

    /// Drops bytes that have arrived. Once the stream has ended, returns whether it has ended without a failure.
    fn read_to_end(&mut self, socket: &mut D) -> Option<bool>;

    /// Closes a half-closed socket with RST, so that undelivered bytes are never delivered. Dropping may do that.
    fn close_half_closed(&mut self, socket: D) {
        drop(socket);
    }

    /// Records durably that this association may leave a fence, and makes sure that all I/O threads know the path.
    /// [`Path::recorded`] follows. `sockets`: those of the I/O queues, starting with QID 1, for
    /// [`Self::path_up`].
    fn record(&mut self, epoch: Epoch, cntlid: u16, fence_time: Duration, sockets: Vec<S>);

    /// Removes the record of an association. A write of the record that is under way ends before. Returns whether that is done.
    /// Otherwise [`PathDriver::record_removed`](super::PathDriver::record_removed) follows.
    fn remove_record(&mut self, epoch: Epoch) -> bool;

    /// Gives an I/O thread its queue pair, with its socket. Called for each queue, starting with QID 1 and the first thread.
    fn path_up(&mut self, thread: usize, association: Association, queue: HostQueue, info: &ControllerInfo);

    /// The unflushed writes of a disk.
    fn unflushed(&self, disk: DiskId) -> &UnflushedPaths;

    /// Whether this is so of the fences of the subsystem. After each change of the fences, [`PathDriver::act`](super::PathDriver::act)
    /// is due.
    fn of_fences(&self, is: impl FnOnce(&Fences) -> bool) -> bool;

    /// Changes the fences of the subsystem.
    fn change_fences(&mut self, change: impl FnOnce(&mut Fences));

    /// Asks all I/O threads for their statistics of the path. [`Path::threads_answered`]
    /// follows,
    /// unless another question comes first.
    fn ask_threads(&mut self);

    /// Waits until no I/O thread knows the path, which all were told to remove.
    /// [`Path::removal_step_done`] follows.
    fn await_removal(&mut self);
}
