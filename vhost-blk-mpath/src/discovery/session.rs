//! A session with a discovery controller: connect, read its log, and hear of changes until the connection is lost.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_host::CONNECT_MAX;
use mpath_host::discovery::{ASK_AGAIN, SessionId, SessionNews, Source};
use nvme_tcp::host::{
    ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLog, HostDiscovery, HostIdentity,
};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::transport::{self, AdminConnection, AdminSide, ControlSocket, TransportError};

/// See the module.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) source: Source<PathAddress>,
    pub(super) host: HostIdentity,
    /// Of a connection that is to stay.
    pub(super) keep_alive_tmo: Option<Duration>,
    pub(super) news: mpsc::Sender<(SessionId, SessionNews)>,
    /// The session ends when its other end is gone.
    pub(super) ends: watch::Receiver<()>,
}

/// How a session ended.
enum End {
    /// It was told to.
    Ordered,
    /// The connection was not to stay.
    Asked,
}

impl Session {
    pub(super) async fn run(self) {
        let over = match self.attempt().await {
            Ok(End::Ordered) => return,
            Ok(End::Asked) => SessionNews::Asked,
            Err(error) => {
                let refuses_to_stay = matches!(&error, TransportError::Discovery(error) if error.refuses_to_stay());
                SessionNews::Lost { error: error.to_string(), refuses_to_stay }
            }
        };
        let mut ends = self.ends.clone();
        tokio::select! {
            // If nobody listens any more there is nobody to tell.
            _ = self.news.send((self.id, over)) => {}
            () = ended(&mut ends) => {}
        }
    }

    async fn attempt(&self) -> Result<End, TransportError> {
        let mut ends = self.ends.clone();
        let (mut admin, peer, mut log) = tokio::select! {
            connected = self.connect() => connected?,
            () = ended(&mut ends) => return Ok(End::Ordered),
        };
        loop {
            if !self.tell_log(&mut admin, log, peer).await? {
                return Ok(End::Ordered);
            }
            if self.keep_alive_tmo.is_none() {
                admin.shutdown().await;
                return Ok(End::Asked);
            }
            log = loop {
                tokio::select! {
                    event = admin.next_event() => if let DiscoveryEvent::Log(log) = event? {
                        break log;
                    },
                    () = sleep(ASK_AGAIN), if !admin.controller.hears_changes() => admin.controller.reread(Instant::now()),
                    () = ended(&mut ends) => {
                        admin.shutdown().await;
                        return Ok(End::Ordered);
                    }
                }
            };
        }
    }

    /// A connection that has given its first log.
    async fn connect(&self) -> Result<(AdminConnection<HostDiscovery>, SocketAddr, Box<DiscoveryLog>), TransportError> {
        let stream = transport::connect(&self.source.address).await?;
        let peer = stream.peer_addr().map_err(TransportError::Socket)?;
        let config = DiscoveryConfig {
            host: self.host.clone(),
            subnqn: self.source.subnqn.clone(),
            keep_alive_tmo: self.keep_alive_tmo,
            command_timeout: CONNECT_MAX,
        };
        let discovery =
            HostDiscovery::new(config, Instant::now()).map_err(|error: ConfigError| DiscoveryError::from(error))?;
        let mut admin = AdminConnection::new(ControlSocket::new(stream), discovery);
        loop {
            if let DiscoveryEvent::Log(log) = admin.next_event().await? {
                return Ok((admin, peer, log));
            }
        }
    }

    /// Keeps the connection alive until somebody listens, who then hears the latest log; whether anybody does.
    async fn tell_log(
        &self,
        admin: &mut AdminConnection<HostDiscovery>,
        mut log: Box<DiscoveryLog>,
        peer: SocketAddr,
    ) -> Result<bool, TransportError> {
        let mut ends = self.ends.clone();
        loop {
            tokio::select! {
                biased;
                () = ended(&mut ends) => return Ok(false),
                permit = self.news.reserve() => {
                    let heard = permit.map(|permit| permit.send((self.id, SessionNews::Log { log, peer })));
                    return Ok(heard.is_ok());
                }
                event = admin.next_event() => if let DiscoveryEvent::Log(newer) = event? {
                    log = newer;
                },
            }
        }
    }
}

/// Waits until the other end is gone.
async fn ended(ends: &mut watch::Receiver<()>) {
    while ends.changed().await.is_ok() {}
}

impl AdminSide for HostDiscovery {
    type Event = DiscoveryEvent;

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

    fn poll_event(&mut self) -> Option<DiscoveryEvent> {
        self.poll_event()
    }

    fn shutdown(&mut self, now: Instant) {
        self.shutdown(now);
    }

    fn is_shut_down(event: &DiscoveryEvent) -> bool {
        matches!(event, DiscoveryEvent::ShutdownComplete)
    }
}
