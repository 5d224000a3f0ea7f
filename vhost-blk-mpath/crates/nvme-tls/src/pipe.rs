//! Bytes between OpenSSL and the socket, and the limit of records without data.

use std::io::{self, Read, Write};

/// Bytes of the header of a record. The last two are the length of the rest (RFC 8446, section 5.1).
const HEADER_BYTES: usize = 5;
/// Records without data that a peer may send at once. More than a few are an attack: each `KeyUpdate` costs new keys.
const EMPTY_RECORDS_MAX: u32 = 8;
/// Bytes of data that allow a peer one more record without data.
const BYTES_FOR_RECORD: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct Pipe {
    received: Vec<u8>,
    /// Bytes of `received` that OpenSSL has read.
    read: usize,
    pub(crate) to_send: Vec<u8>,
    /// Set once records carry data.
    pub(crate) limit: Option<RecordLimit>,
}

/// Limits records without data. It follows the bytes that OpenSSL reads.
pub(crate) struct RecordLimit {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    body_left: usize,
    /// Records begun since data came last. If data follow, the last record has them.
    begun: u32,
    /// Records without data that are allowed now.
    allowed: u32,
    /// Bytes of data since `allowed` was raised.
    data_bytes: usize,
}

impl Default for RecordLimit {
    fn default() -> Self {
        let allowed = EMPTY_RECORDS_MAX;
        Self { header: [0; HEADER_BYTES], header_bytes: 0, body_left: 0, begun: 0, allowed, data_bytes: 0 }
    }
}

impl RecordLimit {
    pub(crate) fn is_exceeded(&self) -> bool {
        self.begun > self.allowed + 1
    }

    /// Takes note of data that OpenSSL has decrypted.
    pub(crate) fn data(&mut self, bytes: usize) {
        self.allowed -= self.begun.saturating_sub(1).min(self.allowed);
        self.begun = 0;
        self.data_bytes += bytes;
        let earned = u32::try_from(self.data_bytes / BYTES_FOR_RECORD).unwrap_or(u32::MAX);
        self.data_bytes %= BYTES_FOR_RECORD;
        self.allowed = self.allowed.saturating_add(earned).min(EMPTY_RECORDS_MAX);
    }

    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let body = bytes.len().min(self.body_left);
            self.body_left -= body;
            bytes = &bytes[body..];
            let header = bytes.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..][..header].copy_from_slice(&bytes[..header]);
            self.header_bytes += header;
            bytes = &bytes[header..];
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                self.body_left = u16::from_be_bytes([self.header[3], self.header[4]]).into();
                self.begun += 1;
            }
        }
    }
}

impl Pipe {
    /// Takes bytes from the socket.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if self.read == self.received.len() {
            self.received.clear();
            self.read = 0;
        }
        self.received.extend_from_slice(bytes);
    }
}

impl Read for Pipe {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = &self.received[self.read..];
        if left.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let bytes = left.len().min(to.len());
        if let Some(limit) = &mut self.limit {
            limit.follow(&left[..bytes]);
            if limit.is_exceeded() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        to[..bytes].copy_from_slice(&left[..bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_send.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of `bytes` bytes, cut into pieces.
    fn follow(limit: &mut RecordLimit, records: usize, bytes: u16, cut: usize) {
        let mut stream = Vec::new();
        for _ in 0..records {
            stream.extend([23, 3, 3]);
            stream.extend(bytes.to_be_bytes());
            stream.extend(vec![0; bytes.into()]);
        }
        stream.chunks(cut).for_each(|piece| limit.follow(piece));
    }

    #[test]
    fn records_are_counted_wherever_they_are_cut() {
        for cut in [1, 4, 5, 7, 1000] {
            let mut limit = RecordLimit::default();
            follow(&mut limit, 9, 22, cut);
            assert!(!limit.is_exceeded(), "{cut}");
            follow(&mut limit, 1, 0, cut);
            assert!(limit.is_exceeded(), "{cut}");
        }
    }

    #[test]
    fn data_earn_further_records() {
        let mut limit = RecordLimit::default();
        follow(&mut limit, 9, 22, 100);
        limit.data(1);
        follow(&mut limit, 1, 22, 100);
        assert!(!limit.is_exceeded(), "the record that has data");
        follow(&mut limit, 1, 22, 100);
        assert!(limit.is_exceeded(), "the allowance is used");
        let mut limit = RecordLimit::default();
        for _ in 0..1000 {
            follow(&mut limit, 2, 22, 100);
            assert!(!limit.is_exceeded());
            limit.data(BYTES_FOR_RECORD);
        }
    }
}
