//! Splits a byte stream into PDUs. The stream may be fragmented at any place.

use nvme_tcp::wire::{CommonHeader, Digest, Framing, Layout, Pdu, PduError, PduType};

/// The longest header with digest and padding. PDO has one byte.
const PREFIX_MAX: usize = 256;

/// The position in the received stream.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) framing: Framing,
    state: State,
    prefix: [u8; PREFIX_MAX],
    /// Bytes in `prefix`.
    prefix_len: usize,
    /// Bytes of `prefix` that belong to the last header, or to the partial header that is arriving.
    header_len: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Collecting header, header digest and padding.
    Prefix,
    /// In the data of a PDU.
    Data { remaining: u32, digest: Option<Digest> },
    /// Collecting the data digest.
    DataDigest { computed: Digest },
}

/// A part of a PDU.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// A header, with the length of the data that follows.
    Header(Pdu, u32),
    /// A part of the data.
    Data(&'a [u8]),
    /// The end of the data, and whether the data digest was right. PDUs without data have no such item.
    End { intact: bool },
}

impl Receiver {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, state: State::Prefix, prefix: [0; PREFIX_MAX], prefix_len: 0, header_len: 0 }
    }

    /// The last header, or the part of it that has arrived, for a terminate request.
    pub(super) fn header_bytes(&self) -> &[u8] {
        &self.prefix[..self.header_len.min(Pdu::HEADER_LEN_MAX)]
    }

    /// Takes the next item from the front of `bytes`; `None` if more bytes are needed.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Item<'a>>, PduError> {
        if let State::Data { remaining: 0, digest: Some(computed) } = self.state {
            self.prefix_len = 0;
            self.state = State::DataDigest { computed };
        }
        match self.state {
            State::Prefix => self.next_header(bytes),
            State::Data { remaining: 0, .. } => {
                self.restart();
                Ok(Some(Item::End { intact: true }))
            }
            State::Data { remaining, digest } => {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let (data, rest) = bytes.split_at((remaining as usize).min(bytes.len()));
                *bytes = rest;
                let digest = digest.map(|mut digest| {
                    digest.update(data);
                    digest
                });
                self.state = State::Data { remaining: remaining - data.len() as u32, digest };
                Ok(Some(Item::Data(data)))
            }
            State::DataDigest { computed } => {
                if !self.collect(bytes, Digest::LEN) {
                    return Ok(None);
                }
                let intact = self.prefix[..Digest::LEN] == computed.emit();
                self.restart();
                Ok(Some(Item::End { intact }))
            }
        }
    }

    /// Bytes that complete the PDU whose header has arrived.
    pub(super) fn missing_bytes(&self) -> u32 {
        match self.state {
            State::Prefix => 0,
            State::Data { remaining, digest: None } => remaining,
            State::Data { remaining, digest: Some(_) } => remaining + Digest::LEN as u32,
            State::DataDigest { .. } => (Digest::LEN - self.prefix_len) as u32,
        }
    }

    fn restart(&mut self) {
        self.state = State::Prefix;
        self.prefix_len = 0;
    }

    /// Moves bytes into `prefix` until it has `needed` bytes. Returns whether it has.
    fn collect(&mut self, bytes: &mut &[u8], needed: usize) -> bool {
        let missing = needed.saturating_sub(self.prefix_len).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.prefix[self.prefix_len..][..missing].copy_from_slice(taken);
        self.prefix_len += missing;
        *bytes = rest;
        self.prefix_len >= needed
    }

    fn next_header(&mut self, bytes: &mut &[u8]) -> Result<Option<Item<'static>>, PduError> {
        if !self.collect(bytes, CommonHeader::LEN) {
            return Ok(None);
        }
        self.header_len = self.prefix_len;
        let common = CommonHeader::parse(&self.prefix[..CommonHeader::LEN])?;
        let layout = self.framing.layout(&common)?;
        if !self.collect(bytes, layout.data_start() as usize) {
            return Ok(None);
        }
        self.header_len = self.prefix_len;
        self.check_digest(common.pdu, &layout)?;
        let pdu = Pdu::parse(&common, &layout, &self.prefix[..self.prefix_len])?;
        if layout.data_len > 0 {
            let digest = layout.data_digest.then(Digest::default);
            self.state = State::Data { remaining: layout.data_len, digest };
        } else {
            self.prefix_len = 0;
        }
        Ok(Some(Item::Header(pdu, layout.data_len)))
    }

    fn check_digest(&self, pdu: PduType, layout: &Layout) -> Result<(), PduError> {
        if !layout.header_digest {
            return Ok(());
        }
        let (header, rest) = self.prefix.split_at(layout.header_len as usize);
        let mut computed = Digest::default();
        computed.update(header);
        let received = rest.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes));
        if received == computed.value() {
            return Ok(());
        }
        Err(PduError::HeaderDigest { pdu, received, computed: computed.value() })
    }
}
