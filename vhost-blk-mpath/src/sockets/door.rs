//! Where the front-ends of a disk come in.

use std::os::unix::net::UnixStream;

use mpath_api::socket::ListeningSocket;
use tokio::sync::oneshot;

/// Where a disk's front-ends come from.
pub(crate) enum Door {
    /// One after the other.
    Listening(ListeningSocket),
    /// The only one there will be. When it has left, that is told.
    Connected(UnixStream, oneshot::Sender<()>),
}
