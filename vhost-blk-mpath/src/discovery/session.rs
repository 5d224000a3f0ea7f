//! One discovery controller's task: connect, read its log, hear of changes; when it is lost, connect again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mpath_api::PathAddress;
use mpath_host::CONNECT_MAX;
use nvme_tcp::host::{
    ConfigError, DiscoveryConfig, DiscoveryError, DiscoveryEvent, DiscoveryLog, HostDiscovery, HostIdentity,
};
use nvme_tcp::wire::Nqn;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::transport::{self, AdminConnection, AdminSide, ControlSocket, TransportError};

/// How long it may take from the first packet to the first log.
pub(super) const FIRST_LOG_MAX: Duration = Duration::from_secs(10);

/// How often a controller that does not tell of changes is asked.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(60);

/// A discovery controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Source {
    pub(super) address: PathAddress,
    pub(super) subnqn: Nqn,
}

/// What a session has to say.
#[derive(Debug)]
pub(super) enum News {
    Log {
        log: Box<DiscoveryLog>,
        /// Where the connection leads.
        peer: SocketAddr,
        /// The connection stays.
        stays: bool,
    },
    /// There is no connection; attempts to get one go on.
    Lost(String),
}

/// See the module.
pub(super) struct Session {
    pub(super) source: Source,
    pub(super) host: HostIdentity,
    pub(super) keep_alive_tmo: Duration,
    pub(super) reconnect_delay: Duration,
    pub(super) news: mpsc::Sender<(Source, News)>,
    /// The session ends when its other end is gone.
    pub(super) ends: watch::Receiver<()>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("no discovery log within {} s", FIRST_LOG_MAX.as_secs())]
    FirstLog,
}

/// How an attempt ended.
enum End {
    /// It was told to.
    Ordered,
    /// The controller keeps no connections and has been asked.
    Asked,
    Failed(SessionError),
}

impl Session {
    pub(super) async fn run(mut self) {
        // Until the controller refuses: those before explicit persistent connections do.
        let mut stays = true;
        loop {
            let delay = match self.attempt(stays).await {
                End::Ordered => return,
                End::Asked => ASK_AGAIN,
                End::Failed(SessionError::Transport(TransportError::Discovery(error)))
                    if stays && error.refuses_to_stay() =>
                {
                    stays = false;
                    continue;
                }
                End::Failed(error) => {
                    stays = true;
                    if !self.tell(News::Lost(error.to_string())).await {
                        return;
                    }
                    self.reconnect_delay
                }
            };
            let mut ends = self.ends.clone();
            tokio::select! {
                () = sleep(delay) => {}
                () = ended(&mut ends) => return,
            }
        }
    }

    async fn attempt(&mut self, stays: bool) -> End {
        let mut ends = self.ends.clone();
        let connected = tokio::select! {
            connected = timeout(FIRST_LOG_MAX, self.connect(stays)) => connected,
            () = ended(&mut ends) => return End::Ordered,
        };
        let (mut admin, peer, mut log) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return End::Failed(error.into()),
            Err(_) => return End::Failed(SessionError::FirstLog),
        };
        loop {
            match self.tell_log(&mut admin, log, peer, stays).await {
                Ok(true) => {}
                Ok(false) => return End::Ordered,
                Err(error) => return End::Failed(error.into()),
            }
            if !stays {
                admin.shutdown().await;
                return End::Asked;
            }
            log = loop {
                tokio::select! {
                    event = admin.next_event() => match event {
                        Ok(DiscoveryEvent::Log(log)) => break log,
                        Ok(DiscoveryEvent::ShutdownComplete) => {}
                        Err(error) => return End::Failed(error.into()),
                    },
                    () = sleep(ASK_AGAIN), if !admin.controller.hears_changes() => admin.controller.reread(Instant::now()),
                    () = ended(&mut ends) => {
                        admin.shutdown().await;
                        return End::Ordered;
                    }
                }
            };
        }
    }

    /// A connection that has given its first log.
    async fn connect(
        &self,
        stays: bool,
    ) -> Result<(AdminConnection<HostDiscovery>, SocketAddr, Box<DiscoveryLog>), TransportError> {
        let stream = transport::connect(&self.source.address).await?;
        let peer = stream.peer_addr().map_err(TransportError::Socket)?;
        let config = DiscoveryConfig {
            host: self.host.clone(),
            subnqn: self.source.subnqn.clone(),
            keep_alive_tmo: stays.then_some(self.keep_alive_tmo),
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

    /// As [`Session::tell`], and keeps the connection alive until somebody listens, who then hears the latest log.
    async fn tell_log(
        &mut self,
        admin: &mut AdminConnection<HostDiscovery>,
        mut log: Box<DiscoveryLog>,
        peer: SocketAddr,
        stays: bool,
    ) -> Result<bool, TransportError> {
        let mut ends = self.ends.clone();
        loop {
            tokio::select! {
                biased;
                () = ended(&mut ends) => return Ok(false),
                permit = self.news.reserve() => {
                    let heard = permit.map(|permit| permit.send((self.source.clone(), News::Log { log, peer, stays })));
                    return Ok(heard.is_ok());
                }
                event = admin.next_event() => if let DiscoveryEvent::Log(newer) = event? {
                    log = newer;
                },
            }
        }
    }

    /// Whether anybody listens.
    async fn tell(&mut self, news: News) -> bool {
        let mut ends = self.ends.clone();
        tokio::select! {
            sent = self.news.send((self.source.clone(), news)) => sent.is_ok(),
            () = ended(&mut ends) => false,
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
