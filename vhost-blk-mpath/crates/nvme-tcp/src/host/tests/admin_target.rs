//! Test helpers: the target's side of an admin queue, with answers that tests can change or suppress.

use zerocopy::IntoBytes;

use super::mini_target::PduReader;
use super::subnqn;
use crate::wire::{
    ActiveList, AdminCommand, AnaGroup, AnaLog, AnaState, AsyncEvent, AsyncEventMask, C2hData, CROSS_RESET_DONE,
    Capabilities, Cns, ConnectData, ConnectResult, ControllerConfiguration, ControllerInstance, ControllerStatus, Cqe,
    FabricsCommand, FeatureId, Framing, IcResp, IdentifyController, IdentifyNamespace, IdentifyNvmController, LogPage,
    NamespaceDescriptors, NumberOfQueues, Opcode, Pdu, PropertyOffset, ShutdownStatus, Sqe, Status, Version,
};

/// A command whose answer can be changed or suppressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    IcReq,
    Connect,
    Get(PropertyOffset),
    Set(PropertyOffset),
    Identify(Cns),
    SetFeature(FeatureId),
    Log(LogPage),
    /// An offset that lies behind the end of a log.
    BehindLog,
    KeepAlive,
    Event,
    ResetOther(ControllerInstance),
}

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) nsid: u32,
    pub(super) data: IdentifyNamespace,
    pub(super) descriptors: NamespaceDescriptors,
    /// The status of a failed command.
    pub(super) refuse: Option<(Cns, Status)>,
}

impl Namespace {
    pub(super) fn new(nsid: u32) -> Self {
        let mut data = IdentifyNamespace::blank();
        data.nsze = 4096.into();
        data.nmic = IdentifyNamespace::NMIC_SHARED;
        data.anagrpid = 1.into();
        data.lbaf[0].lbads = 12;
        data.noiob = 32.into();
        let descriptors = NamespaceDescriptors { uuid: Some([nsid as u8; 16]), csi: Some(0), ..Default::default() };
        Self { nsid, data, descriptors, refuse: None }
    }
}

/// A part of a log that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPart {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) rae: bool,
}

/// A change of the target during a test.
pub(super) type TargetChange = fn(&mut AdminTarget);

/// The target's side of an admin queue.
#[derive(Debug)]
pub(super) struct AdminTarget {
    reader: PduReader,
    pub(super) out: Vec<u8>,
    pub(super) cap: Capabilities,
    pub(super) identify: IdentifyController,
    pub(super) limits: IdentifyNvmController,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) ana: AnaLog,
    /// The number of reads of CSTS before it changes.
    pub(super) slow: u32,
    pub(super) fatal: bool,
    pub(super) granted: NumberOfQueues,
    /// Commands that fail with this status and result.
    pub(super) refuse: Vec<(What, Status, u64)>,
    pub(super) mute: Vec<What>,
    /// A change that happens after the first answer to this command.
    pub(super) then: Option<(What, TargetChange)>,
    /// All received commands.
    pub(super) seen: Vec<What>,
    /// The NSIDs of all Identify Namespace commands.
    pub(super) identified: Vec<u32>,
    /// The ANA log lists namespaces though the host wants the groups alone.
    pub(super) ignores_groups_only: bool,
    /// The largest offset of a part, even in a longer log.
    pub(super) log_offset_max: u64,
    /// The parts of all logs that were read.
    pub(super) parts: Vec<LogPart>,
    cc: ControllerConfiguration,
    event: Option<u16>,
    pub(super) events: AsyncEventMask,
}

impl AdminTarget {
    pub(super) fn new() -> Self {
        let mut identify = IdentifyController::blank();
        identify.sn = IdentifyController::padded("SN0001");
        identify.mn = IdentifyController::padded("Test Model");
        identify.fr = IdentifyController::padded("1.0");
        identify.cmic = IdentifyController::CMIC_ANA;
        identify.mdts = 8;
        identify.cntlid = 5.into();
        identify.oaes = AsyncEventMask::ANA_CHANGE.or(AsyncEventMask::NAMESPACE_ATTRIBUTE).0.into();
        identify.crdt = [1.into(), 20.into(), 300.into()];
        identify.ciu = 3;
        identify.cirn = 0x0102_0304_0506_0708_u64.to_le_bytes();
        identify.ccrl = 1;
        identify.anatt = 10;
        identify.nanagrpid = 4.into();
        identify.mnan = 8.into();
        identify.cqt = 250.into();
        identify.maxcmd = 64.into();
        identify.nn = 1024.into();
        identify.oncs = (IdentifyController::ONCS_DSM | IdentifyController::ONCS_WRITE_ZEROES).into();
        identify.vwc = 1;
        identify.sgls = 1.into();
        identify.kas = 10.into();
        identify.set_subnqn(&subnqn());
        identify.ioccsz = 516.into();
        Self {
            reader: PduReader::default(),
            out: Vec::new(),
            cap: Capabilities::new(127, 4),
            identify,
            limits: IdentifyNvmController::blank(),
            namespaces: vec![Namespace::new(1)],
            ana: AnaLog {
                change_count: 0,
                groups: vec![AnaGroup { id: 1, change_count: 0, state: AnaState::Optimized, nsids: vec![1] }],
            },
            slow: 2,
            fatal: false,
            granted: NumberOfQueues { submission: 3, completion: 7 },
            refuse: Vec::new(),
            mute: Vec::new(),
            then: None,
            seen: Vec::new(),
            identified: Vec::new(),
            ignores_groups_only: false,
            log_offset_max: u64::MAX,
            parts: Vec::new(),
            cc: ControllerConfiguration::default(),
            event: None,
            events: AsyncEventMask::default(),
        }
    }

    fn send(&mut self, pdu: Pdu, data: &[u8]) {
        pdu.emit(&Framing::default(), data, &mut self.out);
    }

    pub(super) fn complete(&mut self, cid: u16, status: Status, result: u64) {
        self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, status, result)), &[]);
    }

    /// Reports an event, if a request for one is outstanding.
    pub(super) fn report(&mut self, event: AsyncEvent) {
        let cid = self.event.take().expect("one request is outstanding");
        self.complete(cid, Status::SUCCESS, event.to_dw0().into());
    }

    pub(super) fn asked(&self, what: What) -> usize {
        self.seen.iter().filter(|&&seen| seen == what).count()
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.reader.feed(bytes);
        while let Some((pdu, data)) = self.reader.next() {
            match pdu {
                Pdu::IcReq(icreq) => {
                    self.seen.push(What::IcReq);
                    if !self.mute.contains(&What::IcReq) {
                        let icresp = IcResp { cpda: 0, digests: icreq.digests, maxh2cdata: 4096 };
                        self.send(Pdu::IcResp(icresp), &[]);
                    }
                }
                Pdu::CapsuleCmd(sqe) => self.on_command(&sqe, &data),
                other => panic!("{other:?} on an admin queue"),
            }
        }
    }

    fn on_command(&mut self, sqe: &Sqe, data: &[u8]) {
        let cid = sqe.cid.get();
        let mut refused = None;
        let (what, result, page) = if sqe.opcode == Opcode::FABRICS.0 {
            let (what, result) = self.fabrics(FabricsCommand::parse(sqe).unwrap(), data);
            (what, result, None)
        } else {
            let command = AdminCommand::parse(sqe).unwrap();
            refused = self.refused(command);
            self.admin(command)
        };
        self.seen.push(what);
        if self.mute.contains(&what) {
            return;
        }
        if let Some(&(_, status, result)) = self.refuse.iter().find(|(refused, ..)| *refused == what) {
            return self.complete(cid, status, result);
        }
        if let Some(status) = refused {
            return self.complete(cid, status, 0);
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
        if let Some((_, change)) = self.then.take_if(|(after, _)| *after == what) {
            change(self);
        }
    }

    /// The answer for a namespace that differs from the others. A missing namespace is answered with Invalid Namespace or zeroes.
    fn refused(&mut self, command: AdminCommand) -> Option<Status> {
        let AdminCommand::Identify { cns, nsid, .. } = command else { return None };
        if cns == Cns::NAMESPACE {
            self.identified.push(nsid);
        }
        let Some(found) = self.namespaces.iter().find(|namespace| namespace.nsid == nsid) else {
            return (cns == Cns::NAMESPACE && nsid % 2 == 0).then_some(Status::INVALID_NAMESPACE.with_dnr());
        };
        found.refuse.filter(|(refused, _)| *refused == cns).map(|(_, status)| status)
    }

    /// The namespace with this NSID. It is created if it is missing.
    pub(super) fn namespace(&mut self, nsid: u32) -> &mut Namespace {
        let index = self.namespaces.iter().position(|namespace| namespace.nsid >= nsid);
        let index = index.unwrap_or(self.namespaces.len());
        if self.namespaces.get(index).is_none_or(|there| there.nsid != nsid) {
            self.namespaces.insert(index, Namespace::new(nsid));
        }
        &mut self.namespaces[index]
    }

    /// Sets the ANA log: groups, their states and namespaces.
    pub(super) fn set_ana(&mut self, groups: &[(u32, AnaState, &[u32])]) {
        let group = |&(id, state, nsids): &(u32, AnaState, &[u32])| AnaGroup {
            id,
            change_count: 0,
            state,
            nsids: nsids.to_vec(),
        };
        self.ana.groups = groups.iter().map(group).collect();
    }

    fn fabrics(&mut self, command: FabricsCommand, data: &[u8]) -> (What, u64) {
        match command {
            FabricsCommand::Connect(connect) => {
                assert_eq!((connect.qid, connect.sqsize, connect.kato_ms), (0, 31, 10_000));
                let data = ConnectData::parse(data.try_into().unwrap()).unwrap();
                assert_eq!((data.cntlid, data.hostid), (0xffff, [9; 16]));
                let result =
                    ConnectResult { cntlid: 5, authentication_required: false, secure_channel_required: false };
                (What::Connect, result.to_result())
            }
            FabricsCommand::PropertyGet { offset, .. } => {
                let value = match offset {
                    PropertyOffset::CAP => self.cap.0,
                    PropertyOffset::VS => Version::new(2, 0).0.into(),
                    PropertyOffset::CSTS => csts(self.cc, &mut self.slow, self.fatal).0.into(),
                    other => panic!("{other:?}"),
                };
                (What::Get(offset), value)
            }
            FabricsCommand::PropertySet { offset, value, .. } => {
                assert_eq!(offset, PropertyOffset::CC);
                self.cc = ControllerConfiguration(value as u32);
                // The result of Property Set is not specified, so the host must not use it.
                (What::Set(offset), u64::MAX)
            }
            other => panic!("{other:?}"),
        }
    }

    fn admin(&mut self, command: AdminCommand) -> (What, u64, Option<Vec<u8>>) {
        let find = |nsid: u32| self.namespaces.iter().find(|namespace| namespace.nsid == nsid);
        match command {
            AdminCommand::Identify { cns, nsid, .. } => {
                let page = match cns {
                    Cns::CONTROLLER => self.identify.as_bytes().to_vec(),
                    Cns::ACTIVE_LIST => {
                        let nsids = self.namespaces.iter().map(|namespace| namespace.nsid);
                        ActiveList(nsids.filter(|&other| other > nsid).take(1024).collect()).emit().to_vec()
                    }
                    Cns::NAMESPACE => find(nsid).map_or(vec![0; 4096], |found| found.data.as_bytes().to_vec()),
                    Cns::CSI_CONTROLLER => self.limits.as_bytes().to_vec(),
                    Cns::DESCRIPTORS => find(nsid).map_or(vec![0; 4096], |found| found.descriptors.emit().to_vec()),
                    other => panic!("{other:?}"),
                };
                (What::Identify(cns), 0, Some(page))
            }
            AdminCommand::GetLogPage { lid, bytes, rae, lsp, offset, .. } => {
                self.parts.push(LogPart { offset, bytes, rae });
                let mut log = self.ana.clone();
                if lsp == 1 && !self.ignores_groups_only {
                    log.groups.iter_mut().for_each(|group| group.nsids.clear());
                }
                let mut page = if lid == LogPage::ANA { log.emit() } else { vec![0; 4096] };
                if offset > self.log_offset_max.min(page.len() as u64) {
                    return (What::BehindLog, 0, None);
                }
                page.drain(..offset as usize);
                page.resize(bytes as usize, 0);
                (What::Log(lid), 0, Some(page))
            }
            AdminCommand::SetFeatures { fid, value, .. } => {
                let result = match fid {
                    FeatureId::NUMBER_OF_QUEUES => {
                        assert_eq!(NumberOfQueues::from_value(value), NumberOfQueues { submission: 7, completion: 7 });
                        self.granted.to_value()
                    }
                    FeatureId::ASYNC_EVENT_CONFIGURATION => {
                        self.events = AsyncEventMask(value);
                        0
                    }
                    other => panic!("{other:?}"),
                };
                (What::SetFeature(fid), result.into(), None)
            }
            AdminCommand::KeepAlive => (What::KeepAlive, 0, None),
            AdminCommand::AsyncEventRequest => (What::Event, 0, None),
            AdminCommand::CrossControllerReset(other) => (What::ResetOther(other), CROSS_RESET_DONE, None),
            other => panic!("{other:?}"),
        }
    }
}

/// CSTS of a controller that has yet to report `slow` times that it waits.
pub(super) fn csts(cc: ControllerConfiguration, slow: &mut u32, fatal: bool) -> ControllerStatus {
    let waiting = *slow > 0;
    *slow = slow.saturating_sub(1);
    let shutdown = match (cc.requests_shutdown(), waiting) {
        (false, _) => ShutdownStatus::None,
        (true, true) => ShutdownStatus::Occurring,
        (true, false) => ShutdownStatus::Complete,
    };
    ControllerStatus::new(cc.is_enabled() && !waiting, fatal, shutdown)
}
