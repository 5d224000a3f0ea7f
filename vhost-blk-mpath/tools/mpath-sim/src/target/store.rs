//! The namespace behind every controller: what readers see, and what a crash leaves of it.
//!
//! Each node (port) keeps what it completed in a volatile cache of its own until it is flushed there; every node sees the
//! newest data at once. So a flush through one controller makes durable what that controller completed, and nothing else. Or all
//! nodes share one cache, which any flush empties.

use crate::check::Origin;

/// A block as a command left it.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) origin: Origin,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Block {
    durable: Version,
    /// Newer than `durable`, oldest first: whose cache it is in.
    cached: Vec<(usize, Version)>,
}

/// What a block lost by a crash.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) lba: u64,
    /// What is gone.
    pub(crate) gone: Vec<Origin>,
    /// What survived, the visible one last.
    pub(crate) left: Vec<Origin>,
    /// The visible content changed.
    pub(crate) visible: bool,
}

#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<Block>,
    /// The nodes have one cache.
    is_shared: bool,
}

impl Store {
    pub(crate) fn new(blocks: u64, block_bytes: usize, is_shared: bool) -> Self {
        let version = Version { origin: Origin::Initial, bytes: vec![0; block_bytes] };
        let block = || Block { durable: version.clone(), cached: Vec::new() };
        Self { blocks: (0..blocks).map(|_| block()).collect(), is_shared }
    }

    /// The node whose cache this one uses.
    fn owner(&self, node: usize) -> usize {
        if self.is_shared { 0 } else { node }
    }

    pub(crate) fn read(&self, lba: u64) -> &Version {
        let block = &self.blocks[lba as usize];
        block.cached.last().map_or(&block.durable, |(_, version)| version)
    }

    /// Writes through a node's cache, or past it.
    pub(crate) fn write(&mut self, node: usize, lba: u64, version: Version, durable: bool) {
        let node = self.owner(node);
        let block = &mut self.blocks[lba as usize];
        if durable {
            block.durable = version;
            block.cached.clear();
        } else {
            block.cached.push((node, version));
        }
    }

    /// Everything this node completed is durable from now on.
    pub(crate) fn flush(&mut self, node: usize) {
        let node = self.owner(node);
        for block in &mut self.blocks {
            if let Some(last) = block.cached.iter().rposition(|(owner, _)| *owner == node) {
                let newest = block.cached.drain(..=last).next_back();
                block.durable = newest.expect("just found").1;
            }
        }
    }

    /// The cache is lost that the node uses.
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

    /// Where each block stands that is not durable yet.
    pub(crate) fn cached(&self) -> impl Iterator<Item = (u64, usize, Origin)> + '_ {
        let blocks = (0..).zip(&self.blocks);
        blocks.flat_map(|(lba, block)| block.cached.iter().map(move |(node, version)| (lba, *node, version.origin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(id: u64) -> Version {
        Version { origin: Origin::Request(id), bytes: vec![id as u8; 4] }
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
