//! Decides: I/O is encrypted, record by record.
//!
//! TLS between a queue pair and its socket. All payload is copied: encrypted bytes are the only ones that the kernel sees.

use nvme_tcp::host::{HostQueue, PayloadSource, TxPart};
use nvme_tls::{Session, TlsError};

use crate::LossReason;
use crate::requests::Requests;

/// The most plain text of one record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;
/// The most bytes that the queue pair encodes for one send. Payload that it only names comes on top.
const STAGING_BYTES: usize = 256 << 10;

pub(crate) struct Encryption {
    session: Session,
    /// What the queue pair encodes. Its capacity bounds the encoded bytes.
    staging: Vec<u8>,
    plain: Box<[u8]>,
}

impl Encryption {
    /// Takes over an established session.
    pub(crate) fn new(session: Session) -> Self {
        Self { session, staging: Vec::with_capacity(STAGING_BYTES), plain: vec![0; RECORD_BYTES].into_boxed_slice() }
    }

    /// The emptied buffer for what the queue pair encodes.
    pub(crate) fn staging(&mut self) -> &mut Vec<u8> {
        self.staging.clear();
        &mut self.staging
    }

    /// Encrypts the parts in order, and replaces the content of `to`.
    pub(crate) fn encrypt(
        &mut self,
        parts: &[TxPart],
        payloads: &impl PayloadSource,
        to: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let mut filled = 0;
        for part in parts {
            let len = match *part {
                TxPart::Staged { len, .. } => len,
                TxPart::Payload { len, .. } => len as usize,
            };
            let mut at = 0;
            while at < len {
                let room = &mut self.plain[filled..];
                let bytes = room.len().min(len - at);
                let piece = &mut room[..bytes];
                match *part {
                    TxPart::Staged { start, .. } => piece.copy_from_slice(&self.staging[start + at..][..bytes]),
                    // Guest memory that cannot be read is copied as zeroes, and its request fails.
                    TxPart::Payload { tag, offset, .. } => payloads.gather(tag, offset + at as u32, piece),
                }
                (at, filled) = (at + bytes, filled + bytes);
                if filled == self.plain.len() {
                    self.session.write(&self.plain)?;
                    filled = 0;
                }
            }
        }
        self.session.write(&self.plain[..filled])?;
        to.clear();
        std::mem::swap(to, self.session.pending());
        Ok(())
    }

    /// Decrypts received bytes, and gives them to the queue pair.
    pub(crate) fn decrypt(
        &mut self,
        bytes: &[u8],
        queue: &mut HostQueue,
        requests: &mut Requests,
    ) -> Result<(), LossReason> {
        self.session.receive(bytes);
        loop {
            match self.session.read(&mut self.plain)? {
                0 => return Ok(()),
                bytes => queue.receive(&self.plain[..bytes], requests)?,
            }
        }
    }

    /// Encrypts one PDU.
    pub(crate) fn encrypt_pdu(&mut self, pdu: &[u8]) -> Result<Vec<u8>, TlsError> {
        self.session.write(pdu)?;
        Ok(std::mem::take(self.session.pending()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nvme_tcp::host::Tag;
    use nvme_tcp::wire::Nqn;
    use nvme_tls::KeyLookup;
    use nvme_tls::psk::{Candidate, ConfiguredPsk, RetainedHash, candidates};

    use super::*;

    struct Key(Candidate);

    impl KeyLookup for Key {
        fn find(&self, _: &str) -> Option<Candidate> {
            Some(self.0.clone())
        }
    }

    /// The sessions of a host and its controller, after the handshake.
    fn connected() -> (Session, Session) {
        let psk = ConfiguredPsk::new(RetainedHash::Sha256, &[7; 32]).unwrap();
        let [hostnqn, subnqn] = ["nqn.host", "nqn.disk"].map(|name| Nqn::new(name).unwrap());
        let key = candidates(&psk, &hostnqn, &subnqn).unwrap().swap_remove(0);
        let mut host = Session::host(key.clone()).unwrap();
        let mut controller = Session::controller(Arc::new(Key(key))).unwrap();
        let mut done = [false; 2];
        while done != [true; 2] {
            done[0] = host.handshake().unwrap();
            controller.receive(&std::mem::take(host.pending()));
            done[1] = controller.handshake().unwrap();
            host.receive(&std::mem::take(controller.pending()));
        }
        (host, controller)
    }

    /// The byte of a request's payload at this offset. It differs from record to record.
    fn byte(tag: Tag, at: usize) -> u8 {
        (at % 251) as u8 ^ tag.0 as u8
    }

    struct Payloads;

    impl PayloadSource for Payloads {
        fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]) {
            for (at, to) in (offset as usize..).zip(dst) {
                *to = byte(tag, at);
            }
        }
    }

    /// Parts that end before, on and behind the border of a record.
    #[test]
    fn the_peer_gets_all_parts_in_order_wherever_records_end() {
        const LENGTHS: [usize; 6] = [1, 72, RECORD_BYTES - 72, RECORD_BYTES - 1, RECORD_BYTES, 2 * RECORD_BYTES + 1];
        const OFFSET: u32 = 4096;
        let (host, mut controller) = connected();
        let mut encryption = Encryption::new(host);
        let (mut sent, mut received, mut buffer) = (Vec::new(), Vec::new(), vec![0; RECORD_BYTES]);
        for (header, first, second) in
            LENGTHS.iter().flat_map(|&a| LENGTHS.iter().flat_map(move |&b| LENGTHS.iter().map(move |&c| (a, b, c))))
        {
            encryption.staging().extend((0..header).map(|at| byte(Tag(0), at)));
            let payload = |tag, len: usize| TxPart::Payload { tag: Tag(tag), offset: OFFSET, len: len as u32 };
            let parts = [TxPart::Staged { start: 0, len: header }, payload(1, first), payload(2, second)];
            encryption.encrypt(&parts, &Payloads, &mut sent).unwrap();
            controller.receive(&sent);
            received.clear();
            loop {
                match controller.read(&mut buffer).unwrap() {
                    0 => break,
                    bytes => received.extend_from_slice(&buffer[..bytes]),
                }
            }
            let expected = [(Tag(0), 0, header), (Tag(1), OFFSET as usize, first), (Tag(2), OFFSET as usize, second)];
            let expected =
                expected.into_iter().flat_map(|(tag, from, len)| (from..from + len).map(move |at| byte(tag, at)));
            assert!(received.iter().copied().eq(expected), "{header}, {first}, {second} bytes");
        }
    }
}
