//! Executes I/O commands against the stores.

use std::io;

use nvme_tcp::target::{IoScope, IoTask, IoView, TargetCommand, TargetQueue, check_io};
use nvme_tcp::wire::Status;

use super::shared::Shared;
use crate::storage::Store;

/// Executes a command and completes it.
pub(super) fn execute(shared: &Shared, view: &IoView, queue: &mut TargetQueue, command: TargetCommand) {
    let (scope, task) = match check_io(&command, &shared.namespaces, view) {
        Ok(checked) => checked,
        Err(status) => return queue.complete(command.token, status, 0),
    };
    let IoScope::One(index) = scope else {
        let status = flush_all(shared);
        return queue.complete(command.token, status, 0);
    };
    let store = &*shared.stores[index];
    if let IoTask::Read(range) = task {
        // As long as the command's SGL, so it has 32 bits.
        let bytes = range.bytes as u32;
        return queue.complete_with_data(command.token, bytes, |offset, part| {
            store.read(range.offset + u64::from(offset), part).map_err(|_| Status::UNRECOVERED_READ_ERROR)
        });
    }
    let result = change(store, task, &command.payload);
    let status = result.map_or_else(|error| change_status(&error), |()| Status::SUCCESS);
    queue.complete(command.token, status, 0);
}

fn change(store: &dyn Store, task: IoTask, payload: &[u8]) -> io::Result<()> {
    match task {
        // Handled by the caller.
        IoTask::Read(_) => Ok(()),
        IoTask::Write { range, fua } => store.write(range.offset, payload, fua),
        IoTask::Flush => store.flush(),
        IoTask::WriteZeroes { range, deallocate, fua } => {
            store.write_zeroes(range.offset, range.bytes, deallocate, fua)
        }
        IoTask::Deallocate(ranges) => {
            ranges.iter().try_for_each(|range| store.write_zeroes(range.offset, range.bytes, true, false))
        }
    }
}

/// Flushes every namespace.
pub(super) fn flush_all(shared: &Shared) -> Status {
    // Every store is tried, whatever becomes of the others.
    let failed = shared.stores.iter().filter(|store| store.flush().is_err()).count();
    if failed == 0 { Status::SUCCESS } else { Status::WRITE_FAULT }
}

fn change_status(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Status::CAPACITY_EXCEEDED,
        _ => Status::WRITE_FAULT,
    }
}
