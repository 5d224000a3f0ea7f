//! Access to the fields of a message.

use super::{MessageError, MessageKind};

/// The bytes of a message whose fixed part is complete.
pub(super) struct Fields<'a> {
    kind: MessageKind,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(kind: MessageKind, bytes: &'a [u8]) -> Result<Self, MessageError> {
        let fields = Self { kind, bytes };
        fields.slice(0, kind.fixed_bytes())?;
        Ok(fields)
    }

    /// The byte at an offset in the fixed part.
    pub(super) fn u8(&self, at: usize) -> u8 {
        self.bytes[at]
    }

    /// The little-endian number at an offset in the fixed part.
    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The little-endian number at an offset in the fixed part.
    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) | u32::from(self.u16(at + 2)) << 16
    }

    /// `T_ID`, which every message has.
    pub(super) fn transaction(&self) -> u16 {
        self.u16(4)
    }

    /// A part of the message.
    pub(super) fn slice(&self, at: usize, length: usize) -> Result<&'a [u8], MessageError> {
        let (kind, bytes, needed) = (self.kind, self.bytes.len(), at + length);
        self.bytes.get(at..needed).ok_or(MessageError::TooShort { kind, bytes, needed })
    }

    /// HL at offset 6: bytes of a digest.
    pub(super) fn hash_bytes(&self) -> Result<usize, MessageError> {
        match self.u8(6) {
            length @ (32 | 48 | 64) => Ok(length.into()),
            length => Err(self.wrong("HL", length.into(), "32, 48 or 64")),
        }
    }

    /// DHVLEN at offset 10: bytes of a public value.
    pub(super) fn dh_value_bytes(&self) -> Result<usize, MessageError> {
        let length = usize::from(self.u16(10));
        if length > crate::protocol::DH_VALUE_BYTES_MAX {
            return Err(self.wrong("DHVLEN", length as u32, "0 to 1024"));
        }
        Ok(length)
    }

    /// A byte that says whether an optional part is valid.
    pub(super) fn flag(&self, field: &'static str, at: usize) -> Result<bool, MessageError> {
        match self.u8(at) {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.wrong(field, value.into(), "0 or 1")),
        }
    }

    /// The error of a field.
    pub(super) fn wrong(&self, field: &'static str, value: u32, allowed: &'static str) -> MessageError {
        MessageError::Field { kind: self.kind, field, value, allowed }
    }
}
