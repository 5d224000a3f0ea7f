//! Receiving: every PDU is checked against what is in flight before anything happens.

use super::error::{ProtocolError, QueueError};
use super::header_buffer::{Head, HeaderBuffer};
use super::pair::{Events, Phase, QueuePair, R2T_LIMIT};
use super::request::Tag;
use super::slots::{Direction, Slot};
use crate::wire::{C2hData, Digest, Framing, Layout, Pdu, PduType, R2t, Status};

/// What may be received straight into a request's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectRecv {
    /// The request.
    pub tag: Tag,
    /// Offset in the request's whole payload, in bytes.
    pub offset: u32,
    /// Bytes; what follows them is the next PDU.
    pub len: u32,
}

/// Data of a `C2HData` still to come.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    cid: u16,
    success: bool,
    pad: u32,
    left: u32,
    digest: Option<IncomingDigest>,
}

#[derive(Debug, Clone, Copy, Default)]
struct IncomingDigest {
    computed: Digest,
    received: [u8; Digest::LEN],
    /// Bytes of `received` that have come.
    len: usize,
}

/// Where in the stream we are.
#[derive(Debug)]
pub(super) struct Receiver {
    header: HeaderBuffer,
    /// The data that come next; a header otherwise.
    incoming: Option<Incoming>,
}

impl Receiver {
    pub(super) const fn new() -> Self {
        Self { header: HeaderBuffer::new(), incoming: None }
    }
}

impl QueuePair {
    /// Takes bytes off the connection. After an error the pair has failed, and says the same again.
    pub(super) fn receive(&mut self, bytes: &[u8], events: &mut impl Events) -> Result<(), QueueError> {
        if let Phase::Failed(error) = self.phase {
            return Err(error);
        }
        self.take(bytes, events).inspect_err(|&error| self.phase = Phase::Failed(error))
    }

    /// After an error: the `H2CTermReq` that reports it. `None` if there is nothing to report, or if a PDU is laid out in part, in whose
    /// data it would end up.
    pub(super) fn term_req(&self) -> Option<Vec<u8>> {
        let Phase::Failed(error) = self.phase else { return None };
        let term = error.term_req().filter(|_| self.copying.is_none())?;
        let mut pdu = Vec::new();
        Pdu::H2cTermReq(term).emit(&Framing::default(), self.receiver.header.last(), &mut pdu);
        Some(pdu)
    }

    /// Owner, offset and length of what may be received in place.
    pub(super) fn direct(&mut self) -> Option<(u16, u32, u32)> {
        match self.receiver.incoming {
            Some(Incoming { cid, pad: 0, left, digest: None, .. }) if !matches!(self.phase, Phase::Failed(_)) => {
                let slot = self.slots.get_mut(cid).expect("data end before their command");
                Some((slot.owner, slot.base + slot.moved, left))
            }
            _ => None,
        }
    }

    /// `count` bytes, at most what `direct` said, were received in place.
    pub(super) fn received_direct(&mut self, count: u32, events: &mut impl Events) -> Result<(), QueueError> {
        let incoming = self.receiver.incoming.as_mut().expect("direct() has said so");
        assert!(count <= incoming.left && incoming.digest.is_none(), "direct() has said how many");
        incoming.left -= count;
        let cid = incoming.cid;
        self.slots.get_mut(cid).expect("data end before their command").moved += count;
        self.end_of_data(events).inspect_err(|&error| self.phase = Phase::Failed(error))
    }

    fn take(&mut self, mut bytes: &[u8], events: &mut impl Events) -> Result<(), QueueError> {
        while !bytes.is_empty() {
            if self.receiver.incoming.is_some() {
                self.take_data(&mut bytes, events)?;
            } else if let Some(head) = self.receiver.header.accept(&mut bytes, self.rx)? {
                self.on_pdu(&head, events)?;
            }
        }
        Ok(())
    }

    fn take_data(&mut self, bytes: &mut &[u8], events: &mut impl Events) -> Result<(), QueueError> {
        let Some(incoming) = &mut self.receiver.incoming else {
            return Ok(());
        };
        let padding = split_front(bytes, incoming.pad);
        incoming.pad -= padding.len() as u32;
        let data = split_front(bytes, if incoming.pad == 0 { incoming.left } else { 0 });
        if !data.is_empty() {
            let slot = self.slots.get_mut(incoming.cid).expect("data end before their command");
            events.scatter(slot.owner, slot.base + slot.moved, data);
            slot.moved += data.len() as u32;
            incoming.left -= data.len() as u32;
            if let Some(digest) = &mut incoming.digest {
                digest.computed.update(data);
            }
        }
        if incoming.left == 0
            && let Some(digest) = &mut incoming.digest
        {
            let part = split_front(bytes, (Digest::LEN - digest.len) as u32);
            digest.received[digest.len..digest.len + part.len()].copy_from_slice(part);
            digest.len += part.len();
        }
        self.end_of_data(events)
    }

    /// Goes back to headers if the data are complete, and ends the command if they say so.
    fn end_of_data(&mut self, events: &mut impl Events) -> Result<(), QueueError> {
        let Some(incoming) = self.receiver.incoming else {
            return Ok(());
        };
        if incoming.left > 0 || incoming.digest.is_some_and(|digest| digest.len < Digest::LEN) {
            return Ok(());
        }
        self.receiver.incoming = None;
        if incoming.digest.is_some_and(|digest| digest.computed.emit() != digest.received) {
            self.slots.get_mut(incoming.cid).expect("data end before their command").corrupted = true;
        }
        if incoming.success { self.end(PduType::C2hData, incoming.cid, Status::SUCCESS, 0, events) } else { Ok(()) }
    }

    fn on_pdu(&mut self, head: &Head, events: &mut impl Events) -> Result<(), QueueError> {
        match (head.pdu, self.phase) {
            (Pdu::C2hTermReq(term), _) => Err(ProtocolError::Terminated { fes: term.fes, fei: term.fei }.into()),
            (Pdu::IcResp(icresp), Phase::AwaitIcResp) => self.on_icresp(icresp),
            (Pdu::CapsuleResp(cqe), Phase::AwaitConnect | Phase::Ready) => {
                self.end(PduType::CapsuleResp, cqe.cid.get(), cqe.status(), cqe.result.get(), events)
            }
            (Pdu::C2hData(data), Phase::Ready) => Ok(self.on_data(&data, &head.layout)?),
            (Pdu::R2t(r2t), Phase::Ready) => {
                self.check_r2t(&r2t)?;
                self.on_r2t(&r2t);
                Ok(())
            }
            (other, _) => Err(ProtocolError::UnexpectedPdu { pdu: other.pdu_type() }.into()),
        }
    }

    fn on_data(&mut self, data: &C2hData, layout: &Layout) -> Result<(), ProtocolError> {
        let C2hData { cid, offset, length, success, .. } = *data;
        let pdu = PduType::C2hData;
        let slot = self.slots.get_mut(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        check_move(slot, Direction::In, pdu, cid, offset, length)?;
        let digest = layout.data_digest.then(IncomingDigest::default);
        self.receiver.incoming = Some(Incoming { cid, success, pad: layout.pad_len, left: length, digest });
        Ok(())
    }

    fn check_r2t(&mut self, r2t: &R2t) -> Result<(), ProtocolError> {
        let R2t { cid, offset, length, .. } = *r2t;
        let pdu = PduType::R2t;
        let slot = self.slots.get_mut(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        if length == 0 {
            return Err(ProtocolError::EmptyR2t { cid });
        }
        check_move(slot, Direction::Out, pdu, cid, offset, length)?;
        if slot.transfers >= R2T_LIMIT {
            return Err(ProtocolError::R2tLimit { cid, limit: R2T_LIMIT });
        }
        slot.moved += length;
        slot.transfers += 1;
        Ok(())
    }

    /// The end of a command, by `CapsuleResp` or by `C2HData` with SUCCESS.
    fn end(
        &mut self,
        pdu: PduType,
        cid: u16,
        status: Status,
        result: u64,
        events: &mut impl Events,
    ) -> Result<(), QueueError> {
        // Checked before the slot is freed, so that what breaks the protocol stays in flight, and is reported lost.
        let slot = *self.slots.get_mut(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        if self.copying.is_some_and(|copying| copying.is_capsule_of(cid)) {
            return Err(ProtocolError::EarlyResponse { cid }.into());
        }
        let Slot { moved, length, transfers, .. } = slot;
        if status.is_success() && (moved != length || transfers > 0) {
            return Err(ProtocolError::ShortData { cid, moved, total: length }.into());
        }
        self.slots.remove(cid);
        let corrupted = status.is_success() && slot.corrupted;
        let status = if corrupted { Status::TRANSIENT_TRANSPORT_ERROR } else { status };
        self.on_ended(cid, &slot, status, result, events)
    }
}

/// Checks `C2HData` and R2T against the command they name.
fn check_move(
    slot: &Slot,
    direction: Direction,
    pdu: PduType,
    cid: u16,
    offset: u32,
    length: u32,
) -> Result<(), ProtocolError> {
    if slot.direction != direction {
        return Err(ProtocolError::WrongDirection { pdu, cid });
    }
    if offset != slot.moved {
        return Err(ProtocolError::Offset { pdu, cid, expected: slot.moved, got: offset });
    }
    if length > slot.length - slot.moved {
        return Err(ProtocolError::Overrun { pdu, cid, offset, length, total: slot.length });
    }
    Ok(())
}

/// Takes up to `count` bytes from the front.
fn split_front<'a>(bytes: &mut &'a [u8], count: u32) -> &'a [u8] {
    let (front, rest) = bytes.split_at((count as usize).min(bytes.len()));
    *bytes = rest;
    front
}
