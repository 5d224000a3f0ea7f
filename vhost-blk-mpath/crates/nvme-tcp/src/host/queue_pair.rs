//! A queue pair on its connection: handshake, capsules and data. It does not interpret the commands.
//!
//! ```text
//! SendIcReq ─fill_tx─► AwaitIcResp ─ICResp─► SendConnect ─fill_tx─► AwaitConnect ─CQE─► Ready ─any error─► Failed
//!                                                                       │                 ▲
//!                                                                  CQE with ATR           │ authenticated
//!                                                                       └─► Authenticate ─┘
//! ```

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use nvme_auth::GeneratedPsk;

use super::authentication::QueueAuthentication;
use super::command_table::{CommandTable, Direction, InFlightCommand};
use super::config::HostIdentity;
use super::error::{ConnectError, QueueError};
use super::receive::Receiver;
use super::request::{Part, Tag};
use super::send::PartialPdu;
use crate::authentication::{Authenticated, Authentication};
use crate::wire::{CNTLID_ANY, ConnectField, ConnectResult, Digests, Framing, IcResp, Nqn, R2t, Sqe, Status};

/// The most R2Ts that a controller may have outstanding for one command.
pub(super) const R2T_LIMIT: u8 = 4;

/// The parameters of `ICReq` and Connect.
#[derive(Debug, Clone)]
pub(super) struct QueuePairConfig {
    pub(super) qid: u16,
    pub(super) entries: u16,
    pub(super) host: HostIdentity,
    pub(super) subnqn: Nqn,
    pub(super) cntlid: u16,
    pub(super) kato: Duration,
    pub(super) digests: Digests,
    pub(super) in_capsule_bytes: u32,
    pub(super) authentication: Option<Authentication>,
    /// The connection uses TLS.
    pub(super) is_encrypted: bool,
}

/// The source of commands and of the data that they send. `R` is what the table keeps of a request.
pub(super) trait CommandSource<R> {
    /// The next command to send, which counts as issued, and its entry. The pair fills in CID, SGL and the time.
    fn next_command_to_send(&mut self, commands: &mut CommandTable<R>) -> Option<(InFlightCommand, Sqe)>;
    /// Copies the payload of the request from `offset` on into all of `dst`, for the command that covers `part`.
    fn gather(&self, request: &R, part: Part, offset: u32, dst: &mut [u8]);
    /// The tag under which the payload of the request can be sent without copying.
    fn tag(&self, request: &R) -> Tag;
}

/// The completion of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedCommand {
    pub(super) part: Part,
    /// Bytes of the command's data.
    pub(super) bytes: u32,
    pub(super) status: Status,
    pub(super) result: u64,
    /// When the command was sent; `None` for admin commands.
    pub(super) sent_at: Option<Instant>,
}

/// The destination of received data and completions.
pub(super) trait CommandSink<R> {
    /// Copies `src` to the payload of the request from `offset` on.
    fn scatter(&mut self, request: &R, offset: u32, src: &[u8]);
    /// Takes the completion of a command of the request in slot `owner`, and removes the request if it has ended.
    fn completed(&mut self, commands: &mut CommandTable<R>, owner: u16, ended: &EndedCommand);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    SendIcReq,
    AwaitIcResp,
    SendConnect,
    AwaitConnect,
    /// See [`QueuePair::authentication`].
    Authenticate,
    Ready,
    Failed(QueueError),
}

/// An R2T whose data are not yet encoded completely.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub(super) cid: u16,
    pub(super) ttag: u16,
    pub(super) offset: u32,
    pub(super) remaining: u32,
}

/// A queue pair on one connection.
#[derive(Debug)]
pub(super) struct QueuePair<R> {
    pub(super) config: QueuePairConfig,
    pub(super) phase: Phase,
    pub(super) tx: Framing,
    pub(super) rx: Framing,
    pub(super) maxh2cdata: u32,
    pub(super) commands: CommandTable<R>,
    pub(super) transfers: VecDeque<Transfer>,
    /// The PDU whose data are encoded in part. No other PDU may be encoded before its end.
    pub(super) partial_pdu: Option<PartialPdu>,
    pub(super) receiver: Receiver,
    /// The authentication that is under way, in phase `Authenticate`.
    pub(super) authentication: Option<Box<QueueAuthentication>>,
    pub(super) authenticated: Option<Authenticated>,
    /// The key that the authentication has generated, if this host asked for a secure channel.
    pub(super) generated_psk: Option<GeneratedPsk>,
    /// After a failed authentication: the encoded Authentication Send that tells the controller why.
    pub(super) refusal: Option<Vec<u8>>,
    cntlid: u16,
}

impl<R: Default> QueuePair<R> {
    /// A pair on a fresh connection. The owner has checked `config`.
    pub(super) fn new(config: QueuePairConfig) -> Self {
        let commands = config.entries - 1;
        Self {
            phase: Phase::SendIcReq,
            tx: Framing::default(),
            rx: Framing::default(),
            maxh2cdata: 0,
            commands: CommandTable::new(commands),
            transfers: VecDeque::with_capacity(usize::from(commands) * usize::from(R2T_LIMIT)),
            partial_pdu: None,
            receiver: Receiver::new(),
            authentication: None,
            authenticated: None,
            generated_psk: None,
            refusal: None,
            cntlid: CNTLID_ANY,
            config,
        }
    }

    pub(super) fn has_data_digests(&self) -> bool {
        self.config.digests.data
    }

    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// Whether something can be encoded, apart from new commands.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        match self.phase {
            Phase::SendIcReq | Phase::SendConnect => true,
            Phase::Authenticate => self.has_authentication_output(),
            Phase::Ready => self.partial_pdu.is_some() || !self.transfers.is_empty(),
            Phase::AwaitIcResp | Phase::AwaitConnect | Phase::Failed(_) => false,
        }
    }

    /// The CNTLID, once ready.
    pub(super) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// How the queue was authenticated. `None` if the controller did not ask for it.
    pub(super) fn authenticated(&self) -> Option<Authenticated> {
        self.authenticated
    }

    /// The generated PSK, once the queue is ready. `None` if this host did not ask for a secure channel.
    pub(super) fn generated_psk(&self) -> Option<GeneratedPsk> {
        self.generated_psk.clone().filter(|_| self.is_ready())
    }

    /// Takes the `ICResp`.
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

    /// Takes an R2T that was checked.
    pub(super) fn on_r2t(&mut self, r2t: &R2t) {
        let R2t { cid, ttag, offset, length } = *r2t;
        self.transfers.push_back(Transfer { cid, ttag, offset, remaining: length });
    }

    /// Adds a command of the pair itself and returns its CID. No other command is in flight.
    pub(super) fn send_own(&mut self, direction: Direction, length: u32, moved: u32) -> u16 {
        self.commands.send_alone(InFlightCommand { direction, length, moved, ..InFlightCommand::of(u16::MAX) })
    }

    /// Handles the end of a command of the pair itself. The queue is not ready.
    pub(super) fn on_own_ended(&mut self, status: Status, result: u64) -> Result<(), QueueError> {
        if self.phase == Phase::AwaitConnect {
            self.on_connected(status, result)
        } else {
            self.on_authentication_answer(status)
        }
    }

    fn on_connected(&mut self, status: Status, result: u64) -> Result<(), QueueError> {
        if status.is(Status::CONNECT_INVALID_PARAMETERS) {
            return Err(ConnectError::InvalidParameters { field: ConnectField::from_result(result) }.into());
        }
        status.result().map_err(|status| ConnectError::Rejected { status })?;
        let connected = ConnectResult::from_result(result);
        let (cntlid, wanted) = (connected.cntlid, self.config.cntlid);
        if wanted != CNTLID_ANY && wanted != cntlid {
            return Err(ConnectError::WrongController { wanted, got: cntlid }.into());
        }
        self.cntlid = cntlid;
        Ok(self.begin_authentication(connected)?)
    }
}
