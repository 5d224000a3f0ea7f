//! Asynchronous events of one controller (Base 5.2): what is due, what the host was told, and what it asked to hear.

use std::collections::BTreeSet;

use super::command::CommandToken;
use crate::wire::{AsyncEvent, AsyncEventMask, LogPage, Status};

/// Asynchronous Event Requests held at once (AERL is one less).
pub(super) const MAX_EVENT_REQUESTS: usize = 4;

/// What a host can be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    Namespaces,
    Ana,
    Discovery,
}

impl Notice {
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

/// A notice between its cause and the host's reading of its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Quiet,
    /// To be told with the next Asynchronous Event Request.
    Due,
    /// Told; masked until the log was read.
    Told,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    /// What the host wants to be told of.
    pub(super) mask: AsyncEventMask,
    /// By [`Notice`].
    states: [State; Notice::ALL.len()],
    /// Namespaces that have changed since their log was last read.
    pub(super) changed_nsids: BTreeSet<u32>,
    requests: Vec<CommandToken>,
    /// Requests that a reset has ended.
    aborted: Vec<CommandToken>,
}

impl Events {
    /// Something has happened; the host is told if it wants to be, once until it has read the log.
    pub(super) fn raise(&mut self, notice: Notice) {
        let state = &mut self.states[notice as usize];
        if self.mask.has(notice.mask()) && *state == State::Quiet {
            *state = State::Due;
        }
    }

    /// The host has read the log `lid` and did not ask to retain the event.
    pub(super) fn log_was_read(&mut self, lid: LogPage) {
        for notice in Notice::ALL.into_iter().filter(|notice| notice.event().log_page == lid) {
            self.states[notice as usize] = State::Quiet;
            if notice == Notice::Namespaces {
                self.changed_nsids.clear();
            }
        }
    }

    /// Holds an Asynchronous Event Request until there is something to tell; gives it back if there are too many.
    pub(super) fn hold_request(&mut self, token: CommandToken) -> Result<(), CommandToken> {
        if self.requests.len() >= MAX_EVENT_REQUESTS {
            return Err(token);
        }
        self.requests.push(token);
        Ok(())
    }

    /// A request that is to be completed now.
    pub(super) fn poll(&mut self) -> Option<(CommandToken, Status, u64)> {
        if let Some(token) = self.aborted.pop() {
            return Some((token, Status::ABORT_REQUESTED, 0));
        }
        let due = Notice::ALL.into_iter().find(|&notice| self.states[notice as usize] == State::Due)?;
        let token = self.requests.pop()?;
        self.states[due as usize] = State::Told;
        Some((token, Status::SUCCESS, due.event().to_dw0().into()))
    }

    /// A controller reset: requests are given back, everything else is forgotten.
    pub(super) fn reset(&mut self) {
        let mut aborted = std::mem::take(&mut self.aborted);
        aborted.append(&mut self.requests);
        *self = Self { aborted, ..Self::default() };
    }
}
