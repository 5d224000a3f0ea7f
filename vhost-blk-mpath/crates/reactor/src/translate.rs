//! Decides: an NVMe status becomes an outcome for the core (`outcome_of`).
//! Decides: a guest sees this virtio status (`status_of`).
//!
//! Translation between virtio-blk and NVMe: requests into commands, and status codes into the outcome of a request.

use monotonic::Duration;
use mpath_core::{DiskId, FlowId, Io, IoError, Outcome, RetryCause, Tag};
use nvme_tcp::host::IoCommand;
use nvme_tcp::wire::{Answer, Status, Subject};
use vhost_user_blk::{BlkStatus, Op, Request};

/// The sector of virtio-blk, whatever the block size (virtio 1.2, 5.2.2).
const SECTOR_BYTES: u32 = 512;

/// The outcome of a request whose command ended with `result`. `retry_delays` are `CRDT1` to `CRDT3` of the controller.
/// [`Status::answer`] decides.
#[must_use]
#[inline]
pub fn outcome_of(result: Result<(), Status>, retry_delays: &[Duration; 3]) -> Outcome {
    result.map_or_else(|status| outcome_of_error(status, retry_delays), |()| Outcome::Success)
}

#[cold]
fn outcome_of_error(status: Status, retry_delays: &[Duration; 3]) -> Outcome {
    match status.answer() {
        Answer::OtherPath => Outcome::PathError,
        Answer::Repeat => {
            // CRD is an index into the controller's delays. 0 asks for no delay.
            let delay = usize::from(status.crd()).checked_sub(1).and_then(|index| retry_delays.get(index));
            let cause = match status.subject() {
                Subject::Medium => RetryCause::Medium,
                _ if status.may_lose_cache() => RetryCause::Internal,
                _ => RetryCause::NotExecuted,
            };
            Outcome::Retry { after: delay.copied().unwrap_or_default(), cause }
        }
        Answer::Fail if status.is(Status::INVALID_OPCODE) || status.is(Status::INVALID_FIELD) => {
            Outcome::Failed(IoError::Unsupported)
        }
        Answer::Fail if status.subject() == Subject::Medium => Outcome::Failed(IoError::Medium),
        Answer::Fail => Outcome::Failed(IoError::Controller),
    }
}

/// The command that carries out a request. The vhost-user side has checked range and alignment.
pub(crate) fn command_of(request: &Request, block_size_bytes: u32) -> IoCommand {
    // The sizes are powers of two.
    let block_bits = block_size_bytes.trailing_zeros();
    let slba = request.sector >> (block_bits - SECTOR_BYTES.trailing_zeros());
    let blocks = request.bytes >> block_bits;
    match request.op {
        Op::Read => IoCommand::Read { slba, blocks },
        Op::Write { fua } => IoCommand::Write { slba, blocks, fua },
        Op::Flush => IoCommand::Flush,
        Op::Discard => IoCommand::Deallocate { slba, blocks },
        Op::WriteZeroes { unmap, fua } => IoCommand::WriteZeroes { slba, blocks, deallocate: unmap, fua },
    }
}

/// The request as the group sees it. The caller sets its tag.
pub(crate) fn io_of(request: &Request, disk: DiskId, flow: FlowId) -> Io {
    let (op, bytes, fua) = match request.op {
        Op::Read => (mpath_core::Op::Read, request.bytes, false),
        Op::Write { fua } => (mpath_core::Op::Write, request.bytes, fua),
        Op::Flush => (mpath_core::Op::Flush, 0, false),
        // These move no data over the path, however long their range.
        Op::Discard => (mpath_core::Op::Discard, 0, false),
        Op::WriteZeroes { fua, .. } => (mpath_core::Op::WriteZeroes, 0, fua),
    };
    Io { tag: Tag(0), op, bytes, disk, flow, fua }
}

/// The virtio-blk status of a result.
pub(crate) fn status_of(result: Result<(), IoError>) -> BlkStatus {
    match result {
        Ok(()) => BlkStatus::Ok,
        Err(IoError::Unsupported) => BlkStatus::Unsupp,
        Err(_) => BlkStatus::IoErr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Guest, pop};

    const DELAYS: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(300)];

    #[test]
    fn each_status_has_its_outcome() {
        let again = |cause| Outcome::Retry { after: Duration::ZERO, cause };
        let cases = [
            (Status::INVALID_OPCODE, Outcome::Failed(IoError::Unsupported)),
            (Status::INVALID_FIELD.with_dnr(), Outcome::Failed(IoError::Unsupported)),
            (Status::INTERNAL_ERROR, again(RetryCause::Internal)),
            (Status::TRANSIENT_TRANSPORT_ERROR, again(RetryCause::NotExecuted)),
            (Status::INTERNAL_ERROR.with_dnr(), Outcome::Failed(IoError::Controller)),
            (
                Status::COMMAND_INTERRUPTED.with_crd(2),
                Outcome::Retry { after: DELAYS[1], cause: RetryCause::NotExecuted },
            ),
            (Status::ANA_INACCESSIBLE, Outcome::PathError),
            (Status::ANA_INACCESSIBLE.with_dnr(), Outcome::PathError),
            (Status::INVALID_NAMESPACE.with_dnr(), Outcome::PathError),
            (Status::ABORTED_SQ_DELETION, Outcome::PathError),
            (Status::RESERVATION_CONFLICT, Outcome::Failed(IoError::Controller)),
            (Status::LBA_OUT_OF_RANGE, again(RetryCause::NotExecuted)),
            (Status::LBA_OUT_OF_RANGE.with_dnr(), Outcome::Failed(IoError::Controller)),
            (Status::UNRECOVERED_READ_ERROR, again(RetryCause::Medium)),
            (Status::UNRECOVERED_READ_ERROR.with_dnr(), Outcome::Failed(IoError::Medium)),
            (Status::new(7, 0xc0), again(RetryCause::Internal)),
        ];
        for (status, outcome) in cases {
            assert_eq!(outcome_of(Err(status), &DELAYS), outcome, "{status}");
        }
        // 65535 × 100 ms, the longest delay that a controller can ask for.
        let longest = Duration::from_millis(6_553_500);
        let outcome = outcome_of(Err(Status::COMMAND_INTERRUPTED.with_crd(1)), &[longest; 3]);
        assert_eq!(outcome, Outcome::Retry { after: longest, cause: RetryCause::NotExecuted });
        assert_eq!(outcome_of(Ok(()), &DELAYS), Outcome::Success);
    }

    #[test]
    fn requests_become_commands_in_blocks() {
        const BLOCK: u32 = 4096;
        let mut guest = Guest::new();
        let mut queue = guest.queue();
        guest.read(4096, 8192);
        guest.write(0, 4096);
        guest.flush();
        guest.discard(8192, 4096);
        guest.write_zeroes(12288, 4096, true);
        let cases = [
            (IoCommand::Read { slba: 1, blocks: 2 }, mpath_core::Op::Read, 8192),
            (IoCommand::Write { slba: 0, blocks: 1, fua: false }, mpath_core::Op::Write, 4096),
            (IoCommand::Flush, mpath_core::Op::Flush, 0),
            (IoCommand::Deallocate { slba: 2, blocks: 1 }, mpath_core::Op::Discard, 0),
            (
                IoCommand::WriteZeroes { slba: 3, blocks: 1, deallocate: true, fua: false },
                mpath_core::Op::WriteZeroes,
                0,
            ),
        ];
        for (command, op, bytes) in cases {
            let request = pop(&mut queue);
            assert_eq!(command_of(&request, BLOCK), command);
            let io = io_of(&request, DiskId(3), FlowId(9));
            assert_eq!((io.op, io.bytes, io.disk, io.flow, io.fua), (op, bytes, DiskId(3), FlowId(9), false));
            queue.complete(request, status_of(Ok(())));
        }
        queue.publish();
        assert_eq!(guest.results(), [0; 5]);
    }

    #[test]
    fn errors_have_their_virtio_status() {
        for error in IoError::ALL {
            let is_unsupported = error == IoError::Unsupported;
            assert_eq!(status_of(Err(error)), if is_unsupported { BlkStatus::Unsupp } else { BlkStatus::IoErr });
        }
    }
}
