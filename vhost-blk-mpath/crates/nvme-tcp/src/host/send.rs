//! Decides: a payload is copied behind its header, or sent from guest memory.
//!
//! Sending: command capsules, and the data that R2Ts request.

use zerocopy::IntoBytes;

use super::command_table::{Direction, InFlightCommand};
use super::queue_pair::{
    CommandSource, CommandToSend, Data, OWNER_CONNECT, Phase, QueuePair, QueuePairConfig, R2T_LIMIT, Transfer,
};
use super::request::Part;
use super::staging::{COPY_MAX, Stage};
use crate::wire::{
    CommonHeader, Connect, ConnectData, Digest, FabricsCommand, Framing, H2cData, IcReq, Pdu, PduFlags, PduType, Sgl,
    Sqe,
};

/// PDUs that end at the byte goal of a call end at a multiple of this many bytes, so that they are not needlessly short.
const CUT_BYTES: u32 = 32 << 10;

/// An `H2CData` or a capsule whose header is encoded and whose data are being copied, possibly over several calls. The data could
/// also be split into several PDUs, but Linux' target computes data digests over whole commands. So the host answers an R2T with
/// no more PDUs than MAXH2CDATA requires.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartialPdu {
    cid: u16,
    owner: u16,
    part: Part,
    /// Offset in the owner's payload, in bytes.
    at: u32,
    left: u32,
    digest: Option<Digest>,
    pdu: DataPdu,
    /// The command has ended, so its payload may be gone. Zeroes are sent in place of the payload. The controller cannot execute
    /// them: they are not part of a capsule, and the command is answered.
    abandoned: bool,
}

/// The kind of the PDU that carries data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataPdu {
    Capsule,
    H2cData {
        /// The last PDU of an R2T.
        last: bool,
    },
}

impl PartialPdu {
    /// Whether this is the capsule of the command with this CID.
    pub(super) fn is_capsule_of(&self, cid: u16) -> bool {
        self.cid == cid && self.pdu == DataPdu::Capsule
    }

    /// Stops reading the payload if this PDU belongs to the command with this CID, which has ended.
    pub(super) fn abandon(&mut self, cid: u16) {
        self.abandoned |= self.cid == cid;
    }
}

impl QueuePair {
    /// Encodes what is ready to send, as far as there is room.
    pub(super) fn fill_tx(&mut self, stage: &mut Stage<'_>, source: &mut impl CommandSource) {
        match self.phase {
            Phase::SendIcReq if stage.room().is_some() => {
                let icreq = IcReq { hpda: 0, digests: self.config.digests, maxr2t: u32::from(R2T_LIMIT) - 1 };
                stage.staged(|out| Pdu::IcReq(icreq).emit(&Framing::default(), &[], out));
                self.phase = Phase::AwaitIcResp;
            }
            Phase::SendConnect if stage.room() >= Some(ConnectData::LEN as u32) => {
                self.encode_connect(stage);
                self.phase = Phase::AwaitConnect;
            }
            Phase::Authenticate => self.encode_authentication(stage),
            Phase::Ready => {
                if !self.continue_partial_pdu(stage, source) {
                    return;
                }
                // Capsules go first: they are small, and the controller can start on them while data are transferred. Capsules with
                // data are larger and may keep coming, so they leave half of the room to R2Ts.
                while self.commands.has_free()
                    && stage.room() >= Some(COPY_MAX)
                    && (self.transfers.is_empty() || stage.is_half_free())
                {
                    let mut sqe = Sqe::default();
                    let Some(command) = source.next_command_to_send(&mut sqe) else { break };
                    if !self.encode_capsule(stage, command, &mut sqe, source) {
                        return;
                    }
                }
                self.encode_transfers(stage, source);
            }
            _ => {}
        }
    }

    fn encode_connect(&mut self, stage: &mut Stage<'_>) {
        let QueuePairConfig { qid, entries, host, subnqn, cntlid, kato, .. } = &self.config;
        let data =
            ConnectData { hostid: host.hostid, cntlid: *cntlid, subnqn: subnqn.clone(), hostnqn: host.hostnqn.clone() };
        let connect = FabricsCommand::Connect(Connect {
            qid: *qid,
            sqsize: entries - 1,
            // No SQ flow control is needed, because the CIDs already bound the commands in flight. A controller that agrees
            // answers a read with one PDU less.
            cattr: Connect::NO_SQ_FLOW_CONTROL,
            kato_ms: u32::try_from(kato.as_millis()).unwrap_or(u32::MAX),
        });
        let length = ConnectData::LEN as u32;
        let command = InFlightCommand {
            owner: OWNER_CONNECT,
            part: Part::default(),
            direction: Direction::Out,
            base: 0,
            length,
            moved: length,
            transfers: 0,
            corrupted: false,
            sent_at: stage.now,
        };
        let cid = self.commands.insert(command).expect("no command is in flight before Connect");
        let sqe = connect.to_sqe(cid, Sgl::InCapsule { offset: 0, length });
        stage.staged(|out| Pdu::CapsuleCmd(sqe).emit(&self.tx, &data.emit(), out));
    }

    /// Encodes a command capsule, with the data if they fit the capsule. Returns whether there was room for all data.
    fn encode_capsule(
        &mut self,
        stage: &mut Stage<'_>,
        command: CommandToSend,
        sqe: &mut Sqe,
        source: &impl CommandSource,
    ) -> bool {
        let CommandToSend { owner, part, data } = command;
        let (direction, base, length) = match data {
            Data::None => (Direction::None, 0, 0),
            Data::In { offset, length } => (Direction::In, offset, length),
            Data::Out { offset, length } => (Direction::Out, offset, length),
        };
        // Data that fit must go into the capsule: without them Linux' target waits forever (6.1, nvmet_tcp_queue_response: "Wait
        // for inline data" checks the length and not the SGL's type).
        let in_capsule = direction == Direction::Out && length <= self.config.in_capsule_bytes;
        let (sgl, carried) =
            if in_capsule { (Sgl::InCapsule { offset: 0, length }, length) } else { (Sgl::Transport { length }, 0) };
        let command = InFlightCommand {
            owner,
            part,
            direction,
            base,
            length,
            moved: carried,
            transfers: 0,
            corrupted: false,
            sent_at: stage.now,
        };
        let cid = self.commands.insert(command).expect("the caller has checked for a free CID");
        sqe.cid = cid.into();
        sqe.dptr = sgl.emit();
        stage.staged(|out| {
            if carried == 0 && !self.tx.digests.header {
                out.extend_from_slice(&plain_capsule(sqe));
            } else {
                Pdu::CapsuleCmd(*sqe).emit_header(&self.tx, carried, out);
            }
        });
        carried == 0 || self.encode_data(stage, source, cid, base, carried, DataPdu::Capsule)
    }

    fn encode_transfers(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource) {
        while let (Some(transfer), Some(_)) = (self.transfers.front_mut(), stage.room()) {
            let Transfer { cid, ttag, offset, remaining } = *transfer;
            let limit = if self.tx.digests.data {
                // See `PartialPdu`.
                u32::MAX
            } else {
                stage.left().checked_next_multiple_of(CUT_BYTES).unwrap_or(u32::MAX)
            };
            let length = remaining.min(self.maxh2cdata).min(limit);
            let last = length == remaining;
            transfer.offset += length;
            transfer.remaining -= length;
            let command = self.commands.get_mut(cid).expect("transfers end with their command");
            let at = command.base + offset;
            let header = Pdu::H2cData(H2cData { cid, ttag, offset, length, last });
            stage.staged(|out| header.emit_header(&self.tx, length, out));
            if !self.encode_data(stage, source, cid, at, length, DataPdu::H2cData { last }) {
                return;
            }
        }
    }

    /// Encodes the data of a PDU, from offset `at` of the owner's payload: copied, or as a reference to the payload. Returns
    /// whether there was room for all data. If not, `partial_pdu` holds the rest.
    fn encode_data(
        &mut self,
        stage: &mut Stage<'_>,
        source: &impl CommandSource,
        cid: u16,
        at: u32,
        length: u32,
        pdu: DataPdu,
    ) -> bool {
        let &mut InFlightCommand { owner, part, .. } =
            self.commands.get_mut(cid).expect("only commands in flight have data to send");
        if self.tx.digests.data || length <= COPY_MAX {
            let digest = self.tx.digests.data.then(Digest::default);
            self.partial_pdu = Some(PartialPdu { cid, owner, part, at, left: length, digest, pdu, abandoned: false });
            return self.continue_partial_pdu(stage, source);
        }
        stage.payload(source.tag(owner), at, length);
        if pdu == (DataPdu::H2cData { last: true }) {
            self.end_transfer(cid);
        }
        true
    }

    /// Copies as much of a partial PDU as there is room for. Returns whether the PDU is complete.
    fn continue_partial_pdu(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource) -> bool {
        let Some(partial_pdu) = &mut self.partial_pdu else {
            return true;
        };
        let count = partial_pdu.left.min(stage.free());
        if count > 0 {
            stage.staged(|out| {
                let start = out.len();
                out.resize(start + count as usize, 0);
                if !partial_pdu.abandoned {
                    source.gather(partial_pdu.owner, partial_pdu.part, partial_pdu.at, &mut out[start..]);
                }
                if let Some(digest) = &mut partial_pdu.digest {
                    digest.update(&out[start..]);
                }
            });
            partial_pdu.at += count;
            partial_pdu.left -= count;
        }
        if partial_pdu.left > 0 {
            return false;
        }
        if let Some(digest) = partial_pdu.digest {
            if stage.free() < Digest::LEN as u32 {
                return false;
            }
            stage.staged(|out| out.extend_from_slice(&digest.emit()));
        }
        let PartialPdu { cid, pdu, abandoned, .. } = *partial_pdu;
        self.partial_pdu = None;
        if pdu == (DataPdu::H2cData { last: true }) && !abandoned {
            self.end_transfer(cid);
        }
        true
    }

    /// Ends the first transfer: all its data are encoded.
    fn end_transfer(&mut self, cid: u16) {
        self.commands.get_mut(cid).expect("transfers end with their command").transfers -= 1;
        let ended = self.transfers.pop_front();
        assert!(ended.is_some_and(|transfer| transfer.cid == cid), "R2Ts are answered in order");
    }
}

const CAPSULE_LEN: usize = PduType::CapsuleCmd.header_len() as usize;

/// A command capsule without data and digests. Most capsules are of this kind.
#[inline]
fn plain_capsule(sqe: &Sqe) -> [u8; CAPSULE_LEN] {
    const COMMON: [u8; CommonHeader::LEN] =
        CommonHeader { pdu: PduType::CapsuleCmd, flags: PduFlags(0), pdo: 0, plen: CAPSULE_LEN as u32 }.emit();
    let mut capsule = [0; CAPSULE_LEN];
    let (common, entry) = capsule.split_at_mut(CommonHeader::LEN);
    common.copy_from_slice(&COMMON);
    entry.copy_from_slice(sqe.as_bytes());
    capsule
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Digests;

    proptest! {
        #[test]
        fn a_plain_capsule_is_as_the_encoder_writes_it(sqe: [u8; Sqe::LEN], data: bool, alignment in 0_u8..32) {
            let sqe: Sqe = zerocopy::transmute!(sqe);
            let framing = Framing { digests: Digests { header: false, data }, alignment };
            let mut encoded = Vec::new();
            Pdu::CapsuleCmd(sqe).emit(&framing, &[], &mut encoded);
            prop_assert_eq!(&plain_capsule(&sqe)[..], encoded);
        }
    }
}
