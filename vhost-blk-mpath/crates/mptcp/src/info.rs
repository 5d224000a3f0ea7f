//! The kernel's `mptcp_info` and `tcp_info`. New versions append fields.

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

/// The fields of `struct tcp_info` in use. `None`: this kernel's struct ends before the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TcpInfo {
    pub(crate) snd_mss: Option<u32>,
    pub(crate) lost: Option<u32>,
    pub(crate) rtt_us: Option<u32>,
    pub(crate) rttvar_us: Option<u32>,
    pub(crate) snd_cwnd: Option<u32>,
    pub(crate) total_retrans: Option<u32>,
    pub(crate) bytes_acked: Option<u64>,
    pub(crate) bytes_received: Option<u64>,
    pub(crate) bytes_sent: Option<u64>,
    pub(crate) bytes_retrans: Option<u64>,
}

impl TcpInfo {
    /// Parses the struct. `netlink-packet-sock-diag` refuses a short one.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
            bytes.get(offset..)?.first_chunk().copied()
        }
        let u32_at = |offset| at(bytes, offset).map(u32::from_ne_bytes);
        let u64_at = |offset| at(bytes, offset).map(u64::from_ne_bytes);
        // The offsets are those of linux/tcp.h.
        Self {
            snd_mss: u32_at(16),
            lost: u32_at(32),
            rtt_us: u32_at(68),
            rttvar_us: u32_at(72),
            snd_cwnd: u32_at(80),
            total_retrans: u32_at(100),
            bytes_acked: u64_at(120),
            bytes_received: u64_at(128),
            bytes_sent: u64_at(200),
            bytes_retrans: u64_at(208),
        }
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

    /// Each field from its place, and as `netlink-packet-sock-diag` reads it.
    #[test]
    fn tcp_fields_are_where_the_kernel_has_them() {
        let bytes: Vec<u8> = (0..=255).collect();
        let theirs = netlink_packet_sock_diag::inet::nlas::TcpInfo::parse(&bytes).unwrap();
        let expected = TcpInfo {
            snd_mss: Some(theirs.snd_mss),
            lost: Some(theirs.lost),
            rtt_us: Some(theirs.rtt),
            rttvar_us: Some(theirs.rttvar),
            snd_cwnd: Some(theirs.snd_cwnd),
            total_retrans: Some(theirs.total_retrans),
            bytes_acked: Some(theirs.bytes_acked),
            bytes_received: Some(theirs.bytes_received),
            bytes_sent: Some(theirs.bytes_sent),
            bytes_retrans: Some(theirs.bytes_retrans),
        };
        assert_eq!(TcpInfo::parse(&bytes), expected);
        // Linux 4.18 ends before the bytes sent, and Linux 3.10 before all counts of bytes.
        let (sent, acked) = (TcpInfo::parse(&bytes[..200]), TcpInfo::parse(&bytes[..104]));
        let without = TcpInfo { bytes_sent: None, bytes_retrans: None, ..expected };
        assert_eq!(sent, without);
        assert_eq!(acked, TcpInfo { bytes_acked: None, bytes_received: None, ..without });
        assert_eq!(TcpInfo::parse(&bytes[..207]), without, "a half field is unknown");
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
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
