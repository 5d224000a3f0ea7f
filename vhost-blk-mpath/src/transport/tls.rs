//! Decides: the next TLS identity is offered.
//!
//! TLS of the connections to a subsystem, or to discovery controllers. There is no way back to clear text.

use mpath_config::PathAddress;
use nvme_tls::psk::Candidate;
use nvme_tls::{Session, TlsError};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;

use super::control_socket::{ControlSocket, receive, send};
use super::error::{TlsRefused, TransportError};
use super::stream::connect_stream;
use super::subsystem_key::{Progress, SubsystemKey};

/// Connects a connection. Each attempt offers one identity, because TLS shows only whether that one was accepted. The first
/// is the one that this address has accepted last. If the caller's time ends, the next call goes on with the next identity.
pub(super) async fn connect(key: &SubsystemKey, address: &PathAddress) -> Result<ControlSocket, TransportError> {
    let of_subsystem = key.clone();
    let candidates = spawn_blocking(move || of_subsystem.candidates()).await.expect("it does not panic")?;
    let count = candidates.len();
    let Progress { next, accepted } = key.progress(address);
    let mut last = TransportError::Closed;
    for offset in 0..count {
        let place = (next + offset) % count;
        let candidate = &candidates[place];
        let session = Session::host(candidate.clone()).map_err(TransportError::OpenSsl)?;
        let stream = connect_stream(address).await?;
        key.set_progress(address, Progress { next: place + 1, accepted });
        match handshake(stream, session).await {
            Ok(socket) => {
                key.set_progress(address, Progress { next: place, accepted: Some(place) });
                if accepted != Some(place) {
                    let setting = key.setting;
                    tracing::info!(path = %address, "the controller accepts the TLS key of {setting} with {candidate}");
                }
                return Ok(socket);
            }
            Err(error) if is_refusal(&error) => last = error,
            Err(error) => return Err(error),
        }
    }
    let SubsystemKey { setting, file, hostnqn, subnqn, .. } = key.clone();
    Err(TlsRefused { count, setting, file, hostnqn, subnqn, last: last.into() }.into())
}

/// Connects a connection with the generated key of its association, which has one identity.
pub(super) async fn connect_with(key: &Candidate, address: &PathAddress) -> Result<ControlSocket, TransportError> {
    let session = Session::host(key.clone()).map_err(TransportError::OpenSsl)?;
    handshake(connect_stream(address).await?, session).await.map_err(|error| match error {
        error if is_refusal(&error) => TransportError::GeneratedKeyRefused(error.into()),
        error => error,
    })
}

/// Whether the controller may accept another identity. Linux's target closes the connection without an alert.
fn is_refusal(error: &TransportError) -> bool {
    matches!(
        error,
        TransportError::Handshake(TlsError::Alert { .. }) | TransportError::Closed | TransportError::Socket(_)
    )
}

async fn handshake(stream: TcpStream, mut session: Session) -> Result<ControlSocket, TransportError> {
    let mut buffer = [0; 4096];
    loop {
        let done = match session.handshake() {
            Ok(done) => done,
            Err(error) => {
                // The controller may not get the alert.
                let _ = send(&stream, session.pending());
                return Err(TransportError::Handshake(error));
            }
        };
        while !session.is_sent() {
            stream.writable().await.map_err(TransportError::Socket)?;
            send(&stream, session.pending())?;
        }
        if done {
            return Ok(ControlSocket::with_tls(stream, session));
        }
        stream.readable().await.map_err(TransportError::Socket)?;
        if let Some(bytes) = receive(&stream, &mut buffer)? {
            session.receive(&buffer[..bytes]);
        }
    }
}
