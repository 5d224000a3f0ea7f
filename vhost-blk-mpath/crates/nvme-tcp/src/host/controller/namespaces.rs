//! The namespaces of an association: each is usable or not for reasons of its own, and is found anew on its own.
//!
//! What ends the whole association is that none of them is usable any more. So one that has vanished, or that stays in ANA
//! state "change" for too long, is only told of: its I/O has other paths, and to reset the controller, which is the cure for the
//! second, would take the path from all others. The last usable one takes the association with it, as a single one always does;
//! then the controller is reset.

use std::time::{Duration, Instant};

use super::{ControllerError, ControllerEvent, HostController, Namespace, NamespaceError, Step};
use crate::host::NamespaceIdentity;
use crate::wire::{AnaLog, AnaState};

/// What identifying a namespace has led to.
pub(super) type Identified = Result<NamespaceIdentity, NamespaceError>;

/// One namespace.
#[derive(Debug)]
struct Entry {
    identity: Identified,
    /// Its state by the ANA log, or what makes it unusable.
    ana: Result<AnaState, NamespaceError>,
    /// When the state "change" has lasted too long.
    change_ends: Option<Instant>,
}

impl Entry {
    /// Identified for the first time. The state is that of a controller without ANA; with ANA its log is read next.
    fn new(identity: Identified) -> Self {
        Self { identity, ana: Ok(AnaState::Optimized), change_ends: None }
    }

    /// The namespace as users see it.
    fn seen(&self) -> Result<Namespace, NamespaceError> {
        Ok(Namespace { identity: self.identity.clone()?, ana: self.ana.clone()? })
    }
}

/// All that is known of the namespaces, in the order they were asked for. Empty until they have been identified once.
#[derive(Debug, Default)]
pub(super) struct Namespaces(Vec<Entry>);

impl Namespaces {
    /// Takes over a round of identifying all of them.
    fn identified(&mut self, round: Vec<Identified>) {
        let mut before = std::mem::take(&mut self.0).into_iter();
        let entry = |identity: Identified| match before.next() {
            Some(before) if before.identity.is_ok() && identity.is_ok() => Entry { identity, ..before },
            _ => Entry::new(identity),
        };
        self.0 = round.into_iter().map(entry).collect();
    }

    /// Takes over an ANA log. "Change" that begins now has lasted too long at `change_ends`.
    fn ana_read(&mut self, log: &AnaLog, change_ends: Instant) {
        for entry in &mut self.0 {
            let Ok(identity) = &entry.identity else { continue };
            let state = state_of(log, identity);
            let known = entry.change_ends.is_some() || matches!(entry.ana, Err(NamespaceError::AnaTransition { .. }));
            if state == Some(AnaState::Change) && known {
                // Reading it again does not start the time anew.
                continue;
            }
            entry.ana = state.ok_or(NamespaceError::AnaGroupMissing { group: identity.anagrpid });
            entry.change_ends = (state == Some(AnaState::Change)).then_some(change_ends);
        }
    }

    /// When "change" has lasted too long for the next of them.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(|entry| entry.change_ends).min()
    }

    /// Makes those unusable that "change" has lasted too long for, longer than `after`. Whether there were any.
    pub(super) fn expire(&mut self, now: Instant, after: Duration) -> bool {
        let mut any = false;
        for entry in self.0.iter_mut().filter(|entry| entry.change_ends.is_some_and(|at| at <= now)) {
            entry.ana = Err(NamespaceError::AnaTransition { after });
            entry.change_ends = None;
            any = true;
        }
        any
    }

    /// Does without any more time limits.
    pub(super) fn stop_timers(&mut self) {
        self.0.iter_mut().for_each(|entry| entry.change_ends = None);
    }

    fn seen(&self) -> impl Iterator<Item = Result<Namespace, NamespaceError>> {
        self.0.iter().map(Entry::seen)
    }
}

/// The state of the group that lists the namespace or, where namespaces are not listed, of the one it named.
fn state_of(log: &AnaLog, identity: &NamespaceIdentity) -> Option<AnaState> {
    let listed = log.groups.iter().find(|group| group.nsids.contains(&identity.nsid)).map(|group| group.state);
    listed.or_else(|| log.state_of(identity.anagrpid))
}

/// What has led to news of the namespaces.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cause {
    /// All were identified anew.
    identified: bool,
    /// The ANA log was read.
    ana_read: bool,
}

impl HostController {
    /// The NSID of the namespace that is being identified.
    pub(super) fn nsid(&self) -> u32 {
        self.nsids[self.round.len()]
    }

    /// Goes on identifying with the next namespace, or ends the round.
    pub(super) fn identify_next(&mut self) -> Result<Option<Step>, ControllerError> {
        while let Some(&nsid) = self.nsids.get(self.round.len()) {
            // Which ones are active was asked just before the first round, and only then.
            if self.live.is_some() || self.active.contains(&nsid) {
                return Ok(Some(Step::IdentifyNamespace));
            }
            let missing = self.missing(nsid);
            self.round.push(Err(missing));
        }
        if self.round.iter().all(Result::is_err) {
            // There is none that the ANA log could say anything of: the association ends.
            self.settle(None)?;
        }
        self.step_after_namespaces()
    }

    /// Takes over what was learned: a round of identifying if one has ended, and the ANA log with the time when a change that
    /// it tells of has lasted too long. Both together, so that nothing is told of that is half known.
    pub(super) fn settle(&mut self, ana: Option<(&AnaLog, Instant)>) -> Result<(), ControllerError> {
        let cause = Cause { identified: self.round.len() == self.nsids.len(), ana_read: ana.is_some() };
        if cause.identified {
            self.namespaces.identified(std::mem::take(&mut self.round));
        }
        if let Some((log, change_ends)) = ana {
            self.namespaces.ana_read(log, change_ends);
        }
        if self.live.is_none() {
            self.check_usable()?;
            self.go_live();
            return Ok(());
        }
        self.tell(cause)
    }

    /// Brings the information up to date, and makes events of the news. Fails if no namespace is usable.
    pub(super) fn tell(&mut self, cause: Cause) -> Result<(), ControllerError> {
        self.check_usable()?;
        let Some(info) = &mut self.live else { return Ok(()) };
        for (namespace, (seen, known)) in self.namespaces.seen().zip(&mut info.namespaces).enumerate() {
            let found = seen.is_ok() && known.is_err();
            if cause.identified || seen.as_ref().err() != known.as_ref().err() {
                let identity = seen.as_ref().map(|namespace| namespace.identity).map_err(Clone::clone);
                self.events.push_back(ControllerEvent::NamespaceChanged { namespace, identity: Box::new(identity) });
            }
            if let Ok(Namespace { ana: state, .. }) = seen
                && (cause.ana_read || found)
            {
                self.events.push_back(ControllerEvent::AnaChanged { namespace, state });
            }
            *known = seen;
        }
        Ok(())
    }

    /// Fails if no namespace is usable: for what has made the last one unusable or, if none ever was, the first one.
    fn check_usable(&self) -> Result<(), ControllerError> {
        let errors: Option<Vec<_>> = self.namespaces.seen().map(Result::err).collect();
        let Some(mut errors) = errors else { return Ok(()) };
        let last = self.info().and_then(|info| info.namespaces.iter().position(Result::is_ok)).unwrap_or(0);
        Err(errors.swap_remove(last).into())
    }

    /// All is known: I/O queues can be connected.
    fn go_live(&mut self) {
        let namespaces = self.namespaces.seen().collect();
        let info = Box::new(self.facts.info(&self.config, self.queue.cntlid(), namespaces));
        self.events.push_back(ControllerEvent::Live(info.clone()));
        self.live = Some(info);
    }
}
