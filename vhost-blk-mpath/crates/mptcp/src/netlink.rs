//! Netlink messages and attributes, in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `NLMSG_ERROR`
pub(crate) const ERROR: u16 = 2;
/// `NLMSG_DONE`
pub(crate) const DONE: u16 = 3;
/// `NLM_F_REQUEST`
pub(crate) const REQUEST: u16 = 0x1;
/// `NLM_F_DUMP`
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_DUMP_INTR`
pub(crate) const DUMP_INTERRUPTED: u16 = 0x10;

/// Flags in an attribute's type: nested, or in network byte order.
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// Why bytes of the kernel cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A message that ends behind the bytes, or before its own header.
    #[error("a message of {length} bytes in {left}")]
    Message {
        /// What its header says.
        length: u32,
        /// What there is.
        left: usize,
    },
    /// Fewer bytes than a message's header has.
    #[error("{left} bytes where a message should begin")]
    Header {
        /// What there is.
        left: usize,
    },
    /// An attribute that ends behind its message, or before its own header.
    #[error("an attribute of {length} bytes in {left}")]
    Attribute {
        /// What its header says.
        length: u16,
        /// What there is.
        left: usize,
    },
    /// An attribute shorter than what it is to hold.
    #[error("attribute {kind} of {length} bytes")]
    Short {
        /// Its type.
        kind: u16,
        /// Its length.
        length: usize,
    },
    /// A message shorter than what it is to hold.
    #[error("a message of type {kind} with {length} bytes")]
    ShortMessage {
        /// Its type.
        kind: u16,
        /// Its length.
        length: usize,
    },
    /// An address family that was not asked for.
    #[error("address family {family}")]
    Family {
        /// As in `AF_INET`.
        family: u8,
    },
}

/// `struct nlmsghdr`
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) length: u32,
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) port: u32,
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) payload: &'a [u8],
}

/// The messages in what was received, up to the first that cannot be read.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = message(rest);
        rest = taken.as_ref().map_or(&[], |(_, tail)| tail);
        Some(taken.map(|(message, _)| message))
    })
}

fn message(bytes: &[u8]) -> Result<(Message<'_>, &[u8]), Malformed> {
    let left = bytes.len();
    let (header, _) = Header::read_from_prefix(bytes).map_err(|_| Malformed::Header { left })?;
    let Header { length, kind, flags, .. } = header;
    let payload = bytes.get(size_of::<Header>()..length as usize).ok_or(Malformed::Message { length, left })?;
    Ok((Message { kind, flags, payload }, after(bytes, length as usize)))
}

/// An attribute: its type and its value.
pub(crate) type Attribute<'a> = (u16, &'a [u8]);

/// The attributes in `bytes`, up to the first that cannot be read.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        // Less than a header is what fills up the message.
        let (&[l0, l1, k0, k1], _) = rest.split_first_chunk::<4>()?;
        let (length, left) = (u16::from_ne_bytes([l0, l1]), rest.len());
        let Some(value) = rest.get(4..length.into()) else {
            rest = &[];
            return Some(Err(Malformed::Attribute { length, left }));
        };
        rest = after(rest, length.into());
        Some(Ok((u16::from_ne_bytes([k0, k1]) & !ATTRIBUTE_FLAGS, value)))
    })
}

/// What follows something of `length` bytes; the last one may go without the bytes that fill it up.
fn after(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(4)..).unwrap_or_default()
}

/// A `u8` or a `u32` that an attribute holds.
pub(crate) fn value<T: FromBytes>((kind, value): Attribute<'_>) -> Result<T, Malformed> {
    T::read_from_prefix(value).map(|(value, _)| value).map_err(|_| Malformed::Short { kind, length: value.len() })
}

/// Adds an attribute.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A message with its header.
pub(crate) fn emit(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = (size_of::<Header>() + payload.len()) as u32;
    let mut bytes = Header { length, kind, flags, sequence: 0, port: 0 }.as_bytes().to_vec();
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_come_back(given in proptest::collection::vec(
            (any::<u16>(), any::<u16>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..6)
        ) {
            let bytes: Vec<u8> = given.iter().flat_map(|(kind, flags, payload)| emit(*kind, *flags, payload)).collect();
            let parsed: Result<Vec<_>, _> = messages(&bytes).collect();
            let parsed = parsed.map(|all| all.into_iter().map(|m| (m.kind, m.flags, m.payload.to_vec())).collect());
            prop_assert_eq!(parsed, Ok(given));
        }

        #[test]
        fn attributes_come_back(given in proptest::collection::vec(
            (0..0x4000_u16, proptest::collection::vec(any::<u8>(), 0..40)), 0..6)
        ) {
            let mut bytes = Vec::new();
            for (kind, value) in &given {
                push_attribute(&mut bytes, *kind, value);
            }
            let parsed: Result<Vec<_>, _> = attributes(&bytes).collect();
            prop_assert_eq!(parsed.map(|all| all.into_iter().map(|(k, v)| (k, v.to_vec())).collect()), Ok(given));
        }

        /// An end is found, and what is cut off is refused.
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(messages(&bytes).count() <= 1 + bytes.len() / size_of::<Header>());
            prop_assert!(attributes(&bytes).count() <= 1 + bytes.len() / 4);
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let whole = emit(20, 0, &[7; 8]);
        let cut = |length: usize| messages(&whole[..length]).next().unwrap().unwrap_err();
        assert_eq!(cut(23), Malformed::Message { length: 24, left: 23 });
        assert_eq!(cut(15), Malformed::Header { left: 15 });
        let lies = |length: u32| [&length.to_ne_bytes(), &whole[4..]].concat();
        for length in [0, 15, 25, u32::MAX] {
            let error = messages(&lies(length)).next().unwrap().unwrap_err();
            assert_eq!(error, Malformed::Message { length, left: 24 });
        }
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 2, &[7; 8]);
        let lies = |length: u16| [&length.to_ne_bytes(), &bytes[2..]].concat();
        for length in [0, 3, 13, u16::MAX] {
            let all: Vec<_> = attributes(&lies(length)).map(Result::unwrap_err).collect();
            assert_eq!(all, [Malformed::Attribute { length, left: 12 }]);
        }
    }

    /// The kernel marks nested attributes.
    #[test]
    fn flags_of_attributes_are_no_part_of_their_type() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3 | 0x8000, &[]);
        assert_eq!(attributes(&bytes).next(), Some(Ok((3, &[][..]))));
    }
}
