//! A queue pair on its connection: handshake, capsules and data. It does not know what the commands mean.
//!
//! ```text
//! SendIcReq ─fill_tx─► AwaitIcResp ─ICResp─► SendConnect ─fill_tx─► AwaitConnect ─CQE─► Ready ─any error─► Failed
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::config::HostIdentity;
use super::error::{ConnectError, QueueError};
use super::lay_out::Copying;
use super::receive::Receiver;
use super::request::Tag;
use super::slots::{Slot, Slots};
use crate::wire::{CNTLID_ANY, ConnectField, ConnectResult, Digests, Framing, IcResp, Nqn, R2t, Sqe, Status};

/// R2Ts a controller may have outstanding for one command.
pub(super) const R2T_LIMIT: u8 = 4;

/// The owner of the Connect command, which no user of the pair may be.
pub(super) const OWNER_CONNECT: u16 = u16::MAX;

/// What Connect says.
#[derive(Debug, Clone)]
pub(super) struct PairConfig {
    pub(super) qid: u16,
    pub(super) entries: u16,
    pub(super) host: HostIdentity,
    pub(super) subnqn: Nqn,
    pub(super) cntlid: u16,
    pub(super) kato: Duration,
    pub(super) digests: Digests,
    pub(super) in_capsule_bytes: u32,
}

/// A command to send. The pair fills in CID and SGL.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) owner: u16,
    pub(super) sqe: Sqe,
    pub(super) data: Data,
}

/// A command's data: a part of its owner's payload, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Data {
    None,
    In { offset: u32, length: u32 },
    Out { offset: u32, length: u32 },
}

/// Where commands and their data come from.
pub(super) trait Source {
    /// The next command to send; it counts as issued.
    fn next_job(&mut self) -> Option<Job>;
    fn gather(&self, owner: u16, offset: u32, dst: &mut [u8]);
    /// The name under which the owner's payload can be sent without copying.
    fn tag(&self, owner: u16) -> Tag;
}

/// How a command has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Bytes of its data.
    pub(super) bytes: u32,
    pub(super) status: Status,
    pub(super) result: u64,
    /// When it was sent; not kept for admin commands.
    pub(super) sent_at: Option<Instant>,
}

/// Where data and completions go.
pub(super) trait Events {
    fn scatter(&mut self, owner: u16, offset: u32, src: &[u8]);
    /// A command has ended.
    fn completed(&mut self, owner: u16, ended: &Ended);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    SendIcReq,
    AwaitIcResp,
    SendConnect,
    AwaitConnect,
    Ready,
    Failed(QueueError),
}

/// An R2T in the course of being answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub(super) cid: u16,
    pub(super) ttag: u16,
    pub(super) offset: u32,
    pub(super) remaining: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) config: PairConfig,
    pub(super) phase: Phase,
    pub(super) tx: Framing,
    pub(super) rx: Framing,
    pub(super) maxh2cdata: u32,
    pub(super) slots: Slots,
    pub(super) transfers: VecDeque<Transfer>,
    /// The PDU whose data are being staged; nothing else may be laid out before its end.
    pub(super) copying: Option<Copying>,
    pub(super) receiver: Receiver,
    cntlid: u16,
}

impl QueuePair {
    /// A pair on a fresh connection. `config` was checked by whoever owns the pair.
    pub(super) fn new(config: PairConfig) -> Self {
        let slots = config.entries - 1;
        Self {
            phase: Phase::SendIcReq,
            tx: Framing::default(),
            rx: Framing::default(),
            maxh2cdata: 0,
            slots: Slots::new(slots),
            transfers: VecDeque::with_capacity(usize::from(slots) * usize::from(R2T_LIMIT)),
            copying: None,
            receiver: Receiver::new(),
            cntlid: CNTLID_ANY,
            config,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// The controller, once ready.
    pub(super) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// `ICResp` has come.
    pub(super) fn on_icresp(&mut self, icresp: IcResp) -> Result<(), QueueError> {
        let asked = self.config.digests;
        if icresp.digests != asked {
            return Err(ConnectError::Digests { asked, got: icresp.digests }.into());
        }
        self.tx = Framing { digests: asked, alignment: icresp.cpda };
        self.rx = Framing { digests: asked, alignment: 0 };
        self.maxh2cdata = icresp.maxh2cdata;
        self.phase = Phase::SendConnect;
        Ok(())
    }

    /// A checked R2T.
    pub(super) fn on_r2t(&mut self, r2t: &R2t) {
        let R2t { cid, ttag, offset, length } = *r2t;
        self.transfers.push_back(Transfer { cid, ttag, offset, remaining: length });
    }

    /// A command that was in flight has ended.
    pub(super) fn on_ended(
        &mut self,
        cid: u16,
        slot: &Slot,
        status: Status,
        result: u64,
        events: &mut impl Events,
    ) -> Result<(), QueueError> {
        if slot.transfers > 0 {
            self.transfers.retain(|transfer| transfer.cid != cid);
            if let Some(copying) = &mut self.copying {
                copying.abandon(cid);
            }
        }
        if slot.owner == OWNER_CONNECT {
            self.on_connected(status, result)
        } else {
            events.completed(slot.owner, &Ended { bytes: slot.length, status, result, sent_at: slot.sent_at });
            Ok(())
        }
    }

    fn on_connected(&mut self, status: Status, result: u64) -> Result<(), QueueError> {
        if status.is(Status::CONNECT_INVALID_PARAMETERS) {
            return Err(ConnectError::InvalidParameters { field: ConnectField::from_result(result) }.into());
        }
        status.result().map_err(|status| ConnectError::Rejected { status })?;
        let ConnectResult { cntlid, authentication_required, secure_channel_required } =
            ConnectResult::from_result(result);
        if authentication_required || secure_channel_required {
            return Err(ConnectError::AuthenticationRequired.into());
        }
        let wanted = self.config.cntlid;
        if wanted != CNTLID_ANY && wanted != cntlid {
            return Err(ConnectError::WrongController { wanted, got: cntlid }.into());
        }
        self.cntlid = cntlid;
        self.phase = Phase::Ready;
        Ok(())
    }
}
