//! One path's life: connect its controller, check whose namespace it is, give every I/O thread a queue pair, keep it
//! alive; when it is lost, close all of it, leave what it was sent to the fence, and connect again.
//!
//! ```text
//!  Connecting ──▶ Live ── any of its connections fails ──▶ Closing ── all I/O threads closed ──▶ Connecting (after reconnect-delay)
//!      │                                                                   └── the fence of that epoch begins (`fence`)
//!      ├── another namespace ──▶ Refused ─── reset or enabled by the operator ──▶ Connecting
//!      └── none for ctrl-loss-tmo ──▶ GaveUp ── reset or enabled by the operator ──▶ Connecting
//!
//!  Live ── disabled by the operator, and it owes nothing ──▶ Disabled ── enabled ──▶ Connecting
//!
//!  any of them ── removed ──▶ (no association) ── all fences lifted ──▶ gone (`membership`)
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::address::Transport;
use mpath_api::config::Seconds;
use mpath_core::{Association, DiskId, Epoch, PathId};
use nvme_tcp::host::{ControllerEvent, ControllerInfo, HostController, HostQueue, QueueConfig};
use reactor::{Ending, Link, PathEvent, PathEventKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::fence::{self, Draining};
use crate::fence_record::{self, RecordedAssociation};
use crate::namespaces::Namespaces;
use crate::steering::{Ordered, Orders, Wanted};
use crate::subflows::Connections;
use crate::subsystem::{AdmitError, Subsystem};
use crate::transport::{self, AdminConnection, TransportError};

/// Why a path has no association.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PathError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(
        "the controller grants {granted} I/O queues, {wanted} are needed: one an I/O thread; lower io-threads or raise the target's limit"
    )]
    Queues { granted: u16, wanted: u16 },
    /// What an association was made for is no longer so: another one may find it as it was, or what is there now.
    #[error("for {disk}: {error}")]
    Changed { disk: String, error: AdmitError },
    #[error(transparent)]
    Lost(#[from] reactor::LossReason),
    #[error(transparent)]
    Record(#[from] fence_record::WriteError),
    #[error("reset by the operator")]
    Reset,
}

impl PathError {
    fn changed(subsystem: &Subsystem, (disk, error): (DiskId, AdmitError)) -> Self {
        Self::Changed { disk: subsystem.disk(disk).name().to_owned(), error }
    }

    /// The path leads elsewhere, and another attempt would find the same.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Admit(error) if error.is_refusal())
    }

    /// The admin connection has failed.
    fn is_of_admin(&self) -> bool {
        matches!(self, Self::Transport(_))
    }

    /// It is this host that lacks something, not the path.
    pub(crate) fn is_of_this_host(&self) -> bool {
        matches!(self, Self::Admit(AdmitError::Start(_)))
    }
}

/// What a path's task is made of.
pub(crate) struct PathTask {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) path: PathId,
    pub(crate) address: PathAddress,
    /// Reports of the I/O threads about this path.
    pub(crate) events: mpsc::UnboundedReceiver<PathEvent>,
    /// What the operator wants of it.
    pub(crate) orders: Orders,
    /// Becomes true at the end of the daemon.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// The most data of one command that its controller was found to take; the setting if nothing was found out.
    pub(crate) max_transfer_bytes: Option<u32>,
    /// Those of its associations that may not be lifted yet.
    pub(crate) fences: Vec<JoinHandle<()>>,
}

/// A controller that is connected and has been told to no I/O thread.
struct Connected {
    admin: AdminConnection,
    info: ControllerInfo,
    namespaces: Namespaces,
    /// One for each I/O thread.
    queues: Vec<(OwnedFd, HostQueue)>,
}

/// A live association: its admin connection here, a queue pair in every I/O thread.
struct Live {
    epoch: Epoch,
    admin: AdminConnection,
    info: ControllerInfo,
    namespaces: Namespaces,
}

/// How an association ended.
enum End {
    Lost(PathError),
    /// In order: nothing was in flight.
    Ordered,
    /// By order, whatever it owed.
    Dropped,
    Shutdown,
}

impl PathTask {
    /// Runs until shutdown, or until the path is removed. `first` gets the outcome of the first attempt, by which the daemon
    /// decides whether to start.
    pub(crate) async fn run(mut self, first: Option<oneshot::Sender<Result<(), PathError>>>) {
        self.live(first).await;
        // At a shutdown these may have a way to go. Whoever serves the disk next waits in their place, from the end of their sockets on.
        for fence in self.fences {
            fence.abort();
            let _ = fence.await;
        }
    }

    async fn live(&mut self, mut first: Option<oneshot::Sender<Result<(), PathError>>>) {
        let mut without_connection = Instant::now();
        loop {
            let mut shutdown = self.shutdown.clone();
            match self.orders.wanted() {
                Wanted::Enabled | Wanted::Drained => {}
                Wanted::Disabled => {
                    self.subsystem.path_disabled(self.path);
                    self.subsystem.grow().await;
                    tokio::select! {
                        () = self.orders.enabled() => self.subsystem.path_connecting(self.path),
                        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
                    }
                    without_connection = Instant::now();
                    continue;
                }
                Wanted::Removed { .. } => {
                    tokio::select! {
                        () = self.remove() => {}
                        _ = shutdown.wait_for(|shutdown| *shutdown) => {}
                    }
                    return;
                }
            }
            let epoch = self.subsystem.state().next_epoch(self.path);
            let connected = tokio::select! {
                connected = self.connect() => connected,
                () = self.orders.removed() => continue,
                _ = shutdown.wait_for(|shutdown| *shutdown) => return,
            };
            let connected = match connected {
                Ok(connected) => tokio::select! {
                    live = self.bring_up(epoch, connected) => live,
                    _ = shutdown.wait_for(|shutdown| *shutdown) => return,
                },
                Err(error) => Err(error),
            };
            if connected.is_err() {
                // It may have been written down, and then was given nothing.
                self.subsystem.record_ended(self.path, epoch).await;
            }
            match connected {
                Ok(live) => {
                    if let Some(first) = first.take() {
                        // Nobody listens if the daemon gave up starting; shutdown follows then.
                        let _ = first.send(Ok(()));
                    }
                    let end = self.serve(live).await;
                    without_connection = Instant::now();
                    match end {
                        End::Lost(error @ PathError::Reset) => {
                            self.max_transfer_bytes = None;
                            self.subsystem.path_failed(self.path, &error);
                            continue;
                        }
                        // What has changed is known at once: the other disks do not have to wait.
                        End::Lost(error @ PathError::Changed { .. }) => {
                            self.subsystem.path_failed(self.path, &error);
                            continue;
                        }
                        End::Lost(error) => self.subsystem.path_failed(self.path, &error),
                        End::Ordered | End::Dropped => continue,
                        End::Shutdown => return,
                    }
                }
                Err(error) => {
                    let refused = error.is_refusal();
                    if let Some(first) = first.take() {
                        self.subsystem.path_did_not_start(self.path, &error, refused);
                        let _ = first.send(Err(error));
                    } else if refused {
                        self.subsystem.path_refused(self.path, &error);
                    } else {
                        self.subsystem.path_failed(self.path, &error);
                    }
                    if refused {
                        tokio::select! {
                            () = self.orders.next() => self.subsystem.path_connecting(self.path),
                            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
                        }
                        without_connection = Instant::now();
                        continue;
                    }
                }
            }
            self.subsystem.grow().await;
            let mut delay = self.subsystem.config.reconnect_delay.duration();
            if let Some(ctrl_loss_tmo) = self.subsystem.config.ctrl_loss_tmo.map(Seconds::duration) {
                let left = ctrl_loss_tmo.saturating_sub(without_connection.elapsed());
                if left.is_zero() {
                    self.subsystem.path_gave_up(self.path, ctrl_loss_tmo);
                    tokio::select! {
                        () = self.orders.next() => self.subsystem.path_connecting(self.path),
                        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
                    }
                    without_connection = Instant::now();
                    continue;
                }
                delay = delay.min(left);
            }
            tokio::select! {
                () = sleep(delay) => {}
                () = self.orders.next() => {}
                _ = shutdown.wait_for(|shutdown| *shutdown) => return,
            }
        }
    }

    /// Waits until nothing sent on the path can be executed any more, and has it forgotten.
    async fn remove(&mut self) {
        self.subsystem.path_closed(self.path);
        self.subsystem.grow().await;
        // May be dropped: one that was awaited to its end is gone from the list.
        while let Some(fence) = self.fences.last_mut() {
            fence.await.expect("a fence's task is cancelled only after this, and does not panic");
            self.fences.pop();
        }
        self.subsystem.path_removed(self.path).await;
    }

    /// Connects the controller, and queue pairs if it leads where it should. May be dropped.
    async fn connect(&self) -> Result<Connected, PathError> {
        let subsystem = &self.subsystem;
        let address = &self.address;
        let stream = transport::connect(address).await?;
        let mut config = subsystem.controller_config();
        config.max_transfer_bytes = self.max_transfer_bytes.or(config.max_transfer_bytes);
        let controller = HostController::new(config.clone(), Instant::now()).map_err(TransportError::from)?;
        let mut admin = AdminConnection::new(stream, controller);
        let info = admin.live().await?;

        let wanted = subsystem.io_threads();
        if info.io_queues < wanted {
            return Err(PathError::Queues { granted: info.io_queues, wanted });
        }
        let mut namespaces = Namespaces::new(&info, subsystem.admit(&info)?)?;
        // Which namespaces may be used is known when they are all connected.
        let without_namespaces = |mut config: QueueConfig| {
            config.namespaces.fill(None);
            config
        };
        let configs: Vec<_> = (1..=wanted).map(|qid| without_namespaces(info.queue_config(&config, qid))).collect();
        let connecting = async {
            let mut queues = Vec::with_capacity(configs.len());
            for config in configs {
                queues.push(transport::connect_queue(address, config).await?);
            }
            subsystem.paths_known().await;
            Ok::<_, TransportError>(queues)
        };
        let queues = self.meanwhile(&mut admin, &mut namespaces, connecting).await??;
        Ok(Connected { admin, info, namespaces, queues })
    }

    /// Waits for something that may take longer than a controller waits for a keep-alive.
    async fn meanwhile<T>(
        &self,
        admin: &mut AdminConnection,
        namespaces: &mut Namespaces,
        something: impl Future<Output = T>,
    ) -> Result<T, PathError> {
        let mut something = pin!(something);
        loop {
            let event = tokio::select! {
                done = &mut something => return Ok(done),
                event = admin.next_event() => event?,
            };
            namespaces
                .on_event(&self.subsystem, admin.info(), event)
                .map_err(|error| PathError::changed(&self.subsystem, error))?;
        }
    }

    /// Writes the association down and gives every I/O thread its queue pair.
    async fn bring_up(&self, epoch: Epoch, connected: Connected) -> Result<Live, PathError> {
        let Connected { mut admin, info, mut namespaces, queues } = connected;
        let mptcp = self.mptcp_connections(&admin, &queues).map_err(TransportError::Socket)?;
        let subsystem = &self.subsystem;
        let fence_ms = (info.fence_time() + self.lingers_for().await).as_millis() as u64;
        let recorded = RecordedAssociation { path: self.address.to_string(), cntlid: info.cntlid, fence_ms };
        self.meanwhile(&mut admin, &mut namespaces, subsystem.records.add(self.path, epoch, recorded)).await??;
        subsystem.path_sized(self.path, &namespaces).map_err(|error| PathError::changed(subsystem, error))?;
        let mut links = Vec::with_capacity(queues.len());
        for (socket, mut queue) in queues {
            namespaces.add_to(admin.info(), &mut queue).map_err(TransportError::from)?;
            links.push(Link { socket, queue, retry_delays: info.retry_delays, ending: subsystem.ending() });
        }
        let association = Association {
            epoch,
            ana: namespaces.states(),
            volatile_write_cache: info.volatile_write_cache,
            queue_depth: info.queue_entries - 1,
        };
        for (thread, link) in subsystem.threads().iter().zip(links) {
            thread.path_up(self.path, association, link);
        }
        subsystem.path_live(self.path, &info, &namespaces, mptcp);
        Ok(Live { epoch, admin, info, namespaces })
    }

    /// How long the kernel goes on sending if this process is killed. Whatever is closed in time is reset.
    async fn lingers_for(&self) -> Duration {
        match self.address.transport() {
            // It does not block for long, but it may.
            Transport::Mptcp => tokio::task::spawn_blocking(mptcp::lingers_for).await.expect("it does not panic"),
            _ => Duration::ZERO,
        }
    }

    /// What the kernel is to be asked of, if the transport is MPTCP.
    fn mptcp_connections(
        &self,
        admin: &AdminConnection,
        queues: &[(OwnedFd, HostQueue)],
    ) -> io::Result<Option<Connections>> {
        if self.address.transport() != Transport::Mptcp {
            return Ok(None);
        }
        let mut cookies = vec![mptcp::cookie_of(admin)?];
        for (socket, _) in queues {
            cookies.push(mptcp::cookie_of(socket)?);
        }
        Ok(Some(Connections::new(cookies)))
    }

    /// Keeps the association alive until it is lost or the daemon ends, and then sees it closed.
    async fn serve(&mut self, mut live: Live) -> End {
        let epoch = live.epoch;
        let subsystem = Arc::clone(&self.subsystem);
        let mut closed = Closed { open: subsystem.threads().len(), draining: Vec::new(), in_doubt: false };
        let mut resetter = subsystem.resetters.offer(self.path, &live.info);
        let mut suspicious = 0;
        self.orders.connected();
        let end = loop {
            // What it is, or was told last, may be what a disk has waited for.
            subsystem.grow().await;
            tokio::select! {
                event = live.admin.next_event() => match event {
                    Ok(ControllerEvent::CrossControllerReset(outcome)) => resetter.answer(Ok(outcome)),
                    Ok(event) => match live.namespaces.on_event(&subsystem, live.admin.info(), event) {
                        Ok(None) => {}
                        Ok(Some(news)) => {
                            for thread in subsystem.threads() {
                                if let Some(limits) = news.added {
                                    thread.add_namespace(self.path, epoch, news.disk, limits);
                                }
                                thread.ana_changed(self.path, epoch, news.disk, news.state);
                            }
                            if news.changed {
                                subsystem.path_namespace(self.path, news);
                            } else {
                                subsystem.path_size(self.path, &news);
                            }
                        }
                        Err(error) => break End::Lost(PathError::changed(&subsystem, error)),
                    },
                    Err(error) => break End::Lost(error.into()),
                },
                Some(event) = self.events.recv() => match event.kind {
                    PathEventKind::Lost(reason) if event.epoch == epoch => break End::Lost(reason.into()),
                    PathEventKind::Closed { draining, in_doubt } if event.epoch == epoch => closed.add(draining, in_doubt),
                    PathEventKind::AnaError if event.epoch == epoch => {
                        live.namespaces.asked();
                        live.admin.controller.reread_ana(Instant::now());
                    }
                    // The other I/O threads find out by themselves, if they have such requests.
                    PathEventKind::SmallerTransfer { bytes }
                        if event.epoch == epoch && self.max_transfer_bytes.is_none_or(|known| bytes < known) =>
                    {
                        self.max_transfer_bytes = Some(bytes);
                        subsystem.path_max_transfer(self.path, bytes);
                    }
                    PathEventKind::Suspect if event.epoch == epoch => {
                        suspicious += 1;
                        if suspicious == 1 {
                            subsystem.path_suspect(self.path);
                        }
                    }
                    PathEventKind::Recovered if event.epoch == epoch => {
                        suspicious -= 1;
                        if suspicious == 0 {
                            subsystem.path_recovered(self.path);
                        }
                    }
                    _ => {}
                },
                ordered = self.orders.end_association(&subsystem, self.path) => match ordered {
                    Ordered::Close => break End::Ordered,
                    Ordered::Drop => break End::Dropped,
                    Ordered::Reset => break End::Lost(PathError::Reset),
                },
                lost = resetter.next() => {
                    if let Err(refusal) = live.admin.controller.cross_controller_reset(lost) {
                        resetter.answer(Err(refusal));
                    }
                }
                _ = self.shutdown.wait_for(|shutdown| *shutdown) => break End::Shutdown,
            }
        };
        // Those who asked learn at once that nothing comes of it.
        drop(resetter);
        match end {
            End::Shutdown => {
                // The I/O threads have drained by now, or are being drained by whoever ends the daemon.
                live.admin.shutdown().await;
            }
            End::Ordered => {
                subsystem.threads().iter().for_each(|thread| thread.path_down(self.path, epoch, Ending::Reset));
                let closed = self.closed(epoch, closed).await;
                live.admin.shutdown().await;
                if closed.is_certain() {
                    fence::lift(&subsystem, self.path, epoch).await;
                } else {
                    // Enabled at the last moment, it was given something after all.
                    self.fence(epoch, &live.info, None);
                }
            }
            End::Lost(_) | End::Dropped => {
                // A controller whose admin connection has failed has ended the others too, or is out of reach.
                let of_admin = matches!(&end, End::Lost(reason) if reason.is_of_admin());
                let ending = if of_admin { Ending::Reset } else { subsystem.ending() };
                let admin = (ending == Ending::Drain).then_some(live.admin);
                subsystem.threads().iter().for_each(|thread| thread.path_down(self.path, epoch, ending));
                let queues = self.closed(epoch, closed).await.all_draining();
                self.fence(epoch, &live.info, admin.zip(queues).map(|(admin, queues)| Draining { admin, queues }));
            }
        }
        end
    }

    fn fence(&mut self, epoch: Epoch, info: &ControllerInfo, draining: Option<Draining>) {
        self.fences.retain(|fence| !fence.is_finished());
        self.fences.push(fence::begin(&self.subsystem, self.path, epoch, info, draining));
    }

    /// Waits until every I/O thread has closed its queue pair. They always do, closing waits for nobody outside; but one
    /// that has ended says so no more if the queue pair was still on its way to it.
    async fn closed(&mut self, epoch: Epoch, mut closed: Closed) -> Closed {
        while closed.open > 0 {
            tokio::select! {
                Some(event) = self.events.recv() => match event.kind {
                    PathEventKind::Closed { draining, in_doubt } if event.epoch == epoch => closed.add(draining, in_doubt),
                    _ => {}
                },
                _ = self.shutdown.wait_for(|shutdown| *shutdown) => break,
            }
        }
        closed
    }
}

/// How far the I/O threads are with closing their queue pairs.
struct Closed {
    open: usize,
    draining: Vec<Option<OwnedFd>>,
    in_doubt: bool,
}

impl Closed {
    fn add(&mut self, draining: Option<OwnedFd>, in_doubt: bool) {
        self.open -= 1;
        self.draining.push(draining);
        self.in_doubt |= in_doubt;
    }

    /// Nothing that was sent can be executed any more.
    fn is_certain(&self) -> bool {
        self.open == 0 && !self.in_doubt
    }

    /// The sockets that drain, if all do.
    fn all_draining(self) -> Option<Vec<OwnedFd>> {
        if self.open == 0 { self.draining.into_iter().collect() } else { None }
    }
}
