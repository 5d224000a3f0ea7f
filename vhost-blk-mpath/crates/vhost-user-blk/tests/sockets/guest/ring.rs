//! The driver's side of a ring: requests, completions and positions.

use super::*;

impl Ring {
    /// Repeats the driver's later writes in `memory`.
    pub(crate) fn write_also_to(&mut self, memory: &File) {
        self.copy = Some(memory.try_clone().unwrap());
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        for memory in std::iter::once(&self.memory).chain(&self.copy) {
            memory.write_all_at(bytes, self.index as u64 * QUEUE_BYTES + at).unwrap();
        }
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, self.index as u64 * QUEUE_BYTES + at).unwrap();
        bytes
    }

    fn u16_at(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.read(at))
    }

    /// Position of a drained queue whose used requests have all been seen, in vhost-user's format.
    pub(crate) fn position(&self) -> u32 {
        let bits = self.bits(self.used).into();
        if self.packed { bits << 16 | bits } else { bits }
    }

    /// Positions that `requests` requests take up.
    pub(crate) fn places(&self, requests: u16) -> u16 {
        if self.packed { 3 * requests } else { requests }
    }

    /// Index and wrap counter at `place`, as one word. In a split ring, the index alone.
    fn bits(&self, place: u16) -> u16 {
        if !self.packed {
            return place;
        }
        let wrap = (place / QUEUE_SIZE).is_multiple_of(2);
        (place % QUEUE_SIZE) | if wrap { WRAP } else { 0 }
    }

    /// The next used request.
    fn next_used(&self) -> Option<u16> {
        let bits = self.bits(self.used);
        if self.packed {
            let at = 16 * u64::from(bits & !WRAP);
            let wanted = if bits & WRAP != 0 { AVAILABLE_FLAG | USED_FLAG } else { 0 };
            let is_used = self.u16_at(at + 14) & (AVAILABLE_FLAG | USED_FLAG) == wanted;
            return is_used.then(|| self.u16_at(at + 12));
        }
        let entry = USED + 4 + 8 * u64::from(self.used % QUEUE_SIZE);
        (self.u16_at(USED + 2) != bits).then(|| self.u16_at(entry) / 3)
    }

    /// Makes a request available in `slot`, one of 21: header, data, status. Does not kick.
    pub(crate) fn submit(&mut self, slot: u16, kind: u32, sector: u64, data: &[u8]) {
        assert!(slot < 21 && data.len() <= 4096);
        let request = REQUESTS + u64::from(slot) * REQUEST_BYTES;
        let guest = GUEST_START + self.index as u64 * QUEUE_BYTES + request;
        let mut header = Vec::new();
        header.write_all(&kind.to_le_bytes()).unwrap();
        header.write_all(&[0; 4]).unwrap();
        header.write_all(&sector.to_le_bytes()).unwrap();
        header.push(0xff);
        self.write(request, &header);
        self.write(request + DATA, data);
        let data_flags = if matches!(kind, 0 | 8) { 3 } else { 1 };
        let buffers = [(guest, 16, 1), (guest + DATA, data.len() as u32, data_flags), (guest + STATUS, 1, 2)];
        if self.packed {
            return self.submit_packed(slot, &buffers);
        }
        for (next, (address, bytes, flags)) in (slot * 3..).zip(buffers) {
            let mut descriptor = Vec::new();
            descriptor.extend(address.to_le_bytes());
            descriptor.extend(u32::to_le_bytes(bytes));
            descriptor.extend(u16::to_le_bytes(flags));
            descriptor.extend((next + 1).to_le_bytes());
            self.write(16 * u64::from(next), &descriptor);
        }
        let entry = u64::from(self.available % QUEUE_SIZE);
        self.write(AVAILABLE + 4 + 2 * entry, &(slot * 3).to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.write(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    fn submit_packed(&mut self, slot: u16, buffers: &[(u64, u32, u16)]) {
        // The flags of the first descriptor come last.
        for (i, (address, bytes, flags)) in buffers.iter().enumerate().rev() {
            let bits = self.bits(self.available.wrapping_add(i as u16));
            let at = 16 * u64::from(bits & !WRAP);
            let flags = flags | if bits & WRAP != 0 { AVAILABLE_FLAG } else { USED_FLAG };
            self.write(at, &address.to_le_bytes());
            self.write(at + 8, &bytes.to_le_bytes());
            self.write(at + 12, &slot.to_le_bytes());
            self.write(at + 14, &flags.to_le_bytes());
        }
        self.available = self.available.wrapping_add(3);
    }

    /// Sets the available index to an invalid value. In a packed ring makes a chain without an end.
    pub(crate) fn break_available_idx(&mut self) {
        if !self.packed {
            return self.write(AVAILABLE + 2, &self.available.wrapping_add(QUEUE_SIZE + 1).to_le_bytes());
        }
        for place in (0..QUEUE_SIZE).rev() {
            let bits = self.bits(self.available.wrapping_add(place));
            let flags = 1 | if bits & WRAP != 0 { AVAILABLE_FLAG } else { USED_FLAG };
            self.write(16 * u64::from(bits & !WRAP) + 14, &flags.to_le_bytes());
        }
    }

    /// Makes a request available in `slot` whose only buffer is its header. A request in another slot comes before.
    pub(crate) fn submit_without_status(&mut self, slot: u16) {
        let header = GUEST_START + self.index as u64 * QUEUE_BYTES + REQUESTS + u64::from(slot) * REQUEST_BYTES;
        let bits = self.bits(self.available);
        let (at, tail) = if self.packed {
            let owner = if bits & WRAP != 0 { AVAILABLE_FLAG } else { USED_FLAG };
            (16 * u64::from(bits & !WRAP), [slot, owner])
        } else {
            self.write(AVAILABLE + 4 + 2 * u64::from(self.available % QUEUE_SIZE), &(slot * 3).to_le_bytes());
            (16 * 3 * u64::from(slot), [0; 2])
        };
        self.write(at, &header.to_le_bytes());
        self.write(at + 8, &16_u32.to_le_bytes());
        self.write(at + 12, &tail.map(u16::to_le_bytes).concat());
        if !self.packed {
            self.write(AVAILABLE + 2, &self.available.wrapping_add(1).to_le_bytes());
        }
    }

    /// The slots of requests used since the last call.
    pub(crate) fn reap(&mut self) -> Vec<u16> {
        let mut slots = Vec::new();
        while let Some(slot) = self.next_used() {
            slots.push(slot);
            self.used = self.used.wrapping_add(self.places(1));
        }
        slots
    }

    /// Waits until all requests are used.
    pub(crate) fn finish(&mut self) -> Vec<u16> {
        self.kick.write(1).unwrap();
        let mut slots = Vec::new();
        let start = Instant::now();
        loop {
            slots.extend(self.reap());
            if self.used == self.available {
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
        assert_eq!(self.next_used(), None, "a queue that must not run");
    }

    pub(crate) fn status(&self, slot: u16) -> u8 {
        self.read::<1>(REQUESTS + u64::from(slot) * REQUEST_BYTES + STATUS)[0]
    }

    pub(crate) fn data<const N: usize>(&self, slot: u16) -> [u8; N] {
        self.read(REQUESTS + u64::from(slot) * REQUEST_BYTES + DATA)
    }
}
