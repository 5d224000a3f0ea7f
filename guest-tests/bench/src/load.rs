//! The performance workloads: sequential or random reads and writes of one size.

use crate::backend::Backend;
use crate::request::{Kind, Request, Status};
use crate::rng::Rng;
use crate::runner::{Next, Workload};

/// The order of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Ascending, wrapping at the end of the queue's share of the region.
    Sequential,
    /// Uniform over the whole region.
    Random,
}

/// One queue's requests.
#[derive(Debug)]
pub struct Load {
    order: Order,
    read_percent: u8,
    block_bytes: u32,
    region_offset: u64,
    blocks: u64,
    next_block: u64,
    rng: Rng,
}

impl Load {
    /// `region` is `(offset, bytes)`; requests are `block_bytes` long and aligned to that within the region.
    /// With [`Order::Sequential`] the region is cut into `queues` equal shares and queue number `queue` gets its own.
    #[must_use]
    pub fn new(
        order: Order,
        read_percent: u8,
        block_bytes: u32,
        region: (u64, u64),
        (queue, queues): (u16, u16),
        seed: u64,
    ) -> Self {
        let all_blocks = region.1 / u64::from(block_bytes);
        let share = (all_blocks / u64::from(queues)).max(1);
        let (first, blocks) = match order {
            Order::Sequential => ((u64::from(queue) * share).min(all_blocks.saturating_sub(1)), share),
            Order::Random => (0, all_blocks),
        };
        Self {
            order,
            read_percent,
            block_bytes,
            region_offset: region.0 + first * u64::from(block_bytes),
            blocks,
            next_block: 0,
            rng: Rng::new(seed, u64::from(queue)),
        }
    }

    fn draw(&mut self) -> Request {
        let block = match self.order {
            Order::Random => self.rng.below(self.blocks),
            Order::Sequential => {
                let block = self.next_block;
                self.next_block = (block + 1) % self.blocks;
                block
            }
        };
        let read = match self.read_percent {
            0 => false,
            100 => true,
            percent => self.rng.percent(percent),
        };
        Request {
            kind: if read { Kind::Read } else { Kind::Write },
            offset: self.region_offset + block * u64::from(self.block_bytes),
            len: self.block_bytes,
        }
    }
}

impl<B: Backend> Workload<B> for Load {
    fn next(&mut self, _slot: u16, _backend: &mut B) -> Next {
        Next::Submit(self.draw())
    }

    fn completed(&mut self, _slot: u16, _request: &Request, _status: Status, _backend: &mut B) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: (u64, u64) = (1 << 20, 64 << 10);

    #[test]
    fn sequential_shares_tile_the_region() {
        let mut offsets: Vec<u64> = (0..4)
            .flat_map(|queue| {
                let mut load = Load::new(Order::Sequential, 100, 4096, REGION, (queue, 4), 1);
                (0..4).map(move |_| load.draw().offset).collect::<Vec<_>>()
            })
            .collect();
        offsets.sort_unstable();
        let expected: Vec<u64> = (0..16).map(|block| REGION.0 + block * 4096).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn sequential_wraps() {
        let mut load = Load::new(Order::Sequential, 0, 4096, (0, 8192), (0, 1), 1);
        let offsets: Vec<_> = (0..4).map(|_| load.draw().offset).collect();
        assert_eq!(offsets, [0, 4096, 0, 4096]);
        assert_eq!(load.draw().kind, Kind::Write);
    }

    #[test]
    fn random_stays_inside_aligned_and_mixes() {
        let mut load = Load::new(Order::Random, 30, 4096, REGION, (1, 2), 9);
        let drawn: Vec<_> = (0..2000).map(|_| load.draw()).collect();
        for request in &drawn {
            assert!(request.offset >= REGION.0 && request.offset + 4096 <= REGION.0 + REGION.1);
            assert_eq!((request.offset - REGION.0) % 4096, 0);
        }
        let reads = drawn.iter().filter(|request| request.kind == Kind::Read).count();
        assert!((500..700).contains(&reads), "{reads} of 2000 are reads");
    }
}
