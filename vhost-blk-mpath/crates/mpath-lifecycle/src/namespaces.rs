//! Decides: a namespace can be used on a path.
//!
//! The state of each disk's namespace on one association: whether it can be used, and its ANA state.
//!
//! A missing namespace, or one that is not the disk's, counts as `persistent-loss`. The disk sends no I/O on this
//! association and treats its unflushed writes there as lost. Other disks continue. The association ends if no disk can
//! use it, or if a namespace turns into another one. Requests sent under the old NSID must then be repeated on the
//! right namespace, whatever their status.

use std::error::Error;

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{
    ConfigError, ControllerEvent, ControllerInfo, HostQueue, Namespace, NamespaceError, NamespaceIdentity,
};
use nvme_tcp::wire;

use crate::disks::{Admissions, AdmitError, Disks, NamespaceUpdate, ServedNamespace, Size, Unusable};

/// The namespaces of one association, by disk.
#[derive(Debug)]
pub(crate) struct Namespaces(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    ana: AnaState,
    /// Its size in blocks; 0 if it cannot be used.
    blocks: u64,
    /// The ANA log was requested because of an error.
    is_ana_requested: bool,
    /// Why it cannot be used.
    unusable: Option<String>,
    /// The queue pairs of the association know it, or learn of it before they carry requests.
    is_in_queue_pairs: bool,
}

/// Checks that a namespace identified again is still the disk's.
fn check<D: Disks>(disks: &D, disk: DiskId, found: Result<NamespaceIdentity, NamespaceError>) -> Result<(), Unusable> {
    let found = found?;
    disks.served(disk).map_or(Ok(()), |served: ServedNamespace| served.check(&found))
}

type Outcome<T, E> = Result<T, (DiskId, AdmitError<E>)>;

impl Namespaces {
    /// The state for a new association. `admitted` has the result by disk. Fails if no disk can use the association.
    pub(crate) fn new<E: Error>(info: &ControllerInfo, admitted: Admissions<E>) -> Result<Self, AdmitError<E>> {
        let mut failed = Vec::new();
        let mut of = |(found, admitted): (&Result<Namespace, _>, Result<(), AdmitError<E>>)| {
            let unusable = admitted.err();
            let (ana, blocks) = match found {
                Ok(namespace) if unusable.is_none() => (ana_state(namespace.ana), namespace.identity.blocks),
                _ => (AnaState::PersistentLoss, 0),
            };
            let text = unusable.as_ref().map(ToString::to_string);
            failed.extend(unusable);
            Entry { ana, blocks, is_ana_requested: false, is_in_queue_pairs: text.is_none(), unusable: text }
        };
        let namespaces: Vec<_> = info.namespaces.iter().zip(admitted).map(&mut of).collect();
        if failed.len() < namespaces.len() {
            return Ok(Self(namespaces));
        }
        // A reason that may pass comes first. A refusal would stop further attempts.
        match failed.into_iter().min_by_key(AdmitError::is_refusal) {
            Some(error) => Err(error),
            None => Ok(Self(namespaces)),
        }
    }

    /// Adds the usable namespaces to a new queue pair.
    pub(crate) fn add_to(&self, info: &ControllerInfo, queue: &mut HostQueue) -> Result<(), ConfigError> {
        for ((found, namespace), position) in info.namespaces.iter().zip(&self.0).zip(0..) {
            if let (Ok(found), true) = (found, namespace.is_in_queue_pairs) {
                queue.add_namespace(position, found.limits())?;
            }
        }
        Ok(())
    }

    pub(crate) fn states(&self) -> AnaStates {
        let mut states = AnaStates::from(AnaState::PersistentLoss);
        for (namespace, disk) in self.0.iter().zip(0..) {
            states.set(DiskId(disk), namespace.ana);
        }
        states
    }

    /// The initial state for each disk.
    pub(crate) fn initial_updates(&self) -> Vec<NamespaceUpdate> {
        let update = |(namespace, disk): (&Entry, u16)| NamespaceUpdate {
            disk: DiskId(disk),
            state: namespace.ana,
            unusable: namespace.unusable.clone(),
            blocks: namespace.blocks,
            added: None,
            changed: true,
        };
        self.0.iter().zip(0..).map(update).collect()
    }

    /// Notes that the ANA log was requested because of an error. The disk avoids the path until an update arrives. A
    /// log that repeats the earlier state is no update.
    pub(crate) fn ana_log_requested(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.is_ana_requested = true);
    }

    /// Whether a namespace cannot be used.
    pub(crate) fn are_some_unusable(&self) -> bool {
        self.0.iter().any(|namespace| namespace.unusable.is_some())
    }

    /// Handles an event of the controller, `info` being its latest state. Returns the update if there is one. Fails
    /// if the association must end.
    pub(crate) fn on_event<D: Disks>(
        &mut self,
        disks: &mut D,
        info: &ControllerInfo,
        event: ControllerEvent,
    ) -> Outcome<Option<NamespaceUpdate>, D::Error> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if namespace.unusable.is_some() {
                    return Ok(None);
                }
                let (was_requested, state) = (std::mem::take(&mut namespace.is_ana_requested), ana_state(state));
                let same = std::mem::replace(&mut namespace.ana, state) == state;
                let (disk, blocks) = (DiskId(index as u16), namespace.blocks);
                let update = NamespaceUpdate { disk, state, unusable: None, blocks, added: None, changed: !same };
                Ok((!(was_requested && same)).then_some(update))
            }
            ControllerEvent::NamespaceChanged { namespace, identity } => {
                let disk = DiskId(namespace as u16);
                // `identity` may be older than `info`. If it names another namespace, that namespace was there for a
                // time.
                match check(disks, disk, *identity) {
                    Ok(()) if self.0[namespace].unusable.is_none() => {
                        self.check_growth(disk, &info.namespaces[namespace])
                    }
                    Ok(()) => self.readmit(disks, disk, info),
                    Err(error) => self.mark_unusable(disk, error.into()),
                }
            }
            _ => Ok(None),
        }
    }

    /// Admits a namespace that could not be used before and seems to be the disk's.
    fn readmit<D: Disks>(
        &mut self,
        disks: &mut D,
        disk: DiskId,
        info: &ControllerInfo,
    ) -> Outcome<Option<NamespaceUpdate>, D::Error> {
        let index = usize::from(disk.0);
        match disks.admit(info).swap_remove(index) {
            Ok(()) => Ok(self.mark_usable(disk, &info.namespaces[index])),
            Err(error) => self.mark_unusable(disk, error),
        }
    }

    /// Compares the size of a usable namespace that was identified again. Nothing else can have changed.
    fn check_growth<E: Error>(
        &mut self,
        disk: DiskId,
        found: &Result<Namespace, NamespaceError>,
    ) -> Outcome<Option<NamespaceUpdate>, E> {
        let Ok(found) = found else { return Ok(None) };
        let namespace = &mut self.0[usize::from(disk.0)];
        let (blocks, before) = (found.identity.blocks, namespace.blocks);
        if blocks < before {
            // Guests do not know the larger size yet, but queue pairs do. Another association starts with the smaller
            // size.
            let size = |blocks| Size { blocks, block_bytes: found.identity.block_bytes };
            return Err((disk, Unusable::GrowthTakenBack { found: size(blocks), before: size(before) }.into()));
        }
        if blocks == before {
            return Ok(None);
        }
        namespace.blocks = blocks;
        let added = Some(found.limits());
        Ok(Some(NamespaceUpdate { disk, state: namespace.ana, unusable: None, blocks, added, changed: false }))
    }

    /// Marks a namespace as usable.
    fn mark_usable(&mut self, disk: DiskId, found: &Result<Namespace, NamespaceError>) -> Option<NamespaceUpdate> {
        let found = found.as_ref().ok()?;
        let namespace = &mut self.0[usize::from(disk.0)];
        let (state, blocks) = (ana_state(found.ana), found.identity.blocks);
        *namespace = Entry { ana: state, blocks, is_ana_requested: false, unusable: None, is_in_queue_pairs: true };
        Some(NamespaceUpdate { disk, state, unusable: None, blocks, added: Some(found.limits()), changed: true })
    }

    /// Marks a namespace as unusable, or with another reason.
    fn mark_unusable<E: Error>(&mut self, disk: DiskId, error: AdmitError<E>) -> Outcome<Option<NamespaceUpdate>, E> {
        let namespace = &mut self.0[usize::from(disk.0)];
        let text = error.to_string();
        let before = namespace.unusable.replace(text.clone());
        (namespace.ana, namespace.blocks) = (AnaState::PersistentLoss, 0);
        let is_another = error.is_another() && namespace.is_in_queue_pairs;
        if is_another || self.0.iter().all(|namespace| namespace.unusable.is_some()) {
            return Err((disk, error));
        }
        let changed = before.as_ref() != Some(&text);
        let state = AnaState::PersistentLoss;
        let update = NamespaceUpdate { disk, state, unusable: Some(text), blocks: 0, added: None, changed };
        Ok(changed.then_some(update))
    }
}

/// Two types, because neither `mpath-core` nor `nvme-tcp` depends on the other, and a crate for one enum would be more.
fn ana_state(state: wire::AnaState) -> AnaState {
    match state {
        wire::AnaState::Optimized => AnaState::Optimized,
        wire::AnaState::NonOptimized => AnaState::NonOptimized,
        wire::AnaState::Inaccessible => AnaState::Inaccessible,
        wire::AnaState::PersistentLoss => AnaState::PersistentLoss,
        wire::AnaState::Change => AnaState::Change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Known, controller, namespace};

    /// Two disks and their namespaces on one association.
    struct Rig {
        disks: Known,
        info: ControllerInfo,
        namespaces: Namespaces,
    }

    impl Rig {
        fn new() -> Self {
            let second = NamespaceIdentity { nsid: 2, uuid: [2; 16], ..namespace() };
            let mut disks = Known::new(&[namespace(), second]);
            let info = controller(&[namespace(), second]);
            let admitted = disks.admit(&info);
            let namespaces = Namespaces::new(&info, admitted).unwrap();
            Self { disks, info, namespaces }
        }

        /// The controller identifies a disk's namespace again.
        fn identified(
            &mut self,
            disk: usize,
            found: Result<NamespaceIdentity, NamespaceError>,
        ) -> Result<Option<NamespaceUpdate>, String> {
            let ana = wire::AnaState::NonOptimized;
            self.info.namespaces[disk] = found.clone().map(|identity| Namespace { identity, ana });
            let event = ControllerEvent::NamespaceChanged { namespace: disk, identity: Box::new(found) };
            let update = self.namespaces.on_event(&mut self.disks, &self.info, event);
            update.map_err(|(disk, error)| format!("{}: {error}", disk.0))
        }

        fn state(&mut self, disk: usize, state: wire::AnaState) -> Option<NamespaceUpdate> {
            let event = ControllerEvent::AnaChanged { namespace: disk, state };
            self.namespaces.on_event(&mut self.disks, &self.info, event).unwrap()
        }
    }

    fn gone() -> Result<NamespaceIdentity, NamespaceError> {
        Err(NamespaceError::Missing { nsid: 1, available: vec![2] })
    }

    #[test]
    fn a_namespace_that_becomes_another_one_ends_the_association() {
        let mut rig = Rig::new();
        let other = NamespaceIdentity { uuid: [9; 16], ..namespace() };
        assert!(rig.identified(0, Ok(other)).unwrap_err().starts_with("0: the path leads to another namespace"));
        // A namespace that has lost blocks which guests see ends the association too.
        let mut rig = Rig::new();
        assert!(rig.identified(0, Ok(NamespaceIdentity { blocks: 999, ..namespace() })).is_err());
    }

    /// It may be another one, so it is not used, and requests that were sent there are repeated.
    #[test]
    fn a_namespace_without_identity_ends_the_association_like_another_one() {
        let error = Rig::new().identified(0, Ok(NamespaceIdentity { uuid: [0; 16], ..namespace() })).unwrap_err();
        assert!(error.starts_with("0: the path may lead to another namespace"), "{error}");
    }

    #[test]
    fn a_namespace_that_is_gone_is_lost_there_until_it_is_back() {
        let mut rig = Rig::new();
        let update = rig.identified(0, gone()).unwrap().unwrap();
        assert_eq!((update.disk, update.state, update.blocks), (DiskId(0), AnaState::PersistentLoss, 0));
        assert!(update.unusable.is_some() && rig.identified(0, gone()).unwrap().is_none(), "reported once");
        assert_eq!(rig.state(0, wire::AnaState::Optimized), None, "what its controller says of it is of no interest");
        let update = rig.identified(0, Ok(namespace())).unwrap().unwrap();
        assert_eq!((update.state, update.blocks, update.unusable), (AnaState::NonOptimized, 1000, None));
        assert_eq!(update.added.map(|limits| limits.nsid), Some(1), "queue pairs have to know it");
        // The queue pairs still know the first namespace when another one appears.
        rig.identified(0, gone()).unwrap();
        assert!(rig.identified(0, Ok(NamespaceIdentity { uuid: [9; 16], ..namespace() })).is_err());
    }

    #[test]
    fn an_association_that_no_disk_can_use_is_lost() {
        let mut rig = Rig::new();
        assert!(rig.identified(0, gone()).is_ok());
        assert!(rig.identified(1, gone()).is_err());
    }

    #[test]
    fn growth_is_reported_and_a_growth_taken_back_ends_the_association() {
        let mut rig = Rig::new();
        let grown = NamespaceIdentity { blocks: 2000, ..namespace() };
        let update = rig.identified(0, Ok(grown)).unwrap().unwrap();
        assert_eq!((update.blocks, update.changed), (2000, false));
        assert_eq!(update.added.map(|limits| limits.namespace_blocks), Some(2000));
        assert!(rig.identified(0, Ok(grown)).unwrap().is_none());
        let error = rig.identified(0, Ok(namespace())).unwrap_err();
        assert!(error.contains("has 1000 blocks (4096000 bytes), and had 2000 blocks"), "{error}");
    }

    #[test]
    fn a_requested_ana_state_is_an_update_only_if_it_differs() {
        let mut rig = Rig::new();
        assert!(rig.state(0, wire::AnaState::Optimized).is_some_and(|update| !update.changed), "said again by itself");
        rig.namespaces.ana_log_requested();
        assert_eq!(rig.state(0, wire::AnaState::Optimized), None, "read because of an error");
        assert!(rig.state(0, wire::AnaState::Optimized).is_some());
        rig.namespaces.ana_log_requested();
        let update = rig.state(1, wire::AnaState::Inaccessible).unwrap();
        assert_eq!((update.disk, update.state, update.changed), (DiskId(1), AnaState::Inaccessible, true));
    }
}
