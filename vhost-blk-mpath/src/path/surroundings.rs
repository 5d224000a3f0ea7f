//! The surroundings of a path, for its driver: sockets, I/O threads, the fence record and those who watch the path.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use monotonic::{Duration, Instant};
use mpath_config::PathAddress;
use mpath_config::address::Transport;
use mpath_core::{Association, DiskId, Epoch, PathId, PathStats, UnflushedPaths};
use mpath_lifecycle::{
    Action, Fences, IoThreads, Path, PathNews, PathSurroundings, RecordedAssociation, ThreadMessage,
};
use nvme_tcp::host::{ControllerInfo, HostQueue};
use nvme_tls::Session;
use nvme_tls::psk::Suite;
use reactor::ConnectedQueuePair;

use crate::io_threads::statistics;
use crate::path::events::PathSecurity;
use crate::path::half_closed_socket::HalfClosedSocket;
use crate::subsystem::Subsystem;
use crate::subsystem::error::HostError;
use crate::transport::connections::Connections;
use crate::transport::{BegunAssociation, ControlSocket, GeneratedKey, TransportError};

pub(super) type Pending<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Waits for the pending operation, or forever if there is none. Cancel-safe.
pub(super) async fn done<T>(under_way: &mut Pending<T>) -> T {
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
pub(super) enum Connected {
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

/// The work that the path has begun outside of its driver.
pub(super) struct Surroundings {
    pub(super) subsystem: Arc<Subsystem>,
    pub(super) id: PathId,
    pub(super) address: PathAddress,
    /// The connection attempt under way, with its QID.
    pub(super) connecting: Pending<(u16, Result<Connected, TransportError>)>,
    /// The generated key of the association, until all of its queues are connected, or the association is given up.
    generated: Option<GeneratedKey>,
    /// By QID: the number by which the kernel identifies a connection of the association.
    cookies: Vec<Option<u64>>,
    /// The sockets of I/O queues once the association is recorded, until the I/O threads take them.
    queues: VecDeque<(OwnedFd, Option<Session>)>,
    /// The cipher suite of these sockets.
    suite: Option<Suite>,
    connections: Option<Connections>,
    pub(super) recording: Pending<Result<(), HostError>>,
    pub(super) removing_record: Pending<()>,
    /// The question to the I/O threads for the path's statistics.
    pub(super) asking: Pending<Option<PathStats>>,
    /// The removal of the path from the I/O threads.
    pub(super) removal: Pending<()>,
    pub(super) is_gone: bool,
}

impl Surroundings {
    pub(super) fn new(subsystem: Arc<Subsystem>, id: PathId, address: PathAddress) -> Self {
        Self {
            subsystem,
            id,
            address,
            connecting: None,
            generated: None,
            cookies: Vec::new(),
            queues: VecDeque::new(),
            suite: None,
            connections: None,
            recording: None,
            removing_record: None,
            asking: None,
            removal: None,
            is_gone: false,
        }
    }

    /// Logs a step of the path.
    fn step(&self, step: fmt::Arguments<'_>) {
        tracing::debug!(disk = self.subsystem.name(), path = %self.address, "path {step}");
    }

    /// Begins an association.
    pub(super) fn begin(&mut self, generated: Option<GeneratedKey>) {
        self.generated = generated;
        self.cookies.clear();
    }

    pub(super) fn add_cookie(&mut self, socket: &ControlSocket) {
        self.cookies.push(mptcp::cookie_of(socket).ok());
    }

    /// Makes the sockets of the I/O queues ready for the I/O threads.
    fn take_queues(&mut self, sockets: Vec<ControlSocket>) -> io::Result<()> {
        // Without them only the state of the connections is unknown.
        let cookies = self.cookies.drain(..).collect::<Option<_>>();
        self.connections = cookies.map(|cookies| Connections::new(&self.address, cookies));
        self.suite = sockets.first().and_then(ControlSocket::suite);
        self.queues = sockets.into_iter().map(ControlSocket::into_blocking).collect::<io::Result<_>>()?;
        Ok(())
    }
}

impl IoThreads for Surroundings {
    fn count(&self) -> usize {
        self.subsystem.threads().len()
    }

    fn post(&mut self, thread: usize, message: ThreadMessage) {
        self.subsystem.threads()[thread].post(message);
    }
}

impl PathSurroundings<HostError, ControlSocket, HalfClosedSocket> for Surroundings {
    fn poll(&mut self, now: Instant, path: &mut Path<HostError>) -> Option<Action<HostError>> {
        path.poll(now, &mut &*self.subsystem)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn before(&mut self, action: &Action<HostError>) {
        match action {
            Action::Connect { qid } => self.step(format_args!("connects queue {qid}")),
            Action::Close => self.step(format_args!("closes its sockets")),
            Action::Record { cntlid, .. } => {
                self.step(format_args!("records its association with controller {cntlid}"));
            }
            Action::CloseQueues { .. } => self.step(format_args!("takes its queue pairs from the I/O threads")),
            Action::Ended(_) => self.step(format_args!("ends its association")),
            _ => {}
        }
    }

    fn news(&mut self, news: PathNews<HostError>) {
        let (subsystem, id) = (&self.subsystem, self.id);
        match news {
            PathNews::Live { info, namespaces } => {
                let generated = self.generated.take().map(|generated| generated.authenticated);
                let security = PathSecurity { suite: self.suite, authenticated: generated.or(info.authenticated) };
                subsystem.path_live(id, &info, &namespaces, security, self.connections.take());
            }
            PathNews::Namespace(update) => subsystem.path_namespace(id, update),
            PathNews::Suspect => subsystem.path_suspect(id),
            PathNews::Recovered => subsystem.path_recovered(id),
            PathNews::DigestError => subsystem.path_digest_error(id),
            PathNews::CommandError(status) => subsystem.path_command_error(id, status),
            PathNews::SmallerTransfer { bytes } => subsystem.path_max_transfer(id, bytes),
            PathNews::Connecting => subsystem.path_connecting(id),
            PathNews::Failed(error) => subsystem.path_failed(id, &error),
            PathNews::Refused(error) => subsystem.path_refused(id, &error),
            PathNews::GaveUp { after } => subsystem.path_gave_up(id, after),
            PathNews::Disabled => subsystem.path_disabled(id),
            PathNews::RemovalBegun => subsystem.path_closed(id),
            PathNews::Gone { epoch } => {
                subsystem.path_gone(id, epoch);
                self.is_gone = true;
            }
        }
    }

    fn connect(&mut self, qid: u16) {
        let (address, subsystem) = (self.address.clone(), Arc::clone(&self.subsystem));
        let generated = self.generated.clone().filter(|_| qid != 0);
        self.connecting =
            Some(Box::pin(async move { (qid, connect(&subsystem, &address, qid, generated.as_ref()).await) }));
    }

    fn give_up(&mut self) {
        self.connecting = None;
        self.queues.clear();
        self.generated = None;
    }

    fn exchange<'s>(
        &mut self,
        socket: &'s mut ControlSocket,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<&'s [u8]>, HostError> {
        fill(socket.out());
        Ok(socket.exchange()?)
    }

    fn send_term_req(&mut self, socket: &mut ControlSocket, term_req: &[u8]) {
        socket.tell(term_req);
    }

    fn read_to_end(&mut self, socket: &mut HalfClosedSocket) -> Option<bool> {
        socket.read_to_end()
    }

    fn record(&mut self, epoch: Epoch, cntlid: u16, fence_time: Duration, sockets: Vec<ControlSocket>) {
        if let Err(error) = self.take_queues(sockets) {
            self.recording = Some(Box::pin(async move { Err(TransportError::Socket(error).into()) }));
            return;
        }
        let (subsystem, id, address) = (Arc::clone(&self.subsystem), self.id, self.address.clone());
        self.recording = Some(Box::pin(async move {
            subsystem.paths_known().await;
            let fence_ms = (fence_time + lingers_for(&address).await).as_millis();
            let recorded = RecordedAssociation { path: address.to_string(), cntlid, fence_ms };
            Ok(subsystem.records.add(id, epoch, recorded).await?)
        }));
    }

    fn remove_record(&mut self, epoch: Epoch) -> bool {
        let (subsystem, id, recording) = (Arc::clone(&self.subsystem), self.id, self.recording.take());
        self.removing_record = Some(Box::pin(async move {
            if let Some(recording) = recording {
                let _ = recording.await;
            }
            subsystem.record_ended(id, epoch).await;
        }));
        false
    }

    fn path_up(&mut self, thread: usize, association: Association, queue: HostQueue, info: &ControllerInfo) {
        let (socket, tls) = self.queues.pop_front().expect("there is one for each queue");
        let (retry_delays, close_mode) = (info.retry_delays, self.subsystem.ending());
        let link = ConnectedQueuePair { socket, queue, tls, retry_delays, close_mode };
        self.subsystem.threads()[thread].path_up(self.id, association, link);
    }

    fn unflushed(&self, disk: DiskId) -> &UnflushedPaths {
        &self.subsystem.disk(disk).shared.unflushed
    }

    fn of_fences(&self, is: impl FnOnce(&Fences) -> bool) -> bool {
        is(&self.subsystem.fences.get())
    }

    fn change_fences(&mut self, change: impl FnOnce(&mut Fences)) {
        self.subsystem.fences.change(change);
    }

    fn ask_threads(&mut self) {
        let (subsystem, id) = (Arc::clone(&self.subsystem), self.id);
        self.asking = Some(Box::pin(async move {
            // A thread that does not answer has ended, or none has started.
            statistics(subsystem.threads()).await.ok()??.path(id).cloned()
        }));
    }

    fn await_removal(&mut self) {
        let subsystem = Arc::clone(&self.subsystem);
        self.removal = Some(Box::pin(async move { subsystem.paths_known().await }));
    }
}

/// How long the kernel keeps sending after a kill. Sockets closed by the daemon are reset.
async fn lingers_for(address: &PathAddress) -> Duration {
    match address.transport() {
        // It may block for a short time.
        Transport::Mptcp => tokio::task::spawn_blocking(mptcp::lingers_for).await.expect("it does not panic").into(),
        _ => Duration::ZERO,
    }
}
