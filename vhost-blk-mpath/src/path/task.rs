//! The task of one path. It runs the driver of the path over sockets, I/O threads and the fence record.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use monotonic::Instant;
use mpath_config::PathAddress;
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::{Fences, Order, Path, PathDriver, PathTrial};
use reactor::PathEvent;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;

use crate::clock::sleep_until;
use crate::path::half_closed_socket::HalfClosedSocket;
use crate::path::surroundings::{Connected, Surroundings, done};
use crate::subsystem::Subsystem;
use crate::subsystem::error::HostError;
use crate::transport::{BegunAssociation, ControlSocket, TransportError, far_future};

/// The number of reads, of at most 16 KiB each, from every socket before anything else is done.
const EXCHANGES_MAX: usize = 16;

type Driver = PathDriver<HostError, ControlSocket, HalfClosedSocket>;

/// Waits for a socket that has news, or until the driver is due. Cancel-safe.
async fn ready(driver: &Driver) {
    let sockets = poll_fn(|context| {
        // Poll all sockets, so that each can wake the task.
        let connected = driver.sockets().filter(|socket| socket.poll_ready(context).is_ready()).count();
        let half_closed = driver.half_closed_sockets().filter(|socket| socket.poll_ready(context).is_ready()).count();
        if connected + half_closed > 0 { Poll::Ready(()) } else { Poll::Pending }
    });
    let at = driver.next_timeout().unwrap_or_else(far_future);
    tokio::select! {
        () = sockets => {}
        () = sleep_until(at) => {}
    }
}

/// The task of one path.
pub(crate) struct PathTask {
    driver: Driver,
    host: Surroundings,
    /// Whether the path was tried and is live, as the subsystem knows it.
    trial: PathTrial,
    /// Reports of the I/O threads about this path.
    events: mpsc::UnboundedReceiver<PathEvent>,
    /// The operator's orders.
    orders: watch::Receiver<Order>,
    fence_changes: watch::Receiver<Fences>,
    /// True once the subsystem ends.
    shutdown: watch::Receiver<bool>,
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
            driver: PathDriver::new(path),
            shutdown: subsystem.shutdown.clone(),
            fence_changes: subsystem.fences.changes(),
            host: Surroundings::new(subsystem, id, address),
            trial: PathTrial::default(),
            events,
            orders,
        }
    }

    /// Runs until shutdown, or until the path is removed.
    pub(crate) async fn run(mut self) {
        let mut shutdown = self.shutdown.clone();
        tokio::select! {
            () = self.live() => {}
            _ = shutdown.wait_for(|shutdown| *shutdown) => {}
        }
        // The I/O threads have ended by now. Their last reports say whether writes are in doubt.
        while let Ok(event) = self.events.try_recv() {
            self.reported(event);
        }
        self.driver.end(Instant::now(), &mut self.host);
        // The controllers may not answer.
        while !self.driver.has_ended() {
            if self.driver.exchange(Instant::now(), &mut self.host) {
                yield_now().await;
            } else {
                ready(&self.driver).await;
            }
        }
    }

    /// Runs until the path is gone. The future may be dropped.
    async fn live(&mut self) {
        loop {
            let _ = (0..EXCHANGES_MAX).find(|_| !self.driver.exchange(Instant::now(), &mut self.host));
            if self.act() {
                return;
            }
            if self.driver.exchange(Instant::now(), &mut self.host) {
                // A controller that sends without pause must not block other tasks, or what this one has under way.
                yield_now().await;
                tokio::select! {
                    biased;
                    () = self.wait() => {}
                    () = std::future::ready(()) => {}
                }
            } else {
                self.wait().await;
            }
        }
    }

    /// Waits for the next event and handles it.
    async fn wait(&mut self) {
        let Self { driver, host, events, orders, fence_changes, .. } = self;
        let now = Instant::now;
        let Surroundings { connecting, recording, removing_record, asking, removal, .. } = host;
        tokio::select! {
            () = ready(driver) => {}
            (qid, connected) = done(connecting) => self.connected(qid, connected),
            recorded = done(recording) => driver.path_mut().recorded(now(), recorded),
            () = done(removing_record) => driver.record_removed(),
            stats = done(asking) => driver.path_mut().threads_answered(now(), stats.as_ref()),
            () = done(removal) => driver.path_mut().removal_step_done(),
            Some(event) = events.recv() => self.reported(event),
            // The subsystem holds the senders and outlives the tasks of its paths.
            Ok(()) = orders.changed() => self.take_order(),
            Ok(()) = fence_changes.changed() => {}
        }
    }

    fn connected(&mut self, qid: u16, connected: Result<Connected, TransportError>) {
        let now = Instant::now();
        let socket = match connected {
            Ok(Connected::Io(socket)) => socket,
            Ok(Connected::Admin(begun)) => {
                let BegunAssociation { socket, authentication, generated } = *begun;
                self.driver.path_mut().set_authentication(authentication);
                self.host.begin(generated);
                socket
            }
            Err(error) => {
                let (disk, path) = (self.host.subsystem.name(), &self.host.address);
                tracing::debug!(disk, %path, qid, %error, "cannot connect");
                return self.driver.path_mut().failed(now, qid, error.into());
            }
        };
        tracing::debug!(disk = self.host.subsystem.name(), path = %self.host.address, qid, "connected");
        self.host.add_cookie(&socket);
        self.driver.connected(now, qid, socket);
    }

    fn reported(&mut self, PathEvent { epoch, kind, .. }: PathEvent) {
        self.driver.reported(Instant::now(), epoch, kind.map(HostError::from, HalfClosedSocket::new));
    }

    fn take_order(&mut self) {
        let order = *self.orders.borrow_and_update();
        self.driver.path_mut().order(order);
    }

    /// Carries out all pending actions. Returns whether the path is gone.
    fn act(&mut self) -> bool {
        loop {
            // A removal that was taken back meanwhile must not go on.
            if self.orders.has_changed().is_ok_and(|has_changed| has_changed) {
                self.take_order();
            }
            if !self.driver.act(Instant::now(), &mut self.host) {
                break;
            }
        }
        if self.host.is_gone {
            return true;
        }
        // The I/O threads hear of a change before the subsystem does.
        let trial = self.driver.path().trial();
        if trial != self.trial {
            self.trial = trial;
            self.host.subsystem.path(self.host.id, |status| status.trial = trial);
        }
        false
    }
}
