//! The source of a disk's front-ends.

use std::os::unix::net::UnixStream;

use mpath_api_server::socket::ListeningSocket;
use tokio::sync::oneshot;

/// The source of a disk's front-ends.
pub(crate) enum FrontendSource {
    /// A listening socket: front-ends connect one after the other.
    Listening(ListeningSocket),
    /// The connection of the only front-end. The sender reports when it has left.
    Connected(UnixStream, oneshot::Sender<()>),
}
