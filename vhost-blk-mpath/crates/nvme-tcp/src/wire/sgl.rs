//! The SGL descriptors that NVMe/TCP uses (Base 4.1.2, TCP Transport 3.3.1).

use super::Status;

/// The location of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sgl {
    /// Data Block with an offset: in the capsule, `offset` bytes after ICDOFF.
    InCapsule {
        /// Offset from the start of the in-capsule data, in bytes.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Transport Data Block: moved by R2T and `H2CData`, or by `C2HData`. Also the form of "no data", with length zero.
    Transport {
        /// Bytes.
        length: u32,
    },
}

impl Sgl {
    /// SGL identifier: Data Block (type 0h), Offset (subtype 1h).
    const ID_IN_CAPSULE: u8 = 0x01;
    /// SGL identifier: Transport Data Block (type 5h), transport specific (subtype Ah).
    const ID_TRANSPORT: u8 = 0x5a;

    /// No data.
    pub const NONE: Self = Self::Transport { length: 0 };

    /// Bytes of data.
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::InCapsule { length, .. } | Self::Transport { length } => length,
        }
    }

    /// The descriptor.
    #[must_use]
    #[inline]
    pub fn emit(self) -> [u8; 16] {
        let (address, length, id) = match self {
            Self::InCapsule { offset, length } => (offset, length, Self::ID_IN_CAPSULE),
            Self::Transport { length } => (0, length, Self::ID_TRANSPORT),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        bytes[15] = id;
        bytes
    }

    /// Parses the descriptor of a data pointer.
    ///
    /// # Errors
    /// SGL Descriptor Type Invalid for other kinds of descriptors.
    pub const fn parse(bytes: &[u8; 16]) -> Result<Self, Status> {
        let &[a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, _, _, _, id] = bytes;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        match id {
            Self::ID_IN_CAPSULE => {
                Ok(Self::InCapsule { offset: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]), length })
            }
            Self::ID_TRANSPORT => Ok(Self::Transport { length }),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(in_capsule: bool, offset: u64, length: u32) {
            let sgl = if in_capsule { Sgl::InCapsule { offset, length } } else { Sgl::Transport { length } };
            prop_assert_eq!(Sgl::parse(&sgl.emit()), Ok(sgl));
        }

        #[test]
        fn only_two_kinds_parse(bytes: [u8; 16]) {
            prop_assert_eq!(Sgl::parse(&bytes).is_ok(), matches!(bytes[15], 0x01 | 0x5a));
        }
    }
}
