//! One record of the Discovery log page (Base 5.16.1.23, figure "Discovery Log Page Entry").

use super::{DISCOVERY_ENTRY_BYTES, Nqn, NqnError};

macro_rules! codes {
    ($(#[$doc:meta])* $type:ident { $($(#[$name_doc:meta])* $name:ident = $code:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub u8);

        impl $type {
            $($(#[$name_doc])* pub const $name: Self = Self($code);)*
        }
    };
}

codes! {
    /// TRTYPE.
    TransportType {
        /// RDMA.
        RDMA = 1;
        /// Fibre Channel.
        FIBRE_CHANNEL = 2;
        /// TCP.
        TCP = 3;
    }
}

codes! {
    /// ADRFAM.
    AddressFamily {
        /// IPv4.
        IPV4 = 1;
        /// IPv6.
        IPV6 = 2;
    }
}

codes! {
    /// SUBTYPE.
    SubsystemType {
        /// A referral to another discovery subsystem, whose records differ from these.
        REFERRAL = 1;
        /// A subsystem that may have namespaces.
        NVM = 2;
        /// The discovery subsystem that this log comes from.
        CURRENT_DISCOVERY = 3;
    }
}

codes! {
    /// SECTYPE of the TCP transport's TSAS.
    SecurityType {
        /// No transport security.
        NONE = 0;
        /// TLS 1.2.
        TLS_1_2 = 1;
        /// TLS 1.3.
        TLS_1_3 = 2;
    }
}

/// One address of a subsystem, 1024 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// TRTYPE.
    pub transport: TransportType,
    /// ADRFAM.
    pub family: AddressFamily,
    /// SUBTYPE.
    pub subsystem: SubsystemType,
    /// TREQ: bits 1:0 secure channel (0 not specified, 1 required, 2 not required), bit 2 SQ flow control may be off.
    pub treq: u8,
    /// PORTID.
    pub port_id: u16,
    /// CNTLID: `FFFFh` with the dynamic controller model, `FFFEh` with the static controller model for any controller.
    pub cntlid: u16,
    /// ASQSZ: the most entries of an admin queue.
    pub admin_queue_entries: u16,
    /// EFLAGS: bit 0 the same information is at other addresses, bit 1 persistent connections are supported.
    pub eflags: u16,
    /// TRSVCID: 1 to 32 characters, a port number with TCP.
    pub trsvcid: String,
    /// SUBNQN.
    pub subnqn: Nqn,
    /// TRADDR: 1 to 256 characters, an IP address with TCP.
    pub traddr: String,
    /// First byte of TSAS; valid only with TCP.
    pub security: SecurityType,
}

/// A text field of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryField {
    /// TRSVCID.
    Trsvcid,
    /// TRADDR.
    Traddr,
}

impl std::fmt::Display for DiscoveryField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Trsvcid => "TRSVCID",
            Self::Traddr => "TRADDR",
        })
    }
}

/// Why an entry was refused. Other entries of the log may be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryEntryError {
    /// SUBNQN is not an NQN.
    #[error("SUBNQN: {0}")]
    Subnqn(#[from] NqnError),
    /// The text is empty or not printable ASCII.
    #[error("{0} is empty or not printable ASCII")]
    Text(DiscoveryField),
}

const TRSVCID: std::ops::Range<usize> = 32..64;
const SUBNQN: std::ops::Range<usize> = 256..512;
const TRADDR: std::ops::Range<usize> = 512..768;
const TSAS: usize = 768;

impl DiscoveryEntry {
    /// EFLAGS: explicit persistent connections are supported.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;
    /// TREQ, bits 1:0: the secure channel.
    pub const TREQ_SECURE_CHANNEL: u8 = 3;
    /// TREQ: a secure channel is required.
    pub const TREQ_REQUIRED: u8 = 1;
    /// TREQ: a secure channel is not required.
    pub const TREQ_NOT_REQUIRED: u8 = 2;
    /// TREQ: the host may turn SQ flow control off.
    pub const TREQ_FLOW_CONTROL_OFF: u8 = 1 << 2;

    /// Parses an entry. The caller decides about unknown types.
    pub fn parse(bytes: &[u8; DISCOVERY_ENTRY_BYTES]) -> Result<Self, DiscoveryEntryError> {
        let &[transport, family, subsystem, treq, p0, p1, c0, c1, a0, a1, e0, e1, ..] = bytes;
        let mut subnqn = [0; 256];
        subnqn.copy_from_slice(&bytes[SUBNQN]);
        Ok(Self {
            transport: TransportType(transport),
            family: AddressFamily(family),
            subsystem: SubsystemType(subsystem),
            treq,
            port_id: u16::from_le_bytes([p0, p1]),
            cntlid: u16::from_le_bytes([c0, c1]),
            admin_queue_entries: u16::from_le_bytes([a0, a1]),
            eflags: u16::from_le_bytes([e0, e1]),
            trsvcid: parse_text(&bytes[TRSVCID], DiscoveryField::Trsvcid)?,
            subnqn: Nqn::parse(&subnqn)?,
            traddr: parse_text(&bytes[TRADDR], DiscoveryField::Traddr)?,
            security: SecurityType(bytes[TSAS]),
        })
    }

    /// The entry in wire format. Texts are cut to the sizes of their fields.
    #[must_use]
    pub fn emit(&self) -> [u8; DISCOVERY_ENTRY_BYTES] {
        let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
        bytes[..4].copy_from_slice(&[self.transport.0, self.family.0, self.subsystem.0, self.treq]);
        bytes[4..6].copy_from_slice(&self.port_id.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.cntlid.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.admin_queue_entries.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.eflags.to_le_bytes());
        emit_text(&self.trsvcid, &mut bytes[TRSVCID]);
        bytes[SUBNQN].copy_from_slice(&self.subnqn.emit());
        emit_text(&self.traddr, &mut bytes[TRADDR]);
        bytes[TSAS] = self.security.0;
        bytes
    }
}

/// Parses a text that is padded with spaces, as specified, or ends with a NUL, as from Linux.
fn parse_text(field: &[u8], name: DiscoveryField) -> Result<String, DiscoveryEntryError> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let text = field[..end].trim_ascii_end();
    if text.is_empty() || !text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(DiscoveryEntryError::Text(name));
    }
    Ok(text.iter().copied().map(char::from).collect())
}

fn emit_text(text: &str, field: &mut [u8]) {
    field.fill(b' ');
    for (to, &from) in field.iter_mut().zip(text.as_bytes()) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::super::nqn::any_nqn;
    use super::*;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = DiscoveryEntry> {
        let texts = ("[ -~]{0,31}[!-~]", "[ -~]{0,255}[!-~]", any_nqn());
        (any::<([u8; 5], [u16; 4])>(), texts).prop_map(|((bytes, words), (trsvcid, traddr, subnqn))| DiscoveryEntry {
            transport: TransportType(bytes[0]),
            family: AddressFamily(bytes[1]),
            subsystem: SubsystemType(bytes[2]),
            treq: bytes[3],
            port_id: words[0],
            cntlid: words[1],
            admin_queue_entries: words[2],
            eflags: words[3],
            trsvcid,
            subnqn,
            traddr,
            security: SecurityType(bytes[4]),
        })
    }

    fn entry() -> DiscoveryEntry {
        DiscoveryEntry {
            transport: TransportType::TCP,
            family: AddressFamily::IPV4,
            subsystem: SubsystemType::NVM,
            treq: DiscoveryEntry::TREQ_NOT_REQUIRED,
            port_id: 0x0102,
            cntlid: 0xffff,
            admin_queue_entries: 32,
            eflags: DiscoveryEntry::EFLAGS_PERSISTENT,
            trsvcid: "4420".into(),
            subnqn: Nqn::new("nqn.x").unwrap(),
            traddr: "127.0.0.1".into(),
            security: SecurityType::TLS_1_3,
        }
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(entry in any_entry()) {
            prop_assert_eq!(DiscoveryEntry::parse(&entry.emit()), Ok(entry));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), DISCOVERY_ENTRY_BYTES)) {
            let _ = DiscoveryEntry::parse(bytes.as_slice().try_into().unwrap());
        }
    }

    #[test]
    fn field_offsets_match_the_specification() {
        let bytes = entry().emit();
        assert_eq!(bytes[..12], [3, 1, 2, 2, 2, 1, 0xff, 0xff, 32, 0, 2, 0]);
        assert_eq!((&bytes[32..38], &bytes[256..263]), (&b"4420  "[..], &b"nqn.x\0\0"[..]));
        assert_eq!((&bytes[512..523], bytes[767], bytes[768]), (&b"127.0.0.1  "[..], b' ', 2));
    }

    #[test]
    fn texts_may_end_with_a_nul() {
        let mut bytes = entry().emit();
        bytes[36..64].fill(0);
        bytes[521] = 0;
        bytes[522] = 7;
        assert_eq!(DiscoveryEntry::parse(&bytes), Ok(entry()));
        bytes[512] = 7;
        assert_eq!(DiscoveryEntry::parse(&bytes), Err(DiscoveryEntryError::Text(DiscoveryField::Traddr)));
        bytes[32..64].fill(b' ');
        assert_eq!(DiscoveryEntry::parse(&bytes), Err(DiscoveryEntryError::Text(DiscoveryField::Trsvcid)));
    }
}
