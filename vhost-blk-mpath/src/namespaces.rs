//! What one association is to each disk: whether its namespace can be used there, and in which ANA state.
//!
//! Where a namespace cannot be used, be it another one or none, its state counts as `persistent-loss`: no I/O of the disk goes
//! there, what the controller's cache held of it is lost, and the other disks' I/O goes on. An association that no disk can use
//! is lost, and so is one on which a namespace becomes another one: what is on its way there under the old number has to be
//! repeated where it belongs, and success means nothing.

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{
    ConfigError, ControllerEvent, ControllerInfo, HostQueue, Namespace, NamespaceError, NamespaceLimits,
};
use nvme_tcp::wire;

use crate::subsystem::{AdmitError, Subsystem};

/// By disk.
pub(crate) struct Namespaces(Vec<Entry>);

struct Entry {
    known: AnaState,
    /// The controller has been asked for it.
    asked: bool,
    /// Why it cannot be used.
    unusable: Option<String>,
    /// The queue pairs of the association know it, or are told of it before they carry anything.
    connected: bool,
}

/// What has become of a disk's namespace.
pub(crate) struct News {
    pub(crate) disk: DiskId,
    pub(crate) state: AnaState,
    pub(crate) unusable: Option<String>,
    /// It can be used from now on: what a queue pair has to know, if it does not.
    pub(crate) added: Option<NamespaceLimits>,
    /// It is not the same as before. If it is, the controller has said so again, and errors before that tell nothing any more.
    pub(crate) changed: bool,
}

impl Namespaces {
    /// Of a fresh association, with what admission said; an error if there is none to use.
    pub(crate) fn new(info: &ControllerInfo, admitted: Vec<Result<(), AdmitError>>) -> Result<Self, AdmitError> {
        let mut failed = Vec::new();
        let mut of = |(found, admitted): (&Result<Namespace, _>, Result<(), AdmitError>)| {
            let unusable = admitted.err();
            let known = match found {
                Ok(namespace) if unusable.is_none() => ana_state(namespace.ana),
                _ => AnaState::PersistentLoss,
            };
            let text = unusable.as_ref().map(ToString::to_string);
            failed.extend(unusable);
            Entry { known, asked: false, connected: text.is_none(), unusable: text }
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
    pub(crate) fn all(&self) -> impl Iterator<Item = News> {
        let news = |(namespace, disk): (&Entry, u16)| News {
            disk: DiskId(disk),
            state: namespace.known,
            unusable: namespace.unusable.clone(),
            added: None,
            changed: true,
        };
        self.0.iter().zip(0..).map(news)
    }

    /// The controller has been asked for its states, because of an error. A disk rests on the path after such an error until
    /// there is news, and the state that it had when the error came, read because of it, is none.
    pub(crate) fn asked(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.asked = true);
    }

    /// Takes an event of the controller in, of which so much is known now: what it changes, or an error if no disk can use the
    /// association any more.
    pub(crate) fn on_event(
        &mut self,
        subsystem: &Subsystem,
        info: &ControllerInfo,
        event: ControllerEvent,
    ) -> Result<Option<News>, (DiskId, AdmitError)> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if namespace.unusable.is_some() {
                    return Ok(None);
                }
                let (asked, state) = (std::mem::take(&mut namespace.asked), ana_state(state));
                let same = std::mem::replace(&mut namespace.known, state) == state;
                let news = News { disk: DiskId(index as u16), state, unusable: None, added: None, changed: !same };
                Ok((!(asked && same)).then_some(news))
            }
            ControllerEvent::NamespaceChanged { namespace, identity } => {
                let disk = DiskId(namespace as u16);
                // The event may be older than what is known now, and another namespace has been there all the same.
                match subsystem.check_namespace(disk, *identity) {
                    Ok(()) if self.0[namespace].unusable.is_none() => Ok(None),
                    Ok(()) => match subsystem.admit(info).map_err(|error| (disk, error))?.swap_remove(namespace) {
                        Ok(()) => Ok(self.found(disk, &info.namespaces[namespace])),
                        Err(error) => self.not_found(disk, error),
                    },
                    Err(error) => self.not_found(disk, error),
                }
            }
            _ => Ok(None),
        }
    }

    /// A namespace can be used, and could not before.
    fn found(&mut self, disk: DiskId, found: &Result<Namespace, NamespaceError>) -> Option<News> {
        let found = found.as_ref().ok()?;
        let namespace = &mut self.0[usize::from(disk.0)];
        let state = ana_state(found.ana);
        *namespace = Entry { known: state, asked: false, unusable: None, connected: true };
        Some(News { disk, state, unusable: None, added: Some(found.limits()), changed: true })
    }

    /// A namespace cannot be used, any more or for another reason than before.
    fn not_found(&mut self, disk: DiskId, error: AdmitError) -> Result<Option<News>, (DiskId, AdmitError)> {
        let namespace = &mut self.0[usize::from(disk.0)];
        let text = error.to_string();
        let before = namespace.unusable.replace(text.clone());
        namespace.known = AnaState::PersistentLoss;
        let another = matches!(error, AdmitError::Mismatch(_)) && namespace.connected;
        if another || self.0.iter().all(|namespace| namespace.unusable.is_some()) {
            return Err((disk, error));
        }
        let changed = before.as_ref() != Some(&text);
        let news = News { disk, state: AnaState::PersistentLoss, unusable: Some(text), added: None, changed };
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
