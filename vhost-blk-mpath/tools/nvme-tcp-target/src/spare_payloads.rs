//! Memory of payloads that later payloads use again. The C library returns large blocks to the system, so that each new payload
//! would cost a page fault per page.

/// The most bytes kept on a connection.
const BYTES_MAX: usize = 16 << 20;
/// Smaller payloads are left to the C library, which keeps their memory.
const PAYLOAD_BYTES_MIN: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct SparePayloads {
    payloads: Vec<Vec<u8>>,
    bytes: usize,
}

impl SparePayloads {
    /// An empty payload with room for `bytes` bytes.
    pub(super) fn take(&mut self, bytes: u32) -> Vec<u8> {
        let bytes = bytes as usize;
        let spare = if bytes >= PAYLOAD_BYTES_MIN { self.payloads.pop() } else { None };
        let mut payload = spare.unwrap_or_default();
        self.bytes -= payload.capacity();
        payload.clear();
        payload.reserve_exact(bytes);
        payload
    }

    pub(super) fn put(&mut self, payload: Vec<u8>) {
        if payload.capacity() >= PAYLOAD_BYTES_MIN && self.bytes + payload.capacity() <= BYTES_MAX {
            self.bytes += payload.capacity();
            self.payloads.push(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_large_payload_is_used_again_without_its_data() {
        let mut spare = SparePayloads::default();
        spare.put(vec![7; 128 << 10]);
        assert_eq!(spare.take(4096).capacity(), 4096, "a small one needs no large memory");
        let smaller = spare.take(PAYLOAD_BYTES_MIN as u32);
        assert_eq!((smaller.len(), smaller.capacity()), (0, 128 << 10));
        spare.put(smaller);
        let larger = spare.take(256 << 10);
        assert_eq!(larger.len(), 0);
        assert!(larger.capacity() >= 256 << 10);
    }

    #[test]
    fn the_spare_memory_is_bounded() {
        let mut spare = SparePayloads::default();
        for _ in 0..40 {
            spare.put(vec![7; 512]);
            spare.put(vec![7; 1 << 20]);
        }
        assert_eq!((spare.payloads.len(), spare.bytes), (16, BYTES_MAX));
    }
}
