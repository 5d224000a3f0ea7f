//! The disk as the guest sees it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};

use crate::channel::FrontendChannel;
use crate::window::{self, Window, WindowState};

/// The unit of capacity and addresses in virtio-blk, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;

/// Queues a disk may have: vhost-user names a queue in 8 bits where it passes descriptors.
const NUM_QUEUES_MAX: u16 = 256;
/// Entries a virtqueue may have, split or packed (virtio 1.2, 2.7 and 2.8).
const QUEUE_SIZE_MAX: u16 = 32768;
/// Data segments in one request; with header and status it still fits one `IOV_MAX`.
const SEG_MAX: u16 = 1022;
/// Longest discard or write zeroes: its bytes must fit 32 bits.
const RANGE_SECTORS_MAX: u32 = u32::MAX / SECTOR_BYTES as u32;

/// The properties of a disk that a guest can see. [`new`](Self::new) has the defaults; adjust the fields, then make a
/// [`Disk`] of it, which checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskGeometry {
    /// Size in sectors of 512 bytes; whole blocks. A [`Disk`] may have [grown](Disk::grow) since.
    pub capacity_sectors: u64,
    /// Logical block size in bytes: a power of two, 512 to 65536. Requests must be whole blocks.
    pub block_size: u32,
    /// Physical block: 2^this logical blocks.
    pub physical_block_exp: u8,
    /// Smallest I/O that performs well, in logical blocks; 0 for no hint.
    pub min_io_blocks: u16,
    /// Best I/O length, in logical blocks; 0 for no hint.
    pub opt_io_blocks: u32,
    /// All writes are refused.
    pub read_only: bool,
    /// What get-id answers, NUL-padded; in Linux `/sys/block/vdX/serial`.
    pub serial: [u8; 20],
    /// Virtqueues offered, 1 to 256. The front-end uses as many of them as it likes.
    pub num_queues: u16,
    /// Largest virtqueue accepted, in entries: a power of two up to 32768. A packed one may have any size up to it. In-flight logs
    /// are made for it.
    pub queue_size_max: u16,
    /// Longest data segment, in bytes; with [`seg_max`](Self::seg_max) it bounds a request.
    pub size_max: u32,
    /// Data segments in one request, 1 to 1022. QEMU's queues have 128 entries unless told otherwise, which leaves 126 for data.
    pub seg_max: u16,
    /// Longest discard in sectors, whole blocks, below 4 GiB; 0 if the disk has no discard.
    pub max_discard_sectors: u32,
    /// Longest write zeroes in sectors, whole blocks, below 4 GiB; 0 if the disk has no write zeroes.
    pub max_write_zeroes_sectors: u32,
    /// Whether write zeroes may deallocate.
    pub write_zeroes_may_unmap: bool,
    /// The cache mode until the driver sets one: `true` is write-back.
    pub writeback: bool,
}

impl DiskGeometry {
    /// A writable disk with one queue, write-back, without discard and write zeroes.
    #[must_use]
    pub fn new(capacity_sectors: u64, block_size: u32) -> Self {
        Self {
            capacity_sectors,
            block_size,
            physical_block_exp: 0,
            min_io_blocks: 0,
            opt_io_blocks: 0,
            read_only: false,
            serial: [0; 20],
            num_queues: 1,
            queue_size_max: 1024,
            size_max: 1 << 20,
            seg_max: 126,
            max_discard_sectors: 0,
            max_write_zeroes_sectors: 0,
            write_zeroes_may_unmap: false,
            writeback: true,
        }
    }

    /// Data bytes one request may carry.
    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        self.size_max.saturating_mul(u32::from(self.seg_max))
    }

    /// Descriptors a request of the advertised shape has: header, data, status.
    pub(crate) fn descriptors_max(&self) -> u16 {
        self.seg_max.saturating_add(2)
    }

    fn check(&self) -> Result<(), GeometryError> {
        let block_size = self.block_size;
        if !block_size.is_power_of_two() || !(512..=65536).contains(&block_size) {
            return Err(GeometryError::BlockSize(block_size));
        }
        self.check_capacity(self.capacity_sectors)?;
        if !(1..=NUM_QUEUES_MAX).contains(&self.num_queues) {
            return Err(GeometryError::NumQueues(self.num_queues));
        }
        if !self.queue_size_max.is_power_of_two() || self.queue_size_max > QUEUE_SIZE_MAX {
            return Err(GeometryError::QueueSize(self.queue_size_max));
        }
        if !(1..=SEG_MAX).contains(&self.seg_max) {
            return Err(GeometryError::SegMax(self.seg_max));
        }
        if self.size_max < block_size {
            return Err(GeometryError::SizeMax { size_max: self.size_max, block_size });
        }
        for sectors in [self.max_discard_sectors, self.max_write_zeroes_sectors] {
            let whole_blocks = (u64::from(sectors) * SECTOR_BYTES).is_multiple_of(block_size.into());
            if sectors > RANGE_SECTORS_MAX || !whole_blocks {
                return Err(GeometryError::RangeSectors { sectors, block_size });
            }
        }
        Ok(())
    }

    fn check_capacity(&self, sectors: u64) -> Result<(), GeometryError> {
        let block_size = self.block_size;
        let whole_blocks = |bytes: u64| bytes.is_multiple_of(block_size.into());
        if sectors.checked_mul(SECTOR_BYTES).is_some_and(whole_blocks) {
            Ok(())
        } else {
            Err(GeometryError::Capacity { sectors, block_size })
        }
    }
}

/// What is wrong with a [`DiskGeometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// See [`DiskGeometry::block_size`].
    #[error("block size {0} is not a power of two from 512 to 65536")]
    BlockSize(u32),
    /// See [`DiskGeometry::capacity_sectors`].
    #[error("{sectors} sectors are not whole blocks of {block_size} bytes, or too many")]
    Capacity {
        /// The capacity given.
        sectors: u64,
        /// The block size given.
        block_size: u32,
    },
    /// See [`DiskGeometry::num_queues`].
    #[error("{0} queues; 1 to {NUM_QUEUES_MAX} are possible")]
    NumQueues(u16),
    /// See [`DiskGeometry::queue_size_max`].
    #[error("queue size {0} is not a power of two up to {QUEUE_SIZE_MAX}")]
    QueueSize(u16),
    /// See [`DiskGeometry::seg_max`].
    #[error("{0} segments in a request; 1 to {SEG_MAX} are possible")]
    SegMax(u16),
    /// See [`DiskGeometry::size_max`].
    #[error("segments of {size_max} bytes cannot hold a block of {block_size}")]
    SizeMax {
        /// The longest segment given.
        size_max: u32,
        /// The block size given.
        block_size: u32,
    },
    /// See [`DiskGeometry::max_discard_sectors`].
    #[error("discard or write zeroes of {sectors} sectors is not whole blocks of {block_size} bytes, or 4 GiB or more")]
    RangeSectors {
        /// The length given.
        sectors: u32,
        /// The block size given.
        block_size: u32,
    },
}

/// A disk with a valid geometry, its size, which may grow, and its cache mode. The mode outlives connections: a guest that
/// chose write-through goes on relying on it when its front-end reconnects, and one that starts anew reads it first.
#[derive(Debug)]
pub struct Disk {
    geometry: DiskGeometry,
    capacity_sectors: AtomicU64,
    writeback: AtomicBool,
    /// If it has one. Locked before the channel.
    window: Option<Mutex<WindowState>>,
    /// Where to say that the configuration space has changed, while a front-end listens to that.
    channel: Mutex<Option<FrontendChannel>>,
}

impl Disk {
    /// Checks the geometry.
    pub fn new(geometry: DiskGeometry) -> Result<Self, GeometryError> {
        geometry.check()?;
        let (writeback, capacity_sectors) = (geometry.writeback.into(), geometry.capacity_sectors.into());
        Ok(Self { geometry, capacity_sectors, writeback, window: None, channel: Mutex::new(None) })
    }

    /// The same with a window, which says nothing yet.
    #[must_use]
    pub fn with_window(self) -> Self {
        Self { window: Some(Mutex::default()), ..self }
    }

    /// What the guest sees; the capacity is the one it had at first.
    #[must_use]
    pub fn geometry(&self) -> &DiskGeometry {
        &self.geometry
    }

    /// Size in sectors of 512 bytes.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors.load(Ordering::Relaxed)
    }

    /// Makes the disk larger, and has the front-end tell the guest. Requests behind the old end are given out from now on.
    /// `false`, and nothing happens, if it is that large already: a disk never shrinks, as what is in flight or yet to
    /// come may be for any place that the guest has seen.
    pub fn grow(&self, capacity_sectors: u64) -> Result<bool, GeometryError> {
        self.geometry.check_capacity(capacity_sectors)?;
        let grown = self.capacity_sectors.fetch_max(capacity_sectors, Ordering::Relaxed) < capacity_sectors;
        if grown {
            self.tell_of_change();
        }
        Ok(grown)
    }

    /// Tells the front-end, if it listens, that the configuration space is to be read again.
    pub(crate) fn tell_of_change(&self) {
        if let Some(channel) = &*self.channel() {
            channel.config_changed();
        }
    }

    /// Who is told of changes from now on. Whether there was one of the window before, which is yet to be told.
    pub(crate) fn set_channel(&self, channel: FrontendChannel) -> bool {
        let window = self.window();
        *self.channel() = Some(channel);
        window.is_some_and(|window| window.is_news())
    }

    /// The front-end is gone.
    pub(crate) fn forget_front_end(&self) {
        if let Some(mut window) = self.window() {
            window.forget_reader();
        }
        *self.channel() = None;
    }

    /// Has the window say that, if the disk has one. A front-end that has used it is told if that is news.
    pub fn set_window(&self, says: Window) {
        let Some(mut window) = self.window() else { return };
        if window.change(says) {
            self.tell_of_change();
        }
    }

    /// The window for a front-end that reads it.
    pub(crate) fn read_window(&self) -> Option<[u8; window::BYTES]> {
        self.window().map(|mut window| window.read())
    }

    pub(crate) fn has_window(&self) -> bool {
        self.window.is_some()
    }

    fn window(&self) -> Option<MutexGuard<'_, WindowState>> {
        let window = self.window.as_ref()?;
        Some(window.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn channel(&self) -> MutexGuard<'_, Option<FrontendChannel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `[sector, sector + bytes)` is whole blocks of the disk.
    pub(crate) fn contains(&self, sector: u64, bytes: u64) -> bool {
        let block_size = u64::from(self.geometry.block_size);
        sector.is_multiple_of(block_size / SECTOR_BYTES)
            && bytes.is_multiple_of(block_size)
            && sector.checked_add(bytes / SECTOR_BYTES).is_some_and(|end| end <= self.capacity_sectors())
    }

    /// Whether the disk is in write-back mode now.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.writeback.load(Ordering::Relaxed)
    }

    pub(crate) fn set_writeback(&self, writeback: bool) {
        self.writeback.store(writeback, Ordering::Relaxed);
    }

    /// The virtio-blk feature bits this disk offers.
    pub(crate) fn features(&self) -> u64 {
        let geometry = &self.geometry;
        let writable = !geometry.read_only;
        [
            (VIRTIO_BLK_F_SIZE_MAX, true),
            (VIRTIO_BLK_F_SEG_MAX, true),
            (VIRTIO_BLK_F_RO, geometry.read_only),
            (VIRTIO_BLK_F_BLK_SIZE, true),
            (VIRTIO_BLK_F_FLUSH, true),
            (VIRTIO_BLK_F_TOPOLOGY, true),
            (VIRTIO_BLK_F_CONFIG_WCE, true),
            (VIRTIO_BLK_F_MQ, true),
            (VIRTIO_BLK_F_DISCARD, writable && geometry.max_discard_sectors > 0),
            (VIRTIO_BLK_F_WRITE_ZEROES, writable && geometry.max_write_zeroes_sectors > 0),
        ]
        .into_iter()
        .fold(0, |bits, (feature, offered)| bits | u64::from(offered) << feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> DiskGeometry {
        DiskGeometry::new(1 << 20, 4096)
    }

    #[test]
    fn impossible_geometries_are_refused() {
        let cases = [
            (DiskGeometry { block_size: 1000, ..geometry() }, GeometryError::BlockSize(1000)),
            (DiskGeometry { block_size: 256, ..geometry() }, GeometryError::BlockSize(256)),
            (
                DiskGeometry { capacity_sectors: 9, ..geometry() },
                GeometryError::Capacity { sectors: 9, block_size: 4096 },
            ),
            (
                DiskGeometry { capacity_sectors: u64::MAX / 512 + 1, ..geometry() },
                GeometryError::Capacity { sectors: u64::MAX / 512 + 1, block_size: 4096 },
            ),
            (DiskGeometry { num_queues: 0, ..geometry() }, GeometryError::NumQueues(0)),
            (DiskGeometry { num_queues: 257, ..geometry() }, GeometryError::NumQueues(257)),
            (DiskGeometry { queue_size_max: 100, ..geometry() }, GeometryError::QueueSize(100)),
            (DiskGeometry { seg_max: 0, ..geometry() }, GeometryError::SegMax(0)),
            (DiskGeometry { size_max: 512, ..geometry() }, GeometryError::SizeMax { size_max: 512, block_size: 4096 }),
            (
                DiskGeometry { max_discard_sectors: 0x80_0000, ..geometry() },
                GeometryError::RangeSectors { sectors: 0x80_0000, block_size: 4096 },
            ),
            (
                DiskGeometry { max_write_zeroes_sectors: 1, ..geometry() },
                GeometryError::RangeSectors { sectors: 1, block_size: 4096 },
            ),
        ];
        for (geometry, error) in cases {
            assert_eq!(Disk::new(geometry).err(), Some(error));
        }
    }

    #[test]
    fn only_whole_blocks_inside_the_disk_are_contained() {
        let disk = Disk::new(DiskGeometry::new(16, 4096)).unwrap();
        assert!(disk.contains(0, 8192) && disk.contains(8, 4096) && disk.contains(16, 0));
        for (sector, bytes) in [(8, 8192), (1, 4096), (0, 512), (u64::MAX, 4096), (u64::MAX - 7, 4096), (24, 0)] {
            assert!(!disk.contains(sector, bytes), "{sector}+{bytes}");
        }
    }

    #[test]
    fn a_disk_grows_and_never_shrinks() {
        let disk = Disk::new(DiskGeometry::new(16, 4096)).unwrap();
        for sectors in [20, u64::MAX / 512 + 1] {
            assert_eq!(disk.grow(sectors), Err(GeometryError::Capacity { sectors, block_size: 4096 }));
        }
        assert_eq!(
            [disk.grow(16), disk.grow(8), disk.grow(24), disk.grow(16)],
            [Ok(false), Ok(false), Ok(true), Ok(false)]
        );
        assert!(disk.contains(16, 4096) && !disk.contains(24, 4096));
        assert_eq!((disk.capacity_sectors(), disk.geometry().capacity_sectors), (24, 16));
    }

    #[test]
    fn features_follow_the_disk() {
        let features = |geometry| Disk::new(geometry).unwrap().features();
        let ranges = DiskGeometry { max_discard_sectors: 8, max_write_zeroes_sectors: 8, ..geometry() };
        let range_bits = 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
        assert_eq!(features(geometry()) & range_bits, 0);
        assert_eq!(features(ranges.clone()) & range_bits, range_bits);
        let read_only = features(DiskGeometry { read_only: true, ..ranges });
        assert_eq!(read_only & range_bits, 0);
        assert_ne!(read_only & (1 << VIRTIO_BLK_F_RO), 0);
    }
}
