//! The channel between a daemon and the process that takes over: messages in JSON, and the listening sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mpath_api::types::Caller;
use mpath_api_server::socket::Role;
use mpath_config::MetricsAddress;
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the format of messages. This program understands no other.
pub(super) const FORMAT: u32 = 1;
/// The most sockets of a message. The kernel takes at most 253 descriptors.
const SOCKETS_MAX: usize = 128;
/// More than the longest message: a path has at most 107 bytes and an NQN 223, which JSON writes with at most six characters
/// each.
const MESSAGE_MAX: usize = 512 << 10;

/// A listening socket in a message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SocketName {
    /// Its path as the configuration spells it.
    pub(super) path: String,
    /// Device and inode of its file, which goes with it.
    pub(super) file: Option<(u64, u64)>,
    /// The disk of a connected front-end.
    pub(super) in_use_by: Option<String>,
    /// The use of the socket. `None` for a socket that was passed to the daemon.
    pub(super) role: Option<Role>,
}

/// A message of the daemon. Each socket of the list has a descriptor, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandOver {
    pub(super) format: u32,
    pub(super) version: String,
    /// Take over even if a disk is reached over no path.
    pub(super) force: bool,
    /// The `metrics-address` of the daemon, if it has one. `None`: it is of a version that does not say.
    #[serde(default)]
    pub(super) metrics: Option<Vec<MetricsAddress>>,
    /// Who upgrades.
    #[serde(default)]
    pub(super) by: Option<Caller>,
    pub(super) sockets: Vec<SocketName>,
    pub(super) is_last: bool,
}

/// The answer of the new process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It takes over once the daemon has ended.
    Ready { version: String },
    /// It does not take over.
    Failed { reason: String },
}

/// An end of the channel.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    /// A channel, and the descriptor of its other end.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(one), other))
    }

    /// Sends listening sockets.
    pub(super) fn send_sockets(
        &self,
        version: &str,
        force: bool,
        metrics: Option<MetricsAddress>,
        by: Option<&Caller>,
        sockets: &[(SocketName, BorrowedFd<'_>)],
    ) -> io::Result<()> {
        // One message is sent even without a socket.
        let count = sockets.len().div_ceil(SOCKETS_MAX).max(1);
        for index in 0..count {
            let part = &sockets[sockets.len().min(index * SOCKETS_MAX)..sockets.len().min((index + 1) * SOCKETS_MAX)];
            let named = |(name, _): &(SocketName, _)| name.clone();
            let message = HandOver {
                format: FORMAT,
                version: version.into(),
                force,
                metrics: Some(metrics.into_iter().collect()),
                by: by.cloned(),
                sockets: part.iter().map(named).collect(),
                is_last: index + 1 == count,
            };
            let descriptors: Vec<_> = part.iter().map(|(_, socket)| *socket).collect();
            self.send(&message, &descriptors)?;
        }
        Ok(())
    }

    /// Sends a message with descriptors.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("too many descriptors for a message"));
        }
        retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Receives a message with its descriptors. `None` if the other end is closed. Blocks.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut text = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = descriptors.flatten().collect();
        Ok(Some((serde_json::from_slice(&text[..received.bytes])?, descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn any_number_of_sockets_arrives_in_order() {
        let place = tempfile::tempdir().unwrap();
        for count in [0, 1, SOCKETS_MAX, SOCKETS_MAX + 1, 3 * SOCKETS_MAX] {
            let (ours, theirs) = Channel::pair().unwrap();
            let theirs = Channel::from(theirs);
            let path = |index| place.path().join(format!("{count}-{index}"));
            let listeners: Vec<_> = (0..count).map(|index| UnixListener::bind(path(index)).unwrap()).collect();
            let identity = |index: usize| index.is_multiple_of(2).then_some((index as u64, 7));
            let name = |index: usize| SocketName {
                path: path(index).to_str().unwrap().into(),
                file: identity(index),
                in_use_by: None,
                role: Some(Role::VhostUser),
            };
            let sockets: Vec<_> = listeners.iter().enumerate().map(|(index, it)| (name(index), it.as_fd())).collect();
            let by = Caller::new(7, Some(812));
            ours.send_sockets("0.1.0", true, None, Some(&by), &sockets).unwrap();
            let mut received = Vec::new();
            loop {
                let (message, descriptors): (HandOver, _) = theirs.receive().unwrap().unwrap();
                assert_eq!((message.format, &*message.version, message.force), (FORMAT, "0.1.0", true));
                assert_eq!(message.by, Some(by.clone()));
                assert_eq!(message.sockets.len(), descriptors.len());
                received.extend(message.sockets.into_iter().zip(descriptors));
                if message.is_last {
                    break;
                }
            }
            assert_eq!(received.len(), count);
            for (index, (name, descriptor)) in received.into_iter().enumerate() {
                assert_eq!((name.path, name.file), (path(index).to_str().unwrap().to_owned(), identity(index)));
                let address = UnixListener::from(descriptor).local_addr().unwrap();
                assert_eq!(address.as_pathname().unwrap(), path(index));
            }
            drop(ours);
            assert!(theirs.receive::<HandOver>().unwrap().is_none());
        }
    }
}
