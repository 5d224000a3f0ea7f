//! Decides: a request is split into commands.
//!
//! Splitting a request into commands within the limits of the controller: MDTS, NOIOB, WZSL, DMRSL, 65536 blocks.

use super::command_table::{Direction, InFlightCommand};
use super::config::IoLimits;
use super::request::{IoCommand, Part, Request};
use crate::wire::{BLOCKS_MAX, DsmRange, NvmCommand, Sgl, Sqe};

/// The next command of a request that is not issued completely, its data (direction, offset, length), and the blocks that it covers (0 for a flush).
/// `max_size` is the most data in bytes, at least one block, or the most blocks of a command without data.
#[inline]
pub(super) fn next_command(
    request: &Request,
    limits: &IoLimits,
    max_size: u32,
) -> (NvmCommand, (Direction, u32, u32), u32) {
    let (done, end) = (request.issued, request.part_end);
    let at = |slba: u64| slba + u64::from(done);
    // For commands that move data, whose bytes fit 32 bits.
    let block_bytes = limits.namespace.block_bytes;
    let data_offset = || done * block_bytes;
    match request.command {
        IoCommand::Flush => (NvmCommand::Flush, (Direction::None, 0, 0), 0),
        IoCommand::Read { slba, .. } => {
            let blocks = transfer_blocks(limits, max_size, at(slba), end - done);
            let data = (Direction::In, data_offset(), blocks * block_bytes);
            (NvmCommand::Read { slba: at(slba), blocks }, data, blocks)
        }
        IoCommand::Write { slba, fua, .. } => {
            let blocks = transfer_blocks(limits, max_size, at(slba), end - done);
            let data = (Direction::Out, data_offset(), blocks * block_bytes);
            (NvmCommand::Write { slba: at(slba), blocks, fua }, data, blocks)
        }
        IoCommand::WriteZeroes { slba, deallocate, fua, .. } => {
            // MDTS and NOIOB limit data transfers; Write Zeroes has none (NVM Command Set 3.2.8).
            let blocks = (end - done).min(limits.max_write_zeroes_blocks).min(max_size);
            (NvmCommand::WriteZeroes { slba: at(slba), blocks, deallocate, fua }, (Direction::None, 0, 0), blocks)
        }
        IoCommand::Deallocate { .. } => {
            // The payload of each command is one range.
            let data = (Direction::Out, 0, DsmRange::LEN as u32);
            let blocks = (end - done).min(limits.max_deallocate_blocks).min(max_size);
            (NvmCommand::DatasetManagement { ranges: 1, deallocate: true }, data, blocks)
        }
    }
}

/// The number of blocks at `slba` that one read or write may cover, at most `remaining`.
#[inline]
fn transfer_blocks(limits: &IoLimits, max_bytes: u32, slba: u64, remaining: u32) -> u32 {
    // The size of a block is a power of two.
    let blocks = remaining.min(max_bytes >> limits.namespace.block_bytes.trailing_zeros()).min(BLOCKS_MAX);
    match u64::from(limits.namespace.noiob_blocks) {
        0 => blocks,
        // NOIOB has 16 bits, so this fits.
        boundary => blocks.min((boundary - slba % boundary) as u32),
    }
}

/// Issues the next command of the request in slot `owner`: returns the command for the queue pair, and its entry. Updates the
/// request. `is_issued` is set at the end of the present part.
#[expect(clippy::inline_always, reason = "the entry is then written once, and not copied")]
#[inline(always)]
pub(super) fn issue(owner: u16, request: &mut Request, limits: &IoLimits, max_size: u32) -> (InFlightCommand, Sqe) {
    let max_size = request.recovery.as_ref().map_or(max_size, |recovery| max_size.min(recovery.max_size));
    let (command, (direction, base, length), blocks) = next_command(request, limits, max_size);
    let part = Part { first: request.issued, blocks };
    request.issued += blocks;
    request.commands_in_flight += 1;
    request.is_issued = request.issued == request.part_end;
    let issued = InFlightCommand { part, direction, base, length, ..InFlightCommand::of(owner) };
    (issued, command.to_sqe(0, limits.namespace.nsid, Sgl::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{CommandLimits, NamespaceLimits, Tag};
    use proptest::prelude::*;

    /// Limits, and the most bytes of a command.
    fn any_limits() -> impl Strategy<Value = (IoLimits, u32)> {
        let limits = (1u32.., 9u32..=12, 0u32..12, prop_oneof![Just(0u16), 1u16..300]);
        limits.prop_map(|(nsid, shift, mdts, noiob_blocks)| {
            let namespace = NamespaceLimits { nsid, block_bytes: 1 << shift, namespace_blocks: u64::MAX, noiob_blocks };
            (IoLimits::new(namespace, CommandLimits::NONE), 1 << (shift + mdts))
        })
    }

    fn request(command: IoCommand) -> Request {
        Request::new(Tag(0), 0, command)
    }

    proptest! {
        /// The commands of a read cover the request exactly, in order, each within all limits.
        #[test]
        fn commands_cover_the_request((limits, most) in any_limits(), slba in 0u64..1 << 40, blocks in 1u32..5000) {
            let mut request = request(IoCommand::Read { slba, blocks });
            let (mut covered, block_bytes) = (0, limits.namespace.block_bytes);
            while !request.is_issued {
                let (command, data, count) = next_command(&request, &limits, most);
                prop_assert_eq!(command, NvmCommand::Read { slba: slba + u64::from(covered), blocks: count });
                let length = count * block_bytes;
                prop_assert_eq!(data, (Direction::In, covered * block_bytes, length));
                prop_assert!(count > 0 && length <= most && count <= BLOCKS_MAX);
                if limits.namespace.noiob_blocks > 0 {
                    let boundary = u64::from(limits.namespace.noiob_blocks);
                    let first = slba + u64::from(covered);
                    prop_assert_eq!(first / boundary, (first + u64::from(count) - 1) / boundary);
                }
                let (_, sqe) = issue(0, &mut request, &limits, most);
                prop_assert_eq!(sqe.nsid.get(), limits.namespace.nsid);
                covered += count;
            }
            prop_assert_eq!((covered, request.issued), (blocks, blocks));
        }

        #[test]
        fn write_zeroes_is_split_at_its_limit(blocks in 1u32.., limit in prop_oneof![Just(u64::MAX), 1u64 << 20..1 << 40]) {
            let namespace = NamespaceLimits { nsid: 1, block_bytes: 512, namespace_blocks: u64::MAX, noiob_blocks: 8 };
            let most = (limit / 512).min(BLOCKS_MAX.into()) as u32;
            let limits = IoLimits::new(namespace, CommandLimits { max_write_zeroes_bytes: limit, ..CommandLimits::NONE });
            let mut request = request(IoCommand::WriteZeroes { slba: 7, blocks, deallocate: true, fua: false });
            let mut commands = 0;
            while !request.is_issued {
                request.commands_in_flight = 0;
                issue(0, &mut request, &limits, u32::MAX);
                commands += 1;
            }
            prop_assert_eq!(commands, blocks.div_ceil(most));
        }

        /// Each command has one range within the limit, and together they cover all blocks, even beyond 4 GiB.
        #[test]
        fn deallocate_is_split_at_its_limit(slba in 0u64..1 << 40, blocks in 1u32.., most in 1u32 << 20..) {
            let namespace = NamespaceLimits { nsid: 1, block_bytes: 512, namespace_blocks: u64::MAX, noiob_blocks: 8 };
            let limits = IoLimits::new(namespace, CommandLimits { max_deallocate_blocks: most, ..CommandLimits::NONE });
            let mut request = request(IoCommand::Deallocate { slba, blocks });
            let mut next = slba;
            while !request.is_issued {
                request.commands_in_flight = 0;
                let (command, _) = issue(0, &mut request, &limits, u32::MAX);
                prop_assert_eq!((command.direction, command.base, command.length), (Direction::Out, 0, 16));
                prop_assert_eq!(slba + u64::from(command.part.first), next);
                prop_assert!((1..=most).contains(&command.part.blocks));
                next += u64::from(command.part.blocks);
            }
            prop_assert_eq!(next, slba + u64::from(blocks));
        }
    }
}
