//! The blocks of a namespace, and the volatile caches of its nodes.
//!
//! Each node (port) keeps completed writes in a volatile cache of its own until a flush at this node. All nodes see the newest data
//! at once. So a flush makes only the writes durable that its node completed. If all nodes share one cache, any flush empties it.

use crate::blocks::{Loss, Origin};

/// A block as a command left it.
#[derive(Debug, Clone)]
pub(crate) struct BlockVersion {
    pub(crate) origin: Origin,
    pub(crate) bytes: Vec<u8>,
}

/// A block, with its versions that are not durable.
#[derive(Debug)]
struct StoredBlock {
    durable: BlockVersion,
    /// By node: newer versions in its cache, oldest first.
    cached: Vec<(usize, BlockVersion)>,
}

/// The store of a namespace.
#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<StoredBlock>,
    /// All nodes share one cache.
    is_shared: bool,
}

impl Store {
    pub(crate) fn new(blocks: u64, block_bytes: usize, is_shared: bool) -> Self {
        let version = BlockVersion { origin: Origin::Initial, bytes: vec![0; block_bytes] };
        let block = || StoredBlock { durable: version.clone(), cached: Vec::new() };
        Self { blocks: (0..blocks).map(|_| block()).collect(), is_shared }
    }

    /// The node whose number stands for the cache of a node: the same number for all nodes if they share one cache.
    fn owner(&self, node: usize) -> usize {
        if self.is_shared { 0 } else { node }
    }

    pub(crate) fn read(&self, lba: u64) -> &BlockVersion {
        let block = &self.blocks[lba as usize];
        block.cached.last().map_or(&block.durable, |(_, version)| version)
    }

    /// Writes through a node's cache, or past it.
    pub(crate) fn write(&mut self, node: usize, lba: u64, version: BlockVersion, durable: bool) {
        let node = self.owner(node);
        let block = &mut self.blocks[lba as usize];
        if durable {
            block.durable = version;
            block.cached.clear();
        } else {
            block.cached.push((node, version));
        }
    }

    /// All changes in the node's cache become durable.
    pub(crate) fn flush(&mut self, node: usize) {
        let node = self.owner(node);
        for block in &mut self.blocks {
            if let Some(last) = block.cached.iter().rposition(|(owner, _)| *owner == node) {
                let newest = block.cached.drain(..=last).next_back();
                block.durable = newest.expect("just found").1;
            }
        }
    }

    /// The cache of a node is lost.
    pub(crate) fn crash(&mut self, node: usize) -> Vec<Loss> {
        let node = self.owner(node);
        let mut losses = Vec::new();
        for (lba, block) in (0..).zip(&mut self.blocks) {
            let visible = block.cached.last().is_some_and(|(owner, _)| *owner == node);
            let mut gone = Vec::new();
            block.cached.retain(|(owner, version)| {
                if *owner == node {
                    gone.push(version.origin);
                }
                *owner != node
            });
            if !gone.is_empty() {
                let cached = block.cached.iter().map(|(_, version)| version.origin);
                let left = std::iter::once(block.durable.origin).chain(cached).collect();
                losses.push(Loss { lba, gone, left, visible });
            }
        }
        losses
    }

    /// The changes that are not durable: block, node and origin.
    pub(crate) fn cached(&self) -> impl Iterator<Item = (u64, usize, Origin)> + '_ {
        let blocks = (0..).zip(&self.blocks);
        blocks.flat_map(|(lba, block)| block.cached.iter().map(move |(node, version)| (lba, *node, version.origin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(id: u64) -> BlockVersion {
        BlockVersion { origin: Origin::Request(id), bytes: vec![id as u8; 4] }
    }

    fn seen(store: &Store) -> Origin {
        store.read(0).origin
    }

    #[test]
    fn a_crash_takes_what_that_node_had_not_flushed() {
        let mut store = Store::new(1, 4, false);
        store.write(0, 0, version(1), false);
        store.write(1, 0, version(2), false);
        assert_eq!(store.crash(0).len(), 1);
        assert_eq!(seen(&store), Origin::Request(2), "the newer one was in another cache");
        let losses = store.crash(1);
        assert!(losses[0].visible);
        assert_eq!(seen(&store), Origin::Initial);
    }

    #[test]
    fn a_flush_covers_its_own_node_and_what_it_has_overwritten() {
        let mut store = Store::new(1, 4, false);
        store.write(0, 0, version(1), false);
        store.write(1, 0, version(2), false);
        store.flush(0);
        assert_eq!(store.cached().count(), 1);
        store.crash(1);
        assert_eq!(seen(&store), Origin::Request(1));
        store.write(0, 0, version(3), false);
        store.write(1, 0, version(4), false);
        store.flush(1);
        assert!(store.crash(0).is_empty() && store.crash(1).is_empty());
        assert_eq!(seen(&store), Origin::Request(4));
    }

    #[test]
    fn any_node_flushes_a_cache_that_all_share() {
        let mut store = Store::new(1, 4, true);
        store.write(0, 0, version(1), false);
        store.flush(1);
        store.write(2, 0, version(2), false);
        assert_eq!(store.crash(1).len(), 1);
        assert_eq!(seen(&store), Origin::Request(1));
    }

    #[test]
    fn force_unit_access_passes_the_cache() {
        let mut store = Store::new(1, 4, false);
        store.write(0, 0, version(1), true);
        assert!(store.crash(0).is_empty());
        assert_eq!(seen(&store), Origin::Request(1));
    }
}
