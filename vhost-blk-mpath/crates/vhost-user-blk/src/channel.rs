//! The channel on which the back-end has something to say: the front-end's end of it comes with `SET_BACKEND_REQ_FD`.
//!
//! The `vhost` crate (0.18) takes that descriptor for itself, does not give it out again,
//! and has no way to send `CONFIG_CHANGE_MSG`, which is all that is to be said here. So that one message is taken off
//! the connection [before the crate sees it](crate::message).

use std::fs::File;

use rustix::net::{SendFlags, send};
use vhost::vhost_user::message::BackendReq;
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

use crate::message::{Message, header};

/// A front-end that listens.
#[derive(Debug)]
pub(crate) struct FrontendChannel(File);

impl FrontendChannel {
    /// The channel that `SET_BACKEND_REQ_FD` passes.
    pub(crate) fn of(message: Message) -> MessageResult<Self> {
        let [file] = <[File; 1]>::try_from(message.files).map_err(|_| MessageError::IncorrectFds)?;
        Ok(Self(file))
    }

    /// Says that the configuration space is to be read again. No answer is asked for: the front-end may read the space
    /// before it gives one, on the connection that the caller may be serving.
    pub(crate) fn config_changed(&self) {
        let message = header(BackendReq::CONFIG_CHANGE_MSG.into(), 0, 0);
        // If it does not fit, earlier ones were not read yet, and say the same. A stream takes so few bytes as a whole
        // or not at all.
        if let Err(error) = send(&self.0, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            tracing::debug!(%error, "the front-end is not told that the configuration has changed");
        }
    }
}
