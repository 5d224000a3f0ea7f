//! The task of a session with a discovery controller: it drives [`mpath_host::discovery::Session`] over a socket.

use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_host::discovery::{Session, SessionId, SessionNews, Source};
use nvme_tcp::host::HostIdentity;
use tokio::sync::{mpsc, watch};

use crate::transport::{self, AdminConnection, AdminSide, ControlSocket, TransportError};

/// See the module.
pub(super) struct SessionTask {
    pub(super) id: SessionId,
    pub(super) source: Source<PathAddress>,
    pub(super) host: HostIdentity,
    /// Of a connection that is to stay.
    pub(super) keep_alive_tmo: Option<Duration>,
    pub(super) news: mpsc::Sender<(SessionId, SessionNews)>,
    /// The session ends when its other end is gone.
    pub(super) ends: watch::Receiver<()>,
}

impl SessionTask {
    pub(super) async fn run(self) {
        let mut ends = self.ends.clone();
        tokio::select! {
            connected = self.connect() => match connected {
                Ok(admin) => self.drive(admin).await,
                Err(error) => {
                    let lost = SessionNews::Lost { error: error.to_string(), refuses_to_stay: false };
                    self.tell(lost).await;
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
        // The latest log, until somebody listens. The connection is kept alive meanwhile.
        let mut unheard = None;
        let last = loop {
            tokio::select! {
                biased;
                () = ended(&mut ends) => {
                    admin.shutdown().await;
                    return;
                }
                permit = self.news.reserve(), if unheard.is_some() => {
                    if let Some((permit, log)) = permit.ok().zip(unheard.take()) {
                        permit.send((self.id, log));
                    }
                }
                news = admin.next_event() => match news {
                    Ok(SessionNews::Asked) => break SessionNews::Asked,
                    Ok(log) => unheard = Some(log),
                    Err(error) => break admin.controller.lost(error.to_string()),
                },
            }
        };
        // The next session must not find this one there.
        drop(admin);
        for news in unheard.into_iter().chain([last]) {
            self.tell(news).await;
        }
    }

    async fn tell(&self, news: SessionNews) {
        let mut ends = self.ends.clone();
        tokio::select! {
            // If nobody listens any more there is nobody to tell.
            _ = self.news.send((self.id, news)) => {}
            () = ended(&mut ends) => {}
        }
    }
}

/// Waits until the other end is gone.
async fn ended(ends: &mut watch::Receiver<()>) {
    while ends.changed().await.is_ok() {}
}

impl AdminSide for Session {
    type Event = SessionNews;

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

    fn poll_event(&mut self, now: Instant) -> Option<SessionNews> {
        self.poll(now)
    }

    fn shutdown(&mut self, now: Instant) {
        self.leave(now);
    }

    fn is_shut_down(news: &SessionNews) -> bool {
        matches!(news, SessionNews::Asked)
    }
}
