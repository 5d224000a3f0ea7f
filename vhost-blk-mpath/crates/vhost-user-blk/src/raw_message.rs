//! Messages that are read from the connection before the `vhost` crate (0.18) sees them, because the crate handles them
//! differently from what is needed.
//!
//! The crate reads the header of a message, then its body, and never more. So between two of its calls the next message
//! lies on the socket untouched. A patched copy of the crate would be more to maintain.

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

/// The header of a message: request, flags and size.
pub(crate) fn header(request: u32, flags: u32, size: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (field, value) in bytes.chunks_exact_mut(4).zip([request, VERSION | flags, size]) {
        field.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// The 32-bit number at offset `at` of a message.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|&number| u32::from_ne_bytes(number))
}

/// Waits for the next message and returns the number of its request without reading it. `None` if that cannot be read.
pub(crate) fn peek_request(connection: &UnixStream) -> Option<u32> {
    let mut request = [0; 4];
    // The message layer meets hang-ups, errors and partial headers too, and handles them.
    let (_, bytes) = rustix::io::retry_on_intr(|| recv(connection, &mut request[..], RecvFlags::PEEK)).ok()?;
    (bytes == request.len()).then(|| u32::from_ne_bytes(request))
}

/// A message of a front-end.
#[derive(Debug)]
pub(crate) struct Message {
    /// Whether the front-end asks for an [`answer`].
    pub(crate) answer_wanted: bool,
    /// The bytes behind the header.
    pub(crate) body: Vec<u8>,
    /// The attached descriptors, 32 at most.
    pub(crate) files: Vec<File>,
}

/// Reads the next message, with a body of at most `body_max` bytes.
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

    let [request, flags, size] = [0, 4, 8].map(|at| u32_at(&head, at).unwrap_or_default());
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

/// Answers a [received](receive) message with success.
pub(crate) fn answer(mut connection: &UnixStream, request: FrontendReq) -> MessageResult<()> {
    let mut reply = header(request.into(), VhostUserHeaderFlag::REPLY.bits(), 8).to_vec();
    reply.extend(0_u64.to_ne_bytes());
    connection.write_all(&reply).map_err(MessageError::SocketBroken)
}
