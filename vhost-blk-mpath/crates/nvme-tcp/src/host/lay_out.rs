//! Sending: capsules, and the data R2Ts ask for.

use super::pair::{Data, Job, OWNER_CONNECT, PairConfig, Phase, QueuePair, R2T_LIMIT, Source, Transfer};
use super::slots::{Direction, Slot};
use super::transmit::{COPY_MAX, Stage};
use crate::wire::{Connect, ConnectData, Digest, FabricsCommand, Framing, H2cData, IcReq, Pdu, Sgl};

/// Data that are named are cut at multiples of it, so that PDUs are not short for nothing.
const CUT_BYTES: u32 = 32 << 10;

/// An `H2CData` or a capsule whose header is laid out and whose data are being copied. It may take several calls: Linux' target
/// computes data digests over whole commands, so an R2T must not be answered by more PDUs than MAXH2CDATA asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying {
    cid: u16,
    owner: u16,
    /// Offset in the owner's payload, in bytes.
    at: u32,
    left: u32,
    digest: Option<Digest>,
    carrier: Carrier,
    /// The command has ended, its payload may be gone: zeroes go out in its place. They are no part of a capsule, so they cannot
    /// be executed: the controller has answered the command.
    abandoned: bool,
}

/// The PDU that data are laid out in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Capsule,
    /// Whether it is the last PDU of an R2T.
    H2cData {
        last: bool,
    },
}

impl Copying {
    /// Whether the capsule of the command with this CID is not laid out to its end.
    pub(super) fn is_capsule_of(&self, cid: u16) -> bool {
        self.cid == cid && self.carrier == Carrier::Capsule
    }

    /// The command with this CID has ended.
    pub(super) fn abandon(&mut self, cid: u16) {
        self.abandoned |= self.cid == cid;
    }
}

impl QueuePair {
    pub(super) fn fill_tx(&mut self, stage: &mut Stage<'_>, source: &mut impl Source) {
        match self.phase {
            Phase::SendIcReq if stage.room().is_some() => {
                let icreq = IcReq { hpda: 0, digests: self.config.digests, maxr2t: u32::from(R2T_LIMIT) - 1 };
                stage.staged(|out| Pdu::IcReq(icreq).emit(&Framing::default(), &[], out));
                self.phase = Phase::AwaitIcResp;
            }
            Phase::SendConnect if stage.room() >= Some(ConnectData::LEN as u32) => {
                self.lay_out_connect(stage);
                self.phase = Phase::AwaitConnect;
            }
            Phase::Ready => {
                if !self.go_on_copying(stage, source) {
                    return;
                }
                // Capsules first: they are small and give the controller something to do while data flow. Those that carry data are
                // not small, and there may be no end of them.
                while self.slots.has_free()
                    && stage.room() >= Some(COPY_MAX)
                    && (self.transfers.is_empty() || stage.is_half_free())
                {
                    let Some(job) = source.next_job() else { break };
                    if !self.lay_out_capsule(stage, job, source) {
                        return;
                    }
                }
                self.lay_out_transfers(stage, source);
            }
            _ => {}
        }
    }

    fn lay_out_connect(&mut self, stage: &mut Stage<'_>) {
        let PairConfig { qid, entries, host, subnqn, cntlid, kato, .. } = &self.config;
        let data =
            ConnectData { hostid: host.hostid, cntlid: *cntlid, subnqn: subnqn.clone(), hostnqn: host.hostnqn.clone() };
        let command = FabricsCommand::Connect(Connect {
            qid: *qid,
            sqsize: entries - 1,
            cattr: 0,
            kato_ms: u32::try_from(kato.as_millis()).unwrap_or(u32::MAX),
        });
        let length = ConnectData::LEN as u32;
        let slot = Slot {
            owner: OWNER_CONNECT,
            direction: Direction::Out,
            base: 0,
            length,
            moved: length,
            transfers: 0,
            corrupted: false,
            sent_at: stage.now,
        };
        let cid = self.slots.insert(slot).expect("no command is in flight before Connect");
        let sqe = command.to_sqe(cid, Sgl::InCapsule { offset: 0, length });
        stage.staged(|out| Pdu::CapsuleCmd(sqe).emit(&self.tx, &data.emit(), out));
    }

    /// Lays out a command and, if the controller takes them in the capsule, its data; whether there was room for all of it.
    fn lay_out_capsule(&mut self, stage: &mut Stage<'_>, job: Job, source: &impl Source) -> bool {
        let Job { owner, mut sqe, data } = job;
        let (direction, base, length) = match data {
            Data::None => (Direction::None, 0, 0),
            Data::In { offset, length } => (Direction::In, offset, length),
            Data::Out { offset, length } => (Direction::Out, offset, length),
        };
        // Not a choice: Linux' target waits for ever for the data of a write that would have fitted (6.1,
        // nvmet_tcp_queue_response: "Wait for inline data" looks at the length, not at the SGL's type).
        let in_capsule = direction == Direction::Out && length <= self.config.in_capsule_bytes;
        let (sgl, carried) =
            if in_capsule { (Sgl::InCapsule { offset: 0, length }, length) } else { (Sgl::Transport { length }, 0) };
        let slot =
            Slot { owner, direction, base, length, moved: carried, transfers: 0, corrupted: false, sent_at: stage.now };
        let cid = self.slots.insert(slot).expect("checked by the caller");
        sqe.cid = cid.into();
        sqe.dptr = sgl.emit();
        stage.staged(|out| Pdu::CapsuleCmd(sqe).emit_header(&self.tx, carried, out));
        carried == 0 || self.lay_out_data(stage, source, cid, base, carried, Carrier::Capsule)
    }

    fn lay_out_transfers(&mut self, stage: &mut Stage<'_>, source: &impl Source) {
        while let (Some(transfer), Some(_)) = (self.transfers.front_mut(), stage.room()) {
            let Transfer { cid, ttag, offset, remaining } = *transfer;
            let enough = if self.tx.digests.data {
                // See `Copying`.
                u32::MAX
            } else {
                stage.left().checked_next_multiple_of(CUT_BYTES).unwrap_or(u32::MAX)
            };
            let length = remaining.min(self.maxh2cdata).min(enough);
            let last = length == remaining;
            transfer.offset += length;
            transfer.remaining -= length;
            let slot = self.slots.get_mut(cid).expect("transfers end with their command");
            let at = slot.base + offset;
            let header = Pdu::H2cData(H2cData { cid, ttag, offset, length, last });
            stage.staged(|out| header.emit_header(&self.tx, length, out));
            if !self.lay_out_data(stage, source, cid, at, length, Carrier::H2cData { last }) {
                return;
            }
        }
    }

    /// The data of a PDU, from offset `at` of the owner's payload on: copied or named. Whether there was room for all of it;
    /// otherwise `copying` has the rest.
    fn lay_out_data(
        &mut self,
        stage: &mut Stage<'_>,
        source: &impl Source,
        cid: u16,
        at: u32,
        length: u32,
        carrier: Carrier,
    ) -> bool {
        let owner = self.slots.get_mut(cid).expect("only commands in flight have data to send").owner;
        if self.tx.digests.data || length <= COPY_MAX {
            let digest = self.tx.digests.data.then(Digest::default);
            self.copying = Some(Copying { cid, owner, at, left: length, digest, carrier, abandoned: false });
            return self.go_on_copying(stage, source);
        }
        stage.payload(source.tag(owner), at, length);
        if carrier == (Carrier::H2cData { last: true }) {
            self.end_transfer(cid);
        }
        true
    }

    /// Copies as much as there is room for; whether that was all.
    fn go_on_copying(&mut self, stage: &mut Stage<'_>, source: &impl Source) -> bool {
        let Some(copying) = &mut self.copying else {
            return true;
        };
        let count = copying.left.min(stage.free());
        if count > 0 {
            stage.staged(|out| {
                let start = out.len();
                out.resize(start + count as usize, 0);
                if !copying.abandoned {
                    source.gather(copying.owner, copying.at, &mut out[start..]);
                }
                if let Some(digest) = &mut copying.digest {
                    digest.update(&out[start..]);
                }
            });
            copying.at += count;
            copying.left -= count;
        }
        if copying.left > 0 {
            return false;
        }
        if let Some(digest) = copying.digest {
            if stage.free() < Digest::LEN as u32 {
                return false;
            }
            stage.staged(|out| out.extend_from_slice(&digest.emit()));
        }
        let Copying { cid, carrier, abandoned, .. } = *copying;
        self.copying = None;
        if carrier == (Carrier::H2cData { last: true }) && !abandoned {
            self.end_transfer(cid);
        }
        true
    }

    /// The first transfer is laid out to its end.
    fn end_transfer(&mut self, cid: u16) {
        self.slots.get_mut(cid).expect("transfers end with their command").transfers -= 1;
        let ended = self.transfers.pop_front();
        assert!(ended.is_some_and(|transfer| transfer.cid == cid), "transfers are answered in order");
    }
}
