//! What one association is to each disk, as `vhost-blk-mpath/src/namespaces.rs` has it: whether its namespace can be used there, and
//! in which ANA state.
//!
//! A namespace that becomes another one ends the association of all disks. One that the queue pairs do not know, and that is there again,
//! is added to them.
//!
//! The daemon takes the namespace that its first path has led to for the disk's. This one knows it from the start, or a fault at its
//! start would make another one of the disk.

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{
    ControllerEvent, ControllerInfo, Namespace, NamespaceError, NamespaceIdentity, NamespaceLimits, QueueConfig,
};
use nvme_tcp::wire;

use super::DiskPlan;

/// By disk.
#[derive(Debug)]
pub(super) struct Namespaces(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    known: AnaState,
    /// The controller has been asked for it.
    asked: bool,
    usable: bool,
    /// The queue pairs of the association know it.
    connected: bool,
}

/// What has become of a disk's namespace.
#[derive(Debug)]
pub(super) struct News {
    pub(super) disk: DiskId,
    pub(super) state: AnaState,
    /// It can be used from now on: what a queue pair has to know, if it does not.
    pub(super) added: Option<NamespaceLimits>,
}

/// No disk can use the association, or it is not what it was.
#[derive(Debug)]
pub(super) struct Unusable {
    /// Another one would be no better.
    pub(super) refused: bool,
}

/// Why a disk cannot use it.
enum NotThis {
    Missing,
    Another,
}

fn check(plan: &DiskPlan, found: Result<NamespaceIdentity, NamespaceError>) -> Result<(), NotThis> {
    let found = found.map_err(|_| NotThis::Missing)?;
    let same =
        (found.uuid, found.blocks, found.block_bytes) == (plan.namespace.uuid, plan.namespace.blocks, plan.block_bytes);
    if same { Ok(()) } else { Err(NotThis::Another) }
}

impl Namespaces {
    /// Of a fresh association.
    pub(super) fn new(info: &ControllerInfo, disks: &[DiskPlan]) -> Result<Self, Unusable> {
        let mut failed = Vec::new();
        let mut of = |(found, plan): (&Result<Namespace, NamespaceError>, &DiskPlan)| {
            let not_this = check(plan, found.clone().map(|namespace| namespace.identity)).err();
            let usable = not_this.is_none();
            let known = match found {
                Ok(namespace) if usable => ana_state(namespace.ana),
                _ => AnaState::PersistentLoss,
            };
            failed.extend(not_this);
            Entry { known, asked: false, usable, connected: usable }
        };
        let namespaces: Vec<_> = info.namespaces.iter().zip(disks).map(&mut of).collect();
        if failed.len() == namespaces.len() {
            return Err(Unusable { refused: failed.iter().all(|error| matches!(error, NotThis::Another)) });
        }
        Ok(Self(namespaces))
    }

    /// Leaves out of the configuration of a queue pair what may not be used.
    pub(super) fn restrict(&self, config: &mut QueueConfig) {
        for (limits, namespace) in config.namespaces.iter_mut().zip(&self.0) {
            if !namespace.connected {
                *limits = None;
            }
        }
    }

    pub(super) fn states(&self) -> AnaStates {
        let mut states = AnaStates::from(AnaState::PersistentLoss);
        for (namespace, disk) in self.0.iter().zip(0..) {
            states.set(DiskId(disk), namespace.known);
        }
        states
    }

    /// How many disks cannot use the association.
    pub(super) fn unusable(&self) -> usize {
        self.0.iter().filter(|namespace| !namespace.usable).count()
    }

    /// The controller has been asked for its states, because of an error.
    pub(super) fn asked(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.asked = true);
    }

    /// Takes an event of the controller in, of which so much is known now: what it changes, or an error if the association ends with it.
    pub(super) fn on_event(
        &mut self,
        disks: &[DiskPlan],
        info: &ControllerInfo,
        event: ControllerEvent,
    ) -> Result<Option<News>, Unusable> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if !namespace.usable {
                    return Ok(None);
                }
                let (asked, state) = (std::mem::take(&mut namespace.asked), ana_state(state));
                let same = std::mem::replace(&mut namespace.known, state) == state;
                Ok((!(asked && same)).then_some(News { disk: DiskId(index as u16), state, added: None }))
            }
            ControllerEvent::NamespaceChanged { namespace, identity } => {
                let plan = &disks[namespace];
                let of_now = || info.namespaces[namespace].clone().map(|namespace| namespace.identity);
                match check(plan, *identity) {
                    Ok(()) if self.0[namespace].usable => Ok(None),
                    Ok(()) => match check(plan, of_now()) {
                        Ok(()) => Ok(self.found(namespace, &info.namespaces[namespace])),
                        Err(error) => self.not_found(namespace, &error),
                    },
                    Err(error) => self.not_found(namespace, &error),
                }
            }
            _ => Ok(None),
        }
    }

    fn found(&mut self, index: usize, found: &Result<Namespace, NamespaceError>) -> Option<News> {
        let found = found.as_ref().ok()?;
        let state = ana_state(found.ana);
        self.0[index] = Entry { known: state, asked: false, usable: true, connected: true };
        Some(News { disk: DiskId(index as u16), state, added: Some(found.limits()) })
    }

    fn not_found(&mut self, index: usize, error: &NotThis) -> Result<Option<News>, Unusable> {
        let entry = &mut self.0[index];
        let before = std::mem::replace(&mut entry.usable, false);
        entry.known = AnaState::PersistentLoss;
        let another = matches!(error, NotThis::Another);
        if another && entry.connected || self.0.iter().all(|entry| !entry.usable) {
            return Err(Unusable { refused: another });
        }
        let news = News { disk: DiskId(index as u16), state: AnaState::PersistentLoss, added: None };
        Ok(before.then_some(news))
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
