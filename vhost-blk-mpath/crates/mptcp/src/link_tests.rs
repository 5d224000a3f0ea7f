use proptest::prelude::*;

use super::*;
use crate::netlink::{emit, push_attribute};

const ALL: u32 = UP | RUNNING | LOWER_UP;

fn link(kind: u16, header: LinkHeader, name: &str) -> Vec<u8> {
    let mut payload = header.as_bytes().to_vec();
    // The address comes first, as with the kernel's own.
    push_attribute(&mut payload, 1, &[2; 6]);
    push_attribute(&mut payload, NAME, &[name.as_bytes(), &[0]].concat());
    emit(kind, 0, &payload)
}

fn with_flags(flags: u32) -> LinkHeader {
    LinkHeader { index: 7, flags, ..LinkHeader::default() }
}

fn told(up: bool) -> LinkEvent {
    LinkEvent::Link { index: 7, name: "a0".into(), up }
}

#[test]
fn a_link_is_up_if_nothing_is_missing() {
    assert_eq!(events(&link(NEW_LINK, with_flags(ALL | 0x1002), "a0")), [told(true)]);
    for missing in [UP, RUNNING, LOWER_UP] {
        assert_eq!(events(&link(NEW_LINK, with_flags(ALL & !missing), "a0")), [told(false)], "{missing:#x}");
    }
}

#[test]
fn one_datagram_may_tell_of_several() {
    let datagram = [
        link(NEW_LINK, with_flags(0), "a0"),
        emit(DELETED_ADDRESS, 0, &[]),
        emit(NEW_ADDRESS, 0, &[]),
        link(DELETED_LINK, with_flags(0), "a0"),
        // A route, and a bridge's port.
        emit(24, 0, &[]),
        link(DELETED_LINK, LinkHeader { family: 7, ..with_flags(0) }, "a0"),
    ];
    let expected = [told(false), LinkEvent::Addresses, LinkEvent::Addresses, LinkEvent::Gone { index: 7 }];
    assert_eq!(events(&datagram.concat()), expected);
}

#[test]
fn what_cannot_be_read_is_lost_and_what_stands_before_it_is_not() {
    let whole = link(NEW_LINK, with_flags(ALL), "a0");
    let cut = [&whole[..], &whole[..whole.len() - 1]].concat();
    assert_eq!(events(&cut), [told(true), LinkEvent::Lost]);
    assert_eq!(events(&emit(NEW_LINK, 0, &[0; 15])), [LinkEvent::Lost]);
    // Without a name.
    assert_eq!(events(&emit(NEW_LINK, 0, with_flags(ALL).as_bytes())), [LinkEvent::Lost]);
}

proptest! {
    #[test]
    fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(events(&bytes).len() <= 1 + bytes.len() / 16);
    }

    #[test]
    fn any_link_comes_back(index: u32, flags: u32, name in "[a-z0-9@._-]{0,15}") {
        let header = LinkHeader { index, flags, ..LinkHeader::default() };
        let up = flags & ALL == ALL;
        prop_assert_eq!(events(&link(NEW_LINK, header, &name)), vec![LinkEvent::Link { index, name, up }]);
    }

    /// A message of a link yields an event with any payload.
    #[test]
    fn any_payload_is_an_event(mut payload in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(family) = payload.first_mut() {
            *family = UNSPECIFIED;
        }
        prop_assert_eq!(events(&emit(NEW_LINK, 0, &payload)).len(), 1);
    }
}
