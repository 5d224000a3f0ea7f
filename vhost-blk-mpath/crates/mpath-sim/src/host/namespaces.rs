//! What one association is to each disk, as `vhost-blk-mpath/src/namespaces.rs` has it: whether its namespace can be used there, and
//! in which ANA state.
//!
//! A namespace that becomes another one ends the association of all disks. One that the queue pairs do not know, and that is there again,
//! is used from the next association on; the operator sees to that.
//!
//! The daemon takes the namespace that its first path has led to for the disk's. This one knows it from the start, or a fault at its
//! start would make another one of the disk.

use mpath_core::{AnaState, AnaStates, DiskId};
use nvme_tcp::host::{ControllerEvent, ControllerInfo, NamespaceError, NamespaceIdentity, QueueConfig};
use nvme_tcp::wire;

use super::DiskPlan;

/// By disk.
#[derive(Debug)]
pub(super) struct Namespaces(Vec<Namespace>);

#[derive(Debug)]
struct Namespace {
    known: AnaState,
    /// The controller has been asked for it.
    asked: bool,
    usable: bool,
    queues: Queues,
}

/// What the queue pairs of the association have to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queues {
    Know,
    DoNot,
    /// They do not, and it is there again.
    Lack,
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
        let mut failed = None;
        let mut of = |(found, plan): (&Result<nvme_tcp::host::Namespace, NamespaceError>, &DiskPlan)| {
            let not_this = check(plan, found.clone().map(|namespace| namespace.identity)).err();
            let usable = not_this.is_none();
            let known = match found {
                Ok(namespace) if usable => ana_state(namespace.ana),
                _ => AnaState::PersistentLoss,
            };
            failed = failed.take().or(not_this);
            Namespace { known, asked: false, usable, queues: if usable { Queues::Know } else { Queues::DoNot } }
        };
        let namespaces: Vec<_> = info.namespaces.iter().zip(disks).map(&mut of).collect();
        match failed {
            Some(error) if namespaces.iter().all(|namespace| !namespace.usable) => {
                Err(Unusable { refused: matches!(error, NotThis::Another) })
            }
            _ => Ok(Self(namespaces)),
        }
    }

    /// Leaves out of the configuration of a queue pair what may not be used.
    pub(super) fn restrict(&self, config: &mut QueueConfig) {
        for (limits, namespace) in config.namespaces.iter_mut().zip(&self.0) {
            if namespace.queues != Queues::Know {
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

    /// Whether another association would be of use to more disks.
    pub(super) fn wait_for_another(&self) -> bool {
        self.0.iter().any(|namespace| namespace.queues == Queues::Lack)
    }

    /// The controller has been asked for its states, because of an error.
    pub(super) fn asked(&mut self) {
        self.0.iter_mut().for_each(|namespace| namespace.asked = true);
    }

    /// Takes an event of the controller in: what it changes, or an error if the association ends with it.
    pub(super) fn on_event(
        &mut self,
        disks: &[DiskPlan],
        event: ControllerEvent,
    ) -> Result<Option<(DiskId, AnaState)>, Unusable> {
        match event {
            ControllerEvent::AnaChanged { namespace: index, state } => {
                let namespace = &mut self.0[index];
                if !namespace.usable {
                    return Ok(None);
                }
                let (asked, state) = (std::mem::take(&mut namespace.asked), ana_state(state));
                let same = std::mem::replace(&mut namespace.known, state) == state;
                Ok((!(asked && same)).then_some((DiskId(index as u16), state)))
            }
            ControllerEvent::NamespaceChanged { namespace: index, identity } => {
                let checked = check(&disks[index], *identity);
                let namespace = &mut self.0[index];
                match checked {
                    // The state of one that can be used follows.
                    Ok(()) => {
                        match namespace.queues {
                            Queues::Know => namespace.usable = true,
                            Queues::DoNot | Queues::Lack => namespace.queues = Queues::Lack,
                        }
                        Ok(None)
                    }
                    Err(error) => {
                        let before = std::mem::replace(&mut namespace.usable, false);
                        namespace.known = AnaState::PersistentLoss;
                        let connected = namespace.queues == Queues::Know;
                        if !connected {
                            namespace.queues = Queues::DoNot;
                        }
                        let another = matches!(error, NotThis::Another) && connected;
                        if another || self.0.iter().all(|namespace| !namespace.usable) {
                            return Err(Unusable { refused: matches!(error, NotThis::Another) });
                        }
                        Ok(before.then_some((DiskId(index as u16), AnaState::PersistentLoss)))
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
