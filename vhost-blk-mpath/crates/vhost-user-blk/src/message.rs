//! Messages that are taken off the connection before the `vhost` crate (0.18) sees them, because it makes something else of them than is wanted here.
//!
//! The crate reads the header of a message and then its body, never more, so between two of its calls the next message lies on the socket
//! untouched. A patched copy of the crate would be more to keep.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recv, recvmsg};
use vhost::vhost_user::message::{FrontendReq, MAX_ATTACHED_FD_ENTRIES, VhostUserHeaderFlag};
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// Request, flags and size: what every message begins with.
pub(crate) fn header(request: u32, flags: u32, size: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (field, value) in bytes.chunks_exact_mut(4).zip([request, VERSION | flags, size]) {
        field.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// A number of 32 bits that a message has there.
pub(crate) fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|&number| u32::from_ne_bytes(number))
}

/// The next message on the connection. Waits for it. `None` if it cannot be told.
pub(crate) fn next(connection: &UnixStream) -> Option<FrontendReq> {
    let mut request = [0; 4];
    // Hang-ups, errors, and a header that comes in crumbs: the message layer meets them too, and knows what to make of
    // them.
    let (_, bytes) = rustix::io::retry_on_intr(|| recv(connection, &mut request[..], RecvFlags::PEEK)).ok()?;
    (bytes == request.len()).then(|| FrontendReq::try_from(u32::from_ne_bytes(request)).ok()).flatten()
}

/// A message of a front-end.
#[derive(Debug)]
pub(crate) struct Message {
    /// Whether an [`answer`] is wanted, if the front-end may ask for that.
    pub(crate) answer_wanted: bool,
    /// What follows the header.
    pub(crate) body: Vec<u8>,
    /// Its descriptors, 32 at most.
    pub(crate) files: Vec<File>,
}

/// Takes the next message off the connection, which has so many bytes behind its header at most.
pub(crate) fn receive(mut connection: &UnixStream, body_max: usize) -> MessageResult<Message> {
    let mut head = [0; HEADER_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_ATTACHED_FD_ENTRIES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
        recvmsg(connection, &mut [IoSliceMut::new(&mut head)], &mut control, flags)
    });
    let received = received.map_err(|error| MessageError::SocketBroken(error.into()))?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files = rights.flatten().map(File::from).collect();

    let [request, flags, size] = [0, 4, 8].map(|at| number_at(&head, at).unwrap_or_default());
    let need_reply = VhostUserHeaderFlag::NEED_REPLY.bits();
    let expected = header(request, flags & need_reply, size);
    let is_cut = received.bytes < HEADER_BYTES || received.flags.contains(ReturnFlags::CTRUNC);
    if is_cut || head != expected || size as usize > body_max {
        return Err(MessageError::InvalidMessage);
    }
    let mut body = vec![0; size as usize];
    connection.read_exact(&mut body).map_err(MessageError::SocketBroken)?;
    Ok(Message { answer_wanted: flags & need_reply != 0, body, files })
}

/// Answers a message that was [received](receive): what it asked for is done.
pub(crate) fn answer(mut connection: &UnixStream, request: FrontendReq) -> MessageResult<()> {
    let mut reply = header(request.into(), VhostUserHeaderFlag::REPLY.bits(), 8).to_vec();
    reply.extend(0_u64.to_ne_bytes());
    connection.write_all(&reply).map_err(MessageError::SocketBroken)
}
