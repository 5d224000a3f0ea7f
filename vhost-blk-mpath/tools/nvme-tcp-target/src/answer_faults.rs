//! Deliberately wrong answers to single commands, to test hosts.

use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use monotonic::Duration;
use nvme_tcp::wire::{Opcode, Sqe};

use super::transfer::Direction;

/// The fault of a command. Without a fault, a command is executed and answered once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFault {
    /// Not executed and not answered, as if the command was lost. Its slot stays occupied.
    Swallow,
    /// Executed and not answered, as if the answer was lost. Its slot stays occupied.
    Lose,
    /// Answered with success before its data have arrived, and executed afterwards. Only for commands that send data.
    Early,
    /// Answered twice.
    Twice,
    /// Executed and answered after a delay. [`TargetQueue::fault_delay`](super::TargetQueue::fault_delay) returns the delay.
    Late(Duration),
    /// Answered with success and the first half of its data. Only for commands that return data.
    Short,
}

/// The commands of I/O queues that get a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultyCommands {
    /// The number of matching commands, counted from now; zero ends the fault.
    pub count: u32,
    /// The opcode; `None` matches any.
    pub opcode: Option<Opcode>,
    /// The namespace; `None` matches any.
    pub nsid: Option<u32>,
}

/// The pending faults of all connections that share this, at most one of each kind. A command gets at most one fault.
#[derive(Debug, Default)]
pub struct AnswerFaults {
    /// Whether there are faults. There are nearly always none; then no connection needs the lock.
    any: AtomicBool,
    faults: Mutex<Vec<(AnswerFault, FaultyCommands)>>,
}

impl AnswerFaults {
    fn faults(&self) -> MutexGuard<'_, Vec<(AnswerFault, FaultyCommands)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the commands that get a fault. They replace those of the same kind of fault.
    pub fn set(&self, fault: AnswerFault, commands: FaultyCommands) {
        let mut faults = self.faults();
        faults.retain(|(other, _)| discriminant(other) != discriminant(&fault));
        if commands.count > 0 {
            faults.push((fault, commands));
        }
        self.any.store(!faults.is_empty(), Ordering::Release);
    }

    /// The pending faults.
    #[must_use]
    pub fn remaining(&self) -> Vec<(AnswerFault, FaultyCommands)> {
        self.faults().clone()
    }

    /// Takes the fault for a command that has just arrived.
    pub(super) fn take(&self, sqe: &Sqe) -> Option<AnswerFault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut faults = self.faults();
        let index = faults.iter().position(|(fault, commands)| fault.applies_to(sqe) && commands.match_command(sqe))?;
        let (fault, commands) = &mut faults[index];
        let fault = *fault;
        commands.count -= 1;
        if commands.count == 0 {
            faults.remove(index);
            self.any.store(!faults.is_empty(), Ordering::Release);
        }
        Some(fault)
    }
}

impl AnswerFault {
    fn applies_to(self, sqe: &Sqe) -> bool {
        match self {
            Self::Swallow | Self::Lose | Self::Twice | Self::Late(_) => true,
            Self::Early => Direction::of(sqe) == Direction::FromHost,
            Self::Short => Direction::of(sqe) == Direction::ToHost,
        }
    }
}

impl FaultyCommands {
    fn match_command(&self, sqe: &Sqe) -> bool {
        self.opcode.is_none_or(|opcode| opcode == Opcode(sqe.opcode))
            && self.nsid.is_none_or(|nsid| nsid == sqe.nsid.get())
    }
}
