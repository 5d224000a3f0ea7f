//! From a namespace and its controller to the disk that guests are shown.

use mpath_api::config::DiskConfig;
use nvme_tcp::host::{ControllerInfo, NamespaceIdentity};
use vhost_user_blk::DiskGeometry;

/// Longest discard or write zeroes shown to guests. The host splits what a controller takes only in parts; the bound keeps a
/// single request from occupying a path for long.
const RANGE_BYTES_MAX: u32 = 1 << 30;

/// What front-ends are shown.
pub(crate) fn of(config: &DiskConfig, info: &ControllerInfo) -> DiskGeometry {
    let namespace = &info.namespace;
    let block_size = namespace.block_bytes;
    let capacity_sectors = namespace.blocks.saturating_mul(u64::from(block_size) / vhost_user_blk::SECTOR_BYTES);
    let range_sectors = RANGE_BYTES_MAX / vhost_user_blk::SECTOR_BYTES as u32;
    DiskGeometry {
        read_only: config.read_only || namespace.write_protected,
        serial: serial(namespace),
        num_queues: config.queues.get() as u16,
        max_discard_sectors: if info.dataset_management { range_sectors } else { 0 },
        max_write_zeroes_sectors: if info.write_zeroes { range_sectors } else { 0 },
        write_zeroes_may_unmap: info.write_zeroes && namespace.write_zeroes_deallocates,
        ..DiskGeometry::new(capacity_sectors, block_size)
    }
}

/// Twenty characters by which the guest can tell its disks apart: the tail of the namespace's widest identifier.
fn serial(namespace: &NamespaceIdentity) -> [u8; 20] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let id = if namespace.nguid == [0; 16] { namespace.uuid } else { namespace.nguid };
    let mut serial = [0; 20];
    for (digits, byte) in serial.chunks_exact_mut(2).zip(&id[6..]) {
        digits[0] = HEX[usize::from(byte >> 4)];
        digits[1] = HEX[usize::from(byte & 15)];
    }
    serial
}
