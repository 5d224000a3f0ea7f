//! Decides: the guest is told of growth (`notify_config_change`).
//! Decides: a feature of virtio-blk is offered to the guest (`features`).
//!
//! The disk that a guest sees.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_CONFIG_WCE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
    VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY, VIRTIO_BLK_F_WRITE_ZEROES,
};

use crate::frontend_channel::FrontendChannel;
use crate::vendor_window::{self, VendorWindow, VendorWindowState};

/// Bytes of a sector: virtio-blk's unit of capacity and addresses, whatever the block size.
pub const SECTOR_BYTES: u64 = 512;

/// Most queues of a disk: vhost-user messages with descriptors have 8 bits for the queue index.
const NUM_QUEUES_MAX: u16 = 256;
/// Most entries of a virtqueue, split or packed (virtio 1.2, 2.7 and 2.8).
const QUEUE_SIZE_MAX: u16 = 32768;
/// Most data segments of a request. With header and status they fit one `IOV_MAX`.
const SEG_MAX: u16 = 1022;
/// Longest discard or write zeroes: the length in bytes must fit 32 bits.
const RANGE_SECTORS_MAX: u32 = u32::MAX / SECTOR_BYTES as u32;

/// The properties of a disk that a guest can see. [`new`](Self::new) sets defaults. Adjust the fields, then make a
/// [`VirtioDisk`], which checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskGeometry {
    /// Size in sectors of 512 bytes, in whole blocks. The [`VirtioDisk`] may [grow](VirtioDisk::grow) beyond it.
    pub capacity_sectors: u64,
    /// Logical block size in bytes: a power of two, 512 to 65536. Requests must be whole blocks.
    pub block_size: u32,
    /// Physical block size: 2 to the power of this, in logical blocks.
    pub physical_block_exp: u8,
    /// Smallest I/O that performs well, in logical blocks. 0 is no hint.
    pub min_io_blocks: u16,
    /// Best I/O length, in logical blocks. 0 is no hint.
    pub opt_io_blocks: u32,
    /// Whether all writes are refused.
    pub read_only: bool,
    /// The answer to get-id, padded with NUL. Linux shows it in `/sys/block/vdX/serial`.
    pub serial: [u8; 20],
    /// Virtqueues offered, 1 to 256. The front-end may use fewer.
    pub num_queues: u16,
    /// Largest virtqueue accepted, in entries: a power of two up to 32768. A packed virtqueue may have any size up to
    /// this. In-flight logs have this many entries.
    pub queue_size_max: u16,
    /// Longest data segment, in bytes. The longest request is this times [`seg_max`](Self::seg_max).
    pub size_max: u32,
    /// Most data segments of a request, 1 to 1022. QEMU's queues have 128 entries by default, which leaves 126 for
    /// data.
    pub seg_max: u16,
    /// Longest discard in sectors: whole blocks, below 4 GiB. 0 if the disk has no discard.
    pub max_discard_sectors: u32,
    /// Longest write zeroes in sectors: whole blocks, below 4 GiB. 0 if the disk has no write zeroes.
    pub max_write_zeroes_sectors: u32,
    /// Whether write zeroes may deallocate.
    pub write_zeroes_may_unmap: bool,
    /// The cache mode until the driver sets one. `true` is write-back.
    pub writeback: bool,
}

impl DiskGeometry {
    /// A writable disk with one queue and write-back cache, without discard and write zeroes.
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

    /// The most data bytes of a request.
    pub(crate) fn transfer_bytes_max(&self) -> u32 {
        self.size_max.saturating_mul(u32::from(self.seg_max))
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

    /// Checks that a disk with this block size can have that many sectors.
    pub fn check_capacity(&self, sectors: u64) -> Result<(), GeometryError> {
        let block_size = self.block_size;
        let whole_blocks = |bytes: u64| bytes.is_multiple_of(block_size.into());
        if sectors.checked_mul(SECTOR_BYTES).is_some_and(whole_blocks) {
            Ok(())
        } else {
            Err(GeometryError::Capacity { sectors, block_size })
        }
    }
}

/// The fault in a [`DiskGeometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// See [`DiskGeometry::block_size`].
    #[error("block size {0} is not a power of two from 512 to 65536")]
    BlockSize(u32),
    /// See [`DiskGeometry::capacity_sectors`].
    #[error("{sectors} sectors are too many, or are not whole blocks of {block_size} bytes")]
    Capacity {
        /// The capacity given.
        sectors: u64,
        /// The block size given.
        block_size: u32,
    },
    /// See [`DiskGeometry::num_queues`].
    #[error("{0} queues are out of range: a disk has 1 to {NUM_QUEUES_MAX}")]
    NumQueues(u16),
    /// See [`DiskGeometry::queue_size_max`].
    #[error("queue size {0} is not a power of two up to {QUEUE_SIZE_MAX}")]
    QueueSize(u16),
    /// See [`DiskGeometry::seg_max`].
    #[error("{0} segments in a request are out of range: 1 to {SEG_MAX} are allowed")]
    SegMax(u16),
    /// See [`DiskGeometry::size_max`].
    #[error("segments of {size_max} bytes cannot hold a block of {block_size} bytes")]
    SizeMax {
        /// The longest segment given.
        size_max: u32,
        /// The block size given.
        block_size: u32,
    },
    /// See [`DiskGeometry::max_discard_sectors`].
    #[error(
        "discard or write zeroes of {sectors} sectors is out of range: \
         it must be whole blocks of {block_size} bytes, and less than 4 GiB"
    )]
    RangeSectors {
        /// The length given.
        sectors: u32,
        /// The block size given.
        block_size: u32,
    },
}

/// A disk with a valid geometry, a size that may grow, and a cache mode. The mode outlives connections: a guest that
/// chose write-through relies on it after its front-end reconnects. A guest that starts anew reads the mode first.
#[derive(Debug)]
pub struct VirtioDisk {
    geometry: DiskGeometry,
    capacity_sectors: AtomicU64,
    writeback: AtomicBool,
    /// `None` if the disk has no vendor window. Lock it before the channel.
    window: Option<Mutex<VendorWindowState>>,
    /// The back-end channel to the connected front-end, if it passed one.
    channel: Mutex<Option<FrontendChannel>>,
}

impl VirtioDisk {
    /// Checks the geometry and makes a disk.
    pub fn new(geometry: DiskGeometry) -> Result<Self, GeometryError> {
        geometry.check()?;
        let (writeback, capacity_sectors) = (geometry.writeback.into(), geometry.capacity_sectors.into());
        Ok(Self { geometry, capacity_sectors, writeback, window: None, channel: Mutex::new(None) })
    }

    /// Gives the disk a vendor window. Its fields are zero until [`set_vendor_window`](Self::set_vendor_window).
    #[must_use]
    pub fn with_vendor_window(self) -> Self {
        Self { window: Some(Mutex::default()), ..self }
    }

    /// The properties that the guest sees. The capacity is the initial one.
    #[must_use]
    pub fn geometry(&self) -> &DiskGeometry {
        &self.geometry
    }

    /// Current size in sectors of 512 bytes.
    #[must_use]
    pub fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors.load(Ordering::Relaxed)
    }

    /// Enlarges the disk, and has the front-end tell the guest. Requests beyond the old end are accepted at once.
    /// Returns whether a front-end was told. Returns `None` and changes nothing if the disk already has that size. A
    /// disk never shrinks: the guest may have requests for any sector that it has seen.
    pub fn grow(&self, capacity_sectors: u64) -> Result<Option<bool>, GeometryError> {
        self.geometry.check_capacity(capacity_sectors)?;
        let grown = self.capacity_sectors.fetch_max(capacity_sectors, Ordering::Relaxed) < capacity_sectors;
        Ok(grown.then(|| self.notify_config_change()))
    }

    /// Asks the front-end to read the configuration space again. Returns `false` if it passed no back-end channel, or
    /// is gone.
    pub(crate) fn notify_config_change(&self) -> bool {
        self.channel().as_ref().is_some_and(FrontendChannel::config_changed)
    }

    /// Sets the channel that reports changes. Returns whether the vendor window has a change to report.
    pub(crate) fn set_channel(&self, channel: FrontendChannel) -> bool {
        let window = self.window();
        *self.channel() = Some(channel);
        window.is_some_and(|window| window.has_unreported_change())
    }

    /// Forgets the front-end and its channel.
    pub(crate) fn front_end_left(&self) {
        if let Some(mut window) = self.window() {
            window.front_end_left();
        }
        *self.channel() = None;
    }

    /// Sets the content of the vendor window, if the disk has one. A front-end that has read the window is notified of
    /// a change.
    pub fn set_vendor_window(&self, says: VendorWindow) {
        let Some(mut window) = self.window() else { return };
        if window.change(says) {
            self.notify_config_change();
        }
    }

    /// Sets the id of the disk's condition in the vendor window. Front-ends are not notified.
    pub fn set_condition(&self, id: u16) {
        if let Some(mut window) = self.window() {
            window.condition = id;
        }
    }

    /// The bytes of the vendor window, for a front-end that reads it.
    pub(crate) fn read_vendor_window(&self) -> Option<[u8; vendor_window::BYTES]> {
        self.window().map(|mut window| window.read())
    }

    pub(crate) fn has_vendor_window(&self) -> bool {
        self.window.is_some()
    }

    fn window(&self) -> Option<MutexGuard<'_, VendorWindowState>> {
        let window = self.window.as_ref()?;
        Some(window.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn channel(&self) -> MutexGuard<'_, Option<FrontendChannel>> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `[sector, sector + bytes)` lies in the disk and is whole blocks.
    pub(crate) fn contains(&self, sector: u64, bytes: u64) -> bool {
        // The size of a block is a power of two, so a mask has the bits of the rest.
        let block_size = u64::from(self.geometry.block_size);
        sector & (block_size / SECTOR_BYTES - 1) == 0
            && bytes & (block_size - 1) == 0
            && sector.checked_add(bytes / SECTOR_BYTES).is_some_and(|end| end <= self.capacity_sectors())
    }

    /// Whether the cache mode is write-back.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.writeback.load(Ordering::Relaxed)
    }

    pub(crate) fn set_writeback(&self, writeback: bool) {
        self.writeback.store(writeback, Ordering::Relaxed);
    }

    /// The virtio-blk feature bits that this disk offers.
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
            assert_eq!(VirtioDisk::new(geometry).err(), Some(error));
        }
    }

    #[test]
    fn only_whole_blocks_inside_the_disk_are_contained() {
        let disk = VirtioDisk::new(DiskGeometry::new(16, 4096)).unwrap();
        assert!(disk.contains(0, 8192) && disk.contains(8, 4096) && disk.contains(16, 0));
        for (sector, bytes) in [(8, 8192), (1, 4096), (0, 512), (u64::MAX, 4096), (u64::MAX - 7, 4096), (24, 0)] {
            assert!(!disk.contains(sector, bytes), "{sector}+{bytes}");
        }
    }

    #[test]
    fn a_disk_grows_and_never_shrinks() {
        let disk = VirtioDisk::new(DiskGeometry::new(16, 4096)).unwrap();
        for sectors in [20, u64::MAX / 512 + 1] {
            assert_eq!(disk.grow(sectors), Err(GeometryError::Capacity { sectors, block_size: 4096 }));
        }
        let grown = [disk.grow(16), disk.grow(8), disk.grow(24), disk.grow(16)];
        assert_eq!(grown, [Ok(None), Ok(None), Ok(Some(false)), Ok(None)], "there is no front-end to tell");
        assert!(disk.contains(16, 4096) && !disk.contains(24, 4096));
        assert_eq!((disk.capacity_sectors(), disk.geometry().capacity_sectors), (24, 16));
    }

    #[test]
    fn features_follow_the_disk() {
        let features = |geometry| VirtioDisk::new(geometry).unwrap().features();
        let ranges = DiskGeometry { max_discard_sectors: 8, max_write_zeroes_sectors: 8, ..geometry() };
        let range_bits = 1 << VIRTIO_BLK_F_DISCARD | 1 << VIRTIO_BLK_F_WRITE_ZEROES;
        assert_eq!(features(geometry()) & range_bits, 0);
        assert_eq!(features(ranges.clone()) & range_bits, range_bits);
        let read_only = features(DiskGeometry { read_only: true, ..ranges });
        assert_eq!(read_only & range_bits, 0);
        assert_ne!(read_only & (1 << VIRTIO_BLK_F_RO), 0);
    }
}
