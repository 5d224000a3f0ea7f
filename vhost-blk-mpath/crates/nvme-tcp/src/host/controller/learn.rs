//! What the answers say, and whether this host can live with it.

use super::{ControllerError, HostController, Step, Unsupported};
use crate::host::config::QUEUE_ENTRIES_MIN;
use crate::host::{ConnectError, NamespaceIdentity, QueueError};
use crate::wire::{
    ACTIVE_LIST_MAX, ActiveList, AnaLog, AnaState, IdentifyController, IdentifyNamespace, NamespaceDescriptors, Status,
};

/// How many namespaces are looked through. A subsystem with more needs the namespace configured, and found among these.
const ACTIVE_MAX: usize = 64 * ACTIVE_LIST_MAX;

impl HostController {
    pub(super) fn learn_controller(&mut self) -> Result<(), ControllerError> {
        let identify = IdentifyController::parse(self.queue.data()).expect("a page was asked for");
        *self.facts.identify = identify.clone();
        if identify.subnqn().ok().as_ref() != Some(&self.config.subnqn) {
            return Err(ControllerError::WrongSubsystem { got: IdentifyController::text(&identify.subnqn) });
        }
        let (wanted, got) = (self.queue.cntlid(), identify.cntlid.get());
        if wanted != got {
            return Err(QueueError::Connect(ConnectError::WrongController { wanted, got }).into());
        }
        if !matches!(identify.sgls.get() & 3, 1 | 2) {
            return Err(Unsupported::Sgls.into());
        }
        if identify.kas.get() == 0 {
            return Err(Unsupported::KeepAlive.into());
        }
        if identify.icdoff.get() != 0 {
            return Err(Unsupported::InCapsuleOffset(identify.icdoff.get()).into());
        }
        if identify.ioccsz.get() < 4 {
            return Err(Unsupported::CapsuleSize(identify.ioccsz.get()).into());
        }
        let entries = self.facts.queue_entries(self.config.queue_entries);
        if entries < QUEUE_ENTRIES_MIN {
            return Err(Unsupported::QueueEntries(entries.into()).into());
        }
        if self.facts.has_ana() {
            self.check_ana_log()?;
        }
        Ok(())
    }

    /// Goes on listing until the namespace is found or the list ends.
    pub(super) fn learn_active_list(&mut self) -> Result<Step, ControllerError> {
        let list = ActiveList::parse(self.queue.data());
        let last = self.active.last().copied().unwrap_or(0);
        let ascending = list.0.first().is_some_and(|&first| first > last) && list.0.is_sorted();
        let more = list.0.len() == ACTIVE_LIST_MAX && ascending && self.active.len() < ACTIVE_MAX;
        self.active.extend(list.0);
        match self.config.nsid {
            Some(nsid) if self.active.contains(&nsid) => self.nsid = nsid,
            Some(_) if more => return Ok(Step::ActiveNamespaces),
            Some(nsid) => {
                return Err(ControllerError::NamespaceMissing { nsid, available: self.active.clone() });
            }
            None => match self.active[..] {
                [only] => self.nsid = only,
                _ => {
                    return Err(ControllerError::NamespaceChoice { available: self.active.clone() });
                }
            },
        }
        Ok(Step::IdentifyNamespace)
    }

    pub(super) fn learn_namespace(&mut self) -> Result<(), ControllerError> {
        let missing = || ControllerError::NamespaceMissing { nsid: self.nsid, available: self.active.clone() };
        let data = IdentifyNamespace::parse(self.queue.data()).ok_or_else(missing)?;
        // An inactive namespace is all zeroes.
        if data.nsze.get() == 0 {
            return Err(missing());
        }
        let format = data.format();
        if format.ms.get() != 0 {
            return Err(Unsupported::Metadata(format.ms.get()).into());
        }
        let block_bytes = format.block_bytes().ok_or(Unsupported::BlockSize(format.lbads))?;
        let max_transfer_bytes = self.facts.max_transfer_bytes();
        if max_transfer_bytes < block_bytes {
            return Err(Unsupported::TransferSize { max_transfer_bytes, block_bytes }.into());
        }
        self.identified = Some(Box::new(data.clone()));
        Ok(())
    }

    pub(super) fn learn_descriptors(&mut self, status: Status) -> Result<NamespaceIdentity, ControllerError> {
        let descriptors = if status.is_success() {
            NamespaceDescriptors::parse(self.queue.data())?
        } else {
            NamespaceDescriptors::default()
        };
        if let Some(csi) = descriptors.csi
            && csi != 0
        {
            return Err(Unsupported::CommandSet(csi).into());
        }
        let missing = || ControllerError::NamespaceMissing { nsid: self.nsid, available: self.active.clone() };
        let data = self.identified.take().ok_or_else(missing)?;
        let lbads = data.format().lbads;
        let block_bytes = data.format().block_bytes().ok_or(Unsupported::BlockSize(lbads))?;
        Ok(NamespaceIdentity::new(self.nsid, block_bytes, &data, &descriptors))
    }

    /// The state of the group that lists the namespace or, where namespaces are not listed, of the one it named.
    pub(super) fn learn_ana(&self) -> Result<AnaState, ControllerError> {
        let log = AnaLog::parse(self.queue.data())?;
        let group = self.namespace.map_or(0, |namespace| namespace.anagrpid);
        let listed = log.groups.iter().find(|group| group.nsids.contains(&self.nsid)).map(|group| group.state);
        listed.or_else(|| log.state_of(group)).ok_or(ControllerError::AnaGroupMissing { group })
    }
}
