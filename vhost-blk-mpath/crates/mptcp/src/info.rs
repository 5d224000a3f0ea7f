//! The kernel's `mptcp_info`. New versions append fields.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::connection::Totals;

/// `struct mptcp_info`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct MptcpInfo {
    pub(crate) subflows: u8,
    pub(crate) add_addr_signal: u8,
    pub(crate) add_addr_accepted: u8,
    pub(crate) subflows_max: u8,
    pub(crate) add_addr_signal_max: u8,
    pub(crate) add_addr_accepted_max: u8,
    pub(crate) hole: [u8; 2],
    pub(crate) flags: u32,
    pub(crate) token: u32,
    pub(crate) write_seq: u64,
    pub(crate) snd_una: u64,
    pub(crate) rcv_nxt: u64,
    pub(crate) local_addr_used: u8,
    pub(crate) local_addr_max: u8,
    pub(crate) csum_enabled: u8,
    pub(crate) another_hole: u8,
    // Linux 6.5 added the fields below. The struct of earlier versions ends with padding in place of the next field.
    pub(crate) retransmits: u32,
    pub(crate) bytes_retrans: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
}

/// `MPTCP_INFO_FLAG_FALLBACK`
pub(crate) const FALLBACK: u32 = 1;

impl MptcpInfo {
    /// Parses the struct, and the totals if the kernel has them. Missing fields are 0.
    pub(crate) fn parse(bytes: &[u8]) -> (Self, Option<Totals>) {
        let mut info = Self::default();
        let length = bytes.len().min(size_of::<Self>());
        info.as_mut_bytes()[..length].copy_from_slice(&bytes[..length]);
        let totals = Totals {
            bytes_sent: info.bytes_sent,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            bytes_retransmitted: info.bytes_retrans,
            retransmits: info.retransmits,
        };
        (info, (bytes.len() >= size_of::<Self>()).then_some(totals))
    }
}

// As in linux/mptcp.h.
const _: () = assert!(size_of::<MptcpInfo>() == 80);
const _: () = assert!(std::mem::offset_of!(MptcpInfo, retransmits) == 44);

#[cfg(test)]
mod tests {
    use super::*;

    fn mptcp() -> MptcpInfo {
        MptcpInfo {
            subflows_max: 2,
            flags: FALLBACK,
            token: 7,
            csum_enabled: 1,
            retransmits: 3,
            bytes_retrans: 4,
            bytes_sent: 5,
            bytes_received: 6,
            bytes_acked: 9,
            ..MptcpInfo::default()
        }
    }

    #[test]
    fn fields_of_new_kernels_are_read() {
        let longer = [mptcp().as_bytes(), &[0xff; 16]].concat();
        let totals =
            Totals { bytes_sent: 5, bytes_acked: 9, bytes_received: 6, bytes_retransmitted: 4, retransmits: 3 };
        assert_eq!(MptcpInfo::parse(&longer), (mptcp(), Some(totals)));
    }

    /// Linux 6.1 has 48 bytes. The last four are padding, and not the number of retransmissions.
    #[test]
    fn old_kernels_have_no_totals() {
        let (info, totals) = MptcpInfo::parse(&mptcp().as_bytes()[..48]);
        assert_eq!((info.token, info.flags, info.csum_enabled, info.subflows_max), (7, FALLBACK, 1, 2));
        assert_eq!(totals, None);
    }
}
