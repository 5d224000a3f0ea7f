//! The kernel's `mptcp_info` and `tcp_info`, which grow at their end from version to version.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

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
    // What follows came with Linux 6.5. The struct before it had 48 bytes: where the next field is, it had padding.
    pub(crate) retransmits: u32,
    pub(crate) bytes_retrans: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_acked: u64,
}

/// `MPTCP_INFO_FLAG_FALLBACK`
pub(crate) const FALLBACK: u32 = 1;

impl MptcpInfo {
    /// Parses what a kernel tells, and its totals if it tells them all.
    pub(crate) fn parse(bytes: &[u8]) -> (Self, Option<Totals>) {
        let info: Self = padded(bytes);
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

/// `struct tcp_info`, up to what every kernel with MPTCP has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct TcpInfo {
    pub(crate) state: u8,
    pub(crate) ca_state: u8,
    pub(crate) retransmits: u8,
    pub(crate) probes: u8,
    pub(crate) backoff: u8,
    pub(crate) options: u8,
    pub(crate) wscale: u8,
    pub(crate) app_limited: u8,
    pub(crate) rto: u32,
    pub(crate) ato: u32,
    pub(crate) snd_mss: u32,
    pub(crate) rcv_mss: u32,
    pub(crate) unacked: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retrans: u32,
    pub(crate) fackets: u32,
    pub(crate) last_data_sent: u32,
    pub(crate) last_ack_sent: u32,
    pub(crate) last_data_recv: u32,
    pub(crate) last_ack_recv: u32,
    pub(crate) pmtu: u32,
    pub(crate) rcv_ssthresh: u32,
    pub(crate) rtt_us: u32,
    pub(crate) rttvar_us: u32,
    pub(crate) snd_ssthresh: u32,
    pub(crate) snd_cwnd: u32,
    pub(crate) advmss: u32,
    pub(crate) reordering: u32,
    pub(crate) rcv_rtt: u32,
    pub(crate) rcv_space: u32,
    pub(crate) total_retrans: u32,
    pub(crate) pacing_rate: u64,
    pub(crate) max_pacing_rate: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) segs_out: u32,
    pub(crate) segs_in: u32,
    pub(crate) notsent_bytes: u32,
    pub(crate) min_rtt: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) data_segs_out: u32,
    pub(crate) delivery_rate: u64,
    pub(crate) busy_time: u64,
    pub(crate) rwnd_limited: u64,
    pub(crate) sndbuf_limited: u64,
    pub(crate) delivered: u32,
    pub(crate) delivered_ce: u32,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
}

impl TcpInfo {
    /// Parses what a kernel tells.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        padded(bytes)
    }
}

/// The struct that begins with `bytes`: fields behind their end are 0, bytes behind the struct's end are ignored.
fn padded<T: FromBytes + FromZeros + IntoBytes>(bytes: &[u8]) -> T {
    let mut info = T::new_zeroed();
    let room = info.as_mut_bytes();
    let length = room.len().min(bytes.len());
    room[..length].copy_from_slice(&bytes[..length]);
    info
}

// As in linux/tcp.h and linux/mptcp.h.
const _: () = assert!(size_of::<MptcpInfo>() == 80);
const _: () = assert!(std::mem::offset_of!(MptcpInfo, retransmits) == 44);
const _: () = assert!(std::mem::offset_of!(TcpInfo, total_retrans) == 100);
const _: () = assert!(std::mem::offset_of!(TcpInfo, bytes_acked) == 120);
const _: () = assert!(size_of::<TcpInfo>() == 216);

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
    fn all_of_a_new_kernel_is_read() {
        let longer = [mptcp().as_bytes(), &[0xff; 16]].concat();
        let totals =
            Totals { bytes_sent: 5, bytes_acked: 9, bytes_received: 6, bytes_retransmitted: 4, retransmits: 3 };
        assert_eq!(MptcpInfo::parse(&longer), (mptcp(), Some(totals)));
    }

    /// Linux 6.1 has 48 bytes, the last four of them padding: what is there is no number of retransmissions.
    #[test]
    fn what_an_old_kernel_does_not_have_is_none() {
        let (info, totals) = MptcpInfo::parse(&mptcp().as_bytes()[..48]);
        assert_eq!((info.token, info.flags, info.csum_enabled, info.subflows_max), (7, FALLBACK, 1, 2));
        assert_eq!(totals, None);
    }

    #[test]
    fn what_a_shorter_tcp_info_does_not_have_is_zero() {
        let info = TcpInfo { rtt_us: 5, bytes_acked: 6, bytes_retrans: 7, ..TcpInfo::default() };
        let shorter = TcpInfo { bytes_retrans: 0, ..info };
        assert_eq!(TcpInfo::parse(&info.as_bytes()[..208]), shorter);
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }
}
