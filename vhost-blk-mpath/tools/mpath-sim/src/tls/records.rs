//! Records on their way.

use std::collections::VecDeque;

/// Type, version and length of a record (RFC 8446, section 5.2).
const HEADER_BYTES: usize = 5;
/// The bytes of a record with data that are not plain text: its header, the inner type, and the tag of AES-GCM.
const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + 16;
/// The type and the version of every encrypted record.
const HEADER: [u8; 3] = [23, 3, 3];

/// The outcome of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// All records so far are as they were sent.
    Authentic,
    /// A record was changed.
    Changed,
    /// The header of a record was changed, so the receiver may wait for a longer record.
    HeaderChanged,
}

/// The records of one direction that have not arrived, each with its plain text.
#[derive(Debug)]
pub(super) struct Records {
    sent: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the next record that have arrived.
    arrived: Vec<u8>,
    outcome: Received,
}

impl Records {
    pub(super) fn new() -> Self {
        Self { sent: VecDeque::new(), arrived: Vec::new(), outcome: Received::Authentic }
    }

    /// Notes a record that is sent.
    pub(super) fn sent(&mut self, record: Vec<u8>, plain: Vec<u8>) {
        self.sent.push_back((record, plain));
    }

    /// Notes the records of this plain text.
    pub(super) fn all_sent(&mut self, encrypted: &[u8], mut plain: &[u8]) {
        let mut encrypted = encrypted.to_vec();
        while let Some(Ok(record)) = take_record(&mut encrypted) {
            let (text, rest) = plain.split_at(plain.len().min(record.len() - OVERHEAD_BYTES));
            self.sent(record, text.to_vec());
            plain = rest;
        }
    }

    /// Takes bytes that have arrived. Returns the plain text of the records that they complete. There is none after a changed
    /// record.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> (Vec<u8>, Received) {
        self.arrived.extend(bytes);
        let mut plain = Vec::new();
        while self.outcome == Received::Authentic
            && let Some((record, _)) = self.sent.front()
            && let Some(arrived) = self.arrived.get(..record.len())
        {
            if arrived[..HEADER_BYTES] != record[..HEADER_BYTES] {
                self.outcome = Received::HeaderChanged;
            } else if arrived != record {
                self.outcome = Received::Changed;
            } else if let Some((record, text)) = self.sent.pop_front() {
                self.arrived.drain(..record.len());
                plain.extend(text);
            }
        }
        (plain, self.outcome)
    }
}

/// Takes the first record off these bytes, if it is complete. An error means that they are no encrypted record.
pub(super) fn take_record(bytes: &mut Vec<u8>) -> Option<Result<Vec<u8>, ()>> {
    let header = bytes.get(..HEADER_BYTES)?;
    if header[..HEADER.len()] != HEADER {
        return Some(Err(()));
    }
    let length = HEADER_BYTES + usize::from(u16::from_be_bytes([header[3], header[4]]));
    (bytes.len() >= length).then(|| Ok(bytes.drain(..length).collect()))
}
