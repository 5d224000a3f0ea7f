//! A node that spoils its R2Ts. The host has to end the association at the first of them. An error after an R2T is legal.

use nvme_tcp::wire::{Cqe, Digests, Framing, Pdu, R2t, Status};

use crate::rng::Rng;

/// The PDU that is sent in place of an R2T, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum R2tFault {
    /// A success, although the data of the command have not arrived.
    Answer,
    /// An R2T for later bytes than the next.
    Ahead,
    /// An R2T for bytes beyond the end of the command's data.
    Beyond,
    /// The R2T a second time.
    Again,
    /// An R2T for no bytes.
    Empty,
    /// The R2T, and an error while its data are on their way. The node reads nothing more from that connection. This is no
    /// protocol error, and may leave a send that stands still while no command is open.
    RefuseAndStopReading,
}

impl R2tFault {
    /// The protocol errors.
    pub(crate) const ALL: [Self; 5] = [Self::Answer, Self::Ahead, Self::Beyond, Self::Again, Self::Empty];
}

/// An R2T's PDU type, and the flag of a header digest.
const R2T: u8 = 0x09;
const HDGST: u8 = 1;

/// Copies whole PDUs, and spoils a percentage of the R2Ts. Returns the number of spoilt R2Ts.
pub(super) fn copy_spoiling(pdus: &[u8], fault: Option<(u64, R2tFault)>, rng: &mut Rng, out: &mut Vec<u8>) -> u64 {
    let Some((percent, fault)) = fault else {
        out.extend_from_slice(pdus);
        return 0;
    };
    let (mut rest, mut spoilt) = (pdus, 0);
    while !rest.is_empty() {
        let (pdu, after) = rest.split_at(le32(rest, 4) as usize);
        rest = after;
        if pdu[0] != R2T || !rng.percent(percent) {
            out.extend_from_slice(pdu);
            continue;
        }
        spoilt += 1;
        let framing = Framing { digests: Digests { header: pdu[1] & HDGST != 0, data: false }, alignment: 0 };
        let (cid, ttag) = (le32(pdu, 8) as u16, (le32(pdu, 8) >> 16) as u16);
        let (offset, length) = (le32(pdu, 12), le32(pdu, 16));
        let asks = |offset, length| Pdu::R2t(R2t { cid, ttag, offset, length });
        let sent = match fault {
            R2tFault::Answer => Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 0)),
            R2tFault::Ahead => asks(offset + 4, length.saturating_sub(4).max(4)),
            R2tFault::Beyond => asks(offset, length + (1 << 24)),
            R2tFault::Again => {
                out.extend_from_slice(pdu);
                asks(offset, length)
            }
            R2tFault::Empty => asks(offset, 0),
            R2tFault::RefuseAndStopReading => {
                out.extend_from_slice(pdu);
                Pdu::CapsuleResp(Cqe::new(cid, 0, Status::INTERNAL_PATH_ERROR, 0))
            }
        };
        sent.emit(&framing, &[], out);
    }
    spoilt
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response, and two R2Ts of which the second follows the first.
    fn pdus(digests: Digests) -> Vec<u8> {
        let (framing, mut pdus) = (Framing { digests, alignment: 0 }, Vec::new());
        Pdu::CapsuleResp(Cqe::new(3, 0, Status::SUCCESS, 0)).emit(&framing, &[], &mut pdus);
        for offset in [0, 512] {
            Pdu::R2t(R2t { cid: 7, ttag: 9, offset, length: 512 }).emit(&framing, &[], &mut pdus);
        }
        pdus
    }

    fn copied(pdus: &[u8], fault: R2tFault) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        (copy_spoiling(pdus, Some((100, fault)), &mut Rng::new(0, 0), &mut out), out)
    }

    #[test]
    fn only_r2ts_are_spoilt_and_whole_pdus_come_of_them() {
        for digests in [Digests::default(), Digests { header: true, data: true }] {
            let pdus = pdus(digests);
            let length = if digests.header { 28 } else { 24 };
            for fault in R2tFault::ALL {
                let (spoilt, out) = copied(&pdus, fault);
                let count = if fault == R2tFault::Again { 5 } else { 3 };
                assert_eq!((spoilt, out.len()), (2, count * length), "{fault:?}");
                assert_eq!(out[..length], pdus[..length]);
                assert_ne!(out, pdus);
            }
            let (_, out) = copied(&pdus, R2tFault::Ahead);
            assert_eq!(
                (le32(&out, length + 8), le32(&out, length + 12), le32(&out, length + 16)),
                (9 << 16 | 7, 4, 508)
            );
        }
    }
}
