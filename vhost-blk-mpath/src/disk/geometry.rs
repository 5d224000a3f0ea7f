//! Decides: a path lacks something that front-ends were shown (`lost`).
//!
//! The virtio disk that guests see, derived from namespace and controller.

use nvme_tcp::host::{ControllerInfo, NamespaceIdentity};
use vhost_user_blk::DiskGeometry;

use crate::disk::settings::DiskSettings;

/// The longest discard or write zeroes shown to guests. The host splits requests on the controller's limits. This
/// limit keeps one request from occupying a path for long.
const RANGE_BYTES_MAX: u32 = 1 << 30;

/// The disk as front-ends see it.
pub(crate) fn of(settings: &DiskSettings, info: &ControllerInfo, namespace: &NamespaceIdentity) -> DiskGeometry {
    let block_size = namespace.block_bytes;
    let capacity_sectors = sectors(namespace.blocks, block_size);
    let range_sectors = RANGE_BYTES_MAX / vhost_user_blk::SECTOR_BYTES as u32;
    DiskGeometry {
        read_only: settings.read_only || namespace.write_protected,
        serial: serial(namespace),
        num_queues: settings.queues.get() as u16,
        max_discard_sectors: if info.dataset_management { range_sectors } else { 0 },
        max_write_zeroes_sectors: if info.write_zeroes { range_sectors } else { 0 },
        write_zeroes_may_unmap: info.write_zeroes && namespace.write_zeroes_deallocates,
        ..DiskGeometry::new(capacity_sectors, block_size)
    }
}

/// The first property of a disk that front-ends were shown and that `found` lacks. Sizes are compared elsewhere,
/// because they change while a disk is used.
pub(crate) fn lost(shown: &DiskGeometry, found: &DiskGeometry) -> Option<LostProperty> {
    let (before, now) = (shown.block_size, found.block_size);
    let lost = [
        (before != now, LostProperty::BlockSize { before, now }),
        (!shown.read_only && found.read_only, LostProperty::Writing),
        (shown.max_discard_sectors > found.max_discard_sectors, LostProperty::Discard),
        (shown.max_write_zeroes_sectors > found.max_write_zeroes_sectors, LostProperty::WriteZeroes),
        (shown.write_zeroes_may_unmap && !found.write_zeroes_may_unmap, LostProperty::WriteZeroesUnmap),
    ];
    lost.into_iter().find_map(|(is_lost, property)| is_lost.then_some(property))
}

/// A property of a disk that its namespace lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LostProperty {
    #[error("its blocks have {now} bytes now, and had {before} before")]
    BlockSize { before: u32, now: u32 },
    #[error("it is write protected now, and was not before")]
    Writing,
    #[error("the controller has no discard now, and had it before")]
    Discard,
    #[error("the controller has no write zeroes now, and had it before")]
    WriteZeroes,
    #[error("write zeroes does not deallocate now, and did before")]
    WriteZeroesUnmap,
}

/// Converts blocks to 512-byte sectors.
pub(crate) fn sectors(blocks: u64, block_size: u32) -> u64 {
    blocks.saturating_mul(u64::from(block_size) / vhost_user_blk::SECTOR_BYTES)
}

/// A serial number of twenty characters by which the guest can tell its disks apart: the end of the namespace's
/// widest identifier.
fn serial(namespace: &NamespaceIdentity) -> [u8; 20] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let NamespaceIdentity { nguid, uuid, eui64, .. } = namespace;
    let wide = [nguid, uuid].into_iter().find(|id| **id != [0; 16]);
    let id = wide.map_or(&eui64[..], |id| &id[6..]);
    let mut serial = [0; 20];
    for (digits, byte) in serial.chunks_exact_mut(2).zip(id) {
        digits[0] = HEX[usize::from(byte >> 4)];
        digits[1] = HEX[usize::from(byte & 15)];
    }
    serial
}

#[cfg(test)]
pub(crate) mod tests {
    use monotonic::Duration;
    use mpath_config::DiskConfig;
    use nvme_tcp::host::{CommandLimits, Namespace};
    use nvme_tcp::wire::{AnaState, Version};

    use super::*;

    /// A controller with all optional features.
    pub(crate) fn controller() -> ControllerInfo {
        ControllerInfo {
            cntlid: 1,
            authenticated: None,
            version: Version(0x0002_0100),
            serial: "SN".into(),
            model: "model".into(),
            firmware: "1".into(),
            ciu: 0,
            cirn: 0,
            cross_resets: 0,
            cqt: Duration::ZERO,
            kato: Duration::from_secs(5),
            tbkas: false,
            retry_delays: [Duration::ZERO; 3],
            max_transfer_bytes: 1 << 20,
            reports_max_transfer: true,
            command_limits: CommandLimits::NONE,
            in_capsule_bytes: 8192,
            io_queues: 1,
            queue_entries: 128,
            volatile_write_cache: true,
            write_zeroes: true,
            dataset_management: true,
            anatt: Duration::from_secs(10),
            namespaces: vec![Ok(Namespace { identity: namespace(), ana: AnaState::Optimized })],
        }
    }

    /// 1000 blocks of 4096 bytes.
    fn namespace() -> NamespaceIdentity {
        NamespaceIdentity {
            nsid: 1,
            blocks: 1000,
            block_bytes: 4096,
            uuid: [0; 16],
            nguid: [0; 16],
            eui64: [0; 8],
            csi: 0,
            shared: true,
            write_protected: false,
            anagrpid: 1,
            noiob_blocks: 0,
            npdg_blocks: 0,
            deallocated_reads_zeroes: true,
            write_zeroes_deallocates: true,
        }
    }

    fn settings() -> DiskSettings {
        DiskSettings::all(&config()).remove(0)
    }

    pub(crate) fn config() -> DiskConfig {
        let path = "tcp://127.0.0.1".parse().unwrap();
        DiskConfig::new("/tmp/socket".parse().unwrap(), "nqn.example".parse().unwrap(), vec![path])
    }

    #[test]
    fn sizes_are_in_sectors_whatever_the_block() {
        let mut namespace = namespace();
        let of = |namespace: &NamespaceIdentity| of(&settings(), &controller(), namespace);
        let shown = of(&namespace);
        assert_eq!((shown.capacity_sectors, shown.block_size, shown.num_queues), (8000, 4096, 64));
        namespace.block_bytes = 512;
        assert_eq!(of(&namespace).capacity_sectors, 1000);
        // No real namespace has this size. It must be refused without a panic.
        namespace.blocks = u64::MAX;
        assert_eq!(of(&namespace).capacity_sectors, u64::MAX);
        namespace.block_bytes = 4096;
        assert!(vhost_user_blk::VirtioDisk::new(of(&namespace)).is_err());
    }

    #[test]
    fn what_the_controller_cannot_do_is_not_shown() {
        let (mut info, mut namespace) = (controller(), namespace());
        let can = |info: &ControllerInfo, namespace: &NamespaceIdentity| {
            let shown = of(&settings(), info, namespace);
            let ranges = (shown.max_discard_sectors > 0, shown.max_write_zeroes_sectors > 0);
            (ranges, shown.write_zeroes_may_unmap)
        };
        assert_eq!(can(&info, &namespace), ((true, true), true));
        assert!(vhost_user_blk::VirtioDisk::new(of(&settings(), &info, &namespace)).is_ok());
        namespace.write_zeroes_deallocates = false;
        assert_eq!(can(&info, &namespace), ((true, true), false));
        info.dataset_management = false;
        assert_eq!(can(&info, &namespace), ((false, true), false));
        namespace.write_zeroes_deallocates = true;
        info.write_zeroes = false;
        assert_eq!(can(&info, &namespace), ((false, false), false));
    }

    #[test]
    fn each_lost_property_is_found() {
        let (shown, info, namespace) = (of(&settings(), &controller(), &namespace()), controller(), namespace());
        let lost =
            |info: &ControllerInfo, namespace: &NamespaceIdentity| lost(&shown, &of(&settings(), info, namespace));
        assert_eq!(lost(&info, &namespace), None);
        assert_eq!(lost(&info, &NamespaceIdentity { blocks: 7, ..namespace }), None);
        let blocks = NamespaceIdentity { block_bytes: 512, ..namespace };
        assert_eq!(lost(&info, &blocks), Some(LostProperty::BlockSize { before: 4096, now: 512 }));
        let protected = NamespaceIdentity { write_protected: true, ..namespace };
        assert_eq!(lost(&info, &protected), Some(LostProperty::Writing));
        let less =
            |dataset_management, write_zeroes| ControllerInfo { dataset_management, write_zeroes, ..controller() };
        assert_eq!(lost(&less(false, true), &namespace), Some(LostProperty::Discard));
        assert_eq!(lost(&less(true, false), &namespace), Some(LostProperty::WriteZeroes));
        let kept = NamespaceIdentity { write_zeroes_deallocates: false, ..namespace };
        assert_eq!(lost(&info, &kept), Some(LostProperty::WriteZeroesUnmap));
        // What the namespace has gained is not shown, and does no harm.
        assert_eq!(super::lost(&of(&settings(), &less(false, false), &protected), &shown), None);
    }

    #[test]
    fn read_only_by_configuration_or_by_the_namespace() {
        let (info, mut namespace) = (controller(), namespace());
        assert!(!of(&settings(), &info, &namespace).read_only);
        assert!(of(&DiskSettings { read_only: true, ..settings() }, &info, &namespace).read_only);
        namespace.write_protected = true;
        assert!(of(&settings(), &info, &namespace).read_only);
    }

    #[test]
    fn the_serial_is_of_the_widest_identifier_there_is() {
        let mut namespace = NamespaceIdentity { eui64: *b"\x00\x25\x38\xab\xcd\xef\x01\x02", ..namespace() };
        assert_eq!(&serial(&namespace), b"002538abcdef0102\0\0\0\0");
        namespace.uuid = std::array::from_fn(|index| index as u8);
        assert_eq!(&serial(&namespace), b"060708090a0b0c0d0e0f");
        namespace.nguid = std::array::from_fn(|index| 0xf0 | index as u8);
        assert_eq!(&serial(&namespace), b"f6f7f8f9fafbfcfdfeff");
    }
}
