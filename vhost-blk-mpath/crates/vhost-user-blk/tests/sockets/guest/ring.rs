//! The driver's side of a ring: requests, completions and positions.

use virtio_guest::NEXT;

use super::*;

impl Virtqueue for Ring {
    fn ring(&self) -> &virtio_guest::Ring {
        &self.driver
    }

    fn ring_mut(&mut self) -> &mut virtio_guest::Ring {
        &mut self.driver
    }

    fn write_at(&mut self, address: u64, bytes: &[u8]) {
        for memory in std::iter::once(&self.memory).chain(&self.copy) {
            memory.write_all_at(bytes, address - GUEST_START).unwrap();
        }
    }

    fn read_at(&self, address: u64, bytes: &mut [u8]) {
        self.memory.read_exact_at(bytes, address - GUEST_START).unwrap();
    }
}

impl Ring {
    /// Repeats the driver's later writes in `memory`.
    pub(crate) fn write_also_to(&mut self, memory: &File) {
        self.copy = Some(memory.try_clone().unwrap());
    }

    /// Position of a drained queue whose used requests have all been seen, in vhost-user's format.
    pub(crate) fn position(&self) -> u32 {
        self.driver.position(self.driver.seen_used)
    }

    /// Positions that `requests` requests take up.
    pub(crate) fn places(&self, requests: u16) -> u64 {
        self.driver.places(requests.into(), 3)
    }

    /// The address of the request in a slot.
    fn request(&self, slot: u16) -> u64 {
        GUEST_START + self.index as u64 * QUEUE_BYTES + REQUESTS + u64::from(slot) * REQUEST_BYTES
    }

    fn read<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.read_at(address, &mut bytes);
        bytes
    }

    /// Makes a request available in `slot`, one of 21: header, data, status. Does not kick.
    pub(crate) fn submit(&mut self, slot: u16, kind: u32, sector: u64, data: &[u8]) {
        assert!(slot < 21 && data.len() <= 4096);
        let request = self.request(slot);
        let mut header = [u64::from(kind), sector].map(u64::to_le_bytes).concat();
        header.push(0xff);
        self.write_at(request, &header);
        self.write_at(request + DATA, data);
        let data_flags = if matches!(kind, 0 | 8) { WRITE } else { 0 };
        let buffers = [(request, 16, 0), (request + DATA, data.len() as u32, data_flags), (request + STATUS, 1, WRITE)];
        self.chain(slot * 3, &buffers);
        self.make_available(slot * 3);
    }

    /// Sets the available index to an invalid value. In a packed ring makes a chain without an end.
    pub(crate) fn break_available_idx(&mut self) {
        self.without_progress(|ring| {
            if ring.driver.layout.is_packed {
                ring.make_packed_available(0, &[(0, 0, NEXT); QUEUE_SIZE as usize]);
            } else {
                ring.set_available_idx(ring.driver.available + u64::from(QUEUE_SIZE) + 1);
            }
        });
    }

    /// Makes a request available in `slot` whose only buffer is its header. A request in another slot comes before.
    pub(crate) fn submit_without_status(&mut self, slot: u16) {
        self.chain(slot * 3, &[(self.request(slot), 16, 0)]);
        self.without_progress(|ring| ring.make_available(slot * 3));
    }

    /// The next request takes the place of what this makes available.
    fn without_progress(&mut self, make_available: impl FnOnce(&mut Self)) {
        let available = self.driver.available;
        make_available(self);
        self.driver.available = available;
    }

    /// The slots of requests used since the last call.
    pub(crate) fn reap(&mut self) -> Vec<u16> {
        self.used().into_iter().map(|(head, _)| head as u16 / 3).collect()
    }

    /// Waits until all requests are used.
    pub(crate) fn finish(&mut self) -> Vec<u16> {
        self.kick.write(1).unwrap();
        let mut slots = Vec::new();
        let start = Instant::now();
        loop {
            slots.extend(self.reap());
            if self.driver.seen_used == self.driver.available {
                return slots;
            }
            assert!(start.elapsed() < PATIENCE, "nothing came");
            // SAFETY: the descriptor is borrowed for this call only, while `call` lives.
            wait_readable(unsafe { BorrowedFd::borrow_raw(self.call.as_raw_fd()) });
            self.call.read().unwrap();
        }
    }

    /// Checks that no request is used while the queue must not run.
    pub(crate) fn assert_idle(&self) {
        self.kick.write(1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(self.used_at(self.driver.seen_used), None, "a queue that must not run");
    }

    pub(crate) fn status(&self, slot: u16) -> u8 {
        self.read::<1>(self.request(slot) + STATUS)[0]
    }

    pub(crate) fn data<const N: usize>(&self, slot: u16) -> [u8; N] {
        self.read(self.request(slot) + DATA)
    }
}
