//! Decides: a connection uses TLS (`connect`).
//!
//! TCP connections of the control thread.

mod clear_text;
pub(crate) mod connections;
mod control_socket;
mod error;
mod host_secrets;
mod lookup;
mod secret_check;
mod secret_file;
mod security;
mod stream;
mod subsystem_key;
mod tls;

use monotonic::{Duration, Instant};
use mpath_config::PathAddress;

pub(crate) use clear_text::ClearTextPorts;
pub(crate) use control_socket::ControlSocket;
pub(crate) use error::TransportError;
pub(crate) use secret_check::{SecretCheck, SecretError};
pub(crate) use security::{BegunAssociation, GeneratedKey, Security, UNPROVEN_CONTROLLER};
pub(crate) use stream::socket_addresses;
pub(crate) use subsystem_key::SubsystemKey;

/// Connects a socket for one queue pair, with TLS if there is a key. The caller limits the time.
pub(crate) async fn connect(
    address: &PathAddress,
    key: Option<&SubsystemKey>,
    ports: &ClearTextPorts,
) -> Result<ControlSocket, TransportError> {
    match key {
        Some(key) => tls::connect(key, address).await,
        None => ControlSocket::connect_in_clear_text(address, ports).await,
    }
}

pub(crate) fn far_future() -> Instant {
    const FAR: Duration = Duration::from_secs(24 * 60 * 60);
    Instant::now() + FAR
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use mpath_lifecycle::CONNECT_MAX;
    use nvme_tcp::host::{ControllerConfig, HostController, HostIdentity};
    use nvme_tcp::wire::Digests;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Over a real socket: the reset of the connection follows the PDU.
    #[tokio::test]
    async fn a_controller_that_breaks_the_protocol_gets_a_term_req() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
        let config = ControllerConfig {
            host: HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] },
            subnqn: "nqn.2014-08.org.example:disk".parse().unwrap(),
            nsids: Vec::new(),
            keep_alive_tmo: Duration::from_secs(5),
            digests: Digests::default(),
            io_queues: 1,
            queue_entries: 16,
            max_transfer_bytes: None,
            command_timeout: CONNECT_MAX,
            authentication: None,
            is_encrypted: false,
        };
        let mut socket = connect(&address, None, &ClearTextPorts::default()).await.unwrap();
        let mut controller = HostController::new(config, Instant::now()).unwrap();
        controller.fill_tx(socket.out());
        let (mut peer, _) = listener.accept().await.unwrap();
        // An ICResp with a length of 24 bytes.
        let bogus = [1, 0, 24, 0, 24, 0, 0, 0];
        peer.write_all(&bogus).await.unwrap();
        let received = loop {
            match socket.exchange().unwrap() {
                Some(bytes) => break controller.receive(Instant::now(), bytes),
                None => poll_fn(|context| socket.poll_ready(context)).await,
            }
        };
        assert!(received.is_err());
        socket.tell(&controller.term_req().unwrap());
        drop(socket);
        let mut sent = [0; 128 + 32];
        peer.read_exact(&mut sent).await.unwrap();
        let told = &sent[128..];
        assert_eq!((told[0], told[4], &told[8..14]), (2, 32, &[1, 0, 2, 0, 0, 0][..]));
        assert_eq!(told[24..], bogus);
    }
}
