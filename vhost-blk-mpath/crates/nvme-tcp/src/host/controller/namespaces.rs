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

/// What the ANA log says of a namespace.
#[derive(Debug)]
enum Ana {
    /// Nothing yet: it was not read since the namespace is there.
    Unread,
    /// A state, and when "change" has lasted too long.
    State { state: AnaState, change_ends: Option<Instant> },
    /// Something that makes the namespace unusable.
    Unusable(NamespaceError),
}

#[derive(Debug)]
struct Entry {
    identity: Identified,
    ana: Ana,
}

impl Entry {
    /// The namespace as users see it; `None` while its ANA state is not known.
    fn seen(&self) -> Option<Result<Namespace, NamespaceError>> {
        match (&self.identity, &self.ana) {
            (Err(error), _) | (Ok(_), Ana::Unusable(error)) => Some(Err(error.clone())),
            (&Ok(identity), &Ana::State { state, .. }) => Some(Ok(Namespace { identity, ana: state })),
            (Ok(_), Ana::Unread) => None,
        }
    }

    fn change_ends(&self) -> Option<Instant> {
        match self.ana {
            Ana::State { change_ends, .. } => change_ends,
            Ana::Unread | Ana::Unusable(_) => None,
        }
    }
}

/// All that is known of the namespaces, in the order they were asked for. Empty until they have been identified once.
#[derive(Debug, Default)]
pub(super) struct Namespaces(Vec<Entry>);

impl Namespaces {
    /// Takes over a round of identifying all of them.
    fn identified(&mut self, round: Vec<Identified>, has_ana: bool) {
        let mut before = std::mem::take(&mut self.0).into_iter();
        let entry = |identity: Identified| {
            let before = before.next().filter(|before| before.identity.is_ok() && identity.is_ok());
            let ana = match before {
                // Its log is read next.
                Some(before) => before.ana,
                None if has_ana => Ana::Unread,
                None => Ana::State { state: AnaState::Optimized, change_ends: None },
            };
            Entry { identity, ana }
        };
        self.0 = round.into_iter().map(entry).collect();
    }

    /// Takes over an ANA log. "Change" that begins now has lasted too long at `change_ends`.
    pub(super) fn ana_read(&mut self, log: &AnaLog, change_ends: Instant) {
        for Entry { identity, ana } in &mut self.0 {
            let Ok(identity) = identity else { continue };
            *ana = match (state_of(log, identity), &*ana) {
                (None, _) => Ana::Unusable(NamespaceError::AnaGroupMissing { group: identity.anagrpid }),
                // Reading it again does not start the time anew.
                (
                    Some(AnaState::Change),
                    Ana::State { change_ends: Some(_), .. } | Ana::Unusable(NamespaceError::AnaTransition { .. }),
                ) => continue,
                (Some(state), _) => {
                    Ana::State { state, change_ends: (state == AnaState::Change).then_some(change_ends) }
                }
            };
        }
    }

    /// When "change" has lasted too long for the next of them.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(Entry::change_ends).min()
    }

    /// Makes those unusable that "change" has lasted too long for, longer than `after`. Whether there were any.
    pub(super) fn expire(&mut self, now: Instant, after: Duration) -> bool {
        let mut any = false;
        for entry in self.0.iter_mut().filter(|entry| entry.change_ends().is_some_and(|at| at <= now)) {
            entry.ana = Ana::Unusable(NamespaceError::AnaTransition { after });
            any = true;
        }
        any
    }

    /// Does without any more time limits.
    pub(super) fn stop_timers(&mut self) {
        for entry in &mut self.0 {
            if let Ana::State { change_ends, .. } = &mut entry.ana {
                *change_ends = None;
            }
        }
    }

    /// Why each of them is unusable; `None` if one is usable, or may turn out to be when the ANA log is read.
    fn errors(&self) -> Option<Vec<NamespaceError>> {
        self.0.iter().map(|entry| entry.seen().and_then(Result::err)).collect()
    }
}

/// The state of the group that lists the namespace or, where namespaces are not listed, of the one it named.
fn state_of(log: &AnaLog, identity: &NamespaceIdentity) -> Option<AnaState> {
    let listed = log.groups.iter().find(|group| group.nsids.contains(&identity.nsid)).map(|group| group.state);
    listed.or_else(|| log.state_of(identity.anagrpid))
}

/// What has led to news of the namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Identified,
    AnaLog,
    Time,
}

impl HostController {
    /// The NSID of the namespace that is being identified.
    pub(super) fn nsid(&self) -> u32 {
        self.nsids[self.round.len()]
    }

    /// Goes on identifying with the next namespace, or takes over what the round has found.
    pub(super) fn identify_next(&mut self) -> Result<Option<Step>, ControllerError> {
        while let Some(&nsid) = self.nsids.get(self.round.len()) {
            // Which ones are active was asked just before the first round, and only then.
            if self.live.is_some() || self.active.contains(&nsid) {
                return Ok(Some(Step::IdentifyNamespace));
            }
            let missing = self.missing(nsid);
            self.round.push(Err(missing));
        }
        self.namespaces.identified(std::mem::take(&mut self.round), self.facts.has_ana());
        self.check_usable()?;
        if self.live.is_none() {
            return Ok(self.step_after_namespaces());
        }
        self.tell(Cause::Identified);
        // ANA groups may be others now.
        self.wants.ana |= self.facts.has_ana();
        Ok(None)
    }

    /// Fails if no namespace is usable: for what has made the last one unusable or, if none ever was, the first one.
    pub(super) fn check_usable(&self) -> Result<(), ControllerError> {
        let Some(mut errors) = self.namespaces.errors() else { return Ok(()) };
        let last = self.info().and_then(|info| info.namespaces.iter().position(Result::is_ok)).unwrap_or(0);
        Err(errors.swap_remove(last).into())
    }

    /// Brings the information up to date, and makes events of the news.
    pub(super) fn tell(&mut self, cause: Cause) {
        let Some(info) = &mut self.live else { return };
        for (namespace, (entry, known)) in self.namespaces.0.iter().zip(&mut info.namespaces).enumerate() {
            // What is found anew is told of once its ANA state is known.
            let Some(seen) = entry.seen() else { continue };
            let found = seen.is_ok() && known.is_err();
            if cause == Cause::Identified || seen.as_ref().err() != known.as_ref().err() {
                let identity = seen.as_ref().map(|namespace| namespace.identity).map_err(Clone::clone);
                self.events.push_back(ControllerEvent::NamespaceChanged { namespace, identity: Box::new(identity) });
            }
            if let Ok(Namespace { ana: state, .. }) = seen
                && (cause == Cause::AnaLog || found)
            {
                self.events.push_back(ControllerEvent::AnaChanged { namespace, state });
            }
            *known = seen;
        }
    }

    /// All is known: I/O queues can be connected.
    pub(super) fn go_live(&mut self) {
        let namespaces = self.namespaces.0.iter().filter_map(Entry::seen).collect();
        let info = Box::new(self.facts.info(&self.config, self.queue.cntlid(), namespaces));
        self.events.push_back(ControllerEvent::Live(info.clone()));
        self.live = Some(info);
    }
}
