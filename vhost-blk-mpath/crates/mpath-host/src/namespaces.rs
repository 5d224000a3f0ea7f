//! What one association is to each disk: whether its namespace can be used there, and in which ANA state.
//!
//! Where a namespace cannot be used, be it another one or none, its state counts as `persistent-loss`: no I/O of the disk goes
//! there, what the controller's cache held of it is lost, and the other disks' I/O goes on. An association that no disk can use
//! is lost, and so is one on which a namespace becomes another one: what is on its way there under the old number has to be
//! repeated where it belongs, and success means nothing.

use std::error::Error;

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{
    ConfigError, ControllerEvent, ControllerInfo, HostQueue, Namespace, NamespaceError, NamespaceIdentity,
};
use nvme_tcp::wire;

use crate::disks::{AdmitError, Admitted, Disks, News, Served, Unusable};

/// What one association is to the disks.
#[derive(Debug)]
pub(crate) struct Namespaces(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    known: AnaState,
    /// Its size, 0 if it cannot be used.
    blocks: u64,
    /// The controller has been asked for its state, because of an error.
    asked: bool,
    /// Why it cannot be used.
    unusable: Option<String>,
    /// The queue pairs of the association know it, or are told of it before they carry anything.
    connected: bool,
}

/// Whether a disk's namespace, identified anew, still is the disk's.
fn check<D: Disks>(disks: &D, disk: DiskId, found: Result<NamespaceIdentity, NamespaceError>) -> Result<(), Unusable> {
    let found = found?;
    disks.served(disk).map_or(Ok(()), |served: Served| served.check(&found))
}

type Outcome<T, E> = Result<T, (DiskId, AdmitError<E>)>;

impl Namespaces {
    /// Of a fresh association, with what admission said; an error if there is none to use.
    pub(crate) fn new<E: Error>(info: &ControllerInfo, admitted: Admitted<E>) -> Result<Self, AdmitError<E>> {
        let mut failed = Vec::new();
        let mut of = |(found, admitted): (&Result<Namespace, _>, Result<(), AdmitError<E>>)| {
            let unusable = admitted.err();
            let (known, blocks) = match found {
                Ok(namespace) if unusable.is_none() => (ana_state(namespace.ana), namespace.identity.blocks),
                _ => (AnaState::PersistentLoss, 0),
            };
            let text = unusable.as_ref().map(ToString::to_string);
            failed.extend(unusable);
            Entry { known, blocks, asked: false, connected: text.is_none(), unusable: text }
        };
        let namespaces: Vec<_> = info.namespaces.iter().zip(admitted).map(&mut of).collect();
        if failed.len() < namespaces.len() {
            return Ok(Self(namespaces));
        }
        // What may change comes first: by the others the path would be given up.
        match failed.into_iter().min_by_key(AdmitError::is_refusal) {
            Some(error) => Err(error),
            None => Ok(Self(namespaces)),
        }
    }

    /// Tells a fresh queue pair which namespaces it may be used for.
    pub(crate) fn add_to(&self, info: &ControllerInfo, queue: &mut HostQueue) -> Result<(), ConfigError> {
        for ((found, namespace), position) in info.namespaces.iter().zip(&self.0).zip(0..) {
            if let (Ok(found), true) = (found, namespace.connected) {
                queue.add_namespace(position, found.limits())?;
            }
        }
        Ok(())
    }

    pub(crate) fn states(&self) -> AnaStates {
        let mut states = AnaStates::from(AnaState::PersistentLoss);
        for (namespace, disk) in self.0.iter().zip(0..) {
            states.set(DiskId(disk), namespace.known);
        }
        states
    }

    /// What there is to be told of each disk at the beginning.
    pub(crate) fn all(&self) -> Vec<News> {
        let news = |(namespace, disk): (&Entry, u16)| News {
            disk: DiskId(disk),
            state: namespace.known,
            unusable: namespace.unusable.clone(),
            blocks: namespace.blocks,
            added: None,
            changed: true,
        };
        self.0.iter().zip(0..).map(news).collect()
    }

    /// The controller has been asked for its states, because of an error. A disk rests on the path after such an error until
    /// there is news, and the state that it had when the error came, read because of it, is none.
    pub(crate) fn asked(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.asked = true);
    }

    /// Takes an event of the controller in, of which so much is known now: what it changes, or an error if no disk can use the
    /// association any more.
    pub(crate) fn on_event<D: Disks>(
        &mut self,
        disks: &mut D,
        info: &ControllerInfo,
        event: ControllerEvent,
    ) -> Outcome<Option<News>, D::Error> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if namespace.unusable.is_some() {
                    return Ok(None);
                }
                let (asked, state) = (std::mem::take(&mut namespace.asked), ana_state(state));
                let same = std::mem::replace(&mut namespace.known, state) == state;
                let (disk, blocks) = (DiskId(index as u16), namespace.blocks);
                let news = News { disk, state, unusable: None, blocks, added: None, changed: !same };
                Ok((!(asked && same)).then_some(news))
            }
            ControllerEvent::NamespaceChanged { namespace, identity } => {
                let disk = DiskId(namespace as u16);
                // The event may be older than what is known now, and another namespace has been there all the same.
                match check(disks, disk, *identity) {
                    Ok(()) if self.0[namespace].unusable.is_none() => self.resized(disk, &info.namespaces[namespace]),
                    Ok(()) => self.admitted(disks, disk, info),
                    Err(error) => self.not_found(disk, error.into()),
                }
            }
            _ => Ok(None),
        }
    }

    /// A namespace could not be used before, and seems to be the disk's.
    fn admitted<D: Disks>(
        &mut self,
        disks: &mut D,
        disk: DiskId,
        info: &ControllerInfo,
    ) -> Outcome<Option<News>, D::Error> {
        let index = usize::from(disk.0);
        match disks.admit(info) {
            Ok(mut admitted) => match admitted.swap_remove(index) {
                Ok(()) => Ok(self.found(disk, &info.namespaces[index])),
                Err(error) => self.not_found(disk, error),
            },
            Err(error) => Err((disk, AdmitError::NoDisk(error))),
        }
    }

    /// A namespace that can be used has been identified anew: all that may have changed is its size.
    fn resized<E: Error>(
        &mut self,
        disk: DiskId,
        found: &Result<Namespace, NamespaceError>,
    ) -> Outcome<Option<News>, E> {
        let Ok(found) = found else { return Ok(None) };
        let namespace = &mut self.0[usize::from(disk.0)];
        let (blocks, before) = (found.identity.blocks, namespace.blocks);
        if blocks < before {
            // Guests do not know the larger size yet. Queue pairs do: another association begins with the smaller one.
            return Err((disk, Unusable::GrowthTakenBack { found: blocks, before }.into()));
        }
        if blocks == before {
            return Ok(None);
        }
        namespace.blocks = blocks;
        let added = Some(found.limits());
        Ok(Some(News { disk, state: namespace.known, unusable: None, blocks, added, changed: false }))
    }

    /// A namespace can be used, and could not before.
    fn found(&mut self, disk: DiskId, found: &Result<Namespace, NamespaceError>) -> Option<News> {
        let found = found.as_ref().ok()?;
        let namespace = &mut self.0[usize::from(disk.0)];
        let (state, blocks) = (ana_state(found.ana), found.identity.blocks);
        *namespace = Entry { known: state, blocks, asked: false, unusable: None, connected: true };
        Some(News { disk, state, unusable: None, blocks, added: Some(found.limits()), changed: true })
    }

    /// A namespace cannot be used, any more or for another reason than before.
    fn not_found<E: Error>(&mut self, disk: DiskId, error: AdmitError<E>) -> Outcome<Option<News>, E> {
        let namespace = &mut self.0[usize::from(disk.0)];
        let text = error.to_string();
        let before = namespace.unusable.replace(text.clone());
        (namespace.known, namespace.blocks) = (AnaState::PersistentLoss, 0);
        let another = error.is_another() && namespace.connected;
        if another || self.0.iter().all(|namespace| namespace.unusable.is_some()) {
            return Err((disk, error));
        }
        let changed = before.as_ref() != Some(&text);
        let state = AnaState::PersistentLoss;
        let news = News { disk, state, unusable: Some(text), blocks: 0, added: None, changed };
        Ok(changed.then_some(news))
    }
}

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

    /// Two disks, and what they find on an association.
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
            let admitted = disks.admit(&info).unwrap();
            let namespaces = Namespaces::new(&info, admitted).unwrap();
            Self { disks, info, namespaces }
        }

        /// The controller has identified a disk's namespace anew, as this.
        fn identified(
            &mut self,
            disk: usize,
            found: Result<NamespaceIdentity, NamespaceError>,
        ) -> Result<Option<News>, String> {
            let ana = wire::AnaState::NonOptimized;
            self.info.namespaces[disk] = found.clone().map(|identity| Namespace { identity, ana });
            let event = ControllerEvent::NamespaceChanged { namespace: disk, identity: Box::new(found) };
            let news = self.namespaces.on_event(&mut self.disks, &self.info, event);
            news.map_err(|(disk, error)| format!("{}: {error}", disk.0))
        }

        fn state(&mut self, disk: usize, state: wire::AnaState) -> Option<News> {
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
        assert!(rig.identified(0, Ok(other)).unwrap_err().starts_with("0: does not lead to"));
        // So does one that has lost blocks that guests see.
        let mut rig = Rig::new();
        assert!(rig.identified(0, Ok(NamespaceIdentity { blocks: 999, ..namespace() })).is_err());
    }

    #[test]
    fn a_namespace_that_is_gone_is_lost_there_until_it_is_back() {
        let mut rig = Rig::new();
        let news = rig.identified(0, gone()).unwrap().unwrap();
        assert_eq!((news.disk, news.state, news.blocks), (DiskId(0), AnaState::PersistentLoss, 0));
        assert!(news.unusable.is_some() && rig.identified(0, gone()).unwrap().is_none(), "told once");
        assert_eq!(rig.state(0, wire::AnaState::Optimized), None, "what its controller says of it is of no interest");
        let news = rig.identified(0, Ok(namespace())).unwrap().unwrap();
        assert_eq!((news.state, news.blocks, news.unusable), (AnaState::NonOptimized, 1000, None));
        assert_eq!(news.added.map(|limits| limits.nsid), Some(1), "queue pairs have to know it");
        // One that comes back as another one does so on queue pairs that know the first.
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
    fn a_namespace_that_has_grown_is_told_of_and_one_that_was_made_smaller_again_is_not_used() {
        let mut rig = Rig::new();
        let grown = NamespaceIdentity { blocks: 2000, ..namespace() };
        let news = rig.identified(0, Ok(grown)).unwrap().unwrap();
        assert_eq!((news.blocks, news.changed), (2000, false));
        assert_eq!(news.added.map(|limits| limits.namespace_blocks), Some(2000));
        assert!(rig.identified(0, Ok(grown)).unwrap().is_none());
        let error = rig.identified(0, Ok(namespace())).unwrap_err();
        assert!(error.contains("has 1000 blocks, and had 2000"), "{error}");
    }

    #[test]
    fn a_state_that_was_asked_for_is_news_only_if_it_is_another_one() {
        let mut rig = Rig::new();
        assert!(rig.state(0, wire::AnaState::Optimized).is_some_and(|news| !news.changed), "said again by itself");
        rig.namespaces.asked();
        assert_eq!(rig.state(0, wire::AnaState::Optimized), None, "read because of an error");
        assert!(rig.state(0, wire::AnaState::Optimized).is_some());
        rig.namespaces.asked();
        let news = rig.state(1, wire::AnaState::Inaccessible).unwrap();
        assert_eq!((news.disk, news.state, news.changed), (DiskId(1), AnaState::Inaccessible, true));
    }
}
