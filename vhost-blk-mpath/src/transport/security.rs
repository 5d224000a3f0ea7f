//! Decides: an association generates its key for TLS (`begin`).
//!
//! How the connections to a subsystem are secured: in clear text, with TLS, with authentication, or with both.

use std::future::poll_fn;

use monotonic::{Duration, Instant};
use mpath_config::{DiskConfig, PathAddress};
use nvme_auth::GeneratedPsk;
use nvme_tcp::host::{ControllerConfig, HostConcatenation, HostIdentity};
use nvme_tcp::{Authenticated, Authentication};
use nvme_tls::psk::{Candidate, generated_candidate};
use tokio::time::timeout;

use super::clear_text::ClearTextPorts;
use super::control_socket::ControlSocket;
use super::error::{ConcatenationError, TransportError};
use super::host_secrets::HostSecrets;
use super::subsystem_key::SubsystemKey;
use super::tls;

/// The longest that the generation of a key may take. It is less than the limit for the connection of a queue, so an error names it.
const GENERATE_MAX: Duration = Duration::from_secs(4);

/// The warning about a disk whose generated keys do not prove the controller.
pub(crate) const UNPROVEN_CONTROLLER: &str = "`concat` without `dhchap-ctrl-secret-file`: TLS hides the data from those who only \
    listen, but any machine on the way to the target can pose as the target";

/// How the connections to a subsystem are secured.
#[derive(Debug, Clone)]
pub(crate) struct Security {
    /// The secrets of the authentication.
    secrets: Option<HostSecrets>,
    encryption: Encryption,
    ports: ClearTextPorts,
}

#[derive(Debug, Clone)]
enum Encryption {
    ClearText,
    /// TLS with a configured key.
    Configured(SubsystemKey),
    /// TLS with a key that the authentication of each association generates.
    Generated,
}

/// The key that the authentication of an association has generated, for all of the association's connections.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedKey {
    key: Candidate,
    /// The authentication.
    pub(crate) authenticated: Authenticated,
}

/// An association that begins: the connected socket of its admin queue, and what its queues need.
pub(crate) struct BegunAssociation {
    pub(crate) socket: ControlSocket,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) generated: Option<GeneratedKey>,
}

impl Security {
    /// The security of the disk's paths.
    pub(crate) fn of(config: &DiskConfig, host: &HostIdentity) -> Self {
        let encryption = match SubsystemKey::of(config, host) {
            Some(key) => Encryption::Configured(key),
            None if config.concat => Encryption::Generated,
            None => Encryption::ClearText,
        };
        Self { secrets: HostSecrets::of(config), encryption, ports: ClearTextPorts::default() }
    }

    /// Connects the socket of an admin queue. The caller limits the time.
    pub(crate) async fn begin(
        &self,
        address: &PathAddress,
        config: &ControllerConfig,
    ) -> Result<BegunAssociation, TransportError> {
        let mut authentication = match &self.secrets {
            Some(secrets) => Some(secrets.read().await?),
            None => None,
        };
        let mut generated = None;
        if let (Encryption::Generated, Some(authentication)) = (&self.encryption, &mut authentication) {
            generated = Some(generate_key(address, &self.ports, config, authentication).await?);
            // A controller with the key has proven itself, if it has to. It may trust the key, and give no other proof.
            authentication.controller_secret = None;
        }
        let socket = self.connect(address, generated.as_ref()).await?;
        Ok(BegunAssociation { socket, authentication, generated })
    }

    /// Connects the socket of a queue, with the generated key of its association if it needs one. The caller limits the time.
    pub(crate) async fn connect(
        &self,
        address: &PathAddress,
        generated: Option<&GeneratedKey>,
    ) -> Result<ControlSocket, TransportError> {
        match (&self.encryption, generated) {
            (Encryption::ClearText, _) => ControlSocket::connect_in_clear_text(address, &self.ports).await,
            (Encryption::Configured(key), _) => tls::connect(key, address).await,
            (Encryption::Generated, Some(generated)) => tls::connect_with(&generated.key, address).await,
            (Encryption::Generated, None) => Err(TransportError::NoGeneratedKey),
        }
    }
}

/// Has the controller generate a key with this host, over a connection in clear text.
async fn generate_key(
    address: &PathAddress,
    ports: &ClearTextPorts,
    config: &ControllerConfig,
    authentication: &Authentication,
) -> Result<GeneratedKey, TransportError> {
    let socket = ControlSocket::connect_in_clear_text(address, ports).await?;
    let host = HostConcatenation::new(config, authentication, Instant::now()).map_err(ConcatenationError::from)?;
    let generated = timeout(GENERATE_MAX.into(), authenticate(socket, host)).await;
    let (psk, authenticated) = generated.map_err(|_| ConcatenationError::Timeout { after: GENERATE_MAX })??;
    let key = generated_candidate(psk.as_bytes(), &config.host.hostnqn, &config.subnqn);
    Ok(GeneratedKey { key: key.map_err(ConcatenationError::from)?, authenticated })
}

async fn authenticate(
    mut socket: ControlSocket,
    mut host: HostConcatenation,
) -> Result<(GeneratedPsk, Authenticated), ConcatenationError> {
    loop {
        host.fill_tx(socket.out());
        let received = socket.exchange().map_err(|error| match error {
            TransportError::Unanswered(error) => ConcatenationError::NoClearText(error),
            error => ConcatenationError::Connection(error.into()),
        })?;
        match received.map(|bytes| host.receive(bytes)) {
            Some(Ok(Some(generated))) => return Ok(generated),
            Some(Ok(None)) => {}
            Some(Err(error)) => {
                host.term_req().into_iter().for_each(|pdu| socket.tell(&pdu));
                return Err(error.into());
            }
            None => poll_fn(|context| socket.poll_ready(context)).await,
        }
    }
}
