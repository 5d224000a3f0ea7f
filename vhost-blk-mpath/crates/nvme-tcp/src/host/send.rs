//! Decides: a payload is copied behind its header, or sent from guest memory.
//!
//! Sending: command capsules, and the data that R2Ts request.

use super::command_table::{Direction, InFlightCommand};
use super::queue_pair::{CommandSource, Phase, QueuePair, QueuePairConfig, R2T_LIMIT, Transfer};
use super::request::Part;
use super::staging::{COPY_MAX, Stage};
use crate::wire::{Connect, ConnectData, Digest, FabricsCommand, Framing, H2cData, IcReq, Pdu, Sgl, Sqe};

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
    kind: DataPdu,
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
    /// A PDU with `left` bytes of the data of a command, from `offset` on.
    fn new(cid: u16, command: &InFlightCommand, offset: u32, left: u32, kind: DataPdu) -> Self {
        let &InFlightCommand { owner, part, base, .. } = command;
        Self { cid, owner, part, at: base + offset, left, digest: None, kind, abandoned: false }
    }

    /// Whether this is the capsule of the command with this CID.
    pub(super) fn is_capsule_of(&self, cid: u16) -> bool {
        self.cid == cid && self.kind == DataPdu::Capsule
    }

    /// Stops reading the payload if this PDU belongs to the command with this CID, which has ended.
    pub(super) fn abandon(&mut self, cid: u16) {
        self.abandoned |= self.cid == cid;
    }
}

impl<R: Default> QueuePair<R> {
    /// Encodes what is ready to send, as far as there is room.
    pub(super) fn fill_tx(&mut self, stage: &mut Stage<'_>, source: &mut impl CommandSource<R>) {
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
                while self.commands.has_room()
                    && stage.room() >= Some(COPY_MAX)
                    && (self.transfers.is_empty() || stage.is_half_free())
                {
                    let Some((command, sqe)) = source.next_command_to_send(&mut self.commands) else { break };
                    if !self.encode_capsule(stage, command, sqe, source) {
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
        let cid = self.send_own(Direction::Out, length, length);
        let sqe = connect.to_sqe(cid, Sgl::InCapsule { offset: 0, length });
        stage.staged(|out| Pdu::CapsuleCmd(sqe).emit(&self.tx, &data.emit(), out));
    }

    /// Encodes a command capsule, with the data if they fit the capsule. Returns whether there was room for all data.
    #[inline]
    fn encode_capsule(
        &mut self,
        stage: &mut Stage<'_>,
        mut command: InFlightCommand,
        mut sqe: Sqe,
        source: &impl CommandSource<R>,
    ) -> bool {
        let length = command.length;
        // Data that fit must go into the capsule: without them Linux' target waits forever (6.1, nvmet_tcp_queue_response: "Wait
        // for inline data" checks the length and not the SGL's type).
        let in_capsule = command.direction == Direction::Out && length <= self.config.in_capsule_bytes;
        let (sgl, carried) =
            if in_capsule { (Sgl::InCapsule { offset: 0, length }, length) } else { (Sgl::Transport { length }, 0) };
        (command.moved, command.sent_at) = (carried, stage.now);
        let cid = self.commands.send(command);
        (sqe.cid, sqe.dptr) = (cid.into(), sgl.emit());
        stage.staged(|out| Pdu::emit_capsule_header(sqe, self.tx, carried, out));
        if carried == 0 {
            return true;
        }
        self.encode_data(stage, source, PartialPdu::new(cid, &command, 0, carried, DataPdu::Capsule))
    }

    fn encode_transfers(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource<R>) {
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
            let pdu = PartialPdu::new(cid, command, offset, length, DataPdu::H2cData { last });
            let header = Pdu::H2cData(H2cData { cid, ttag, offset, length, last });
            stage.staged(|out| header.emit_header(&self.tx, length, out));
            if !self.encode_data(stage, source, pdu) {
                return;
            }
        }
    }

    /// Encodes the data of a PDU: copied, or as a reference to the payload. Returns whether there was room for all data. If not,
    /// `partial_pdu` holds the rest.
    fn encode_data(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource<R>, mut pdu: PartialPdu) -> bool {
        if self.tx.digests.data {
            pdu.digest = Some(Digest::default());
        } else if pdu.left > COPY_MAX {
            stage.payload(source.tag(self.commands.request(pdu.owner)), pdu.at, pdu.left);
            pdu.left = 0;
        }
        self.copy_data(stage, source, pdu)
    }

    /// Continues with the partial PDU, if there is one. Returns whether it is complete.
    fn continue_partial_pdu(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource<R>) -> bool {
        self.partial_pdu.take().is_none_or(|pdu| self.copy_data(stage, source, pdu))
    }

    /// Copies as much of a PDU as there is room for. Returns whether the PDU is complete. If not, `partial_pdu` holds the rest.
    fn copy_data(&mut self, stage: &mut Stage<'_>, source: &impl CommandSource<R>, mut pdu: PartialPdu) -> bool {
        let count = pdu.left.min(stage.free());
        if count > 0 {
            stage.staged(|out| {
                let start = out.len();
                out.resize(start + count as usize, 0);
                if !pdu.abandoned {
                    source.gather(self.commands.request(pdu.owner), pdu.part, pdu.at, &mut out[start..]);
                }
                if let Some(digest) = &mut pdu.digest {
                    digest.update(&out[start..]);
                }
            });
            pdu.at += count;
            pdu.left -= count;
        }
        if pdu.left > 0 || pdu.digest.is_some() && stage.free() < Digest::LEN as u32 {
            self.partial_pdu = Some(pdu);
            return false;
        }
        if let Some(digest) = pdu.digest {
            stage.staged(|out| out.extend_from_slice(&digest.emit()));
        }
        if pdu.kind == (DataPdu::H2cData { last: true }) && !pdu.abandoned {
            self.end_transfer(pdu.cid);
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
