//! The device configuration space (virtio 1.2, 5.2.4), as bytes. Behind virtio's fields lies the [vendor
//! window](crate::vendor_window).

use std::ops::Range;

use crate::disk::{DiskGeometry, SECTOR_BYTES};

/// The capacity field.
pub(crate) const CAPACITY: Range<usize> = 0..8;

/// Offset of `writeback`, the one virtio field that can be written.
pub(crate) const WRITEBACK: usize = 32;

/// The most that vhost-user passes (QEMU's `VHOST_USER_MAX_CONFIG_SIZE`). Virtio's own fields end at 60.
pub(crate) const BYTES: usize = 256;

/// The configuration space of a disk.
pub(crate) fn bytes(geometry: &DiskGeometry, capacity_sectors: u64, writeback: bool) -> [u8; BYTES] {
    let mut space = [0; BYTES];
    let mut put = |range: Range<usize>, value: &[u8]| space[range].copy_from_slice(value);
    put(CAPACITY, &capacity_sectors.to_le_bytes());
    put(8..12, &geometry.size_max.to_le_bytes());
    put(12..16, &u32::from(geometry.seg_max).to_le_bytes());
    // 16..20 is cylinders, heads and sectors. They are not offered.
    put(20..24, &geometry.block_size.to_le_bytes());
    // 25 is the alignment offset. Zero means aligned.
    put(24..25, &[geometry.physical_block_exp]);
    put(26..28, &geometry.min_io_blocks.to_le_bytes());
    put(28..32, &geometry.opt_io_blocks.to_le_bytes());
    put(WRITEBACK..WRITEBACK + 1, &[u8::from(writeback)]);
    put(34..36, &geometry.num_queues.to_le_bytes());
    put(36..40, &geometry.max_discard_sectors.to_le_bytes());
    put(40..44, &1_u32.to_le_bytes());
    put(44..48, &(geometry.block_size / SECTOR_BYTES as u32).to_le_bytes());
    put(48..52, &geometry.max_write_zeroes_sectors.to_le_bytes());
    put(52..56, &1_u32.to_le_bytes());
    put(56..57, &[u8::from(geometry.write_zeroes_may_unmap)]);
    space
}

/// Whether a read of `size` bytes at `offset` overlaps the range.
pub(crate) fn reaches(range: &Range<usize>, offset: u32, size: u32) -> bool {
    let start = offset as usize;
    start < range.end && start.saturating_add(size as usize) > range.start
}

/// Reads `size` bytes from `offset` on. Bytes beyond the known fields read as zero, as a newer front-end may ask for
/// more.
pub(crate) fn read(space: &[u8], offset: u32, size: u32) -> Vec<u8> {
    let known = space.iter().skip(offset as usize).copied();
    known.chain(std::iter::repeat(0)).take(size as usize).collect()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    // The kernel's own structure tells the offsets.
    use virtio_bindings::virtio_blk::virtio_blk_config as C;

    use super::*;
    use crate::vendor_window::RANGE;

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let geometry = DiskGeometry {
            physical_block_exp: 3,
            min_io_blocks: 0x1234,
            opt_io_blocks: 0x0abc_def0,
            num_queues: 5,
            max_discard_sectors: 0x10_0000,
            max_write_zeroes_sectors: 0x20_0000,
            write_zeroes_may_unmap: true,
            ..DiskGeometry::new(8, 4096)
        };
        let space = bytes(&geometry, 0x0102_0304_0506_0708, true);
        let u16_at = |at: usize| u16::from_le_bytes([space[at], space[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        assert_eq!(space[..8], 0x0102_0304_0506_0708_u64.to_le_bytes());
        assert_eq!(u32_at(offset_of!(C, size_max)), 1 << 20);
        assert_eq!(u32_at(offset_of!(C, seg_max)), 126);
        assert_eq!(u32_at(offset_of!(C, blk_size)), 4096);
        assert_eq!(space[offset_of!(C, physical_block_exp)], 3);
        assert_eq!(u16_at(offset_of!(C, min_io_size)), 0x1234);
        assert_eq!(u32_at(offset_of!(C, opt_io_size)), 0x0abc_def0);
        assert_eq!(space[offset_of!(C, wce)], 1);
        assert_eq!(offset_of!(C, wce), WRITEBACK);
        assert_eq!(u16_at(offset_of!(C, num_queues)), 5);
        assert_eq!(u32_at(offset_of!(C, max_discard_sectors)), 0x10_0000);
        assert_eq!(u32_at(offset_of!(C, max_discard_seg)), 1);
        assert_eq!(u32_at(offset_of!(C, discard_sector_alignment)), 8);
        assert_eq!(u32_at(offset_of!(C, max_write_zeroes_sectors)), 0x20_0000);
        assert_eq!(u32_at(offset_of!(C, max_write_zeroes_seg)), 1);
        assert_eq!(space[offset_of!(C, write_zeroes_may_unmap)], 1);
        assert_eq!(space[offset_of!(C, geometry)..][..4], [0; 4]);
    }

    #[test]
    fn reads_are_bounded() {
        let space = bytes(&DiskGeometry::new(8, 512), 8, false);
        assert_eq!(read(&space, 0, 60), space[..60]);
        assert_eq!(read(&space, 20, 4), 512_u32.to_le_bytes());
        assert_eq!(read(&space, 58, 4), [0; 4]);
        assert_eq!(read(&space, 255, 1), [0]);
        assert_eq!(read(&space, u32::MAX, 2), [0; 2]);
        assert_eq!(read(&space, 0, 256), space);
        assert_eq!(read(&space, 250, 10), [0; 10]);
    }

    #[test]
    fn the_window_is_behind_the_fields_of_virtio() {
        assert!(size_of::<C>() <= RANGE.start && RANGE.end <= BYTES);
        let space = bytes(&DiskGeometry::new(8, 512), u64::MAX, true);
        assert_eq!(space[60..], [0; BYTES - 60]);
        for (offset, size) in
            [(0, 193), (0, 256), (192, 1), (255, 1), (200, 4), (255, 100), (0, u32::MAX), (1, u32::MAX)]
        {
            assert!(reaches(&RANGE, offset, size), "{offset}+{size}");
        }
        for (offset, size) in [(0, 60), (0, 192), (191, 1), (192, 0), (256, 1), (u32::MAX, u32::MAX)] {
            assert!(!reaches(&RANGE, offset, size), "{offset}+{size}");
        }
    }
}
