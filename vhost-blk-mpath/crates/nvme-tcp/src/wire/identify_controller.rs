//! The Identify Controller data structure (Base, figure 275), with the fields that host or target use.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{IDENTIFY_BYTES, Nqn, NqnError};

/// Identify Controller, 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, space-padded ASCII.
    pub sn: [u8; 20],
    /// Model Number, space-padded ASCII.
    pub mn: [u8; 40],
    /// Firmware Revision, space-padded ASCII.
    pub fr: [u8; 8],
    rab_ieee: [u8; 4],
    /// Multi-Path I/O and Namespace Sharing Capabilities: bit 0 several ports, 1 several controllers, 3 ANA reporting.
    pub cmic: u8,
    /// Maximum Data Transfer Size: 2ⁿ memory pages of CAP.MPSMIN, 0 for no limit.
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: U16,
    /// Version.
    pub ver: U32,
    rtd3: [u8; 8],
    /// Optional Asynchronous Events Supported.
    pub oaes: U32,
    /// Controller Attributes: bit 6 TBKAS.
    pub ctratt: U32,
    rrls: [u8; 11],
    /// Controller Type: 1 I/O, 2 discovery, 3 administrative.
    pub cntrltype: u8,
    fguid: [u8; 16],
    /// CRDT1 to CRDT3: Command Retry Delay Times, units of 100 ms.
    pub crdt: [U16; 3],
    reserved_134: u8,
    /// CIU: Controller Instance Uniquifier.
    pub ciu: u8,
    /// CIRN: Controller Instance Random Number.
    pub cirn: [u8; 8],
    reserved_144: [u8; 112],
    /// Optional Admin Command Support.
    pub oacs: U16,
    /// Abort Command Limit, 0's-based.
    pub acl: u8,
    /// Asynchronous Event Request Limit, 0's-based.
    pub aerl: u8,
    frmw: u8,
    /// Log Page Attributes: bit 2 extended data (offsets).
    pub lpa: u8,
    /// Error Log Page Entries, 0's-based.
    pub elpe: u8,
    npss_etc: [u8; 57],
    /// Keep Alive Support: granularity in units of 100 ms, 0 for none.
    pub kas: U16,
    hctma_etc: [u8; 20],
    /// ANA Transition Time in seconds.
    pub anatt: u8,
    /// ANA Capabilities: bits 0–4 states reported, 6 ANAGRPID does not change.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: U32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: U32,
    pels_etc: [u8; 34],
    /// CQT: Command Quiesce Time in milliseconds.
    pub cqt: U16,
    reserved_388: [u8; 124],
    /// Submission Queue Entry Size: required in bits 3:0, maximum in 7:4, as powers of two.
    pub sqes: u8,
    /// Completion Queue Entry Size.
    pub cqes: u8,
    /// Maximum Outstanding Commands.
    pub maxcmd: U16,
    /// Number of Namespaces, the largest NSID.
    pub nn: U32,
    /// Optional NVM Command Support: bit 2 Dataset Management, 3 Write Zeroes.
    pub oncs: U16,
    /// Fused Operation Support.
    pub fuses: U16,
    /// Format NVM Attributes.
    pub fna: u8,
    /// Volatile Write Cache: bit 0 present.
    pub vwc: u8,
    /// Atomic Write Unit Normal, 0's-based blocks.
    pub awun: U16,
    /// Atomic Write Unit Power Fail, 0's-based blocks.
    pub awupf: U16,
    icsvscc_etc: [u8; 6],
    /// SGL Support: bits 1:0 support, bit 20 offsets in in-capsule data, bit 21 transport data blocks.
    pub sgls: U32,
    /// Maximum Number of Allowed Namespaces; required with ANA.
    pub mnan: U32,
    reserved_544: [u8; 224],
    /// NVM Subsystem NVMe Qualified Name, NUL-padded.
    pub subnqn: [u8; 256],
    reserved_1024: [u8; 768],
    /// I/O Queue Command Capsule Supported Size, units of 16 bytes.
    pub ioccsz: U32,
    /// I/O Queue Response Capsule Supported Size, units of 16 bytes.
    pub iorcsz: U32,
    /// In Capsule Data Offset, units of 16 bytes; 0 with TCP.
    pub icdoff: U16,
    /// Fabrics Controller Attributes.
    pub fcatt: u8,
    /// Maximum SGL Data Block Descriptors.
    pub msdbd: u8,
    /// Optional Fabrics Commands Support.
    pub ofcs: U16,
    /// Discovery Controller Type: 1 direct, 2 central; 0 not reported.
    pub dctype: u8,
    /// Cross-Controller Reset Limit: the most resets under way at once.
    pub ccrl: u8,
    tail: [u8; 2288],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<IdentifyController>() == IDENTIFY_BYTES);
    assert!(offset_of!(IdentifyController, cmic) == 76);
    assert!(offset_of!(IdentifyController, mdts) == 77);
    assert!(offset_of!(IdentifyController, oaes) == 92);
    assert!(offset_of!(IdentifyController, ctratt) == 96);
    assert!(offset_of!(IdentifyController, cntrltype) == 111);
    assert!(offset_of!(IdentifyController, crdt) == 128);
    assert!(offset_of!(IdentifyController, ciu) == 135);
    assert!(offset_of!(IdentifyController, cirn) == 136);
    assert!(offset_of!(IdentifyController, oacs) == 256);
    assert!(offset_of!(IdentifyController, lpa) == 261);
    assert!(offset_of!(IdentifyController, kas) == 320);
    assert!(offset_of!(IdentifyController, anatt) == 342);
    assert!(offset_of!(IdentifyController, anagrpmax) == 344);
    assert!(offset_of!(IdentifyController, cqt) == 386);
    assert!(offset_of!(IdentifyController, sqes) == 512);
    assert!(offset_of!(IdentifyController, oncs) == 520);
    assert!(offset_of!(IdentifyController, vwc) == 525);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, mnan) == 540);
    assert!(offset_of!(IdentifyController, subnqn) == 768);
    assert!(offset_of!(IdentifyController, ioccsz) == 1792);
    assert!(offset_of!(IdentifyController, icdoff) == 1800);
    assert!(offset_of!(IdentifyController, msdbd) == 1803);
    assert!(offset_of!(IdentifyController, ccrl) == 1807);
};

impl IdentifyController {
    /// CMIC: ANA reporting.
    pub const CMIC_ANA: u8 = 1 << 3;
    /// CTRATT: Traffic Based Keep Alive Support.
    pub const CTRATT_TBKAS: u32 = 1 << 6;
    /// LPA: extended data for Get Log Page, which includes the offset.
    pub const LPA_EXTENDED: u8 = 1 << 2;
    /// ONCS: Dataset Management.
    pub const ONCS_DSM: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;

    /// A structure with all fields zero and all texts blank.
    #[must_use]
    pub fn blank() -> Self {
        Self { sn: [b' '; 20], mn: [b' '; 40], fr: [b' '; 8], ..Self::new_zeroed() }
    }

    /// Parses the structure; `None` if there are fewer than 4096 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(identify, _)| identify)
    }

    /// SUBNQN, if it is a valid NQN.
    pub fn subnqn(&self) -> Result<Nqn, NqnError> {
        Nqn::parse(&self.subnqn)
    }

    /// Sets SUBNQN.
    pub fn set_subnqn(&mut self, nqn: &Nqn) {
        self.subnqn = nqn.emit();
    }

    /// The largest transfer in bytes, with memory pages of `2^(12 + mpsmin)` bytes; `None` for no limit.
    #[must_use]
    pub const fn max_transfer_bytes(&self, mpsmin: u8) -> Option<u32> {
        // From 4 GiB on the limit has no effect: the length of a transfer has 32 bits.
        match (self.mdts, self.mdts as u32 + 12 + mpsmin as u32) {
            (1.., shift @ 0..=31) => Some(1 << shift),
            _ => None,
        }
    }

    /// Bytes of data that an I/O command capsule may carry.
    #[must_use]
    pub fn in_capsule_bytes(&self) -> u32 {
        self.ioccsz.get().saturating_mul(16).saturating_sub(64)
    }

    /// The text of an ASCII field, without padding. Other characters are replaced by `?`.
    #[must_use]
    pub fn text(field: &[u8]) -> String {
        let shown = |&byte: &u8| {
            if matches!(byte, b' '..=b'~') { char::from(byte) } else { '?' }
        };
        field.trim_ascii().iter().take_while(|&&byte| byte != 0).map(shown).collect()
    }

    /// An ASCII field: the text, padded with spaces or cut to size. Other characters are replaced by `?`.
    #[must_use]
    pub fn padded<const N: usize>(text: &str) -> [u8; N] {
        let mut field = [b' '; N];
        for (byte, char) in field.iter_mut().zip(text.chars()) {
            *byte = if matches!(char, ' '..='~') { char as u8 } else { b'?' };
        }
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(bytes in proptest::collection::vec(any::<u8>(), 4090..4100)) {
            match IdentifyController::parse(&bytes) {
                Some(identify) => prop_assert_eq!(identify.as_bytes(), &bytes[..4096]),
                None => prop_assert!(bytes.len() < 4096),
            }
        }

        #[test]
        fn texts_round_trip(text in "[!-~]([ -~]{0,18}[!-~])?") {
            let field: [u8; 20] = IdentifyController::padded(&text);
            prop_assert_eq!(IdentifyController::text(&field), text);
        }
    }

    #[test]
    fn limits_are_derived() {
        let mut identify = IdentifyController::blank();
        assert_eq!((identify.max_transfer_bytes(0), identify.in_capsule_bytes()), (None, 0));
        identify.mdts = 5;
        identify.ioccsz = 516.into();
        assert_eq!((identify.max_transfer_bytes(0), identify.in_capsule_bytes()), (Some(131_072), 8192));
        assert_eq!(identify.max_transfer_bytes(4), Some(2 << 20));
        identify.mdts = 255;
        assert_eq!(identify.max_transfer_bytes(0), None);
    }
}
