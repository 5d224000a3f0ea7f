//! Decides: a controller can be used.
//! Decides: a namespace that an ANA log does not list is in this group (`next_ana_group`).
//!
//! Interprets the answers of the steps, and checks that this host can use the controller and its namespaces.

use monotonic::Instant;

use super::namespaces::{ChangeLimit, Identified};
use super::{AnaUpdate, ControllerError, HostController, NamespaceError, Step, Unsupported};
use crate::host::config::QUEUE_ENTRIES_MIN;
use crate::host::{AdminError, CommandLimits, ConnectError, NamespaceIdentity, QueueError};
use crate::wire::{
    ACTIVE_LIST_MAX, ActiveList, IdentifyController, IdentifyNamespace, IdentifyNvmController, NamespaceDescriptors,
    Status, Version,
};

/// The most active namespaces that are listed. A configured namespace must be among them.
const ACTIVE_MAX: usize = 64 * ACTIVE_LIST_MAX;

impl HostController {
    pub(super) fn apply_identify_controller(&mut self) -> Result<(), ControllerError> {
        let identify = IdentifyController::parse(self.session.queue.data()).expect("the buffer holds a whole page");
        *self.facts.identify = identify.clone();
        if identify.subnqn().ok().as_ref() != Some(&self.config.subnqn) {
            return Err(AdminError::WrongSubsystem { got: IdentifyController::text(&identify.subnqn) }.into());
        }
        let (wanted, got) = (self.session.queue.cntlid(), identify.cntlid.get());
        if wanted != got {
            return Err(AdminError::Queue(QueueError::Connect(ConnectError::WrongController { wanted, got })).into());
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
        Ok(())
    }

    /// Takes the limits of Write Zeroes and Dataset Management. A controller without the page has no limits.
    pub(super) fn apply_command_limits(&mut self, status: Status) {
        if status.is_success()
            && let Some(limits) = IdentifyNvmController::parse(self.session.queue.data())
        {
            let unlimited = |limit| if limit == 0 { u64::MAX } else { limit };
            let deallocate = unlimited(limits.dmrsl.get().into()).min(unlimited(limits.dmsl.get()));
            self.facts.command_limits = CommandLimits {
                max_write_zeroes_bytes: limits.max_write_zeroes_bytes(self.facts.cap.mpsmin()).unwrap_or(u64::MAX),
                max_deallocate_blocks: u32::try_from(deallocate).unwrap_or(u32::MAX),
            };
        }
    }

    /// Takes a part of the active namespace list. The list is read until all configured namespaces are found or the list ends.
    pub(super) fn apply_active_list(&mut self) -> Result<Option<Step>, ControllerError> {
        let list = ActiveList::parse(self.session.queue.data());
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

    /// The error for a namespace that is not active.
    pub(super) fn missing(&self, nsid: u32) -> NamespaceError {
        NamespaceError::missing(nsid, &self.active)
    }

    /// The error for a namespace whose identification failed with `status`.
    fn identify_error(&self, step: Step, status: Status) -> NamespaceError {
        if status.is(Status::INVALID_NAMESPACE) {
            return self.missing(self.nsid());
        }
        NamespaceError::Command { step, status }
    }

    pub(super) fn apply_identify_namespace(&mut self, status: Status) -> Result<(), NamespaceError> {
        let missing = || self.missing(self.nsid());
        status.result().map_err(|status| self.identify_error(Step::IdentifyNamespace, status))?;
        let data = IdentifyNamespace::parse(self.session.queue.data()).ok_or_else(missing)?;
        // The data of an inactive namespace is all zeroes.
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
        self.identify_namespace = Some(Box::new(data.clone()));
        Ok(())
    }

    pub(super) fn apply_descriptors(&mut self, status: Status) -> Identified {
        let descriptors = match status.result() {
            Ok(()) => NamespaceDescriptors::parse(self.session.queue.data())?,
            // Controllers before NVMe 1.3 do not have this command. Identify Namespace may have identifiers too.
            Err(status) if status.is(Status::INVALID_FIELD) && self.may_lack_descriptors() => {
                NamespaceDescriptors::default()
            }
            Err(status) => return Err(self.identify_error(Step::NamespaceDescriptors, status)),
        };
        if let Some(csi) = descriptors.csi
            && csi != 0
        {
            return Err(NamespaceError::CommandSet(csi));
        }
        let nsid = self.nsid();
        let data = self.identify_namespace.take().ok_or_else(|| self.missing(nsid))?;
        let lbads = data.format().lbads;
        let block_bytes = data.format().block_bytes().ok_or(NamespaceError::BlockSize(lbads))?;
        Ok(NamespaceIdentity::new(nsid, block_bytes, &data, &descriptors))
    }

    /// Whether a namespace can do without the list of its descriptors: the controller need not have the list, or the namespace has
    /// an identifier without it. A list that is refused once must not make a nameless namespace.
    fn may_lack_descriptors(&self) -> bool {
        let data = self.identify_namespace.as_deref();
        self.facts.version.0 < Version::new(1, 3).0
            || data.is_some_and(|data| data.nguid != [0; 16] || data.eui64 != [0; 8])
    }

    /// Takes a part of the ANA log. After the last part, asks for the groups of namespaces that the log does not list.
    pub(super) fn apply_ana_log(&mut self, now: Instant, status: Status) -> Result<Option<Step>, ControllerError> {
        let Some(reader) = &mut self.ana_reader else { return Ok(None) };
        let log = if status.is_success() {
            reader.take(self.session.queue.data(), |nsid| self.nsids.contains(&nsid))?
        } else {
            reader.refused(status)?;
            None
        };
        if let Some(discarded) = reader.discarded.take() {
            self.namespaces.note_losses(&discarded);
        }
        let Some(log) = log else { return Ok(Some(Step::AnaLog)) };
        self.ana_reader = None;
        // A namespace that has moved since then is still lost.
        self.namespaces.note_losses(&log);
        let twice = self.facts.anatt() * 2;
        let first = self.first_change_limit.filter(|_| self.live.is_none());
        let limit = first.map_or(twice, |first| first.max(twice));
        self.reread_ana_at = now + twice;
        self.ana_update = Some(AnaUpdate { log, change: ChangeLimit { ends: now + limit, limit }, groups_known: 0 });
        self.next_ana_group()
    }

    /// Asks for the group of the next usable namespace that the ANA log does not list. The namespace may have moved to another
    /// group since it was identified. The log was read before: an event announces each move after that.
    pub(super) fn next_ana_group(&mut self) -> Result<Option<Step>, ControllerError> {
        let Some(mut update) = self.ana_update.take() else { return Ok(None) };
        while let Some(&nsid) = self.nsids.get(update.groups_known) {
            if update.log.listed_state_of(nsid).is_none() && self.identity_mut(update.groups_known).is_some() {
                self.ana_update = Some(update);
                return Ok(Some(Step::AnaGroup));
            }
            update.groups_known += 1;
        }
        self.update_namespaces(Some((&update.log, update.change)))?;
        Ok(None)
    }

    /// Takes the group of a namespace. After an error, the namespace keeps its group.
    pub(super) fn apply_ana_group(&mut self, status: Status) {
        let found = IdentifyNamespace::parse(self.session.queue.data()).filter(|_| status.is_success());
        // The data of an inactive namespace is all zeroes.
        let group = found.filter(|found| found.nsze.get() != 0).map(|found| found.anagrpid.get());
        let Some(update) = &mut self.ana_update else { return };
        let position = update.groups_known;
        update.groups_known += 1;
        if let Some(group) = group
            && let Some(identity) = self.identity_mut(position)
        {
            identity.anagrpid = group;
        }
    }

    /// The identity of the namespace at a position, if it is usable: from the identification that waits for the ANA log, or from
    /// the last one.
    fn identity_mut(&mut self, position: usize) -> Option<&mut NamespaceIdentity> {
        if self.identified.is_empty() {
            return self.namespaces.identity_mut(position);
        }
        self.identified.get_mut(position)?.as_mut().ok()
    }
}
