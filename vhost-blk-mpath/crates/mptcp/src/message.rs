//! Netlink messages as bytes.

use std::iter;

use netlink_packet_core::{
    DecodeError, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};

/// Messages and attributes begin at multiples of this.
const ALIGNMENT: usize = 4;

/// The messages in a datagram, up to the first that cannot be read.
pub(crate) fn messages<I: NetlinkDeserializable>(
    datagram: &[u8],
) -> impl Iterator<Item = Result<NetlinkMessage<I>, DecodeError>> {
    let mut rest = datagram;
    iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkMessage::deserialize(rest);
        let length = message.as_ref().map_or(rest.len(), |message| message.header.length as usize);
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some(message)
    })
}

/// The bytes of a message.
pub(crate) fn serialize<I: NetlinkSerializable>(flags: u16, payload: NetlinkPayload<I>) -> Vec<u8> {
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
    message.header.flags = flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len().next_multiple_of(ALIGNMENT)];
    message.serialize(&mut bytes);
    bytes
}
