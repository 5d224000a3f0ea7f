//! The regions of `SET_MEM_TABLE`.
//!
//! A front-end may send a table that is longer than its regions: that of Linux in user mode is always as long as one of two. libvhost-user
//! takes such, and the `vhost` crate (0.18) does not. So the message is taken off the connection [before the crate sees it](crate::message).

use std::fs::File;

use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserMsgValidator};
use vhost::vhost_user::{Error as MessageError, Result as MessageResult};

use crate::message::{Message, number_at};

/// How many regions there are, and as much padding.
const HEAD_BYTES: usize = 8;
/// Guest address, size, the front-end's address and the place in the file: 64 bits each.
const REGION_BYTES: usize = 32;

/// The regions of a table, and the file of each. What the message has beyond the regions that it declares is ignored.
pub(crate) fn regions(message: Message) -> MessageResult<(Vec<VhostUserMemoryRegion>, Vec<File>)> {
    let Message { body, files, .. } = message;
    let [count, padding] = [0, 4].map(|at| number_at(&body, at));
    let count = count.filter(|&count| count > 0 && padding == Some(0)).ok_or(MessageError::InvalidMessage)? as usize;
    // So there are as few regions as descriptors that a message may have.
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
