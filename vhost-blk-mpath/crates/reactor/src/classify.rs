//! Between the two vocabularies: virtio-blk requests into NVMe commands, NVMe status into what it means for a request.

use mpath_core::{IoError, Outcome};
use nvme_tcp::host::IoCommand;
use nvme_tcp::wire::Status;
use vhost_user_blk::{Op, Request};

/// virtio-blk counts in sectors of 512 bytes whatever the block size (virtio 1.2, 5.2.2).
const SECTOR_BYTES: u32 = 512;

/// The command that carries out a request. The front-end's side has checked range and alignment.
pub(crate) fn command_of(request: &Request, block_size_bytes: u32) -> IoCommand {
    let slba = request.sector / u64::from(block_size_bytes / SECTOR_BYTES);
    let blocks = request.bytes / block_size_bytes;
    match request.op {
        Op::Read => IoCommand::Read { slba, blocks },
        Op::Write { fua } => IoCommand::Write { slba, blocks, fua },
        Op::Flush => IoCommand::Flush,
        Op::Discard => IoCommand::Deallocate { slba, blocks },
        Op::WriteZeroes { unmap, fua } => IoCommand::WriteZeroes { slba, blocks, deallocate: unmap, fua },
    }
}
