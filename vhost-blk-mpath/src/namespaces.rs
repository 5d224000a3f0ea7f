//! What one association is to each disk: whether its namespace can be used there, and in which ANA state.
//!
//! Where a namespace cannot be used, be it another one or none, its state counts as `persistent-loss`: no I/O of the disk goes
//! there, what the controller's cache held of it is lost, and the other disks' I/O goes on. An association that no disk can use
//! is lost.

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{ControllerEvent, ControllerInfo, QueueConfig};
use nvme_tcp::wire;

use crate::subsystem::{AdmitError, Subsystem};

/// By disk.
pub(crate) struct Namespaces(Vec<Namespace>);

struct Namespace {
    known: AnaState,
    /// The controller has been asked for it.
    asked: bool,
    /// Why it cannot be used.
    unusable: Option<String>,
    /// The queue pairs of the association know it.
    connected: bool,
}

/// What has become of a disk's namespace.
pub(crate) struct News {
    pub(crate) disk: DiskId,
    pub(crate) state: AnaState,
    pub(crate) unusable: Option<String>,
}

impl Namespaces {
    /// Of a fresh association, with what admission said; an error if there is none to use.
    pub(crate) fn new(info: &ControllerInfo, admitted: Vec<Result<(), AdmitError>>) -> Result<Self, AdmitError> {
        let mut failed = None;
        let mut usable = 0;
        let mut of = |(found, admitted): (&Result<nvme_tcp::host::Namespace, _>, Result<(), AdmitError>)| {
            let unusable = admitted.err();
            let known = match found {
                Ok(namespace) if unusable.is_none() => ana_state(namespace.ana),
                _ => AnaState::PersistentLoss,
            };
            usable += usize::from(unusable.is_none());
            let text = unusable.as_ref().map(ToString::to_string);
            failed = failed.take().or(unusable);
            Namespace { known, asked: false, connected: text.is_none(), unusable: text }
        };
        let namespaces = info.namespaces.iter().zip(admitted).map(&mut of).collect();
        match failed {
            Some(error) if usable == 0 => Err(error),
            _ => Ok(Self(namespaces)),
        }
    }

    /// Leaves out of the configuration of a queue pair what may not be used.
    pub(crate) fn restrict(&self, config: &mut QueueConfig) {
        for (limits, namespace) in config.namespaces.iter_mut().zip(&self.0) {
            if !namespace.connected {
                *limits = None;
            }
        }
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
        let news = |(namespace, disk): (&Namespace, u16)| News {
            disk: DiskId(disk),
            state: namespace.known,
            unusable: namespace.unusable.clone(),
        };
        self.0.iter().zip(0..).map(news)
    }

    /// The controller has been asked for its states, because of an error. A disk rests on the path after such an error until
    /// there is news, and the state that it had when the error came, read because of it, is none.
    pub(crate) fn asked(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.asked = true);
    }

    /// Takes an event of the controller in: what it changes, or an error if no disk can use the association any more.
    pub(crate) fn on_event(
        &mut self,
        subsystem: &Subsystem,
        event: ControllerEvent,
    ) -> Result<Option<News>, AdmitError> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if namespace.unusable.is_some() {
                    return Ok(None);
                }
                let (asked, state) = (std::mem::take(&mut namespace.asked), ana_state(state));
                let same = std::mem::replace(&mut namespace.known, state) == state;
                let news = News { disk: DiskId(index as u16), state, unusable: None };
                Ok((!(asked && same)).then_some(news))
            }
            ControllerEvent::NamespaceChanged { namespace: index, identity } => {
                let checked = subsystem.check_namespace(DiskId(index as u16), *identity);
                let namespace = &mut self.0[index];
                match checked {
                    // What the queue pairs do not know has to wait for the next association. The state of another one follows.
                    Ok(()) => {
                        if namespace.connected {
                            namespace.unusable = None;
                        }
                        Ok(None)
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let before = namespace.unusable.replace(text.clone());
                        namespace.known = AnaState::PersistentLoss;
                        if self.0.iter().all(|namespace| namespace.unusable.is_some()) {
                            return Err(error);
                        }
                        let news = News {
                            disk: DiskId(index as u16),
                            state: AnaState::PersistentLoss,
                            unusable: Some(text.clone()),
                        };
                        Ok((before != Some(text)).then_some(news))
                    }
                }
            }
            _ => Ok(None),
        }
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
