//! Test helpers: a front-end whose guest names buffers that can be cut off. Its rings are in other memory, which
//! stays.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use virtio_driver::{VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};

/// The address of the guest's buffers. This process never accesses them.
const START: usize = 0x2000_0000_0000;
const SLOT_BYTES: usize = 1 << 20;
/// Payload sizes: copied, in one segment, and in several PDUs. One read and one write of each.
const SIZES: [usize; 3] = [4 << 10, 128 << 10, SLOT_BYTES];
pub(crate) const REQUESTS: usize = 2 * SIZES.len();
const QUEUE_SIZE: u16 = 64;

pub(crate) struct FaultyGuest {
    /// Dropped before the transport, whose memory it uses.
    driver: VirtioBlkQueue<'static, usize>,
    transport: Box<VirtioBlkTransport>,
    buffers: File,
}

impl FaultyGuest {
    pub(crate) fn connect(socket: &Path) -> Self {
        let features = VirtioFeatureFlags::VERSION_1.bits() | VirtioBlkFeatureFlags::all().bits();
        let transport = VhostUser::new(socket.to_str().unwrap(), features).unwrap();
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, 1, QUEUE_SIZE).unwrap();
        let buffers = File::from(memfd_create("buffers", MemfdFlags::CLOEXEC).unwrap());
        buffers.set_len((REQUESTS * SLOT_BYTES) as u64).unwrap();
        transport.map_mem_region(START, REQUESTS * SLOT_BYTES, buffers.as_raw_fd(), 0).unwrap();
        // The answer to any message shows that the earlier ones are done.
        transport.get_config().unwrap();
        Self { driver: queues.into_iter().next().unwrap(), transport, buffers }
    }

    /// Queues a read and a write of each size, with separate buffers and disk ranges, and kicks.
    pub(crate) fn submit(&mut self) {
        for (at, bytes) in SIZES.iter().flat_map(|&bytes| [bytes; 2]).enumerate() {
            let (offset, buffer) = (at * SLOT_BYTES, std::ptr::without_provenance_mut(START + at * SLOT_BYTES));
            let offset = offset as u64;
            // SAFETY: only the daemon looks at the buffers, by its own mapping.
            let submitted = unsafe {
                if at % 2 == 0 {
                    self.driver.read_raw(offset, buffer, bytes, at)
                } else {
                    self.driver.write_raw(offset, buffer, bytes, at)
                }
            };
            submitted.unwrap();
        }
        self.transport.get_submission_notifier(0).notify().unwrap();
    }

    /// Cuts the buffers off after this many bytes.
    pub(crate) fn cut_off(&self, bytes: u64) {
        self.buffers.set_len(bytes).unwrap();
    }

    /// The results answered since then.
    pub(crate) fn results(&mut self) -> Vec<i32> {
        self.driver.completions().map(|completion| completion.ret).collect()
    }
}
