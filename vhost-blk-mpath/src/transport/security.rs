//! How the connections to a subsystem are secured: in clear text, with TLS, with authentication, or with both.

use std::future::poll_fn;
use std::time::Instant;

use mpath_api::PathAddress;
use mpath_api::config::DiskConfig;
use nvme_auth::GeneratedPsk;
use nvme_tcp::host::{ControllerConfig, HostConcatenation, HostIdentity};
use nvme_tcp::{Authenticated, Authentication};
use nvme_tls::psk::{Candidate, generated_candidate};
use tokio::time::sleep_until;

use super::control_socket::ControlSocket;
use super::error::TransportError;
use super::host_secrets::HostSecrets;
use super::stream::connect_stream;
use super::subsystem_key::SubsystemKey;
use super::{connect, far_future, tls};

/// How the connections to a subsystem are secured.
#[derive(Debug, Clone)]
pub(crate) struct Security {
    /// The configured key for TLS.
    key: Option<SubsystemKey>,
    /// The secrets of the authentication.
    secrets: Option<HostSecrets>,
    /// The authentication generates the key for TLS.
    concat: bool,
}

/// The key that the authentication of an association has generated, for all of the association's connections.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedKey {
    key: Candidate,
    /// The authentication.
    pub(crate) authenticated: Authenticated,
}

/// The begin of an association: the connected socket of its admin queue, and what its queues need.
pub(crate) struct Begin {
    pub(crate) socket: ControlSocket,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) generated: Option<GeneratedKey>,
}

impl Security {
    /// The security of the disk's paths.
    pub(crate) fn of(config: &DiskConfig, host: &HostIdentity) -> Self {
        let (key, secrets) = (SubsystemKey::of(config, host), HostSecrets::of(config));
        Self { key, secrets, concat: config.concat }
    }

    /// Connects the socket of an admin queue. The caller limits the time.
    pub(crate) async fn begin(
        &self,
        address: &PathAddress,
        config: &ControllerConfig,
    ) -> Result<Begin, TransportError> {
        let mut authentication = match &self.secrets {
            Some(secrets) => Some(secrets.read().await?),
            None => None,
        };
        let mut generated = None;
        if let Some(authentication) = authentication.as_mut().filter(|_| self.concat) {
            generated = Some(generate_key(address, config, authentication).await?);
            // The controller has proven itself, and only it has the key. A controller that trusts the key gives no other proof.
            authentication.controller_secret = None;
        }
        let socket = self.connect(address, generated.as_ref()).await?;
        Ok(Begin { socket, authentication, generated })
    }

    /// Connects the socket of a queue, with the generated key of its association if there is one. The caller limits the time.
    pub(crate) async fn connect(
        &self,
        address: &PathAddress,
        generated: Option<&GeneratedKey>,
    ) -> Result<ControlSocket, TransportError> {
        match generated {
            Some(generated) => tls::connect_with(&generated.key, address).await,
            None => connect(address, self.key.as_ref()).await,
        }
    }
}

/// Has the controller generate a key with this host, over a connection in clear text.
async fn generate_key(
    address: &PathAddress,
    config: &ControllerConfig,
    authentication: &Authentication,
) -> Result<GeneratedKey, TransportError> {
    let mut socket = ControlSocket::new(connect_stream(address).await?, None);
    let host = HostConcatenation::new(config, authentication, Instant::now()).map_err(TransportError::Concatenation)?;
    let (psk, authenticated) = authenticate(&mut socket, host).await.map_err(|error| match error {
        TransportError::Unanswered(error) => TransportError::NoClearText(error),
        error => error,
    })?;
    let key = generated_candidate(psk.as_bytes(), &config.host.hostnqn, &config.subnqn)?;
    Ok(GeneratedKey { key, authenticated })
}

async fn authenticate(
    socket: &mut ControlSocket,
    mut host: HostConcatenation,
) -> Result<(GeneratedPsk, Authenticated), TransportError> {
    loop {
        host.fill_tx(socket.out());
        if let Some(bytes) = socket.exchange()? {
            match host.receive(bytes) {
                Ok(Some(generated)) => return Ok(generated),
                Ok(None) => {}
                Err(error) => {
                    host.term_req().into_iter().for_each(|pdu| socket.tell(&pdu));
                    return Err(TransportError::Admin(error));
                }
            }
            continue;
        }
        let next_timeout = host.next_timeout().unwrap_or_else(far_future);
        tokio::select! {
            () = poll_fn(|context| socket.poll_ready(context)) => {}
            () = sleep_until(next_timeout.into()) => host.handle_timeout(Instant::now()).map_err(TransportError::Admin)?,
        }
    }
}
