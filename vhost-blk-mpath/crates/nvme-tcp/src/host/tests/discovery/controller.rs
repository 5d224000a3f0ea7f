//! Test helpers: a discovery controller with answers that tests can change or suppress.

use zerocopy::IntoBytes;

use crate::host::tests::admin_target::csts;
use crate::host::tests::mini_target::PduReader;
use crate::wire::{
    AdminCommand, AsyncEvent, AsyncEventMask, C2hData, Capabilities, Cns, ConnectData, ConnectResult,
    ControllerConfiguration, Cqe, FabricsCommand, FeatureId, Framing, IcResp, IdentifyController, LogPage, Nqn, Opcode,
    Pdu, PropertyOffset, Sqe, Status,
};

/// A command whose answer can be changed or suppressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Connect,
    Get(PropertyOffset),
    Set(PropertyOffset),
    Identify,
    Events,
    Log,
    KeepAlive,
    Event,
}

#[derive(Debug)]
pub(super) struct Controller {
    reader: PduReader,
    pub(super) out: Vec<u8>,
    pub(super) identify: IdentifyController,
    pub(super) page: Vec<u8>,
    /// Later contents of the page, each with the number of partial reads before it.
    pub(super) next_pages: Vec<(usize, Vec<u8>)>,
    /// The number of reads of CSTS before it changes.
    pub(super) slow: u32,
    pub(super) fatal: bool,
    pub(super) refuse: Vec<(What, Status, u64)>,
    pub(super) mute: Vec<What>,
    pub(super) seen: Vec<What>,
    /// KATO and SUBNQN of the Connect.
    pub(super) connect: Option<(u32, Nqn)>,
    /// RAE, offset and length of each read of the log.
    pub(super) parts: Vec<(bool, u64, u64)>,
    cc: ControllerConfiguration,
    event: Option<u16>,
}

impl Controller {
    pub(super) fn new(page: Vec<u8>) -> Self {
        let mut identify = IdentifyController::blank();
        identify.cntlid = 7.into();
        identify.cntrltype = 2;
        identify.lpa = IdentifyController::LPA_EXTENDED;
        identify.oaes = AsyncEventMask::DISCOVERY_CHANGE.0.into();
        identify.set_subnqn(&Nqn::discovery());
        Self {
            reader: PduReader::default(),
            out: Vec::new(),
            identify,
            page,
            next_pages: Vec::new(),
            slow: 2,
            fatal: false,
            refuse: Vec::new(),
            mute: Vec::new(),
            seen: Vec::new(),
            connect: None,
            parts: Vec::new(),
            cc: ControllerConfiguration::default(),
            event: None,
        }
    }

    fn send(&mut self, pdu: Pdu, data: &[u8]) {
        pdu.emit(&Framing::default(), data, &mut self.out);
    }

    fn complete(&mut self, cid: u16, status: Status, result: u64) {
        self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, status, result)), &[]);
    }

    /// Completes the outstanding event request.
    pub(super) fn report(&mut self, status: Status, event: AsyncEvent) {
        let cid = self.event.take().expect("one request is outstanding");
        self.complete(cid, status, event.to_dw0().into());
    }

    pub(super) fn asked(&self, what: What) -> usize {
        self.seen.iter().filter(|&&seen| seen == what).count()
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes);
        while let Some((pdu, data)) = self.reader.next() {
            match pdu {
                Pdu::IcReq(icreq) => {
                    self.send(Pdu::IcResp(IcResp { cpda: 0, digests: icreq.digests, maxh2cdata: 4096 }), &[]);
                }
                Pdu::CapsuleCmd(sqe) => self.on_command(&sqe, &data),
                other => panic!("{other:?} on an admin queue"),
            }
        }
    }

    fn on_command(&mut self, sqe: &Sqe, data: &[u8]) {
        let cid = sqe.cid.get();
        let (what, result, page) = if sqe.opcode == Opcode::FABRICS.0 {
            let (what, result) = self.fabrics(FabricsCommand::parse(sqe).unwrap(), data);
            (what, result, None)
        } else {
            let (what, page) = self.admin(AdminCommand::parse(sqe).unwrap());
            (what, 0, page)
        };
        self.seen.push(what);
        if self.mute.contains(&what) {
            return;
        }
        if let Some(&(_, status, result)) = self.refuse.iter().find(|(refused, ..)| *refused == what) {
            return self.complete(cid, status, result);
        }
        if what == What::Event {
            assert_eq!(self.event.replace(cid), None, "one request at a time");
            return;
        }
        if let Some(page) = page {
            let length = page.len() as u32;
            self.send(Pdu::C2hData(C2hData { cid, offset: 0, length, last: true, success: false }), &page);
        }
        self.complete(cid, Status::SUCCESS, result);
    }

    fn fabrics(&mut self, command: FabricsCommand, data: &[u8]) -> (What, u64) {
        match command {
            FabricsCommand::Connect(connect) => {
                assert_eq!((connect.qid, connect.sqsize), (0, 31));
                let data = ConnectData::parse(data.try_into().unwrap()).unwrap();
                self.connect = Some((connect.kato_ms, data.subnqn));
                let result =
                    ConnectResult { cntlid: 7, authentication_required: false, secure_channel_required: false };
                (What::Connect, result.to_result())
            }
            FabricsCommand::PropertyGet { offset, .. } => {
                let value = match offset {
                    PropertyOffset::CAP => Capabilities::new(127, 4).0,
                    PropertyOffset::CSTS => csts(self.cc, &mut self.slow, self.fatal).0.into(),
                    other => panic!("{other:?}"),
                };
                (What::Get(offset), value)
            }
            FabricsCommand::PropertySet { offset, value, .. } => {
                self.cc = ControllerConfiguration(value as u32);
                (What::Set(offset), 0)
            }
            other => panic!("{other:?}"),
        }
    }

    fn admin(&mut self, command: AdminCommand) -> (What, Option<Vec<u8>>) {
        match command {
            AdminCommand::Identify { cns: Cns::CONTROLLER, .. } => {
                (What::Identify, Some(self.identify.as_bytes().to_vec()))
            }
            AdminCommand::GetLogPage { lid, rae, bytes, offset, .. } => {
                assert_eq!(lid, LogPage::DISCOVERY);
                let read = self.parts.len();
                if self.next_pages.first().is_some_and(|&(after, _)| after == read) {
                    self.page = self.next_pages.remove(0).1;
                }
                self.parts.push((rae, offset, bytes));
                let mut part = self.page.get(offset as usize..).unwrap_or_default().to_vec();
                part.resize(bytes as usize, 0);
                (What::Log, Some(part))
            }
            AdminCommand::SetFeatures { fid, value, .. } => {
                assert_eq!((fid, value), (FeatureId::ASYNC_EVENT_CONFIGURATION, AsyncEventMask::DISCOVERY_CHANGE.0));
                (What::Events, None)
            }
            AdminCommand::KeepAlive => (What::KeepAlive, None),
            AdminCommand::AsyncEventRequest => (What::Event, None),
            other => panic!("{other:?}"),
        }
    }
}
