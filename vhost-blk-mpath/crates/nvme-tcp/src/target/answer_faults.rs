//! Wrong answers to single commands on purpose, to test how hosts take them.

use std::mem::discriminant;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::transfer::Direction;
use crate::wire::{Opcode, Sqe};

/// What becomes of a command in place of one answer after it was executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFault {
    /// Not executed, not answered: the command was lost. Its slot stays taken.
    Swallow,
    /// Executed, not answered: the answer was lost. Its slot stays taken.
    Lose,
    /// Answered with success before its data are there, and executed once they are. Of commands that send data.
    Early,
    /// Answered twice.
    Twice,
    /// Executed and answered so much later; what [`TargetQueue::late_by`](super::TargetQueue::late_by) says.
    Late(Duration),
    /// Answered with success and the first half of its data. Of commands that return data.
    Short,
}

/// Which commands of I/O queues meet a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultyCommands {
    /// How many of those that arrive next; zero ends the fault.
    pub count: u32,
    /// Those with this opcode; any if `None`.
    pub opcode: Option<Opcode>,
    /// Those for this namespace; any if `None`.
    pub nsid: Option<u32>,
}

/// The faults to come, over all connections that share this: one of each kind. A command meets one at most.
#[derive(Debug, Default)]
pub struct AnswerFaults {
    /// Nearly always there are none, and then no connection waits for another one.
    any: AtomicBool,
    faults: Mutex<Vec<(AnswerFault, FaultyCommands)>>,
}

impl AnswerFaults {
    fn faults(&self) -> MutexGuard<'_, Vec<(AnswerFault, FaultyCommands)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has these commands meet the fault, in place of those that were to meet one of its kind.
    pub fn set(&self, fault: AnswerFault, commands: FaultyCommands) {
        let mut faults = self.faults();
        faults.retain(|(other, _)| discriminant(other) != discriminant(&fault));
        if commands.count > 0 {
            faults.push((fault, commands));
        }
        self.any.store(!faults.is_empty(), Ordering::Release);
    }

    /// The faults to come.
    #[must_use]
    pub fn left(&self) -> Vec<(AnswerFault, FaultyCommands)> {
        self.faults().clone()
    }

    /// The fault that a command meets, which has just arrived.
    pub(super) fn take(&self, sqe: &Sqe) -> Option<AnswerFault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut faults = self.faults();
        let index = faults.iter().position(|(fault, commands)| fault.fits(sqe) && commands.include(sqe))?;
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
    fn fits(self, sqe: &Sqe) -> bool {
        match self {
            Self::Swallow | Self::Lose | Self::Twice | Self::Late(_) => true,
            Self::Early => Direction::of(sqe) == Direction::FromHost,
            Self::Short => Direction::of(sqe) == Direction::ToHost,
        }
    }
}

impl FaultyCommands {
    fn include(&self, sqe: &Sqe) -> bool {
        self.opcode.is_none_or(|opcode| opcode == Opcode(sqe.opcode))
            && self.nsid.is_none_or(|nsid| nsid == sqe.nsid.get())
    }
}
