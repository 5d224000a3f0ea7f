//! Cuts a stream of bytes into PDUs, however it was fragmented.

use crate::wire::{CommonHeader, Digest, Framing, Layout, Pdu, PduError, PduType};

/// Longest header with digest and padding: PDO is one byte.
const PREFIX_MAX: usize = 256;

/// The receiving side of a connection: what is needed next, and how far it has come.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) framing: Framing,
    state: State,
    prefix: [u8; PREFIX_MAX],
    have: usize,
    /// Bytes of `prefix` that are the last header, or what there is of it.
    header_have: usize,
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

/// One step of a PDU.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// A header, with the length of the data that follows.
    Header(Pdu, u32),
    /// A part of the data.
    Data(&'a [u8]),
    /// The end of the data, and whether its digest was right. Not reported for PDUs without data.
    End { intact: bool },
}

impl Receiver {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, state: State::Prefix, prefix: [0; PREFIX_MAX], have: 0, header_have: 0 }
    }

    /// What of the last header there is, for a terminate request.
    pub(super) fn header_bytes(&self) -> &[u8] {
        &self.prefix[..self.header_have.min(Pdu::HEADER_LEN_MAX)]
    }

    /// Takes bytes off the front of `bytes` up to the next item; `None` when more bytes are needed.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Item<'a>>, PduError> {
        if let State::Data { remaining: 0, digest: Some(computed) } = self.state {
            self.have = 0;
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

    /// Bytes that are missing of the PDU whose header is here.
    pub(super) fn missing_bytes(&self) -> u32 {
        match self.state {
            State::Prefix => 0,
            State::Data { remaining, digest: None } => remaining,
            State::Data { remaining, digest: Some(_) } => remaining + Digest::LEN as u32,
            State::DataDigest { .. } => (Digest::LEN - self.have) as u32,
        }
    }

    fn restart(&mut self) {
        self.state = State::Prefix;
        self.have = 0;
    }

    /// Moves bytes into `prefix` until there are `needed`.
    fn collect(&mut self, bytes: &mut &[u8], needed: usize) -> bool {
        let missing = needed.saturating_sub(self.have).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.prefix[self.have..][..missing].copy_from_slice(taken);
        self.have += missing;
        *bytes = rest;
        self.have >= needed
    }

    fn next_header(&mut self, bytes: &mut &[u8]) -> Result<Option<Item<'static>>, PduError> {
        if !self.collect(bytes, CommonHeader::LEN) {
            return Ok(None);
        }
        self.header_have = self.have;
        let common = CommonHeader::parse(&self.prefix[..CommonHeader::LEN])?;
        let layout = self.framing.layout(&common)?;
        if !self.collect(bytes, layout.data_start() as usize) {
            return Ok(None);
        }
        self.header_have = self.have;
        self.check_digest(common.pdu, &layout)?;
        let pdu = Pdu::parse(&common, &layout, &self.prefix[..self.have])?;
        if layout.data_len > 0 {
            let digest = layout.data_digest.then(Digest::default);
            self.state = State::Data { remaining: layout.data_len, digest };
        } else {
            self.have = 0;
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
