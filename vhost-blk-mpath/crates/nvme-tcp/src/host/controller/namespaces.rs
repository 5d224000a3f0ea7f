//! The namespaces of an association. Each is usable or unusable on its own.
//!
//! A namespace becomes unusable when it vanishes, or when it stays in ANA state "change" for too long. While others are usable,
//! the association stays and an event reports the change. Resetting the controller might end the state "change", but it would
//! take the path from the other namespaces. When the last usable namespace becomes unusable, the association ends. The
//! controller is then reset.

use monotonic::{Duration, Instant};

use super::{ControllerError, ControllerEvent, HostController, Namespace, NamespaceError, Step};
use crate::host::NamespaceIdentity;
use crate::wire::{AnaGroup, AnaLog, AnaState};

/// The result of identifying a namespace.
pub(super) type Identified = Result<NamespaceIdentity, NamespaceError>;

/// One namespace.
#[derive(Debug)]
struct Entry {
    identity: Identified,
    /// The state from the ANA log, or the reason why the namespace is unusable.
    ana: Result<AnaState, NamespaceError>,
    /// While the ANA state is "change".
    change: Option<ChangeLimit>,
    /// A log that is not applied yet has reported a persistent loss.
    was_lost: bool,
}

/// The limit of an ANA state "change".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChangeLimit {
    /// When the state has lasted too long.
    pub(super) ends: Instant,
    /// How long it may last.
    pub(super) limit: Duration,
}

impl Entry {
    /// A namespace that was identified for the first time. The state is that of a controller without ANA. With ANA, the log is
    /// read next.
    fn new(identity: Identified) -> Self {
        Self { identity, ana: Ok(AnaState::Optimized), change: None, was_lost: false }
    }

    /// The namespace, if it is usable.
    fn namespace(&self) -> Result<Namespace, NamespaceError> {
        Ok(Namespace { identity: self.identity.clone()?, ana: self.ana.clone()? })
    }
}

/// The namespaces in the order of [`ControllerConfig::nsids`](super::ControllerConfig::nsids). Empty until all have been
/// identified once.
#[derive(Debug, Default)]
pub(super) struct Namespaces(Vec<Entry>);

impl Namespaces {
    /// Takes the results of identifying all namespaces.
    fn set_identified(&mut self, results: Vec<Identified>) {
        let mut before = std::mem::take(&mut self.0).into_iter();
        let entry = |identity: Identified| match before.next() {
            Some(before) if before.identity.is_ok() && identity.is_ok() => Entry { identity, ..before },
            _ => Entry::new(identity),
        };
        self.0 = results.into_iter().map(entry).collect();
    }

    /// The identity of the namespace at a position, if it is known.
    pub(super) fn identity_mut(&mut self, position: usize) -> Option<&mut NamespaceIdentity> {
        self.0.get_mut(position)?.identity.as_mut().ok()
    }

    /// Notes the persistent losses of a log that was read, in whole or in part. Each is reported, whatever the log shows that is
    /// applied in the end.
    pub(super) fn note_losses(&mut self, log: &AnaLog) {
        for entry in &mut self.0 {
            let Ok(identity) = &entry.identity else { continue };
            let lists = |group: &&AnaGroup| group.nsids.contains(&identity.nsid);
            // A log that has changed while it was read may list a namespace twice.
            entry.was_lost |= state_of(log, identity) == Some(AnaState::PersistentLoss)
                || log.groups.iter().filter(lists).any(|group| group.state == AnaState::PersistentLoss);
        }
    }

    /// The positions of the namespaces that were lost and are not lost any more.
    fn take_losses(&mut self) -> Vec<usize> {
        let mut losses = Vec::new();
        for (position, entry) in self.0.iter_mut().enumerate() {
            if std::mem::take(&mut entry.was_lost) && entry.ana != Ok(AnaState::PersistentLoss) {
                losses.push(position);
            }
        }
        losses
    }

    /// Takes an ANA log. `change` is the limit of a state "change" that begins now.
    fn apply_ana_log(&mut self, log: &AnaLog, change: ChangeLimit) {
        for entry in &mut self.0 {
            let Ok(identity) = &entry.identity else { continue };
            let state = state_of(log, identity);
            let was_changing = entry.change.is_some() || matches!(entry.ana, Err(NamespaceError::AnaTransition { .. }));
            if state == Some(AnaState::Change) && was_changing {
                // The time limit runs from the first log that reported the state.
                continue;
            }
            entry.ana = state.ok_or(NamespaceError::AnaGroupMissing { group: identity.anagrpid });
            entry.change = (state == Some(AnaState::Change)).then_some(change);
        }
    }

    /// Whether a namespace is in the state "change", and may be for longer.
    pub(super) fn is_any_changing(&self) -> bool {
        self.0.iter().any(|entry| entry.change.is_some())
    }

    /// The earliest time at which the state "change" of a namespace has lasted too long.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(|entry| entry.change).map(|change| change.ends).min()
    }

    /// Makes namespaces unusable whose state "change" has lasted too long. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let mut any = false;
        for entry in &mut self.0 {
            if let Some(ChangeLimit { limit, .. }) = entry.change.take_if(|change| change.ends <= now) {
                entry.ana = Err(NamespaceError::AnaTransition { after: limit });
                any = true;
            }
        }
        any
    }

    /// Ends the time limits of the state "change".
    pub(super) fn stop_timers(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.change = None);
    }

    fn iter(&self) -> impl Iterator<Item = Result<Namespace, NamespaceError>> {
        self.0.iter().map(Entry::namespace)
    }
}

/// The state of the group that lists the namespace. Without namespace lists, the state of the namespace's ANAGRPID.
fn state_of(log: &AnaLog, identity: &NamespaceIdentity) -> Option<AnaState> {
    log.listed_state_of(identity.nsid).or_else(|| log.state_of(identity.anagrpid))
}

/// The information about the namespaces that was read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Update {
    /// All namespaces were identified.
    is_identified: bool,
    /// The ANA log was read.
    is_ana_read: bool,
}

impl HostController {
    /// The NSID of the namespace that is being identified.
    pub(super) fn nsid(&self) -> u32 {
        self.nsids[self.identified.len()]
    }

    /// Identifies the next namespace, or goes on when all are identified.
    pub(super) fn identify_next(&mut self) -> Result<Option<Step>, ControllerError> {
        while let Some(&nsid) = self.nsids.get(self.identified.len()) {
            // The active namespaces are listed only once, just before the first identification.
            if self.live.is_some() || self.active.contains(&nsid) {
                return Ok(Some(Step::IdentifyNamespace));
            }
            let missing = self.missing(nsid);
            self.identified.push(Err(missing));
        }
        if self.identified.iter().all(Result::is_err) {
            // No namespace needs the ANA log: the association ends here.
            self.update_namespaces(None)?;
        }
        self.step_after_namespaces()
    }

    /// Takes the results of an identification if one is complete, and `ana`: the ANA log and the limit of a state "change". Both are
    /// applied together, so that no event reports half of an update.
    pub(super) fn update_namespaces(&mut self, ana: Option<(&AnaLog, ChangeLimit)>) -> Result<(), ControllerError> {
        let update = Update { is_identified: self.identified.len() == self.nsids.len(), is_ana_read: ana.is_some() };
        if update.is_identified {
            self.namespaces.set_identified(std::mem::take(&mut self.identified));
        }
        if let Some((log, change)) = ana {
            self.namespaces.apply_ana_log(log, change);
        }
        let Some(info) = &self.live else {
            self.check_usable()?;
            self.go_live();
            return Ok(());
        };
        if update.is_ana_read {
            for namespace in self.namespaces.take_losses() {
                if info.namespaces[namespace].is_ok() {
                    let state = AnaState::PersistentLoss;
                    self.events.push_back(ControllerEvent::AnaChanged { namespace, state });
                }
            }
        }
        self.report(update)
    }

    /// Updates [`ControllerInfo`](super::ControllerInfo) and queues an event for each change. Fails if no namespace is usable.
    pub(super) fn report(&mut self, update: Update) -> Result<(), ControllerError> {
        self.check_usable()?;
        let Some(info) = &mut self.live else { return Ok(()) };
        for (namespace, (current, known)) in self.namespaces.iter().zip(&mut info.namespaces).enumerate() {
            let is_new = current.is_ok() && known.is_err();
            if update.is_identified || current.as_ref().err() != known.as_ref().err() {
                let identity = current.as_ref().map(|namespace| namespace.identity).map_err(Clone::clone);
                self.events.push_back(ControllerEvent::NamespaceChanged { namespace, identity: Box::new(identity) });
            }
            if let Ok(Namespace { ana: state, .. }) = current
                && (update.is_ana_read || is_new)
            {
                self.events.push_back(ControllerEvent::AnaChanged { namespace, state });
            }
            *known = current;
        }
        Ok(())
    }

    /// Fails if no namespace is usable. The error is that of the namespace that was usable last, or of the first if none ever was.
    fn check_usable(&self) -> Result<(), ControllerError> {
        let errors: Option<Vec<_>> = self.namespaces.iter().map(Result::err).collect();
        let Some(mut errors) = errors else { return Ok(()) };
        let last = self.info().and_then(|info| info.namespaces.iter().position(Result::is_ok)).unwrap_or(0);
        Err(errors.swap_remove(last).into())
    }

    /// Reports the association as live: I/O queues can be connected.
    fn go_live(&mut self) {
        let namespaces = self.namespaces.iter().collect();
        let queue = &self.session.queue;
        let identity = (queue.cntlid(), queue.authenticated());
        let info = Box::new(self.facts.info(&self.config, identity, namespaces));
        self.events.push_back(ControllerEvent::Live(info.clone()));
        self.live = Some(info);
        self.session.allow_keep_alive_time();
    }
}
