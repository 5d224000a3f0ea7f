//! Messages that the kernel sends unasked about network links (`RTNLGRP_LINK`) and their addresses.

use netlink_packet_core::{DecodeError, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::message::messages;

/// A link without all of these flags is down. `Running` is RFC 2863's operational state, `LowerUp` the carrier.
const UP: LinkFlags = LinkFlags::Up.union(LinkFlags::Running).union(LinkFlags::LowerUp);

/// A change of links or of their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// The state of a link. The link may be new, or any of its attributes may have changed.
    Link {
        /// As in `if_nametoindex`.
        index: u32,
        /// Its present name.
        name: String,
        /// Switched on, with a carrier, and ready for packets.
        up: bool,
    },
    /// A link is deleted.
    Deleted {
        /// Its index, which the kernel gives to no other link soon.
        index: u32,
    },
    /// A link has an address more or less, or an address with another state.
    Addresses,
    /// Events are missing, because the socket's buffer overran or a message cannot be read. Any link may have changed.
    Missed,
}

/// The events in a datagram of the kernel.
pub(crate) fn events(datagram: &[u8]) -> Vec<LinkEvent> {
    messages(datagram).filter_map(event).collect()
}

fn event(message: Result<NetlinkMessage<RouteNetlinkMessage>, DecodeError>) -> Option<LinkEvent> {
    let Ok(message) = message else { return Some(LinkEvent::Missed) };
    // Bridges report their ports by the same messages in a family of their own.
    let is_link = |link: &LinkMessage| link.header.interface_family == AddressFamily::Unspec;
    match message.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if is_link(&link) => {
            let name = link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            });
            let (index, up) = (link.header.index, link.header.flags.contains(UP));
            Some(name.map_or(LinkEvent::Missed, |name| LinkEvent::Link { index, name, up }))
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if is_link(&link) => {
            Some(LinkEvent::Deleted { index: link.header.index })
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_)) => {
            Some(LinkEvent::Addresses)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
