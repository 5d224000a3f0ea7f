//! The task of one path. It carries out what [`mpath_host::Path`] decides, over sockets, I/O threads and the fence
//! record.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_api::address::Transport;
use mpath_core::{Epoch, PathId, PathStats};
use mpath_host::{Action, ClosedAssociation, LiveAssociation, Order, Path, PathTrial, RecordedAssociation, Report};
use nvme_tls::Session;
use reactor::{CloseMode, ConnectedQueuePair, PathEvent, PathEventKind};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep_until;

use crate::io_threads::statistics;
use crate::path::events::PathSecurity;
use crate::path::fence::{self, Draining, DrainingSocket};
use crate::subsystem::Subsystem;
use crate::subsystem::error::HostError;
use crate::transport::connections::Connections;
use crate::transport::{AdminConnection, BegunAssociation, ControlSocket, GeneratedKey, TransportError, far_future};

/// The number of reads, of at most 16 KiB each, from every socket before anything else is done.
const EXCHANGES_MAX: usize = 16;

type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for the pending operation, or forever if there is none. Cancel-safe.
async fn done<T>(under_way: &mut Pending<T>) -> T {
    match under_way {
        Some(future) => {
            let outcome = future.await;
            *under_way = None;
            outcome
        }
        None => pending().await,
    }
}

/// A connected socket.
enum Connected {
    /// That of an admin queue, which begins an association.
    Admin(Box<BegunAssociation>),
    Io(ControlSocket),
}

/// Connects the socket of a queue. I/O queues use the key that the association has generated, if there is one.
async fn connect(
    subsystem: &Subsystem,
    address: &PathAddress,
    qid: u16,
    generated: Option<&GeneratedKey>,
) -> Result<Connected, TransportError> {
    let security = &subsystem.security;
    Ok(if qid == 0 {
        let begun = security.begin(address, &subsystem.path_settings().controller).await?;
        Connected::Admin(Box::new(begun))
    } else {
        Connected::Io(security.connect(address, generated).await?)
    })
}

/// The task of one path.
pub(crate) struct PathTask {
    subsystem: Arc<Subsystem>,
    id: PathId,
    address: PathAddress,
    path: Path<HostError>,
    /// Whether the path was tried and is live, as the subsystem knows it.
    trial: PathTrial,
    /// Reports of the I/O threads about this path.
    events: mpsc::UnboundedReceiver<PathEvent>,
    /// The operator's orders.
    orders: watch::Receiver<Order>,
    /// True once the subsystem ends.
    shutdown: watch::Receiver<bool>,
    /// Sockets by QID: the admin socket, and those of I/O queues until the association is recorded.
    sockets: Vec<Option<ControlSocket>>,
    /// The sockets of I/O queues once the association is recorded, until the I/O threads take them.
    queues: Vec<(OwnedFd, Option<Session>)>,
    /// The connection attempt under way, with its QID.
    connecting: Pending<(u16, Result<Connected, TransportError>)>,
    /// The generated key of the association, until all of its queues are connected, or the association is given up.
    generated: Option<GeneratedKey>,
    recording: Pending<Result<(), HostError>>,
    /// The question to the I/O threads for the path's statistics.
    asking: Pending<Option<PathStats>>,
    /// A step of the removal.
    leaving: Pending<()>,
    connections: Option<Connections>,
    /// When to try again to grow disks that could not be saved.
    grow_at: Option<Instant>,
    /// Draining sockets of the association that ends.
    draining: Vec<DrainingSocket>,
    /// The tasks of associations that drain.
    drains: Vec<JoinHandle<()>>,
}

impl PathTask {
    pub(crate) fn new(
        subsystem: Arc<Subsystem>,
        id: PathId,
        address: PathAddress,
        epoch: Epoch,
        events: mpsc::UnboundedReceiver<PathEvent>,
        orders: watch::Receiver<Order>,
    ) -> Self {
        let path = Path::new(Instant::now(), id, epoch, *orders.borrow(), subsystem.path_settings());
        Self {
            shutdown: subsystem.shutdown.clone(),
            subsystem,
            id,
            address,
            path,
            trial: PathTrial::default(),
            events,
            orders,
            sockets: Vec::new(),
            queues: Vec::new(),
            connecting: None,
            generated: None,
            recording: None,
            asking: None,
            leaving: None,
            connections: None,
            grow_at: None,
            draining: Vec::new(),
            drains: Vec::new(),
        }
    }

    /// Runs until shutdown, or until the path is removed.
    pub(crate) async fn run(mut self) {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            () = self.live() => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
        // The next daemon waits for the fences that are left, counted from the end of their sockets.
        for drain in std::mem::take(&mut self.drains) {
            let _ = drain.await;
        }
        // The I/O threads have ended by now. Their last reports say whether writes are in doubt.
        while let Ok(event) = self.events.try_recv() {
            self.reported(event);
        }
        let admin = self.sockets.drain(..).next().flatten();
        if let Some((socket, shutdown)) = admin.zip(self.path.end(Instant::now())) {
            // The controller may not answer.
            let _ = AdminConnection::new(socket, shutdown).confirmed().await;
        }
    }

    /// Runs until the path is gone. The future may be dropped.
    async fn live(&mut self) {
        loop {
            // Received bytes come before timeouts, which wait for them.
            let _ = (0..EXCHANGES_MAX).find(|_| !self.exchange());
            if self.act().await {
                return;
            }
            if self.exchange() {
                // A controller that sends without pause must not block other tasks.
                yield_now().await;
            } else {
                self.wait().await;
            }
        }
    }

    /// Waits for the next event and handles it.
    async fn wait(&mut self) {
        let Self { sockets, connecting, recording, asking, leaving, events, orders, path, subsystem, grow_at, .. } =
            self;
        let ready = poll_fn(|context| {
            // Poll all sockets, so that each can wake the task.
            let ready = sockets.iter().flatten().filter(|socket| socket.poll_ready(context).is_ready()).count();
            if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let next_timeout = path.next_timeout().into_iter().chain(*grow_at).min().unwrap_or_else(far_future);
        let now = Instant::now;
        tokio::select! {
            () = ready => {}
            (qid, connected) = done(connecting) => match connected {
                Ok(connected) => {
                    let socket = match connected {
                        Connected::Io(socket) => socket,
                        Connected::Admin(begun) => {
                            let BegunAssociation { socket, authentication, generated } = *begun;
                            self.path.set_authentication(authentication);
                            self.generated = generated;
                            socket
                        }
                    };
                    tracing::debug!(disk = subsystem.name(), path = %self.address, qid, "connected");
                    self.sockets.resize_with(usize::from(qid), || None);
                    self.sockets.push(Some(socket));
                    self.path.connected(now(), qid);
                }
                Err(error) => {
                    tracing::debug!(disk = subsystem.name(), path = %self.address, qid, %error, "cannot connect");
                    self.path.failed(now(), qid, error.into());
                }
            },
            recorded = done(recording) => self.path.recorded(now(), recorded),
            stats = done(asking) => self.path.threads_answered(now(), stats.as_ref()),
            () = done(leaving) => self.path.removal_step_done(),
            Some(event) = events.recv() => self.reported(event),
            // The subsystem holds the sender and outlives the tasks of its paths.
            Ok(()) = orders.changed() => {
                let order = *self.orders.borrow_and_update();
                self.path.order(order);
            }
            lost = subsystem.fences.next_reset(self.id), if path.is_live() => {
                if !self.path.reset_other(lost) {
                    self.subsystem.fences.reset_answered(self.id, None);
                }
            }
            () = sleep_until(next_timeout.into()) => {}
        }
    }

    fn reported(&mut self, PathEvent { epoch, kind, .. }: PathEvent) {
        let report = match kind {
            PathEventKind::Lost(reason) => Report::Lost(reason.into()),
            PathEventKind::Closed { draining, in_doubt } => {
                let drains = draining.is_some();
                let draining = draining.map(DrainingSocket);
                if epoch == self.path.latest().epoch {
                    self.draining.extend(draining);
                }
                Report::Closed { drains, in_doubt }
            }
            PathEventKind::Suspect => Report::Suspect,
            PathEventKind::Recovered => Report::Recovered,
            PathEventKind::AnaError => Report::AnaError,
            PathEventKind::InvalidNamespace => Report::InvalidNamespace,
            PathEventKind::SmallerTransfer { bytes } => Report::SmallerTransfer { bytes },
            PathEventKind::DigestError => return self.subsystem.path_digest_error(self.id),
            PathEventKind::CommandError(status) => return self.subsystem.path_command_error(self.id, status),
        };
        self.path.reported(Instant::now(), epoch, report);
    }

    /// Moves bytes between the path and its sockets. Returns whether any have arrived.
    fn exchange(&mut self) -> bool {
        let (now, mut is_new) = (Instant::now(), false);
        for (slot, qid) in self.sockets.iter_mut().zip(0..) {
            let Some(socket) = slot else { continue };
            self.path.fill_tx(now, qid, socket.out());
            match socket.exchange() {
                Ok(None) => continue,
                Ok(Some(bytes)) => self.path.received(now, qid, bytes),
                Err(error) => {
                    *slot = None;
                    self.path.failed(now, qid, error.into());
                }
            }
            is_new = true;
        }
        is_new
    }

    /// Carries out all pending actions. Returns whether the path is gone.
    async fn act(&mut self) -> bool {
        let subsystem = Arc::clone(&self.subsystem);
        let id = self.id;
        let mut may_grow = self.grow_at.take_if(|at| *at <= Instant::now()).is_some();
        loop {
            // A removal that was taken back meanwhile must not go on.
            if self.orders.has_changed().is_ok_and(|has_changed| has_changed) {
                let order = *self.orders.borrow_and_update();
                self.path.order(order);
            }
            let Some(action) = self.path.poll(Instant::now(), &mut &*subsystem) else { break };
            may_grow |= !matches!(action, Action::Connect { .. } | Action::Record { .. } | Action::AskThreads);
            match action {
                Action::Connect { qid } => {
                    self.step(format_args!("connects queue {qid}"));
                    let (address, subsystem) = (self.address.clone(), Arc::clone(&subsystem));
                    let generated = self.generated.clone().filter(|_| qid != 0);
                    self.connecting =
                        Some(Box::pin(
                            async move { (qid, connect(&subsystem, &address, qid, generated.as_ref()).await) },
                        ));
                }
                Action::SendTermReq { qid, term_req } => {
                    if let Some(Some(socket)) = self.sockets.get_mut(usize::from(qid)) {
                        socket.tell(&term_req);
                    }
                }
                Action::Close => {
                    self.step(format_args!("closes its sockets"));
                    self.connecting = None;
                    self.sockets.clear();
                    self.queues.clear();
                    self.generated = None;
                }
                Action::Record { epoch, cntlid, fence_time } => {
                    self.step(format_args!("records its association with controller {cntlid}"));
                    self.record(epoch, cntlid, fence_time);
                }
                Action::RemoveRecord { epoch } => {
                    if let Some(recording) = self.recording.take() {
                        // The write under way must not come after the removal of the record.
                        let _ = recording.await;
                    }
                    subsystem.record_ended(id, epoch).await;
                }
                Action::GoLive(up) => self.up(*up),
                Action::UpdateNamespace { epoch, update } => {
                    update.mark_loss(Instant::now(), id, epoch, &subsystem.disk(update.disk).shared.unflushed);
                    for thread in subsystem.threads() {
                        if let Some(limits) = update.added {
                            thread.add_namespace(id, epoch, update.disk, limits);
                        }
                        thread.ana_changed(id, epoch, update.disk, update.state);
                    }
                    subsystem.path_namespace(id, update);
                }
                Action::CloseQueues { epoch, drain } => {
                    // Fences that wait for a reset over this path ask another path at once.
                    subsystem.fences.withdraw_resets(id);
                    self.asking = None;
                    self.step(format_args!("takes its queue pairs from the I/O threads"));
                    let close_mode = if drain { CloseMode::Drain } else { CloseMode::Reset };
                    subsystem.threads().iter().for_each(|thread| thread.path_down(id, epoch, close_mode));
                }
                Action::Ended(left) => {
                    self.step(format_args!("ends its association"));
                    self.ended(*left).await;
                }
                Action::ResetAnswered(outcome) => subsystem.fences.reset_answered(id, Some(outcome)),
                Action::AskThreads => {
                    let subsystem = Arc::clone(&subsystem);
                    self.asking = Some(Box::pin(async move {
                        // A thread that does not answer has ended, or none has started.
                        statistics(subsystem.threads()).await.ok()??.path(id).cloned()
                    }));
                }
                // Any I/O thread will do: the controller flushes what it has completed on any queue.
                Action::WriteBack => subsystem.threads().iter().take(1).for_each(|thread| thread.write_back(id)),
                Action::Suspect => subsystem.path_suspect(id),
                Action::Recovered => subsystem.path_recovered(id),
                Action::SmallerTransfer { bytes } => subsystem.path_max_transfer(id, bytes),
                Action::Connecting => subsystem.path_connecting(id),
                Action::Failed(error) => subsystem.path_failed(id, &error),
                Action::Refused(error) => subsystem.path_refused(id, &error),
                Action::GaveUp { after } => subsystem.path_gave_up(id, after),
                Action::Disabled => subsystem.path_disabled(id),
                Action::RemovalBegun => subsystem.path_closed(id),
                Action::AwaitFences => {
                    let subsystem = Arc::clone(&subsystem);
                    self.leaving = Some(Box::pin(async move { subsystem.fences.lifted(id).await }));
                }
                Action::RemoveFromThreads => {
                    subsystem.threads().iter().for_each(|thread| thread.remove_path(id));
                    let subsystem = Arc::clone(&subsystem);
                    self.leaving = Some(Box::pin(async move { subsystem.paths_known().await }));
                }
                Action::RemovalDone => {
                    subsystem.path_gone(id, self.path.latest().epoch);
                    return true;
                }
            }
        }
        // The I/O threads hear of a change before the subsystem does.
        let trial = self.path.trial();
        if trial != self.trial {
            self.trial = trial;
            subsystem.path(id, |status| status.trial = trial);
        }
        if may_grow {
            // The new state of the path may be what a disk has waited for to grow.
            let is_saved = subsystem.grow().await;
            self.grow_at = (!is_saved).then(|| Instant::now() + subsystem.config.reconnect_delay.duration());
        }
        false
    }

    /// Logs a step of the path.
    fn step(&self, step: fmt::Arguments<'_>) {
        tracing::debug!(disk = self.subsystem.name(), path = %self.address, "path {step}");
    }

    /// Begins to record the association.
    fn record(&mut self, epoch: Epoch, cntlid: u16, fence_time: Duration) {
        if let Err(error) = self.take_queues() {
            self.recording = Some(Box::pin(async move { Err(TransportError::Socket(error).into()) }));
            return;
        }
        let (subsystem, id, address) = (Arc::clone(&self.subsystem), self.id, self.address.clone());
        self.recording = Some(Box::pin(async move {
            subsystem.paths_known().await;
            let fence_ms = (fence_time + lingers_for(&address).await).as_millis() as u64;
            let recorded = RecordedAssociation { path: address.to_string(), cntlid, fence_ms };
            Ok(subsystem.records.add(id, epoch, recorded).await?)
        }));
    }

    /// Makes the sockets of the I/O queues ready for the I/O threads.
    fn take_queues(&mut self) -> io::Result<()> {
        // The kernel identifies the connections by these cookies. Without them only their state is unknown.
        let cookies = self.sockets.iter().flatten().map(mptcp::cookie_of).collect::<io::Result<_>>().ok();
        self.connections = cookies.map(|cookies| Connections::new(&self.address, cookies));
        let queues = self.sockets.drain(1..).flatten().map(ControlSocket::into_blocking);
        self.queues = queues.collect::<io::Result<_>>()?;
        Ok(())
    }

    fn up(&mut self, LiveAssociation { association, queues, info, namespaces }: LiveAssociation) {
        let subsystem = &self.subsystem;
        let sockets = std::mem::take(&mut self.queues);
        let suite = sockets.first().and_then(|(_, session)| session.as_ref()?.suite());
        for ((thread, queue), (socket, tls)) in subsystem.threads().iter().zip(queues).zip(sockets) {
            let (retry_delays, close_mode) = (info.retry_delays, subsystem.ending());
            let link = ConnectedQueuePair { socket, queue, tls, retry_delays, close_mode };
            thread.path_up(self.id, association, link);
        }
        if info.cross_resets > 0 {
            subsystem.fences.offer_resets(self.path.latest());
        }
        let generated = self.generated.take().map(|generated| generated.authenticated);
        let security = PathSecurity { suite, authenticated: generated.or(info.authenticated) };
        subsystem.path_live(self.id, &info, &namespaces, security, self.connections.take());
    }

    /// Handles an association after all I/O threads have closed their queue pairs.
    async fn ended(&mut self, left: ClosedAssociation) {
        let (socket, mut queues) = (self.sockets.drain(..).next().flatten(), std::mem::take(&mut self.draining));
        let (ended, shutdown) = left.end(Instant::now(), self.id, socket.as_ref().map(|_| queues.len()));
        let admin = socket.zip(shutdown).map(|(socket, shutdown)| AdminConnection::new(socket, shutdown));
        if !ended.is_draining {
            // The fence counts from their end.
            queues.clear();
        }
        self.subsystem.fences.begin(ended);
        let Some(mut admin) = admin else { return };
        if ended.is_draining {
            self.drains.retain(|drain| !drain.is_finished());
            let draining = Draining { admin, queues };
            self.drains.push(tokio::spawn(fence::watch(Arc::clone(&self.subsystem), ended.of, draining)));
        } else {
            // The controller may not answer.
            let _ = admin.confirmed().await;
        }
    }
}

/// How long the kernel keeps sending after a kill. Sockets closed by the daemon are reset.
async fn lingers_for(address: &PathAddress) -> Duration {
    match address.transport() {
        // It may block for a short time.
        Transport::Mptcp => tokio::task::spawn_blocking(mptcp::lingers_for).await.expect("it does not panic"),
        _ => Duration::ZERO,
    }
}
