//! A namespace in memory, which is allocated in chunks at the first write.

use std::io;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use memmap2::MmapMut;

use super::Store;

/// Bytes per chunk, the unit of allocation and locking. It is small, so that parallel queues rarely use the same chunk. It is
/// large enough to keep the table of chunks below 0.02 % of the namespace.
const CHUNK_BYTES: u64 = 256 * 1024;

/// The largest memory namespace. Its table of chunks takes about 130 MB.
pub(crate) const MAX_MEMORY_BYTES: u64 = 1 << 40;

/// A mapping of its own, so that blocks of 4 KiB do not cross pages.
type Chunk = RwLock<Option<MmapMut>>;

/// A sparse namespace in memory. Its data are lost when the process ends.
pub(crate) struct MemoryStore {
    bytes: u64,
    chunks: Box<[Chunk]>,
}

/// The part of a range that lies in one chunk.
struct ChunkRange {
    chunk: usize,
    start: usize,
    len: usize,
}

impl MemoryStore {
    /// An all-zero namespace of `bytes` bytes, at most [`MAX_MEMORY_BYTES`].
    pub(crate) fn new(bytes: u64) -> Self {
        assert!(bytes <= MAX_MEMORY_BYTES, "the configuration was checked");
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        Self { bytes, chunks: (0..chunks).map(|_| RwLock::new(None)).collect() }
    }

    /// Bytes of memory that the namespace occupies.
    #[cfg(test)]
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let chunks = (0..self.chunks.len()).filter(|&i| self.read_chunk(i).is_some()).count();
        chunks as u64 * CHUNK_BYTES
    }

    fn pieces(&self, offset: u64, bytes: u64) -> impl Iterator<Item = ChunkRange> + use<> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.bytes);
        let end = end.expect("the caller has checked the range against the namespace");
        let mut at = offset;
        std::iter::from_fn(move || {
            let start = at % CHUNK_BYTES;
            let len = (CHUNK_BYTES - start).min(end - at);
            let piece = ChunkRange { chunk: (at / CHUNK_BYTES) as usize, start: start as usize, len: len as usize };
            at += len;
            (len > 0).then_some(piece)
        })
    }

    // Poison is ignored: a panic under the lock leaves whole bytes, like a torn write.
    fn read_chunk(&self, chunk: usize) -> RwLockReadGuard<'_, Option<MmapMut>> {
        self.chunks[chunk].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_chunk(&self, chunk: usize) -> RwLockWriteGuard<'_, Option<MmapMut>> {
        self.chunks[chunk].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn read(&self, offset: u64, bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        for piece in self.pieces(offset, bytes as u64) {
            match &*self.read_chunk(piece.chunk) {
                Some(chunk) => out.extend_from_slice(&chunk[piece.start..][..piece.len]),
                None => out.resize(out.len() + piece.len, 0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8], _fua: bool) -> io::Result<()> {
        let mut rest = data;
        for piece in self.pieces(offset, rest.len() as u64) {
            let (src, tail) = rest.split_at(piece.len);
            let mut chunk = self.write_chunk(piece.chunk);
            let chunk = match &mut *chunk {
                Some(chunk) => chunk,
                empty => empty.insert(MmapMut::map_anon(CHUNK_BYTES as usize)?),
            };
            chunk[piece.start..][..piece.len].copy_from_slice(src);
            rest = tail;
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, _deallocate: bool, _fua: bool) -> io::Result<()> {
        for piece in self.pieces(offset, bytes) {
            let mut chunk = self.write_chunk(piece.chunk);
            if piece.len == CHUNK_BYTES as usize {
                *chunk = None;
            } else if let Some(chunk) = &mut *chunk {
                chunk[piece.start..][..piece.len].fill(0);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unwritten_data_read_zero_and_take_no_memory() {
        let store = MemoryStore::new(1 << 30);
        let mut buf = vec![7];
        store.read((1 << 30) - 4096, 4096, &mut buf).unwrap();
        assert_eq!((buf[0], &buf[1..]), (7, [0; 4096].as_slice()));
        assert_eq!(store.allocated_bytes(), 0);
    }

    #[test]
    fn deallocating_whole_chunks_frees_their_memory() {
        let store = MemoryStore::new(4 * CHUNK_BYTES);
        store.write(0, &vec![1; 3 * CHUNK_BYTES as usize], false).unwrap();
        assert_eq!(store.allocated_bytes(), 3 * CHUNK_BYTES);
        store.write_zeroes(512, 2 * CHUNK_BYTES, true, false).unwrap();
        assert_eq!(store.allocated_bytes(), 2 * CHUNK_BYTES);
        let mut edge = Vec::new();
        store.read(0, 1024, &mut edge).unwrap();
        assert_eq!(edge[..512], [1; 512]);
        assert_eq!(edge[512..], [0; 512]);
        edge.clear();
        store.read(2 * CHUNK_BYTES, 1024, &mut edge).unwrap();
        assert_eq!(edge[..512], [0; 512]);
        assert_eq!(edge[512..], [1; 512]);
    }

    #[test]
    fn the_last_chunk_may_be_partial() {
        let store = MemoryStore::new(CHUNK_BYTES + 512);
        store.write(CHUNK_BYTES, &[3; 512], false).unwrap();
        let mut buf = Vec::new();
        store.read(CHUNK_BYTES - 512, 1024, &mut buf).unwrap();
        assert_eq!(buf[512..], [3; 512]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write { block: u64, blocks: u64, value: u8 },
        Zero { block: u64, blocks: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0u64..2048, 1u64..1200);
        prop_oneof![
            (range.clone(), 1u8..).prop_map(|((block, blocks), value)| Step::Write { block, blocks, value }),
            range.prop_map(|(block, blocks)| Step::Zero { block, blocks }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn behaves_like_a_plain_array(steps in proptest::collection::vec(step(), 1..12)) {
            let size = 2048 * 512usize;
            let store = MemoryStore::new(size as u64);
            let mut model = vec![0u8; size];
            for step in steps {
                let (block, blocks) = match step {
                    Step::Write { block, blocks, .. } | Step::Zero { block, blocks } => (block, blocks),
                };
                let start = block as usize * 512;
                let len = (blocks as usize * 512).min(size - start);
                match step {
                    Step::Write { value, .. } => {
                        store.write(start as u64, &vec![value; len], false).unwrap();
                        model[start..start + len].fill(value);
                    }
                    Step::Zero { .. } => {
                        store.write_zeroes(start as u64, len as u64, true, false).unwrap();
                        model[start..start + len].fill(0);
                    }
                }
            }
            let mut all = Vec::new();
            store.read(0, size, &mut all).unwrap();
            prop_assert!(all == model);
        }
    }
}
