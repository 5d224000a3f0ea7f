//! The task of a session with a discovery controller. It drives [`mpath_host::discovery::Session`] over a socket.

use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_host::discovery::{Session, SessionEvent, SessionId, Source};
use nvme_tcp::host::HostIdentity;
use tokio::sync::{mpsc, watch};

use crate::transport::{self, AdminConnection, AdminSide, ControlSocket, TransportError};

/// The task of a session.
pub(super) struct SessionTask {
    pub(super) id: SessionId,
    pub(super) source: Source<PathAddress>,
    pub(super) host: HostIdentity,
    /// Set if the connection is to be persistent.
    pub(super) keep_alive_tmo: Option<Duration>,
    pub(super) events: mpsc::Sender<(SessionId, SessionEvent)>,
    /// The session ends when the sender is dropped.
    pub(super) ends: watch::Receiver<()>,
}

impl SessionTask {
    pub(super) async fn run(self) {
        let mut ends = self.ends.clone();
        tokio::select! {
            connected = self.connect() => match connected {
                Ok(admin) => self.drive(admin).await,
                Err(error) => {
                    let lost = SessionEvent::Lost { error: error.to_string(), refuses_persistence: false };
                    self.send(lost).await;
                }
            },
            () = ended(&mut ends) => {}
        }
    }

    async fn connect(&self) -> Result<AdminConnection<Session>, TransportError> {
        let stream = transport::connect(&self.source.address).await?;
        let peer = stream.peer_addr().map_err(TransportError::Socket)?;
        let subnqn = self.source.subnqn.clone();
        let session = Session::new(Instant::now(), peer, self.host.clone(), subnqn, self.keep_alive_tmo)?;
        Ok(AdminConnection::new(ControlSocket::new(stream), session))
    }

    async fn drive(&self, mut admin: AdminConnection<Session>) {
        let mut ends = self.ends.clone();
        // The latest log until the channel has room. Keep-alives go on meanwhile.
        let mut unsent = None;
        let last = loop {
            tokio::select! {
                biased;
                () = ended(&mut ends) => {
                    admin.controller.shutdown(Instant::now());
                    while let Ok(SessionEvent::Log { .. }) = admin.next_event().await {}
                    return;
                }
                permit = self.events.reserve(), if unsent.is_some() => {
                    if let Some((permit, log)) = permit.ok().zip(unsent.take()) {
                        permit.send((self.id, log));
                    }
                }
                event = admin.next_event() => match event {
                    Ok(SessionEvent::Finished) => break SessionEvent::Finished,
                    Ok(log) => unsent = Some(log),
                    Err(error) => break admin.controller.lost(error.to_string()),
                },
            }
        };
        // Close the connection before the next session can start.
        drop(admin);
        for event in unsent.into_iter().chain([last]) {
            self.send(event).await;
        }
    }

    async fn send(&self, event: SessionEvent) {
        let mut ends = self.ends.clone();
        tokio::select! {
            // A closed channel means that no receiver is left.
            _ = self.events.send((self.id, event)) => {}
            () = ended(&mut ends) => {}
        }
    }
}

/// Waits until the sender is dropped.
async fn ended(ends: &mut watch::Receiver<()>) {
    while ends.changed().await.is_ok() {}
}

impl AdminSide for Session {
    type Event = SessionEvent;

    fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.fill_tx(out);
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), TransportError> {
        Ok(self.receive(now, bytes)?)
    }

    fn term_req(&self) -> Option<Vec<u8>> {
        self.term_req()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.next_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), TransportError> {
        Ok(self.handle_timeout(now)?)
    }

    fn poll_event(&mut self, now: Instant) -> Option<SessionEvent> {
        self.poll(now)
    }
}
