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
    pub(crate) fn encrypt(&mut self, parts: &[TxPart], requests: &Requests, to: &mut Vec<u8>) -> Result<(), TlsError> {
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
                    TxPart::Payload { tag, offset, .. } => requests.gather(tag, offset + at as u32, piece),
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
