//! Decides: a PDU is a protocol error.
//! Decides: a data digest is wrong: the command fails and is retried.
//!
//! Receiving: every PDU is checked against the commands in flight before it has any effect.

use super::command_table::{Direction, InFlightCommand};
use super::error::{ProtocolError, QueueError};
use super::header_buffer::{HeaderBuffer, ParsedHeader, PlainHeader};
use super::queue_pair::{CommandSink, EndedCommand, Phase, QueuePair, R2T_LIMIT};
use super::request::Tag;
use crate::wire::{C2hData, Digest, Framing, Layout, Pdu, PduType, R2t, Status};

/// A part of the stream that can be received directly into a request's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectRecv {
    /// The request.
    pub tag: Tag,
    /// Offset in the request's whole payload, in bytes.
    pub offset: u32,
    /// Bytes of data before the next PDU.
    pub len: u32,
}

/// The data of a `C2HData` that have not arrived.
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
    /// Bytes of `received` that have arrived.
    len: usize,
}

/// The position in the received stream.
#[derive(Debug)]
pub(super) struct Receiver {
    header: HeaderBuffer,
    /// The data that come next; `None` if a header comes next.
    incoming: Option<Incoming>,
}

impl Receiver {
    pub(super) const fn new() -> Self {
        Self { header: HeaderBuffer::new(), incoming: None }
    }
}

impl<R: Default> QueuePair<R> {
    /// Takes bytes from the connection. After an error the pair has failed, and each call returns the same error.
    pub(super) fn receive(&mut self, bytes: &[u8], events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        if let Phase::Failed(error) = &self.phase {
            return Err(error.clone());
        }
        let outcome = self.take(bytes, events);
        self.keep_error(outcome)
    }

    /// Remembers an error: the pair has failed.
    #[inline]
    fn keep_error(&mut self, outcome: Result<(), QueueError>) -> Result<(), QueueError> {
        outcome.inspect_err(|error| self.phase = Phase::Failed(error.clone()))
    }

    /// After an error: the PDU that reports it. That is an `H2CTermReq`, or the Authentication Send of a failed authentication.
    /// `None` if there is nothing to report, or if a PDU is encoded in part: the controller would take the report for its data.
    pub(super) fn term_req(&self) -> Option<Vec<u8>> {
        let Phase::Failed(error) = &self.phase else { return None };
        if self.refusal.is_some() {
            return self.refusal.clone();
        }
        let term = error.term_req().filter(|_| self.partial_pdu.is_none())?;
        let mut pdu = Vec::new();
        Pdu::H2cTermReq(term).emit(&Framing::default(), self.receiver.header.last(), &mut pdu);
        Some(pdu)
    }

    /// Owner, payload offset and length of data that can be received in place.
    pub(super) fn direct(&mut self) -> Option<(u16, u32, u32)> {
        match self.receiver.incoming {
            Some(Incoming { cid, pad: 0, left, digest: None, .. }) if self.is_ready() => {
                let command = self.commands.get_mut(cid).expect("data end before their command");
                Some((command.owner, command.base + command.moved, left))
            }
            _ => None,
        }
    }

    /// Takes note of `count` bytes received in place, at most the length from `direct`.
    pub(super) fn received_direct(&mut self, count: u32, events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        let incoming = self.receiver.incoming.as_mut().expect("direct() has returned data");
        assert!(count <= incoming.left && incoming.digest.is_none(), "at most the length from direct()");
        incoming.left -= count;
        let cid = incoming.cid;
        self.commands.get_mut(cid).expect("data end before their command").moved += count;
        let outcome = self.end_of_data(events);
        self.keep_error(outcome)
    }

    fn take(&mut self, mut bytes: &[u8], events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        while !bytes.is_empty() {
            if self.receiver.incoming.is_some() {
                self.take_data(&mut bytes, events)?;
            } else if self.is_ready()
                && let Some(head) = self.receiver.header.accept_plain(&mut bytes, self.rx)
            {
                self.on_plain_pdu(&head, &mut bytes, events)?;
            } else if let Some(head) = self.receiver.header.accept(&mut bytes, self.rx)? {
                self.on_pdu(&head, events)?;
            }
        }
        Ok(())
    }

    fn take_data(&mut self, bytes: &mut &[u8], events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        let Some(incoming) = &mut self.receiver.incoming else {
            return Ok(());
        };
        let padding = split_front(bytes, incoming.pad);
        incoming.pad -= padding.len() as u32;
        let data = split_front(bytes, if incoming.pad == 0 { incoming.left } else { 0 });
        incoming.left -= data.len() as u32;
        if let Some(digest) = &mut incoming.digest {
            digest.computed.update(data);
            let missing = if incoming.left == 0 { Digest::LEN - digest.len } else { 0 };
            let part = split_front(bytes, missing as u32);
            digest.received[digest.len..digest.len + part.len()].copy_from_slice(part);
            digest.len += part.len();
        }
        if !data.is_empty() {
            let index = self.commands.find(incoming.cid).expect("data end before their command");
            match &mut self.authentication {
                Some(authentication) => {
                    authentication.take_data(data);
                    self.commands.command_mut(index).moved += data.len() as u32;
                }
                None => self.scatter(index, data, events),
            }
        }
        self.end_of_data(events)
    }

    /// If the data are complete: expects a header next, and ends the command if the PDU had the SUCCESS flag.
    fn end_of_data(&mut self, events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        let Some(incoming) = self.receiver.incoming else {
            return Ok(());
        };
        if incoming.left > 0 || incoming.digest.is_some_and(|digest| digest.len < Digest::LEN) {
            return Ok(());
        }
        self.receiver.incoming = None;
        if incoming.digest.is_some_and(|digest| digest.computed.emit() != digest.received) {
            self.commands.get_mut(incoming.cid).expect("data end before their command").corrupted = true;
        }
        if incoming.success { self.end(PduType::C2hData, incoming.cid, Status::SUCCESS, 0, events) } else { Ok(()) }
    }

    /// Moves data of the command in slot `index` to their place.
    #[inline]
    fn scatter(&mut self, index: u16, data: &[u8], events: &mut impl CommandSink<R>) {
        let command = self.commands.command_mut(index);
        let (owner, offset) = (command.owner, command.base + command.moved);
        command.moved += data.len() as u32;
        events.scatter(self.commands.request(owner), offset, data);
    }

    /// Takes a PDU without digest and padding on a ready queue, and its data if all of them have arrived.
    fn on_plain_pdu(
        &mut self,
        head: &PlainHeader,
        bytes: &mut &[u8],
        events: &mut impl CommandSink<R>,
    ) -> Result<(), QueueError> {
        let data = match head {
            PlainHeader::CapsuleResp(cqe) => {
                return self.end(PduType::CapsuleResp, cqe.cid.get(), cqe.status(), cqe.result.get(), events);
            }
            PlainHeader::C2hData(data) => data,
        };
        let index = self.check_data(data)?;
        let C2hData { cid, length, success, .. } = *data;
        let Some((payload, rest)) = bytes.split_at_checked(length as usize) else {
            self.receiver.incoming = Some(Incoming { cid, success, pad: 0, left: length, digest: None });
            return Ok(());
        };
        *bytes = rest;
        self.scatter(index, payload, events);
        if success { self.end_command(index, cid, Status::SUCCESS, 0, events) } else { Ok(()) }
    }

    fn on_pdu(&mut self, head: &ParsedHeader, events: &mut impl CommandSink<R>) -> Result<(), QueueError> {
        match (head.pdu, &self.phase) {
            (Pdu::C2hTermReq(term), _) => Err(ProtocolError::Terminated { fes: term.fes, fei: term.fei }.into()),
            (Pdu::IcResp(icresp), Phase::AwaitIcResp) => self.on_icresp(icresp),
            (Pdu::CapsuleResp(cqe), Phase::AwaitConnect | Phase::Authenticate | Phase::Ready) => {
                self.end(PduType::CapsuleResp, cqe.cid.get(), cqe.status(), cqe.result.get(), events)
            }
            (Pdu::C2hData(data), Phase::Authenticate | Phase::Ready) => Ok(self.on_data(&data, &head.layout)?),
            (Pdu::R2t(r2t), Phase::Authenticate | Phase::Ready) => {
                self.check_r2t(&r2t)?;
                self.on_r2t(&r2t);
                Ok(())
            }
            (other, _) => Err(ProtocolError::UnexpectedPdu { pdu: other.pdu_type() }.into()),
        }
    }

    fn on_data(&mut self, data: &C2hData, layout: &Layout) -> Result<(), ProtocolError> {
        self.check_data(data)?;
        let C2hData { cid, length, success, .. } = *data;
        let digest = layout.data_digest.then(IncomingDigest::default);
        self.receiver.incoming = Some(Incoming { cid, success, pad: layout.pad_len, left: length, digest });
        Ok(())
    }

    /// Checks a `C2HData` against its command, whose slot it returns.
    #[inline]
    fn check_data(&mut self, data: &C2hData) -> Result<u16, ProtocolError> {
        let C2hData { cid, offset, length, success, .. } = *data;
        let pdu = PduType::C2hData;
        let index = self.commands.find(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        let command = self.commands.command_mut(index);
        check_move(command, Direction::In, pdu, cid, offset, length)?;
        let (moved, total) = (command.moved + length, command.length);
        if success && moved != total && !self.may_be_short(Direction::In) {
            return Err(ProtocolError::ShortData { cid, moved, total });
        }
        Ok(index)
    }

    fn check_r2t(&mut self, r2t: &R2t) -> Result<(), ProtocolError> {
        let R2t { cid, offset, length, .. } = *r2t;
        let pdu = PduType::R2t;
        let command = self.commands.get_mut(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        if length == 0 {
            return Err(ProtocolError::EmptyR2t { cid });
        }
        check_move(command, Direction::Out, pdu, cid, offset, length)?;
        if command.transfers >= R2T_LIMIT {
            return Err(ProtocolError::R2tLimit { cid, limit: R2T_LIMIT });
        }
        command.moved += length;
        command.transfers += 1;
        Ok(())
    }

    /// Ends a command, by `CapsuleResp` or by `C2HData` with SUCCESS.
    fn end(
        &mut self,
        pdu: PduType,
        cid: u16,
        status: Status,
        result: u64,
        events: &mut impl CommandSink<R>,
    ) -> Result<(), QueueError> {
        let index = self.commands.find(cid).ok_or(ProtocolError::UnknownCid { pdu, cid })?;
        self.end_command(index, cid, status, result, events)
    }

    /// Ends the command in slot `index`: its data transfers stop, and its request gets the completion.
    fn end_command(
        &mut self,
        index: u16,
        cid: u16,
        status: Status,
        result: u64,
        events: &mut impl CommandSink<R>,
    ) -> Result<(), QueueError> {
        // The checks come before the end: a command with a protocol violation stays in flight and is reported lost.
        if self.partial_pdu.as_ref().is_some_and(|partial_pdu| partial_pdu.is_capsule_of(cid)) {
            return Err(ProtocolError::EarlyResponse { cid }.into());
        }
        let &mut InFlightCommand { owner, part, direction, length, moved, transfers, corrupted, sent_at, .. } =
            self.commands.command_mut(index);
        if status.is_success() && (moved != length && !self.may_be_short(direction) || transfers > 0) {
            return Err(ProtocolError::ShortData { cid, moved, total: length }.into());
        }
        self.commands.end(index);
        if transfers > 0 {
            self.transfers.retain(|transfer| transfer.cid != cid);
            if let Some(partial_pdu) = &mut self.partial_pdu {
                partial_pdu.abandon(cid);
            }
        }
        let status = if corrupted && status.is_success() { Status::TRANSIENT_TRANSPORT_ERROR } else { status };
        if !self.is_ready() {
            return self.on_own_ended(status, result);
        }
        events.completed(&mut self.commands, owner, &EndedCommand { part, bytes: length, status, result, sent_at });
        Ok(())
    }

    /// Whether fewer data than asked for are fine: messages of the authentication are shorter than AL.
    #[inline]
    fn may_be_short(&self, direction: Direction) -> bool {
        self.authentication.is_some() && direction == Direction::In
    }
}

/// Checks a `C2HData` or R2T against its command.
#[inline]
fn check_move(
    command: &InFlightCommand,
    direction: Direction,
    pdu: PduType,
    cid: u16,
    offset: u32,
    length: u32,
) -> Result<(), ProtocolError> {
    if command.direction != direction {
        return Err(ProtocolError::WrongDirection { pdu, cid });
    }
    if offset != command.moved {
        return Err(ProtocolError::Offset { pdu, cid, expected: command.moved, got: offset });
    }
    if length > command.length - command.moved {
        return Err(ProtocolError::Overrun { pdu, cid, offset, length, total: command.length });
    }
    Ok(())
}

/// Splits up to `count` bytes off the front.
fn split_front<'a>(bytes: &mut &'a [u8], count: u32) -> &'a [u8] {
    let (front, rest) = bytes.split_at((count as usize).min(bytes.len()));
    *bytes = rest;
    front
}
