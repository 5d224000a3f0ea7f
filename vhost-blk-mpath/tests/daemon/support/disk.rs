//! Test helpers: a front-end that does one thing at a time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use virtio_driver::VirtioBlkFeatureFlags;
use vublk_bench::backend::Backend;
use vublk_bench::front_end::{BlkQueue, ConnectError, Device, DeviceInfo, QueueShape};
use vublk_bench::request::{Kind, Request, Status};

use super::PATIENCE;

/// The size of one write or read.
const BYTES: usize = 4096;
const SHAPE: QueueShape = QueueShape { queues: 1, ring_size: 64, slots: 16, slot_bytes: 128 << 10 };

/// One queue of a disk. Dropping it hangs up, whatever is in flight.
pub(crate) struct Disk {
    queue: BlkQueue,
    device: Arc<Device>,
    /// The slot of each request in flight, by its index in the ring.
    in_flight: HashMap<u16, u16>,
}

impl Disk {
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).unwrap()
    }

    /// Connects to a daemon that may serve another front-end for longer than the handshake waits.
    pub(crate) fn connect_patiently(socket: &Path) -> Self {
        let start = Instant::now();
        loop {
            match Self::try_connect(socket) {
                Ok(disk) => return disk,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
        }
    }

    fn try_connect(socket: &Path) -> Result<Self, ConnectError> {
        let (device, queues) =
            Device::connect(socket, VirtioBlkFeatureFlags::empty(), PATIENCE, |_| Ok::<_, ConnectError>(SHAPE))?;
        let queue = queues.into_iter().next().unwrap();
        Ok(Self { queue, device, in_flight: HashMap::new() })
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Queues a request from `slot`, with `data` in its buffer.
    pub(crate) fn submit(&mut self, slot: u16, request: Request, data: &[u8]) {
        self.queue.fill(slot, data);
        let head = self.queue.submit(slot, &request).unwrap();
        assert_eq!(self.in_flight.insert(head, slot), None);
        self.queue.kick().unwrap();
    }

    /// Queues a write of 4096 times `byte`.
    pub(crate) fn submit_write(&mut self, slot: u16, offset: u64, byte: u8) {
        self.submit(slot, Request { kind: Kind::Write, offset, len: BYTES as u32 }, &[byte; BYTES]);
    }

    /// The slot and status of the next answer within `time`.
    pub(crate) fn answer(&mut self, time: Duration) -> Option<(u16, Status)> {
        let start = Instant::now();
        loop {
            if let Some(used) = self.queue.next_used() {
                return Some((self.in_flight.remove(&used.head).expect("an answer to a request"), used.status));
            }
            let left = time.checked_sub(start.elapsed())?;
            self.queue.wait(left.min(Duration::from_millis(100))).unwrap();
        }
    }

    /// The content of a slot's buffer.
    pub(crate) fn fetch(&mut self, slot: u16, data: &mut [u8]) {
        self.queue.fetch(slot, data);
    }

    /// Runs one request alone.
    pub(crate) fn run(&mut self, request: Request, data: &[u8]) -> Status {
        assert!(self.in_flight.is_empty());
        self.submit(0, request, data);
        self.answer(PATIENCE).expect("an answer").1
    }

    /// Writes 4096 times `byte`.
    pub(crate) fn write(&mut self, offset: u64, byte: u8) -> Status {
        self.run(Request { kind: Kind::Write, offset, len: BYTES as u32 }, &[byte; BYTES])
    }

    pub(crate) fn flush(&mut self) -> Status {
        self.run(Request::FLUSH, &[])
    }

    /// Reads 4096 bytes, which must be equal. Requests in flight may exist, but none may be answered meanwhile.
    pub(crate) fn read_by(&mut self, slot: u16, offset: u64) -> u8 {
        let mut data = [0xee; BYTES];
        self.submit(slot, Request { kind: Kind::Read, offset, len: BYTES as u32 }, &data);
        assert_eq!(self.answer(PATIENCE), Some((slot, Status::Ok)));
        self.queue.fetch(slot, &mut data);
        assert!(data.iter().all(|&byte| byte == data[0]), "torn: {} and others", data[0]);
        data[0]
    }

    pub(crate) fn read(&mut self, offset: u64) -> u8 {
        self.read_by(0, offset)
    }
}
