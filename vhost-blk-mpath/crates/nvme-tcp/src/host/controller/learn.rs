//! What the answers say, and whether this host can live with it.

use std::time::Instant;

use super::namespaces::Identified;
use super::{ControllerError, HostController, NamespaceError, Step, Unsupported};
use crate::host::config::QUEUE_ENTRIES_MIN;
use crate::host::{CommandLimits, ConnectError, NamespaceIdentity, QueueError};
use crate::wire::{
    ACTIVE_LIST_MAX, ActiveList, AnaLog, IdentifyController, IdentifyNamespace, IdentifyNvmController,
    NamespaceDescriptors, Status,
};

/// How many namespaces are looked through. A subsystem with more needs the namespaces configured, and found among these.
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

    /// Limits of Write Zeroes and Dataset Management; a controller that does not know the command has none.
    pub(super) fn learn_command_limits(&mut self, status: Status) {
        if status.is_success()
            && let Some(limits) = IdentifyNvmController::parse(self.queue.data())
        {
            let unlimited = |limit| if limit == 0 { u64::MAX } else { limit };
            let deallocate = unlimited(limits.dmrsl.get().into()).min(unlimited(limits.dmsl.get()));
            self.facts.command_limits = CommandLimits {
                max_write_zeroes_bytes: limits.max_write_zeroes_bytes(self.facts.cap.mpsmin()).unwrap_or(u64::MAX),
                max_deallocate_blocks: u32::try_from(deallocate).unwrap_or(u32::MAX),
            };
        }
    }

    /// Goes on listing until all namespaces are found or the list ends.
    pub(super) fn learn_active_list(&mut self) -> Result<Option<Step>, ControllerError> {
        let list = ActiveList::parse(self.queue.data());
        let last = self.active.last().copied().unwrap_or(0);
        let ascending = list.0.first().is_some_and(|&first| first > last) && list.0.is_sorted();
        let more = list.0.len() == ACTIVE_LIST_MAX && ascending && self.active.len() < ACTIVE_MAX;
        self.active.extend(list.0);
        let wanted = &self.config.nsids;
        if wanted.is_empty() {
            let [only] = self.active[..] else {
                return Err(ControllerError::NamespaceChoice { available: self.active.clone() });
            };
            self.nsids = vec![only];
        } else if more && !wanted.iter().all(|nsid| self.active.contains(nsid)) {
            return Ok(Some(Step::ActiveNamespaces));
        } else {
            self.nsids.clone_from(wanted);
        }
        self.identify_next()
    }

    pub(super) fn missing(&self, nsid: u32) -> NamespaceError {
        NamespaceError::missing(nsid, &self.active)
    }

    fn refused(&self, step: Step, status: Status) -> NamespaceError {
        if status.is(Status::INVALID_NAMESPACE) {
            return self.missing(self.nsid());
        }
        NamespaceError::Command { step, status }
    }

    pub(super) fn learn_namespace(&mut self, status: Status) -> Result<(), NamespaceError> {
        let missing = || self.missing(self.nsid());
        status.result().map_err(|status| self.refused(Step::IdentifyNamespace, status))?;
        let data = IdentifyNamespace::parse(self.queue.data()).ok_or_else(missing)?;
        // An inactive namespace is all zeroes.
        if data.nsze.get() == 0 {
            return Err(missing());
        }
        let format = data.format();
        if format.ms.get() != 0 {
            return Err(NamespaceError::Metadata(format.ms.get()));
        }
        let block_bytes = format.block_bytes().ok_or(NamespaceError::BlockSize(format.lbads))?;
        let max_transfer_bytes = self.facts.max_transfer_bytes(&self.config);
        if max_transfer_bytes < block_bytes {
            return Err(NamespaceError::TransferSize { max_transfer_bytes, block_bytes });
        }
        self.page = Some(Box::new(data.clone()));
        Ok(())
    }

    pub(super) fn learn_descriptors(&mut self, status: Status) -> Identified {
        let descriptors = match status.result() {
            Ok(()) => NamespaceDescriptors::parse(self.queue.data())?,
            // Controllers before NVMe 1.3 do not know it.
            Err(status) if status.is(Status::INVALID_FIELD) => NamespaceDescriptors::default(),
            Err(status) => return Err(self.refused(Step::NamespaceDescriptors, status)),
        };
        if let Some(csi) = descriptors.csi
            && csi != 0
        {
            return Err(NamespaceError::CommandSet(csi));
        }
        let nsid = self.nsid();
        let data = self.page.take().ok_or_else(|| self.missing(nsid))?;
        let lbads = data.format().lbads;
        let block_bytes = data.format().block_bytes().ok_or(NamespaceError::BlockSize(lbads))?;
        Ok(NamespaceIdentity::new(nsid, block_bytes, &data, &descriptors))
    }

    pub(super) fn learn_ana(&mut self, now: Instant) -> Result<(), ControllerError> {
        let log = AnaLog::parse(self.queue.data())?;
        self.settle(Some((&log, now + self.facts.anatt() * 2)))
    }
}
