//! Executing I/O commands.

use std::io;

use nvme_tcp::wire::Status;
use nvme_tcp_target::{CommandToken, IoScope, IoTask, IoView, TargetCommand, TargetQueue, check_io};

use super::shared::Shared;

/// A checked command that changes a namespace.
pub(super) struct ModifyingCommand {
    pub(super) token: CommandToken,
    /// The index of the namespace.
    pub(super) namespace: usize,
    pub(super) task: IoTask,
    pub(super) payload: Vec<u8>,
}

/// Executes and completes a command. A command that changes a namespace is only checked and returned.
pub(super) fn execute(
    shared: &Shared,
    view: &IoView,
    queue: &mut TargetQueue,
    command: TargetCommand,
) -> Option<ModifyingCommand> {
    let (scope, task) = match check_io(&command, &shared.namespaces, view) {
        Ok(checked) => checked,
        Err(status) => {
            queue.complete(command.token, status, 0);
            return None;
        }
    };
    let TargetCommand { token, payload, .. } = command;
    let namespace = match scope {
        IoScope::One(index) => index,
        IoScope::All => {
            queue.complete(token, flush_all(shared), 0);
            return None;
        }
    };
    let store = &*shared.stores[namespace];
    match task {
        IoTask::Read(range) => {
            // The length matches the SGL, which has 32 bits.
            let bytes = range.bytes as u32;
            queue.complete_with_data(token, bytes, |part, out| {
                let offset = range.offset + part.start as u64;
                store.read(offset, part.len(), out).map_err(|_| Status::UNRECOVERED_READ_ERROR)
            });
            None
        }
        IoTask::Flush => {
            queue.complete(token, status_of(store.flush()), 0);
            None
        }
        task => Some(ModifyingCommand { token, namespace, task, payload }),
    }
}

impl ModifyingCommand {
    /// Executes the command. Returns the status for its completion.
    pub(super) fn execute(&self, shared: &Shared) -> Status {
        let store = &*shared.stores[self.namespace];
        status_of(match &self.task {
            // The free function `execute` completes these.
            IoTask::Read(_) | IoTask::Flush => Ok(()),
            IoTask::Write { range, fua } => store.write(range.offset, &self.payload, *fua),
            IoTask::WriteZeroes { range, deallocate, fua } => {
                store.write_zeroes(range.offset, range.bytes, *deallocate, *fua)
            }
            IoTask::Deallocate(ranges) => {
                ranges.iter().try_for_each(|range| store.write_zeroes(range.offset, range.bytes, true, false))
            }
        })
    }
}

/// Flushes all namespaces.
pub(super) fn flush_all(shared: &Shared) -> Status {
    // A failure does not prevent the flush of the other stores.
    let failed = shared.stores.iter().filter(|store| store.flush().is_err()).count();
    if failed == 0 { Status::SUCCESS } else { Status::WRITE_FAULT }
}

fn status_of(result: io::Result<()>) -> Status {
    match result.map_err(|error| error.kind()) {
        Ok(()) => Status::SUCCESS,
        Err(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Status::CAPACITY_EXCEEDED,
        Err(_) => Status::WRITE_FAULT,
    }
}
