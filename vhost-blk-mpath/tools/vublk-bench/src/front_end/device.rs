//! Connecting: the handshake, the disk's properties, the rings.

use super::memory::SharedMemory;
use super::queue::{BlkQueue, RequestArea};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use virtio_driver::virtqueue::{Virtqueue, VirtqueueLayout};
use virtio_driver::{VhostUser, VirtioBlkConfig, VirtioBlkFeatureFlags, VirtioFeatureFlags, VirtioTransport};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to {}: {source}", .path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("the socket path {} is not UTF-8", .0.display())]
    BadPath(PathBuf),
    #[error("{} accepted the connection but did not answer (does it serve another front-end?)", .0.display())]
    NoAnswer(PathBuf),
    #[error("vhost-user setup failed at {step}: {source}")]
    Setup { step: &'static str, source: io::Error },
}

/// What the back-end says about its disk.
#[derive(Debug, Clone, Serialize)]
// As in the virtio configuration space (VIRTIO 1.2, 5.2.4); each bool is a feature bit.
#[allow(clippy::struct_excessive_bools)]
pub struct DeviceInfo {
    pub capacity_bytes: u64,
    pub block_bytes: u32,
    pub size_max: u32,
    pub queues_offered: u16,
    pub read_only: bool,
    pub flush: bool,
    pub event_idx: bool,
    pub discard: bool,
    pub max_discard_sectors: u32,
    pub discard_sector_alignment: u32,
    pub write_zeroes: bool,
    pub max_write_zeroes_sectors: u32,
    pub write_zeroes_may_unmap: bool,
}

type Transport = dyn VirtioTransport<VirtioBlkConfig, RequestArea>;

/// A connected disk. Its queues keep it alive.
pub struct Device {
    transport: Box<Transport>,
    memory: SharedMemory,
    info: DeviceInfo,
}

/// The number and the sizes of queues and buffers.
#[derive(Debug, Clone, Copy)]
pub struct QueueShape {
    pub queues: u16,
    /// Ring entries of each, a power of two.
    pub ring_size: u16,
    pub slots: u16,
    pub slot_bytes: usize,
}

/// The pause between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The time for the handshake of a back-end that has accepted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

fn setup(step: &'static str) -> impl Fn(io::Error) -> ConnectError {
    move |source| ConnectError::Setup { step, source }
}

/// Connects on a thread of its own, which is abandoned after a timeout. The transport's own connect blocks while the other side
/// is silent.
fn handshake(
    path: &Path,
    refused: VirtioBlkFeatureFlags,
    timeout: Duration,
) -> Result<VhostUser<VirtioBlkConfig, RequestArea>, ConnectError> {
    let name = path.to_str().ok_or_else(|| ConnectError::BadPath(path.to_owned()))?.to_owned();
    let features = VirtioFeatureFlags::VERSION_1.bits()
        | VirtioFeatureFlags::RING_EVENT_IDX.bits()
        | VirtioBlkFeatureFlags::all().difference(refused).bits();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone if this took too long; the result is not needed then.
        let _ = sender.send(VhostUser::new(&name, features));
    });
    match receiver.recv_timeout(timeout) {
        Ok(result) => result.map_err(setup("handshake")),
        Err(_) => Err(ConnectError::NoAnswer(path.to_owned())),
    }
}

impl Device {
    /// Waits up to `timeout` for the socket to appear, connects without the features `refused`, and reads the disk's properties.
    /// Then calls `shape`, which decides the queues from these properties.
    pub fn connect<E>(
        path: &Path,
        refused: VirtioBlkFeatureFlags,
        timeout: Duration,
        shape: impl FnOnce(&DeviceInfo) -> Result<QueueShape, E>,
    ) -> Result<(Arc<Self>, Vec<BlkQueue>), E>
    where
        E: From<ConnectError>,
    {
        let mut transport = wait_and_shake_hands(path, refused, timeout)?;
        let info = DeviceInfo::read(&transport)?;
        let shape = shape(&info)?;
        let (rings, memory) = set_up_queues(&mut transport, shape)?;
        let device = Arc::new(Self { transport: Box::new(transport), memory, info });
        let queues =
            rings.into_iter().zip(0..).map(|(ring, index)| BlkQueue::new(ring, index, &shape, &device)).collect();
        Ok((device, queues))
    }

    /// What the back-end said about its disk.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Sends the back-end a request, to see whether it is still there. Blocks if the back-end does not answer.
    pub fn probe(&self) -> io::Result<()> {
        self.transport.get_config().map(|_| ())
    }

    pub(super) fn transport(&self) -> &Transport {
        &*self.transport
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }
}

fn wait_and_shake_hands(
    path: &Path,
    refused: VirtioBlkFeatureFlags,
    timeout: Duration,
) -> Result<VhostUser<VirtioBlkConfig, RequestArea>, ConnectError> {
    // No connection is made just to look: a back-end may take the first one for its only front-end.
    let give_up = Instant::now() + timeout;
    loop {
        let error = match handshake(path, refused, HANDSHAKE_TIMEOUT) {
            Err(ConnectError::Setup { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                ConnectError::Unreachable { path: path.to_owned(), source }
            }
            other => return other,
        };
        if Instant::now() >= give_up {
            return Err(error);
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

impl DeviceInfo {
    fn read(transport: &VhostUser<VirtioBlkConfig, RequestArea>) -> Result<Self, ConnectError> {
        let config = transport.get_config().map_err(setup("GET_CONFIG"))?;
        let features = VirtioBlkFeatureFlags::from_bits_truncate(transport.get_features());
        let ring_features = VirtioFeatureFlags::from_bits_truncate(transport.get_features());
        if !ring_features.contains(VirtioFeatureFlags::VERSION_1) {
            return Err(setup("feature negotiation")(io::Error::other("VIRTIO_F_VERSION_1 is not offered")));
        }
        let has = |feature| features.contains(feature);
        let sectors = config.capacity.to_native();
        let queues = if has(VirtioBlkFeatureFlags::MQ) { config.num_queues.to_native() } else { 1 };
        let vhost_queues = transport.max_queues().map_or(queues, |most| most.min(usize::from(u16::MAX)) as u16);
        let when = |feature, value: u32| if has(feature) { value } else { 0 };
        Ok(Self {
            capacity_bytes: sectors
                .checked_mul(crate::request::SECTOR_BYTES)
                .ok_or_else(|| setup("GET_CONFIG")(io::Error::other("the capacity overflows 64 bits")))?,
            block_bytes: if has(VirtioBlkFeatureFlags::BLK_SIZE) { config.blk_size.to_native() } else { 512 },
            size_max: when(VirtioBlkFeatureFlags::SIZE_MAX, config.size_max.to_native()),
            queues_offered: queues.min(vhost_queues),
            read_only: has(VirtioBlkFeatureFlags::RO),
            flush: has(VirtioBlkFeatureFlags::FLUSH),
            event_idx: ring_features.contains(VirtioFeatureFlags::RING_EVENT_IDX),
            discard: has(VirtioBlkFeatureFlags::DISCARD),
            max_discard_sectors: when(VirtioBlkFeatureFlags::DISCARD, config.max_discard_sectors.to_native()),
            discard_sector_alignment: when(VirtioBlkFeatureFlags::DISCARD, config.discard_sector_alignment.to_native()),
            write_zeroes: has(VirtioBlkFeatureFlags::WRITE_ZEROES),
            max_write_zeroes_sectors: when(
                VirtioBlkFeatureFlags::WRITE_ZEROES,
                config.max_write_zeroes_sectors.to_native(),
            ),
            write_zeroes_may_unmap: has(VirtioBlkFeatureFlags::WRITE_ZEROES) && config.write_zeroes_may_unmap != 0,
        })
    }
}

type Rings = Vec<Virtqueue<'static, RequestArea>>;

fn set_up_queues(
    transport: &mut VhostUser<VirtioBlkConfig, RequestArea>,
    shape: QueueShape,
) -> Result<(Rings, SharedMemory), ConnectError> {
    let features = VirtioFeatureFlags::from_bits_truncate(transport.get_features());
    let (queues, ring_size) = (usize::from(shape.queues), usize::from(shape.ring_size));
    let layout = VirtqueueLayout::new::<RequestArea>(queues, ring_size, features).map_err(setup("ring layout"))?;
    let ring_memory = transport.alloc_queue_mem(&layout).map_err(setup("ADD_MEM_REG (rings)"))?;
    let (base, len) = (ring_memory.as_mut_ptr(), ring_memory.len());
    assert!(len >= queues * layout.end_offset, "the transport allocated what the layout needs");
    let mut rings = Vec::with_capacity(queues);
    for index in 0..queues {
        // SAFETY: every queue gets its own part of the transport's mapping, disjoint from all others and inside it
        // (asserted above). The mapping stays until the transport is dropped: `Device` owns the transport, each
        // `BlkQueue` holds an `Arc<Device>` and drops its ring first.
        let part = unsafe { std::slice::from_raw_parts_mut(base.add(index * layout.end_offset), layout.end_offset) };
        let ring = Virtqueue::new(transport.iova_translator(), part, shape.ring_size, features);
        rings.push(ring.map_err(setup("ring layout"))?);
    }
    let slots = queues * usize::from(shape.slots);
    let memory = SharedMemory::new(slots * shape.slot_bytes).map_err(setup("data memory"))?;
    transport.map_mem_region(memory.address(), memory.len(), memory.fd(), 0).map_err(setup("ADD_MEM_REG (data)"))?;
    transport.setup_queues(&rings).map_err(setup("vring setup"))?;
    Ok((rings, memory))
}
