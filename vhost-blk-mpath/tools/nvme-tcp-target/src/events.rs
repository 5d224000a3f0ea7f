//! Asynchronous events of one controller (Base 5.2): the enabled events, and which are due or reported.

use std::collections::BTreeSet;

use nvme_tcp::wire::{AsyncEvent, AsyncEventMask, LogPage, Status};

use super::command::CommandToken;

/// The most outstanding Asynchronous Event Requests. AERL is one less.
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// The kinds of events that a host can enable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Namespaces,
    Ana,
    Discovery,
}

impl EventKind {
    const ALL: [Self; 3] = [Self::Namespaces, Self::Ana, Self::Discovery];

    const fn mask(self) -> AsyncEventMask {
        match self {
            Self::Namespaces => AsyncEventMask::NAMESPACE_ATTRIBUTE,
            Self::Ana => AsyncEventMask::ANA_CHANGE,
            Self::Discovery => AsyncEventMask::DISCOVERY_CHANGE,
        }
    }

    const fn event(self) -> AsyncEvent {
        match self {
            Self::Namespaces => AsyncEvent::NAMESPACE_CHANGED,
            Self::Ana => AsyncEvent::ANA_CHANGED,
            Self::Discovery => AsyncEvent::DISCOVERY_CHANGED,
        }
    }
}

/// The state of a kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Idle,
    /// The next Asynchronous Event Request reports the event.
    Due,
    /// The event was reported. It is masked until the host reads the log.
    Reported,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// The events that the host has enabled.
    pub(super) mask: AsyncEventMask,
    /// By [`EventKind`].
    states: [State; EventKind::ALL.len()],
    /// Namespaces that have changed since their log was last read.
    pub(super) changed_nsids: BTreeSet<u32>,
    requests: Vec<CommandToken>,
    /// Requests to be aborted, because of a reset.
    aborted: Vec<CommandToken>,
}

impl Events {
    /// Makes an event due if the host has enabled it, and if it is not reported already.
    pub(super) fn raise(&mut self, kind: EventKind) {
        let state = &mut self.states[kind as usize];
        if self.mask.has(kind.mask()) && *state == State::Idle {
            *state = State::Due;
        }
    }

    /// Takes note that the host has read the log `lid` without retaining the event.
    pub(super) fn log_was_read(&mut self, lid: LogPage) {
        for kind in EventKind::ALL.into_iter().filter(|kind| kind.event().log_page == lid) {
            self.states[kind as usize] = State::Idle;
            if kind == EventKind::Namespaces {
                self.changed_nsids.clear();
            }
        }
    }

    /// Keeps an Asynchronous Event Request until an event is due. Returns the token if there are too many requests.
    pub(super) fn add_request(&mut self, token: CommandToken) -> Result<(), CommandToken> {
        if self.requests.len() >= MAX_EVENT_REQUESTS {
            return Err(token);
        }
        self.requests.push(token);
        Ok(())
    }

    /// The next request to complete, with its status and result.
    pub(super) fn poll(&mut self) -> Option<(CommandToken, Status, u64)> {
        if let Some(token) = self.aborted.pop() {
            return Some((token, Status::ABORT_REQUESTED, 0));
        }
        let due = EventKind::ALL.into_iter().find(|&kind| self.states[kind as usize] == State::Due)?;
        let token = self.requests.pop()?;
        self.states[due as usize] = State::Reported;
        Some((token, Status::SUCCESS, due.event().to_dw0().into()))
    }

    /// Resets the events with the controller. Outstanding requests are aborted.
    pub(super) fn reset(&mut self) {
        let mut aborted = std::mem::take(&mut self.aborted);
        aborted.append(&mut self.requests);
        *self = Self { aborted, ..Self::default() };
    }
}
