//! The regions of `SET_MEM_TABLE`.
//!
//! Some front-ends send a table that is longer than its regions. Linux in user mode always sends the length of two
//! regions. libvhost-user accepts such a table, but the `vhost` crate (0.18) does not. So the message is read [before
//! the crate sees it](crate::raw_message).

use std::fs::File;

use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserMsgValidator};
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

use crate::raw_message::{Message, u32_at};

/// The number of regions and padding, 32 bits each.
const HEAD_BYTES: usize = 8;
/// Guest address, size, front-end address and offset in the file, 64 bits each.
const REGION_BYTES: usize = 32;

/// The regions of a table and their files. Bytes behind the declared regions are ignored.
pub(crate) fn regions(message: Message) -> MessageResult<(Vec<VhostUserMemoryRegion>, Vec<File>)> {
    let Message { body, files, .. } = message;
    let [count, padding] = [0, 4].map(|at| u32_at(&body, at));
    let count = count.filter(|&count| count > 0 && padding == Some(0)).ok_or(MessageError::InvalidMessage)? as usize;
    // This also bounds the regions, because a message has at most 32 descriptors.
    if files.len() != count {
        return Err(MessageError::IncorrectFds);
    }
    let table = body.get(HEAD_BYTES..HEAD_BYTES + count * REGION_BYTES).ok_or(MessageError::InvalidMessage)?;
    let regions = table.chunks_exact(REGION_BYTES).map(region).collect::<Vec<_>>();
    let are_valid = regions.iter().all(VhostUserMsgValidator::is_valid);
    if are_valid { Ok((regions, files)) } else { Err(MessageError::InvalidMessage) }
}

fn region(bytes: &[u8]) -> VhostUserMemoryRegion {
    let mut fields = bytes.as_chunks().0.iter().map(|&field| u64::from_ne_bytes(field));
    let mut next = || fields.next().unwrap_or_default();
    VhostUserMemoryRegion::new(next(), next(), next(), next())
}
