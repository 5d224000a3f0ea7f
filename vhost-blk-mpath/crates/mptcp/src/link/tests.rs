use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::route::RouteMessage;
use proptest::prelude::*;

use super::*;
use crate::message::serialize;

fn link(family: AddressFamily, index: u32, flags: LinkFlags, name: &str) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.interface_family = family;
    link.header.index = index;
    link.header.flags = flags;
    link.attributes = vec![LinkAttribute::Address(vec![2; 6]), LinkAttribute::IfName(name.into())];
    link
}

fn a0(flags: LinkFlags) -> LinkMessage {
    link(AddressFamily::Unspec, 7, flags, "a0")
}

fn bytes(message: RouteNetlinkMessage) -> Vec<u8> {
    serialize(0, message.into())
}

fn new_link(link: LinkMessage) -> Vec<u8> {
    bytes(RouteNetlinkMessage::NewLink(link))
}

fn event_of_a0(up: bool) -> LinkEvent {
    LinkEvent::Link { index: 7, name: "a0".into(), up }
}

#[test]
fn a_link_is_up_with_all_flags() {
    assert_eq!(events(&new_link(a0(UP | LinkFlags::Broadcast | LinkFlags::Multicast))), [event_of_a0(true)]);
    for missing in UP.iter() {
        assert_eq!(events(&new_link(a0(UP - missing))), [event_of_a0(false)], "{missing:?}");
    }
}

#[test]
fn a_datagram_may_have_several_events() {
    let no_flags = LinkFlags::empty();
    let datagram = [
        RouteNetlinkMessage::NewLink(a0(no_flags)),
        RouteNetlinkMessage::DelAddress(AddressMessage::default()),
        RouteNetlinkMessage::NewAddress(AddressMessage::default()),
        RouteNetlinkMessage::DelLink(a0(no_flags)),
        RouteNetlinkMessage::NewRoute(RouteMessage::default()),
        RouteNetlinkMessage::DelLink(link(AddressFamily::Bridge, 7, no_flags, "a0")),
    ];
    let expected = [event_of_a0(false), LinkEvent::Addresses, LinkEvent::Addresses, LinkEvent::Deleted { index: 7 }];
    assert_eq!(events(&datagram.map(bytes).concat()), expected);
}

#[test]
fn messages_before_an_unreadable_one_count() {
    let whole = new_link(a0(UP));
    let cut = [&whole[..], &whole[..whole.len() - 4]].concat();
    assert_eq!(events(&cut), [event_of_a0(true), LinkEvent::Missed]);
    let mut without_a_name = a0(UP);
    without_a_name.attributes.clear();
    assert_eq!(events(&new_link(without_a_name)), [LinkEvent::Missed]);
}

proptest! {
    #[test]
    fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(events(&bytes).len() <= 1 + bytes.len() / 16);
    }

    #[test]
    fn any_link_is_read(index: u32, flags: u32, name in "[a-z0-9@._-]{0,15}") {
        let flags = LinkFlags::from_bits_retain(flags);
        let message = new_link(link(AddressFamily::Unspec, index, flags, &name));
        prop_assert_eq!(events(&message), vec![LinkEvent::Link { index, name, up: flags.contains(UP) }]);
    }

    /// Whatever its payload, a message about a link is an event.
    #[test]
    fn any_payload_is_an_event(payload in proptest::collection::vec(any::<u8>(), 1..80)) {
        let mut message = new_link(a0(UP));
        message.truncate(16);
        message.push(0);
        message.extend(&payload);
        message[0] = message.len() as u8;
        prop_assert_eq!(events(&message).len(), 1);
    }
}
