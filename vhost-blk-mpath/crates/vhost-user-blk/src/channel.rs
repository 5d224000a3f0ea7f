//! The channel on which the back-end has something to say: the front-end's end of it comes with `SET_BACKEND_REQ_FD`.
//!
//! The `vhost` crate (0.18) takes that descriptor for itself, does not give it out again,
//! and has no way to send `CONFIG_CHANGE_MSG`, which is all that is to be said here. So that one message is taken off
//! the connection before the crate sees it: the crate reads the header of a message and then its body, never more, so
//! between two of its calls the next message lies on the socket untouched. A patched copy of the crate would be more to
//! keep.

use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recv, recvmsg, send};
use vhost::vhost_user::message::{BackendReq, FrontendReq, VhostUserHeaderFlag};
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// Request, flags and size: what every message begins with.
fn header(request: u32, flags: u32, size: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (field, value) in bytes.chunks_exact_mut(4).zip([request, VERSION | flags, size]) {
        field.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// A front-end that listens.
#[derive(Debug)]
pub(crate) struct FrontendChannel(OwnedFd);

impl FrontendChannel {
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

/// Whether the next message on the connection passes the channel. Waits for it.
pub(crate) fn is_next(connection: &UnixStream) -> bool {
    let mut request = [0; 4];
    // Hang-ups, errors, and a header that comes in crumbs: the message layer meets them too, and knows what to make of
    // them.
    let peeked = rustix::io::retry_on_intr(|| recv(connection, &mut request[..], RecvFlags::PEEK));
    peeked.is_ok_and(|(_, bytes)| bytes == request.len())
        && u32::from_ne_bytes(request) == u32::from(FrontendReq::SET_BACKEND_REQ_FD)
}

/// Takes the message that passes the channel off the connection. With it: whether an [`answer`] is wanted.
pub(crate) fn receive(connection: &UnixStream) -> MessageResult<(FrontendChannel, bool)> {
    let mut message = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            connection,
            &mut [IoSliceMut::new(&mut message)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
        )
    });
    let received = received.map_err(|error| MessageError::SocketBroken(error.into()))?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.next().and_then(|mut files| files.next());

    let [request, flags, size] = [0, 4, 8].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| message[at + byte])));
    let need_reply = VhostUserHeaderFlag::NEED_REPLY.bits();
    let expected = header(request, flags & need_reply, size);
    if received.bytes < HEADER_BYTES || received.flags.contains(ReturnFlags::CTRUNC) || message != expected || size != 0
    {
        return Err(MessageError::InvalidMessage);
    }
    Ok((FrontendChannel(file.ok_or(MessageError::IncorrectFds)?), flags & need_reply != 0))
}

/// Answers the message that passed the channel. The front-end may count on the channel from then on.
pub(crate) fn answer(mut connection: &UnixStream) -> MessageResult<()> {
    let mut reply = header(FrontendReq::SET_BACKEND_REQ_FD.into(), VhostUserHeaderFlag::REPLY.bits(), 8).to_vec();
    reply.extend(0_u64.to_ne_bytes());
    connection.write_all(&reply).map_err(MessageError::SocketBroken)
}
