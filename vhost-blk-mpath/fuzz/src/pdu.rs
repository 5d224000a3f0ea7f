//! Whole PDUs of one direction of a connection.

use nvme_tcp::wire::{Digests, Framing};

/// Bytes of a command capsule without data.
const CAPSULE_BYTES: usize = 72;

/// Splits a stream into PDUs, by PLEN alone.
#[derive(Default)]
pub struct PduStream(Vec<u8>);

impl PduStream {
    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Takes the next PDU. `None` if it is not complete, or if PLEN is too small.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let length = word(&self.0, 4)? as usize;
        (8..=self.0.len()).contains(&length).then(|| self.0.drain(..length).collect())
    }

    /// Whether all bytes were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The fields of a command capsule that the answers depend on.
pub struct Capsule {
    /// CID.
    pub cid: u16,
    /// Opcode, and the low byte of NSID, which is FCTYPE of fabrics commands.
    pub opcode: [u8; 2],
    /// The length of the SGL.
    pub length: u32,
}

impl Capsule {
    /// The capsule in this PDU. `None` if the PDU is another one.
    #[must_use]
    pub fn parse(pdu: &[u8]) -> Option<Self> {
        if pdu.len() < CAPSULE_BYTES || pdu[0] != 4 {
            return None;
        }
        Some(Self { cid: (word(pdu, 8)? >> 16) as u16, opcode: [pdu[8], pdu[12]], length: word(pdu, 8 + 32)? })
    }
}

/// The framing that an `ICReq` asks for. `None` if the PDU is another one.
#[must_use]
pub fn icreq(pdu: &[u8]) -> Option<Framing> {
    let [0, _, _, _, _, _, _, _, _, _, hpda, digests, ..] = *pdu else { return None };
    Some(Framing { digests: Digests { header: digests & 1 > 0, data: digests & 2 > 0 }, alignment: hpda })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
