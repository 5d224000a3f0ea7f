//! The back-end channel, on which the back-end sends messages to the front-end. The front-end passes its descriptor
//! with `SET_BACKEND_REQ_FD`.
//!
//! The `vhost` crate (0.18) keeps that descriptor to itself and cannot send `CONFIG_CHANGE_MSG`, the one message needed
//! here. So `SET_BACKEND_REQ_FD` is read [before the crate sees it](crate::raw_message).

use std::fs::File;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use vhost::vhost_user::message::BackendReq;
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

use crate::raw_message::{Message, header};

/// The channel to a connected front-end.
#[derive(Debug)]
pub(crate) struct FrontendChannel(File);

impl FrontendChannel {
    /// The channel that a `SET_BACKEND_REQ_FD` message passes.
    pub(crate) fn from_message(message: Message) -> MessageResult<Self> {
        let [file] = <[File; 1]>::try_from(message.files).map_err(|_| MessageError::IncorrectFds)?;
        Ok(Self(file))
    }

    /// Asks the front-end to read the configuration space again. Requests no answer: the front-end may read the space
    /// before it answers, on the connection that the caller may be serving. Returns whether it will read the space.
    pub(crate) fn config_changed(&self) -> bool {
        let message = header(BackendReq::CONFIG_CHANGE_MSG.into(), 0, 0);
        // If the socket is full, unread messages say the same. A stream takes so short a message whole or not at all.
        let sent = send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        if let Err(error) = sent {
            tracing::debug!(%error, "cannot notify the front-end of a changed configuration space");
        }
        matches!(sent, Ok(_) | Err(Errno::AGAIN))
    }
}
