//! Decides: sockets close before the fence of their association begins (`ended`).
//!
//! Carries out the actions of a path. The daemon runs this driver over real sockets, the simulator over simulated ones.
//!
//! ```text
//!  Path ── actions ──▶ PathDriver ── connect, record, post, close ──▶ PathSurroundings
//!   ▲                    │    ▲                                            │
//!   └── bytes, reports ──┘    └──────── sockets, outcomes, reports ────────┘
//! ```

mod ending;
mod surroundings;
#[cfg(test)]
mod tests;

use std::error::Error;

use monotonic::Instant;
use mpath_core::{Epoch, PathId};

use self::ending::Ending;
pub use self::surroundings::PathSurroundings;
use crate::disks::NamespaceUpdate;
use crate::path::{Action, ClosedAssociation, LiveAssociation, Path, PathNews, Report};
use crate::thread_message::ThreadMessage;

/// A path with its sockets. `S`: a connected socket; `D`: a half-closed one.
#[derive(Debug)]
pub struct PathDriver<E: Error, S, D> {
    id: PathId,
    path: Path<E>,
    /// By QID: the admin socket, and those of I/O queues until the association is recorded.
    sockets: Vec<Option<S>>,
    /// The half-closed sockets of the association that ends.
    half_closed: Vec<D>,
    /// The controllers that end.
    endings: Vec<Ending<S, D>>,
    is_removing_record: bool,
    /// The association in which the disks take a success of a flush for no proof, because its ANA log is read.
    ana_read_in: Option<Epoch>,
    /// The removal of the path waits for its fences.
    awaits_fences: bool,
}

impl<E: Error, S, D> PathDriver<E, S, D> {
    /// The driver of this path.
    #[must_use]
    pub fn new(path: Path<E>) -> Self {
        let id = path.latest().path;
        let (sockets, half_closed, endings) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            id,
            path,
            sockets,
            half_closed,
            endings,
            is_removing_record: false,
            ana_read_in: None,
            awaits_fences: false,
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path<E> {
        &self.path
    }

    /// The path, to be told of orders and outcomes.
    pub fn path_mut(&mut self) -> &mut Path<E> {
        &mut self.path
    }

    /// The sockets to be [exchanged](Self::exchange) when they are ready.
    pub fn sockets(&self) -> impl Iterator<Item = &S> {
        self.sockets.iter().flatten().chain(self.endings.iter().map(Ending::admin))
    }

    /// The half-closed sockets to be [exchanged](Self::exchange) when they are ready.
    pub fn half_closed_sockets(&self) -> impl Iterator<Item = &D> {
        self.endings.iter().flat_map(Ending::queues)
    }

    /// Whether all controllers have ended, after [`end`](Self::end).
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.endings.is_empty()
    }

    /// Whether the path waits for the end of an action.
    fn is_waiting(&self) -> bool {
        // Some targets have room for one controller of a host.
        self.is_removing_record || self.endings.iter().any(|ending| ending.fence.is_none())
    }

    /// Reports that the socket of this queue is connected.
    pub fn connected(&mut self, now: Instant, qid: u16, socket: S) {
        debug_assert!(self.sockets.len() <= usize::from(qid), "a queue is connected once");
        self.sockets.resize_with(usize::from(qid), || None);
        self.sockets.push(Some(socket));
        self.path.connected(now, qid);
    }

    /// Reports that a record is removed.
    pub fn record_removed(&mut self) {
        self.is_removing_record = false;
    }

    /// Takes an I/O thread's report about the association of that number.
    pub fn reported(&mut self, now: Instant, epoch: Epoch, report: Report<E, D>) {
        let is_latest = epoch == self.path.latest().epoch;
        let report = report.map(|lost| lost, |socket| self.half_closed.extend(is_latest.then_some(socket)));
        self.path.reported(now, epoch, report);
    }

    /// When [`exchange`](Self::exchange) and [`act`](Self::act) are due though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_path = if self.is_waiting() { None } else { self.path.next_timeout() };
        self.endings.iter().map(Ending::next_timeout).chain(of_path).min()
    }

    /// Moves bytes between the path and its sockets. Returns whether more may follow at once.
    ///
    /// Received bytes come before timeouts, which wait for them. So this call comes before [`act`](Self::act).
    pub fn exchange(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>) -> bool {
        self.mark_ana_reading(host);
        let mut is_new = self.turn_endings(now, host);
        for (slot, qid) in self.sockets.iter_mut().zip(0..) {
            let Some(socket) = slot else { continue };
            match host.exchange(socket, |out| self.path.fill_tx(now, qid, out)) {
                Ok(None) => continue,
                Ok(Some(bytes)) => self.path.received(now, qid, bytes),
                Err(error) => {
                    host.close(slot.take().expect("just used"));
                    self.path.failed(now, qid, error);
                }
            }
            is_new = true;
        }
        is_new
    }

    fn turn_endings(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>) -> bool {
        let mut is_new = false;
        for mut ending in std::mem::take(&mut self.endings) {
            is_new |= ending.turn(now, host);
            let (confirmed, fence) = (ending.poll_confirmed(), ending.fence);
            if confirmed.is_none() && fence.is_none_or(|of| host.of_fences(|fences| fences.is_held(of))) {
                self.endings.push(ending);
                continue;
            }
            ending.close(host);
            // Without an ending, the path may go on, or has ended.
            is_new = true;
            if let Some((of, executed)) = fence.zip(confirmed) {
                let now = host.now();
                host.change_fences(|fences| fences.sockets_closed(now, of, executed));
            }
        }
        is_new
    }

    /// Carries out the next action. Returns whether another may follow. Due after each change of the fences, too.
    pub fn act(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>) -> bool {
        self.follow_fences(host);
        if self.is_waiting() {
            return false;
        }
        let Some(action) = host.poll(now, &mut self.path) else {
            self.mark_ana_read(host);
            return false;
        };
        host.before(&action);
        let path = self.id;
        match action {
            Action::Connect { qid } => host.connect(qid),
            Action::SendTermReq { qid, term_req } => {
                if let Some(Some(socket)) = self.sockets.get_mut(usize::from(qid)) {
                    host.send_term_req(socket, &term_req);
                }
            }
            Action::Close => self.close_all(host),
            Action::Record { epoch, cntlid, fence_time } => {
                let sockets = self.sockets.drain(1..).flatten().collect();
                host.record(epoch, cntlid, fence_time, sockets);
            }
            Action::RemoveRecord { epoch } => self.is_removing_record = !host.remove_record(epoch),
            Action::GoLive(live) => self.go_live(host, *live),
            Action::UpdateNamespace { epoch, update } => self.update_namespace(host, epoch, update),
            Action::CloseQueues { epoch, half_close } => {
                // Fences that wait for a reset over this path ask another path at once.
                host.change_fences(|fences| fences.withdraw_resets(path));
                host.post_all(ThreadMessage::PathDown { path, epoch, half_close });
            }
            Action::Ended(left) => self.ended(now, host, *left),
            Action::ResetAnswered(outcome) => {
                let now = host.now();
                host.change_fences(|fences| fences.reset_answered(now, path, Some(outcome)));
            }
            Action::AskThreads => host.ask_threads(),
            // Any I/O thread will do: the controller flushes what it has completed on any queue.
            Action::DaemonFlush => host.post(0, ThreadMessage::DaemonFlush(path)),
            Action::News(news) => host.news(news),
            Action::AwaitFences => self.awaits_fences = true,
            Action::RemoveFromThreads => {
                host.post_all(ThreadMessage::RemovePath(path));
                host.await_removal();
            }
            Action::RemovalDone => host.news(PathNews::Gone { epoch: self.path.latest().epoch }),
        }
        true
    }

    /// Tells the disks that the ANA log is read, before the command is sent that reads it.
    fn mark_ana_reading(&mut self, host: &impl PathSurroundings<E, S, D>) {
        let of = self.path.latest();
        if self.path.is_reading_ana() == Some(true) && self.ana_read_in != Some(of.epoch) {
            self.ana_read_in = Some(of.epoch);
            self.path.disks().for_each(|disk| host.unflushed(disk).ana_reading_begun(of.path, of.epoch));
        }
    }

    /// Tells the disks that the ANA log was read, once no action is left of what it reported.
    fn mark_ana_read(&mut self, host: &impl PathSurroundings<E, S, D>) {
        let of = self.path.latest();
        if self.path.is_reading_ana() == Some(false) && self.ana_read_in.take_if(|epoch| *epoch == of.epoch).is_some() {
            self.path.disks().for_each(|disk| host.unflushed(disk).ana_read(of.path, of.epoch));
        }
    }

    /// Follows changes of the fences: asks the controller of the path to reset another controller, or goes on with the removal.
    fn follow_fences(&mut self, host: &mut impl PathSurroundings<E, S, D>) {
        let path = self.id;
        if self.awaits_fences && !host.of_fences(|fences| fences.holds(path)) {
            self.awaits_fences = false;
            self.path.removal_step_done();
        }
        if host.of_fences(|fences| fences.has_reset(path)) {
            let now = host.now();
            host.change_fences(|fences| {
                let other = fences.next_reset(now, path).expect("the fences have one");
                if !self.path.reset_other(other) {
                    fences.reset_answered(now, path, None);
                }
            });
        }
    }

    /// Ends the path because the host ends. The I/O threads have ended, and all their reports were taken. The controller of
    /// a live association is shut down, unless it may still execute writes: [`has_ended`](Self::has_ended) says when.
    pub fn end(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>) {
        // The next daemon waits for the fences that are left, counted from the end of their sockets.
        for ending in self.endings.extract_if(.., |ending| ending.fence.is_some()) {
            ending.close(host);
        }
        // What the last reports told is news still.
        self.path.take_news().for_each(|news| host.news(news));
        let shutdown = self.path.end(now);
        let admin = self.sockets.first_mut().and_then(|admin| admin.take_if(|_| shutdown.is_some()));
        let ending = admin.zip(shutdown).map(|(admin, inner)| Ending::new(inner, admin, Vec::new(), None));
        self.endings.extend(ending);
        self.close_all(host);
        self.half_closed.drain(..).for_each(|socket| host.close_half_closed(socket));
    }

    fn close_all(&mut self, host: &mut impl PathSurroundings<E, S, D>) {
        self.sockets.drain(..).flatten().for_each(|socket| host.close(socket));
        host.give_up();
    }

    fn go_live(&mut self, host: &mut impl PathSurroundings<E, S, D>, live: LiveAssociation) {
        let LiveAssociation { association, queues, info, namespaces } = live;
        for (thread, queue) in queues.into_iter().enumerate() {
            host.path_up(thread, association, queue, &info);
        }
        if info.cross_resets > 0 {
            host.change_fences(|fences| fences.offer_resets(self.path.latest()));
        }
        host.news(PathNews::Live { info: Box::new(info), namespaces });
    }

    fn update_namespace(&mut self, host: &mut impl PathSurroundings<E, S, D>, epoch: Epoch, update: NamespaceUpdate) {
        let NamespaceUpdate { disk, state, added, .. } = update;
        let path = self.id;
        update.mark_loss(host.now(), path, epoch, host.unflushed(disk));
        if let Some(limits) = added {
            host.post_all(ThreadMessage::AddNamespace { path, epoch, disk, limits });
        }
        host.post_all(ThreadMessage::Ana { path, epoch, disk, state });
        host.news(PathNews::Namespace(update));
    }

    /// Begins the fence and the orderly end of an association. All I/O threads have closed their queue pairs.
    fn ended(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>, left: ClosedAssociation) {
        let (admin, mut queues) = (self.sockets.drain(..).next().flatten(), std::mem::take(&mut self.half_closed));
        let (ended, shutdown) = left.end(now, self.id, admin.as_ref().map(|_| queues.len()));
        // The fence counts from their end.
        if !ended.is_half_closed {
            queues.drain(..).for_each(|socket| host.close_half_closed(socket));
        }
        if let Some(inner) = shutdown {
            let admin = admin.expect("without it there is no shutdown");
            self.endings.push(Ending::new(inner, admin, queues, ended.is_half_closed.then_some(ended.of)));
        } else if let Some(admin) = admin {
            host.close(admin);
        }
        let now = host.now();
        host.change_fences(|fences| fences.begin(now, ended));
    }
}
