//! Decides: a connection of a client is accepted.
//!
//! The loop that accepts connections, on a Unix socket or over TCP.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mpath_api::types::Caller;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::caller::peer;
use super::connections::{Connections, Stream};
use crate::socket::ListeningSocket;

/// Pause after a failed `accept`, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time that requests under way have when the server ends.
const END_GRACE: Duration = Duration::from_secs(1);

/// A listening socket.
pub(super) trait Listener {
    /// Where it listens, for the log.
    const NAME: &str;
    type Stream: Stream;

    /// The next connection, and its client if the kernel knows that.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<Caller>)>> + Send;
}

/// The listener of an API socket. Dropping it removes the socket file.
pub(super) struct ApiListener {
    pub(super) listener: UnixListener,
    pub(super) _socket: Arc<ListeningSocket>,
}

impl Listener for ApiListener {
    const NAME: &str = "the API socket";
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<Caller>)> {
        let (stream, _) = self.listener.accept().await?;
        let caller = peer(&stream);
        Ok((stream, caller))
    }
}

impl Listener for TcpListener {
    const NAME: &str = "`metrics-address`";
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<Caller>)> {
        Ok((self.accept().await?.0, None))
    }
}

/// Accepts connections until `shutdown` completes. Then drops the listener, and ends within about a second.
pub(super) async fn serve<L: Listener>(listener: L, mut connections: Connections, shutdown: impl Future<Output = ()>) {
    let mut shutdown = pin!(shutdown);
    // Without free descriptors each attempt fails. One line is enough until one succeeds.
    let mut fails = false;
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.next(), if connections.has_room() => match accepted {
                Ok((stream, caller)) => {
                    fails = false;
                    connections.start(stream, caller);
                }
                Err(error) => {
                    if !std::mem::replace(&mut fails, true) {
                        tracing::warn!(%error, "cannot accept a connection on {}", L::NAME);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            () = connections.reap(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    connections.finish(END_GRACE).await;
}
