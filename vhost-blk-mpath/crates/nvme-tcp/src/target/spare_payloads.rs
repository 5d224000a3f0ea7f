//! Memory of payloads that later payloads use again. The C library returns large blocks to the system, so that each new payload
//! would cost a page fault per page.

/// The most payloads kept. A host rarely has more large writes in flight on a connection.
const PAYLOADS_MAX: usize = 32;

#[derive(Debug, Default)]
pub(super) struct SparePayloads(Vec<Vec<u8>>);

impl SparePayloads {
    /// An empty payload with room for `bytes` bytes.
    pub(super) fn take(&mut self, bytes: u32) -> Vec<u8> {
        let mut payload = self.0.pop().unwrap_or_default();
        payload.clear();
        payload.reserve_exact(bytes as usize);
        payload
    }

    pub(super) fn put(&mut self, payload: Vec<u8>) {
        if payload.capacity() > 0 && self.0.len() < PAYLOADS_MAX {
            self.0.push(payload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_payload_is_used_again_without_its_data() {
        let mut spare = SparePayloads::default();
        spare.put(vec![7; 4096]);
        let smaller = spare.take(512);
        assert_eq!((smaller.len(), smaller.capacity()), (0, 4096));
        spare.put(smaller);
        let larger = spare.take(8192);
        assert_eq!(larger.len(), 0);
        assert!(larger.capacity() >= 8192);
    }

    #[test]
    fn the_number_of_spare_payloads_is_bounded() {
        let mut spare = SparePayloads::default();
        for _ in 0..2 * PAYLOADS_MAX {
            spare.put(Vec::new());
            spare.put(vec![7; 512]);
        }
        assert_eq!(spare.0.len(), PAYLOADS_MAX);
        assert!(spare.0.iter().all(|payload| payload.capacity() > 0));
    }
}
