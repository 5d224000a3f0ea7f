//! Messages that the kernel sends without a request about network links (`RTNLGRP_LINK`) and their addresses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::netlink::{Malformed, Message, attributes, messages};

/// `RTM_NEWLINK`
const NEW_LINK: u16 = 16;
/// `RTM_DELLINK`
const DELETED_LINK: u16 = 17;
/// `RTM_NEWADDR`
const NEW_ADDRESS: u16 = 20;
/// `RTM_DELADDR`
const DELETED_ADDRESS: u16 = 21;
/// `IFLA_IFNAME`
const NAME: u16 = 3;
/// `AF_UNSPEC`: of a link itself. Bridges tell of their ports by the same messages in a family of their own.
const UNSPECIFIED: u8 = 0;

/// `IFF_UP`: switched on.
const UP: u32 = 1 << 0;
/// `IFF_RUNNING`: RFC 2863's `up`, or not known.
const RUNNING: u32 = 1 << 6;
/// `IFF_LOWER_UP`: has a carrier.
const LOWER_UP: u32 = 1 << 16;

/// `struct ifinfomsg`
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LinkHeader {
    family: u8,
    padding: u8,
    kind: u16,
    index: u32,
    flags: u32,
    change: u32,
}

/// What happened to links or their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// A link is new, or something about it has changed, or nothing that is shown here.
    Link {
        /// As in `if_nametoindex`.
        index: u32,
        /// Its name now.
        name: String,
        /// Switched on, with a carrier, and ready for packets.
        up: bool,
    },
    /// There is no such link any more.
    Gone {
        /// Its index, which no other link gets soon.
        index: u32,
    },
    /// Some link has an address more or less, or one of another state.
    Addresses,
    /// The kernel had more to tell than the socket holds, or it was not understood: all links have to be looked at.
    Lost,
}

/// The events in a datagram of the kernel's. What cannot be read counts as lost.
pub(crate) fn events(datagram: &[u8]) -> Vec<LinkEvent> {
    let read = |message: Result<Message<'_>, Malformed>| message.and_then(|message| event(&message));
    messages(datagram).filter_map(|message| read(message).unwrap_or(Some(LinkEvent::Lost))).collect()
}

fn event(message: &Message<'_>) -> Result<Option<LinkEvent>, Malformed> {
    let &Message { kind, payload, .. } = message;
    match kind {
        NEW_ADDRESS | DELETED_ADDRESS => return Ok(Some(LinkEvent::Addresses)),
        NEW_LINK | DELETED_LINK => {}
        _ => return Ok(None),
    }
    let (header, rest) =
        LinkHeader::read_from_prefix(payload).map_err(|_| Malformed::ShortMessage { kind, length: payload.len() })?;
    let LinkHeader { family, index, flags, .. } = header;
    if family != UNSPECIFIED {
        return Ok(None);
    }
    if kind == DELETED_LINK {
        return Ok(Some(LinkEvent::Gone { index }));
    }
    let mut name = None;
    for attribute in attributes(rest) {
        let (kind, value) = attribute?;
        if kind == NAME {
            name = Some(text(value));
        }
    }
    let name = name.ok_or(Malformed::Short { kind: NAME, length: 0 })?;
    let all = UP | RUNNING | LOWER_UP;
    Ok(Some(LinkEvent::Link { index, name, up: flags & all == all }))
}

/// What stands before the first zero.
fn text(value: &[u8]) -> String {
    let length = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..length]).into_owned()
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
