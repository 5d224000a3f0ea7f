//! Connect data and results (Base 6.3).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Nqn, Status};

/// CNTLID of a Connect to any controller (the dynamic controller model). Admin queues always request this.
pub const CNTLID_ANY: u16 = 0xffff;

/// Connect data, 1024 bytes on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectData {
    /// HOSTID: the UUID of the host.
    pub hostid: [u8; 16],
    /// CNTLID: [`CNTLID_ANY`] for an admin queue, otherwise the controller that the I/O queue joins.
    pub cntlid: u16,
    /// SUBNQN.
    pub subnqn: Nqn,
    /// HOSTNQN.
    pub hostnqn: Nqn,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    hostid: [u8; 16],
    cntlid: U16,
    reserved: [u8; 238],
    subnqn: [u8; 256],
    hostnqn: [u8; 256],
    reserved_end: [u8; 256],
}

const _: () = assert!(size_of::<Raw>() == ConnectData::LEN);

impl ConnectData {
    /// Bytes on the wire.
    pub const LEN: usize = 1024;

    /// The data in wire format.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        zerocopy::transmute!(Raw {
            hostid: self.hostid,
            cntlid: self.cntlid.into(),
            reserved: [0; 238],
            subnqn: self.subnqn.emit(),
            hostnqn: self.hostnqn.emit(),
            reserved_end: [0; 256],
        })
    }

    /// Parses the data of a Connect.
    ///
    /// # Errors
    /// The malformed field. [`ConnectField::invalid`] returns the answer.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ConnectField> {
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        Ok(Self {
            hostid: raw.hostid,
            cntlid: raw.cntlid.get(),
            subnqn: Nqn::parse(&raw.subnqn).map_err(|_| ConnectField::Subnqn)?,
            hostnqn: Nqn::parse(&raw.hostnqn).map_err(|_| ConnectField::Hostnqn)?,
        })
    }
}

/// The field for which a Connect was refused: IPO and IATTR of the completion's result (Base, figure 381).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectField {
    /// RECFMT, in the command.
    Recfmt,
    /// QID, in the command.
    Qid,
    /// SQSIZE, in the command.
    Sqsize,
    /// CATTR, in the command.
    Cattr,
    /// KATO, in the command.
    Kato,
    /// HOSTID, in the data.
    Hostid,
    /// CNTLID, in the data.
    Cntlid,
    /// SUBNQN, in the data.
    Subnqn,
    /// HOSTNQN, in the data.
    Hostnqn,
    /// Another offset.
    Other {
        /// Byte offset.
        offset: u16,
        /// The offset is in the data and not in the command.
        in_data: bool,
    },
}

impl ConnectField {
    const fn place(self) -> (u16, bool) {
        match self {
            Self::Recfmt => (40, false),
            Self::Qid => (42, false),
            Self::Sqsize => (44, false),
            Self::Cattr => (46, false),
            Self::Kato => (48, false),
            Self::Hostid => (0, true),
            Self::Cntlid => (16, true),
            Self::Subnqn => (256, true),
            Self::Hostnqn => (512, true),
            Self::Other { offset, in_data } => (offset, in_data),
        }
    }

    /// Parses the result of a refused Connect.
    #[must_use]
    pub const fn from_result(result: u64) -> Self {
        let (offset, in_data) = (result as u16, result >> 16 & 1 != 0);
        match (offset, in_data) {
            (40, false) => Self::Recfmt,
            (42, false) => Self::Qid,
            (44, false) => Self::Sqsize,
            (46, false) => Self::Cattr,
            (48, false) => Self::Kato,
            (0, true) => Self::Hostid,
            (16, true) => Self::Cntlid,
            (256, true) => Self::Subnqn,
            (512, true) => Self::Hostnqn,
            _ => Self::Other { offset, in_data },
        }
    }

    /// The result of a refused Connect.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        let (offset, in_data) = self.place();
        offset as u64 | (in_data as u64) << 16
    }

    /// The status and result that refuse a Connect for this field.
    #[must_use]
    pub const fn invalid(self) -> (Status, u64) {
        (Status::CONNECT_INVALID_PARAMETERS.with_dnr(), self.to_result())
    }
}

impl std::fmt::Display for ConnectField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recfmt => "RECFMT",
            Self::Qid => "QID",
            Self::Sqsize => "SQSIZE",
            Self::Cattr => "CATTR",
            Self::Kato => "KATO",
            Self::Hostid => "HOSTID",
            Self::Cntlid => "CNTLID",
            Self::Subnqn => "SUBNQN",
            Self::Hostnqn => "HOSTNQN",
            Self::Other { offset, in_data } => {
                return write!(f, "byte {offset} of the {}", if *in_data { "data" } else { "command" });
            }
        })
    }
}

/// The result of a successful Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectResult {
    /// CNTLID of the controller to which the queue belongs.
    pub cntlid: u16,
    /// ATR: authentication is required before other commands.
    pub authentication_required: bool,
    /// ASCR: authentication and a secure channel are required.
    pub secure_channel_required: bool,
}

impl ConnectResult {
    /// Parses the result of the completion.
    #[must_use]
    pub const fn from_result(result: u64) -> Self {
        Self {
            cntlid: result as u16,
            authentication_required: result >> 17 & 1 != 0,
            secure_channel_required: result >> 18 & 1 != 0,
        }
    }

    /// The result of the completion.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        self.cntlid as u64 | (self.authentication_required as u64) << 17 | (self.secure_channel_required as u64) << 18
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nqn::any_nqn;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(hostid: [u8; 16], cntlid: u16, subnqn in any_nqn(), hostnqn in any_nqn()) {
            let data = ConnectData { hostid, cntlid, subnqn, hostnqn };
            let bytes = data.emit();
            prop_assert_eq!(&bytes[..16], &hostid);
            prop_assert_eq!(&bytes[16..18], cntlid.to_le_bytes());
            prop_assert_eq!(&bytes[256..256 + data.subnqn.as_str().len()], data.subnqn.as_str().as_bytes());
            prop_assert_eq!(&bytes[512..512 + data.hostnqn.as_str().len()], data.hostnqn.as_str().as_bytes());
            prop_assert_eq!(ConnectData::parse(&bytes), Ok(data));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 1024)) {
            let bytes: [u8; 1024] = bytes.try_into().unwrap();
            let _ = ConnectData::parse(&bytes);
        }

        #[test]
        fn refused_fields_round_trip(offset: u16, in_data: bool) {
            let result = u64::from(offset) | u64::from(in_data) << 16;
            prop_assert_eq!(ConnectField::from_result(result).to_result(), result);
        }

        #[test]
        fn results_round_trip(cntlid: u16, authentication_required: bool, secure_channel_required: bool) {
            let result = ConnectResult { cntlid, authentication_required, secure_channel_required };
            prop_assert_eq!(ConnectResult::from_result(result.to_result()), result);
        }
    }

    #[test]
    fn the_error_of_a_wrong_nqn_names_the_field() {
        assert_eq!(ConnectField::from_result(0x1_0100), ConnectField::Subnqn);
        assert_eq!(ConnectField::Subnqn.invalid(), (Status(0x4182), 0x1_0100));
        assert_eq!(ConnectData::parse(&[0; 1024]), Err(ConnectField::Subnqn));
    }
}
