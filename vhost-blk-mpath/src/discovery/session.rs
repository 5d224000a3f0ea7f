//! The task of a session with a discovery controller. It drives [`mpath_lifecycle::discovery::Session`] over a socket.

use std::future::{pending, poll_fn};
use std::pin::pin;

use monotonic::Instant;
use mpath_config::PathAddress;
use mpath_lifecycle::discovery::{Peer, Session, SessionEvent, SessionId};
use nvme_tls::psk::Suite;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;

use crate::clock::sleep_until;
use crate::transport::{self, ClearTextPorts, ControlSocket, SubsystemKey, TransportError, far_future};

/// The task of a session.
pub(super) struct SessionTask {
    pub(super) id: SessionId,
    pub(super) session: Session,
    /// The key of the connection, if it uses TLS.
    pub(super) key: Option<SubsystemKey>,
    pub(super) ports: ClearTextPorts,
    pub(super) events: mpsc::Sender<(SessionId, SessionEvent)>,
    /// The session ends when the sender is dropped.
    pub(super) ends: watch::Receiver<()>,
}

impl SessionTask {
    pub(super) async fn run(mut self, address: PathAddress) {
        // The connection is closed before the next session can start.
        for event in self.drive(address).await {
            self.send(event).await;
        }
    }

    /// Runs the session until it is over. Returns the events that are not sent.
    async fn drive(&mut self, address: PathAddress) -> impl Iterator<Item = SessionEvent> + use<> {
        let (key, ports) = (self.key.clone(), self.ports.clone());
        let mut connecting = pin!(transport::connect(&address, key.as_ref(), &ports));
        let mut socket = None;
        let mut is_ended = false;
        // The latest log until the channel has room. Keep-alives go on meanwhile.
        let mut unsent = None;
        loop {
            match self.session.poll(Instant::now()) {
                Some(log @ SessionEvent::Log { .. }) => unsent = Some(log),
                Some(last) => return unsent.into_iter().chain([last]),
                None => {}
            }
            // Received bytes come before timeouts, which wait for them.
            if socket.as_mut().is_some_and(|socket| self.exchange(socket)) {
                // A controller that sends without pause must not block other tasks.
                yield_now().await;
                continue;
            }
            let timeout = self.session.next_timeout().unwrap_or_else(far_future);
            tokio::select! {
                connected = &mut connecting, if socket.is_none() => {
                    match connected.map_err(|error| error.to_string()).and_then(peer_of) {
                        Ok((connected, peer)) => {
                            socket = Some(connected);
                            self.session.connected(Instant::now(), peer);
                        }
                        Err(error) => self.session.failed(error),
                    }
                }
                () = ready(socket.as_ref()) => {}
                () = ended(&mut self.ends), if !is_ended => {
                    is_ended = true;
                    self.session.shutdown(Instant::now());
                }
                permit = self.events.reserve(), if unsent.is_some() && !is_ended => {
                    if let Some((permit, log)) = permit.ok().zip(unsent.take()) {
                        permit.send((self.id, log));
                    }
                }
                () = sleep_until(timeout) => self.session.handle_timeout(Instant::now()),
            }
        }
    }

    /// Moves bytes between the session and its socket. Returns whether anything has happened.
    fn exchange(&mut self, socket: &mut ControlSocket) -> bool {
        self.session.fill_tx(socket.out());
        match socket.exchange() {
            Ok(None) => return false,
            Ok(Some(bytes)) => self.session.receive(Instant::now(), bytes),
            Err(error) => self.session.failed(error.to_string()),
        }
        self.session.term_req().into_iter().for_each(|pdu| socket.tell(&pdu));
        true
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

fn peer_of(socket: ControlSocket) -> Result<(ControlSocket, Peer), String> {
    let address = socket.peer().map_err(|error| TransportError::Socket(error).to_string())?;
    let tls_suite = socket.suite().map(Suite::name);
    Ok((socket, Peer { address, tls_suite }))
}

/// Waits until the socket is ready, or forever without one.
async fn ready(socket: Option<&ControlSocket>) {
    match socket {
        Some(socket) => poll_fn(|context| socket.poll_ready(context)).await,
        None => pending().await,
    }
}

/// Waits until the sender is dropped.
async fn ended(ends: &mut watch::Receiver<()>) {
    while ends.changed().await.is_ok() {}
}
