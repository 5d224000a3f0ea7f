//! Fabrics commands: Connect, properties and authentication (Base 6).

use monotonic::Duration;

use super::sqe::{high, join, low};
use super::{Opcode, PropertyOffset, Sgl, Sqe, Status};

const FCTYPE_PROPERTY_SET: u8 = 0x00;
const FCTYPE_CONNECT: u8 = 0x01;
const FCTYPE_PROPERTY_GET: u8 = 0x04;
const FCTYPE_AUTHENTICATION_SEND: u8 = 0x05;
const FCTYPE_AUTHENTICATION_RECEIVE: u8 = 0x06;

/// SPSP0, SPSP1 and SECP in command dword 10: in-band authentication, whose SECP is E9h and whose SPSP is 0101h (Base 2.1, 8.3.4).
const SECURITY_PROTOCOL: u32 = 0xe9 << 24 | 0x0101 << 8;

/// The dwords of Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// QID: 0 for the admin queue.
    pub qid: u16,
    /// SQSIZE: entries of the queue, 0's-based.
    pub sqsize: u16,
    /// CATTR: connect attributes.
    pub cattr: u8,
    /// KATO in milliseconds; admin queues only.
    pub kato_ms: u32,
}

impl Connect {
    /// CATTR bit 2: the host does not follow SQHD, so it asks for no SQ flow control. The controller agrees by SQHD `FFFFh` in
    /// its response. `C2HData` with SUCCESS may then replace a response.
    pub const NO_SQ_FLOW_CONTROL: u8 = 1 << 2;

    /// KATO; zero for no keep-alive.
    #[must_use]
    pub const fn kato(&self) -> Duration {
        Duration::from_millis(self.kato_ms as u64)
    }
}

/// Size of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertySize {
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

/// A command of the fabrics command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Connect; its data is [`ConnectData`](super::ConnectData).
    Connect(Connect),
    /// Property Get. The result of the completion is the value.
    PropertyGet {
        /// Size of the property.
        size: PropertySize,
        /// The property.
        offset: PropertyOffset,
    },
    /// Property Set.
    PropertySet {
        /// Size of the property.
        size: PropertySize,
        /// The property.
        offset: PropertyOffset,
        /// The new value.
        value: u64,
    },
    /// Authentication Send: a message of in-band authentication from the host.
    AuthenticationSend {
        /// TL: bytes of the message, at least 1.
        bytes: u32,
    },
    /// Authentication Receive: a message of in-band authentication from the controller.
    AuthenticationReceive {
        /// AL: the most bytes to return, at least 1.
        bytes: u32,
    },
}

impl FabricsCommand {
    /// The submission queue entry.
    #[must_use]
    pub fn to_sqe(&self, cid: u16, sgl: Sgl) -> Sqe {
        let property = |size: PropertySize| u32::from(size == PropertySize::Eight);
        let (fctype, cdw) = match *self {
            Self::Connect(Connect { qid, sqsize, cattr, kato_ms }) => {
                (FCTYPE_CONNECT, [u32::from(qid) << 16, u32::from(sqsize) | u32::from(cattr) << 16, kato_ms, 0, 0, 0])
            }
            Self::PropertyGet { size, offset } => (FCTYPE_PROPERTY_GET, [property(size), offset.0, 0, 0, 0, 0]),
            Self::PropertySet { size, offset, value } => {
                (FCTYPE_PROPERTY_SET, [property(size), offset.0, low(value), high(value), 0, 0])
            }
            Self::AuthenticationSend { bytes } => (FCTYPE_AUTHENTICATION_SEND, [SECURITY_PROTOCOL, bytes, 0, 0, 0, 0]),
            Self::AuthenticationReceive { bytes } => {
                (FCTYPE_AUTHENTICATION_RECEIVE, [SECURITY_PROTOCOL, bytes, 0, 0, 0, 0])
            }
        };
        Sqe::new(Opcode::FABRICS, cid, fctype.into(), sgl).with_cdw(cdw)
    }

    /// Parses an entry with opcode [`Opcode::FABRICS`].
    ///
    /// # Errors
    /// The status to answer with.
    pub fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let [cdw10, cdw11, cdw12, cdw13, ..] = sqe.cdw();
        let size = match cdw10 & 7 {
            0 => Some(PropertySize::Four),
            1 => Some(PropertySize::Eight),
            _ => None,
        };
        let (size, offset) = (size.ok_or(Status::INVALID_FIELD.with_dnr()), PropertyOffset(cdw11));
        match sqe.nsid.get() as u8 {
            FCTYPE_CONNECT if cdw10 as u16 != 0 => Err(Status::CONNECT_INCOMPATIBLE_FORMAT.with_dnr()),
            FCTYPE_CONNECT => Ok(Self::Connect(Connect {
                qid: (cdw10 >> 16) as u16,
                sqsize: cdw11 as u16,
                cattr: (cdw11 >> 16) as u8,
                kato_ms: cdw12,
            })),
            FCTYPE_PROPERTY_GET => Ok(Self::PropertyGet { size: size?, offset }),
            FCTYPE_PROPERTY_SET => Ok(Self::PropertySet { size: size?, offset, value: join(cdw12, cdw13) }),
            FCTYPE_AUTHENTICATION_SEND | FCTYPE_AUTHENTICATION_RECEIVE
                if cdw10 & !0xff != SECURITY_PROTOCOL || cdw11 == 0 =>
            {
                Err(Status::INVALID_FIELD.with_dnr())
            }
            FCTYPE_AUTHENTICATION_SEND => Ok(Self::AuthenticationSend { bytes: cdw11 }),
            FCTYPE_AUTHENTICATION_RECEIVE => Ok(Self::AuthenticationReceive { bytes: cdw11 }),
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn any_command() -> impl Strategy<Value = FabricsCommand> {
        let size = prop_oneof![Just(PropertySize::Four), Just(PropertySize::Eight)];
        prop_oneof![
            any::<(u16, u16, u8, u32)>().prop_map(|(qid, sqsize, cattr, kato_ms)| {
                FabricsCommand::Connect(Connect { qid, sqsize, cattr, kato_ms })
            }),
            (size.clone(), any::<u32>())
                .prop_map(|(size, o)| FabricsCommand::PropertyGet { size, offset: PropertyOffset(o) }),
            (size, any::<u32>(), any::<u64>()).prop_map(|(size, o, value)| {
                FabricsCommand::PropertySet { size, offset: PropertyOffset(o), value }
            }),
            (1..=u32::MAX).prop_map(|bytes| FabricsCommand::AuthenticationSend { bytes }),
            (1..=u32::MAX).prop_map(|bytes| FabricsCommand::AuthenticationReceive { bytes }),
        ]
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(command in any_command(), cid: u16, length: u32) {
            let sgl = Sgl::InCapsule { offset: 0, length };
            let sqe = command.to_sqe(cid, sgl);
            prop_assert_eq!((sqe.opcode, sqe.cid.get(), Sgl::parse(&sqe.dptr)), (0x7f, cid, Ok(sgl)));
            prop_assert_eq!(FabricsCommand::parse(&sqe), Ok(command));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: [u8; 64]) {
            let _ = FabricsCommand::parse(&zerocopy::transmute!(bytes));
        }
    }

    #[test]
    fn authentication_commands_have_the_offsets_and_checks_of_linux() {
        let send = FabricsCommand::AuthenticationSend { bytes: 0x0102 }.to_sqe(0, Sgl::NONE);
        assert_eq!((send.as_bytes()[4], &send.as_bytes()[40..48]), (5, &[0, 1, 1, 0xe9, 2, 1, 0, 0][..]));
        let receive = FabricsCommand::AuthenticationReceive { bytes: 4096 }.to_sqe(0, Sgl::NONE);
        assert_eq!((receive.as_bytes()[4], &receive.as_bytes()[40..48]), (6, &[0, 1, 1, 0xe9, 0, 16, 0, 0][..]));
        // SPSP0, SPSP1, SECP and the only byte of AL that is not zero.
        for at in [41, 42, 43, 45] {
            let mut bytes: [u8; 64] = zerocopy::transmute!(receive);
            bytes[at] = 0;
            assert_eq!(FabricsCommand::parse(&zerocopy::transmute!(bytes)), Err(Status::INVALID_FIELD.with_dnr()));
        }
    }

    #[test]
    fn connect_field_offsets_match_the_specification() {
        let connect = Connect { qid: 0x0102, sqsize: 0x0304, cattr: 5, kato_ms: 0x0607_0809 };
        let sqe = FabricsCommand::Connect(connect).to_sqe(0x1122, Sgl::InCapsule { offset: 0, length: 1024 });
        let bytes = sqe.as_bytes();
        assert_eq!(bytes[..5], [0x7f, 0x40, 0x22, 0x11, 1]);
        assert_eq!(bytes[40..52], [0, 0, 2, 1, 4, 3, 5, 0, 9, 8, 7, 6]);
        let set =
            FabricsCommand::PropertySet { size: PropertySize::Four, offset: PropertyOffset::CC, value: 0x46_0001 };
        assert_eq!(set.to_sqe(0, Sgl::NONE).as_bytes()[40..56], [0, 0, 0, 0, 0x14, 0, 0, 0, 1, 0, 0x46, 0, 0, 0, 0, 0]);
    }
}
